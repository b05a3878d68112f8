"""Where the processes of one server tell each other what they did, so that any of them can answer for all.

A piece of memory that they share since they were forked, with a place for each. A process writes only its own place,
and whoever reads checks that it was not written meanwhile: nobody waits for anybody, whoever hangs.
"""

import mmap
import struct
import zlib

PLACE_BYTES = 1_048_576
_head = struct.Struct("<QL")


class Board:
    """Places for the reports of `count` processes. One process alone needs no memory to share."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._memory = mmap.mmap(-1, count * PLACE_BYTES) if count > 1 else None

    def write(self, index: int, report: bytes) -> bool:
        """Put up the report of a process; one that is too long is left out."""
        if self._memory is None or len(report) + _head.size > PLACE_BYTES:
            return False
        begin = index * PLACE_BYTES
        self._memory[begin : begin + _head.size] = _head.pack(len(report), zlib.crc32(report))
        self._memory[begin + _head.size : begin + _head.size + len(report)] = report
        return True

    def read(self, index: int) -> bytes | None:
        """The report of a process; None when there is none, or when it is being written right now."""
        if self._memory is None:
            return None
        begin = index * PLACE_BYTES
        size, checksum = _head.unpack(self._memory[begin : begin + _head.size])
        if not 0 < size <= PLACE_BYTES - _head.size:
            return None
        report = self._memory[begin + _head.size : begin + _head.size + size]
        return report if zlib.crc32(report) == checksum else None
