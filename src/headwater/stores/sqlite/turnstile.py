"""Turns at the write lock, so that every process on the file is served.

SQLite's own busy wait starves: of eight processes some get no turn for seconds. A `flock` on a file of its own in front
of `BEGIN IMMEDIATE` makes them queue. It is manners only: the database's lock stays the truth, and a program that does
not know the turnstile is waited for like any other.
"""

import asyncio
import fcntl
import os
import queue
import threading

from headwater.errors import StoreBusy

TRIES = 8

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


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
        """Wait for the turn: a few tries between other work of the loop, then in a thread."""
        for _ in range(TRIES):
            if self.try_enter():
                return
            await asyncio.sleep(0)
        turn = self._ask_thread()
        try:
            await asyncio.wait_for(asyncio.shield(turn), self._wait_seconds)
        except (TimeoutError, asyncio.CancelledError) as error:
            turn.add_done_callback(lambda _: self.leave())
            if isinstance(error, asyncio.CancelledError):
                raise
            raise StoreBusy(f"other programs held the write lock for {self._wait_seconds:g} s") from error

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

    def _ask_thread(self) -> "asyncio.Future[None]":
        if self._waiters is None:
            self._waiters = queue.SimpleQueue()
            arguments = (self._descriptor, self._waiters)
            threading.Thread(target=_serve, args=arguments, daemon=True, name="headwater-turnstile").start()
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiters.put((loop, turn))
        return turn


def _serve(descriptor: int, waiters: "queue.SimpleQueue[_Waiter | None]") -> None:
    """Wait for turns, one after the other. Whoever holds the lock for ever keeps this thread, and nothing else."""
    while (waiter := waiters.get()) is not None:
        loop, turn = waiter
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            loop.call_soon_threadsafe(_arrive, turn)
        except (OSError, RuntimeError):
            # The store was closed meanwhile: nobody waits for this turn any more.
            return


def _arrive(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
