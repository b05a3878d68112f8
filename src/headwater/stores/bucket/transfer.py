"""The tables of a store in a bucket as a whole, to be moved to another place or from one.

To look at it takes nothing from anybody: it is a copy of what has landed. Who writes holds the store as any broker
does, on a scratch file, and takes it from the broker that holds it, once that can answer nobody any more.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from headwater.config import Config
from headwater.errors import StoreBusy, StoreFull
from headwater.stores.bucket.address import parse_place
from headwater.stores.bucket.keeper import open_objects
from headwater.stores.bucket.reading import Copies, write_copy
from headwater.stores.bucket.scratch_folder import ScratchFolder
from headwater.stores.bucket.store import BucketStore
from headwater.stores.contract import RaceLost
from headwater.stores.sqlite.connection import SqliteConnection, translated
from headwater.stores.sqlite.transfer import SqlitePlace


class BucketTransfer:
    """How the tables of a store in a bucket are held."""

    def __init__(self, address: str, config: Config) -> None:
        self._address = address
        self._config = config

    def hold(self, *, writes: bool) -> SqlitePlace:
        """Hold them as they are now."""
        return (HeldBucket if writes else SeenBucket)(self._address, self._config)


class SeenBucket(SqlitePlace):
    """What had landed, in a file of one's own."""

    def __init__(self, address: str, config: Config) -> None:
        self._place = parse_place(address)
        super().__init__(self._place.shown, config.lock_wait_seconds, writes=False)

    def __enter__(self) -> Self:
        folder = ScratchFolder(self._place.settings.bytes_max)
        with ExitStack() as made:
            folder.claim()
            made.callback(folder.release)
            self._path = os.path.join(folder.path, "copy.db")
            write_copy(self._path, asyncio.run(self._read()), self.shown)
            super().__enter__()
            self._opened.push(made.pop_all())
        return self

    async def _read(self) -> bytearray:
        objects = open_objects(self._place)
        try:
            copies = Copies(objects, self._place.key, self._place.shown)
            await copies.version()
            image, _ = await copies.read()
            return image
        finally:
            objects.close()


class _AsItIs(BucketStore):
    """A store that may be half full: whoever fills it opens it, and nobody else."""

    def _refuse(self, connection: SqliteConnection) -> None:
        """Nothing is refused."""


class HeldBucket(SqlitePlace):
    """A store that is held meanwhile. What keeps it (its lease, its PUTs) goes on in a thread of its own."""

    def __init__(self, address: str, config: Config) -> None:
        super().__init__(parse_place(address).shown, config.lock_wait_seconds, writes=True)
        self._address = address
        self._config = config

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headwater-bucket-transfer")
        self._thread.start()
        with ExitStack() as opened:
            opened.callback(self._end)
            self._store = _AsItIs(self._address, self._config, create=False)
            self._store.insist()
            self._wait(self._store.open())
            opened.callback(lambda: self._wait(self._store.close()))
            self._connection = self._store.connection
            # The file is made smaller by whoever has its turn, through the same connection.
            self._wait(self._store.medium.turn.enter())
            opened.callback(lambda: self._loop.call_soon_threadsafe(self._store.medium.turn.leave))
            with translated(f"holding {self.shown}"):
                self._begin()
            self._opened = opened.pop_all()
        return self

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """A store in a bucket is full at its cap, and hardly ever for want of a disk."""
        try:
            with translated(doing):
                yield
        except StoreFull as error:
            raise StoreFull(f"{doing}: {self._store.medium.reserve.why_full()}") from error

    def _end(self) -> None:
        self._wait(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def commit(self) -> None:
        """Make it so, in the bucket, and go on."""
        self._wait(self._commit())

    async def _commit(self) -> None:
        self._run("COMMIT")
        try:
            for landing in (self._store.make_durable(1), self._store.landed()):
                if landing is not None:
                    await landing
        except RaceLost:
            raise StoreBusy(f"another broker has taken {self.shown} over: try again") from None
        self._begin()

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()
