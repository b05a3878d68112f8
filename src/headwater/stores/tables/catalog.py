"""Names and numbers: queues, partitions and groups, looked up once and remembered while nobody else changes them.

Everything here runs under the write lock. What other processes add is met as a miss and read; what they change or
delete raises the catalog's version, and then everything remembered is dropped.
"""

import msgspec

from headwater.clock import Timestamp
from headwater.errors import InvalidOption, QueueMissing, StoreDamaged
from headwater.model.lane import Lane
from headwater.model.names import GroupId, Lsn, Offset, PartitionId, QueueId
from headwater.model.queue import (
    LANES_DEFAULT,
    QueueOptions,
    decode_group_options,
    decode_options,
    encode_options,
    merge_options,
)
from headwater.model.spreading import priority_of, reader_of
from headwater.stores.codec import Codec
from headwater.stores.tables.connection import Connection, Meta, Number, Text
from headwater.stores.tables.key_check import KeyCheck
from headwater.stores.tables.subject import Read, Seen, Subject

VERSION_KEY = "catalog_version"
# Partitions are without number: those that were looked up last are remembered, and all of them forgotten at times.
PARTITIONS_KNOWN_MAX = 32_768
# Number, database, name, namespace, task, options.
QueueRow = tuple[QueueId, str, str, str, str, str]
# Number, where it begins.
PartitionRow = tuple[PartitionId, Offset]
# The queue's number, name, where it begins.
NamedPartitionRow = tuple[QueueId, str, Offset]
# Number, from where on it reads, options.
GroupRow = tuple[GroupId, Lsn, str]


class Queue(msgspec.Struct, frozen=True, gc=False):
    """A queue's row."""

    id: QueueId
    database: str
    name: str
    namespace: str
    task: str
    options: QueueOptions


class Partition(msgspec.Struct, frozen=True, gc=False):
    """A partition's row, without what changes."""

    id: PartitionId
    queue: Queue
    name: str
    lane: Lane


class Group(msgspec.Struct, frozen=True, gc=False):
    """A consumer group's row, without what changes."""

    id: GroupId
    queue: Queue
    name: str
    since_lsn: Lsn
    options: QueueOptions
    """Those of the queue, with the group's own laid over them."""


class Catalog(Subject):
    """Looks names up and makes what is missing. `generation` rises whenever there may be new partitions, `rereads`
    whenever more may wait for a group than before: one was made, moved back or deleted."""

    def __init__(self, connection: Connection, codec: Codec) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._codec = codec
        self._key = KeyCheck(connection, codec)
        # A number that changes with names and options.
        self.version = -1
        self._newest_partition = 0
        self.generation = 0
        self.rereads = 0
        self._queues: dict[tuple[str, str], Queue] = {}
        self._partitions: dict[tuple[int, str], Partition] = {}
        self._partitions_by_id: dict[int, Partition] = {}
        self._groups: dict[tuple[int, str], Group] = {}
        # Whether a queue has lanes of a priority: those that have stay so, the others are looked at in each generation.
        self._priorities: dict[int, tuple[int, bool]] = {}

    def forget(self) -> None:
        """Drop everything remembered. What a group has met may have been undone: it meets its partitions again."""
        self.generation += 1
        self.rereads += 1
        self._queues.clear()
        self._partitions.clear()
        self._partitions_by_id.clear()
        self._groups.clear()
        self._priorities.clear()

    def catch_up(self, seen: Seen) -> None:
        """Others have committed: drop what is remembered if they changed names or options."""
        if seen.newest_partition != self._newest_partition:
            self._newest_partition = seen.newest_partition
            self.generation += 1
        if seen.catalog_version != self.version:
            self.version = seen.catalog_version
            self.forget()

    # ── what is remembered, without reading ──

    def known_queue(self, database: str, name: str) -> Queue | None:
        """The queue, if it is remembered."""
        return self._queues.get((database, name))

    def known_partition(self, queue: Queue, name: str) -> Partition | None:
        """The partition, if it is remembered."""
        return self._partitions.get((queue.id, name))

    def known_partition_by_id(self, number: PartitionId) -> Partition | None:
        """The partition with this number, if it is remembered."""
        return self._partitions_by_id.get(number)

    def known_group(self, queue: Queue, name: str) -> Group | None:
        """The group, if it is remembered."""
        return self._groups.get((queue.id, name))

    def foresee_priorities(self, queue: Queue) -> list[Read]:
        """What `has_priorities` will read: others may have made the first lane of a priority."""
        return [] if self.knows_priorities(queue) else [Read("has_priorities", (queue.id,))]

    def knows_priorities(self, queue: Queue) -> bool:
        """Whether it is remembered that the queue has lanes of a priority."""
        known = self._priorities.get(queue.id)
        return known is not None and known[1]

    # ── queues ──

    def find_queue(self, database: str, name: str) -> Queue | None:
        """The queue, or None."""
        queue = self._queues.get((database, name))
        if queue is None:
            row = self._connection.row(self._sql.find_queue, (database, name), QueueRow)
            if row is None:
                return None
            queue = self._queues[database, name] = _queue(row)
        return queue

    def need_queue(self, database: str, name: str) -> Queue:
        """The queue; an error when there is none."""
        queue = self.find_queue(database, name)
        if queue is None:
            raise QueueMissing(f"there is no queue {name!r}")
        return queue

    def make_queue(self, database: str, name: str, now: Timestamp, lanes: int = LANES_DEFAULT) -> Queue:
        """The queue, made with so many lanes and otherwise default options when it is new."""
        queue = self.find_queue(database, name)
        if queue is None:
            options = encode_options(QueueOptions(lanes=lanes))
            self._connection.run(self._sql.add_queue, (database, name, "", "", 0, options, now))
            queue = self.need_queue(database, name)
        return queue

    def queues_together(self, database: str, namespace: str, task: str) -> list[Queue]:
        """The queues of a namespace and task, the most urgent first."""
        rows = self._connection.rows(self._sql.find_queues_together, (database, namespace, task), QueueRow)
        return [_queue(row) for row in rows]

    def check(self, options: QueueOptions) -> None:
        """Raises when this process could not keep the messages of a queue with these options."""
        self._codec.check(options)
        self._key.check(options)

    # ── partitions ──

    def find_partition(self, queue: Queue, name: str) -> Partition | None:
        """The partition, or None."""
        partition = self._partitions.get((queue.id, name))
        if partition is None:
            row = self._connection.row(self._sql.find_partition, (queue.id, name), PartitionRow)
            if row is None:
                return None
            partition = self._remember(row[0], queue, name)
        return partition

    def make_partition(self, queue: Queue, name: str, now: Timestamp) -> Partition:
        """The partition, made when it is new."""
        partition = self.find_partition(queue, name)
        if partition is None:
            self._connection.run(self._sql.add_partition, (queue.id, name, reader_of(name), priority_of(name), now))
            self.generation += 1
            [(number, _)] = self._connection.rows(self._sql.find_partition, (queue.id, name), PartitionRow)
            partition = self._remember(number, queue, name)
        return partition

    def partition_by_id(self, number: PartitionId) -> Partition | None:
        """The partition with this number, or None."""
        partition = self._partitions_by_id.get(number)
        if partition is None:
            try:
                row = self._connection.row(self._sql.find_partition_by_id, (number,), NamedPartitionRow)
            except UnicodeDecodeError as error:
                raise StoreDamaged(f"the name of partition {number} cannot be read: {error}") from error
            if row is None:
                return None
            partition = self._remember(number, self.queue_by_id(row[0]), row[1])
        return partition

    def has_priorities(self, queue: Queue) -> bool:
        """Whether some messages of the queue were pushed with a priority, ever."""
        known = self._priorities.get(queue.id)
        if known is None or (known[0] != self.generation and not known[1]):
            [(found,)] = self._connection.rows(self._sql.has_priorities, (queue.id,), Number)
            known = self._priorities[queue.id] = (self.generation, bool(found))
        return known[1]

    def queue_by_id(self, number: QueueId) -> Queue:
        """The queue with this number."""
        [(_, database, name, *_)] = self._connection.rows(self._sql.find_queue_by_id, (number,), QueueRow)
        return self.need_queue(database, name)

    # ── groups ──

    def find_group(self, queue: Queue, name: str) -> Group | None:
        """The group, or None."""
        group = self._groups.get((queue.id, name))
        if group is None:
            row = self._connection.row(self._sql.find_group, (queue.id, name), GroupRow)
            if row is None:
                return None
            options = merge_options(queue.options, decode_group_options(row[2]))
            group = self._groups[queue.id, name] = Group(row[0], queue, name, row[1], options)
        return group

    def group_names(self, queue: Queue) -> list[str]:
        """The groups of a queue."""
        return [name for (name,) in self._connection.rows(self._sql.group_names, (queue.id,), Text)]

    def add_group(self, queue: Queue, name: str, since_lsn: Lsn, now: Timestamp) -> Group:
        """A new group that reads what came after `since_lsn`."""
        self._connection.run(self._sql.add_group, (queue.id, name, since_lsn, now))
        self.rereads += 1
        group = self.find_group(queue, name)
        if group is None:
            raise InvalidOption(f"group {name!r} could not be made")
        return group

    def take_back_group(self, group: Group) -> None:
        """Remove a group that this very commit has made, of which nobody else knows."""
        self._connection.run(self._sql.drop_group_cursors, (group.id,))
        self._connection.run(self._sql.drop_group, (group.id,))
        self._groups.pop((group.queue.id, group.name), None)

    def move_group(self, group: Group, since_lsn: Lsn, discovered: int) -> None:
        """Change from where a group reads partitions it has not met."""
        self._connection.run(self._sql.move_group, (since_lsn, discovered, group.id))
        self.changed()

    def subscription(self, database: str, group: str) -> Timestamp | None:
        """From when on a group reads queues that it has not read yet, if that was said."""
        row = self._connection.row(self._sql.get_subscription, (database, group), Number)
        return None if row is None else Timestamp(row[0])

    def _remember(self, number: PartitionId, queue: Queue, name: str) -> Partition:
        lane = Lane(queue.database, queue.name, queue.namespace, queue.task, name)
        partition = Partition(number, queue, name, lane)
        if len(self._partitions) >= PARTITIONS_KNOWN_MAX:
            self._partitions.clear()
            self._partitions_by_id.clear()
        self._partitions[partition.queue.id, partition.name] = partition
        self._partitions_by_id[partition.id] = partition
        return partition

    def changed(self) -> None:
        """Tell other processes, and ourselves, that names or options are not what they were."""
        self._connection.run(self._sql.set_meta, (VERSION_KEY, self._read_version() + 1))
        self.version = self._read_version()
        self.generation += 1
        self.forget()

    def _read_version(self) -> int:
        row = self._connection.row(self._sql.get_meta, (VERSION_KEY,), Meta)
        return int(row[0]) if row else 0


def _queue(row: QueueRow) -> Queue:
    number, database, name, namespace, task, options = row
    return Queue(QueueId(number), database, name, namespace, task, decode_options(options))
