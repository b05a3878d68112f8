"""What a process did for one database: counted since it started, and per second of the last moments.

The rates look back over a fixed time, not to whoever asked last: one who asks does not change what another is told.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from headwater.errors import HeadwaterError
from headwater.log.flow_operations import Loaded
from headwater.log.operations import Acked, Commit, Operation, Popped, Push, Pushed, Transacted, Transaction
from headwater.model.names import SYSTEM_PREFIX

COUNTED = (
    "pushed_records",
    "duplicate_records",
    "refused_records",
    "popped_records",
    "pops_with_records",
    "settled_records",
    "refused_reports",
    "dead_letters",
)
RATE_SECONDS = 10


class Work:
    """Counters, and where they stood at the beginning of each of the last seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.counters = dict.fromkeys(COUNTED, 0)
        self._before: deque[tuple[int, dict[str, int]]] = deque(maxlen=RATE_SECONDS)

    def add(self, name: str, count: int) -> None:
        """Count."""
        second = int(self._now())
        if not self._before or self._before[-1][0] != second:
            self._before.append((second, dict(self.counters)))
        self.counters[name] += count

    def rates(self) -> dict[str, float]:
        """Per second, over the last `RATE_SECONDS`."""
        begin = int(self._now()) - RATE_SECONDS
        before = next((counters for second, counters in self._before if second > begin), self.counters)
        return {name: (self.counters[name] - before[name]) / RATE_SECONDS for name in COUNTED}


def effects_of(commit: Commit) -> Iterator[tuple[str, str, int]]:
    """What a commit did, as database, counter and count: whichever way its operations came, alone or in a transaction.
    What an earlier commit has answered was counted then."""
    for operation, result in zip(commit.operations, commit.results, strict=True):
        if operation is not None and not isinstance(result, HeadwaterError):
            yield from _effects(operation, result)
    for database, count in commit.buried.items():
        yield database, "dead_letters", count


def _effects(operation: Operation, result: object) -> Iterator[tuple[str, str, int]]:
    database = operation.database
    if isinstance(operation, Transaction) and isinstance(result, Transacted):
        for step, came_to in zip(operation.operations, result.results, strict=True):
            yield from _effects(step, came_to)
    elif isinstance(operation, Push) and isinstance(result, Pushed):
        if not operation.queue.startswith(SYSTEM_PREFIX):
            yield database, "pushed_records", len(operation.records) - len(result.duplicates)
            if result.duplicates:
                yield database, "duplicate_records", len(result.duplicates)
    elif isinstance(result, Loaded):
        yield database, "pushed_records", result.count
    elif isinstance(result, Popped) and result.batches:
        yield database, "pops_with_records", 1
        yield database, "popped_records", sum(len(batch.offsets) for batch in result.batches)
    elif isinstance(result, Acked) and result.settled:
        yield database, "settled_records", result.settled


def together(several: "list[Mapping[str, float]]") -> dict[str, float]:
    """The sums, name by name."""
    return {name: sum(one.get(name, 0) for one in several) for name in COUNTED}
