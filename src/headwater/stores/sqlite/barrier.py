"""Durability as a step of its own: `fdatasync` of the write-ahead log after a commit, before its answers.

SQLite commits with `synchronous=NORMAL`, which writes the log without waiting for the disk; the barrier then waits for
it. Together they equal `synchronous=FULL` (shown by the power-cut test), and many commits and callers share one wait.
The wait is in a thread of its own. Only a few callers are served on the spot, as long as the disk is quick: the way to
the thread and back costs a fifth of the wait itself, and with few callers there is little else to do meanwhile.
"""

import asyncio
import os
import queue
import threading
import time
from typing import Protocol

QUICK_SECONDS = 0.002
QUICK_CALLERS = 16
REWRITE_BYTES = 1_048_576
SLOW_MEMORY = 64


class Barrier(Protocol):
    """Makes what was written to the log before the call survive power loss."""

    def wait(self, callers: int) -> asyncio.Future[None]:
        """Done when it does; fails with OSError when the disk says no."""
        ...

    def rewrite(self) -> None:
        """After a refusal: write the log as it is once more, then sync. Nobody else may write meanwhile."""
        ...

    def close(self) -> None:
        """Stop serving."""
        ...


class FileBarrier:
    """The barrier over a real file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._wanted: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None] = (
            queue.SimpleQueue()
        )
        self._cautious = 0
        self._thread = threading.Thread(target=self._serve, daemon=True, name="headwater-barrier")
        self._thread.start()

    def wait(self, callers: int) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if callers <= QUICK_CALLERS and self._cautious == 0:
            error = self._sync()
            _finish(done, error)
        else:
            self._wanted.put((loop, done))
        return done

    def rewrite(self) -> None:
        log = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            place = 0
            while part := os.pread(log, REWRITE_BYTES, place):
                place += os.pwrite(log, part, place)
            os.fdatasync(log)
        finally:
            os.close(log)

    def close(self) -> None:
        self._wanted.put(None)
        self._thread.join()
        os.close(self._descriptor)

    def _serve(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            loop, done = wanted
            loop.call_soon_threadsafe(_finish, done, self._sync())

    def _sync(self) -> OSError | None:
        """One `fdatasync`; a slow one makes the next calls go to the thread for a while."""
        begun = time.perf_counter()
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._cautious = SLOW_MEMORY
            return error
        slow = time.perf_counter() - begun > QUICK_SECONDS
        self._cautious = SLOW_MEMORY if slow else max(self._cautious - 1, 0)
        return None


def _finish(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
