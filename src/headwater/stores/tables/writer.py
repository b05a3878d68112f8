"""Operations meet tables: everything one commit does, between its BEGIN and its COMMIT.

    kinds:  names and options → reports on leases → pushes (one segment a partition) → transactions → pops

What is done for an operation is a matter of its subject (`subject.py`); here is what holds for all of them. Operations
of a kind are applied together. Between concurrent callers any order is a right one; this one lets a consumer's ack and
its next pop share a commit. An operation decides before it writes, so one that fails leaves no trace and costs no
savepoint; only a transaction of several operations has one.
"""

import operator
from collections.abc import Iterable, Sequence
from typing import cast

from headwater.clock import Timestamp
from headwater.config import Config
from headwater.errors import HeadwaterError, InvalidOption
from headwater.log.operations import Commit, Operation, Pop, Pushed, Touch, Transacted, Transaction
from headwater.model.names import Lsn
from headwater.stores.codec import Codec
from headwater.stores.job_questions import FindJobsReady
from headwater.stores.tables.applied import SAME_KEY, Remembered
from headwater.stores.tables.connection import WriterConnection
from headwater.stores.tables.identity import Lose
from headwater.stores.tables.repeated_pops import KeptPop
from headwater.stores.tables.segments import SegmentRow
from headwater.stores.tables.subject import Handler, Phase, Read, Seen, SeenRow, Subject, Together, overriding
from headwater.stores.tables.subjects import Subjects


class Writer:
    """Applies operations through one connection, which must hold the write lock."""

    def __init__(self, connection: WriterConnection, config: Config, codec: Codec, origin: int, lose: Lose) -> None:
        self._changes = connection.rows_written
        self._data_version = connection.version
        self._connection = connection
        self._sql = connection.sql
        self._version = -1
        subjects = Subjects(connection, config, codec, origin, lose, self._clock_set_back)
        self._applied, self._repeated = subjects.applied, subjects.repeated_pops
        self.catalog = subjects.catalog
        self.segments = subjects.segments
        self.pushes = subjects.pushes
        self.cursors = subjects.cursors
        self.access_tokens = subjects.access_tokens
        self.jobs = subjects.jobs
        self.identity = subjects.identity
        self.clock_jumps = subjects.clock_jumps
        self._check_lease = subjects.reports.check_lease
        self._handlers: dict[type[Operation], Handler] = {Transaction: self._transaction}
        self._at_once: dict[type[Operation], Together] = {}
        self._phases: dict[type[Operation], Phase] = {Transaction: Phase.TRANSACTIONS}
        for subject in subjects.all:
            self._handlers |= subject.handlers()
            self._at_once |= subject.together()
            self._phases |= subject.phases
        self._collect_hooks(subjects.all)

    def _collect_hooks(self, subjects: Sequence[Subject]) -> None:
        """The hooks that there are, bound once: a commit calls no others."""
        self._begin = [subject.begin for subject in overriding(subjects, "begin")]
        self._flush = [subject.flush for subject in overriding(subjects, "flush")]
        self._close = [subject.close for subject in overriding(subjects, "close")]
        self._catch_up = [subject.catch_up for subject in overriding(subjects, "catch_up")]
        self._follow = [subject.follow for subject in overriding(subjects, "follow")]
        self._forget = [subject.forget for subject in overriding(subjects, "forget")]
        self._committed = [subject.committed for subject in overriding(subjects, "committed")]
        self._keep = [subject.keep for subject in overriding(subjects, "keep")]
        self._foresee = [subject.foresee for subject in overriding(subjects, "foresee")]
        self._set_back = [subject.clock_set_back for subject in overriding(subjects, "clock_set_back")]

    def foresee(self, operations: Sequence[Operation], now: Timestamp) -> list[Read]:
        """What a commit of these operations will read first, so that an engine far away reads it with the lock."""
        steps = [*operations]
        for operation in operations:
            if isinstance(operation, Transaction):
                steps += operation.operations
        found = self._applied.foresee(operations)
        for foresee in self._foresee:
            found += foresee(steps, now)
        return list(dict.fromkeys(found))

    def apply(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """What each operation came to, and the segments that were added."""
        self.catch_up()
        changes = self._changes()
        names = self.catalog.version
        for begin in self._begin:
            begin(now)
        repeated, applied = False, list[Operation | None](operations)
        kind = _plain_kind(operations)
        at_once = None if kind is None else self._at_once.get(kind)
        if at_once is not None:
            results: list[object] = at_once(operations, now)
        elif kind is not None and len(operations) == 1:
            results = [self._try(operations[0], now)]
        else:
            results, repeated = self._together(operations, applied, now)
        for flush in self._flush:
            flush()
        for close in self._close:
            close(now)
        wrote = self._changes() != changes or repeated or any(map(_affirms, results))
        if wrote:
            self.clock_jumps.wrote(now)
        touched, added = self.segments.take_added(now, names != self.catalog.version)
        return Commit(results, touched, wrote, added=added, buried=self.cursors.take_buried(), operations=applied)

    def _together(
        self, operations: Sequence[Operation], applied: list[Operation | None], now: Timestamp
    ) -> tuple[list[object], bool]:
        """What operations came to, kind by kind, and whether one of them was answered in an earlier commit; those that
        are only answered again are taken out of `applied`."""
        results: list[object] = [None] * len(operations)
        phases: tuple[list[int], ...] = ([], [], [], [], [])
        firsts: dict[tuple[str, str], int] = {}
        popped_before: dict[int, KeptPop] = {}
        for index, operation in enumerate(operations):
            if operation.key:
                first = firsts.setdefault((operation.database, operation.key), index)
                before = self._applied.answered_before(operation, operations[first] if first < index else None)
                if type(before) is Remembered and isinstance(operation, Pop):
                    # Once the rest is done: what it got may be reported on in this commit, by itself or by others.
                    popped_before[index] = cast(KeptPop, before.answer)
                elif before is not None:
                    results[index], applied[index] = before, None
                    continue
            phases[self._phases.get(type(operation), Phase.FIRST)].append(index)
        self._applied.refuse_wholly(operations, results, phases[Phase.PUSHES])
        self._apply_phases(operations, phases, results, now)
        pops = phases[Phase.POPS]
        for index, kept in popped_before.items():
            pop = cast(Pop, operations[index])
            again = self._popped_before(pop, kept, now, SAME_KEY if firsts[pop.database, pop.key] < index else None)
            if again is not None:
                results[index], applied[index] = again, None
                pops.remove(index)
        self._apply_at_once(operations, pops, results, now)
        if not firsts:
            return results, False
        repeated = any(type(result) is Remembered for result in results)
        self._applied.remember(operations, results, now)
        for index, result in enumerate(results):
            if result is SAME_KEY:
                results[index] = results[firsts[operations[index].database, operations[index].key]]
        return results, repeated

    def _apply_phases(
        self, operations: Sequence[Operation], phases: Sequence[list[int]], results: list[object], now: Timestamp
    ) -> None:
        """All but the pops, which come last."""
        first, reports, pushes, transactions, _ = phases
        for index in first:
            results[index] = self._try(operations[index], now)
            self._write_waiting()
        for index in reports:
            results[index] = self._try(operations[index], now)
        if pushes or transactions:
            self._write_waiting()
        self._apply_at_once(operations, pushes, results, now)
        for index in transactions:
            results[index] = self._try(operations[index], now)

    def _apply_at_once(
        self, operations: Sequence[Operation], indexes: Sequence[int], results: list[object], now: Timestamp
    ) -> None:
        """Apply those of each kind together, where that can be done."""
        kinds: dict[type[Operation], list[int]] = {}
        for index in indexes:
            kinds.setdefault(type(operations[index]), []).append(index)
        for kind, members in kinds.items():
            chosen = [operations[index] for index in members]
            at_once = self._at_once.get(kind)
            found = [self._try(one, now) for one in chosen] if at_once is None else at_once(chosen, now)
            for index, result in zip(members, found, strict=True):
                results[index] = result

    def _write_waiting(self) -> None:
        for flush in self._flush:
            flush()

    def _popped_before(self, operation: Pop, kept: KeptPop, now: Timestamp, otherwise: object) -> object:
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

    def _look(self) -> Seen:
        return Seen(*self._connection.rows(self._sql.look, (), SeenRow)[0])

    def _take_in(self, version: int, seen: Seen) -> list[Touch]:
        known = self.segments.last_lsn
        for catch_up in self._catch_up:
            catch_up(seen)
        self._version = version
        found = self._touches(self.segments.appended_elsewhere)
        complete = 0 < known == seen.last_lsn - len(found)
        for follow in self._follow:
            follow(found, complete=complete)
        return found

    def touched(self, after: Lsn, limit: int) -> list[Touch]:
        """The segments after `after`, in LSN order."""
        return self._touches(self._connection.rows(self._sql.touched, (after, limit), SegmentRow))

    def jobs_ready_at(self, asked: FindJobsReady) -> Timestamp | None:
        """When a claim could get something."""
        self.look()
        return self.jobs.ready_at(asked)

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
        for committed in self._committed:
            committed()

    def forget(self) -> None:
        """After a rollback: what is remembered may never have happened."""
        self._version = -1
        for forget in self._forget:
            forget()

    def _clock_set_back(self, now: Timestamp, by: int) -> None:
        for set_back in self._set_back:
            set_back(now, by)

    # ── one after the other ──

    def _try(self, operation: Operation, now: Timestamp) -> object:
        """What an operation came to; one that fails, fails alone."""
        try:
            return self._handlers[type(operation)](operation, now)
        except HeadwaterError as error:
            return error

    def _transaction(self, operation: Transaction, now: Timestamp) -> Transacted:
        """All or nothing: a savepoint, because here a later operation can fail after an earlier one wrote."""
        back = [keep() for keep in self._keep]
        self._connection.run("SAVEPOINT hw_transaction")
        try:
            for lease in operation.leases:
                self._check_lease(operation.database, lease, now)
            results = [self._inside(step, now) for step in operation.operations]
        except HeadwaterError:
            self._connection.run("ROLLBACK TO hw_transaction")
            self.forget()
            self.catch_up()
            for go_back in back:
                go_back()
            raise
        finally:
            self._connection.run("RELEASE hw_transaction")
        return Transacted(results)

    def _inside(self, step: Operation, now: Timestamp) -> object:
        if isinstance(step, Transaction):
            raise InvalidOption("a transaction cannot hold another one")
        result = self._handlers[type(step)](step, now)
        self._write_waiting()
        return result


_key = operator.attrgetter("key")


def _plain_kind(operations: Sequence[Operation]) -> type[Operation] | None:
    """The kind of operations that are all of one, and without keys."""
    if len(operations) == 1:
        return None if operations[0].key else type(operations[0])
    kinds = set(map(type, operations))
    return kinds.pop() if len(kinds) == 1 and not any(map(_key, operations)) else None


def _affirms(result: object) -> bool:
    """Whether an answer speaks of records that an earlier commit wrote, perhaps not yet on stable storage."""
    if type(result) is Transacted:
        return any(_affirms(step) for step in result.results)
    return type(result) is Pushed and bool(result.duplicates)
