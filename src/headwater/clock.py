"""Where time comes from: handed in, so that tests can bend it.

Time is a whole number of microseconds since 1970 (UTC) everywhere inside: in SQL, in operations and on the log.
"""

import time
from typing import NewType, Protocol, runtime_checkable

Timestamp = NewType("Timestamp", int)

SECOND = 1_000_000
MILLISECOND = 1_000


class Clock(Protocol):
    """Tells the time of day."""

    def now(self) -> Timestamp:
        """Microseconds since 1970, UTC."""
        ...


@runtime_checkable
class SteadyClock(Protocol):
    """Tells how much time has passed."""

    def steady(self) -> int:
        """Microseconds since some moment in this run of the machine: nobody can set it, and all its processes agree."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> Timestamp:
        return Timestamp(time.time_ns() // 1_000)

    def steady(self) -> int:
        return time.monotonic_ns() // 1_000


def steady_of(clock: object) -> SteadyClock:
    """The clock's own, where it has one: tests that bend time bend both. Otherwise the machine's."""
    return clock if isinstance(clock, SteadyClock) else SystemClock()
