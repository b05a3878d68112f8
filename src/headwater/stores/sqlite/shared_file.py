"""The medium of the default store: a file in WAL mode that several processes write, made durable by `fdatasync`.

Processes take turns at the write lock (`turnstile.py`). A commit survives power loss once the write-ahead log is synced
(`barrier.py`), and is somebody's once the files are known to be still at their names (`presence.py`). Some room is set
aside for a disk that is full (`reserve.py`), and checkpoints keep the log short (`checkpoints.py`).
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import apsw

from headwater.config import Config
from headwater.errors import StoreFull, StoreReplaced
from headwater.stores.contract import Chore, Fact, Traits
from headwater.stores.sqlite.barrier import Barrier, FileBarrier
from headwater.stores.sqlite.checkpoints import Checkpoints
from headwater.stores.sqlite.chores import Checkpointer, Vacuum
from headwater.stores.sqlite.connection import (
    SqliteConnection,
    allocate_log,
    connect,
    set_journal,
    sync_folder,
    translated,
)
from headwater.stores.sqlite.one_name import check_one_name, note_open
from headwater.stores.sqlite.place import check_contents, check_place
from headwater.stores.sqlite.presence import Presence
from headwater.stores.sqlite.reserve import Reserve
from headwater.stores.sqlite.turnstile import Turnstile
from headwater.stores.sqlite.write_lock import begin
from headwater.wakeups.contract import Wakeup
from headwater.wakeups.data_version import DataVersionWakeup
from headwater.wakeups.inotify import InotifyWakeup, is_available

log = logging.getLogger(__name__)

SIDE_CACHE_BYTES = 2 * 1_048_576
ROOM_PAGES = 500


class SharedFile:
    """One file, many processes."""

    def __init__(
        self,
        path: str,
        config: Config | None = None,
        *,
        adopt: bool = False,
        create: bool = True,
        barrier: Callable[[str], Barrier] = FileBarrier,
        vfs: str | None = None,
    ) -> None:
        self._path = os.path.abspath(path)
        self._config = config or Config()
        self._adopt = adopt
        self._create = create
        self._make_barrier = barrier
        self._vfs = vfs
        self._gave_up = False
        self.presence = Presence(self._path)
        self.reserve = Reserve(f"{self._path}-reserve", self._config.reserve_bytes if vfs is None else 0)
        self.traits = Traits(
            name="sqlite",
            location=self._path,
            engine=f"SQLite {apsw.sqlite_lib_version()}",
            several_machines=False,
            durable_by="fdatasync of the write-ahead log",
            beside=self._path,
        )

    # ── opening and closing ──

    async def lay_out(self) -> None:
        """The file is the user's: whether it may be used is all there is to find out."""
        if self._vfs is None:
            check_place(self._path, adopt=self._adopt, create=self._create)

    def connect(self, cache_bytes: int) -> SqliteConnection:
        """One more connection. A new file is its owner's only."""
        return connect(self._path, cache_bytes=cache_bytes, vfs=self._vfs)

    @asynccontextmanager
    async def preparing(self, connection: SqliteConnection) -> AsyncIterator[None]:
        """The turn at the write lock, in a file that is ours and in WAL mode."""
        self.turn = Turnstile(f"{self._path}-turn", self._config.lock_wait_seconds)
        try:
            await self.turn.enter()
            try:
                self._make_ours(connection)
                yield
                if self._vfs is None:
                    allocate_log(connection, f"{self._path}-wal")
                connection.set_busy_timeout(0)
            finally:
                self.turn.leave()
        except BaseException:
            self.turn.close()
            raise

    def _make_ours(self, connection: SqliteConnection) -> None:
        # Until it is known to be ours, closing must not move a foreign log into a foreign file.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        check_contents(connection, self._path, adopt=self._adopt)
        if self._vfs is None:
            check_one_name(self._path)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        if not connection.pragma("page_count"):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        set_journal(connection, wal_bytes_max=self._config.wal_bytes_max)

    def serve(self, connection: SqliteConnection) -> None:
        """Watch over the log from now on."""
        self._connection = connection
        try:
            self._checkpoints = Checkpoints(
                self.connect(SIDE_CACHE_BYTES),
                Turnstile(f"{self._path}-turn", self._config.lock_wait_seconds),
                self._config.wal_bytes_max,
            )
            connection.set_wal_hook(self._checkpoints.committed)
            self._barrier = self._make_barrier(f"{self._path}-wal")
            if self._vfs is None:
                sync_folder(self._path)
                self.presence.remember()
        except BaseException:
            self.turn.close()
            raise
        note_open(self._path, 1)

    def make_way(self) -> bool:
        """Opening failed, perhaps for want of room: the files beside the store may need more than a full disk has."""
        self._gave_up = self.reserve.give_up()
        return self._gave_up

    def stop(self) -> None:
        """Nothing is waited for here."""

    async def close(self, let_go: Callable[[], None]) -> None:
        """The last process to close moves the write-ahead log into the file."""
        note_open(self._path, -1)
        self._barrier.close()
        await asyncio.get_running_loop().run_in_executor(None, self._close, let_go)

    def _close(self, let_go: Callable[[], None]) -> None:
        self._checkpoints.close()
        let_go()
        self.turn.close()
        if self._gave_up:
            self.reserve.take()

    # ── durability ──

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        """Done when everything committed so far is on stable storage, and that is where the store is."""
        try:
            synced = self._barrier.wait(callers)
        except OSError:
            self._checkpoints.trusted = False
            raise
        if synced is None:
            self.presence.check()
            return None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if synced.done():
            self._finish(done, synced)
        else:
            synced.add_done_callback(partial(self._finish, done))
        return done

    def _finish(self, done: "asyncio.Future[None]", synced: "asyncio.Future[None]") -> None:
        """A sync says nothing when the file was deleted meanwhile: what was synced then is nobody's."""
        self._checkpoints.synced(synced)
        if done.cancelled() or synced.cancelled():
            return
        error = synced.exception()
        try:
            self.presence.check()
        except StoreReplaced as replaced:
            error = replaced
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def landed(self) -> None:
        """A commit is everybody's once it is made, if the files that it was made in are still at their names."""
        self.presence.check()

    async def recover(self) -> bool:
        """After a refused sync: write the log once more, and sync that.

        The kernel takes pages that it could not write for written, so another sync alone would say yes to what is not
        on the disk; and moving the log into the file would overwrite good pages from a log that a power cut may take.
        """
        await self.turn.enter()
        try:
            await begin(self._connection, self._config.lock_wait_seconds)
            with translated("writing the log once more"):
                try:
                    self._barrier.rewrite()
                    self._checkpoints.trusted = True
                finally:
                    self._connection.execute("COMMIT")
        finally:
            self.turn.leave()
        return True

    # ── others ──

    def wakeup(self, changed: Callable[[], bool]) -> Wakeup:
        """A watch on the write-ahead log, or looks at its version where there is none."""
        wal = f"{self._path}-wal"
        if self._config.wakeup == "inotify":
            return InotifyWakeup(wal, changed)
        if self._config.wakeup == "auto" and is_available():
            try:
                return InotifyWakeup(wal, changed)
            except OSError as error:
                log.warning("waking by asking instead: %s", error)
        return DataVersionWakeup(changed)

    # ── upkeep ──

    def chores(self) -> list[Chore]:
        """Checkpoints, and pages given back."""
        return [
            Checkpointer(self.grown, self.checkpoint),
            Vacuum(self.compact, self._config.housekeeping_seconds),
        ]

    async def grown(self) -> None:
        """Returns when enough was written for a checkpoint to be worth it."""
        await self._checkpoints.grown()

    async def checkpoint(self) -> None:
        """Move what is logged into the file."""
        await self._checkpoints.run()

    async def compact(self, pages: int) -> int:
        """Give unused pages back to the file system."""
        self.presence.check()
        return await self._checkpoints.vacuum(pages)

    async def has_room(self) -> bool:
        """Turn what was dropped into room on the disk, and set some of it aside; whether that is there."""
        self.presence.check()
        return await self._checkpoints.alone(self._make_room)

    def _make_room(self) -> bool:
        with suppress(StoreFull):
            self._checkpoints.shrink(ROOM_PAGES)
            if self.reserve.take():
                return True
        # Where nothing was dropped there is nothing to win: moving the log would only use the reserve up.
        if self._checkpoints.unused_pages():
            self.reserve.give_up()
        with suppress(StoreFull):
            self._checkpoints.shrink_wholly()
        return self.reserve.take()

    async def examine(self) -> list[Fact]:
        """How long the log is, and what holds it back."""
        return [
            Fact("wal_bytes", _size_of(f"{self._path}-wal")),
            Fact("wal_pinned_pages", await self._checkpoints.find_pinned()),
        ]


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
