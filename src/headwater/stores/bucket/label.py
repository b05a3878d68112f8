"""What an image in the bucket says of itself, in its own bytes: which commit it ends with, and who wrote it.

Twenty bytes of SQLite's header are kept for later by its format, and no SQLite looks at them. The label lies there and
not in metadata, because the tag of an object is a hash of its bytes: two images with the same rows and different labels
must have different tags, or somebody who slept could replace a newer one by mistake.

    kind 4 bits · position 36 · epoch 36 · put_id 42 · other 42

In the bucket, the header says that no write-ahead log lies beside the file, so that any SQLite opens it.
"""

import asyncio
from enum import IntEnum
from io import BytesIO

import msgspec

from headwater.errors import StoreDamaged, StoreForeign
from headwater.stores.bucket_traces import LABEL
from headwater.stores.sqlite.frames import PAGE_BYTES

HEADER_BYTES = 100
PUT_ID_BITS = 42
# A copy of 100 MB at once takes 80 ms, in which nobody else gets a turn.
PIECE_BYTES = 1_048_576

_BEGIN, _END = LABEL.start, LABEL.stop
_MODES = slice(18, 20)
# How many pages the file has.
_PAGES = slice(28, 32)
_MAGIC = b"SQLite format 3\x00"


class Kind(IntEnum):
    """How the store is kept, and whether its last holder has left it."""

    CHAIN = 1
    IMAGE = 2
    IMAGE_LEFT = 3


class Label(msgspec.Struct, frozen=True):
    """`position` and `put_id` of the last commit in the image, the epoch it belongs to, and `other`: for a chain its
    floor, up to which entries may be gone; for an image the put_id that its epoch began with."""

    kind: Kind
    position: int
    epoch: int
    put_id: int
    other: int


def labelled(image: bytes | bytearray, label: Label) -> bytes:
    """The bytes of an image for the bucket."""
    packed = int(label.kind)
    for bits, value in ((36, label.position), (36, label.epoch), (PUT_ID_BITS, label.put_id), (42, label.other)):
        packed = packed << bits | value
    view = memoryview(image)
    return b"".join((view[:18], b"\x01\x01", view[20:_BEGIN], packed.to_bytes(_END - _BEGIN, "big"), view[_END:]))


def unattended(image: bytearray) -> bytes:
    """The bytes of a file of this machine that needs no log beside it to be opened; it is no base of a bucket."""
    view = memoryview(image)
    return b"".join((view[:18], b"\x01\x01", view[20:]))


async def copied(image: bytes | bytearray, label: Label) -> bytes:
    """The same, a piece at a time, and others get a turn in between. The image must not change meanwhile."""
    # A buffer that grows where it is, and becomes the bytes: one that is made in its full size is filled at once.
    copy = BytesIO()
    with memoryview(image) as view:
        for begin in range(0, len(image), PIECE_BYTES):
            if begin:
                await asyncio.sleep(0)
            with view[begin : begin + PIECE_BYTES] as piece:
                copy.write(piece if begin else labelled(bytes(piece), label))
    return copy.getvalue()


def read_label(data: bytes, name: str) -> Label:
    """What the header of an image says; raises when it is none of ours."""
    if len(data) < HEADER_BYTES or data[:16] != _MAGIC:
        raise StoreForeign(f"{name} is not a store: it is no SQLite file")
    packed = int.from_bytes(data[_BEGIN:_END], "big")
    values = []
    for bits in (42, PUT_ID_BITS, 36, 36):
        values.append(packed & ((1 << bits) - 1))
        packed >>= bits
    other, put_id, epoch, position = values
    if packed not in tuple(Kind):
        raise StoreForeign(f"{name} is a SQLite file that was not put there by Headwater")
    if not position or epoch > position:
        raise StoreDamaged(f"{name} has a label that cannot be: position {position}, epoch {epoch}")
    return Label(Kind(packed), position, epoch, put_id, other)


def check_whole(data: bytes, name: str) -> None:
    """Raises when some of an image is missing: whoever took the store over with what is left would ship that, and drop
    what the rest was made of."""
    whole = int.from_bytes(data[_PAGES], "big") * PAGE_BYTES
    if len(data) < whole:
        raise StoreDamaged(
            f"{name} is cut short: {len(data):,} of its {whole:,} bytes are there. Put back a version of before"
        )


def unlabelled(data: bytes) -> bytearray:
    """The file as it is worked on: in write-ahead mode, without a label."""
    image = bytearray(data)
    image[_MODES] = b"\x02\x02"
    image[_BEGIN:_END] = bytes(_END - _BEGIN)
    return image
