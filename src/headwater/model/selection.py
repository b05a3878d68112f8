"""Which part of the log somebody follows: queues of a database, by name or by pattern, and partitions of theirs."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from headwater.model.lane import Lane

ANY = "*"


class Selection(msgspec.Struct, frozen=True):
    """Queues by their names, or by patterns in which `*` stands for any text; without `partitions` all of theirs.

    >>> Selection("main", ("orders", "rooms/*")).holds(lane)
    """

    database: str
    queues: tuple[str, ...] = (ANY,)
    partitions: tuple[str, ...] = ()

    @property
    def queue(self) -> str:
        """The one queue that is named; empty when there are several, or may be."""
        return self.queues[0] if len(self.queues) == 1 and not is_pattern(self.queues[0]) else ""

    def holds(self, lane: Lane) -> bool:
        """Whether a partition is part of it."""
        if lane.database != self.database or (self.partitions and lane.partition not in self.partitions):
            return False
        return fits(lane.queue, self.queues)


def is_pattern(name: str) -> bool:
    """Whether this may stand for several queues: no queue has a `*` in its name."""
    return ANY in name


def fits(queue: str, patterns: Iterable[str]) -> bool:
    """Whether a queue is named, or fits a pattern."""
    return any(queue == pattern or (is_pattern(pattern) and fnmatchcase(queue, pattern)) for pattern in patterns)
