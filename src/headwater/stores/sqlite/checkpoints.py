"""Keeping the write-ahead log short without making commits wait for it.

A checkpoint moves pages from the log into the file. It runs in a thread of its own, again and again until little is
left; while others go on writing it can never move everything, and a log that is never fully moved never starts over. So
the last bit is moved while this store keeps the turn at the write lock: nobody commits for a moment, and the next
commit begins the log anew. The log is kept short because a sync is several times quicker where the file need not grow;
for the same reason it gets its first megabytes when the store is opened. A reader that stays in one old snapshot pins
the log: that is told.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

import apsw

from headwater.errors import StoreFull
from headwater.forks import ForkGuard
from headwater.stores.sqlite.connection import translated

# How many unused pages are given back in one go where all of them are.
ALL_PAGES_STEP = 500
ROUNDS_MAX = 4
REST_PAGES = 128
GROWN_PAGES = 800
PAUSE_SECONDS = 0.25

Result = TypeVar("Result")


class ChoresTurn(Protocol):
    """A place of their own in the queue of those who write."""

    async def within_thread(self, work: Callable[[], Result]) -> Result:
        """Do this in a turn, in a thread: no event loop has to come for anything before the next one is let in."""
        ...

    def close(self) -> None:
        """Give up the place."""
        ...


class Checkpoints:
    """Checkpoints of one file, through a connection of their own."""

    def __init__(self, connection: apsw.Connection, turn: ChoresTurn, wal_bytes_max: int) -> None:
        self._connection = connection
        self._turn = turn
        self._fork_guard = ForkGuard()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-checkpoint")
        page_bytes = int(connection.pragma("page_size"))
        self._cap_pages = max(wal_bytes_max // page_bytes, 16)
        self._grown = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._checked_pages = 0
        self._checked_at = 0.0
        self.log_pages = 0
        self.trusted = True
        self.pinned_pages = 0

    def committed(self, connection: apsw.Connection, schema: str, log_pages: int) -> int:
        """A commit left the log with this many pages: what SQLite calls after each."""
        self.log_pages = log_pages
        if log_pages < self._checked_pages:
            self._checked_pages = 0
        grown = log_pages - self._checked_pages
        if grown > GROWN_PAGES and (
            grown > self._cap_pages // 4 or time.monotonic() - self._checked_at > PAUSE_SECONDS
        ):
            self._grown.set()
        return apsw.SQLITE_OK

    def synced(self, done: "asyncio.Future[None]") -> None:
        """A log that could not be synced is not on the disk: nothing is moved from it before it is written again."""
        if not done.cancelled() and done.exception() is not None:
            self.trusted = False

    async def grown(self) -> None:
        """Returns when the log is long enough for a checkpoint to be worth it."""
        await self._grown.wait()

    async def run(self) -> None:
        """Move what is logged into the file, and let the log start over. A log the disk has refused is left alone."""
        if not self.trusted:
            self._grown.clear()
            return
        for _ in range(ROUNDS_MAX):
            pages, moved = await self._passive()
            if pages - moved <= REST_PAGES:
                break
        if pages - moved <= REST_PAGES or self.log_pages > self._cap_pages // 2:
            await self._finish()
        self._checked_pages = self.log_pages
        self._checked_at = time.monotonic()
        self._grown.clear()

    async def find_pinned(self) -> int:
        """How many pages of the log cannot be moved now, because somebody reads an older state. Of a log that the disk
        refuses, or that must not be moved, what was found last."""
        if self.trusted:
            with suppress(StoreFull):
                pages, moved = await self._passive()
                self.pinned_pages = max(pages - moved, 0)
        return self.pinned_pages

    async def vacuum(self, pages: int) -> int:
        """Give unused pages back, while nobody commits."""
        return await self.alone(partial(self._vacuum, pages))

    async def alone(self, work: Callable[[], Result]) -> Result:
        """Do something in the thread, while nobody commits. A place at the turnstile is for one: chores of this process
        queue before it."""
        async with self._one_at_a_time:
            return await self._turn.within_thread(lambda: self._thread.submit(work).result())

    def shrink(self, pages: int) -> None:
        """Give unused pages back and move the log into the file, in the thread of `alone`. Only then the disk has them.

        A log that the disk has refused is not moved.
        """
        self._vacuum(pages)
        if self.trusted:
            self._checkpoint()

    def shrink_wholly(self) -> None:
        """The same with every unused page, and cut the log off, in the thread of `alone`.

        Pages that the file no longer has are not moved. A log that was moved keeps its length until somebody commits,
        which nobody can on a full disk. While others read the log it stays as it is.
        """
        while self._vacuum(ALL_PAGES_STEP):
            pass
        if self.trusted:
            self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def unused_pages(self) -> int:
        """Pages of the file that hold nothing, in the thread of `alone`."""
        return int(self._connection.pragma("freelist_count"))

    def close(self) -> None:
        """Wait for a checkpoint that runs and let go; whoever waits for the log to grow waits no longer."""
        self._grown.set()
        self._thread.shutdown()
        self._connection.close()
        self._turn.close()

    async def _finish(self) -> None:
        """Move the rest while nobody commits."""
        pages, moved = await self.alone(self._checkpoint)
        self.pinned_pages = pages - moved

    async def _passive(self) -> tuple[int, int]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._checkpoint)

    def _checkpoint(self, mode: int = apsw.SQLITE_CHECKPOINT_PASSIVE) -> tuple[int, int]:
        """Pages in the log, and how many of them are in the file."""
        with self._fork_guard, translated("checkpointing"):
            try:
                return self._connection.wal_checkpoint(mode=mode)
            except apsw.BusyError:
                return 0, 0

    def _vacuum(self, pages: int) -> int:
        with translated("giving pages back"):
            before = self.unused_pages()
            self._connection.execute(f"PRAGMA incremental_vacuum({int(pages)})").fetchall()
            return before - self.unused_pages()
