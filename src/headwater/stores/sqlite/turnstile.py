"""Turns at the write lock, so that every process on the file is served.

SQLite's own busy wait starves: of eight processes some get no turn for seconds. A `flock` on a file of its own in front
of `BEGIN IMMEDIATE` makes them queue. It is manners only: the database's lock stays the truth, and a program that does
not know the turnstile is waited for like any other.
"""

import asyncio
import fcntl
import os
import threading

from headwater.errors import StoreBusy


class Turnstile:
    """One place in the queue for the write lock of one file."""

    def __init__(self, path: str, wait_seconds: float) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._wait_seconds = wait_seconds

    def try_enter(self) -> bool:
        """Take the turn if nobody has it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    async def enter(self) -> None:
        """Wait for the turn in a thread, so that the event loop goes on."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        threading.Thread(target=self._wait, args=(loop, turn), daemon=True, name="headwater-turnstile").start()
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
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _wait(self, loop: asyncio.AbstractEventLoop, turn: asyncio.Future[None]) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        loop.call_soon_threadsafe(_arrive, turn)


def _arrive(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
