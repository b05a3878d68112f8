"""The SQLite store: opens the file, takes its turn at the write lock, commits on the event loop, makes it durable.

    apply:         turn → BEGIN IMMEDIATE → writer → COMMIT          visible to every process
    make_durable:  fdatasync of the write-ahead log, in a thread     survives power loss

Every statement gives up and re-takes the interpreter's lock, and a busy event loop would make a writer thread wait for
it each time; so the commit runs on the loop itself, with few statements, and never waits there for anybody.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from headwater.clock import Clock, SystemClock, Timestamp
from headwater.config import Config
from headwater.errors import Closed, StoreBusy
from headwater.log.operations import Commit, Operation, Touch
from headwater.model.access_token import AccessToken
from headwater.model.job import JobState
from headwater.model.job_policy import JobPolicy
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.rollup import Rollup, RollupQuery
from headwater.stores.codec import Codec
from headwater.stores.contract import (
    CursorStatus,
    DeadLetter,
    GroupStatus,
    PartitionStatus,
    Position,
    QueueStatus,
    Segment,
    StateQuestion,
    StateValue,
    StreamQuery,
    TraceEvent,
    TraceName,
    Traits,
)
from headwater.stores.job_contract import (
    JobAttempt,
    JobFilter,
    JobLimitStatus,
    JobMinute,
    JobQueueStatus,
    JobStatus,
    ScheduleStatus,
    WorkerStatus,
)
from headwater.stores.sqlite.answers import Answers
from headwater.stores.sqlite.barrier import Barrier, FileBarrier
from headwater.stores.sqlite.checkpoints import Checkpoints
from headwater.stores.sqlite.connection import (
    allocate_log,
    connect,
    note_open,
    read_data_version,
    set_journal,
    sync_folder,
    translate,
    translated,
)
from headwater.stores.sqlite.identity import read_identity
from headwater.stores.sqlite.job_answers import JobAnswers
from headwater.stores.sqlite.migrate import migrate
from headwater.stores.sqlite.place import check_contents, check_place
from headwater.stores.sqlite.turnstile import Turnstile
from headwater.stores.sqlite.writer import Writer

BUSY_SLEEP_SECONDS = 0.001
SIDE_CACHE_BYTES = 2 * 1_048_576
BUSY_SLEEP_SECONDS_MAX = 0.05
QUICK_STATES = 16


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
        self.origin = secrets.randbits(62)
        self.traits = Traits(
            name="sqlite",
            location=self._path,
            engine=f"SQLite {apsw.sqlite_lib_version()}",
            several_machines=False,
            durable_by="fdatasync of the write-ahead log",
            wal_path=f"{self._path}-wal",
        )

    async def open(self) -> None:
        """Connect, check the file, bring its tables up to date. Reads and writes of a small file: milliseconds."""
        if self._vfs is None:
            check_place(self._path, adopt=self._adopt, create=self._create)
        with translated(f"opening {self._path}"):
            self._connection = self._connect(self._config.cache_bytes)
            try:
                await self._prepare()
            except BaseException:
                self._connection.close()
                raise
        self._open = True
        note_open(self._path, 1)

    async def _prepare(self) -> None:
        self._turnstile = Turnstile(f"{self._path}-turn", self._config.lock_wait_seconds)
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
            if self._vfs is None:
                allocate_log(self._connection, f"{self._path}-wal")
            self._connection.set_busy_timeout(0)
        finally:
            self._turnstile.leave()
        codec = Codec(self._config.encryption_key)
        self._writer = Writer(self._connection, self._config, codec, self.origin)
        self._writer.identity.catch_up(read_identity(self._connection))
        reading = self._connect(SIDE_CACHE_BYTES)
        self._answers = Answers(reading, codec)
        self._jobs = JobAnswers(reading)
        self._jobs_here = JobAnswers(self._connection)
        self._checkpoints = Checkpoints(
            self._connect(SIDE_CACHE_BYTES),
            Turnstile(f"{self._path}-turn", self._config.lock_wait_seconds),
            self._config.wal_bytes_max,
        )
        self._connection.set_wal_hook(self._logged)
        self._barrier = self._make_barrier(f"{self._path}-wal")
        if self._vfs is None:
            sync_folder(self._path)
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
        self._answers.close()
        self._checkpoints.close()
        self._connection.close()
        self._turnstile.close()

    def _connect(self, cache_bytes: int) -> apsw.Connection:
        return connect(self._path, cache_bytes=cache_bytes, vfs=self._vfs)

    async def identity(self) -> str:
        """The UUID of the store."""
        return await self._answers.ask(self._answers.identity)

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
        try:
            commit = self._writer.apply(operations, now)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._writer.forget()
            raise
        self._writer.committed()
        return commit

    def make_durable(self, callers: int) -> asyncio.Future[None]:
        """Done when everything committed so far is on stable storage."""
        done = self._barrier.wait(callers)
        if done.done():
            self._checkpoints.synced(done)
        else:
            done.add_done_callback(self._checkpoints.synced)
        return done

    async def recover(self) -> None:
        """After a refused sync: write the log once more, and sync that.

        The kernel takes pages that it could not write for written, so another sync alone would say yes to what is not
        on the disk; and moving the log into the file would overwrite good pages from a log that a power cut may take.
        """
        self._check_open()
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

    def _logged(self, connection: apsw.Connection, schema: str, pages: int) -> int:
        self._checkpoints.committed(pages)
        return apsw.SQLITE_OK

    # ── following ──

    def changed_elsewhere(self) -> bool:
        """Whether another connection has committed since this was last asked."""
        version = self._data_version()
        changed = version != self._foreign_version
        self._foreign_version = version
        return changed

    def _data_version(self) -> int:
        return read_data_version(self._connection)

    async def last_lsn(self) -> Lsn:
        """The LSN of the newest segment."""
        return await self._answers.ask(self._answers.last_lsn)

    async def touched(self, after: Lsn, limit: int) -> list[Touch]:
        """The segments after `after`, in LSN order."""
        return self.touched_now(after, limit)

    def touched_now(self, after: Lsn, limit: int) -> list[Touch]:
        """Asked on the loop: it is one small query, and somebody waits for the answer.

        The writer catches up with it: whoever is woken now pops next, and finds that done.
        """
        self._check_open()
        with translated("following the log"):
            known = self._writer.segments.last_lsn
            found = self._writer.look()
            if after < known or not known or len(found) > limit:
                found = self._writer.touched(after, limit)
        return [touch for touch in found if touch.lsn > after]

    async def lane(self, partition_id: PartitionId) -> Lane | None:
        """The address of a partition."""
        partition = self._writer.catalog.partition_by_id(partition_id)
        return None if partition is None else partition.lane

    # ── questions ──

    async def ready(self, groups: Sequence[tuple[str, str, str]], now: Timestamp) -> list[tuple[str, str, str]]:
        """Those of the groups that a pop could serve now."""
        return await self._answers.ask(self._answers.ready, groups, now)

    async def expired(self, now: Timestamp, limit: int) -> list[tuple[PartitionId, str]]:
        """Leases that ran out, by partition and group."""
        return await self._answers.ask(self._answers.expired, now, limit)

    async def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None = None) -> list[Segment]:
        """A stretch of the log with its records."""
        return await self._answers.ask(self._answers.read, after, through, limit, queue)

    async def queues(self, database: str) -> list[QueueStatus]:
        """The queues of a database with their sizes."""
        return await self._answers.ask(self._answers.queues, database)

    async def groups(self, database: str, queue: str = "") -> list[GroupStatus]:
        """The consumer groups of a database, or of one queue."""
        return await self._answers.ask(self._answers.groups, database, queue, self._clock.now())

    async def dead_letters(self, database: str, queue: str, limit: int, after: int = 0) -> list[DeadLetter]:
        """Dead letters of a queue, oldest first."""
        return await self._answers.ask(self._answers.dead_letters, database, queue, limit, after)

    async def partitions(
        self, database: str, queue: str = "", limit: int = 1_000, after: int = 0
    ) -> list[PartitionStatus]:
        """Partitions with where their records begin and end."""
        return await self._answers.ask(self._answers.partitions, database, queue, limit, after)

    async def cursors(self, database: str, group: str, limit: int) -> list[CursorStatus]:
        """Where a group stands, in each partition it has met."""
        return await self._answers.ask(self._answers.cursors, database, group, limit, self._clock.now())

    async def read_partition(self, partition_id: PartitionId, first: Offset, limit: int) -> list[Segment]:
        """A stretch of one partition with its records."""
        return await self._answers.ask(self._answers.read_partition, partition_id, first, limit)

    async def traces_named(self, database: str, name: str, limit: int, skip: int = 0) -> list[TraceEvent]:
        """The events noted under a name, newest first."""
        return await self._answers.ask(self._answers.traces_named, database, name, limit, skip)

    async def stream(self, database: str, query_id: int) -> StreamQuery | None:
        """A streaming query of a database."""
        return await self._answers.ask(self._answers.stream, database, query_id)

    async def stream_state(self, question: StateQuestion) -> list[StateValue]:
        """What a streaming query remembers."""
        return await self._answers.ask(self._answers.stream_state, question)

    async def switches(self) -> list[tuple[str, str]]:
        """What is turned on, as (database, name)."""
        return await self._answers.ask(self._answers.switches)

    async def trace_names(self, database: str, limit: int) -> list[TraceName]:
        """The names that events were noted under."""
        return await self._answers.ask(self._answers.trace_names, database, limit)

    async def milestone(self, database: str, name: str) -> int | None:
        """The last step that named work has reached."""
        return await self._answers.ask(self._answers.milestone, database, name)

    async def staged(self, database: str, upload: str) -> list[bytes]:
        """The parts of an upload, from the first on as far as there is no gap."""
        return await self._answers.ask(self._answers.staged, database, upload)

    async def traces(self, database: str, partition_id: PartitionId, transaction_id: str) -> list[TraceEvent]:
        """The noted events of one record."""
        return await self._answers.ask(self._answers.traces, database, partition_id, transaction_id)

    async def positions(self, database: str) -> list[Position]:
        """Where every group of a database stands."""
        return await self._answers.ask(self._answers.positions, database)

    async def archived(self, database: str, queue: str) -> Lsn:
        """Up to which LSN a queue is archived."""
        return await self._answers.ask(self._answers.archived, database, queue)

    async def rollups(self, database: str, wanted: RollupQuery) -> list[Rollup]:
        """Rollups of a stretch of time."""
        return await self._answers.ask(self._answers.rollups, database, wanted)

    async def rollup_state(self, database: str) -> tuple[int, str]:
        """Where the last rollup stood."""
        return await self._answers.ask(self._answers.rollup_state, database)

    # ── access ──

    def access_version(self) -> int:
        """A number that changes when access tokens may have changed."""
        return self._writer.access_tokens.version

    async def access_token(self, token_id: str) -> AccessToken | None:
        """The access token with this id."""
        return await self._answers.ask(self._answers.access_token, token_id)

    async def access_tokens(self, database: str = "") -> list[AccessToken]:
        """The access tokens of a database, or of all."""
        return await self._answers.ask(self._answers.access_tokens, database)

    # ── jobs ──

    def jobs_ready_at(self, database: str, queues: Sequence[str], now: Timestamp) -> Timestamp | None:
        """Asked on the loop: a few looks at indexes, and a worker waits for the answer."""
        self._check_open()
        with translated("looking for jobs"):
            return self._writer.jobs_ready_at(database, queues, now)

    async def job(self, database: str, id: str) -> JobStatus | None:
        """One job."""
        return await self._answers.ask(self._jobs.job, database, id)

    async def job_states(self, database: str, ids: Sequence[str]) -> dict[str, JobState]:
        """The states of those of the jobs that exist; a few are asked for on the loop, because somebody waits."""
        self._check_open()
        if len(ids) > QUICK_STATES:
            return await self._answers.ask(self._jobs.states, database, ids)
        with translated("reading"):
            return self._jobs_here.states(database, ids)

    async def jobs(self, database: str, chosen: JobFilter) -> list[JobStatus]:
        """Jobs by queue, state, type or batch."""
        return await self._answers.ask(self._jobs.jobs, database, chosen)

    async def job_attempts(self, database: str, id: str) -> list[JobAttempt]:
        """What is known of a job's attempts."""
        return await self._answers.ask(self._jobs.attempts, database, id)

    async def job_dependencies(self, database: str, id: str) -> list[tuple[str, JobState]]:
        """The jobs that a job depends on."""
        return await self._answers.ask(self._jobs.dependencies, database, id)

    async def job_queues(self, database: str) -> list[JobQueueStatus]:
        """The job queues of a database."""
        return await self._answers.ask(self._jobs.queues, database)

    async def job_minutes(self, database: str, since: Timestamp) -> list[JobMinute]:
        """What was done in each minute."""
        return await self._answers.ask(self._jobs.minutes, database, since)

    async def job_config(self, database: str) -> dict[tuple[str, str], Any]:
        """Settings that were set."""
        return await self._answers.ask(self._jobs.config, database)

    async def job_limits(self, database: str) -> list[JobLimitStatus]:
        """The limits of types of jobs."""
        return await self._answers.ask(self._jobs.limits, database)

    async def job_types(self, database: str) -> dict[str, JobPolicy]:
        """How registered functions are run, by type."""
        return await self._answers.ask(self._jobs.types, database)

    async def workers(self, database: str) -> list[WorkerStatus]:
        """The workers of a database."""
        return await self._answers.ask(self._jobs.workers, database)

    async def schedules(self, database: str) -> list[ScheduleStatus]:
        """The schedules of a database."""
        return await self._answers.ask(self._jobs.schedules, database)

    # ── upkeep ──

    async def grown(self) -> None:
        """Returns when enough was written for a checkpoint to be worth it."""
        await self._checkpoints.grown()

    async def checkpoint(self) -> None:
        """Move what is logged into the file."""
        await self._checkpoints.run()

    async def compact(self, pages: int) -> int:
        """Give unused pages back to the file system."""
        self._check_open()
        return await self._checkpoints.vacuum(pages)

    async def examine(self) -> dict[str, Any]:
        """Facts for `headwater doctor`."""
        facts = await self._answers.ask(self._answers.examine, self._path)
        facts["wal_pinned_pages"] = self._checkpoints.pinned_pages
        return facts

    def _check_open(self) -> None:
        if not self._open:
            raise Closed("the store is closed")
