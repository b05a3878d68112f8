"""Notices that somebody set the clock: the time of day went on by more or less than the time that passed.

Whoever sleeps until a time of day sleeps by the time that passes: an alarm for three o'clock goes off after so many
seconds, whatever the clock says by then. When the clock is set they have to look again, and what they noted as times
of day goes with it. One look for the whole process, twice a second (`sentinel.py`), is enough for all.
"""

import logging
from collections.abc import Callable, Sequence

from headwater.clock import SECOND, Clock, steady_of

log = logging.getLogger(__name__)

# What a clock may be corrected by without anybody looking again.
DRIFT = SECOND

# Called with how many microseconds the clock was set forward; less than nothing is back.
OnSet = Callable[[int], None]


class ClockWatch:
    """Compares two clocks: the one that people set, and the one that nobody can set."""

    def __init__(self, clock: Clock, on_set: Sequence[OnSet]) -> None:
        self._clock = clock
        self._steady = steady_of(clock)
        self._apart = self._now_apart()
        self._on_set = on_set

    def begin(self) -> None:
        """From here on somebody may wait: the store that was opened may have told another time than this machine's."""
        self._apart = self._now_apart()

    def _now_apart(self) -> int:
        return self._clock.now() - self._steady.steady()

    def look(self) -> None:
        """Tell everybody when the clock was set since they were last told."""
        apart = self._now_apart()
        by = apart - self._apart
        if abs(by) <= DRIFT:
            return
        self._apart = apart
        way = "back" if by < 0 else "forward"
        log.info("the clock was set %s by %.0f s; whoever waits for a time looks again", way, abs(by) / SECOND)
        for tell in tuple(self._on_set):
            tell(by)
