"""Dropping what is old: whole segments, from the oldest on, a bounded number of partitions at a time."""

from collections.abc import Callable, Iterator

from headwater.clock import SECOND, Timestamp
from headwater.log.operations import Deleted, Forget, Retain, Retained
from headwater.log.room_operations import TrimRoom
from headwater.model.cursor import CLOCK_TOLERANCE
from headwater.model.names import Lsn, Offset, PartitionId, QueueId
from headwater.model.queue import QueueOptions, encode_options
from headwater.model.room import KEPT, PREFIX
from headwater.stores.tables.catalog import Catalog, Queue
from headwater.stores.tables.connection import Connection, Number
from headwater.stores.tables.segments import HeaderRow, Segments
from headwater.stores.tables.subject import Handlers, Subject

SEGMENTS_PER_PARTITION = 1_000
OPENED_MAX = 1_000
# Number, that of its queue.
PlaceRow = tuple[PartitionId, QueueId]
# A row for each that was dropped.
Dropped = tuple[int]
# How many groups read a partition, and the least position among them.
SlowestRow = tuple[int, int | None]
# Gives all groups of a queue a place in a partition.
MeetPartition = Callable[[Queue, PartitionId, Timestamp], None]
# Removes a queue with everything that belongs to it.
RemoveQueue = Callable[[Queue], None]
# So many rooms are removed at a time: each is more statements than dropping segments is.
ROOMS_PER_BITE = 100


class Retention(Subject):
    """Drops segments, idempotency keys and traces, under the write lock."""

    def __init__(
        self,
        connection: Connection,
        catalog: Catalog,
        segments: Segments,
        meet: MeetPartition,
        remove: RemoveQueue,
    ) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._segments = segments
        self._meet_partition = meet
        self._remove_queue = remove
        # How many segments were opened in this bite, to see whether they have transaction ids.
        self._opened = 0

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Retain: self.retain, Forget: self.forget_old, TrimRoom: self.trim}

    def retain(self, operation: Retain, now: Timestamp) -> Retained:
        """One bite of a round over all partitions."""
        dropped: list[int] = []
        self._opened = 0
        rows = self._connection.rows(self._sql.partitions_after, (operation.after, operation.limit), PlaceRow)
        for partition_id, queue_id in rows:
            queue = self._catalog.queue_by_id(queue_id)
            dropped.extend(self._drop_before(queue, partition_id, self._droppable(queue, partition_id, now), now))
        after = rows[-1][0] if len(rows) == operation.limit else PartitionId(0)
        rooms = self._drop_silent_rooms(operation.after, rows[-1][0]) if rows else 0
        return Retained(len(dropped), sum(dropped), after, rooms)

    def _drop_silent_rooms(self, after: PartitionId, through: PartitionId) -> int:
        """Remove rooms in which nothing was said, and that nobody has been in for a while: whoever may look on makes
        one by joining it. Where something was kept, offsets go on; and what people have configured stays."""
        asked = (after, through, encode_options(QueueOptions()), KEPT, ROOMS_PER_BITE)
        silent = self._connection.rows(self._sql.silent_rooms, asked, Number)
        for (queue_id,) in silent:
            self._remove_queue(self._catalog.queue_by_id(QueueId(queue_id)))
        return len(silent)

    def trim(self, operation: TrimRoom, now: Timestamp) -> Deleted:
        """Drop what everybody has got of a room; what has to be archived first is kept until then."""
        queue = self._catalog.find_queue(operation.database, operation.queue)
        partition = None if queue is None else self._catalog.find_partition(queue, KEPT)
        if queue is None or partition is None:
            return Deleted(0)
        through = min(operation.through, self._archived(queue)) if queue.options.archive_required else operation.through
        before = 0
        for lsn, first_offset, count, _, _ in self._oldest(partition.id):
            if lsn > through:
                break
            before = first_offset + count
        return Deleted(sum(self._drop_before(queue, partition.id, before, now)))

    def forget_old(self, operation: Forget, now: Timestamp) -> Deleted:
        """Drop old idempotency keys and traces."""
        bounds = (operation.before, operation.limit)
        keys = self._connection.rows(self._sql.forget_applied, bounds, Dropped)
        traces = self._connection.rows(self._sql.forget_traces, bounds, Dropped)
        return Deleted(len(keys) + len(traces))

    def _droppable(self, queue: Queue, partition_id: PartitionId, now: Timestamp) -> int:
        """The offset before which nothing of this partition has to be kept: offsets are dense, so no holes are made."""
        options = queue.options
        old = now - int(options.retention_seconds * SECOND) if options.retention_seconds else None
        completed = options.completed_retention_seconds
        old_completed = now - int(completed * SECOND) if completed else None
        recognised = _recognised_from(queue, now)
        passed = self._passed(queue, partition_id) if old_completed is not None else 0
        archived = self._archived(queue) if options.archive_required else None
        before = 0
        for lsn, first_offset, count, written_at, expires_at in self._oldest(partition_id):
            if archived is not None and lsn > archived:
                break
            if written_at > now + CLOCK_TOLERANCE:
                ahead = written_at - self._set_right(lsn, written_at)
                written_at, expires_at = Timestamp(written_at - ahead), expires_at and expires_at - ahead
            end = first_offset + count
            too_old = old is not None and written_at <= old
            done = old_completed is not None and end <= passed and written_at <= old_completed
            over = done or (expires_at is not None and expires_at <= now)
            if not too_old and (not over or (written_at >= recognised and self._may_have_ids(lsn))):
                break
            before = end
        return before

    def _set_right(self, lsn: Lsn, written_at: int) -> int:
        """When a segment was written by a clock that was ahead and is not any more: at the latest when it was set back.

        Else one such segment would keep all that is behind it in its partition until the clock is there again.
        """
        row = self._connection.row(self._sql.clock_became, (lsn,), Number)
        return min(written_at, row[0]) if row else written_at

    def _may_have_ids(self, lsn: Lsn) -> bool:
        """Beyond the bound nothing is opened: what it has is kept until the window of its queue is over."""
        self._opened += 1
        return self._opened > OPENED_MAX or self._segments.may_have_ids(lsn)

    def _archived(self, queue: Queue) -> int:
        """The LSN up to which the queue is in an archive."""
        row = self._connection.row(self._sql.get_archived, (queue.id,), Number)
        return row[0] if row else 0

    def _passed(self, queue: Queue, partition_id: PartitionId) -> int:
        """The position that every group of the queue has reached."""
        [(groups,)] = self._connection.rows(self._sql.count_groups, (queue.id, partition_id), Number)
        [(cursors, slowest)] = self._connection.rows(self._sql.slowest_position, (partition_id,), SlowestRow)
        return slowest if slowest is not None and cursors == groups else 0

    def _drop_before(self, queue: Queue, partition_id: PartitionId, offset: int, now: Timestamp) -> list[int]:
        """Drop the segments before `offset`; how many records each had. Groups that have not been there lose them as
        all others do."""
        if not offset:
            return []
        whole = [
            (first + count, count) for _, first, count, _, _ in self._oldest(partition_id) if first + count <= offset
        ]
        if whole:
            self._meet_partition(queue, partition_id, now)
            self._segments.drop_before(partition_id, Offset(whole[-1][0]))
        return [count for _, count in whole]

    def _oldest(self, partition_id: PartitionId) -> Iterator[HeaderRow]:
        """The segments of a partition from the oldest on, as many as are dropped at a time."""
        return self._connection.each(self._sql.oldest_segments, (partition_id, SEGMENTS_PER_PARTITION), HeaderRow)


def _recognised_from(queue: Queue, now: Timestamp) -> int:
    """Transaction ids written from then on are recognised when they come again. What is said in rooms has none."""
    return now if queue.name.startswith(PREFIX) else now - int(queue.options.recognised_seconds() * SECOND)
