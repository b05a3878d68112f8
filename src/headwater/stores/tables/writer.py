"""Operations meet tables: everything one commit does, between its BEGIN and its COMMIT.

    kinds:  names and options → reports on leases → pushes (one segment a partition) → transactions → pops

Operations of a kind are applied together. Between concurrent callers any order is a right one; this one lets a
consumer's ack and its next pop share a commit. An operation decides before it writes, so one that fails leaves no
trace and costs no savepoint; only a transaction of several operations has one.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, cast

from headwater.clock import Timestamp
from headwater.config import Config
from headwater.errors import AlreadyReached, HeadwaterError, InvalidOption, QueueMissing
from headwater.log.group_operations import ConfigureGroup, ReleaseLeases
from headwater.log.operations import (
    Ack,
    AddAccessToken,
    Advance,
    Clear,
    Commit,
    Configure,
    DeleteGroup,
    DeleteQueue,
    Extend,
    Forget,
    Operation,
    PassOver,
    Pop,
    Promote,
    Promoted,
    Purge,
    Push,
    Pushed,
    Reach,
    Reached,
    Reap,
    Requeue,
    Retain,
    RevokeAccessToken,
    Seek,
    SetSwitch,
    Subscribe,
    Switched,
    Touch,
    Trace,
    Traced,
    Transacted,
    Transaction,
)
from headwater.log.store_operations import GivenUp, GiveUpDamaged, RenewIdentity
from headwater.model.names import Lsn
from headwater.stores.codec import Codec
from headwater.stores.tables.access_tokens import AccessTokens
from headwater.stores.tables.applied import SAME_KEY, Applied, Remembered
from headwater.stores.tables.catalog import Catalog
from headwater.stores.tables.clock_jumps import ClockJumps
from headwater.stores.tables.connection import Connection, WriterConnection
from headwater.stores.tables.cursors import Cursors
from headwater.stores.tables.damage import Damage
from headwater.stores.tables.dead_letters import DeadLetters
from headwater.stores.tables.delayed import Delayed
from headwater.stores.tables.flows import Flows
from headwater.stores.tables.identity import Identity
from headwater.stores.tables.jobs import Jobs
from headwater.stores.tables.pops import Pops
from headwater.stores.tables.pushes import Pushes
from headwater.stores.tables.repeated_pops import KeptPop, RepeatedPops
from headwater.stores.tables.reports import Reports
from headwater.stores.tables.retention import Retention
from headwater.stores.tables.segments import SegmentRow, Segments
from headwater.stores.tables.staging import Staging
from headwater.stores.tables.streams import Streams

_FIRST, _REPORTS, _PUSHES, _TRANSACTIONS, _POPS = range(5)
_order: dict[type[Operation], int] = {
    Ack: _REPORTS,
    Advance: _REPORTS,
    Extend: _REPORTS,
    Push: _PUSHES,
    Transaction: _TRANSACTIONS,
    Pop: _POPS,
}


class Writer:
    """Applies operations through one connection, which must hold the write lock."""

    def __init__(
        self, connection: WriterConnection, config: Config, codec: Codec, origin: int, lose: Callable[[str], NoReturn]
    ) -> None:
        self._changes = connection.rows_written
        self._data_version = connection.version
        self._connection: Connection = connection
        self._sql = connection.sql
        self._version = -1
        self.catalog = Catalog(connection, codec)
        self.segments = Segments(connection, codec, origin, config.deduplication_ids_max)
        delayed = self._delayed = Delayed(connection, codec, self.catalog, self.segments)
        pushes = self._pushes = Pushes(connection, self.catalog, self.segments, delayed)
        letters = DeadLetters(connection, codec, self.catalog, self.segments, pushes)
        cursors = self._cursors = Cursors(connection, self.catalog, self.segments, letters)
        pops = self._pops = Pops(connection, self.catalog, self.segments, cursors, delayed)
        reports = Reports(connection, self.catalog, self.segments, cursors, pops, delayed)
        retention = Retention(connection, self.catalog, self.segments)
        self.access_tokens = AccessTokens(connection)
        self.jobs = Jobs(connection, self.catalog, self.segments, path=connection.location)
        self.identity = Identity(connection, lose)
        self._clock = ClockJumps(connection, self.segments, self._clock_set_back)
        self._applied = Applied(connection)
        self._repeated = RepeatedPops(self.catalog, self.segments, cursors)
        self._check_lease = reports.check_lease
        self._handlers: dict[type[Operation], Callable[[Any, Timestamp], Any]] = {
            Configure: self.catalog.configure,
            DeleteQueue: self._delete_queue,
            DeleteGroup: self._delete_group,
            Subscribe: self.catalog.subscribe,
            Seek: reports.seek,
            Clear: reports.clear,
            ConfigureGroup: lambda operation, _: self.catalog.configure_group(operation),
            ReleaseLeases: reports.release_leases,
            PassOver: reports.pass_over,
            Ack: reports.ack,
            Advance: reports.advance,
            Extend: reports.extend,
            Push: lambda operation, now: pushes.push([operation], now)[0],
            Pop: pops.pop,
            Requeue: letters.requeue,
            Purge: lambda operation, _: letters.purge(operation),
            Trace: self._trace,
            AddAccessToken: self.access_tokens.add,
            RevokeAccessToken: self.access_tokens.revoke,
            SetSwitch: self._set_switch,
            Reach: self._reach,
            RenewIdentity: self.identity.renew,
            GiveUpDamaged: self._give_up_damaged,
            Transaction: self._transaction,
            Retain: retention.retain,
            Reap: cursors.reap,
            Promote: lambda operation, now: Promoted(self._promoted),
            Forget: lambda operation, _: retention.forget(operation),
            **Flows(connection, self.catalog, self.segments, pushes.place).handlers(),
            **Staging(connection, config.staged_bytes_max).handlers(),
            **Streams(connection).handlers(),
            **self.jobs.handlers(),
        }

    def apply(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """What each operation came to, and the segments that were added."""
        self.catch_up()
        changes = self._changes()
        self._clock.check(now)
        names = self.catalog.version
        self.segments.begin()
        self._promoted = self._delayed.promote(now)
        repeated = False
        plain_kind = _plain_kind(operations)
        if plain_kind is Push:
            results = self._pushes.push(cast("Sequence[Push]", operations), now)
        elif plain_kind is not None and len(operations) == 1:
            results = [self._try(operations[0], now)]
        else:
            results, repeated = self._together(operations, now)
        self._cursors.flush()
        self.jobs.books.close(now)
        wrote = self._changes() != changes or repeated or any(map(_affirms, results))
        return Commit(
            results, self.segments.touched, wrote, added=self.segments.added(now, names != self.catalog.version)
        )

    def _together(self, operations: Sequence[Operation], now: Timestamp) -> tuple[list[Any], bool]:
        """What operations came to, kind by kind, and whether one of them was answered in an earlier commit."""
        results: list[Any] = [None] * len(operations)
        phases: tuple[list[int], ...] = ([], [], [], [], [])
        firsts: dict[tuple[str, str], int] = {}
        for index, operation in enumerate(operations):
            if operation.key:
                first = firsts.setdefault((operation.database, operation.key), index)
                before = self._applied.answered_before(operation, operations[first] if first < index else None)
                if type(before) is Remembered and isinstance(operation, Pop):
                    before = self._popped_before(operation, before.answer, now, SAME_KEY if first < index else None)
                if before is not None:
                    results[index] = before
                    continue
            phases[_order.get(type(operation), _FIRST)].append(index)
        self._applied.refuse_wholly(operations, results, phases[_PUSHES])
        for index in phases[_FIRST]:
            results[index] = self._try(operations[index], now)
            self._cursors.flush()
        for index in phases[_REPORTS]:
            results[index] = self._try(operations[index], now)
        if phases[_PUSHES] or phases[_TRANSACTIONS]:
            self._cursors.flush()
        pushes: list[Any] = [operations[index] for index in phases[_PUSHES]]
        for index, result in zip(phases[_PUSHES], self._pushes.push(pushes, now), strict=True):
            results[index] = result
        for index in phases[_TRANSACTIONS]:
            results[index] = self._try(operations[index], now)
        pops: list[Any] = [operations[index] for index in phases[_POPS]]
        for index, popped in zip(phases[_POPS], self._pops.pop_together(pops, now), strict=True):
            results[index] = popped
        if not firsts:
            return results, False
        repeated = any(type(result) is Remembered for result in results)
        self._applied.remember(operations, results, now)
        for index, result in enumerate(results):
            if result is SAME_KEY:
                results[index] = results[firsts[operations[index].database, operations[index].key]]
        return results, repeated

    def _popped_before(self, operation: Pop, kept: KeptPop, now: Timestamp, otherwise: Any) -> Any:
        """What a pop got before, read anew; `otherwise` when it may have something else."""
        try:
            popped = self._repeated.answer(operation, kept, now)
        except HeadwaterError as error:
            return error
        return otherwise if popped is None else Remembered(popped)

    def catch_up(self) -> list[Touch]:
        """Take in what other connections have committed since our last commit: the pager's version tells.

        The segments that they appended, when we knew the log's end before.
        """
        version = self._data_version()
        return [] if version == self._version else self._take_in(version, self._look())

    def look(self) -> list[Touch]:
        """The same without the write lock: only a read makes the pager see whether its version is still the newest."""
        seen = self._look()
        version = self._data_version()
        return [] if version == self._version else self._take_in(version, seen)

    def _look(self) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._connection.execute(self._sql.look).fetchone()
        return row

    def _take_in(self, version: int, seen: tuple[Any, ...]) -> list[Touch]:
        names, newest, partition, jump, written_at, access, identity = seen
        self.identity.catch_up(identity)
        self._version = version
        self._pushes.forget()
        self._delayed.forget()
        self._cursors.forget()
        self.catalog.catch_up(names, partition)
        self._clock.catch_up(jump, written_at)
        self.access_tokens.catch_up(access)
        known = self.segments.last_lsn
        found = self._touches(self.segments.catch_up(Lsn(newest)))
        self.jobs.catch_up(found, complete=0 < known == newest - len(found))
        return found

    def touched(self, after: Lsn, limit: int) -> list[Touch]:
        """The segments after `after`, in LSN order."""
        return self._touches(self._connection.execute(self._sql.touched, (after, limit)).fetchall())

    def jobs_ready_at(
        self, database: str, queues: Sequence[str], now: Timestamp, functions: frozenset[str] | None
    ) -> Timestamp | None:
        """When a claim on these queues could get something."""
        self.look()
        return self.jobs.ready_at(database, queues, now, functions)

    def _touches(self, rows: Iterable[SegmentRow]) -> list[Touch]:
        """Segments with their addresses; those of partitions that are gone are left out."""
        found = []
        for row in rows:
            partition = self.catalog.partition_by_id(row[1])
            if partition is not None:
                found.append(Touch(*row, partition.lane))
        return found

    def committed(self) -> None:
        """Our own commit raised the version too."""
        self._version = self._data_version()
        self.jobs.committed()

    def forget(self) -> None:
        """After a rollback: what is remembered may never have happened."""
        self._version = -1
        self.catalog.forget()
        self.segments.forget()
        self._delayed.forget()
        self._cursors.forget()
        self._pops.forget()
        self._clock.forget()
        self.jobs.forget()
        self.jobs.books.clear()

    # ── one after the other ──

    def _try(self, operation: Operation, now: Timestamp) -> Any:
        """What an operation came to; one that fails, fails alone."""
        try:
            return self._handlers[type(operation)](operation, now)
        except HeadwaterError as error:
            return error

    def _delete_queue(self, operation: DeleteQueue, now: Timestamp) -> Any:
        deleted = self.catalog.delete_queue(operation, self.segments.last_lsn)
        self.segments.forget_ends()
        self._cursors.forget()
        return deleted

    def _give_up_damaged(self, operation: GiveUpDamaged, now: Timestamp) -> GivenUp:
        self._cursors.forget()
        return Damage(self._connection, self.catalog, self.segments).give_up(operation, now)

    def _delete_group(self, operation: DeleteGroup, now: Timestamp) -> Any:
        self._cursors.forget()
        return self.catalog.delete_group(operation)

    def _clock_set_back(self, now: Timestamp, by: int) -> None:
        self._delayed.clock_set_back(now, by)
        self._cursors.forget()
        self.jobs.clock_set_back(now, by)

    def _trace(self, operation: Trace, now: Timestamp) -> Traced:
        partition = self.catalog.partition_by_id(operation.partition_id)
        if partition is None or partition.queue.database != operation.database:
            raise QueueMissing(f"there is no partition {operation.partition_id}")
        names = operation.names or ("",)
        data = bytes(operation.data).decode()
        about = (operation.database, operation.partition_id, operation.transaction_id, operation.group)
        for name in names:
            self._connection.execute(self._sql.add_trace, (*about, name, operation.event, data, now))
        return Traced(len(names))

    def _set_switch(self, operation: SetSwitch, now: Timestamp) -> Switched:
        if operation.is_on:
            self._connection.execute(self._sql.turn_on, (operation.database, operation.name, now))
        else:
            self._connection.execute(self._sql.turn_off, (operation.database, operation.name))
        return Switched(operation.is_on)

    def _reach(self, operation: Reach, now: Timestamp) -> Reached:
        row = self._connection.execute(self._sql.find_milestone, (operation.database, operation.name)).fetchone()
        if row is not None and row[0] >= operation.number:
            message = f"{operation.name!r} is at step {row[0]}; step {operation.number} was taken before"
            raise AlreadyReached(message, *row)
        step = (operation.database, operation.name, operation.number, operation.note, now)
        self._connection.execute(self._sql.set_milestone, step)
        return Reached(None if row is None else row[0])

    def _transaction(self, operation: Transaction, now: Timestamp) -> Transacted:
        """All or nothing: a savepoint, because here a later operation can fail after an earlier one wrote."""
        touched = len(self.segments.touched)
        books = self.jobs.books.keep()
        self._connection.execute("SAVEPOINT hw_transaction")
        try:
            for lease in operation.leases:
                self._check_lease(operation.database, lease, now)
            results = [self._inside(step, now) for step in operation.operations]
        except HeadwaterError:
            self._connection.execute("ROLLBACK TO hw_transaction")
            self.segments.take_back(touched)
            self.forget()
            self.catch_up()
            self.jobs.books.go_back(books)
            raise
        finally:
            self._connection.execute("RELEASE hw_transaction")
        return Transacted(results)

    def _inside(self, step: Operation, now: Timestamp) -> Any:
        if isinstance(step, Transaction):
            raise InvalidOption("a transaction cannot hold another one")
        result = self._handlers[type(step)](step, now)
        self._cursors.flush()
        if isinstance(result, HeadwaterError):
            raise result
        return result


_key = operator.attrgetter("key")


def _plain_kind(operations: Sequence[Operation]) -> type[Operation] | None:
    """The kind of operations that are all of one, and without keys."""
    kinds = set(map(type, operations))
    return kinds.pop() if len(kinds) == 1 and not any(map(_key, operations)) else None


def _affirms(result: Any) -> bool:
    """Whether an answer speaks of records that an earlier commit wrote, perhaps not yet on stable storage."""
    if type(result) is Transacted:
        return any(_affirms(step) for step in result.results)
    return type(result) is Pushed and bool(result.duplicates)
