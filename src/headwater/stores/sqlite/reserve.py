"""Room that is set aside, so that a full disk can be emptied: dropping records writes before it frees.

A delete goes into the write-ahead log like everything else, and on a full disk there is no room for it. A file beside
the store holds some megabytes that nobody uses; when a commit that drops something finds the disk full, they are given
up for it, and taken again when there is room. That they can be taken again is also how we know that there is.
"""

import errno
import os
from collections.abc import Sequence

import msgspec

from headwater.errors import StoreFull
from headwater.log.job_operations import DropJobs, Prune, SweepLanes
from headwater.log.operations import (
    Clear,
    Commit,
    DeleteGroup,
    DeleteQueue,
    Forget,
    Operation,
    Purge,
    Retain,
    RevokeAccessToken,
)

_FREEING = (Clear, DeleteGroup, DeleteQueue, Forget, Purge, Retain, RevokeAccessToken, DropJobs, Prune, SweepLanes)
SPARE_BYTES = 1_048_576
NO_SPACE = "no space is left on the disk"
PARTS = 8

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Reserve:
    """The file that holds the room of one store."""

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._size = size

    def take(self) -> bool:
        """Set the room aside, or what there is of it; whether it is all there, and the disk has some more."""
        if not self._size:
            return True
        descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            has_more = _extend(descriptor, self._size + SPARE_BYTES)
            parts = (self._size * part // PARTS for part in range(PARTS, 0, -1))
            os.ftruncate(descriptor, next((size for size in parts if _extend(descriptor, size)), 0))
        finally:
            os.close(descriptor)
        return has_more

    def why_full(self) -> str:
        """What is told when a commit finds no room."""
        return NO_SPACE

    def check(self) -> None:
        """Raises StoreFull or StoreSilent while nothing can be kept, not even what drops records. A file tells when it
        is written."""

    def weigh(self) -> int:
        """How much there is before a commit, where growth has to be looked at; 0 elsewhere: a disk tells by itself."""
        return 0

    def check_growth(self, before: int) -> None:
        """Raises FullError when a commit has made what there was before more than may be."""

    def give_up(self) -> bool:
        """Let the disk have the room; whether there was any."""
        if not _size_of(self._path):
            return False
        os.truncate(self._path, 0)
        return True


def _extend(descriptor: int, size: int) -> bool:
    """Whether the disk has room for a file of this size. What it gave before it refused is given back."""
    before = os.fstat(descriptor).st_size
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        os.ftruncate(descriptor, min(before, size))
        if error.errno in _NO_ROOM:
            return False
        raise
    return True


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def freeing(operations: Sequence[Operation]) -> list[Operation]:
    """Those that make room, or take a right away: what must work on a full disk."""
    return [operation for operation in operations if isinstance(operation, _FREEING)]


def with_refusals(operations: Sequence[Operation], commit: Commit, why_full: str) -> Commit:
    """What all operations came to, when only those that make room were applied."""
    applied = iter(zip(commit.results, commit.operations, strict=True))
    refusal = StoreFull(f"{why_full}: only what drops records is taken")
    both = [next(applied) if isinstance(operation, _FREEING) else (refusal, operation) for operation in operations]
    results = [result for result, _ in both]
    full = refusal if refusal in results else None
    return msgspec.structs.replace(commit, results=results, full=full, operations=[taken for _, taken in both])
