"""Turns at a file that one process has for itself: committer and chores let each other in, on one event loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from headwater.stores.contract import RaceLost

Result = TypeVar("Result")


class OwnTurn:
    """Held by one at a time. Once the store is somebody else's, it is given to nobody."""

    def __init__(self) -> None:
        self._held = False
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.lost = False

    def try_enter(self) -> bool:
        """Take the turn if nobody has it."""
        if self.lost or self._held or self._waiters:
            return False
        self._held = True
        return True

    async def enter(self) -> None:
        """Wait for the turn, in order."""
        while self._held and not self.lost:
            await self._wait()
        self._take()

    async def within(self, work: Callable[[], Result]) -> Result:
        """Do this in a turn."""
        await self.enter()
        try:
            return work()
        finally:
            self.leave()

    async def within_thread(self, work: Callable[[], Result]) -> Result:
        """The same in a thread: nobody outside of this process waits for it."""
        await self.enter()
        try:
            return await asyncio.get_running_loop().run_in_executor(None, work)
        finally:
            self.leave()

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            self._waiters.remove(waiter)
            if not self._held:
                # The turn was offered to somebody who has left.
                self._wake(1)
            raise
        self._waiters.remove(waiter)

    def _take(self) -> None:
        if self.lost:
            raise RaceLost
        self._held = True

    def leave(self) -> None:
        """Let the next one in."""
        self._held = False
        self._wake(1)

    def lose(self) -> None:
        """Give no turn any more."""
        self.lost = True
        self._wake(len(self._waiters))

    def close(self) -> None:
        """Nothing is held outside of this process."""

    def _wake(self, count: int) -> None:
        for waiter in list(self._waiters)[:count]:
            if not waiter.done():
                waiter.set_result(None)
