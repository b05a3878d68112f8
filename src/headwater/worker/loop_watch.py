"""Sees from the worker whether the event loop of a runner turns, and which call holds it when it does not.

Looks are counted, not seconds: a machine that slept, or that is busy with others, is no fault of the loop.
"""

from collections.abc import Collection
from enum import Enum

from headwater.model.job import JobNumber
from headwater.worker.calls import NOBODY, Slate

LOOKS = 10


class Measure(Enum):
    """What is to be done about a loop."""

    NONE = "none"
    INTERRUPT = "interrupt"
    KILL = "kill"


class LoopWatch:
    """Looks at one loop, `LOOKS` times in the seconds that it may stand still."""

    def __init__(self, slate: Slate) -> None:
        self._slate = slate
        self._seen: tuple[int, tuple[JobNumber, float]] = (-1, (NOBODY, 0.0))
        self._still = 0

    def look(self, begun: Collection[JobNumber]) -> tuple[Measure, JobNumber]:
        """What is to be done now, and about which call, as far as that is known.

        A call that holds nobody up but itself may do so: a function that computes for an hour is none of our business.
        """
        seen = self._slate.beats(), self._slate.read_step()
        holder = seen[1][0]
        if seen != self._seen:
            self._seen = seen
            self._still = 0
        elif holder == NOBODY or any(number != holder for number in begun):
            self._still += 1
        if self._still == LOOKS:
            return Measure.INTERRUPT, holder
        if self._still >= 2 * LOOKS:
            return Measure.KILL, holder
        return Measure.NONE, holder
