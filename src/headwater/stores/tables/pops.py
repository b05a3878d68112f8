"""Leasing: which partition a pop gets, and which of its records.

A pop finds a partition through the `ready_at` index, never by looking at partitions that have nothing, so 100,000 of
them cost as much as ten. Partitions that are new to a group get their cursor at its next pops, some at a time. While
others want the same, a pop takes no more than its share of what is ready.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.config import MIB
from headwater.errors import EncryptionKeyMissing, HeadwaterError, StoreDamaged
from headwater.log.operations import Ack, Advance, Batch, Extend, Operation, Pop, Popped
from headwater.model import cursor as rules
from headwater.model.cursor import Cursor
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.record import Record
from headwater.model.spreading import share_of
from headwater.stores.tables.catalog import Catalog, Group, Partition, Queue
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.cursors import Cursors
from headwater.stores.tables.delayed import Delayed
from headwater.stores.tables.gathering import Found, collect
from headwater.stores.tables.segments import SegmentHeader, Segments, read_lsn_at
from headwater.stores.tables.subject import Handlers, Phase, Read, Subject, Together

DISCOVER_LIMIT = 256
DISCOVER_FEW = 8
POSTPONE_DAMAGED_SECONDS = 60
WINDOWS_MAX = 10
READY_MAX = 1_024
# A pop brings records of so many bytes, and always one; pops of one commit together, besides one record each, so many.
POP_BYTES_MAX = 4 * MIB
POPS_BYTES_MAX = 64 * MIB
# A pop that is not bound to a number of partitions looks at so many at once: most often the first ones fill its batch.
LOOK_AT = 8

# A partition that a group has not met, and where it begins; one that it has met, and when it is worth looking at.
UnmetRow = tuple[PartitionId, Offset]
# The name of a group, where a partition begins that it has not met.
UnmetGroupRow = tuple[str, Offset]
MetRow = tuple[PartitionId, int | None]


class Pops(Subject):
    """Pops of all groups, under the write lock."""

    phases = MappingProxyType({Pop: Phase.POPS})

    def __init__(
        self, connection: Connection, catalog: Catalog, segments: Segments, cursors: Cursors, delayed: Delayed
    ) -> None:
        self._delayed = delayed
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._segments = segments
        self._cursors = cursors
        self._discovered: dict[int, int] = {}
        self._discovered_urgent: dict[int, int] = {}
        self._ahead: dict[int, int] = {}
        self._spare: dict[int, list[tuple[PartitionId, Cursor]]] = {}
        self._alike: Mapping[tuple[str, ...], int] = {}
        self._allowed: dict[tuple[int, tuple[str, ...]], int] = {}
        # Bytes that pops of this commit may bring, and the one under way.
        self._room_together = 0
        self._room = 0

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Pop: self.pop}

    def together(self) -> Mapping[type[Operation], Together]:
        """What applies many at once."""
        return {Pop: self.pop_together}

    def foresee(self, operations: Sequence[Operation], now: Timestamp) -> list[Read]:
        """Queues and groups that are not remembered, and the partitions that a group may lease.

        Positions that this commit reports on are passed over by a pop that comes later: so many more are asked for.
        """
        pops = [operation for operation in operations if isinstance(operation, Pop)]
        alike = Counter(map(_key, pops))
        reported = sum(isinstance(operation, Ack | Advance | Extend) for operation in operations)
        found: list[Read] = []
        for pop in pops:
            queue = self._catalog.known_queue(pop.database, pop.queue) if pop.queue else None
            if queue is not None:
                found += self._foresee_pop(pop, queue, alike[_key(pop)], reported, now)
            elif pop.queue:
                found.append(Read("find_queue", (pop.database, pop.queue)))
            else:
                found.append(Read("find_queues_together", (pop.database, pop.namespace, pop.task)))
        return found

    def _foresee_pop(self, pop: Pop, queue: Queue, alike: int, reported: int, now: Timestamp) -> list[Read]:
        group = self._catalog.known_group(queue, pop.group)
        if group is None:
            return [Read("find_group", (queue.id, pop.group)), Read("get_subscription", (pop.database, pop.group))]
        found = self._catalog.foresee_priorities(queue)
        if group.since_lsn and self._discovered.get(group.id) != self._catalog.generation:
            reach = pop.partitions or min(pop.batch, LOOK_AT)
            found.append(Read("undiscovered_partitions", (group.id, DISCOVER_FEW + reach)))
        if pop.partition:
            partition = self._catalog.known_partition(queue, pop.partition)
            if partition is None:
                return [*found, Read("find_partition", (queue.id, pop.partition))]
            return [*found, Read("get_cursor", (group.id, partition.id))]
        asked = pop.partitions or pop.batch
        sharers = max(alike, pop.sharers + 1)
        wanted = min(asked, pop.partitions or LOOK_AT) * alike
        limit = min(max(wanted, asked * sharers if sharers > 1 and asked > 1 else 0), READY_MAX)
        if self._catalog.knows_priorities(queue):
            found.append(Read("urgent_cursors", (group.id, queue.id, now, limit)))
        ready = Read("ready_cursors", (group.id, now, limit + reported))
        return [*found, ready, Read("next_ready", (group.id,))]

    def forget(self) -> None:
        """After a rollback: partitions that a group met may be new to it again."""
        self._discovered.clear()
        self._discovered_urgent.clear()
        self._ahead.clear()
        self._spare.clear()

    def pop(self, operation: Pop, now: Timestamp) -> Popped:
        """Lease what is ready: of one partition, one queue, or the queues of a namespace and task."""
        self._begin((operation,))
        return self._pop(operation, now)

    def pop_together(self, operations: Sequence[Pop], now: Timestamp) -> list[Popped | HeadwaterError]:
        """The same for pops between which nothing else happens: where one found nothing, the next need not look."""
        if len(operations) == 1:
            try:
                return [self.pop(operations[0], now)]
            except HeadwaterError as error:
                return [error]
        self._begin(operations)
        found: list[Popped | HeadwaterError] = []
        empty: dict[tuple[str, ...], Popped] = {}
        for operation in operations:
            key = _key(operation)
            popped: Popped | HeadwaterError | None = empty.get(key)
            if popped is None:
                try:
                    popped = self._pop(operation, now)
                except HeadwaterError as error:
                    popped = error
                else:
                    if not popped.batches:
                        empty[key] = popped
            found.append(popped)
        return found

    def _begin(self, operations: Sequence[Pop]) -> None:
        """What was found for others before may not be so any more."""
        self._spare.clear()
        self._allowed.clear()
        self._room_together = POPS_BYTES_MAX
        self._alike = Counter(map(_key, operations)) if len(operations) > 1 else {}

    def _pop(self, operation: Pop, now: Timestamp) -> Popped:
        """A queue that this process has no key for is passed over; when nothing else is found, that is the answer."""
        batches: list[Batch] = []
        self._room = granted = min(POP_BYTES_MAX, self._room_together)
        ready_at: list[int] = []
        locked: EncryptionKeyMissing | None = None
        for queue in self._queues(operation, now):
            known = self._catalog.find_group(queue, operation.group)
            group = known or self._make_group(queue, operation, now)
            try:
                self._take(operation, group, now, batches)
            except EncryptionKeyMissing as error:
                locked = error
                if known is None and not any(batch.queue == queue.name for batch in batches):
                    self._take_back(group)
                continue
            if self._is_satisfied(operation, batches, operation.partitions or operation.batch):
                break
            if not batches:
                ready_at.extend(self._next_ready(operation, group))
        self._room_together -= granted - self._room
        if locked is not None and not batches:
            raise locked
        due = None if batches else self._delayed.next_due()
        if due is not None:
            ready_at.append(due)
        return Popped(batches, Timestamp(min(ready_at)) if ready_at and not batches else None)

    def discover_all(self, group: Group, now: Timestamp) -> None:
        """Give the group a cursor in every partition there is."""
        self._discover_urgent(group, now)
        while self._discover(group, now, DISCOVER_LIMIT):
            pass

    def _queues(self, operation: Pop, now: Timestamp) -> Iterable[Queue]:
        if not operation.queue:
            return self._catalog.queues_together(operation.database, operation.namespace, operation.task)
        if operation.subscribe != "all" or operation.since is not None:
            # The group's beginning is now, so it must be noted now, even before the first push.
            return [self._catalog.make_queue(operation.database, operation.queue, now, operation.lanes)]
        queue = self._catalog.find_queue(operation.database, operation.queue)
        return [] if queue is None else [queue]

    def _make_group(self, queue: Queue, operation: Pop, now: Timestamp) -> Group:
        since = Lsn(0)
        begins_at = rules.check_not_ahead("since", operation.since, now)
        if begins_at is None and operation.subscribe != "new":
            begins_at = self._catalog.subscription(queue.database, operation.group)
        if begins_at is not None:
            since = read_lsn_at(self._connection, begins_at, self._segments.last_lsn)
        elif operation.subscribe == "new":
            since = self._segments.last_lsn
        return self._catalog.add_group(queue, operation.group, since, now)

    def _take_back(self, group: Group) -> None:
        """Undo the making of a group. Its number is never used again: what is remembered by it would only pile up."""
        self._cursors.forget_group(group)
        self._catalog.take_back_group(group)
        for remembered in (self._discovered, self._discovered_urgent, self._ahead, self._spare):
            remembered.pop(group.id, None)

    def _take(self, operation: Pop, group: Group, now: Timestamp, batches: list[Batch]) -> None:
        """Add batches from the ready partitions of one group. A partition that gives nothing is not ready any more."""
        self._discover_urgent(group, now)
        # New partitions are met at every pop, lest those that always have something starve them; but some at a time: as
        # long as some of the last ones are left, later ones would wait behind them anyway.
        reach = operation.partitions or min(operation.batch, LOOK_AT)
        ahead = self._ahead.get(group.id, 0) or self._discover(group, now, DISCOVER_FEW + reach)
        self._ahead[group.id] = max(ahead - reach, 0)
        allowed = len(batches) + self._allowance(operation, group, now)
        bound = min(allowed, operation.partitions or operation.batch)
        while not self._is_satisfied(operation, batches, bound):
            wanted = min(bound - len(batches), operation.partitions or LOOK_AT)
            candidates = self._candidates(operation, group, now, wanted)
            for partition_id, cursor in candidates:
                self._take_from(operation, group, partition_id, cursor, now, batches)
                if self._is_satisfied(operation, batches, bound):
                    return
            if (operation.partition or not candidates) and not self._discover(group, now, DISCOVER_LIMIT):
                return

    def _is_satisfied(self, operation: Pop, batches: list[Batch], bound: int) -> bool:
        """Whether a pop has enough: records of so many partitions, a full batch, or as many bytes as it may bring."""
        if not batches:
            return False
        if len(batches) >= bound or self._room <= 0:
            return True
        return sum([len(batch.offsets) for batch in batches]) >= operation.batch

    def _allowance(self, operation: Pop, group: Group, now: Timestamp) -> int:
        """How many partitions of a group this pop may take: as many as it asks for, its share while others wait."""
        asked = operation.partitions or operation.batch
        if asked == 1 or not (self._alike or operation.sharers):
            return asked
        key = _key(operation)
        sharers = max(self._alike.get(key, 1), operation.sharers + 1)
        if sharers == 1:
            return asked
        allowed = self._allowed.get((group.id, key))
        if allowed is None:
            ready = len(self._cursors.ready(group, now, min(asked * sharers, READY_MAX)))
            allowed = self._allowed[group.id, key] = share_of(ready, sharers)
        return min(asked, allowed)

    def _candidates(self, operation: Pop, group: Group, now: int, limit: int) -> list[tuple[PartitionId, Cursor]]:
        if not operation.partition:
            return self._ready(operation, group, now, limit)
        # It may be among those that were found for the group: they are looked for anew.
        self._spare.pop(group.id, None)
        partition = self._catalog.find_partition(group.queue, operation.partition)
        cursor = None if partition is None else self._cursors.find(group, partition.id)
        if partition and cursor and cursor.ready_at is not None and cursor.ready_at <= now:
            return [(partition.id, cursor)]
        return []

    def _ready(self, operation: Pop, group: Group, now: int, limit: int) -> list[tuple[PartitionId, Cursor]]:
        """Ready partitions of a group, each given out once. Pops of one commit that want the same ask once."""
        if not self._alike:
            return self._cursors.ready(group, now, limit)
        found = self._spare.get(group.id)
        if not found:
            together = self._alike.get(_key(operation), 1) * limit
            found = self._cursors.ready(group, now, min(together, READY_MAX))
            found.reverse()
            self._spare[group.id] = found
        chosen = found[-limit:]
        del found[-limit:]
        chosen.reverse()
        return chosen

    def _take_from(
        self,
        operation: Pop,
        group: Group,
        partition_id: PartitionId,
        cursor: Cursor,
        now: Timestamp,
        batches: list[Batch],
    ) -> None:
        """Add one partition's batch. A damaged one is put off, so that the others are served, and the error is told: by
        this pop, or when this one has something to bring, by the next."""
        wanted = operation.batch - sum([len(batch.offsets) for batch in batches])
        try:
            partition = self._catalog.partition_by_id(partition_id)
            if partition is None:
                self._cursors.put_off(group, partition_id, None)
                return
            batch = self._lease(operation, group, partition, cursor, wanted, now)
        except StoreDamaged:
            self._cursors.put_off(group, partition_id, now + (1 if batches else POSTPONE_DAMAGED_SECONDS * SECOND))
            if not batches:
                raise
            return
        if batch is not None:
            batches.append(batch)

    def _lease(
        self, operation: Pop, group: Group, partition: Partition, cursor: Cursor, wanted: int, now: Timestamp
    ) -> Batch | None:
        if cursor.lease_until is not None:
            cursor, _ = self._cursors.expire(group, partition, cursor, now)
            self._cursors.write(group, partition.id, cursor)
        found = self._gather(partition, cursor, wanted, now)
        if not found.lost or found.offsets or found.due_at is None:
            # A loss is told with the next record: while one is on its way, the position stays before the loss.
            cursor = found.cursor
            if found.lost:
                self._connection.run(self._sql.count_lost, (found.lost, group.id))
        if not found.offsets:
            ready_at = found.due_at if cursor.position < self._segments.end(partition.id) else None
            self._cursors.write(group, partition.id, msgspec.structs.replace(cursor, ready_at=ready_at))
            return None
        self._room = found.room
        seconds = group.options.lease_seconds if operation.lease_seconds is None else operation.lease_seconds
        leased = rules.lease(cursor, found.offsets[-1] + 1, seconds, now, operation.holder)
        after = leased
        if operation.auto_ack:
            after = self._cursors.caught_up(rules.settle_all(leased, now), partition.id)
        self._cursors.write(group, partition.id, after)
        if leased.attempts > 1:
            self._connection.run(self._sql.count_retried, (len(found.offsets), group.id))
        return Batch(
            queue=group.queue.name,
            partition=partition.name,
            partition_id=partition.id,
            group=group.name,
            token=0 if operation.auto_ack else leased.token,
            lease_until=Timestamp(leased.lease_until or now),
            attempts=leased.attempts,
            offsets=found.offsets,
            written_at=found.written_at,
            lsns=found.lsns,
            records=found.records,
            lost=found.lost,
        )

    def _gather(self, partition: Partition, cursor: Cursor, wanted: int, now: int) -> Found:
        """The records that may be delivered from this position."""
        options = partition.queue.options
        delay = int(options.delay_seconds * SECOND)
        limit, stop = rules.deliverable(cursor, wanted)
        found = Found(cursor, self._room)
        for header in self._segments.headers(partition.id, Offset(cursor.position)):
            if not found.offsets and self._skip(found, header, now):
                cursor = found.cursor
                limit, stop = rules.deliverable(cursor, wanted)
            if header.expires_at is not None and header.expires_at <= now:
                if found.offsets:
                    break
                continue
            if delay and rules.is_due_later(header.written_at + delay, delay, now):
                found.due_at = header.written_at + delay
                break
            records = self._records(partition, header, found)
            if records is None:
                break
            collect(found, header, records, cursor, limit, stop)
            if (
                found.ended
                or found.room <= 0
                or len(found.offsets) >= limit
                or (stop is not None and header.first_offset + header.count >= stop)
            ):
                break
        if options.window_seconds and found.offsets:
            self._hold_for_window(partition, found, now)
        return found

    def _records(self, partition: Partition, header: SegmentHeader, found: Found) -> list[Record] | None:
        """The records of a segment; None when they are damaged and others before them can be delivered first."""
        try:
            return self._segments.records_of(header)
        except StoreDamaged as error:
            if found.offsets:
                return None
            last = header.first_offset + header.count - 1
            raise StoreDamaged(
                f"records {header.first_offset:,} to {last:,} of {partition.queue.name}, partition {partition.name}, "
                f"cannot be read, and those behind them wait: {error}; "
                "`headwater store give-up-damaged` passes them over"
            ) from error

    def _skip(self, found: Found, header: SegmentHeader, now: int) -> bool:
        """Move over records that are not there, and over a segment whose time is over; whether there was any."""
        begin, end = found.cursor.position, header.first_offset
        if begin < end:
            found.lost += end - begin
        if header.expires_at is not None and header.expires_at <= now:
            end = Offset(header.first_offset + header.count)
        if begin >= end:
            return False
        found.cursor = rules.skip(found.cursor, end)
        return True

    def _hold_for_window(self, partition: Partition, found: Found, now: int) -> None:
        """Keep a partition back until it is quiet, but no record longer than ten windows."""
        window = int(partition.queue.options.window_seconds * SECOND)
        quiet_at = self._segments.last_written_at(partition.id) + window
        due_at = min(quiet_at, found.written_at[0] + WINDOWS_MAX * window)
        if rules.is_due_later(due_at, window, now):
            found.offsets.clear()
            found.due_at = due_at

    def _discover(self, group: Group, now: Timestamp, limit: int) -> int:
        """Give the group a cursor in partitions that are new to it; how many there were, up to `limit`."""
        if self._discovered.get(group.id) == self._catalog.generation:
            return 0
        if group.since_lsn == 0:
            met = self._connection.rows(self._sql.discover, (group.id, now, limit), MetRow)
        else:
            met = [self._meet(group, number, start, now) for number, start in self._unmet(group, limit)]
        for partition_id, ready_at in met:
            if ready_at is None:
                self._segments.idle(partition_id)
        if met:
            self._connection.run(self._sql.set_discovered, (max(partition_id for partition_id, _ in met), group.id))
        if len(met) < limit:
            self._discovered[group.id] = self._catalog.generation
        return len(met)

    def _discover_urgent(self, group: Group, now: Timestamp) -> None:
        """Give the group a cursor in all partitions of a priority: they are few, and do not wait behind the others."""
        generation = self._catalog.generation
        if not self._catalog.has_priorities(group.queue) or self._discovered_urgent.get(group.id) == generation:
            return
        self._discovered_urgent[group.id] = generation
        urgent = self._connection.rows(self._sql.undiscovered_urgent, (group.id,), UnmetRow)
        for number, start in urgent:
            partition_id, ready_at = self._meet(group, number, start, now)
            if ready_at is None:
                self._segments.idle(partition_id)

    def meet_partition(self, queue: Queue, partition_id: PartitionId, now: Timestamp) -> None:
        """Give all groups of a queue a cursor in a partition, before records of it go: what a group has not met by then
        would be missing without a word."""
        for name, start in self._connection.rows(self._sql.unmet_groups, (partition_id,), UnmetGroupRow):
            group = self._catalog.find_group(queue, name)
            if group is not None:
                self._meet(group, partition_id, start, now)

    def _unmet(self, group: Group, limit: int) -> list[UnmetRow]:
        return self._connection.rows(self._sql.undiscovered_partitions, (group.id, limit), UnmetRow)

    def _meet(self, group: Group, partition_id: PartitionId, start: Offset, now: int) -> MetRow:
        """A cursor for a group that began later than the partition."""
        position = self._segments.first_after(partition_id, start, group.since_lsn)
        ready_at = now if position < self._segments.end(partition_id) else None
        self._connection.run(self._sql.add_cursor, (group.id, partition_id, position, now, ready_at))
        return partition_id, ready_at

    def _next_ready(self, operation: Pop, group: Group) -> list[int]:
        if operation.partition:
            partition = self._catalog.find_partition(group.queue, operation.partition)
            cursor = None if partition is None else self._cursors.find(group, partition.id)
            ready_at = None if cursor is None else cursor.ready_at
        else:
            ready_at = self._cursors.next_ready_at(group)
        return [] if ready_at is None else [ready_at]


def _key(operation: Pop) -> tuple[str, ...]:
    """What pops must have in common to find the same."""
    return (
        operation.database,
        operation.queue,
        operation.partition,
        operation.namespace,
        operation.task,
        operation.group,
    )
