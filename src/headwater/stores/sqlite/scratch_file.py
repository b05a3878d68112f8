"""A medium whose pages lie in a file of this process alone, and whose commits are kept elsewhere, one after the other.

    lay_out       the keeper takes the store over and hands out the bytes of everything that landed: a fresh file
    a commit      SQLite's hook tells of its frames; the pages that it changed are collected at once
    make_durable  what was collected goes to the keeper: one flight, of which several may be under way
    a lost race   nothing is written any more; the store lays out another file

The file is thrown away: nothing in it is synced, and nobody else may see it.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from headwater.config import Config
from headwater.stores.contract import Chore, Fact, RaceLost, Traits
from headwater.stores.sqlite.checkpoints import Checkpoints
from headwater.stores.sqlite.chores import Checkpointer, Vacuum
from headwater.stores.sqlite.connection import SqliteConnection, connect, set_journal, translated
from headwater.stores.sqlite.frames import PAGE_BYTES, PageChanges, WalFrames
from headwater.stores.sqlite.own_turn import OwnTurn
from headwater.stores.sqlite.place import check_contents
from headwater.stores.sqlite.presence import Presence
from headwater.stores.sqlite.reserve import Reserve
from headwater.wakeups.contract import Wakeup

SIDE_CACHE_BYTES = 2 * 1_048_576
VACUUM_BITE = 100


class Keeper(Protocol):
    """Keeps the commits of a store, in order, for one holder at a time."""

    traits: Traits

    async def take_over(self) -> bytearray:
        """Become the holder; the bytes of the file as of the last commit that landed, none when there is none."""
        ...

    def send(self, changes: PageChanges) -> asyncio.Future[None]:
        """Keep one more commit. Done when it and all before it have landed; RaceLost when somebody else holds the
        store: then none behind it lands either."""
        ...

    def confirm(self) -> asyncio.Future[None] | None:
        """Done when it is known that nobody else has written at some time since the call; None when that is known
        already, as a lease tells."""
        ...

    def wakeup(self) -> Wakeup:
        """How to learn that somebody else has written."""
        ...

    def stop(self) -> None:
        """Before it is closed: nobody waits to take the store over any more, nor does so from now on."""
        ...

    async def close(self) -> None:
        """Give the store up."""
        ...


class ScratchFile:
    """The file of one holder, in a folder of its own that is made for it and goes with it."""

    def __init__(self, folder: str, keeper: Keeper, config: Config) -> None:
        self._folder = folder
        self._keeper = keeper
        self._config = config
        self._number = 0
        self._collected: PageChanges | None = None
        self._last: asyncio.Future[None] | None = None
        # None between two files.
        self._checkpoints: Checkpoints | None = None
        self._serving = asyncio.Event()
        self._upkeep = asyncio.Lock()
        self.traits = keeper.traits
        self.turn = OwnTurn()
        # One for all files: what is lost to this handle stays lost in the next one.
        self.presence = Presence(os.path.join(folder, "scratch"))
        self.reserve = Reserve(os.path.join(folder, "reserve"), 0)

    @property
    def _path(self) -> str:
        return os.path.join(self._folder, f"{self._number}.db")

    # ── opening and closing ──

    async def lay_out(self) -> None:
        """Take the store over, and write what landed to a fresh file."""
        image = await self._keeper.take_over()
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        await self._leave_file()
        self._number += 1
        self._collected, self._last = None, None
        with translated("laying out a scratch file"):
            await asyncio.to_thread(_write, self._path, image)

    async def _leave_file(self) -> None:
        """Whoever reads in it goes on until it is closed; its name may go."""
        if self._checkpoints is not None:
            self._serving.clear()
            self._frames.close()
            async with self._upkeep:
                await asyncio.get_running_loop().run_in_executor(None, self._checkpoints.close)
                self._checkpoints = None
        for companion in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self._path}{companion}")

    def connect(self, cache_bytes: int) -> SqliteConnection:
        """One more connection. Files of this machine's workers lie where those of the store do."""
        connection = connect(self._path, cache_bytes=cache_bytes)
        connection.store_location = self.traits.beside
        return connection

    @asynccontextmanager
    async def preparing(self, connection: SqliteConnection) -> AsyncIterator[None]:
        """Nobody else is there. Frames are collected from the first one on: tables are pages as well."""
        check_contents(connection, self.traits.location, adopt=False)
        if not connection.pragma("page_count"):
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        set_journal(connection, wal_bytes_max=self._config.wal_bytes_max)
        connection.execute("PRAGMA synchronous = OFF")
        self._frames = WalFrames(f"{self._path}-wal")
        # Only now: the automatic checkpoints that set_journal turns off are a hook as well.
        connection.set_wal_hook(self._committed)
        yield
        connection.set_busy_timeout(0)

    def serve(self, connection: SqliteConnection) -> None:
        """Keep the log of the file short from now on. Turns begin only now: a file that could not be opened has none,
        and is laid out again."""
        turn = OwnTurn()
        self._checkpoints = Checkpoints(self.connect(SIDE_CACHE_BYTES), turn, self._config.wal_bytes_max)
        self.turn, self._connection = turn, connection
        self._serving.set()

    def make_way(self) -> bool:
        """There is no reserve to give up."""
        return False

    def stop(self) -> None:
        """No other file is laid out any more."""
        self._keeper.stop()

    async def close(self, let_go: Callable[[], None]) -> None:
        """Send the last commits, then throw the file away."""
        await self._leave()
        await self._leave_file()
        await asyncio.get_running_loop().run_in_executor(None, let_go)
        shutil.rmtree(self._folder)

    async def _leave(self) -> None:
        with suppress(RaceLost):
            sent = None if self.turn.lost else self._send()
            if sent is not None:
                await sent
        await self._keeper.close()

    # ── commits ──

    def _committed(self, connection: object, schema: str, frames: int) -> int:
        try:
            changes = self._frames.take(frames)
        except BaseException:
            # The file has a commit that will never land: nothing more may be built on it.
            self.turn.lose()
            raise
        if self._collected is None:
            self._collected = changes
        else:
            self._collected.add(changes)
        if self._checkpoints is not None:
            self._checkpoints.committed(self._connection, schema, frames)
        return 0

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        """Done when what was committed so far has landed."""
        if self.turn.lost:
            raise RaceLost
        if self._collected is None and (self._last is None or self._last.done()):
            # The commit changed nothing, as one that only affirms: no flight would tell that somebody else has written.
            return self.landed()
        return self._send()

    def _send(self) -> asyncio.Future[None] | None:
        """Send what was collected; what to wait for, each caller for itself."""
        if self._collected is not None:
            changes, self._collected = self._collected, None
            self._last = self._keeper.send(changes)
            self._last.add_done_callback(self._arrived)
        if self._last is None or not self._last.done():
            return None if self._last is None else _follow(self._last)
        self._arrived(self._last)
        self._last.result()
        return None

    def _arrived(self, done: "asyncio.Future[None]") -> None:
        """Before whoever waits for it is told: a store that is somebody else's is written no more."""
        if not done.cancelled() and isinstance(done.exception(), RaceLost):
            self.turn.lose()

    def landed(self) -> asyncio.Future[None] | None:
        """Done when all of it is there to stay, and the newest there is: it has landed, and nobody else has written."""
        if self.turn.lost:
            raise RaceLost
        sent = self._send()
        confirmed = self._keeper.confirm()
        if confirmed is None:
            return sent
        confirmed.add_done_callback(self._arrived)
        return _follow(confirmed) if sent is None else _follow(sent, confirmed)

    async def recover(self) -> bool:
        """What is lost is lost; anything else the keeper repeats by itself."""
        return not self.turn.lost

    # ── others ──

    def wakeup(self, changed: Callable[[], bool]) -> Wakeup:
        """The keeper's: nobody else writes to this file."""
        return self._keeper.wakeup()

    # ── upkeep ──

    def chores(self) -> list[Chore]:
        """A short log, also in memory, and pages given back, which are pages to send."""
        return [
            Checkpointer(self._grown, self._checkpoint),
            Vacuum(self._compact, self._config.housekeeping_seconds),
        ]

    async def _grown(self) -> None:
        await self._serving.wait()
        if self._checkpoints is not None:
            await self._checkpoints.grown()

    async def _checkpoint(self) -> None:
        """A file that is somebody else's by now needs none."""
        async with self._upkeep:
            if self._checkpoints is not None:
                with suppress(RaceLost):
                    await self._checkpoints.run()

    async def _compact(self, pages: int) -> int:
        """Through the connection that commits, because only its commits are collected; a bite at a time."""
        given = 0
        with suppress(RaceLost):
            while given < pages and (bite := await self._give_back(min(VACUUM_BITE, pages - given))):
                given += bite
        return given

    async def _give_back(self, pages: int) -> int:
        turn = self.turn
        await turn.enter()
        try:
            return self._vacuum(pages)
        finally:
            turn.leave()

    def _vacuum(self, pages: int) -> int:
        with translated("giving pages back"):
            before = self._unused()
            self._connection.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
            return before - self._unused()

    def _unused(self) -> int:
        return int(str(self._connection.pragma("freelist_count")))

    async def has_room(self) -> bool:
        """A scratch file is as large as it is."""
        return True

    async def examine(self) -> list[Fact]:
        """Where the pages of this process lie."""
        return [Fact("scratch_file", self._path)]


def _follow(*shared: "asyncio.Future[None]") -> "asyncio.Future[None]":
    """A future of one's own, so that whoever stops waiting stops alone: done when all are, or one of them fails."""
    own: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(done: "asyncio.Future[None]") -> None:
        over = [one for one in shared if one.done()]
        # Several may be over, with those who told us of it still to come.
        errors = [error for one in over if not one.cancelled() and (error := one.exception()) is not None]
        if own.done():
            return
        if errors:
            own.set_exception(errors[0])
            # Whether anybody waits for it or not: who waits for several goes on when the first one fails.
            own.exception()
        elif any(one.cancelled() for one in over):
            own.cancel()
        elif len(over) == len(shared):
            own.set_result(None)

    for one in shared:
        one.add_done_callback(finish)
    return own


def _write(path: str, image: bytearray) -> None:
    with open(path, "xb", opener=_for_owner) as file:
        file.write(image)


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
