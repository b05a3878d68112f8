"""When waiting pops (`intentions.py`) have waited long enough: one timer for all of them, not one each."""

import asyncio
import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

# Entries of waits that ended otherwise may outnumber the living by so many before they are cleared away.
SPARE = 1_000

K = TypeVar("K")


class Deadlines(Generic[K]):
    """Calls `over` with the number and key of every wait that still goes on when its time has come."""

    def __init__(self, is_waiting: Callable[[int, K], bool], over: Callable[[int, K], None]) -> None:
        self._is_waiting = is_waiting
        self._over = over
        self._entries: list[tuple[float, int, K]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, deadline: float, number: int, key: K, waiting: int) -> None:
        """Take in one more, by the loop's clock; `waiting` is how many wait now, this one included."""
        if len(self._entries) > 2 * waiting + SPARE:
            self._entries = [entry for entry in self._entries if self._is_waiting(entry[1], entry[2])]
            heapq.heapify(self._entries)
        heapq.heappush(self._entries, (deadline, number, key))
        self._set_timer()

    def cancel(self) -> None:
        """Call nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        first = self._entries[0][0]
        if self._timer is not None:
            if self._timer_at <= first:
                return
            self._timer.cancel()
        # Remembered here: for a moment that has come, uvloop gives a handle that does not know its time.
        self._timer_at = first
        self._timer = asyncio.get_running_loop().call_at(first, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._entries and self._entries[0][0] <= now:
            _, number, key = heapq.heappop(self._entries)
            self._over(number, key)
        if self._entries:
            self._set_timer()
