"""How far a flow is, for the people who wait: a share from 0 to 1, told as steps end and, within one, as tasks end."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import SparkContext

from headwater.clock import SECOND

LOOK_SECONDS = 0.25

Tell = Callable[[float], None]


def keep_quiet(share: float) -> None:
    """For callers that do not want to know."""


class Progress:
    """What was done of a total, whose unit is the flow's own: records, bytes, files."""

    def __init__(self, tell: Tell, total: float) -> None:
        self._tell = tell
        self._total = max(total, 1)
        self._done = 0.0

    @contextmanager
    def step(self, context: SparkContext, amount: float) -> Iterator[None]:
        """A part of the work that Spark does in one or more jobs."""
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(context, amount, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
        self._done += amount
        self._tell(min(self._done / self._total, 1.0))

    def _watch(self, context: SparkContext, amount: float, ended: threading.Event) -> None:
        while not ended.wait(LOOK_SECONDS):
            self._tell(min((self._done + amount * share_of_tasks(context)) / self._total, 1.0))


def share_of_tasks(context: SparkContext) -> float:
    """How much of the stages that run now is done."""
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    found = [stage for stage in stages if stage is not None]
    tasks = sum(stage.numTasks for stage in found)
    return sum(stage.numCompletedTasks for stage in found) / tasks if tasks else 0.0


def rate(count: int, began_at: int, ended_at: int) -> int:
    """How many a second; times in microseconds."""
    return round(count * SECOND / max(ended_at - began_at, 1))
