"""What flows of the pipeline keep: records taken from a source once, marks of archives, rollups."""

from collections.abc import Callable
from typing import Any

import msgspec

from headwater.clock import Timestamp
from headwater.errors import FlowOvertaken, StoreDamaged
from headwater.log.flow_operations import AddRollups, Archived, Load, Loaded, MarkArchived, RollupsAdded
from headwater.log.operations import Operation
from headwater.model.coverage import cover, decode_ranges, encode_ranges, uncovered
from headwater.model.names import Lsn
from headwater.model.rollup import Rollup, add, add_up
from headwater.stores.tables.catalog import Catalog, Partition
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.segments import Segments


class Flows:
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

    def handlers(self) -> dict[type[Operation], Callable[[Any, Timestamp], Any]]:
        """What is done for which operation."""
        return {
            Load: self.load,
            MarkArchived: self.mark_archived,
            AddRollups: lambda operation, _: self.add_rollups(operation),
        }

    def load(self, operation: Load, now: Timestamp) -> Loaded:
        """Append those of the records whose position in the source is new to the partition."""
        partition = self._place(operation, now)
        row = self._connection.execute(self._sql.get_covered, (partition.id, operation.source)).fetchone()
        covered = decode_ranges(row[0]) if row else ()
        fresh = uncovered(covered, operation.positions)
        if fresh:
            self._segments.append(partition, [operation.records[index] for index in fresh], now)
        after = cover(covered, *operation.covers)
        if after != covered:
            self._connection.execute(self._sql.set_covered, (partition.id, operation.source, encode_ranges(after)))
        return Loaded(len(fresh), len(operation.positions) - len(fresh), self._segments.last_lsn)

    def mark_archived(self, operation: MarkArchived, now: Timestamp) -> Archived:
        """Raise the mark of a queue."""
        queue = self._catalog.need_queue(operation.database, operation.queue)
        self._connection.execute(self._sql.raise_archived, (queue.id, operation.lsn, now))
        (lsn,) = self._connection.execute(self._sql.get_archived, (queue.id,)).fetchone()
        return Archived(Lsn(lsn))

    def add_rollups(self, operation: AddRollups) -> RollupsAdded:
        """Add rows to what is kept, together with the state that says what they cover."""
        row = self._connection.execute(self._sql.get_rollup_state, (operation.database,)).fetchone()
        number = int(row[0]) if row else 0
        if number != operation.number:
            raise FlowOvertaken(f"another rollup has finished meanwhile ({number} of them, not {operation.number})")
        for rollup in add_up(operation.rows):
            self._add_rollup(operation.database, rollup)
        self._connection.execute(self._sql.set_rollup_state, (operation.database, number + 1, operation.state))
        return RollupsAdded(number + 1)

    def _add_rollup(self, database: str, row: Rollup) -> None:
        key = (database, row.resolution, row.bucket, row.queue, row.group, row.type)
        found = self._connection.execute(self._sql.get_rollup, key).fetchone()
        if found is not None:
            row = add(rollup_of((row.queue, row.group, row.type, row.resolution, row.bucket, *found)), row)
        bins = msgspec.json.encode(row.latency_bins).decode()
        figures = (row.pushed, row.bytes, row.late, row.completed, row.latency_total, row.latency_max, bins)
        self._connection.execute(self._sql.set_rollup, (*key, *figures, row.lag_max, row.retried, row.buried))


def rollup_of(row: tuple[Any, ...]) -> Rollup:
    """The rollup in a row of its table."""
    queue, group, kind, resolution, bucket, pushed, size, late, completed, total, longest, bins, lag, *rest = row
    try:
        counts = msgspec.json.decode(bins, type=dict[int, int])
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a rollup cannot be read: {error}") from error
    return Rollup(
        queue=queue,
        group=group,
        type=kind,
        resolution=resolution,
        bucket=bucket,
        pushed=pushed,
        bytes=size,
        late=late,
        completed=completed,
        latency_total=total,
        latency_max=longest,
        latency_bins=counts,
        lag_max=lag,
        retried=rest[0],
        buried=rest[1],
    )
