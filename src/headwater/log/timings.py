"""How long the store takes, by what it was asked for.

    committer ─► applied  by the kinds of operations in the commit
              ─► syncs    together: one wait is for everybody
    services  ─► answered by the kind of question

Kinds are types of the program, so there are as many lines as it has types, and no more.
"""

from collections import defaultdict
from collections.abc import Sequence

from headwater.log.operations import Operation
from headwater.model.histogram import FINE_STEPS, Histogram
from headwater.stores.questions import Question


def _histogram() -> Histogram:
    return Histogram(FINE_STEPS)


class Timings:
    """What was measured since the process began."""

    def __init__(self) -> None:
        self.operations: defaultdict[type[Operation], Histogram] = defaultdict(_histogram)
        self.questions: defaultdict[type[Question[object]], Histogram] = defaultdict(_histogram)
        self.syncs = _histogram()

    def applied(self, operations: Sequence[Operation], seconds: float) -> None:
        """A commit took so long: it counts once for each kind of operation that was in it."""
        if len(operations) == 1:
            self.operations[type(operations[0])].observe(seconds)
            return
        for kind in set(map(type, operations)):
            self.operations[kind].observe(seconds)

    def answered(self, question: Question[object], seconds: float) -> None:
        """A question took so long."""
        self.questions[type(question)].observe(seconds)
