"""What calls in one process share: put back after each of them, so that the next one finds it as the first one did."""

import fcntl
import os
import resource
import signal
import sys
from collections.abc import Callable
from types import FrameType

from headwater.worker.printing import JobStream

Handler = Callable[[int, FrameType | None], None] | int | None

_WATCHED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGCHLD,
)
DESCRIPTORS_KEPT_FREE = 64


class _Descriptor:
    """One of the standard three, which whatever is started inherits by its number."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._copy = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, DESCRIPTORS_KEPT_FREE)
        self._is_of = _identity(number)

    def mend(self) -> None:
        """Have it stand for what it stood for."""
        if _identity(self._number) != self._is_of:
            os.dup2(self._copy, self._number)


def _identity(number: int) -> tuple[int, int] | None:
    """Which file a descriptor stands for; None for a closed one."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Surroundings:
    """Folder, mask for new files, signal handlers and standard streams as they were when this was made."""

    def __init__(self, streams: tuple[JobStream, JobStream]) -> None:
        self._streams = streams
        self._folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._mask = os.umask(0o077)
        os.umask(self._mask)
        self._handlers = {number: signal.getsignal(number) for number in _WATCHED}
        self._input = sys.stdin
        # Copies, far from the numbers that a call may close by mistake.
        self._standard = [_Descriptor(number) for number in range(3)]

    def mend(self) -> bool:
        """Put everything back; False when this process had better end, because something in it is used up or broken."""
        try:
            os.fchdir(self._folder)
            os.umask(self._mask)
            sys.stdout, sys.stderr = self._streams
            for descriptor in self._standard:
                descriptor.mend()
            if sys.stdin is not self._input or self._input.closed:
                self._input = sys.stdin = open(0, closefd=False)  # noqa: SIM115
            for number, handler in self._handlers.items():
                if signal.getsignal(number) is not handler:
                    signal.signal(number, handler)
                    signal.setitimer(signal.ITIMER_REAL, 0)
            return self._has_descriptors()
        except (OSError, ValueError):
            return False

    def _has_descriptors(self) -> bool:
        """New descriptors get the lowest number that is free: a high one means that many are never closed."""
        lowest = os.dup(self._folder)
        os.close(lowest)
        return lowest + DESCRIPTORS_KEPT_FREE < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
