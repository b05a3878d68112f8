"""What the consumers of one open store or client hold, so that it can be given back when they leave or it closes.

A consumer that is left without a word is noticed when its iterator is dropped, in whatever thread that happens; its
messages go back a moment later, and before the next pop from here asks for more. Closing waits for all of them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from headwater.errors import Closed

log = logging.getLogger(__name__)


class Holder(Protocol):
    """A consumer that holds messages."""

    async def release(self) -> None:
        """Give back what is held; what is done is reported as done. It never raises. One that has ended has no pop
        under way any more."""
        ...

    def end(self) -> None:
        """Take no more."""
        ...


class Holdings:
    """The consumers that hold something."""

    def __init__(self, end_waits: Callable[[], None]) -> None:
        """`end_waits` ends the pops under way: those of consumers, before what they hold is given back."""
        self._end_waits = end_waits
        self._open: set[Holder] = set()
        self._left: deque[Holder] = deque()
        self._leaving: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = False

    def begin(self) -> None:
        """Messages may be taken from now on."""
        self._is_closing = False

    def check_takes(self) -> None:
        """Raises when nobody would give back what is taken now."""
        if self._is_closing:
            raise Closed("Headwater is being closed, and hands out no more messages")

    def add(self, holder: Holder) -> None:
        """This one may hold something from now on. Raises when it is too late for that."""
        if holder not in self._open:
            self.check_takes()
        self._loop = asyncio.get_running_loop()
        self._open.add(holder)

    def discard(self, holder: Holder) -> None:
        """This one holds nothing."""
        self._open.discard(holder)

    def leave(self, holder: Holder) -> None:
        """Nobody can go on with this one: give back what it holds. Called from any thread, at any moment."""
        if holder not in self._open or self._loop is None or self._loop.is_closed():
            return
        self._left.append(holder)
        self._loop.call_soon_threadsafe(self._settle_left)

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Report something, whoever waits for it; closing waits, too."""
        task = asyncio.get_running_loop().create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    @property
    def are_leaving(self) -> bool:
        """Whether something that was left is not given back yet."""
        return bool(self._left or self._leaving)

    async def settled(self) -> None:
        """Wait until what was left is given back."""
        self._settle_left()
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def close(self) -> None:
        """Give back everything that is held; from now on nobody takes more."""
        self._is_closing = True
        # Whoever was cancelled in this turn of the loop learns of it first, and says what is on its way to them.
        await asyncio.sleep(0)
        holders = list(self._open)
        for holder in holders:
            holder.end()
        self._end_waits()
        for holder in holders:
            self.start(holder.release())
        while self.are_leaving:
            await self.settled()

    def _settle_left(self) -> None:
        while self._left:
            self.start(self._left.popleft().release())
