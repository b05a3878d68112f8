"""Turns at the write lock, so that every process on the file is served.

SQLite's own busy wait starves: of eight processes some get no turn for seconds. A `flock` on a file of its own in front
of `BEGIN IMMEDIATE` makes them queue. It is manners only: the database's lock stays the truth, and a program that does
not know the turnstile is waited for like any other.

Between two callbacks of an event loop a program may do work of its own for long, and whoever had the turn then would
hold up all others. So a turn is used the moment that it comes (`within`): in the callback that brings it, or in the
thread that has won it. A turn that an event loop does not come to take is given to the next.
"""

import asyncio
import fcntl
import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from headwater.errors import StoreBusy

TRIES = 8
HAND_OVER_SECONDS = 0.1
LOOK_SECONDS = 1.0

Result = TypeVar("Result")


class Turnstile:
    """One place in the queue for the write lock of one file."""

    def __init__(self, path: str, wait_seconds: float) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._wait_seconds = wait_seconds
        self._waiters: queue.SimpleQueue[_Waiter | None] | None = None

    def try_enter(self) -> bool:
        """Take the turn if nobody has it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    async def enter(self) -> None:
        """Wait for the turn, and keep it until `leave`: all others wait for whatever this loop does meanwhile."""
        if await self._enters_soon():
            return
        waiter = _Waiter(asyncio.get_running_loop(), lambda: None)
        try:
            await self._wait_for(waiter)
        except asyncio.CancelledError:
            if waiter.has_begun:
                self.leave()
            raise

    async def within(self, work: Callable[[], Result]) -> Result:
        """Do this in a turn, on this event loop, the moment that the turn comes."""
        if await self._enters_soon():
            return self._use(work)
        return cast(Result, await self._wait_for(_Waiter(asyncio.get_running_loop(), partial(self._use, work))))

    async def within_thread(self, work: Callable[[], Result]) -> Result:
        """Do this in a turn, in the thread that waits for it: no event loop has to come for anything."""
        waiter = _Waiter(asyncio.get_running_loop(), partial(self._use, work), is_for_loop=False)
        return cast(Result, await self._wait_for(waiter))

    def leave(self) -> None:
        """Let the next one in."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give up the place; a turn that is held ends."""
        if self._waiters is not None:
            self._waiters.put(None)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def _enters_soon(self) -> bool:
        """Whether the turn was there in a few tries between other work of the loop."""
        for _ in range(TRIES):
            if self.try_enter():
                return True
            await asyncio.sleep(0)
        return False

    def _use(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        finally:
            self.leave()

    async def _wait_for(self, waiter: "_Waiter") -> Any:
        """What somebody came to who waits for a turn behind others."""
        if self._waiters is None:
            self._waiters = queue.SimpleQueue()
            arguments = (self._descriptor, self._waiters)
            threading.Thread(target=_serve, args=arguments, daemon=True, name="headwater-turnstile").start()
        self._waiters.put(waiter)
        try:
            await asyncio.wait({waiter.answer}, timeout=self._wait_seconds)
        except asyncio.CancelledError:
            waiter.give_up()
            raise
        if not waiter.answer.done() and waiter.give_up():
            raise StoreBusy(f"other programs held the write lock for {self._wait_seconds:g} s")
        return await asyncio.shield(waiter.answer)


class _Waiter:
    """Somebody who waits for a turn, and what they do with it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        use: Callable[[], Any],
        *,
        is_for_loop: bool = True,
    ) -> None:
        self.loop = loop
        self.is_for_loop = is_for_loop
        self.answer: asyncio.Future[Any] = loop.create_future()
        self.has_begun = False
        self._use = use
        self._deciding = threading.Lock()
        self._has_left = False

    def give_up(self) -> bool:
        """Wait no more; False when it is too late, because the turn has come."""
        with self._deciding:
            self._has_left = not self.has_begun
        return self._has_left

    def begin(self) -> bool:
        """The turn has come; False when nobody waits for it any more."""
        with self._deciding:
            self.has_begun = not self._has_left
        return self.has_begun

    def take(self) -> None:
        """On the loop: use the turn, at once."""
        self.settle(*self.use())

    def use(self) -> tuple[Any, BaseException | None]:
        """What the use of the turn came to, or failed by."""
        try:
            return self._use(), None
        except BaseException as error:
            return None, error

    def settle(self, result: Any, error: BaseException | None) -> None:
        """Tell whoever waits."""
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(result)
        else:
            self.answer.set_exception(error)
            # Whoever was cancelled meanwhile does not look at it.
            self.answer.exception()


def _serve(descriptor: int, waiters: "queue.SimpleQueue[_Waiter | None]") -> None:
    """Wait for turns, one after the other. Whoever holds the lock for ever keeps this thread, and nothing else."""
    while (waiter := waiters.get()) is not None:
        win = _win_for_loop if waiter.is_for_loop else _win
        try:
            while not win(descriptor, waiter):
                pass
        except (OSError, RuntimeError):
            # The store was closed meanwhile: nobody waits for this turn any more.
            return


def _win(descriptor: int, waiter: _Waiter) -> bool:
    """Wait for a turn and use it here."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    if not waiter.begin():
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return True
    waiter.loop.call_soon_threadsafe(waiter.settle, *waiter.use())
    return True


def _win_for_loop(descriptor: int, waiter: _Waiter) -> bool:
    """Wait for a turn and hand it over; False when the loop did not come for it, and others were let in."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    offer = _Offer(waiter, descriptor)
    waiter.loop.call_soon_threadsafe(offer.take)
    if offer.is_taken():
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    while not offer.seen.wait(LOOK_SECONDS):
        if waiter.loop.is_closed():
            raise RuntimeError("the event loop is closed")
    return False


class _Offer:
    """A turn on its way from the thread to the loop: taken by the one, or taken back by the other."""

    def __init__(self, waiter: _Waiter, descriptor: int) -> None:
        self._waiter = waiter
        self._descriptor = descriptor
        self._deciding = threading.Lock()
        self._withdrawn = False
        # The loop has looked at it.
        self.seen = threading.Event()

    def take(self) -> None:
        """On the loop: the turn is ours, unless it was taken back; nobody's who waits no more."""
        with self._deciding:
            self.seen.set()
            if self._withdrawn:
                return
        if self._waiter.begin():
            self._waiter.take()
        else:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def is_taken(self) -> bool:
        """In the thread: whether the loop has come for it; if not, it is withdrawn."""
        if self.seen.wait(HAND_OVER_SECONDS):
            return True
        with self._deciding:
            self._withdrawn = not self.seen.is_set()
        return not self._withdrawn
