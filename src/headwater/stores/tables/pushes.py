"""Appending: which partition each pushed record goes to, and one segment for all that go to the same one.

Records whose push names no partition are spread over the lanes of their queue, all those of a commit together, so that
a commit writes no more rows than the queue has lanes. `model/spreading.py` has the rules.
"""

import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

from headwater.clock import SECOND, Timestamp
from headwater.errors import HeadwaterError, QueueFull
from headwater.log.flow_operations import Load
from headwater.log.operations import Operation, Push, Pushed
from headwater.log.room_operations import RoomPush
from headwater.model.names import Lsn, Offset
from headwater.model.record import Record
from headwater.model.spreading import deal, lane_name, lane_of_id
from headwater.stores.tables.catalog import Catalog, Partition, Queue
from headwater.stores.tables.connection import Connection, Number
from headwater.stores.tables.delayed import NO_OFFSET, Delayed
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.stacks import (
    NOTHING_FOUND,
    Found,
    Results,
    Share,
    Stack,
    Stacks,
    answer,
    answers_of,
    cut,
    put_on,
    tell,
)
from headwater.stores.tables.subject import Handlers, Phase, Read, Seen, Subject, Together

TURNS_MAX = 10_000


_transaction_id = operator.attrgetter("transaction_id")


class Pushes(Subject):
    """Pushes to all queues, under the write lock."""

    phases = MappingProxyType({Push: Phase.PUSHES, RoomPush: Phase.PUSHES})

    def __init__(self, connection: Connection, catalog: Catalog, segments: Segments, delayed: Delayed) -> None:
        self._delayed = delayed
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._segments = segments
        self._waiting: dict[int, int] = {}
        self._rereads = 0
        self._placed: dict[int, int] = {}
        # Whose turn it is among the lanes of a queue. It need not be right, only go on.
        self._turns: dict[tuple[int, int], int] = {}

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Push: self.push_one, RoomPush: self.push_one}

    def together(self) -> Mapping[type[Operation], Together]:
        """What applies many at once."""
        return {Push: self.push, RoomPush: self.push}

    def foresee(self, operations: Sequence[Operation], now: Timestamp) -> list[Read]:
        """Queues, partitions and ends that are not remembered, and what counts against bounds."""
        found: list[Read] = []
        for push in operations:
            if isinstance(push, Push):
                found += self._foresee_push(push)
        return found

    def _foresee_push(self, push: Push) -> list[Read]:
        queue = self._catalog.known_queue(push.database, push.queue)
        if queue is None:
            return [Read("find_queue", (push.database, push.queue))]
        found: list[Read] = []
        if queue.options.size_max:
            found += [Read("queue_waiting", (queue.id,)), Read("queue_delayed", (queue.id,))]
        lanes = [lane_name(lane, push.priority) for lane in range(queue.options.lanes)]
        for name in [push.partition] if push.partition else lanes:
            partition = self._catalog.known_partition(queue, name)
            if partition is not None:
                found += self._segments.foresee_end(partition.id)
                found += self._delayed.foresee_duplicates(partition, push.records)
                continue
            found.append(Read("find_partition", (queue.id, name)))
            if push.partition and queue.options.partitions_max:
                found.append(Read("count_partitions", (queue.id,)))
        return found

    def catch_up(self, seen: Seen) -> None:
        """Others may have pushed or popped."""
        self.forget()

    def forget(self) -> None:
        """What waits is counted again when it matters."""
        self._waiting.clear()

    def push_one(self, operation: Push, now: Timestamp) -> Pushed:
        """Where the records of one push are."""
        (pushed,) = self.push([operation], now)
        if isinstance(pushed, HeadwaterError):
            raise pushed
        return pushed

    def push(self, pushes: Sequence[Push], now: Timestamp) -> list[Pushed | HeadwaterError]:
        """Where the records of each push are, or why it failed; one that fails leaves no trace."""
        if not pushes:
            return []
        if len(pushes) == 1 and pushes[0].partition and not pushes[0].delay_seconds:
            return [self._push_alone(pushes[0], now)]
        results: Results = [None] * len(pushes)
        stacks, later = self._arrange(pushes, results, now)
        for stack in stacks.values():
            self._append(stack, results, now)
        self._segments.write()
        for queue, index in later:
            self._delay(queue, pushes, index, results, now)
        return answers_of(results)

    def _arrange(
        self, pushes: Sequence[Push], results: Results, now: Timestamp
    ) -> tuple[Stacks, list[tuple[Queue, int]]]:
        """What each partition gets of these pushes, and which of them are for later; what fails is told at once."""
        self._placed.clear()
        stacks: Stacks = {}
        loose: dict[tuple[int, float | None, int], tuple[Queue, list[int]]] = {}
        later: list[tuple[Queue, int]] = []
        for index, push in enumerate(pushes):
            try:
                queue = self._queue(push, now)
                if push.delay_seconds:
                    later.append((queue, index))
                    continue
                if not push.partition:
                    key = (queue.id, push.ttl_seconds, push.priority)
                    together = loose.get(key)
                    if together is None:
                        loose[key] = (queue, [index])
                    else:
                        together[1].append(index)
                    continue
                partition = self.named(queue, push.partition, now)
            except HeadwaterError as error:
                results[index] = error
                continue
            put_on(stacks, partition, push.ttl_seconds, Share(index, push.records), chosen=False)
        for queue, indexes in loose.values():
            self._spread(queue, pushes, indexes, stacks, results, now)
        return stacks, later

    def _push_alone(self, push: Push, now: Timestamp) -> Pushed | HeadwaterError:
        """The one push of a commit, to a partition that it names: there is nobody to share a segment with."""
        self._placed.clear()
        try:
            partition = self.named(self._queue(push, now), push.partition, now)
            offset, found = self._add(partition, push.records, push.ttl_seconds, now)
        except HeadwaterError as error:
            return error
        self._segments.write()
        count, lsn = len(push.records) - len(found.offsets), self._segments.last_lsn
        written_at = self._segments.time_of(now)
        return Pushed(partition.id, offset, count, lsn, written_at, found.offsets, partition.name, due=found.due)

    def _queue(self, push: Push, now: Timestamp) -> Queue:
        """The queue of a push, once there is room in it."""
        queue = self._catalog.find_queue(push.database, push.queue)
        if queue is None:
            queue = self._catalog.make_queue(push.database, push.queue, now, push.lanes)
        if queue.options.size_max:
            self._need_room_for(queue, push, now)
        return queue

    def _need_room_for(self, queue: Queue, push: Push, now: Timestamp) -> None:
        """Raises when the queue is full. What is there already, by its transaction id, needs no more room: only when
        the queue is full is it told from what is new."""
        try:
            self._need_room(queue, len(push.records))
        except QueueFull:
            known = self._count_known(queue, push, now) if any(map(_transaction_id, push.records)) else 0
            if not known:
                raise
            if known < len(push.records):
                self._need_room(queue, len(push.records) - known)

    def _count_known(self, queue: Queue, push: Push, now: Timestamp) -> int:
        """How many records of a push are there already, or come twice in it."""
        by_partition: dict[str, list[Record]] = {}
        for record in push.records:
            if record.transaction_id:
                lane = lane_of_id(record.transaction_id, queue.options.lanes)
                by_partition.setdefault(push.partition or lane_name(lane, push.priority), []).append(record)
        count = 0
        for name, records in by_partition.items():
            partition = self._catalog.find_partition(queue, name)
            if partition is not None:
                due = dict.fromkeys(self._delayed.duplicates(partition, records), NO_OFFSET)
                count += len(self._segments.duplicates(partition, records, now, known=due, remember=False))
        return count

    def place(self, load: Load, now: Timestamp) -> Partition:
        """The partition that a load names, once there is room in its queue."""
        queue = self._catalog.make_queue(load.database, load.queue, now)
        self.need_room_now(queue, len(load.records))
        return self.named(queue, load.partition, now)

    def place_one(self, push: Push, now: Timestamp) -> Partition:
        """The partition for the one record of a push, once there is room in its queue."""
        self._placed.clear()
        queue = self._queue(push, now)
        if push.partition:
            return self.named(queue, push.partition, now)
        return self.choose_lane(queue, push.records[0].transaction_id, now, push.priority)

    def named(self, queue: Queue, name: str, now: Timestamp) -> Partition:
        """The partition of this name; a new one if the queue may have one more."""
        partition = self._catalog.find_partition(queue, name)
        if partition is not None:
            return partition
        limit = queue.options.partitions_max
        if limit:
            [(count,)] = self._connection.rows(self._sql.count_partitions, (queue.id,), Number)
            if count >= limit:
                raise QueueFull(f"queue {queue.name!r} has {count:,} partitions, as many as its partitions_max allows")
        return self._catalog.make_partition(queue, name, now)

    def need_room_now(self, queue: Queue, count: int) -> None:
        """Raises when the queue is full. What was placed before is in the tables."""
        self._placed.clear()
        self._need_room(queue, count)

    def _need_room(self, queue: Queue, count: int) -> None:
        """Raises when the queue is full. What waits is counted only when the last count leaves no room any more, or
        groups may have more before them since."""
        limit = queue.options.size_max
        if not limit:
            return
        if self._rereads != self._catalog.rereads:
            self._rereads = self._catalog.rereads
            self._waiting.clear()
        placed = self._placed.get(queue.id, 0)
        waiting = self._waiting.get(queue.id)
        if waiting is None or waiting + count > limit:
            [(kept,)] = self._connection.rows(self._sql.queue_waiting, (queue.id,), Number)
            [(delayed,)] = self._connection.rows(self._sql.queue_delayed, (queue.id,), Number)
            waiting = kept + delayed + placed
        if waiting + count > limit:
            self._waiting.pop(queue.id, None)
            left = f"; {count:,} more do not fit" if waiting < limit else ""
            raise QueueFull(f"queue {queue.name!r} holds {waiting:,} waiting records of at most {limit:,}{left}")
        self._waiting[queue.id] = waiting + count
        self._placed[queue.id] = placed + count

    # ── without a look at the log ──

    def arrange_plain(self, operations: Sequence[Operation], now: Timestamp) -> list[Stack] | None:
        """What each partition gets of operations that are pushes of which nothing has to be read or made: they go to
        partitions that are known, behind whatever is there. None when there is anything else among them."""
        pushes = [operation for operation in operations if isinstance(operation, Push) and self._is_plain(operation)]
        if len(pushes) < len(operations):
            return None
        stacks, _ = self._arrange(pushes, [None] * len(pushes), now)
        return list(stacks.values())

    def _is_plain(self, push: Push) -> bool:
        if push.key or push.delay_seconds or not push.records or any(map(_transaction_id, push.records)):
            return False
        queue = self._catalog.known_queue(push.database, push.queue)
        if queue is None or queue.options.size_max or queue.options.encrypted:
            return False
        if push.partition:
            return self._catalog.known_partition(queue, push.partition) is not None
        names = [lane_name(lane, push.priority) for lane in range(queue.options.lanes)]
        is_known = all(self._catalog.known_partition(queue, name) is not None for name in names)
        return is_known and (queue.id, push.priority) in self._turns

    @staticmethod
    def answer_plain(
        stacks: Sequence[Stack], places: Sequence[tuple[Offset, Lsn]], written_at: Timestamp
    ) -> list[Pushed]:
        """Where the records of such pushes are, as each stack got its place: the offset of its first record, and the
        LSN of its last segment."""
        results: Results = [None] * (1 + max(share.push for stack in stacks for share in stack.shares))
        for stack, (offset, lsn) in zip(stacks, places, strict=True):
            tell(stack, results, offset, NOTHING_FOUND, lsn, written_at)
        return cast("list[Pushed]", answers_of(results))

    # ── lanes ──

    def _spread(
        self,
        queue: Queue,
        pushes: Sequence[Push],
        indexes: Sequence[int],
        stacks: Stacks,
        results: Results,
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
                put_on(stacks, partition, pushes[index].ttl_seconds, share)
        total = sum([len(records) for _, records in plain])
        if not total:
            return
        chunks = deal(total, lanes, self._turn(queue, priority, min(total, lanes)))
        ttl_seconds = pushes[indexes[0]].ttl_seconds
        for lane, share in cut(plain, chunks):
            name = lane_name(lane, priority)
            known = self._catalog.find_partition(queue, name)
            put_on(stacks, known or self._catalog.make_partition(queue, name, now), ttl_seconds, share)

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
        # A lane has them in the order of the push, with ids or without: where all go to one, they are the push.
        for places in members.values():
            places.sort()
        shares = [
            (
                self._catalog.make_partition(queue, lane_name(lane, priority), now),
                Share(index, [records[place] for place in places], [] if len(members) == 1 else places),
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

    def _delay(self, queue: Queue, pushes: Sequence[Push], index: int, results: Results, now: Timestamp) -> None:
        """Keep the records of one push until they are due. Where they belong, and which are duplicates, is told now."""
        push = pushes[index]
        stacks: Stacks = {}
        if push.partition:
            try:
                partition = self.named(queue, push.partition, now)
            except HeadwaterError as error:
                results[index] = error
                return
            put_on(stacks, partition, push.ttl_seconds, Share(index, push.records))
        else:
            self._spread(queue, pushes, [index], stacks, results, now)
        due_at = Timestamp(now + int(push.delay_seconds * SECOND))
        for stack in stacks.values():
            partition = stack.partition
            for share in stack.shares:
                try:
                    found = self._duplicates(partition, share.records, now)
                    fresh = [record for place, record in enumerate(share.records) if place not in found.offsets]
                    if fresh:
                        self._delayed.add(partition, fresh, due_at, now, stack.ttl_seconds)
                except HeadwaterError as error:
                    results[index] = error
                    return
                # A message that is to come, also one of this very push, has no offset yet.
                end = self._segments.end(partition.id)
                own = {place: offset if offset < end else NO_OFFSET for place, offset in found.offsets.items()}
                due = {place: found.due.get(place, due_at) for place, offset in own.items() if offset == NO_OFFSET}
                lsn = self._segments.last_lsn
                place = (partition.id, NO_OFFSET, len(fresh), lsn, now, own, partition.name, due_at)
                answer(results, index, Pushed(*place, share.members, due=due))

    def _duplicates(self, partition: Partition, records: Sequence[Record], now: Timestamp) -> "Found":
        """Which of the records (by index) are in the log, or are still to come. Only what has an id can be."""
        # What this commit adds to the same partition, to be kept for another time, is looked through as well.
        self._segments.write()
        due = self._delayed.duplicates(partition, records)
        found = self._segments.duplicates(partition, records, now, known=dict.fromkeys(due, NO_OFFSET))
        return Found(found, {place: at for place, at in due.items() if found[place] == NO_OFFSET})

    # ── one segment for each partition ──

    def _add(
        self, partition: Partition, records: Sequence[Record], ttl_seconds: float | None, now: Timestamp
    ) -> tuple[Offset, "Found"]:
        """Stage those records that are no duplicates: the offset of the first, and the duplicates by index."""
        if not any(map(_transaction_id, records)):
            return self._segments.stage(partition, records, now, ttl_seconds), NOTHING_FOUND
        found = self._duplicates(partition, records, now)
        known = found.offsets
        fresh = [record for place, record in enumerate(records) if place not in known] if known else records
        if not fresh:
            return self._segments.end(partition.id), found
        return self._segments.stage(partition, fresh, now, ttl_seconds), found

    def _append(self, stack: Stack, results: Results, now: Timestamp) -> None:
        """One segment for all these records; each push gets its own offsets."""
        try:
            offset, found = self._add(stack.partition, stack.records, stack.ttl_seconds, now)
        except HeadwaterError as error:
            for share in stack.shares:
                results[share.push] = error
            return
        tell(stack, results, offset, found, self._segments.last_lsn, self._segments.time_of(now))
