"""The clock was set back: what was promised for a time that is now far away is taken back with it.

Leases, delays and turns are kept as times of day. While a wrong clock is ahead they are kept too late, and would hold
records back for as long as it was wrong. The first commit that sees an earlier time than the file has seen moves them
by the same distance, and notes the place in the log: from there on the times in it rise again.

Segments tell the time of their commits. Others, as a pop or a push for later, leave none, so the time itself is noted
now and then: whoever opens the store next must see that the clock was ahead.
"""

import logging
from collections.abc import Callable

from headwater.clock import SECOND, Timestamp
from headwater.model.cursor import CLOCK_TOLERANCE
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.subject import Seen, Subject

log = logging.getLogger(__name__)

# How far the time may go on before it is noted again. What was promised meanwhile may last so much longer.
NOTED_EVERY = CLOCK_TOLERANCE // 2


class ClockJumps(Subject):
    """Watches the time of commits, under the write lock. `set_back` tells the other subjects what it found."""

    def __init__(self, connection: Connection, segments: Segments, set_back: Callable[[Timestamp, int], None]) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._segments = segments
        self._set_others_back = set_back
        self._newest_jump = 0
        self._latest = 0
        self._noted = 0
        # Of the jumps that this handle noted: what the clock had shown before each.
        self._jumped_from: dict[int, int] = {}

    def inherit(self, other: "ClockJumps") -> None:
        """Go on from what another connection of this handle had seen: not every commit leaves its time in the file."""
        self._newest_jump, self._latest = other._newest_jump, other._latest
        self._jumped_from = dict(other._jumped_from)

    def forget(self) -> None:
        """After a rollback: a jump that was noted may never have been."""
        self._newest_jump = -1
        self._noted = 0

    def catch_up(self, seen: Seen) -> None:
        """Others have committed: they may have seen a later time, or a jump and have dealt with it."""
        if seen.newest_jump != self._newest_jump:
            # Jumps of ours that are not there were taken back, and are to be noted again.
            taken_back = [was for jump, was in self._jumped_from.items() if jump > seen.newest_jump]
            self._latest = max(taken_back) if seen.newest_jump < self._newest_jump and taken_back else 0
            self._newest_jump = seen.newest_jump
            self._jumped_from.clear()
        self._latest = max(self._latest, seen.latest_at)

    def begin(self, now: Timestamp) -> None:
        """A commit begins at this time."""
        if now > self._latest:
            self._latest = now
        elif self.is_set_back(now):
            self._set_back(now)
        self._segments.latest = Timestamp(self._latest)

    def is_set_back(self, now: Timestamp) -> bool:
        """Whether the clock is earlier by more than clocks are apart."""
        return now < self._latest - CLOCK_TOLERANCE

    def _set_back(self, now: Timestamp) -> None:
        by = self._latest - now
        log.warning("the clock was set back by %.0f s; leases and delays go with it", by / SECOND)
        self._set_others_back(now, by)
        self._connection.run(self._sql.add_clock_jump, (self._segments.last_lsn, self._latest, now))
        self._newest_jump += 1
        self._jumped_from[self._newest_jump] = self._latest
        self._latest = now
        self._note(now)

    def wrote(self, now: Timestamp) -> None:
        """A commit of this time has written something, which may be promised for a time of day."""
        if now - self._noted > NOTED_EVERY:
            self._note(now)

    def _note(self, now: Timestamp) -> None:
        """Leave the time in the store, for this stretch between two jumps alone."""
        self._connection.run(self._sql.raise_meta, (f"clock_at/{self._newest_jump}", now))
        self._noted = now
