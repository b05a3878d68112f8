"""A store in a bucket: the tables of SQLite on a scratch file of this process, whose commits are objects."""

import shutil

from headwater.clock import Clock
from headwater.config import Config
from headwater.stores.bucket.address import Place, Ship, parse_place
from headwater.stores.bucket.keeper import BucketKeeper, open_objects
from headwater.stores.bucket.scratch import BucketFile, digest, new_folder
from headwater.stores.contract import Traits
from headwater.stores.postgres.beside import place_beside
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
        self._keeper = BucketKeeper(open_objects(place), place.key, place.settings, traits, create=create)
        self._folder = new_folder(place.settings.bytes_max)
        medium = BucketFile(self._folder, self._keeper, config, place.settings.bytes_max)
        super().__init__(medium, config, clock=clock)

    def numbers(self) -> dict[str, float]:
        """What the bucket was asked for, for the metrics."""
        return self._keeper.numbers()

    async def open(self) -> None:
        """Take the store over, and open it."""
        try:
            await super().open()
        except BaseException:
            await self._keeper.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
