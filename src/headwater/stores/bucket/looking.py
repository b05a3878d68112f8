"""Reading a chain: the base, the entries behind it, and where they end. For holders, challengers and readers alike.

base    the whole file at one position, with a label; none in a new store
walk    entries behind the base to the first free position; those that count make the file newer. Where one behind it
        was sent after something had landed there, that was taken away: the log is damaged, and does not end there.
        Nor does one stop to count because another was put in the place of what it follows
floor   entries up to it may be gone; whoever began with an older base than that begins again
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from headwater.errors import StoreDamaged, StoreError
from headwater.stores.bucket.address import Ship, kept_otherwise
from headwater.stores.bucket.entries import Entry, Header, counts, decode, is_header_whole
from headwater.stores.bucket.label import HEADER_BYTES, Kind, Label, check_whole, read_label, unlabelled
from headwater.stores.bucket.objects import Objects, Unsure
from headwater.stores.bucket_traces import LOG, SECRET, is_entry

log = logging.getLogger(__name__)

# Entries asked for at once: few first, for those who look again and again; where there are more, as many as lie behind
# a base that is due, so that a long chain takes two round trips.
WINDOW = 16
WINDOW_MAX = 256
# More than an entry says of itself.
HEAD_BYTES = 2_048
# Further than a holder gets while one entry is on its way.
BEHIND = 8
PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 2.0
TELL_SECONDS = 10.0

NOTHING = Label(Kind.CHAIN, 0, 0, 0, 0)

Answer = TypeVar("Answer")


class Base(NamedTuple):
    """What is known of the base: its label, the tag of this version ('' when there is none), and the file."""

    label: Label
    tag: str
    image: bytearray

    @property
    def floor(self) -> int:
        return self.label.other


class Walk(NamedTuple):
    """Entries that count behind a base, the first free position, and what a next entry has to follow."""

    entries: list[Entry]
    free: int
    tip: int
    epoch: int


class LastSeen(NamedTuple):
    """The last entry that was seen to count, and the first position at which nothing was: all that somebody who looks
    again and again has to remember."""

    last: Header
    free: int


class Names:
    """The keys of one store."""

    def __init__(self, key: str) -> None:
        self.base = key
        self.log = f"{key}{LOG}/"
        self.secret = f"{key}{SECRET}"

    def entry(self, position: int) -> str:
        return f"{self.log}{position:012d}"


class Look:
    """Looks at a bucket until it answers."""

    def __init__(self, objects: Objects, names: Names, pause_seconds: float = PAUSE_SECONDS) -> None:
        self.objects = objects
        self.names = names
        self._pause_seconds = pause_seconds

    async def ask(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Something that may be asked twice, asked until it is answered. What the bucket refuses for good is raised."""
        pauses = self.pauses()
        while True:
            try:
                return await call()
            except Unsure as error:
                await pauses.rest(error)

    def pauses(self) -> "Pauses":
        """How long to wait between tries."""
        return Pauses(self._pause_seconds)

    async def entry(self, position: int) -> Entry | None:
        """The entry at a position, whether it counts or not."""
        key = self.names.entry(position)
        found = await self.ask(lambda: self.objects.get(key))
        return None if found is None else decode(found.data, key)

    async def header(self, position: int) -> Header | None:
        """What the entry at a position says of itself; not the pages that it changed, which may be many."""
        key = self.names.entry(position)
        found = await self.ask(lambda: self.objects.head(key, HEAD_BYTES))
        if found is not None and not is_header_whole(found.data):
            found = await self.ask(lambda: self.objects.get(key))
        return None if found is None else decode(found.data, key).header

    async def base(self) -> Base:
        """The base with its file."""
        found = await self.ask(lambda: self.objects.get(self.names.base))
        if found is None:
            return Base(NOTHING, "", bytearray())
        label = self._label(found.data)
        check_whole(found.data, self.names.base)
        return Base(label, found.tag, unlabelled(found.data))

    async def label(self) -> Base:
        """The base without its file."""
        found = await self.ask(lambda: self.objects.head(self.names.base, HEADER_BYTES))
        return (
            Base(NOTHING, "", bytearray()) if found is None else Base(self._label(found.data), found.tag, bytearray())
        )

    def _label(self, data: bytes) -> Label:
        label = read_label(data, self.names.base)
        if label.kind is not Kind.CHAIN:
            raise kept_otherwise(self.names.base, Ship.IMAGE)
        return label

    async def walk(self, base: Base, *, is_thorough: bool = True) -> Walk:
        """All that lies behind a base. Whoever goes on from its end, or tells what is in it, is thorough."""
        position, tip, epoch = base.label.position, base.label.put_id, base.label.epoch
        last = position
        entries: list[Entry] = []
        window = WINDOW
        while True:
            found = await asyncio.gather(*(self.entry(position + step) for step in range(1, window + 1)))
            window = WINDOW_MAX
            for entry in found:
                if entry is None:
                    break
                position += 1
                if entry.header.position != position:
                    raise StoreDamaged(f"{self.names.entry(position)} is the entry of another position")
                if counts(entry.header, tip, epoch):
                    entries.append(entry)
                    tip, epoch, last = entry.header.put_id, entry.header.epoch, position
                elif _proves_loss(entry.header, last, epoch) and not await self.is_overtaken(base):
                    raise StoreDamaged(
                        f"{self.names.entry(last + 1)}, or what lies before it, is not what was written there: entries "
                        "behind it follow another one. Put it back from the bucket's versions"
                    )
            behind = found[found.index(None) + 1 :] if None in found else None
            if behind is not None and await self._is_end(base, position + 1, behind, is_thorough=is_thorough):
                return Walk(entries, position + 1, tip, epoch)

    async def _is_end(self, base: Base, free: int, behind: Sequence[Entry | None], *, is_thorough: bool) -> bool:
        """Whether the log ends before a position that was free, by what lies behind it; not when it has gone on since.
        Raises when an entry was there, and is no more."""
        seen = range(free + 1 + len(behind), free + 1 + BEHIND)
        behind = [*behind, *await asyncio.gather(*(self.entry(position) for position in seen))]
        if not _prove(behind, free) and not (is_thorough and _prove(await self._newest(free), free)):
            return True
        if await self.entry(free) is not None:
            return False
        if await self.is_overtaken(base):
            # It was not needed any more, and is collected: whoever reads begins again.
            return True
        raise StoreDamaged(
            f"{self.names.entry(free)} is missing: it was written, and entries behind it are there. "
            "Put it back from the bucket's versions"
        )

    async def _newest(self, free: int) -> list[Entry | None]:
        """The newest entries, where they lie far behind a position: of many that are gone, the next ones are, too."""
        keys = await self.ask(lambda: self.objects.names(self.names.log))
        names = (key.removeprefix(self.names.log) for key in keys)
        far = [int(name) for name in names if is_entry(name) and int(name) > free + BEHIND]
        return await asyncio.gather(*(self.entry(position) for position in far[-BEHIND:]))

    async def is_overtaken(self, base: Base) -> bool:
        """Whether entries behind this base may be gone by now."""
        return (await self.label()).floor > base.label.position

    async def keeps_entry(self, header: Header) -> bool:
        """Whether an entry that counts is there still, or collected, as those are that a base has passed long ago."""
        begin, key = Entry(header).encode(), self.names.entry(header.position)
        found = await self.ask(lambda: self.objects.head(key, len(begin)))
        if found is not None and found.data == begin:
            return True
        # In this order: what is collected was passed before.
        return (await self.label()).floor >= header.position

    async def keeps_base(self, base: Base) -> bool:
        """Whether this base is there still, or a newer one of the same log."""
        while True:
            newest = (await self.label()).label
            if newest.position <= base.label.position:
                return (newest.position, newest.put_id) == (base.label.position, base.label.put_id)
            entry = await self.entry(newest.position)
            if entry is not None:
                return entry.header.put_id == newest.put_id
            # It may be collected by now, if there is a newer base still.
            if (await self.label()).floor < newest.position:
                return False

    async def everything(self, *, with_file: bool = True) -> tuple[Base, Walk]:
        """Base and entries as they were at some moment since the call."""
        while True:
            base = await (self.base() if with_file else self.label())
            walk = await self.walk(base, is_thorough=with_file)
            if not await self.is_overtaken(base):
                return base, walk

    async def go_on(self, seen: LastSeen) -> LastSeen | None:
        """Where a log ends whose end was seen before, by what was added since; None when that end is there no more, or
        what lies behind it does not go on from it: then all has to be read. Two GETs where nothing is new."""
        last, free = seen
        kept, *found = await asyncio.gather(self.header(last.position), self.header(free))
        if kept != last:
            return None
        while True:
            for header in found:
                if header is None:
                    return LastSeen(last, free)
                if header.position == free and counts(header, last.put_id, last.epoch):
                    last = header
                elif header.position != free or _proves_loss(header, last.position, last.epoch):
                    return None
                free += 1
            window = min(2 * len(found), WINDOW)
            found = await asyncio.gather(*(self.header(free + step) for step in range(window)))

    def is_taken(self, position: int) -> bool:
        """Whether there is an entry at a position, on the spot."""
        return self.objects.peek(self.names.entry(position), 1) is not None

    async def last(self, base: Base, walk: Walk) -> Header | None:
        """The header of the last entry that counts; None in a new store."""
        if walk.entries:
            return walk.entries[-1].header
        entry = await self.entry(base.label.position) if base.label.position else None
        return None if entry is None or entry.header.put_id != base.label.put_id else entry.header


def _prove(entries: Sequence[Entry | None], position: int) -> bool:
    """Whether one of these was written when an entry at a position had landed."""
    return any(entry is not None and entry.header.landed >= position for entry in entries)


def _proves_loss(void: Header, last: int, epoch: int) -> bool:
    """Whether an entry that does not count shows that one behind the last which does is not what it was: a takeover
    follows all that was there before it, and a holder knows what of its own had landed."""
    return void.is_takeover or (void.epoch >= epoch and void.landed > last)


class Pauses:
    """Growing pauses between tries, told to the log when they have lasted."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        # With the tries: one that hangs takes longer than all pauses.
        self._tell_at = self._loop.time() + TELL_SECONDS
        self._is_told = False

    async def rest(self, why: Exception) -> None:
        """Wait before the next try."""
        await asyncio.sleep(self._seconds)
        self._seconds = min(self._seconds * 2, PAUSE_SECONDS_MAX)
        is_refused = isinstance(why, StoreError) and not self._is_told
        if is_refused or self._loop.time() >= self._tell_at:
            self._tell_at, self._is_told = self._loop.time() + TELL_SECONDS, True
            log.warning("the bucket does not answer, trying again: %s", why)


def gone(key: str) -> str:
    """What is told when an object of a store is not there any more, that landed."""
    return (
        f"{key} was written and is gone: objects of this store were deleted, or older ones put in their place. "
        "Bring them back from the bucket's versions, if it keeps some"
    )


def newest_image(base: Base, entries: list[Entry]) -> bytearray:
    """The file with everything that counts: that of the base, which becomes it; a copy would be as large again."""
    image = base.image
    for entry in entries:
        changes = entry.changes()
        if changes is not None:
            changes.apply(image)
    return image
