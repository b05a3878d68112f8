"""Reading the log of a store in a bucket: a copy of what has landed, made anew when more has.

A reader takes nothing over and never makes a holder wait. Each call looks once whether there is more.
"""

import os
from collections.abc import Sequence

from headwater.clock import Timestamp
from headwater.config import Config
from headwater.errors import StoreMissing
from headwater.model.names import Lsn
from headwater.stores.bucket.address import Place, Ship, parse_place
from headwater.stores.bucket.images import ImageLook
from headwater.stores.bucket.keeper import find_ship, open_objects
from headwater.stores.bucket.label import unattended
from headwater.stores.bucket.looking import Look, Names, newest_image
from headwater.stores.bucket.objects import Objects
from headwater.stores.bucket.scratch_folder import ScratchFolder
from headwater.stores.bucket.store import traits_of
from headwater.stores.log_reader import Body, Drops, Fingerprint, SegmentOutline
from headwater.stores.questions import PartitionStatus
from headwater.stores.sqlite.reading import SqliteLogReader


class Copies:
    """The file of a store as it is in the bucket now."""

    def __init__(self, objects: Objects, key: str, location: str) -> None:
        names = Names(key)
        self._location = location
        self._chain, self._images = Look(objects, names), ImageLook(objects, names)
        self._ship: Ship | None = None
        self._free = 1

    async def version(self) -> object:
        """What changes with every commit that lands; None when it has."""
        if self._ship is None:
            self._ship = await find_ship(self._chain)
        if self._ship is None:
            raise StoreMissing(f"there is no store at {self._location}")
        if self._ship is Ship.IMAGE:
            return (await self._images.found())[1]
        # An entry that is gone was there: then the base has passed it.
        entry, base = await self._chain.entry(self._free), await self._chain.label()
        return None if entry is not None or base.label.position >= self._free else self._free

    async def read(self) -> tuple[bytearray, object]:
        """The newest file, and its version."""
        if self._ship is Ship.IMAGE:
            _, tag, image = await self._images.whole()
            if not image:
                await self._images.refuse_lost()
            return image, tag
        base, walk = await self._chain.everything()
        self._free = walk.free
        return newest_image(base, walk.entries), walk.free


def write_copy(path: str, image: bytearray, location: str) -> None:
    """As a file that needs no log beside it to be opened."""
    if not image:
        raise StoreMissing(f"nothing has landed yet at {location}")
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path, "xb") as file:
        file.write(unattended(image))


class BucketLogReader:
    """The log of a store in a bucket, for reading only."""

    def __init__(self, address: str, config: Config) -> None:
        place: Place = parse_place(address)
        self._config = config
        self._objects = open_objects(place)
        self._copies = Copies(self._objects, place.key, place.shown)
        self._folder = ScratchFolder(place.settings.bytes_max)
        self._number = 0
        self._seen: object = None
        self._reader: SqliteLogReader | None = None
        self.traits = traits_of(place)

    async def open(self) -> None:
        """Fetch what has landed, and check that it is a store of this version."""
        try:
            self._folder.claim()
            await self._fresh()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let go."""
        await self._close_copy()
        self._folder.release()
        self._objects.close()

    async def _close_copy(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await reader.close()
            os.unlink(self._path)

    @property
    def _path(self) -> str:
        return os.path.join(self._folder.path, f"{self._number}.db")

    async def _fresh(self) -> SqliteLogReader:
        """A reader of the newest copy."""
        version = await self._copies.version()
        if self._reader is None or version is None or version != self._seen:
            image, self._seen = await self._copies.read()
            await self._close_copy()
            self._number += 1
            write_copy(self._path, image, self.traits.location)
            self._reader = SqliteLogReader(self._path, self._config)
            await self._reader.open()
        return self._reader

    async def identity(self) -> str:
        return await (await self._fresh()).identity()

    async def fingerprint(self, through: Lsn) -> Fingerprint | None:
        return await (await self._fresh()).fingerprint(through)

    async def remembers(self, seen: Fingerprint) -> bool | None:
        return await (await self._fresh()).remembers(seen)

    async def span(self) -> tuple[Lsn, Lsn]:
        return await (await self._fresh()).span()

    async def lsn_at(self, time: Timestamp) -> Lsn:
        return await (await self._fresh()).lsn_at(time)

    async def queue_names(self, database: str) -> list[str]:
        return await (await self._fresh()).queue_names(database)

    async def queue_numbers(self, database: str) -> dict[str, int]:
        return await (await self._fresh()).queue_numbers(database)

    async def partitions(self, database: str, queue: str, limit: int, after: int) -> list[PartitionStatus]:
        return await (await self._fresh()).partitions(database, queue, limit, after)

    async def newest(self, after: Lsn, through: Lsn, database: str, queues: Sequence[str]) -> Lsn | None:
        return await (await self._fresh()).newest(after, through, database, queues)

    async def end_of(self, database: str, patterns: Sequence[str]) -> Lsn:
        return await (await self._fresh()).end_of(database, patterns)

    async def outline(
        self, after: Lsn, through: Lsn, limit: int, database: str, queues: Sequence[str]
    ) -> list[SegmentOutline]:
        return await (await self._fresh()).outline(after, through, limit, database, queues)

    async def bodies(
        self, after: Lsn, through: Lsn, bytes_max: int, database: str, queues: Sequence[str]
    ) -> list[Body]:
        return await (await self._fresh()).bodies(after, through, bytes_max, database, queues)

    async def drops(
        self, after: Lsn, since: int, database: str, queues: Sequence[str], partitions: Sequence[str] = ()
    ) -> Drops:
        return await (await self._fresh()).drops(after, since, database, queues, partitions)
