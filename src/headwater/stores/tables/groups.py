"""Consumer groups as operations change them, and as lists show them. `catalog.py` remembers them."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headwater.clock import Clock, Timestamp
from headwater.errors import QueueMissing
from headwater.log.group_operations import ConfigureGroup, GroupConfigured
from headwater.log.operations import Deleted, DeleteGroup, Subscribe, Subscribed
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.queue import decode_group_options, merge_group_options, merge_options
from headwater.stores.questions import (
    CursorStatus,
    GroupStatus,
    LeaseStatus,
    ListCursors,
    ListExpired,
    ListGroups,
    ListLeases,
    ListPositions,
    ListReady,
    Position,
)
from headwater.stores.tables.catalog import Catalog, GroupRow
from headwater.stores.tables.connection import Columns, Connection, Number, NumberOrNone
from headwater.stores.tables.cursors import Cursors, offsets_of
from headwater.stores.tables.patterns import as_patterns
from headwater.stores.tables.subject import Answering, Handlers, Subject, SubjectAnswers

PartitionNumber = tuple[PartitionId]
# Drops the records of a partition, every group being moved behind them.
ClearPartition = Callable[[PartitionId, Timestamp], int]


class Groups(Subject):
    """All consumer groups, under the write lock."""

    def __init__(self, connection: Connection, catalog: Catalog, cursors: Cursors, clear: ClearPartition) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._cursors = cursors
        self._clear_partition = clear

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {ConfigureGroup: self.configure, DeleteGroup: self.delete, Subscribe: self.subscribe}

    def configure(self, operation: ConfigureGroup, now: Timestamp) -> GroupConfigured:
        """Change what a group has otherwise than its queue."""
        queue = self._catalog.need_queue(operation.database, operation.queue)
        row = self._connection.row(self._sql.find_group, (queue.id, operation.group), GroupRow)
        if row is None:
            known = ", ".join(self._catalog.group_names(queue)) or "none yet"
            missing = f"queue {queue.name!r} has no group {operation.group!r}"
            raise QueueMissing(f"{missing}: a group is made by its first pop; there are {known}")
        own = merge_group_options(queue.options, decode_group_options(row[2]), operation.options)
        self._connection.run(self._sql.change_group, (msgspec.json.encode(own).decode(), row[0]))
        self._catalog.changed()
        return GroupConfigured(queue.name, operation.group, own, merge_options(queue.options, own))

    def delete(self, operation: DeleteGroup, now: Timestamp) -> Deleted:
        """Forget a group, or only its positions, in one queue or in all; in all, its subscription too."""
        self._cursors.forget()
        named = (operation.database, operation.group, operation.queue)
        found = self._connection.rows(self._sql.find_groups_named, named, Number)
        for (number,) in found:
            self._connection.run(self._sql.drop_group_cursors, (number,))
            if operation.keep_beginning:
                self._connection.run(self._sql.set_discovered, (0, number))
            else:
                self._connection.run(self._sql.drop_group, (number,))
        if not operation.keep_beginning:
            self._drop_requeued(operation, now)
        if found:
            self._catalog.changed()
        if not operation.queue and not operation.keep_beginning:
            self._connection.run(self._sql.drop_subscription, (operation.database, operation.group))
        return Deleted(len(found))

    def _drop_requeued(self, operation: DeleteGroup, now: Timestamp) -> None:
        """Drop what was requeued for a group that is deleted: nobody else gets it, so it would wait for ever. A later
        group of the same name reads the queue anew."""
        named = (operation.database, operation.group, operation.queue)
        for (number,) in self._connection.rows(self._sql.partitions_read_by, named, PartitionNumber):
            self._clear_partition(number, now)

    def subscribe(self, operation: Subscribe, now: Timestamp) -> Subscribed:
        """Remember where a group begins in queues that it has not read yet."""
        self._connection.run(self._sql.set_subscription, (operation.database, operation.group, operation.timestamp))
        return Subscribed()


class ListedGroup(NamedTuple):
    """A group as lists show it."""

    id: int
    database: str
    queue: str
    name: str
    lost: int
    discovered: int
    since_lsn: int
    queue_id: int
    retried: int
    buried: int


class ListedCursor(NamedTuple):
    """Where a group stands in a partition, as lists show it: what is before `done` is."""

    queue: str
    partition: str
    partition_id: PartitionId
    position: Offset
    done: int
    lease_until: int | None
    end: int
    leased_to: Offset
    settled: str | None


# Partitions, records that wait, leases, records under them, partitions where any wait, records that are gone.
LagRow = tuple[int, int, int, int, int, int]
# Records that wait where the group has not been, when the oldest was written, in how many partitions.
UndiscoveredRow = tuple[int, int | None, int]
# Queue, group, partition, position, since.
PositionRow = tuple[str, str, PartitionId, Offset, Lsn]
# Queue, partition and its number, group, holder, token, until, attempts, records.
LeaseRow = tuple[str, str, PartitionId, str, str, int, Timestamp, int, int]
# Partition, group.
ExpiredRow = tuple[PartitionId, str]


class GroupAnswers(SubjectAnswers):
    """Reads groups, their positions and their leases."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._clock = clock

    def handlers(self) -> Answering:
        """What answers which question."""
        return {
            ListGroups: self.groups,
            ListCursors: self.cursors,
            ListPositions: self.positions,
            ListLeases: self.leases,
            ListExpired: self.expired,
            ListReady: self.ready,
        }

    def groups(self, asked: ListGroups) -> list[GroupStatus]:
        """The consumer groups of a database, or of one queue."""
        now = self._clock.now()
        about = (asked.database, asked.queue, *asked.part.after, as_patterns(asked.part.patterns), asked.part.limit)
        rows = self._connection.rows(self._sql.group_list, about, Columns)
        return [self._status(now, ListedGroup._make(row)) for row in rows]

    def _status(self, now: Timestamp, row: ListedGroup) -> GroupStatus:
        [lag_row] = self._connection.rows(self._sql.group_lag, (row.id, now), LagRow)
        partitions, lag, leased, working, lagging, gone = lag_row
        place = (row.queue_id, row.discovered, row.since_lsn, row.name, row.id)
        [unmet_row] = self._connection.rows(self._sql.group_undiscovered, place, UndiscoveredRow)
        unmet, unmet_oldest, unmet_partitions = unmet_row
        [(met_oldest,)] = self._connection.rows(self._sql.group_oldest_waiting, (row.id,), NumberOrNone)
        oldest = min((written_at for written_at in (met_oldest, unmet_oldest) if written_at is not None), default=None)
        return GroupStatus(
            database=row.database,
            queue=row.queue,
            group=row.name,
            partitions=partitions,
            lag=lag + unmet,
            oldest_waiting_at=None if oldest is None else Timestamp(oldest),
            leased=leased,
            lost=row.lost + gone,
            retried=row.retried,
            buried=row.buried,
            working=working,
            partitions_lagging=lagging + unmet_partitions,
        )

    def cursors(self, asked: ListCursors) -> list[CursorStatus]:
        """Where a group stands."""
        now = self._clock.now()
        about = (asked.database, asked.group, asked.limit)
        rows = self._connection.rows(self._sql.group_cursor_list, about, Columns)
        return [_cursor_status(ListedCursor._make(row), now) for row in rows]

    def positions(self, asked: ListPositions) -> list[Position]:
        """Where every group stands."""
        rows = self._connection.rows(self._sql.position_list, (asked.database,), PositionRow)
        return [Position(*row) for row in rows]

    def leases(self, asked: ListLeases) -> list[LeaseStatus]:
        """Live leases."""
        about = (asked.database, asked.queue, asked.group, self._clock.now(), asked.limit)
        return [LeaseStatus(*row) for row in self._connection.rows(self._sql.lease_list, about, LeaseRow)]

    def expired(self, asked: ListExpired) -> list[tuple[PartitionId, str]]:
        """Leases that ran out."""
        return self._connection.rows(self._sql.expired_leases, (asked.now, asked.limit), ExpiredRow)

    def ready(self, asked: ListReady) -> list[tuple[str, str, str]]:
        """Those of the groups that a pop could serve now."""
        return [names for names in asked.groups if self._is_ready(names, asked.now)]

    def _is_ready(self, names: tuple[str, str, str], now: Timestamp) -> bool:
        row = self._connection.row(self._sql.find_group_by_names, names, Number)
        if row is None:
            return False
        [(ready,)] = self._connection.rows(self._sql.group_is_ready, (row[0], now), Number)
        return bool(ready)


def _cursor_status(row: ListedCursor, now: Timestamp) -> CursorStatus:
    return CursorStatus(
        row.queue,
        row.partition,
        row.partition_id,
        row.position,
        row.end - row.done,
        row.lease_until is not None and row.lease_until > now,
        row.leased_to,
        offsets_of(row.settled),
    )
