"""Limits on jobs: how many of a type may start in a time, how many may run at once. Rules, no clock, no disk.

A lane is where limited jobs queue: those of one type in a queue, or of one concurrency key. Rates are kept as the time
at which the next start would be exactly on schedule (`free_at`), so one number holds a whole bucket of permits.
"""

import msgspec

from headwater.clock import SECOND, Timestamp


class JobLane(msgspec.Struct, frozen=True, gc=False):
    """A lane with its limits and what uses them; 0 means no limit. One of a limit key takes turns with others. What
    starts in it starts in its parent too, that of its type, and in its gate, that of its concurrency key."""

    id: int
    parent: int
    concurrency: int
    rate: float
    seconds: float
    burst: int
    free_at: int
    running: int
    takes_turns: int = 0
    gate: int = 0
    type: str = ""

    def above(self) -> list[int]:
        """The other lanes that a job of this one counts in."""
        return [number for number in (self.parent, self.gate) if number]

    def interval(self) -> int:
        """Microseconds between two starts, at least one."""
        return max(round(self.seconds * SECOND / self.rate), 1)


class Limits(msgspec.Struct, frozen=True):
    """How many may run at once, and how many may start in how many seconds; 0 means no limit."""

    concurrency: int = 0
    rate: float = 0.0
    seconds: float = 1.0
    burst: int = 1

    def __bool__(self) -> bool:
        return bool(self.concurrency or self.rate)

    def changed(self, concurrency: int | None, rate: float | None, seconds: float, burst: int) -> "Limits":
        """These limits with others in place of what is said; nothing that is not said is lifted."""
        kept = self.concurrency if concurrency is None else concurrency
        if rate is None:
            return Limits(kept, self.rate, self.seconds, self.burst)
        return Limits(kept, rate, seconds, burst)


def allowance(lane: JobLane, now: Timestamp, wanted: int) -> int:
    """How many jobs of the lane may start now, at most `wanted`."""
    count = wanted
    if lane.concurrency:
        count = min(count, lane.concurrency - lane.running)
    if lane.rate:
        behind = max(lane.free_at - now, 0)
        count = min(count, lane.burst - -(-behind // lane.interval()))
    return max(count, 0)


def share(lane: JobLane, at_once: int, workers: int) -> int:
    """How many of a lane's places one of so many workers may hold: those that it can use at once, and beyond that only
    what leaves as much for each of the others."""
    return max(at_once, lane.concurrency // max(workers, 1))


def started(lane: JobLane, now: Timestamp, count: int) -> JobLane:
    """The lane after `count` jobs of it were started."""
    free_at = max(lane.free_at, now) + count * lane.interval() if lane.rate and count else lane.free_at
    return msgspec.structs.replace(lane, free_at=free_at, running=lane.running + count)


def next_start(lane: JobLane, now: Timestamp) -> Timestamp | None:
    """When the next job of the lane may start; None when only the end of another one helps."""
    if lane.concurrency and lane.running >= lane.concurrency:
        return None
    if not lane.rate:
        return now
    return Timestamp(max(lane.free_at - (lane.burst - 1) * lane.interval(), now))
