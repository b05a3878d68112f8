"""What the thread of commits does: one commit after the other through one connection, and the barriers behind them."""

from collections.abc import Sequence

from headwater.clock import SECOND, Clock, SharedClock, Timestamp, steady_of
from headwater.config import Config
from headwater.errors import StoreFailed, StoreUnreachable
from headwater.log.operations import Commit, Operation
from headwater.stores.codec import Codec
from headwater.stores.postgres.appends import Appends
from headwater.stores.postgres.commit_connection import CommitConnection, Overtaken
from headwater.stores.postgres.errors import translate, translated, unknown_outcome
from headwater.stores.postgres.floors import Floors
from headwater.stores.postgres.foreseen import Foreseen
from headwater.stores.postgres.foresight import Foresight
from headwater.stores.postgres.link import Link
from headwater.stores.postgres.pipe import ConnectionLost, Pipe, ServerError
from headwater.stores.tables.identity import Lose
from headwater.stores.tables.subject import Seen
from headwater.stores.tables.writer import Writer

# Whoever is overtaken loses what it remembers, which costs some fifteen round trips: so rarely that may happen.
ALONE_AFTER = 100
# How old what is known of the server's clock may be. Clocks of machines go apart by some milliseconds in that time.
HEARD_SECONDS = 60.0
# A commit whose time turns out to be further from the server's than this is decided anew, at that time: the machine was
# asleep, or goes on with another server.
APART_MAX = 2 * SECOND


class Commits:
    """The writer and its connection. All of it belongs to one thread."""

    def __init__(self, link: Link, config: Config, clock: Clock, origin: int, beside: str, lose: Lose) -> None:
        self._link = link
        # Where it was handed in, the clock of all who have this store; else it is somebody's own, as that of a test.
        self._shared_clock = clock if isinstance(clock, SharedClock) else None
        self._pipe: Pipe | None = None
        self._connection = CommitConnection(beside)
        codec = Codec(config.encryption_key)
        self._writer = Writer(self._connection, config, codec, origin, lose)
        self._writer.jobs.judge_leases_by(steady_of(clock))
        self._foresight = Foresight(self._writer)
        self._appends = Appends(self._writer, codec, origin)
        self._floors = Floors()
        # What the writer knows is as of a version, unless it had to forget it.
        self._forgot = True
        # Between so many commits of this process, one after the other, nobody else has committed.
        self._alone = 0
        self._barrier_sent = False
        self._barrier_error: StoreFailed | None = None

    @property
    def raised(self) -> int:
        """How often a commit of this process has raised the version."""
        return self._connection.raised

    @property
    def trips(self) -> int:
        """How often the server was waited for between taking the lock and letting it go."""
        return self._connection.trips

    @property
    def access_version(self) -> int:
        """A number that changes when access tokens may have changed, as far as this thread has seen."""
        return self._writer.access_tokens.version

    def know(self, identity: str) -> None:
        """This is the store that was opened."""
        self._writer.identity.meet(identity)
        self._connect()

    def see(self, seen: Seen) -> None:
        """Whoever follows the log has seen this: which store it is, and whether access tokens have changed. Called from
        the event loop; the rest is taken in under the lock."""
        self._writer.identity.catch_up(seen)
        self._writer.access_tokens.catch_up(seen)

    @property
    def is_durable(self) -> bool:
        """Whether everything that was committed is known to survive power loss."""
        return not self._barrier_sent and self._barrier_error is None

    def commit(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """All operations in one transaction; when it raises, none of them took effect."""
        self._finish_barrier()
        try:
            appended = self._append(operations, now)
            if appended is not None:
                return appended
            try:
                return self._commit(operations, now)
            except Overtaken:
                # Decided by what is no more: nothing that is remembered is believed, and reads take long.
                self._alone = 0
            return self._commit(operations, now)
        except ServerError as error:
            raise translate(error, "committing") from error

    def _append(self, operations: Sequence[Operation], now: Timestamp) -> Commit | None:
        """Pushes that go behind whatever is there, in one round trip, also where others push; None when these do not.
        Who is alone remembers where that is, and has it as quickly."""
        self._connect()
        if self._forgot or self._alone >= ALONE_AFTER or not self._knows_time():
            return None
        plan = self._appends.plan(operations, now)
        if plan is None or not self._connection.is_there():
            return None
        newest = self._connection.newest
        try:
            answers = self._connection.append(plan.guard, plan.requests)
        except Overtaken:
            self._connection.roll_back()
            return None
        except BaseException as error:
            self._give_up(error)
            raise
        self._barrier_sent = True
        self._count_alone(self._connection.newest == newest + 1)
        return self._appends.commit(plan, answers)

    def _commit(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        try:
            commit = self._decide(operations, now)
        except ConnectionLost:
            # Nothing was committed: the server may have been started anew since the last commit.
            commit = self._decide(operations, now)
        self._store(commit)
        return commit

    def _decide(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """Take the lock and let the writer decide; its writes wait. While nobody else commits the lock can be taken
        with the writes, unless there is something to be read."""
        before = self._apart()
        self._connect()
        known = -1 if self._forgot else self._connection.version()
        try:
            foreseen = self._foresight.look_ahead(operations, now)
            newest = self._connection.newest
            is_alone = known >= 0 and known == newest and self._alone >= ALONE_AFTER and self._knows_time()
            if not (is_alone and self._connection.begin_unopened(foreseen)):
                self._begin(foreseen, known)
                self._count_alone(self._connection.newest == newest)
            if self._shared_clock is not None and abs(self._apart() - before) > APART_MAX:
                self._undo()
                return self._decide(operations, self._shared_clock.now())
            self._connection.raise_floors(self._floors.to_raise(foreseen, now))
            return self._writer.apply(operations, now)
        except BaseException:
            self._undo()
            raise

    def _count_alone(self, is_alone: bool) -> None:
        self._alone = self._alone + 1 if is_alone else 0

    def _knows_time(self) -> bool:
        return self._shared_clock is None or self._shared_clock.heard_lately(HEARD_SECONDS)

    def _apart(self) -> int:
        """How far the time goes from that of the steady clock."""
        clock = self._shared_clock
        return 0 if clock is None else clock.now() - clock.steady()

    def _begin(self, foreseen: Foreseen, known: int) -> None:
        """Take the lock, and hear what time it is."""
        asked = 0 if self._shared_clock is None else self._shared_clock.steady()
        self._connection.begin(foreseen, known)
        if self._shared_clock is not None:
            self._shared_clock.hear(self._connection.server_time, asked, self._shared_clock.steady())

    def _store(self, commit: Commit) -> None:
        try:
            self._connection.commit(barrier=commit.wrote)
        except BaseException as error:
            self._give_up(error)
            raise
        self._barrier_sent = commit.wrote
        if self._connection.raised_floors:
            self._floors.raised()
        self._writer.committed()
        self._forgot = False

    def _give_up(self, error: BaseException) -> None:
        """A commit that was sent failed: where the connection went with it, nobody knows."""
        self._undo()
        if isinstance(error, ConnectionLost):
            raise unknown_outcome(error) from error

    def _undo(self) -> None:
        self._writer.forget()
        self._floors.forget()
        self._forgot = True
        self._connection.roll_back()

    def wait_for_barrier(self) -> None:
        """Returns when everything that was committed survives power loss; raises when that cannot be said."""
        self._finish_barrier()
        if self._barrier_error is not None:
            raise self._barrier_error

    def _finish_barrier(self) -> None:
        if not self._barrier_sent or self._pipe is None:
            return
        self._barrier_sent = False
        try:
            self._pipe.receive()
        except ServerError as error:
            kind = StoreUnreachable if isinstance(error, ConnectionLost) else StoreFailed
            self._barrier_error = kind(f"the server did not say that its disk has this commit: {error}")

    def recover(self) -> None:
        """After a barrier failed: what the server has now is brought to its disk by another one."""
        with translated("making commits durable"):
            self._connect().run([(self._connection.sql.barrier, ())])
        self._barrier_error = None

    def _connect(self) -> Pipe:
        """The connection; through a new one nothing that is remembered is believed."""
        pipe = self._link.pipe()
        if pipe is not self._pipe:
            pipe.run([(self._connection.sql.insist_on_disk, ())])
            self._listen(pipe)
            self._pipe = pipe
            self._connection.use(pipe)
            self._writer.forget()
            self._forgot = True
        return pipe

    def _listen(self, pipe: Pipe) -> None:
        """What time it is there; another server may have another."""
        if self._shared_clock is not None:
            asked = self._shared_clock.steady()
            (answer,) = pipe.run([(self._connection.sql.read_clock, ())])
            self._shared_clock.hear(answer.rows[0][0], asked, self._shared_clock.steady())

    def close(self) -> None:
        """Wait for the disk, and let go."""
        self._finish_barrier()
        self._link.drop()
