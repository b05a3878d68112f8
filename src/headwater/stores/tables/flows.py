"""What flows of the pipeline keep: records taken from a source once, marks of archives, rollups."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headwater.clock import Timestamp
from headwater.errors import FlowOvertaken, QueueMissing, StoreDamaged
from headwater.log.flow_operations import AddRollups, Archived, Load, Loaded, MarkArchived, RollupsAdded
from headwater.model.coverage import cover, decode_ranges, encode_ranges, uncovered
from headwater.model.names import Lsn
from headwater.model.rollup import Rollup, add, add_up
from headwater.stores.questions import FindArchived, FindRollupState, ListRollups
from headwater.stores.tables.catalog import Catalog, Partition, QueueRow
from headwater.stores.tables.connection import Columns, Connection, Number, Text
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.subject import Answering, Handlers, Subject, SubjectAnswers

# How many rollups have finished, and what the last of them left.
RollupStateRow = tuple[int, str]


class Flows(Subject):
    """The tables of the pipeline's flows."""

    def __init__(
        self,
        connection: Connection,
        catalog: Catalog,
        segments: Segments,
        place: Callable[[Load, Timestamp], Partition],
    ) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._segments = segments
        self._place = place

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Load: self.load, MarkArchived: self.mark_archived, AddRollups: self.add_rollups}

    def load(self, operation: Load, now: Timestamp) -> Loaded:
        """Append those of the records whose position in the source is new to the partition."""
        partition = self._place(operation, now)
        row = self._connection.row(self._sql.get_covered, (partition.id, operation.source), Text)
        covered = decode_ranges(row[0]) if row else ()
        fresh = uncovered(covered, operation.positions)
        if fresh:
            self._segments.append(partition, [operation.records[index] for index in fresh], now)
        after = cover(covered, *operation.covers)
        if after != covered:
            self._connection.run(self._sql.set_covered, (partition.id, operation.source, encode_ranges(after)))
        return Loaded(len(fresh), len(operation.positions) - len(fresh), self._segments.last_lsn)

    def mark_archived(self, operation: MarkArchived, now: Timestamp) -> Archived:
        """Raise the mark of a queue."""
        queue = self._catalog.need_queue(operation.database, operation.queue)
        self._connection.run(self._sql.raise_archived, (queue.id, operation.lsn, now))
        [(lsn,)] = self._connection.rows(self._sql.get_archived, (queue.id,), Number)
        return Archived(Lsn(lsn))

    def add_rollups(self, operation: AddRollups, now: Timestamp) -> RollupsAdded:
        """Add rows to what is kept, together with the state that says what they cover."""
        row = self._connection.row(self._sql.get_rollup_state, (operation.database,), RollupStateRow)
        number = row[0] if row else 0
        if number != operation.number:
            raise FlowOvertaken(f"another rollup has finished meanwhile ({number} of them, not {operation.number})")
        for rollup in add_up(operation.rows):
            self._add_rollup(operation.database, rollup)
        self._connection.run(self._sql.set_rollup_state, (operation.database, number + 1, operation.state))
        return RollupsAdded(number + 1)

    def _add_rollup(self, database: str, row: Rollup) -> None:
        key = (database, row.resolution, row.bucket, row.queue, row.group, row.type)
        found = self._connection.row(self._sql.get_rollup, key, Columns)
        if found is not None:
            place = (row.queue, row.group, row.type, row.resolution, row.bucket)
            row = add(rollup_of(RollupRow._make((*place, *found))), row)
        bins = msgspec.json.encode(row.latency_bins).decode()
        figures = (row.pushed, row.bytes, row.late, row.completed, row.latency_total, row.latency_max, bins)
        self._connection.run(self._sql.set_rollup, (*key, *figures, row.lag_max, row.retried, row.buried))


class RollupRow(NamedTuple):
    """A rollup as it is kept: the counts of its latency bins as JSON."""

    queue: str
    group: str
    type: str
    resolution: str
    bucket: int
    pushed: int
    bytes: int
    late: int
    completed: int
    latency_total: int
    latency_max: int
    latency_bins: str
    lag_max: int
    retried: int
    buried: int


def rollup_of(row: RollupRow) -> Rollup:
    """The rollup in a row of its table."""
    try:
        bins = msgspec.json.decode(row.latency_bins, type=dict[int, int])
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a rollup cannot be read: {error}") from error
    return Rollup(**{**row._asdict(), "latency_bins": bins})


class FlowAnswers(SubjectAnswers):
    """Reads what flows of the pipeline keep."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Answering:
        """What answers which question."""
        return {FindArchived: self.archived, ListRollups: self.rollups, FindRollupState: self.rollup_state}

    def archived(self, asked: FindArchived) -> Lsn:
        """Up to which LSN a queue is archived."""
        row = self._connection.row(self._sql.find_queue, (asked.database, asked.queue), QueueRow)
        if row is None:
            raise QueueMissing(f"there is no queue {asked.queue!r}")
        found = self._connection.row(self._sql.get_archived, (row[0],), Number)
        return Lsn(found[0] if found else 0)

    def rollups(self, asked: ListRollups) -> list[Rollup]:
        """Rollups of a stretch of time."""
        bounds = (asked.database, asked.wanted.resolution, asked.wanted.since, asked.wanted.until, asked.wanted.queue)
        rows = self._connection.rows(self._sql.rollup_list, bounds, Columns)
        return [rollup_of(RollupRow._make(row)) for row in rows]

    def rollup_state(self, asked: FindRollupState) -> tuple[int, str]:
        """Where the last rollup stood."""
        return self._connection.row(self._sql.get_rollup_state, (asked.database,), RollupStateRow) or (0, "")
