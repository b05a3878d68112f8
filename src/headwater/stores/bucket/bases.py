"""Keeping the chain short: a newer base now and then, and entries deleted that nobody needs any more.

base      the file at a landed position, put in place of the base before; its floor is that one's position
collect   entries up to the floor go, but never one that began an epoch nor a void one: they keep a writer that slept
          from finding its position free
"""

import msgspec

from headwater.errors import StoreError, StoreReplaced
from headwater.stores.bucket.entries import Header
from headwater.stores.bucket.label import Kind, Label, copied
from headwater.stores.bucket.looking import Base, Look, Walk, gone
from headwater.stores.bucket.objects import Refused, Unsure
from headwater.stores.bucket_traces import is_entry

DELETES_MAX = 5_000


class Bases:
    """The base as this holder knows it, and the entries behind it."""

    def __init__(self, look: Look, base: Base, walk: Walk) -> None:
        self._look = look
        self.base = Base(base.label, base.tag, bytearray())
        # Positions of entries that count and began no epoch, with what they weigh.
        self._plain = [entry.header.position for entry in walk.entries if is_collectable(entry.header)]
        self._swept = False
        self.entries = len(walk.entries)
        self.delta_bytes = sum(len(entry.body) for entry in walk.entries)

    def landed(self, header: Header, size: int) -> None:
        """One more entry of ours counts."""
        self.entries += 1
        self.delta_bytes += size
        if is_collectable(header):
            self._plain.append(header.position)

    def begin(self, at: Header) -> Label:
        """The label of a base as of an entry of ours that has landed. From here on entries are behind that one."""
        self.entries, self.delta_bytes = 0, 0
        return Label(Kind.CHAIN, at.position, at.epoch, at.put_id, self.base.label.position)

    async def replace(self, data: bytes, label: Label) -> bool:
        """Make this file, which has this label, the base; whether it is. StoreReplaced when the one of before is
        gone."""
        pauses = self._look.pauses()
        while True:
            try:
                tag = await self._put(data)
                self.base = Base(label, tag, bytearray())
                return True
            except (Refused, Unsure, StoreError) as error:
                why: Exception = error
            newest = await self._look.label()
            if newest.label.position < self.base.label.position:
                raise StoreReplaced(gone(self._look.names.base))
            if newest.label.position >= label.position:
                self.base = newest
                return newest.label.put_id == label.put_id
            if newest.tag == self.base.tag:
                await pauses.rest(why)
            else:
                self.base, label = newest, msgspec.structs.replace(label, other=newest.label.position)
                data = await copied(data, label)

    async def _put(self, data: bytes) -> str:
        name, objects = self._look.names.base, self._look.objects
        return await (objects.replace(name, data, self.base.tag) if self.base.tag else objects.create(name, data))

    async def collect(self) -> int:
        """Delete what nobody needs; how many entries."""
        floor = self.base.floor
        gone = [position for position in self._plain if position <= floor]
        self._plain = [position for position in self._plain if position > floor]
        if not self._swept:
            # Once for each holder: what one that was killed had no time to delete.
            gone += await self._find_left(floor, set(gone))
            self._swept = True
        for begin in range(0, len(gone), DELETES_MAX):
            keys = [self._look.names.entry(position) for position in sorted(gone)[begin : begin + DELETES_MAX]]
            await self._look.ask(lambda keys=keys: self._look.objects.delete(keys))  # type: ignore[misc]
        return len(gone)

    async def _find_left(self, floor: int, known: set[int]) -> list[int]:
        """Entries below the floor that count, found by following parents down from the base. Where one is missing,
        those below it cannot be told from void ones: they stay."""
        keys = await self._look.ask(lambda: self._look.objects.names(self._look.names.log))
        there = {int(name) for key in keys if is_entry(name := key.removeprefix(self._look.names.log))}
        expected, found = self.base.label.put_id, []
        for position in range(self.base.label.position, 0, -1):
            entry = await self._look.entry(position) if position in there else None
            if entry is None:
                break
            if entry.header.put_id != expected:
                continue
            expected = entry.header.parent
            if position <= floor and position not in known and is_collectable(entry.header):
                found.append(position)
        return found


def is_collectable(header: Header) -> bool:
    """Whether an entry that counts may go some day."""
    return not header.is_takeover
