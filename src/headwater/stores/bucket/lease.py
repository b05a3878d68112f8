"""Who holds the store, and for how long: rules of politeness, and when a holder may answer without looking.

A lease keeps two brokers from taking a store from each other all the time, and lets a holder answer reads without
asking the bucket. Nothing that is written depends on it: that is decided by positions alone.

    holder       counts from when it sent an entry that landed, by its own clock
    challenger   takes over when it has seen the very same end of the log for longer than a lease, by its own clock; at
                 once when the last holder has said that it leaves, and where there is no lease
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from headwater.errors import StoreBusy
from headwater.stores.contract import Holder

# Clocks of two machines run differently fast; this is far more than they do.
DRIFT = 1.1
LOOKS = 6
LOOK_SECONDS_MAX = 1.0
LOSSES_MAX = 8
YIELD_SECONDS = 0.01


class End(NamedTuple):
    """The end of a log as a challenger sees it: what it ends with, whose that is, and for how long its holder may be
    silent; 0 when it has left, or has no lease."""

    mark: object
    holder: Holder
    lease_seconds: float


def steady_seconds() -> float:
    """A clock that goes on while the machine is suspended, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Challenge:
    """Waits until the store may be taken over."""

    def __init__(self, wait_seconds: float, now: Callable[[], float]) -> None:
        self._now = now
        self._losses = 0
        self.wait_seconds = wait_seconds
        # A broker that has the store; None when nobody was met.
        self.met: Holder | None = None

    def won(self) -> None:
        """Something of ours has landed: nobody was in our way."""
        self._losses = 0

    async def until_quiet(self, look: Callable[[], Awaitable[End]]) -> object:
        """The end of the log that may be followed. StoreBusy when somebody keeps the store."""
        begun = self._now()
        end = await look()
        seen, since = end, self._now()
        while end.lease_seconds and self._now() - since <= end.lease_seconds * DRIFT:
            self.met = end.holder
            if self._now() - begun > self.wait_seconds:
                where = f" ({end.holder.address})" if end.holder.address else ""
                raise StoreBusy(f"another broker{where} holds this store; ask there, or try again when it has left")
            await asyncio.sleep(min(end.lease_seconds / LOOKS, LOOK_SECONDS_MAX))
            end = await look()
            if end.mark != seen.mark:
                seen, since = end, self._now()
        self.met = None
        return end.mark

    async def make_way(self) -> None:
        """Others who took over want to write as well: let them, or nobody ever lands anything."""
        if self._losses:
            await asyncio.sleep(random.random() * YIELD_SECONDS * self._losses)
        self._losses = min(self._losses + 1, LOSSES_MAX)


@asynccontextmanager
async def impatient(seconds: float) -> AsyncIterator[None]:
    """Try to take the store from its holder for so long."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise StoreBusy("the broker that holds this store writes all the time: end it, and try again") from error


class SharedLook:
    """One question at a time for all who ask: whoever comes while it is under way gets the answer to the next one, for
    what is answered must have been asked after it came."""

    def __init__(self, look: Callable[[], Awaitable[None]]) -> None:
        self._look = look
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    def ask(self) -> "asyncio.Task[None]":
        """An answer that is found from now on."""
        if self._running is None or self._running.done():
            self._running = self._begin(None)
            return self._running
        if self._next is None or self._next.done():
            self._next = self._begin(self._running)
        return self._next

    def _begin(self, before: "asyncio.Task[None] | None") -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self._answer(before), name="headwater-bucket-look")
        task.add_done_callback(_retrieve)
        return task

    async def _answer(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
            self._running, self._next = self._next, None
        await self._look()

    async def settle(self) -> None:
        """Wait for what is under way."""
        tasks = [task for task in (self._running, self._next) if task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def abandon(self) -> None:
        """Ask no more."""
        await end_all([task for task in (self._running, self._next) if task is not None])


async def end_all(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    """Cancel them, and wait until they are over."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _retrieve(task: "asyncio.Task[None]") -> None:
    """Whether anybody waits for it or not."""
    if not task.cancelled():
        task.exception()
