"""A store in a bucket: the tables of SQLite on a scratch file of this process, whose commits are objects."""

from headwater.clock import Clock
from headwater.config import Config
from headwater.errors import StoreError
from headwater.stores.bucket.address import Place, Ship, parse_place
from headwater.stores.bucket.keeper import BucketKeeper, open_objects
from headwater.stores.bucket.scratch import BucketFile, digest
from headwater.stores.bucket.scratch_folder import ScratchFolder
from headwater.stores.contract import Holder, Traits
from headwater.stores.postgres.beside import place_beside
from headwater.stores.sqlite.connection import SqliteConnection
from headwater.stores.sqlite.store import SqliteStore

FLIGHTS_MAX = 4


def traits_of(place: Place) -> Traits:
    """What callers may need to know of a store in a bucket."""
    return Traits(
        name="bucket",
        location=place.address,
        engine="SQLite in a scratch file",
        several_machines=True,
        durable_by="a conditional PUT for every commit",
        answers_wait=True,
        flights_max=1 if place.settings.ship is Ship.IMAGE else FLIGHTS_MAX,
        beside=place_beside(digest(place.shown)),
    )


class BucketStore(SqliteStore):
    """The store at an address of a bucket; whoever opens it takes it over."""

    def __init__(self, address: str, config: Config, *, clock: Clock | None = None, create: bool = True) -> None:
        place = parse_place(address)
        traits = traits_of(place)
        self._keeper = BucketKeeper(open_objects(place), place, traits, create=create)
        self._folder = ScratchFolder(place.settings.bytes_max)
        self._file = BucketFile(self._folder.path, self._keeper, config, place.settings.bytes_max)
        super().__init__(self._file, config, clock=clock)

    @property
    def connection(self) -> SqliteConnection:
        """The one whose commits go to the bucket, for those who move the store as a whole."""
        return self._connection

    def numbers(self) -> dict[str, float]:
        """What the bucket was asked for, for the metrics."""
        return {**self._keeper.numbers(), "bucket_unused_bytes": self._file.unused_bytes()}

    def stand_by(self, own: Holder) -> None:
        """Wait for the store until it is free, and tell others this of this broker."""
        self._keeper.stand_by(own)

    def insist(self) -> None:
        """Before it is opened: take it from whoever holds it, and wait until that one answers nobody any more."""
        self._keeper.insist()

    def held_by(self) -> Holder | None:
        """Another broker that holds the store."""
        return self._keeper.held_by()

    def trouble(self) -> StoreError | None:
        """Why nothing lands now."""
        return self._keeper.trouble()

    async def secret(self) -> bytes:
        """What only brokers of this store know."""
        return await self._keeper.secret()

    async def open(self) -> None:
        """Take the store over, and open it."""
        try:
            self._folder.claim()
            await super().open()
        except BaseException:
            await self._keeper.close()
            self._folder.release()
            raise

    def _check_open(self) -> None:
        if not self._open:
            raise self._keeper.left()

    async def close(self) -> None:
        """Leave it to others."""
        try:
            await super().close()
        finally:
            self._folder.release()
