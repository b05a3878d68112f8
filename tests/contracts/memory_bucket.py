"""A bucket in memory, as far as a store needs one: objects that are created once, by whoever is first.

An object is one entry of a log. Its holder creates entries one after the other, several at a time; whoever takes the
store over creates an entry that begins an epoch of its own. An entry counts when it follows the last one that counts,
in the same epoch or as the beginning of the next; others keep their place and mean nothing. So everybody agrees on
what landed, whatever was answered to whom: `script` lets answers get lost, arrive late, or say nothing.
"""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, cast

from headwater.client.access import Access
from headwater.clock import Clock
from headwater.config import Config
from headwater.errors import StoreMissing
from headwater.stores.contract import RaceLost, Store, Traits
from headwater.stores.log_reader import LogReader
from headwater.stores.open import Address, Kind, Terms
from headwater.stores.sqlite.frames import PageChanges
from headwater.stores.sqlite.reading import SqliteLogReader
from headwater.stores.sqlite.scratch_file import ScratchFile
from headwater.stores.sqlite.store import SqliteStore
from headwater.wakeups.contract import Wakeup
from headwater.wakeups.data_version import DataVersionWakeup

SCHEME = "memory-bucket"
FLIGHTS_MAX = 4
TURNS_MAX = 3
PAUSE_SECONDS = 0.01
LOSSES_MAX = 8


class Fate(Enum):
    """What becomes of a creation, and what is said of it."""

    CREATED = "created"
    SILENT = "created, and nobody is told"
    DROPPED = "not created, and nobody is told"


class Unsure(Exception):
    """Nobody can say whether it was created."""


class Entry(NamedTuple):
    """One object: a commit, or the beginning of an epoch."""

    name: int
    epoch: int
    parent: int
    changes: PageChanges | None


class Bucket:
    """Objects by position. `landed` are those that count so far, `image` what they make."""

    def __init__(self, seed: int = 0) -> None:
        self._objects: dict[int, Entry] = {}
        self._names = itertools.count(1)
        self.chance = random.Random(seed)
        self.script: deque[Fate] = deque()
        self.creations = 0
        self.image = bytearray()
        self.free = 1
        self.tip, self.epoch = 0, 0

    def next_name(self) -> int:
        return next(self._names)

    async def create(self, position: int, entry: Entry) -> bool:
        """Whether it was created; False when there is one already."""
        self.creations += 1
        fate = self.script.popleft() if self.script else Fate.CREATED
        await self._take_time()
        if fate is not Fate.DROPPED and position in self._objects:
            return False
        if fate is not Fate.DROPPED:
            self._objects[position] = entry
            self._walk()
        if fate is not Fate.CREATED:
            raise Unsure
        await self._take_time()
        return True

    async def get(self, position: int) -> Entry | None:
        await self._take_time()
        return self._objects.get(position)

    def has(self, position: int) -> bool:
        return position in self._objects

    async def _take_time(self) -> None:
        for _ in range(self.chance.randint(1, TURNS_MAX)):
            await asyncio.sleep(0)

    def _walk(self) -> None:
        """What a reader finds, from the first object to the first gap; whatever comes later changes nothing of it."""
        while (entry := self._objects.get(self.free)) is not None:
            if entry.parent == self.tip and entry.epoch in (self.epoch, self.free):
                self.tip, self.epoch = entry.name, entry.epoch
                if entry.changes is not None:
                    entry.changes.apply(self.image)
            self.free += 1


class Holder:
    """Keeps the commits of one handle in a bucket."""

    def __init__(self, bucket: Bucket, traits: Traits) -> None:
        self._bucket = bucket
        self._next, self._tip, self._epoch = 1, 0, 0
        # The newest entry of somebody else's, and the newest that was noticed.
        self._foreign, self._noticed = 0, 0
        self._losses = 0
        self._lander: asyncio.Task[None] | None = None
        self._flights: deque[tuple[asyncio.Task[bool], asyncio.Future[None]]] = deque()
        self.flights_seen = 0
        self.traits = traits

    async def take_over(self) -> bytearray:
        """Begin an epoch behind everything that is there, and behind what this handle still has on its way."""
        await self.close()
        # Others who took over want to write as well: let them, or nobody ever lands anything.
        await asyncio.sleep(self._bucket.chance.random() * PAUSE_SECONDS * self._losses)
        self._losses = min(self._losses + 1, LOSSES_MAX)
        while True:
            free, tip, image = self._bucket.free, self._bucket.tip, bytearray(self._bucket.image)
            entry = Entry(self._bucket.next_name(), free, tip, None)
            if await self._place(free, entry):
                if free > self._next:
                    self._foreign = free - 1
                self._next, self._tip, self._epoch = free + 1, entry.name, free
                self._flights.clear()
                return image

    async def _place(self, position: int, entry: Entry) -> bool:
        """Whether it lies there. Whatever is answered, a look decides; and what is sent again is the same."""
        while True:
            try:
                if await self._bucket.create(position, entry):
                    return True
            except Unsure:
                pass
            found = await self._bucket.get(position)
            if found is not None:
                return found.name == entry.name

    def send(self, changes: PageChanges) -> asyncio.Future[None]:
        """One more entry, while those before it may still be on their way."""
        loop = asyncio.get_running_loop()
        entry = Entry(self._bucket.next_name(), self._epoch, self._tip, changes)
        landed: asyncio.Future[None] = loop.create_future()
        self._flights.append((loop.create_task(self._place(self._next, entry)), landed))
        self.flights_seen = max(self.flights_seen, len(self._flights))
        self._next, self._tip = self._next + 1, entry.name
        if self._lander is None or self._lander.done():
            self._lander = loop.create_task(self._land())
        return landed

    async def _land(self) -> None:
        """In order: one that finds another's entry in its place takes all behind it along."""
        while self._flights:
            placing, landed = self._flights[0]
            if await placing:
                self._flights.popleft()
                self._losses = 0
                landed.set_result(None)
                continue
            for _, lost in self._flights:
                lost.set_exception(RaceLost())
                lost.exception()
            self._flights.clear()

    def confirm(self) -> asyncio.Future[None]:
        """Whether the place behind our last entry is nobody else's. A real bucket has a lease, and asks nobody."""
        return asyncio.ensure_future(self._confirm())

    async def _confirm(self) -> None:
        epoch, found = self._epoch, await self._bucket.get(self._next)
        if found is not None and found.epoch != epoch:
            raise RaceLost
        self._losses = 0

    def wakeup(self) -> Wakeup:
        return DataVersionWakeup(self._changed)

    def _changed(self) -> bool:
        if self._bucket.has(self._next) and not self._flights:
            self._foreign = self._bucket.free - 1
        noticed, self._noticed = self._noticed, self._foreign
        return self._foreign > noticed

    def stop(self) -> None:
        """Nobody waits here."""

    async def close(self) -> None:
        if self._lander is not None:
            await asyncio.wait([self._lander])


class Buckets:
    """All buckets of a test, by address, and what opens them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._buckets: dict[str, Bucket] = {}
        self._numbers = itertools.count(1)
        self.holders: list[Holder] = []
        self.kind = Kind(self._open_store, self._open_reader)

    def at(self, address: Address) -> Bucket:
        return self._buckets.setdefault(str(address), Bucket())

    def _open_store(self, address: Address, config: Config, clock: Clock, terms: Terms) -> Store:
        traits = Traits(
            name="memory bucket",
            location=str(address),
            engine="SQLite in a scratch file",
            several_machines=False,
            durable_by="an entry in memory",
            answers_wait=True,
            flights_max=FLIGHTS_MAX,
            beside=str(self._folder / str(address).rpartition("/")[2]),
        )
        holder = Holder(self.at(address), traits)
        self.holders.append(holder)
        medium = ScratchFile(str(self._folder / f"scratch-{next(self._numbers)}"), holder, config)
        return SqliteStore(medium, config, clock=clock)

    def _open_reader(self, address: Address, config: Config, access: Access) -> LogReader:
        path = self._folder / f"reader-{next(self._numbers)}.db"
        return cast(LogReader, BucketReader(self.at(address), path, config))


class BucketReader:
    """Reads what has landed: in a copy that is made anew when more has."""

    def __init__(self, bucket: Bucket, path: Path, config: Config) -> None:
        self._bucket = bucket
        self._path = path
        self._config = config
        self._seen = 0
        self._reader: SqliteLogReader | None = None

    async def open(self) -> None:
        if not self._bucket.image:
            raise StoreMissing("nothing has landed in this bucket")
        await self._fresh()

    async def _fresh(self) -> SqliteLogReader:
        if self._reader is None or self._seen != self._bucket.free:
            await self.close()
            self._seen = self._bucket.free
            self._path.write_bytes(_plain(self._bucket.image))
            self._reader = SqliteLogReader(str(self._path), self._config)
            await self._reader.open()
        return self._reader

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
            self._reader = None

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def read(*arguments: Any, **more: Any) -> Any:
            return await getattr(await self._fresh(), name)(*arguments, **more)

        return read


def _plain(image: bytearray) -> bytes:
    """The bytes of a file that needs no log beside it to be opened."""
    return bytes(image[:18]) + b"\x01\x01" + bytes(image[20:])
