"""Waking by asking: where the kernel does not tell, look at the store's version at a pace that follows the traffic."""

import asyncio
from collections.abc import Callable

from headwater.wakeups.contract import Found

PACES_SECONDS = (0.001, 0.05, 0.2)
BUSY_LOOKS = 200
QUIET_LOOKS = 40


class DataVersionWakeup:
    """Looks every millisecond while there is traffic, every 50 ms after it, every 200 ms when all is quiet."""

    name = "data_version"

    def __init__(self, changed: Callable[[], bool]) -> None:
        self.changed = changed
        self._timer: asyncio.TimerHandle | None = None
        self._idle_looks = 0

    def start(self, wake: Callable[[], Found]) -> None:
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._look()

    def defer(self, seconds: float) -> None:
        """It looks at its own pace."""

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._idle_looks = 0 if self._wake() is Found.NEWS else self._idle_looks + 1
        self._timer = self._loop.call_later(self._pace(), self._look)

    def _pace(self) -> float:
        if self._idle_looks < BUSY_LOOKS:
            return PACES_SECONDS[0]
        return PACES_SECONDS[1] if self._idle_looks < BUSY_LOOKS + QUIET_LOOKS else PACES_SECONDS[2]
