"""Where time comes from: handed in, so that tests can bend it.

Time is a whole number of microseconds since 1970 (UTC) everywhere inside: in SQL, in operations and on the log.
"""

import time
from typing import NewType, Protocol

Timestamp = NewType("Timestamp", int)

SECOND = 1_000_000
MILLISECOND = 1_000


class Clock(Protocol):
    """Tells the time of day."""

    def now(self) -> Timestamp:
        """Microseconds since 1970, UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> Timestamp:
        return Timestamp(time.time_ns() // 1_000)
