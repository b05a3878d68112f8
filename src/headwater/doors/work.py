"""What a process did for one database: counted since it started, and per second of the last moments.

The rates look back over a fixed time, not to whoever asked last: one who asks does not change what another is told.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping

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


def together(several: "list[Mapping[str, float]]") -> dict[str, float]:
    """The sums, name by name."""
    return {name: sum(one.get(name, 0) for one in several) for name in COUNTED}
