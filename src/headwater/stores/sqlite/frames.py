"""Which pages a commit has changed, read from the write-ahead log, and what they make of a file without them.

For media that keep commits elsewhere. SQLite tells after each commit how many frames the log has; those since the last
commit are read at once, because a log that was moved into the file starts over with the next one. The log carries no
locks of SQLite's: it may be opened and closed.
"""

import os
import struct

import msgspec

from headwater.errors import StoreFailed

PAGE_BYTES = 4_096

_HEADER_BYTES = 32
_FRAME_HEADER = struct.Struct(">II8s8s")
_FRAME_BYTES = _FRAME_HEADER.size + PAGE_BYTES


class PageChanges(msgspec.Struct, eq=False):
    """Pages by number, as they are now, and how many the file has."""

    pages: dict[int, bytes]
    page_count: int

    def add(self, later: "PageChanges") -> None:
        """Take in what was changed after these."""
        self.pages.update(later.pages)
        self.page_count = later.page_count
        if any(number > later.page_count for number in self.pages):
            self.pages = {number: page for number, page in self.pages.items() if number <= later.page_count}

    def apply(self, image: bytearray) -> None:
        """Bring the bytes of a file up to date with them."""
        size = self.page_count * PAGE_BYTES
        if len(image) < size:
            image.extend(bytes(size - len(image)))
        for number, page in self.pages.items():
            image[(number - 1) * PAGE_BYTES : number * PAGE_BYTES] = page
        del image[size:]


class WalFrames:
    """Follows one write-ahead log from its first frame; every commit to it must be told, in order."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._salt = b""
        self._seen = 0

    def take(self, through: int) -> PageChanges:
        """What the commit changed that left the log with so many frames."""
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        salt = os.pread(self._descriptor, _HEADER_BYTES, 0)[16:24]
        if salt != self._salt:
            # The log has started over: everything before was moved into the file, and was taken before that.
            self._salt, self._seen = salt, 0
        begin = _HEADER_BYTES + self._seen * _FRAME_BYTES
        data = os.pread(self._descriptor, (through - self._seen) * _FRAME_BYTES, begin)
        self._seen = through
        return self._changes(data)

    def _changes(self, data: bytes) -> PageChanges:
        changes = PageChanges({}, 0)
        for place in range(0, len(data), _FRAME_BYTES):
            number, page_count, salt, _ = _FRAME_HEADER.unpack_from(data, place)
            if salt != self._salt:
                raise StoreFailed(f"{self._path} has a frame of an older log where a commit must be")
            changes.pages[number] = data[place + _FRAME_HEADER.size : place + _FRAME_BYTES]
            changes.page_count = page_count or changes.page_count
        if not changes.page_count or len(data) % _FRAME_BYTES:
            raise StoreFailed(f"{self._path} ends before the end of a commit")
        return changes

    def close(self) -> None:
        """Let go of the log."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
