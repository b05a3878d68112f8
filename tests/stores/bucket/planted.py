"""Bugs that somebody could write in good faith into the protocol of the bucket, each as a patch of one rule. The
simulation must notice every one of them."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from headwater.errors import StoreError
from headwater.stores.bucket.bases import Bases
from headwater.stores.bucket.chain import Chain, Flight
from headwater.stores.bucket.chain_keeper import ChainKeeper
from headwater.stores.bucket.entries import Entry, Header
from headwater.stores.bucket.label import labelled, unlabelled
from headwater.stores.bucket.looking import Look
from headwater.stores.bucket.objects import Refused, Unsure
from headwater.stores.sqlite.frames import PageChanges
from tests.stores.bucket.simulated_bucket import tag_of

BUCKET = "headwater.stores.bucket"
SIMULATED = "tests.stores.bucket.simulated_bucket"


async def collect_voids(self: Bases) -> int:
    """Everything up to the floor goes that began no epoch, whether it counts or not."""
    look, floor = self._look, self.base.floor
    gone = []
    for position in range(1, floor + 1):
        entry = await look.entry(position)
        if entry is not None and not entry.header.is_takeover:
            gone.append(look.names.entry(position))
    await look.ask(lambda: look.objects.delete(gone))
    return len(gone)


async def collect_to_the_base(self: Bases) -> int:
    """Entries go as soon as a base has them, while others still read from the base before."""
    position = self.base.label.position
    gone = [one for one in self._plain if one <= position]
    self._plain = [one for one in self._plain if one > position]
    keys = [self._look.names.entry(one) for one in gone]
    await self._look.ask(lambda: self._look.objects.delete(keys))
    return len(gone)


async def is_never_overtaken(self: object, base: object) -> bool:
    return False


async def land_in_any_order(self: Chain) -> None:
    """Answers go out as soon as an entry lies there, whatever lies before it."""
    while self._flights:
        await asyncio.wait([flight.placing for flight in self._flights], return_when=asyncio.FIRST_COMPLETED)
        for flight in [one for one in self._flights if one.placing.done()]:
            if not flight.placing.result():
                self.lose()
                return
            self._flights.remove(flight)
            self.on_landed(flight)
            if not flight.landed.done():
                flight.landed.set_result(None)


async def place_blindly(self: Chain, entry: Entry, *, is_patient: bool = True) -> bool:
    """What was refused is taken to be another's."""
    data, key = entry.encode(), self._look.names.entry(entry.header.position)
    while True:
        try:
            await self._look.objects.create(key, data)
            return True
        except Refused:
            return False
        except (Unsure, StoreError):
            await asyncio.sleep(0.05)


async def land_behind(self: Chain) -> None:
    """Whoever finds its place taken goes on behind it."""
    while self._flights:
        if await asyncio.shield(self._flights[0].placing):
            flight = self._flights.popleft()
            self.on_landed(flight)
            if not flight.landed.done():
                flight.landed.set_result(None)
            continue
        lost, self._flights = self._flights, deque()
        self.tip = lost[0].entry.header.parent
        for flight in lost:
            again = self.append(flight.changes)
            flight.entry, flight.placing = again.entry, again.placing
            self._flights[-1] = flight


def append_at_once(self: ChainKeeper, changes: PageChanges | None, *, left: bool = False) -> Flight:
    """The file that bases are made of has what was sent, landed or not."""
    flight = self._chain.append(changes, left=left)
    self._sent_at = flight.sent_at
    if changes is not None:
        changes.apply(self._image)
    flight.changes = None
    return flight


async def label_later(self: ChainKeeper) -> None:
    """The label is taken when the file is sent, and not with the file."""
    assert self._bases is not None
    if not self._image:
        return
    image = bytes(self._image)
    await asyncio.sleep(0.05)
    if self._at is not None and self._at.position > self._bases.base.label.position:
        label = self._bases.begin(self._at)
        await self._bases.replace(labelled(image, label), label)


def tag_without_label(data: bytes) -> str:
    """As if the label were kept as metadata, which is no part of what a tag is made of."""
    return tag_of(bytes(unlabelled(data)) if data.startswith(b"SQLite") else data)


async def look_at_next_alone(self: Chain) -> bool:
    """Whoever has taken over wrote at the position that comes next."""
    entry = await self._look.entry(self.next)
    return not self.deposed and (entry is None or entry.header.epoch == self.epoch)


async def miss_the_collected(self: Look, header: Header) -> bool:
    """An entry that is not there any more was taken away."""
    found = await self.entry(header.position)
    return found is not None and found.header == header


def always(*arguments: object, **more: object) -> bool:
    return True


# What is wrong, by name: which rule is replaced, by what, and with which seed the simulation notices.
BUGS: dict[str, tuple[str, Callable[..., Any], int]] = {
    "takeovers are collected": (f"{BUCKET}.bases.is_collectable", always, 29),
    "the floor is not looked at": (f"{BUCKET}.looking.Look.is_overtaken", is_never_overtaken, 101),
    "parents are not looked at": (f"{BUCKET}.looking.counts", always, 51),
    "answers come out of order": (f"{BUCKET}.chain.Chain._land", land_in_any_order, 65),
    "a refusal is believed": (f"{BUCKET}.chain.Chain._place", place_blindly, 1),
    "a position is skipped": (f"{BUCKET}.chain.Chain._land", land_behind, 0),
    "a base has what has not landed": (f"{BUCKET}.chain_keeper.ChainKeeper._append", append_at_once, 15),
    "leases are not kept": (f"{BUCKET}.chain.Chain.may_follow", always, 15),
    "entries go before their readers": (f"{BUCKET}.bases.Bases.collect", collect_to_the_base, 2),
    "a base is labelled newer than it is": (f"{BUCKET}.chain_keeper.ChainKeeper._renew_base", label_later, 7),
    "what was collected is missed": (f"{BUCKET}.looking.Look.keeps_entry", miss_the_collected, 39),
    "equal files have equal tags": (f"{SIMULATED}.tag_of", tag_without_label, 2),
}


# Needs somebody who sleeps at one very moment, for as long as two bases take: no seed that was tried came to it.
VOIDS = (f"{BUCKET}.bases.Bases.collect", collect_voids)
# Likewise: a sign of life that is held up while all that waits behind it is answered.
NEXT_ALONE = (f"{BUCKET}.chain.Chain.is_ours", look_at_next_alone)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The bug is there meanwhile."""
    target, broken, _ = BUGS[name]
    with patch(target, broken):
        yield
