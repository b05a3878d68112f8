"""The scratch file of a store in a bucket: no larger than was agreed, and small before it is put away."""

import asyncio
import hashlib
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import apsw

from headwater.config import Config
from headwater.errors import StoreReplaced
from headwater.stores.bucket.address import RESERVE_BYTES
from headwater.stores.bucket.keeper import BucketKeeper
from headwater.stores.bucket.lease import end_all
from headwater.stores.contract import Fact, RaceLost
from headwater.stores.sqlite.connection import SqliteConnection
from headwater.stores.sqlite.frames import PAGE_BYTES
from headwater.stores.sqlite.reserve import Reserve
from headwater.stores.sqlite.scratch_file import ScratchFile

log = logging.getLogger(__name__)

RESERVE_PAGES = RESERVE_BYTES // PAGE_BYTES
SPARE_PAGES = 256
# Beyond this part of a file that holds nothing, it is made smaller before it is sent whole.
SLACK_PARTS = 4
# How long whoever leaves waits for a bucket that is full or silent.
LEAVE_SECONDS = 3.0
LOOK_SECONDS = 0.25


def digest(location: str) -> str:
    """A name for files of this machine that belong to a store elsewhere."""
    return f"bucket-{hashlib.sha256(location.encode()).hexdigest()[:32]}"


class PageReserve(Reserve):
    """Room below the cap for what drops records: dropping writes before it frees. None where the bucket itself is full:
    whatever is committed has to go there."""

    def __init__(self, folder: str, bytes_max: int, keeper: BucketKeeper) -> None:
        super().__init__("", 0)
        self._folder = folder
        self._keeper = keeper
        self._pages = bytes_max // PAGE_BYTES
        # Pages that may be used, where the file has more than that already; 0 while SQLite itself keeps to the cap.
        self._cap = 0
        self._connection: SqliteConnection | None = None

    def guard(self, connection: SqliteConnection) -> None:
        """Hold this connection to the cap from now on."""
        self._connection = connection
        self.take()

    def take(self) -> bool:
        """Keep the reserve free; whether there is room for more below it."""
        if self._connection is None:
            return True
        if self._keeper.full:
            return False
        self._set(self._pages - RESERVE_PAGES)
        return self._used() + SPARE_PAGES < self._pages - RESERVE_PAGES

    def why_full(self) -> str:
        """The cap, unless the scratch file itself has no room: SQLite says the same of both."""
        if shutil.disk_usage(self._folder).free < RESERVE_BYTES:
            return f"no space is left in {self._folder}, where the scratch file of this store lies"
        return (
            f"the store has reached its bytes_max of {self._pages * PAGE_BYTES:,} bytes; "
            "drop records, or open it everywhere with a larger bytes_max"
        )

    def check(self) -> None:
        """Raises while the bucket has no room for what was sent before, or does not answer: nothing is taken that would
        only wait."""
        trouble = self._keeper.trouble()
        if trouble is not None:
            raise trouble

    def give_up(self) -> bool:
        """Let what drops records have the reserve."""
        if self._connection is None:
            return False
        # Also in a file that was larger than the cap when it was opened.
        self._set(max(self._pages, self._count("page_count") + RESERVE_PAGES))
        self._cap = 0
        return True

    def weigh(self) -> int:
        """The pages that hold something, where the cap was lowered below what the file has."""
        return self._used() if self._cap else 0

    def check_growth(self, before: int) -> None:
        """What is above the cap may be read, popped and dropped, and does not grow."""
        if self._cap and self._used() > max(before, self._cap):
            raise apsw.FullError(f"more than {self._cap} pages are used")

    def _set(self, pages: int) -> None:
        """SQLite takes no cap below what the file has."""
        assert self._connection is not None
        [(taken,)] = self._connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()
        self._cap = pages if int(str(taken)) > pages else 0

    def _used(self) -> int:
        return self._count("page_count") - self._count("freelist_count")

    def _count(self, what: str) -> int:
        assert self._connection is not None
        return int(str(self._connection.pragma(what)))


class BucketFile(ScratchFile):
    """A scratch file whose commits go to a bucket."""

    def __init__(self, folder: str, keeper: BucketKeeper, config: Config, bytes_max: int) -> None:
        super().__init__(folder, keeper, config)
        self._bucket = keeper
        keeper.before_base = self._deflate
        keeper.on_loss = self._lose
        self._room = PageReserve(folder, bytes_max, keeper)
        self.reserve = self._room

    async def lay_out(self) -> None:
        """As any scratch file, unless what lies in the bucket is not what this handle has known there."""
        self.presence.remind()
        try:
            await super().lay_out()
        except StoreReplaced as error:
            self.presence.lose(str(error), type(error))

    def _lose(self, what: str) -> None:
        """Whoever asks, now or later, is told that this store is no more; and nothing is written to it."""
        self.turn.lose()
        with suppress(StoreReplaced):
            self.presence.lose(what)

    @asynccontextmanager
    async def preparing(self, connection: SqliteConnection) -> AsyncIterator[None]:
        """As in any scratch file, and no larger than its cap."""
        async with super().preparing(connection):
            self._room.guard(connection)
            yield

    async def has_room(self) -> bool:
        """Below the cap, beside the reserve."""
        return self._room.take()

    async def _leave(self) -> None:
        """In good order, unless the bucket is full or silent, and stays so."""
        leaving = asyncio.get_running_loop().create_task(self._leave_in_order(), name="headwater-bucket-leave")
        await asyncio.wait({leaving}, timeout=LEAVE_SECONDS)
        while not leaving.done() and not self._bucket.keeps_nothing(LEAVE_SECONDS):
            await asyncio.wait({leaving}, timeout=LOOK_SECONDS)
        if not leaving.done():
            log.warning("the bucket takes no more: this broker leaves without a word; others wait for its lease to end")
            await end_all([leaving])
            await self._bucket.abandon()
        else:
            leaving.result()

    async def _leave_in_order(self) -> None:
        """Make the file small, if much of it holds nothing, then send the last of it."""
        with suppress(RaceLost):
            await self._deflate()
        await super()._leave()

    async def _deflate(self) -> None:
        """Give pages back that hold nothing, where they are many: they would be sent with the next base."""
        if self.turn.lost or self._checkpoints is None:
            return
        pages, unused = int(str(self._connection.pragma("page_count"))), self._unused()
        if unused * SLACK_PARTS > pages:
            await self._compact(unused)
            sent = self._send()
            if sent is not None:
                await sent

    def unused_bytes(self) -> int:
        """How much of the file holds nothing."""
        return 0 if self._checkpoints is None else self._unused() * PAGE_BYTES

    async def examine(self) -> list[Fact]:
        """Where the pages are, how much of them holds something, and what keeping them has cost."""
        pages, unused = int(str(self._connection.pragma("page_count"))), self._unused()
        return [
            *await super().examine(),
            *self._bucket.facts(),
            Fact("bucket_unused_bytes", unused * PAGE_BYTES),
            Fact("bucket_used_bytes", (pages - unused) * PAGE_BYTES),
        ]
