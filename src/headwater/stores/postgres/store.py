"""The PostgreSQL store: a schema of a server's database, many processes on many machines.

    apply:         BEGIN → append lock → writer → COMMIT, not waiting for the disk     visible to every process
    make_durable:  a small commit that does wait, sent right behind                    survives power loss

The lock goes with the COMMIT, so nobody waits for another's disk. A commit is visible before its lock is free, and the
next one enters the server's log behind it: what can be seen, the order of LSNs and what a crash leaves agree.

Commits run in a thread of their own, reads in another: the event loop never waits for the network.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, TypeVar

import msgspec

from headwater.clock import Clock, SharedClock, Timestamp
from headwater.config import Config
from headwater.errors import Closed, ConfigError, StoreFull, StoreReplaced
from headwater.log.operations import Commit, Operation, Touch
from headwater.model.names import Lsn
from headwater.outage import Outage
from headwater.stores.codec import Codec
from headwater.stores.contract import Chore, Fact, Findings
from headwater.stores.job_questions import ListJobMinutes, ListJobQueues, ListJobs, ListWorkers
from headwater.stores.postgres.address import parse_address
from headwater.stores.postgres.beside import place_beside
from headwater.stores.postgres.commits import Commits
from headwater.stores.postgres.connection import PostgresConnection
from headwater.stores.postgres.errors import translated
from headwater.stores.postgres.examination import judge_replica
from headwater.stores.postgres.grants import grants_for
from headwater.stores.postgres.link import Link, link_for_reading
from headwater.stores.postgres.migrate import migrate
from headwater.stores.postgres.notices import Looks, Notices
from headwater.stores.postgres.pooler import refuse_lent_sessions
from headwater.stores.postgres.read_thread import ReadThread
from headwater.stores.postgres.reads import Reads
from headwater.stores.postgres.traits import traits_of
from headwater.stores.questions import Answer, Question, Segment
from headwater.stores.tables.identity import read_identity
from headwater.stores.transfer import refuse_moved
from headwater.wakeups.contract import Wakeup
from headwater.wakeups.postgres import NoticeWakeup

Result = TypeVar("Result")

# For so long after the server had no room, it is taken to have none.
FULL_SECONDS = 5.0

# Lists for people to look at, which nobody decides by: these are answered by a replica, where there is one.
MAY_BE_OLD = (ListJobs, ListJobQueues, ListJobMinutes, ListWorkers)


class PostgresStore:
    """One schema, many processes."""

    def __init__(
        self,
        address: str,
        config: Config | None = None,
        *,
        adopt: bool = False,
        create: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._address = parse_address(address)
        self._config = config or Config()
        self._adopt = adopt
        self._create = create
        self._clock = clock or SharedClock()
        self._open = False
        self._loss, self._loss_kind = "", StoreReplaced
        self._full_until = 0.0
        self._outage = Outage()
        self.origin = secrets.randbits(62)
        self.traits = traits_of(self._address)

    async def open(self) -> None:
        """Connect, check the schema, bring its tables up to date."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-commits")
        try:
            await self._run(self._prepare)
        except BaseException:
            self._thread.shutdown()
            raise
        self._read_thread = ReadThread(self._link())
        self._reads = Reads(self._read_thread, Codec(self._config.encryption_key), self._clock)
        self._lists = self._reads
        if self._address.replica:
            self._replica_thread = ReadThread(link_for_reading(self._address, self._config.lock_wait_seconds))
            self._lists = Reads(self._replica_thread, Codec(self._config.encryption_key), self._clock)
        seconds = self._config.lock_wait_seconds
        looks = Looks(self._changed_elsewhere, self._changed_elsewhere_now)
        self._notices = Notices(self._address, seconds, self.origin, looks, self._outage)
        self._raised_by_others = 0
        self._open = True

    def _prepare(self) -> None:
        with translated(f"opening {self._address.shown}"):
            refuse_lent_sessions(self._address)
            migrate(self._address, self._config.lock_wait_seconds, adopt=self._adopt, create=self._create)
            link = self._link()
            try:
                pipe = link.pipe()
                connection = PostgresConnection(pipe)
                refuse_moved(connection, self._address.shown)
                self._identity = read_identity(connection)
                self._beside = place_beside(self._identity)
                self._commits = Commits(link, self._config, self._clock, self.origin, self._beside, self._lose)
                self._commits.know(self._identity)
            except BaseException:
                link.drop()
                raise
        self.traits = traits_of(self._address, pipe.server_version, self._beside)

    def _link(self) -> Link:
        return Link(self._address, self._config.lock_wait_seconds)

    async def close(self) -> None:
        """Let go."""
        if not self._open:
            return
        self._open = False
        await self._run(self._commits.close)
        self._thread.shutdown(wait=False)
        await self._notices.close()
        await self._read_thread.close()
        if self._address.replica:
            await self._replica_thread.close()

    async def _run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    # ── writing ──

    def apply_now(self, operations: Sequence[Operation], now: Timestamp) -> Commit | None:
        """A server has to be waited for, always."""
        self._check()
        return None

    async def apply(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """Commit, in the thread of commits. When it raises, nothing took effect, unless it says that nobody knows."""
        self._check()
        try:
            with self._outage.watched():
                commit = await self._run(self._commits.commit, operations, now)
        except StoreFull:
            self._full_until = asyncio.get_running_loop().time() + FULL_SECONDS
            raise
        if commit.wrote:
            self._notices.tell()
        return commit

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        """Done when the barrier behind the last commit was answered."""
        self._check()
        if self._commits.is_durable:
            return None
        return asyncio.get_running_loop().run_in_executor(self._thread, self._commits.wait_for_barrier)

    def landed(self) -> None:
        """What was committed is everybody's at once. Raises when the store is not the one that was opened."""
        self._check()

    async def recover(self) -> None:
        """After a barrier failed: whatever the server has is made durable by another one."""
        self._check()
        await self._run(self._commits.recover)

    @property
    def round_trips(self) -> int:
        """How often the server was waited for in commits so far."""
        return self._commits.trips

    # ── following ──

    def wakeup(self) -> Wakeup:
        """Notices of the server, unless the settings say to look at the version only."""
        return NoticeWakeup(self._notices, listens=self._config.wakeup != "data_version")

    async def _changed_elsewhere(self) -> bool:
        with self._outage.watched():
            return self._have_others_raised(await self._reads.version())

    def _changed_elsewhere_now(self) -> bool:
        return self._have_others_raised(self._reads.version_now())

    def _have_others_raised(self, version: int) -> bool:
        before, self._raised_by_others = self._raised_by_others, version - self._commits.raised
        return self._raised_by_others != before

    def touched_now(self, after: Lsn, limit: int) -> list[Touch] | None:
        """A server has to be waited for."""
        return None

    async def touched(self, after: Lsn, limit: int) -> list[Touch]:
        """The segments after `after`, in LSN order."""
        self._check()
        with self._outage.watched():
            touched, seen = await self._reads.touched(after, limit)
        self._commits.see(seen)
        return touched

    # ── reading ──

    async def ask(self, question: Question[Answer]) -> Answer:
        """What is answered to a question."""
        self._check()
        reads = self._lists if isinstance(question, MAY_BE_OLD) else self._reads
        with self._outage.watched():
            return await reads.ask(question)

    async def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None = None) -> list[Segment]:
        """A stretch of the log with its records."""
        self._check()
        with self._outage.watched():
            return await self._reads.read(after, through, limit, queue)

    def access_version(self) -> int:
        """A number that changes when access tokens may have changed."""
        return self._commits.access_version

    # ── upkeep ──

    def chores(self) -> list[Chore]:
        """The server looks after its own files."""
        return []

    async def has_room(self) -> bool:
        """Room is the server's matter: nobody can tell without writing, so some time after the last refusal it is
        tried again."""
        return asyncio.get_running_loop().time() >= self._full_until

    async def examine(self) -> Findings:
        """What the server says of itself and of the tables."""
        self._check()
        found = await self._reads.examine()
        if not self._address.replica:
            return found
        try:
            lag = await self._lists.replica_lag()
        except ConfigError as error:
            return msgspec.structs.replace(found, cautions=[*found.cautions, str(error)])
        facts = [*found.facts, Fact("replica_lag_seconds", "none" if lag is None else round(lag))]
        return msgspec.structs.replace(found, facts=facts, cautions=[*found.cautions, *judge_replica(lag)])

    async def grants(self, role: str, *, reads_only: bool) -> list[str]:
        """What lets another role use this store, as lines for its owner to run."""
        self._check()
        database = await self._reads.database()
        return grants_for(role, database, self._address.schema, reads_only=reads_only)

    def check(self) -> None:
        """Raises when the store that was opened is no more, as far as it was seen."""
        self._check()

    def _lose(self, what: str, kind: type[StoreReplaced] = StoreReplaced) -> NoReturn:
        """Say now, and from now on, that this store is no more."""
        self._loss = f"{what}; nothing more is read from or written to it: close this handle and open the store again"
        self._loss_kind = kind
        raise kind(self._loss)

    def _check(self) -> None:
        if not self._open:
            raise Closed("the store is closed")
        if self._loss:
            raise self._loss_kind(self._loss)
