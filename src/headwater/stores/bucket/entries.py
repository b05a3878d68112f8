"""Entries of the chain: each is one object, created once, at the next position.

    header   what it follows, whose it is, which commit
    body     page numbers and pages, compressed; none for one that only says "I am here"

An entry counts when its parent is the last one that counts, and its epoch is that one's or begins with it. Any other is
void: it keeps its place and means nothing. That depends on earlier entries alone, which never change, so everybody who
reads comes to the same end, whatever was answered to whom.

A store that is kept as images has IMAGES in place of the first entry: whoever makes a store of either kind creates that
object, so one of them is made.
"""

import struct

import msgspec

from headwater.config import MIB
from headwater.errors import StoreDamaged
from headwater.model.compression import BadCompression, compress_all, expand
from headwater.stores.bucket.address import Ship, kept_otherwise
from headwater.stores.sqlite.frames import PAGE_BYTES, PageChanges

_MAGIC = b"HWE1"
_LENGTH = struct.Struct(">4sI")
_BODY_MOST = 8_192 * MIB
# No version takes it for an entry.
IMAGES = b"HWI1 this store is kept as whole images\n"


class Header(msgspec.Struct, frozen=True):
    """Who wrote an entry where, and behind which other."""

    position: int
    epoch: int
    parent: int
    put_id: int
    holder: str = ""
    # Pages in the body, and pages of the file after it.
    pages: int = 0
    page_count: int = 0
    # For how long its holder may be silent.
    lease_seconds: float = 0.0
    # Its holder has gone: whoever wants the store need not wait.
    left: bool = False
    # Who is let in by the server of its holder: others that are guarded otherwise do not hand on to it.
    guard: str = ""
    # Up to here nothing was missing when it was sent. Whoever finds one of those gone knows that it was taken away.
    landed: int = 0

    @property
    def is_takeover(self) -> bool:
        """Whether an epoch begins here."""
        return self.epoch == self.position


class Entry(msgspec.Struct, frozen=True):
    """One object of the chain."""

    header: Header
    body: bytes = b""

    def encode(self) -> bytes:
        """The bytes of the object."""
        header = msgspec.json.encode(self.header)
        return b"".join((_LENGTH.pack(_MAGIC, len(header)), header, self.body))

    def changes(self) -> PageChanges | None:
        """What it does to the file; None when it does nothing."""
        header = self.header
        if not header.pages:
            return None
        size = header.pages * (4 + PAGE_BYTES)
        try:
            body = expand(self.body, min(size, _BODY_MOST))
        except BadCompression as error:
            raise StoreDamaged(f"entry {header.position} is damaged: {error}") from error
        if len(body) != size:
            raise StoreDamaged(f"entry {header.position} is damaged: {len(body):,} of {size:,} bytes are there")
        numbers = struct.unpack_from(f">{header.pages}I", body)
        begin = 4 * header.pages
        pages = {
            number: body[begin + place * PAGE_BYTES : begin + (place + 1) * PAGE_BYTES]
            for place, number in enumerate(numbers)
        }
        return PageChanges(pages, header.page_count)


def decode(data: bytes, name: str) -> Entry:
    """An entry from the bytes of its object."""
    if data == IMAGES:
        raise kept_otherwise(name, Ship.IMAGE)
    try:
        magic, length = _LENGTH.unpack_from(data)
        header = msgspec.json.decode(data[_LENGTH.size : _LENGTH.size + length], type=Header)
    except (struct.error, msgspec.MsgspecError) as error:
        raise StoreDamaged(f"{name} is no entry of a store: {error}") from error
    if magic != _MAGIC:
        raise StoreDamaged(f"{name} is no entry of a store")
    return Entry(header, data[_LENGTH.size + length :])


def is_header_whole(begin: bytes) -> bool:
    """Whether the first bytes of an object have all of an entry's header, if they are of one."""
    return len(begin) < _LENGTH.size or len(begin) >= _LENGTH.size + _LENGTH.unpack_from(begin)[1]


def pack(changes: PageChanges) -> bytes:
    """The body of an entry."""
    numbers = sorted(changes.pages)
    return compress_all([struct.pack(f">{len(numbers)}I", *numbers), *(changes.pages[number] for number in numbers)])


def counts(header: Header, tip: int, epoch: int) -> bool:
    """Whether an entry is one more behind the tip, in the tip's epoch or as the beginning of the next."""
    return header.parent == tip and (header.epoch == epoch or header.is_takeover)
