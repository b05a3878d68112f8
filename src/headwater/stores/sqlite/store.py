"""The SQLite store: opens the file, takes its turn at the write lock, commits on the event loop, makes it durable.

    apply:         turn → BEGIN IMMEDIATE → writer → COMMIT          visible to every process
    make_durable:  fdatasync of the write-ahead log, in a thread     survives power loss

Every statement gives up and re-takes the interpreter's lock, and a busy event loop would make a writer thread wait for
it each time; so the commit runs on the loop itself, with few statements, and never waits there for anybody.
"""

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import apsw

from headwater.clock import Clock, SystemClock, Timestamp, steady_of
from headwater.config import Config
from headwater.errors import Closed, StoreBusy, StoreFailed, StoreFull, StoreReplaced
from headwater.log.operations import Commit, Operation, Touch
from headwater.model.names import Lsn
from headwater.stores.codec import Codec
from headwater.stores.contract import Chore, Traits
from headwater.stores.job_questions import FindJobStates
from headwater.stores.job_starts import starts_path
from headwater.stores.questions import Answer, FindLane, Question, Segment
from headwater.stores.sqlite.backup import become_a_store
from headwater.stores.sqlite.barrier import Barrier, FileBarrier
from headwater.stores.sqlite.checkpoints import Checkpoints
from headwater.stores.sqlite.chores import Checkpointer, Vacuum
from headwater.stores.sqlite.connection import (
    SqliteConnection,
    allocate_log,
    connect,
    note_open,
    read_data_version,
    set_journal,
    sync_folder,
    translate,
    translated,
)
from headwater.stores.sqlite.migrate import migrate
from headwater.stores.sqlite.place import check_contents, check_place
from headwater.stores.sqlite.presence import Presence
from headwater.stores.sqlite.reads import Reads
from headwater.stores.sqlite.reserve import Reserve, freeing, with_refusals
from headwater.stores.sqlite.turnstile import Turnstile
from headwater.stores.tables.identity import read_identity
from headwater.stores.tables.job_answers import JobAnswers
from headwater.stores.tables.writer import Writer
from headwater.wakeups.contract import Wakeup
from headwater.wakeups.data_version import DataVersionWakeup
from headwater.wakeups.inotify import InotifyWakeup, is_available

log = logging.getLogger(__name__)

BUSY_SLEEP_SECONDS = 0.001
SIDE_CACHE_BYTES = 2 * 1_048_576
BUSY_SLEEP_SECONDS_MAX = 0.05
QUICK_STATES = 16
ROOM_PAGES = 500


class SqliteStore:
    """One file, many processes."""

    def __init__(
        self,
        path: str,
        config: Config | None = None,
        *,
        adopt: bool = False,
        create: bool = True,
        clock: Clock | None = None,
        barrier: Callable[[str], Barrier] = FileBarrier,
        vfs: str | None = None,
    ) -> None:
        self._path = os.path.abspath(path)
        self._config = config or Config()
        self._adopt = adopt
        self._create = create
        self._clock = clock or SystemClock()
        self._make_barrier = barrier
        self._vfs = vfs
        self._open = False
        self._gave_up = False
        self._presence = Presence(self._path)
        self._reserve = Reserve(f"{self._path}-reserve", self._config.reserve_bytes if vfs is None else 0)
        self.origin = secrets.randbits(62)
        self.traits = Traits(
            name="sqlite",
            location=self._path,
            engine=f"SQLite {apsw.sqlite_lib_version()}",
            several_machines=False,
            durable_by="fdatasync of the write-ahead log",
        )

    async def open(self) -> None:
        """Connect, check the file, bring its tables up to date. Reads and writes of a small file: milliseconds."""
        if self._vfs is None:
            check_place(self._path, adopt=self._adopt, create=self._create)
        try:
            await self._open_files()
        except (StoreFull, StoreFailed):
            # The files beside the store may need more room than a full disk has.
            self._gave_up = self._reserve.give_up()
            if not self._gave_up:
                raise
            await self._open_files()
        self._open = True
        note_open(self._path, 1)

    async def _open_files(self) -> None:
        with translated(f"opening {self._path}"):
            self._connection = self._connect(self._config.cache_bytes)
            try:
                self._turnstile = Turnstile(f"{self._path}-turn", self._config.lock_wait_seconds)
                try:
                    await self._prepare()
                except BaseException:
                    self._turnstile.close()
                    raise
            except BaseException:
                self._connection.close()
                raise

    async def _prepare(self) -> None:
        await self._turnstile.enter()
        try:
            # Until it is known to be ours, closing must not move a foreign log into a foreign file.
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            check_contents(self._connection, self._path, adopt=self._adopt)
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            if not self._connection.pragma("page_count"):
                self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            set_journal(self._connection, wal_bytes_max=self._config.wal_bytes_max)
            migrate(self._connection, self._path)
            become_a_store(self._connection)
            if self._vfs is None:
                allocate_log(self._connection, f"{self._path}-wal")
            self._connection.set_busy_timeout(0)
        finally:
            self._turnstile.leave()
        codec = Codec(self._config.encryption_key)
        self._writer = Writer(self._connection, self._config, codec, self.origin, self._presence.lose)
        self._writer.jobs.judge_leases_by(steady_of(self._clock))
        self._writer.identity.meet(read_identity(self._connection))
        reading = self._connect(SIDE_CACHE_BYTES)
        self._reads = Reads(reading, codec, self._clock, self._presence)
        self._jobs_here = JobAnswers(self._connection)
        self._checkpoints = Checkpoints(
            self._connect(SIDE_CACHE_BYTES),
            Turnstile(f"{self._path}-turn", self._config.lock_wait_seconds),
            self._config.wal_bytes_max,
        )
        self._connection.set_wal_hook(self._checkpoints.committed)
        self._barrier = self._make_barrier(f"{self._path}-wal")
        if self._vfs is None:
            sync_folder(self._path)
            self._presence.remember()
        self._foreign_version = self._data_version()

    async def close(self) -> None:
        """Let go. The last process to close moves the write-ahead log into the file."""
        if not self._open:
            return
        self._open = False
        note_open(self._path, -1)
        self._barrier.close()
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._reads.close()
        self._checkpoints.close()
        self._connection.close()
        self._turnstile.close()
        if self._gave_up:
            self._reserve.take()

    def _connect(self, cache_bytes: int) -> SqliteConnection:
        return connect(self._path, cache_bytes=cache_bytes, vfs=self._vfs)

    # ── writing ──

    def apply_now(self, operations: Sequence[Operation], now: Timestamp) -> Commit | None:
        """Commit on the spot, if nobody else holds the write lock."""
        self._check_open()
        if not self._turnstile.try_enter():
            return None
        try:
            return self._commit(operations, now) if self._try_begin() else None
        except (apsw.Error, UnicodeDecodeError) as error:
            raise translate(error, "committing") from error
        finally:
            self._turnstile.leave()

    async def apply(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """Wait for the turn at the write lock, then commit. When it raises, nothing took effect."""
        self._check_open()
        await self._turnstile.enter()
        try:
            await self._begin()
            return self._commit(operations, now)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise translate(error, "committing") from error
        finally:
            self._turnstile.leave()

    def _try_begin(self) -> bool:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        return True

    async def _begin(self) -> None:
        """Take the write lock. A program that does not queue at the turnstile may hold it: look again, off the loop."""
        pause = BUSY_SLEEP_SECONDS
        deadline = time.monotonic() + self._config.lock_wait_seconds
        while not self._try_begin():
            if time.monotonic() > deadline:
                raise StoreBusy(f"another program held the write lock for {self._config.lock_wait_seconds:g} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, BUSY_SLEEP_SECONDS_MAX)

    def _commit(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """Commit all of them, or on a full disk those that make room."""
        try:
            return self._transact(operations, now)
        except apsw.FullError:
            wanted = freeing(operations)
            if not wanted:
                raise
            return with_refusals(operations, self._commit_freeing(wanted, now))

    def _commit_freeing(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """Commit what makes room, from the reserve if need be. What is left of that is set aside again at once, while
        this store has the turn: the next push would take it."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            return self._transact(operations, now)
        except apsw.FullError:
            if not self._reserve.give_up():
                raise
            self._connection.execute("BEGIN IMMEDIATE")
            return self._transact(operations, now)
        finally:
            self._reserve.take()

    def _transact(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        try:
            self._presence.remind()
            commit = self._writer.apply(operations, now)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._writer.forget()
            raise
        self._writer.committed()
        return commit

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        """Done when everything committed so far is on stable storage, and that is where the store is."""
        try:
            synced = self._barrier.wait(callers)
        except OSError:
            self._checkpoints.trusted = False
            raise
        if synced is None:
            self._presence.check()
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
            self._presence.check()
        except StoreReplaced as replaced:
            error = replaced
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def confirm(self) -> None:
        """Raises when the files that were committed to are not at their names any more."""
        self._presence.check()

    async def recover(self) -> None:
        """After a refused sync: write the log once more, and sync that.

        The kernel takes pages that it could not write for written, so another sync alone would say yes to what is not
        on the disk; and moving the log into the file would overwrite good pages from a log that a power cut may take.
        """
        self._check()
        await self._turnstile.enter()
        try:
            await self._begin()
            with translated("writing the log once more"):
                try:
                    self._barrier.rewrite()
                    self._checkpoints.trusted = True
                finally:
                    self._connection.execute("COMMIT")
        finally:
            self._turnstile.leave()

    # ── following ──

    def wakeup(self) -> Wakeup:
        """A watch on the write-ahead log, or looks at its version where there is none."""
        wal = f"{self._path}-wal"
        if self._config.wakeup == "inotify":
            return InotifyWakeup(wal)
        if self._config.wakeup == "auto" and is_available():
            try:
                return InotifyWakeup(wal)
            except OSError as error:
                log.warning("waking by asking instead: %s", error)
        return DataVersionWakeup()

    def changed_elsewhere(self) -> bool:
        """Whether another connection has committed since this was last asked."""
        version = self._data_version()
        changed = version != self._foreign_version
        self._foreign_version = version
        return changed

    def _data_version(self) -> int:
        return read_data_version(self._connection)

    async def touched(self, after: Lsn, limit: int) -> list[Touch]:
        """The segments after `after`, in LSN order."""
        return self.touched_now(after, limit)

    def touched_now(self, after: Lsn, limit: int) -> list[Touch]:
        """Asked on the loop: it is one small query, and somebody waits for the answer.

        The writer catches up with it: whoever is woken now pops next, and finds that done.
        """
        self._check()
        with translated("following the log"):
            known = self._writer.segments.last_lsn
            found = self._writer.look()
            if after < known or not known or len(found) > limit:
                found = self._writer.touched(after, limit)
        return [touch for touch in found if touch.lsn > after]

    # ── reading ──

    async def ask(self, question: Question[Answer]) -> Answer:
        """What is answered to a question. Little that somebody waits for is answered on the loop."""
        if isinstance(question, FindLane):
            partition = self._writer.catalog.partition_by_id(question.partition_id)
            return cast(Answer, None if partition is None else partition.lane)
        if isinstance(question, FindJobStates) and len(question.ids) <= QUICK_STATES:
            self._check()
            with translated("reading"):
                return cast(Answer, self._jobs_here.states(question))
        return await self._reads.ask(question)

    async def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None = None) -> list[Segment]:
        """A stretch of the log with its records."""
        return await self._reads.read(after, through, limit, queue)

    async def backup(self, path: str) -> None:
        """Write a copy of everything to a new file."""
        await self._reads.backup(path)

    # ── asked on the loop, because somebody waits ──

    def access_version(self) -> int:
        """A number that changes when access tokens may have changed."""
        return self._writer.access_tokens.version

    def job_starts_path(self, worker: str) -> str:
        """A file beside the log."""
        return starts_path(self._path, worker)

    def jobs_ready_at(
        self, database: str, queues: Sequence[str], now: Timestamp, functions: frozenset[str] | None = None
    ) -> Timestamp | None:
        """Asked on the loop: a few looks at indexes, and a worker waits for the answer."""
        self._check()
        with translated("looking for jobs"):
            return self._writer.jobs_ready_at(database, queues, now, functions)

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
        self._check()
        return await self._checkpoints.vacuum(pages)

    async def make_room(self) -> bool:
        """Turn what was dropped into room on the disk, and set some of it aside; whether that is there."""
        self._check()
        return await self._checkpoints.alone(self._make_room)

    def _make_room(self) -> bool:
        try:
            self._checkpoints.shrink(ROOM_PAGES)
        except StoreFull:
            # Where nothing was dropped there is nothing to win: moving the log would only use the reserve up.
            if self._checkpoints.unused_pages() and self._reserve.give_up():
                with suppress(StoreFull):
                    self._checkpoints.shrink(ROOM_PAGES)
        return self._reserve.take()

    async def examine(self) -> dict[str, Any]:
        """Facts for `headwater doctor`."""
        facts = await self._reads.examine(self._path)
        facts["wal_pinned_pages"] = self._checkpoints.pinned_pages
        return facts

    def check(self) -> None:
        """Raises when the store that was opened is no more: deleted, replaced, or given another identity."""
        self._check()
        with translated("looking at the store"):
            self._writer.look()

    def _check_open(self) -> None:
        if not self._open:
            raise Closed("the store is closed")

    def _check(self) -> None:
        self._check_open()
        self._presence.check()
