"""Holding a chain: the right to add entries, until somebody else takes it over.

    write      create entry n. Anything but success: read n. Ours: landed. Nothing: the same bytes again. Another's:
               deposed, and nothing of ours from n on counts
    pipeline   n+1 may be sent before n is answered; it counts only when n does, and is told only after it
    take over  read to the first free position, create an entry there that begins an epoch, then look at the floor once
               more: had it passed what was read, entries may have been missing, and all is read again

A holder never skips a position, and its entries follow each other: so whoever finds a position free knows that nothing
lies behind it, and whoever finds it taken by another knows that nothing of its own counts from there on.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from headwater.errors import StoreDamaged, StoreError, StoreForeign, StoreFull, StoreReplaced
from headwater.stores.bucket.entries import Entry, Header, decode, pack
from headwater.stores.bucket.label import PUT_ID_BITS
from headwater.stores.bucket.lease import end_all
from headwater.stores.bucket.looking import Base, LastSeen, Look, Walk, gone
from headwater.stores.bucket.objects import Refused, Unsure
from headwater.stores.contract import Holder, RaceLost
from headwater.stores.sqlite.frames import PageChanges

log = logging.getLogger(__name__)

# Further than a holder gets while one PUT is on its way.
AHEAD = 16


def new_put_id() -> int:
    """Tells one PUT from all others; never 0, which is none."""
    return secrets.randbelow((1 << PUT_ID_BITS) - 1) + 1


class Terms(NamedTuple):
    """What a holder says of itself in its entries, and how long it waits between two."""

    holder: Holder = Holder("")
    lease_seconds: float = 0.0
    gap_seconds: float = 0.0


class Flight:
    """An entry on its way. `landed` is done when it and all before it are in the log."""

    def __init__(self, entry: Entry, changes: PageChanges | None, sent_at: float) -> None:
        self.entry = entry
        self.changes = changes
        self.sent_at = sent_at
        self.landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.placing: asyncio.Task[bool]


class Chain:
    """One holder's end of the log. `on_landed` is told of each entry of ours that landed, in order."""

    def __init__(self, look: Look, terms: Terms, now: Callable[[], float]) -> None:
        self._look = look
        self._terms = terms
        self._now = now
        self._send_at = 0.0
        self._flights: deque[Flight] = deque()
        self._lander: asyncio.Task[None] | None = None
        self._strays: list[asyncio.Task[bool]] = []
        self.on_landed: Callable[[Flight], None] = lambda flight: None
        self.next, self.tip, self.epoch = 1, 0, 0
        self.deposed = True
        # Whether the bucket has no room for what is on its way.
        self.full = False
        # Position and put_id of the newest entry that was seen to count; none yet.
        self._seen = (0, 0)
        # The end of the log as it was last looked at, for whoever waits.
        self._end: LastSeen | None = None

    @property
    def in_flight(self) -> int:
        """How many entries are on their way."""
        return len(self._flights)

    # ── taking over ──

    async def take_over(self, quiet_tip: int | None, *, insists: bool = False) -> tuple[Base, Walk, Flight] | None:
        """Become the holder: what there is to go on from, and the entry that began our epoch. None when another has a
        lease; unless the log still ends with the entry `quiet_tip`, which was seen unmoved for as long. Who insists
        follows everybody, and gets None when another came first."""
        while True:
            base = await self._look.base()
            walk = await self._look.walk(base)
            if not self._goes_on(base, walk):
                if await self._look.is_overtaken(base):
                    continue
                raise StoreReplaced(gone(self._look.names.entry(self._seen[0])))
            last = await self._look.last(base, walk)
            if last is not None and not insists and not self.may_follow(last, quiet_tip):
                # What was taken for the end may lie behind entries that were collected.
                self._end = None
                return None
            header = self._header(walk.free, walk.free, walk.tip, landed=walk.free - 1)
            flight = Flight(Entry(header), None, self._now())
            if not await self._place(flight.entry, is_patient=False):
                if insists:
                    return None
                continue
            if await self._look.is_overtaken(base):
                continue
            self.next, self.tip, self.epoch = walk.free + 1, header.put_id, walk.free
            self._seen = (walk.free, header.put_id)
            self.deposed, self._end = False, None
            return base, walk, flight

    async def find_last(self) -> tuple[Header | None, int]:
        """The last entry that counts, and its put_id. StoreReplaced when the log does not go on from what was seen.
        Asked again and again by whoever waits: all is read once, then what was added."""
        end = self._end and await self._look.go_on(self._end)
        if end is not None:
            self._end, self._seen = end, (end.last.position, end.last.put_id)
            return end.last, end.last.put_id
        base, walk = await self._look.everything(with_file=False)
        if not self._goes_on(base, walk):
            raise StoreReplaced(gone(self._look.names.entry(self._seen[0])))
        last = await self._look.last(base, walk)
        if walk.entries:
            self._seen = (walk.entries[-1].header.position, walk.tip)
        self._end = None if last is None else LastSeen(last, walk.free)
        return last, walk.tip

    def _goes_on(self, base: Base, walk: Walk) -> bool:
        """Whether the newest entry that was seen to count is in this log, or behind its base. What counts never ceases
        to, unless objects are taken away."""
        position, put_id = self._seen
        if base.label.position >= position:
            return base.label.position > position or base.label.put_id == put_id
        return any(entry.header.put_id == put_id for entry in walk.entries)

    async def depose(self) -> None:
        """End the epoch of whoever holds the log, however much it writes: entries that count for nobody lie where its
        next ones would, further ahead than it has any on their way."""
        base, walk = await self._look.everything(with_file=False)
        last = await self._look.last(base, walk)
        if last is None or last.left:
            return
        landed = walk.free - 1
        ahead = (Entry(self._header(walk.free + step, 0, new_put_id(), landed=landed)) for step in range(AHEAD))
        await asyncio.gather(*(self._place(entry, is_patient=False) for entry in ahead))

    def may_follow(self, last: Header, quiet_tip: int | None) -> bool:
        """Whether it is polite to take over behind this entry."""
        return last.left or not last.lease_seconds or last.epoch == self.epoch or last.put_id == quiet_tip

    def _header(self, position: int, epoch: int, parent: int, landed: int) -> Header:
        (address, guard), lease = self._terms.holder, self._terms.lease_seconds
        put_id = new_put_id()
        return Header(position, epoch, parent, put_id, address, lease_seconds=lease, guard=guard, landed=landed)

    # ── writing ──

    def append(self, changes: PageChanges | None, *, left: bool = False) -> Flight:
        """Send one more entry, behind those that are on their way."""
        body = b"" if changes is None else pack(changes)
        pages, count = (0, 0) if changes is None else (len(changes.pages), changes.page_count)
        header = self._header(self.next, self.epoch, self.tip, landed=self.next - 1 - self.in_flight)
        header = msgspec.structs.replace(header, pages=pages, page_count=count, left=left)
        flight = Flight(Entry(header, body), changes, self._now())
        if self.deposed:
            _fail(flight.landed)
            return flight
        loop = asyncio.get_running_loop()
        flight.placing = loop.create_task(self._place_in_turn(flight.entry), name="headwater-bucket-put")
        self._flights.append(flight)
        self.next, self.tip = self.next + 1, header.put_id
        if self._lander is None or self._lander.done():
            self._lander = loop.create_task(self._land(), name="headwater-bucket-lander")
        return flight

    async def _place_in_turn(self, entry: Entry) -> bool:
        """Not sooner after the one before than was asked for."""
        if self._terms.gap_seconds:
            now = asyncio.get_running_loop().time()
            self._send_at = max(self._send_at + self._terms.gap_seconds, now)
            await asyncio.sleep(self._send_at - now)
        return await self._place(entry)

    async def _place(self, entry: Entry, *, is_patient: bool = True) -> bool:
        """Whether the entry lies at its position; False when another does. Whatever is answered, a look decides. Who is
        not patient is told when the bucket refuses for good; others wait for somebody to mend that."""
        data, key = entry.encode(), self._look.names.entry(entry.header.position)
        pauses = self._look.pauses()
        while True:
            try:
                await self._look.objects.create(key, data)
                self.full = False
                return True
            except (Refused, Unsure, StoreError) as error:
                why: Exception = error
            there = await self._find(key)
            if there is not None:
                self.full = False
                return there.header.put_id == entry.header.put_id
            if isinstance(why, StoreError) and not is_patient:
                raise why
            self.full = isinstance(why, StoreFull)
            await pauses.rest(why)

    async def _find(self, key: str) -> Entry | None:
        """What lies at a key. This must be known: also a bucket that refuses us now is asked until it tells. What is no
        entry was told, and stays: that is raised."""
        pauses = self._look.pauses()
        while True:
            try:
                found = await self._look.objects.get(key)
            except (Unsure, StoreError) as error:
                await pauses.rest(error)
            else:
                return None if found is None else decode(found.data, key)

    async def _land(self) -> None:
        """Settle flights in order; one that lost its place takes all behind it along."""
        while self._flights:
            is_placed = await self._is_placed(self._flights[0])
            if not self._flights:
                # All of them were lost meanwhile.
                return
            if not is_placed:
                self.lose()
                return
            flight = self._flights.popleft()
            self._seen = (flight.entry.header.position, flight.entry.header.put_id)
            self.on_landed(flight)
            if not flight.landed.done():
                flight.landed.set_result(None)

    async def _is_placed(self, flight: Flight) -> bool:
        """Whether an entry lies at its position. What is no entry keeps everybody from it: whoever takes the store over
        next is told so."""
        try:
            return await asyncio.shield(flight.placing)
        except (StoreDamaged, StoreForeign) as error:
            log.error("nothing more can be written to this store: %s", error)
            return False

    def lose(self) -> None:
        """Nothing of ours that has not landed counts any more, nor anything that is sent from now on."""
        self.deposed = True
        lost, self._flights = self._flights, deque()
        for flight in lost:
            _fail(flight.landed)
        # Those behind may still be on their way. They cannot count, but whoever leaves waits for them.
        self._strays = [flight.placing for flight in lost]

    async def settle(self) -> None:
        """Wait until nothing of ours is on its way."""
        if self._lander is not None:
            await asyncio.wait([self._lander])
        strays, self._strays = self._strays, []
        if strays:
            await asyncio.wait(strays)

    async def abandon(self) -> None:
        """Wait for nothing of ours any more, nor send it again. What was sent may land still."""
        tasks: list[asyncio.Task[Any]] = [*(flight.placing for flight in self._flights), *self._strays]
        if self._lander is not None:
            tasks.append(self._lander)
        self.lose()
        self._strays = []
        await end_all(tasks)

    async def is_ours(self) -> bool:
        """Whether nobody else had taken the log over at some time since the call. Whoever had, began at one of the
        positions where nothing of ours is known to have landed: all of them are looked at, for what lies behind that
        beginning may have been collected."""
        epoch = self.epoch
        positions = range(self.next - self.in_flight, self.next + 1)
        entries = await asyncio.gather(*(self._look.entry(position) for position in positions))
        if self.epoch == epoch and any(entry is not None and entry.header.epoch != epoch for entry in entries):
            self.deposed = True
        return not self.deposed


def _fail(landed: "asyncio.Future[None]") -> None:
    """Whether anybody waits for it or not."""
    if not landed.done():
        landed.set_exception(RaceLost())
        landed.exception()
