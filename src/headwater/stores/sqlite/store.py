"""Tables in a SQLite file: opens them, takes its turn, commits on the event loop, answers questions.

    apply:         turn → BEGIN IMMEDIATE → writer → COMMIT          visible to everybody on the file
    make_durable:  the medium's: `fdatasync`, or whatever makes a commit survive there

Every statement gives up and re-takes the interpreter's lock, and a busy event loop would make a writer thread wait for
it each time; so the commit runs on the loop itself, with few statements, and never waits there for anybody. Whose file
it is, who takes turns with us and when a commit is safe, the medium knows.
"""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeVar, cast

import apsw

from headwater.clock import Clock, SystemClock, Timestamp, steady_of
from headwater.config import Config
from headwater.errors import Closed, StoreError, StoreFailed, StoreFull
from headwater.forks import ForkGuard
from headwater.log.operations import Commit, Operation, Touch
from headwater.model.names import Lsn
from headwater.stores.codec import Codec
from headwater.stores.contract import Chore, Findings, RaceLost
from headwater.stores.document_questions import FindDocument, QueryDocuments
from headwater.stores.job_questions import FindJobsReady, FindJobStates
from headwater.stores.questions import Answer, FindLane, FindLastLsn, FindLoss, Loss, Question, ReadPartition, Segment
from headwater.stores.sqlite.backup import become_a_store
from headwater.stores.sqlite.connection import SqliteConnection, read_data_version, translate, translated
from headwater.stores.sqlite.medium import Medium
from headwater.stores.sqlite.migrate import migrate
from headwater.stores.sqlite.quick_reads import QuickReads
from headwater.stores.sqlite.reads import Reads
from headwater.stores.sqlite.reserve import freeing, with_refusals
from headwater.stores.sqlite.shared_file import SharedFile
from headwater.stores.sqlite.write_lock import tries, try_begin
from headwater.stores.tables.document_answers import DocumentAnswers
from headwater.stores.tables.identity import read_identity
from headwater.stores.tables.job_answers import JobAnswers
from headwater.stores.tables.segments import read_end
from headwater.stores.tables.writer import Writer
from headwater.stores.transfer import refuse_moved
from headwater.wakeups.contract import Wakeup

SIDE_CACHE_BYTES = 2 * 1_048_576
QUICK_STATES = 16
QUICK_IN_A_ROW = 32
LOOK_SECONDS = 0.25

Found = TypeVar("Found")


def open_file(
    path: str, config: Config, clock: Clock | None = None, *, adopt: bool = False, create: bool = True
) -> "SqliteStore":
    """The store in the file at `path`, not yet opened: what an address without a scheme means."""
    return SqliteStore(SharedFile(path, config, adopt=adopt, create=create), config, clock=clock)


class SqliteStore:
    """The tables of one store, on any medium."""

    def __init__(self, medium: Medium, config: Config | None = None, *, clock: Clock | None = None) -> None:
        self.medium = medium
        self._config = config or Config()
        self._clock = clock or SystemClock()
        self._open = False
        # How often a file was laid out: what was read in an earlier one may never have happened.
        self._layouts = 0
        self._access_changes = 0
        self._quick_answers = 0
        self._recovering = asyncio.Lock()
        self._fork_guard = ForkGuard()
        self._writer: Writer
        self.origin = secrets.randbits(62)
        self.traits = medium.traits

    async def open(self) -> None:
        """Connect, check the file, bring its tables up to date. Reads and writes of a small file: milliseconds."""
        await self.medium.lay_out()
        try:
            await self._open_tables()
        except (StoreFull, StoreFailed):
            if not self.medium.make_way():
                raise
            await self._open_tables()
        await self._settle_in()
        self._foreign_version = self._data_version()
        self._open = True

    async def _settle_in(self) -> None:
        """Until what opening wrote has landed, it is nobody's store."""
        try:
            while not await self._stands(self._layouts):
                pass
        except BaseException:
            await self.medium.close(self._let_go)
            raise

    async def _open_tables(self) -> None:
        codec = Codec(self._config.encryption_key)
        with translated(f"opening {self.traits.location}"), ExitStack() as opened:
            connection = self.medium.connect(self._config.cache_bytes)
            opened.callback(connection.close)
            async with self.medium.preparing(connection):
                migrate(connection, self.traits.location)
                self._refuse(connection)
                become_a_store(connection)
                writer = Writer(connection, self._config, codec, self.origin, self.medium.presence.lose)
                writer.jobs.judge_leases_by(steady_of(self._clock))
                self._take_in(writer, connection)
            reads = Reads(self.medium.connect(SIDE_CACHE_BYTES), codec, self._clock, self.medium.presence)
            opened.callback(reads.close)
            self.medium.serve(connection)
            opened.pop_all()
        self._connection, self._writer, self._reads = connection, writer, reads
        self._jobs_here = JobAnswers(connection)
        self._documents_here = DocumentAnswers(connection)
        self._log_here = QuickReads(connection, codec, writer.catalog)
        self._turn, self._presence, self._reserve = self.medium.turn, self.medium.presence, self.medium.reserve
        self._layouts += 1

    def _refuse(self, connection: SqliteConnection) -> None:
        """Raises for what nobody may use."""
        refuse_moved(connection, self.traits.location)

    def _take_in(self, writer: Writer, connection: SqliteConnection) -> None:
        """What this handle knows of its store, when it goes on in a fresh file."""
        if self._open:
            writer.identity.inherit(self._writer.identity)
            writer.clock_jumps.inherit(self._writer.clock_jumps)
            self._access_changes += self._writer.access_tokens.version + 1
        writer.identity.meet(read_identity(connection))

    async def close(self) -> None:
        """Let go."""
        if not self._open:
            return
        self._open = False
        # Whoever would open the store anew uses what is closed here: it ends first, or finds the store closed.
        self.medium.stop()
        async with self._recovering:
            await self.medium.close(self._let_go)

    def _let_go(self) -> None:
        _close(self._reads, self._connection)

    # ── writing ──

    def apply_now(self, operations: Sequence[Operation], now: Timestamp) -> Commit | None:
        """Commit on the spot, if nobody else holds the write lock."""
        self._check_open()
        if not self._turn.try_enter():
            return None
        try:
            return self._commit_if_free(operations, now)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._translate(error) from error
        finally:
            self._turn.leave()

    async def apply(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """Wait for the turn at the write lock, then commit. When it raises, nothing took effect."""
        self._check_open()
        turn = self._turn
        try:
            # A program that does not queue for its turn may hold the lock. The turn is not kept meanwhile.
            async for _ in tries(self._config.lock_wait_seconds):
                commit = await turn.within(partial(self._commit_if_free, operations, now))
                if commit is not None:
                    break
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._translate(error) from error
        assert commit is not None
        return commit

    def _translate(self, error: apsw.Error | UnicodeDecodeError) -> StoreError:
        if isinstance(error, apsw.FullError):
            return StoreFull(f"committing: {self._reserve.why_full()}")
        return translate(error, "committing")

    def _commit_if_free(self, operations: Sequence[Operation], now: Timestamp) -> Commit | None:
        with self._fork_guard:
            return self._commit(operations, now) if try_begin(self._connection) else None

    def _commit(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """Commit all of them, or on a full disk those that make room."""
        try:
            return self._transact(operations, now)
        except apsw.FullError:
            wanted = freeing(operations)
            if not wanted:
                raise
            return with_refusals(operations, self._commit_freeing(wanted, now), self._reserve.why_full())

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
            if self._presence.loss:
                self._presence.remind()
            self._reserve.check()
            before = self._reserve.weigh()
            commit = self._writer.apply(operations, now)
            self._reserve.check_growth(before)
            self._connection.run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._writer.forget()
            raise
        self._writer.committed()
        return commit

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        """Done when everything committed so far survives."""
        return self.medium.make_durable(callers)

    def landed(self) -> asyncio.Future[None] | None:
        """Done when what was committed so far cannot be taken back."""
        return self.medium.landed()

    async def recover(self) -> None:
        """What was applied is brought to safety in another way; where that cannot be, the store goes on in a file that
        has what landed and nothing else."""
        self._check()
        await self._recover()

    async def _recover(self) -> None:
        async with self._recovering:
            if not await self.medium.recover():
                await self._open_anew()

    async def _open_anew(self) -> None:
        """Whoever reads in the file of before finishes there, and looks again in the new one."""
        reads, connection = self._reads, self._connection
        await self.medium.lay_out()
        await self._open_tables()
        await asyncio.get_running_loop().run_in_executor(None, _close, reads, connection)

    # ── following ──

    def wakeup(self) -> Wakeup:
        """The medium's, with a look at whether others have committed."""
        return self.medium.wakeup(self._changed_elsewhere)

    def _changed_elsewhere(self) -> bool:
        """Whether another connection has committed since this was last asked."""
        version = self._data_version()
        changed = version != self._foreign_version
        self._foreign_version = version
        return changed

    def _data_version(self) -> int:
        return read_data_version(self._connection)

    async def touched(self, after: Lsn, limit: int) -> list[Touch]:
        """The segments after `after`, in LSN order."""

        async def look() -> list[Touch]:
            return self._touched(after, limit)

        return await self._safe(look)

    def touched_now(self, after: Lsn, limit: int) -> list[Touch] | None:
        """Asked on the loop: it is one small query, and somebody waits for the answer."""
        if self.traits.answers_wait:
            return None
        return self._touched(after, limit)

    def _touched(self, after: Lsn, limit: int) -> list[Touch]:
        """The writer catches up with it: whoever is woken now pops next, and finds that done."""
        self._check()
        with translated("following the log"):
            known = self._writer.segments.last_lsn
            found = self._writer.look()
            if after < known or not known or len(found) > limit:
                found = self._writer.touched(after, limit)
        return [touch for touch in found if touch.lsn > after]

    # ── reading ──

    async def ask(self, question: Question[Answer]) -> Answer:
        """What is answered to a question."""
        return await (self._safe(lambda: self._ask(question)) if self.traits.answers_wait else self._ask(question))

    async def _ask(self, question: Question[Answer]) -> Answer:
        """Little that somebody waits for is answered on the loop: to hand it to the thread that reads takes longer."""
        if isinstance(question, FindLane):
            partition = self._writer.catalog.partition_by_id(question.partition_id)
            return cast(Answer, None if partition is None else partition.lane)
        if isinstance(question, FindLastLsn) and not self.traits.answers_wait:
            # Whether a store is well must not depend on what others ask of it.
            self._check()
            with translated("reading"):
                return cast(Answer, read_end(self._connection)[0])
        if isinstance(question, FindJobsReady):
            self._check()
            with translated("looking for jobs"):
                return cast(Answer, self._writer.jobs_ready_at(question))
        if isinstance(question, FindJobStates) and len(question.ids) <= QUICK_STATES:
            self._check()
            with translated("reading"):
                return cast(Answer, self._jobs_here.states(question))
        if isinstance(question, FindDocument) and not self.traits.answers_wait:
            self._check()
            with translated("reading"):
                return cast(Answer, self._documents_here.find(question))
        if isinstance(question, QueryDocuments) and not self.traits.answers_wait:
            self._check()
            with translated("reading"):
                page = self._documents_here.query_quickly(question)
            if page is not None:
                return cast(Answer, page)
        if isinstance(question, ReadPartition | FindLoss) and not self.traits.answers_wait:
            found = self._look_at_log(question)
            if found is not None:
                await self._take_turns()
                return cast(Answer, found)
        return await self._reads.ask(question)

    def _look_at_log(self, question: ReadPartition | FindLoss) -> list[Segment] | Loss | None:
        self._check()
        with translated("reading"):
            if isinstance(question, FindLoss):
                return self._log_here.loss(question)
            return self._log_here.partition_to_end(question)

    async def _take_turns(self) -> None:
        """Whoever asks again and again, and is answered at once each time, lets the others have their turn at times."""
        self._quick_answers += 1
        if self._quick_answers % QUICK_IN_A_ROW == 0:
            await asyncio.sleep(0)

    async def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None = None) -> list[Segment]:
        """A stretch of the log with its records."""
        if queue is None and limit >= through - after and self._is_end(through):
            self._check()
            with translated("reading"):
                found = self._log_here.stretch(after, through)
            if found is not None:
                return found
        return await self._safe(lambda: self._reads.read(after, through, limit, queue))

    def _is_end(self, lsn: Lsn) -> bool:
        """Whether nothing is known behind it: only there it is read on the loop, or whoever reads a long log would keep
        all others waiting."""
        return lsn >= self._writer.segments.last_lsn and not self.traits.answers_wait

    async def backup(self, path: str) -> None:
        """Write a copy of everything to a new file."""
        layout = self._layouts
        await self._reads.backup(path)
        while not await self._stands(layout):
            os.unlink(path)
            layout = self._layouts
            await self._reads.backup(path)

    async def _safe(self, look: Callable[[], Awaitable[Found]]) -> Found:
        """What a look finds, made again when something of what it saw was taken back."""
        while True:
            self._check_open()
            layout = self._layouts
            found = await look()
            if await self._stands(layout):
                return found

    async def _stands(self, layout: int) -> bool:
        """Whether what was read in this file is there to stay. If it is not, the store is in another file by now."""
        if self.traits.answers_wait:
            try:
                landed = self.landed()
                if landed is not None:
                    await self._wait_for(landed)
            except RaceLost:
                await self._recover()
                return False
        return layout == self._layouts

    async def _wait_for(self, landed: asyncio.Future[None]) -> None:
        """Until it is done, or nobody can tell when it will be: what was read may not be told, and who asked is."""
        try:
            while not landed.done():
                self._reserve.check()
                await asyncio.wait({landed}, timeout=LOOK_SECONDS)
        except BaseException:
            landed.cancel()
            raise
        landed.result()

    def access_version(self) -> int:
        """A number that changes when access tokens may have changed."""
        return self._access_changes + self._writer.access_tokens.version

    # ── upkeep ──

    def chores(self) -> Sequence[Chore]:
        """What the file needs."""
        return self.medium.chores()

    async def has_room(self) -> bool:
        """Whether there is room for more."""
        self._check()
        return await self.medium.has_room()

    async def examine(self) -> Findings:
        """Facts for `headwater doctor`."""
        found = await self._reads.examine()
        return Findings([*found.facts, *await self.medium.examine()], found.problems)

    def check(self) -> None:
        """Raises when the store that was opened is no more: deleted, replaced, or given another identity; and while
        nothing can be kept."""
        self._check()
        self._reserve.check()
        with translated("looking at the store"):
            self._writer.look()

    def _check_open(self) -> None:
        if not self._open:
            raise Closed("the store is closed")

    def _check(self) -> None:
        self._check_open()
        self._presence.check()


def _close(reads: Reads, connection: SqliteConnection) -> None:
    reads.close()
    connection.close()
