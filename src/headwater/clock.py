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


class SharedClock:
    """The machine's clock, until a server is heard of that several machines have in common: then that server's.

    Between two times that were heard, the steady clock tells how much has passed, so that nobody who sets this
    machine's clock sets the time of the others.
    """

    def __init__(self, machine: SystemClock | None = None) -> None:
        self._machine = machine or SystemClock()
        # How far the server's clock is ahead of the steady one; None before it was heard of.
        self._ahead: int | None = None
        self._heard = 0

    def now(self) -> Timestamp:
        if self._ahead is None:
            return self._machine.now()
        return Timestamp(self._machine.steady() + self._ahead)

    def steady(self) -> int:
        return self._machine.steady()

    def hear(self, theirs: int, asked: int, heard: int) -> None:
        """The server told its time at some moment between two of the steady clock. What was known is changed no further
        than that demands: how long the answer took is no reason to be set."""
        least, most = theirs - heard, theirs - asked
        known = least if self._ahead is None else self._ahead
        self._ahead = min(max(known, least), most)
        self._heard = heard

    def heard_lately(self, seconds: float) -> bool:
        """Whether the server was heard of in the last so many seconds."""
        return self._ahead is not None and self.steady() - self._heard <= seconds * SECOND


def steady_of(clock: object) -> SteadyClock:
    """The clock's own, where it has one: tests that bend time bend both. Otherwise the machine's."""
    return clock if isinstance(clock, SteadyClock) else SystemClock()
