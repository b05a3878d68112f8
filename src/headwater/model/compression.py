"""Bytes made smaller with zstd, and made whole again within bounds. Which of two modules has it depends on Python."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

__all__ = ["BadCompression", "compress", "compress_all", "expand", "zstd"]

LEVEL = 1


class BadCompression(Exception):
    """What came is not compressed, was damaged on its way, or is larger than it may be."""


def compress(data: bytes) -> bytes:
    """The data in one frame, with a sum by which damage on the way is noticed."""
    return compress_all([data])


def compress_all(pieces: Sequence[bytes]) -> bytes:
    """Pieces behind each other in one frame. Other threads get their turn after each, and nothing is copied before."""
    parameter = zstd.CompressionParameter
    compressor = zstd.ZstdCompressor(options={parameter.compression_level: LEVEL, parameter.checksum_flag: 1})
    compressor.set_pledged_input_size(sum(map(len, pieces)))
    return b"".join([*map(compressor.compress, pieces), compressor.flush()])


def expand(data: bytes, bytes_max: int) -> bytes:
    """The data as it was compressed; raises when it would be more than `bytes_max`, before it is."""
    decompressor = zstd.ZstdDecompressor()
    try:
        expanded = decompressor.decompress(data, bytes_max + 1)
    except zstd.ZstdError as error:
        raise BadCompression(str(error)) from error
    if len(expanded) > bytes_max:
        raise BadCompression(f"it has more than {bytes_max:,} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise BadCompression("it is not whole")
    return expanded
