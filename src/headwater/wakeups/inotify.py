"""Waking by the kernel: inotify on the write-ahead log. No writer has to cooperate, and nobody polls.

One commit is several writes, and the last of them comes before the commit is visible: a wake that nothing explains
looks again for some tens of microseconds, and then at growing distances: a writer may sync before it shows a commit.
Our own commits wake too; they explain the call, but somebody else's may hide behind it, so they get the later looks.
"""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

from headwater.wakeups.contract import Found

_IN_MODIFY = 0x00000002
_IN_NONBLOCK = 0o4000
_IN_CLOEXEC = 0o2000000
_READ_BYTES = 65_536

SPIN_SECONDS = 0.00005
LOOK_AGAIN_SECONDS = (0.0005, 0.002, 0.01, 0.05)
OWN_IN_A_ROW_MAX = 2
REST_SECONDS = 0.001


class InotifyWakeup:
    """Wakes when the file at `path` is written to; `changed` looks whether that was somebody else's commit."""

    name = "inotify"

    def __init__(self, path: str, changed: Callable[[], bool]) -> None:
        self.changed = changed
        self._descriptor = watch(path)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._again: asyncio.TimerHandle | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._own_in_a_row = 0
        self._defer_seconds = 0.0
        self.events = 0
        self.useless = 0

    def start(self, wake: Callable[[], Found]) -> None:
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._written)

    def close(self) -> None:
        for timer in (self._again, self._resting):
            if timer is not None:
                timer.cancel()
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def defer(self, seconds: float) -> None:
        self._defer_seconds = seconds
        if not seconds and self._resting is not None:
            self._resting.cancel()
            self._resume()

    def _written(self) -> None:
        if self._defer_seconds:
            self._rest(self._defer_seconds)
        else:
            self._look()

    def _look(self) -> None:
        try:
            os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        self.events += 1
        found = self._wake()
        if found is Found.NOTHING:
            found = self._spin()
        if found is Found.NEWS:
            self._own_in_a_row = 0
            return
        self.useless += 1
        self._own_in_a_row += found is Found.OWN
        if self._own_in_a_row > OWN_IN_A_ROW_MAX:
            # This process itself writes without pause.
            self._own_in_a_row = 0
            self._rest(REST_SECONDS)
        else:
            self._look_again(0)

    def _rest(self, seconds: float) -> None:
        """Let the kernel gather its wakes for a moment."""
        if self._loop is not None and self._resting is None:
            self._loop.remove_reader(self._descriptor)
            self._resting = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._resting = None
        if self._loop is not None:
            self._loop.add_reader(self._descriptor, self._written)
            self._look()

    def _spin(self) -> Found:
        deadline = time.perf_counter() + SPIN_SECONDS
        while (found := self._wake()) is Found.NOTHING and time.perf_counter() < deadline:
            pass
        return found

    def _look_again(self, step: int) -> None:
        if self._again is None and self._loop is not None and step < len(LOOK_AGAIN_SECONDS):
            self._again = self._loop.call_later(LOOK_AGAIN_SECONDS[step], self._later, step + 1)

    def _later(self, step: int) -> None:
        self._again = None
        if self._wake() is not Found.NEWS:
            self._look_again(step)


def is_available() -> bool:
    """Whether this system has inotify."""
    try:
        return hasattr(ctypes.CDLL(None), "inotify_init1")
    except (OSError, TypeError):
        return False


def watch(path: str) -> int:
    """A descriptor that can be read when the file at `path` was written to."""
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = int(library.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "inotify cannot be used; set wakeup=data_version")
    if library.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        error = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(error, f"{path} cannot be watched; set wakeup=data_version")
    return descriptor
