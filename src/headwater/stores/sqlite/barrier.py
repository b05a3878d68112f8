"""Durability as a step of its own: `fdatasync` of the write-ahead log after a commit, before its answers.

SQLite commits with `synchronous=NORMAL`, which writes the log without waiting for the disk; the barrier then waits for
it. Together they equal `synchronous=FULL` (shown by the power-cut test), and many commits and callers share one wait.
A slow disk is waited for in a thread of its own. A quick one is waited for on the spot: the way to the thread and back
costs a fifth of such a wait, and a busy event loop makes the thread wait for the interpreter's lock, up to fifty times
as long as for the disk. Where many callers share the wait there is more to do meanwhile, so the bound is lower.
"""

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

QUICK_SECONDS = 0.002
QUICK_SECONDS_FOR_MANY = 0.0005
FEW_CALLERS = 16
REWRITE_BYTES = 1_048_576
SLOW_MEMORY = 64
AVERAGED_OVER = 8


class Barrier(Protocol):
    """Makes what was written to the log before the call survive power loss."""

    def wait(self, callers: int) -> asyncio.Future[None] | None:
        """Done when it does; None when it does already. Raises or fails with OSError when the disk says no."""
        ...

    def rewrite(self) -> None:
        """After a refusal: write the log as it is once more, then sync. Nobody else may write meanwhile."""
        ...

    def close(self) -> None:
        """Stop serving."""
        ...


class FileBarrier:
    """The barrier over a real file. `clock` tells in seconds how long the disk took."""

    def __init__(self, path: str, clock: Callable[[], float] = time.perf_counter) -> None:
        self._path = path
        self._clock = clock
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._wanted: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None] = (
            queue.SimpleQueue()
        )
        self._cautious = 0
        self._usual_seconds = 0.0
        self._thread = threading.Thread(target=self._serve, daemon=True, name="headwater-barrier")
        self._thread.start()

    def wait(self, callers: int) -> asyncio.Future[None] | None:
        bound = QUICK_SECONDS if callers <= FEW_CALLERS else QUICK_SECONDS_FOR_MANY
        if self._cautious == 0 and self._usual_seconds < bound:
            error = self._sync()
            if error is not None:
                raise error
            return None
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
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
        begun = self._clock()
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._cautious = SLOW_MEMORY
            return error
        seconds = self._clock() - begun
        self._cautious = SLOW_MEMORY if seconds > QUICK_SECONDS else max(self._cautious - 1, 0)
        self._usual_seconds += (min(seconds, QUICK_SECONDS) - self._usual_seconds) / AVERAGED_OVER
        return None


def _finish(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
