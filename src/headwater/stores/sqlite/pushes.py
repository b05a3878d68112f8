"""Appending: which partition each pushed record goes to, and one segment for all that go to the same one.

Records whose push names no partition are spread over the lanes of their queue, all those of a commit together, so that
a commit writes no more rows than the queue has lanes. `model/spreading.py` has the rules.
"""

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.errors import HeadwaterError, QueueFull
from headwater.log.flow_operations import Load
from headwater.log.operations import Push, Pushed
from headwater.model.names import Offset
from headwater.model.record import Record
from headwater.model.spreading import deal, lane_name, lane_of_id
from headwater.stores.sqlite.catalog import Catalog, Partition, Queue
from headwater.stores.sqlite.connection import Connection
from headwater.stores.sqlite.delayed import NO_OFFSET, Delayed
from headwater.stores.sqlite.segments import Segments
from headwater.stores.statements import load_statements

sql = load_statements(__package__)

TURNS_MAX = 10_000


_transaction_id = operator.attrgetter("transaction_id")


class Share(NamedTuple):
    """Records of one push that go to one partition: all of them, or the `members` by index."""

    push: int
    records: Sequence[Record]
    members: Sequence[int] | None = None


class Stack(NamedTuple):
    """What becomes one segment."""

    partition: Partition
    ttl_seconds: float | None
    shares: list[Share]


# By partition, time to live, and whether the partition was chosen here: a push by name fails without those.
Stacks = dict[tuple[int, float | None, bool], Stack]


class Pushes:
    """Pushes to all queues, under the write lock."""

    def __init__(self, connection: Connection, catalog: Catalog, segments: Segments, delayed: Delayed) -> None:
        self._delayed = delayed
        self._connection = connection
        self._catalog = catalog
        self._segments = segments
        self._waiting: dict[int, int] = {}
        self._placed: dict[int, int] = {}
        # Whose turn it is among the lanes of a queue. It need not be right, only go on.
        self._turns: dict[tuple[int, int], int] = {}

    def forget(self) -> None:
        """Others may have pushed or popped: what waits is counted again when it matters."""
        self._waiting.clear()

    def push(self, pushes: Sequence[Push], now: Timestamp) -> list[Pushed | HeadwaterError]:
        """Where the records of each push are, or why it failed; one that fails leaves no trace."""
        if not pushes:
            return []
        results: list[Any] = [None] * len(pushes)
        self._placed.clear()
        stacks: Stacks = {}
        loose: dict[tuple[int, float | None, int], tuple[Queue, list[int]]] = {}
        later: list[tuple[Queue, int]] = []
        for index, push in enumerate(pushes):
            try:
                queue = self._catalog.make_queue(push.database, push.queue, now, push.lanes)
                self.need_room(queue, len(push.records))
                if push.delay_seconds:
                    later.append((queue, index))
                    continue
                if not push.partition:
                    key = (queue.id, push.ttl_seconds, push.priority)
                    loose.setdefault(key, (queue, []))[1].append(index)
                    continue
                partition = self._named(queue, push.partition, now)
            except HeadwaterError as error:
                results[index] = error
                continue
            place = (partition.id, push.ttl_seconds, False)
            stack = stacks.get(place)
            if stack is None:
                stack = stacks[place] = Stack(partition, push.ttl_seconds, [])
            stack.shares.append(Share(index, push.records))
        for queue, indexes in loose.values():
            self._spread(queue, pushes, indexes, stacks, results, now)
        for stack in stacks.values():
            self._append(stack, results, now)
        for queue, index in later:
            self._delay(queue, pushes, index, results, now)
        return results

    def place(self, load: Load, now: Timestamp) -> Partition:
        """The partition that a load names, once there is room in its queue."""
        self._placed.clear()
        queue = self._catalog.make_queue(load.database, load.queue, now)
        self.need_room(queue, len(load.records))
        return self._named(queue, load.partition, now)

    def _named(self, queue: Queue, name: str, now: Timestamp) -> Partition:
        """The partition of this name; a new one if the queue may have one more."""
        limit = queue.options.partitions_max
        if limit and self._catalog.find_partition(queue, name) is None:
            (count,) = self._connection.execute(sql.count_partitions, (queue.id,)).fetchone()
            if count >= limit:
                raise QueueFull(f"queue {queue.name!r} has {count:,} partitions, as many as its partitions_max allows")
        return self._catalog.make_partition(queue, name, now)

    def need_room(self, queue: Queue, count: int) -> None:
        """Raises when the queue is full. What waits is counted only when the last count no longer leaves room."""
        limit = queue.options.size_max
        if not limit:
            return
        placed = self._placed.get(queue.id, 0)
        waiting = self._waiting.get(queue.id)
        if waiting is None or waiting + count > limit:
            (kept,) = self._connection.execute(sql.queue_waiting, (queue.id,)).fetchone()
            (delayed,) = self._connection.execute(sql.queue_delayed, (queue.id,)).fetchone()
            waiting = int(kept) + int(delayed) + placed
        if waiting + count > limit:
            self._waiting.pop(queue.id, None)
            raise QueueFull(f"queue {queue.name!r} holds {waiting:,} waiting records of at most {limit:,}")
        self._waiting[queue.id] = waiting + count
        self._placed[queue.id] = placed + count

    # ── lanes ──

    def _spread(
        self,
        queue: Queue,
        pushes: Sequence[Push],
        indexes: Sequence[int],
        stacks: Stacks,
        results: list[Any],
        now: Timestamp,
    ) -> None:
        """Put the records of pushes without a partition, all of one priority, onto the lanes of their queue."""
        lanes, priority = queue.options.lanes, pushes[indexes[0]].priority
        plain: list[tuple[int, Sequence[Record]]] = []
        for index in indexes:
            records = pushes[index].records
            if lanes == 1 or not any(map(_transaction_id, records)):
                plain.append((index, records))
                continue
            try:
                shares = self._shares_by_id(queue, priority, index, records, now)
            except HeadwaterError as error:
                results[index] = error
                continue
            for partition, share in shares:
                _stack(stacks, partition, pushes[index].ttl_seconds, share)
        total = sum([len(records) for _, records in plain])
        if not total:
            return
        chunks = deal(total, lanes, self._turn(queue, priority, min(total, lanes)))
        for lane, share in _cut(plain, chunks):
            partition = self._catalog.make_partition(queue, lane_name(lane, priority), now)
            _stack(stacks, partition, pushes[share.push].ttl_seconds, share)

    def _shares_by_id(
        self, queue: Queue, priority: int, index: int, records: Sequence[Record], now: Timestamp
    ) -> list[tuple[Partition, Share]]:
        """The records of a push with transaction ids by their lanes. It goes to all of them or to none: what it must
        be compared with is read first."""
        lanes = queue.options.lanes
        members: dict[int, list[int]] = {}
        plain: list[int] = []
        for place, record in enumerate(records):
            if record.transaction_id:
                members.setdefault(lane_of_id(record.transaction_id, lanes), []).append(place)
            else:
                plain.append(place)
        if plain:
            for lane, begin, end in deal(len(plain), lanes, self._turn(queue, priority, min(len(plain), lanes))):
                members.setdefault(lane, []).extend(plain[begin:end])
        shares = [
            (
                self._catalog.make_partition(queue, lane_name(lane, priority), now),
                Share(index, [records[place] for place in places], None if len(members) == 1 else places),
            )
            for lane, places in members.items()
        ]
        if len(shares) > 1:
            for partition, share in shares:
                self._segments.duplicates(partition, share.records, now, remember=False)
        return shares

    def choose_lane(self, queue: Queue, transaction_id: str, now: Timestamp, priority: int = 0) -> Partition:
        """The lane for one record that names no partition."""
        lanes = queue.options.lanes
        lane = lane_of_id(transaction_id, lanes) if transaction_id else self._turn(queue, priority, 1) % lanes
        return self._catalog.make_partition(queue, lane_name(lane, priority), now)

    def _turn(self, queue: Queue, priority: int, used: int) -> int:
        """The lane to begin with. A process that has just begun goes on where the log ends: it counts what is there."""
        turn = self._turns.get((queue.id, priority))
        if turn is None:
            if len(self._turns) >= TURNS_MAX:
                self._turns.clear()
            names = [lane_name(lane, priority) for lane in range(queue.options.lanes)]
            found = [self._catalog.find_partition(queue, name) for name in names]
            turn = sum(self._segments.end(partition.id) for partition in found if partition is not None)
        self._turns[queue.id, priority] = turn + used
        return turn

    # ── later ──

    def _delay(self, queue: Queue, pushes: Sequence[Push], index: int, results: list[Any], now: Timestamp) -> None:
        """Keep the records of one push until they are due. Where they belong, and which are duplicates, is told now."""
        push = pushes[index]
        stacks: Stacks = {}
        if push.partition:
            partition = self._catalog.make_partition(queue, push.partition, now)
            _stack(stacks, partition, push.ttl_seconds, Share(index, push.records))
        else:
            self._spread(queue, pushes, [index], stacks, results, now)
        due_at = Timestamp(now + int(push.delay_seconds * SECOND))
        for partition, ttl_seconds, shares in stacks.values():
            for share in shares:
                try:
                    found = self._duplicates(partition, share.records, now)
                    fresh = [record for place, record in enumerate(share.records) if place not in found]
                    if fresh:
                        self._delayed.add(partition, fresh, due_at, now, ttl_seconds)
                except HeadwaterError as error:
                    results[index] = error
                    return
                # A message that is to come, also one of this very push, has no offset yet.
                end = self._segments.end(partition.id)
                own = {place: offset if offset < end else NO_OFFSET for place, offset in found.items()}
                lsn = self._segments.last_lsn
                pushed = Pushed(partition.id, NO_OFFSET, len(fresh), lsn, now, own, partition.name, due_at)
                members = share.members
                results[index] = pushed if members is None else _joined(results[index], pushed, members)

    def _duplicates(self, partition: Partition, records: Sequence[Record], now: Timestamp) -> dict[int, Offset]:
        """Which of the records (by index) are in the log, or are still to come."""
        found = self._segments.duplicates(partition, records, now)
        for place in self._delayed.duplicates(partition, records):
            found.setdefault(place, NO_OFFSET)
        return found

    # ── one segment for each partition ──

    def _append(self, stack: Stack, results: list[Any], now: Timestamp) -> None:
        """One segment for all these records; each push gets its own offsets."""
        partition, ttl_seconds, shares = stack
        if not shares:
            return
        records = shares[0].records if len(shares) == 1 else [record for share in shares for record in share.records]
        try:
            found = self._duplicates(partition, records, now)
            fresh = [record for place, record in enumerate(records) if place not in found] if found else records
            end = self._segments.end(partition.id)
            offset = self._segments.append(partition, fresh, now, ttl_seconds) if fresh else end
        except HeadwaterError as error:
            for share in shares:
                results[share.push] = error
            return
        begin = 0
        lsn = self._segments.last_lsn
        for share in shares:
            size = len(share.records)
            own = {place - begin: found[place] for place in found if begin <= place < begin + size} if found else {}
            count = size - len(own)
            pushed = Pushed(partition.id, offset, count, lsn, now, own, partition.name)
            members = share.members
            results[share.push] = pushed if members is None else _joined(results[share.push], pushed, members)
            offset = Offset(offset + count)
            begin += size


def _cut(
    pushes: Iterable[tuple[int, Sequence[Record]]], chunks: Iterable[tuple[int, int, int]]
) -> Iterator[tuple[int, Share]]:
    """The records of all pushes in a row, cut into chunks: which lane gets which of which push."""
    dealt = iter(chunks)
    lane, _, end = next(dealt)
    first = 0
    for index, records in pushes:
        size = len(records)
        begin = first
        while begin < first + size:
            if begin >= end:
                lane, _, end = next(dealt)
            stop = min(end, first + size)
            members = range(begin - first, stop - first)
            whole = len(members) == size
            yield lane, Share(index, records) if whole else Share(index, records[members.start : members.stop], members)
            begin = stop
        first += size


def _stack(stacks: Stacks, partition: Partition, ttl_seconds: float | None, share: Share) -> None:
    stacks.setdefault((partition.id, ttl_seconds, True), Stack(partition, ttl_seconds, [])).shares.append(share)


def _joined(before: Any, pushed: Pushed, members: Sequence[int]) -> Any:
    """The answer to a push, with what became of some of its records added."""
    part = msgspec.structs.replace(pushed, members=list(members))
    duplicates = {members[place]: offset for place, offset in pushed.duplicates.items()}
    if before is None:
        return msgspec.structs.replace(pushed, duplicates=duplicates, parts=[part])
    return msgspec.structs.replace(
        before,
        count=before.count + pushed.count,
        lsn=max(before.lsn, pushed.lsn),
        duplicates=before.duplicates | duplicates,
        parts=[*before.parts, part],
    )
