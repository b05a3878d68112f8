"""Queues as operations change them, and as lists show them. `catalog.py` remembers them."""

from typing import NamedTuple

from headwater.clock import Timestamp
from headwater.log.operations import Configure, Configured, Deleted, DeleteQueue
from headwater.model.lane import Lane
from headwater.model.names import Offset, PartitionId
from headwater.model.own_queues import check_not_own
from headwater.model.queue import QueueOptions, decode_options, encode_options, merge_options
from headwater.stores.questions import FindLane, ListPartitions, ListQueues, PartitionStatus, QueueStatus
from headwater.stores.tables.catalog import Catalog, Queue
from headwater.stores.tables.connection import Columns, Connection, Number
from headwater.stores.tables.cursors import Cursors
from headwater.stores.tables.patterns import as_patterns
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.subject import Answering, Handlers, Subject, SubjectAnswers


class Queues(Subject):
    """All queues, under the write lock."""

    def __init__(self, connection: Connection, catalog: Catalog, segments: Segments, cursors: Cursors) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._segments = segments
        self._cursors = cursors

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Configure: self.configure, DeleteQueue: self.delete}

    def configure(self, operation: Configure, now: Timestamp) -> Configured:
        """Make or change a queue."""
        known = self._catalog.find_queue(operation.database, operation.queue)
        if known is None:
            check_not_own(operation.queue, "they are made by what they are for, and can be configured then")
        options = merge_options(known.options if known else QueueOptions(lanes=operation.lanes), operation.options)
        self._catalog.check(options)
        queue = known or self._catalog.make_queue(operation.database, operation.queue, now)
        namespace = queue.namespace if operation.namespace is None else operation.namespace
        task = queue.task if operation.task is None else operation.task
        self._connection.run(
            self._sql.change_queue, (namespace, task, options.priority, encode_options(options), queue.id)
        )
        self._catalog.changed()
        return Configured(queue.name, namespace, task, options.in_force())

    def delete(self, operation: DeleteQueue, now: Timestamp) -> Deleted:
        """Remove a queue with everything that belongs to it."""
        queue = self._catalog.find_queue(operation.database, operation.queue)
        if queue is None:
            return Deleted(0)
        self.remove(queue)
        return Deleted(1)

    def remove(self, queue: Queue) -> None:
        """Remove a queue that is there."""
        # LSNs never come back, even if the newest segments go.
        self._connection.run(self._sql.raise_meta, ("last_lsn", self._segments.last_lsn))
        for statement in (
            self._sql.drop_queue_segments,
            self._sql.drop_queue_cursors,
            self._sql.drop_queue_groups,
            self._sql.drop_queue_dead_letters,
            self._sql.drop_queue_traces,
            self._sql.drop_queue_drops,
            self._sql.drop_queue_delayed_ids,
            self._sql.drop_queue_delayed,
            self._sql.drop_queue_loaded,
            self._sql.drop_queue_archived,
            self._sql.drop_queue_partitions,
            self._sql.drop_queue,
        ):
            self._connection.run(statement, (queue.id,))
        self._catalog.changed()
        self._segments.forget_ends()
        self._cursors.forget()


# Queue, partition and its number, where its records begin and end, when it was made.
PartitionStatusRow = tuple[str, str, PartitionId, Offset, Offset, Timestamp]
# Database, queue, namespace, task, partition.
LaneRow = tuple[str, str, str, str, str]


class QueueRow(NamedTuple):
    """A queue as lists show it."""

    database: str
    name: str
    namespace: str
    task: str
    options: str
    created_at: int
    partitions: int
    records: int
    dead_letters: int
    id: int


class QueueAnswers(SubjectAnswers):
    """Reads queues and partitions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Answering:
        """What answers which question."""
        return {ListQueues: self.queues, ListPartitions: self.partitions, FindLane: self.lane}

    def queues(self, asked: ListQueues) -> list[QueueStatus]:
        """The queues of a database with their sizes."""
        about = (asked.database, asked.part.after[0], as_patterns(asked.part.patterns), asked.part.limit)
        rows = self._connection.rows(self._sql.queue_list, about, Columns)
        return [self._status(QueueRow._make(row)) for row in rows]

    def _status(self, row: QueueRow) -> QueueStatus:
        [(waiting,)] = self._connection.rows(self._sql.queue_waiting, (row.id,), Number)
        [(delayed,)] = self._connection.rows(self._sql.queue_delayed, (row.id,), Number)
        return QueueStatus(
            database=row.database,
            queue=row.name,
            namespace=row.namespace,
            task=row.task,
            options=decode_options(row.options).in_force(),
            partitions=row.partitions,
            records=row.records,
            waiting=waiting,
            dead_letters=row.dead_letters,
            created_at=Timestamp(row.created_at),
            delayed=delayed,
        )

    def partitions(self, asked: ListPartitions) -> list[PartitionStatus]:
        """Partitions with where their records begin and end."""
        about = (asked.database, asked.queue, asked.after, asked.limit, as_patterns(asked.patterns))
        rows = self._connection.rows(self._sql.partition_list, about, PartitionStatusRow)
        return [PartitionStatus(*row) for row in rows]

    def lane(self, asked: FindLane) -> Lane | None:
        """The address of a partition."""
        return read_lane(self._connection, asked.partition_id)


def read_lane(connection: Connection, partition_id: PartitionId) -> Lane | None:
    """The address of a partition."""
    row = connection.row(connection.sql.find_lane, (partition_id,), LaneRow)
    return None if row is None else Lane(*row)
