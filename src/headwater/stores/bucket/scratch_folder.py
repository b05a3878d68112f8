"""Folders of files that are thrown away: whose they are, and what becomes of one whose process was killed.

    headwater-bucket-1f….lock   locked by its process for as long as that lives; the kernel lets go of it at the end
    headwater-bucket-1f…/       the files

Whoever makes a folder first removes those whose lock nobody holds. A lock lies beside its folder and is there before
it, so there is no moment at which a folder in use looks like one that was left.
"""

import fcntl
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from headwater.stores.sqlite.connection import translated

MEMORY = "/dev/shm"
PREFIX = "headwater-bucket-"
LOCK = ".lock"


class ScratchFolder:
    """A folder of one process: in memory, where there is room for the store and its log."""

    def __init__(self, bytes_max: int) -> None:
        has_room = os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free > 2 * bytes_max
        self._lock = -1
        self.path = os.path.join(MEMORY if has_room else tempfile.gettempdir(), f"{PREFIX}{secrets.token_hex(8)}")

    def claim(self) -> None:
        """Make it ours, before anything lies in it; remove what others of this machine left when they were killed."""
        with translated("making a scratch folder"):
            while self._lock < 0:
                # Again, when somebody took the file for one that was left: it was there and not yet locked.
                self._lock = _lock(f"{self.path}{LOCK}", create=True)
            for parent in {MEMORY, tempfile.gettempdir()}:
                sweep(Path(parent))

    def release(self) -> None:
        """Remove it with all that lies in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            with suppress(FileNotFoundError):
                os.unlink(f"{self.path}{LOCK}")
            os.close(self._lock)
            self._lock = -1


def sweep(parent: Path) -> int:
    """Remove folders of processes that are no more; how many."""
    removed = 0
    for lock in parent.glob(f"{PREFIX}*{LOCK}"):
        descriptor = _lock(str(lock), create=False)
        if descriptor < 0:
            continue
        shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
        with suppress(FileNotFoundError):
            lock.unlink()
        os.close(descriptor)
        removed += 1
    return removed


def _lock(path: str, *, create: bool) -> int:
    """The file at this path, open and locked; -1 when it is another's, or gone by the time it is locked."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
    except (FileNotFoundError, PermissionError):
        if create:
            raise
        return -1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BlockingIOError:
        pass
    os.close(descriptor)
    return -1
