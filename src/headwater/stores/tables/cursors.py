"""Positions and leases as rows: reading, writing, ending those that ran out, burying what failed for good.

The rules are in `model/cursor.py`. `pops.py` leases, `reports.py` settles; both go through here. Between a report and
the pop that follows it in the same commit a position is only remembered: `flush` writes it once for both.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from headwater.clock import Timestamp
from headwater.errors import LeaseLost, QueueMissing, StoreDamaged
from headwater.log.operations import Reap, Reaped
from headwater.model import cursor as rules
from headwater.model.cursor import Cursor
from headwater.model.names import STREAM_GROUP_PREFIX, Offset, PartitionId
from headwater.model.record import Record
from headwater.stores.tables.catalog import Catalog, Group, Partition
from headwater.stores.tables.connection import Connection, NumberOrNone, Value
from headwater.stores.tables.dead_letters import Burial, DeadLetters
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.subject import Handlers, Seen, Subject

LEASE_RAN_OUT = "the lease ran out"
KNOWN_MAX = 1_024
NONE_BURIED: Mapping[str, int] = {}

# Partition, position, settled, failed, token, end of the lease, leased up to, attempts, retried up to, cautious, ready
# at, holder.
CursorRow = tuple[PartitionId, int, str | None, str | None, int, int | None, int, int, int, int, int | None, str]


class Cursors(Subject):
    """Positions and leases of all groups, under the write lock."""

    def __init__(self, connection: Connection, catalog: Catalog, segments: Segments, dead_letters: DeadLetters) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._segments = segments
        self._dead_letters = dead_letters
        # As they are in the rows. Idle ones are not kept: a push makes them ready without looking here.
        self._known: dict[tuple[int, int], Cursor] = {}
        self._unwritten: dict[int, dict[PartitionId, Cursor]] = {}
        # How many records of each database the commit buried so far; never changed in place, for others keep it.
        self.buried = NONE_BURIED

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Reap: self.reap}

    def take_buried(self) -> Mapping[str, int]:
        """How many the commit has buried; the next one has buried none yet."""
        buried, self.buried = self.buried, NONE_BURIED
        return buried

    def keep(self) -> Callable[[], None]:
        """What a transaction that fails had buried, it has not."""
        return partial(setattr, self, "buried", self.buried)

    def forget(self) -> None:
        """Drop what is remembered: the rows may have changed, or a change may never have happened."""
        self.buried = NONE_BURIED
        self._known.clear()
        self._unwritten.clear()

    def forget_group(self, group: Group) -> None:
        """Drop what is not written yet of one group, which goes."""
        self._unwritten.pop(group.id, None)

    def catch_up(self, seen: Seen) -> None:
        """Others may have popped and reported."""
        self.forget()

    def clock_set_back(self, now: Timestamp, by: int) -> None:
        """Leases and delays go back with the clock."""
        self._connection.run(self._sql.take_times_back, (now, by))
        self.forget()

    def find(self, group: Group, partition_id: PartitionId) -> Cursor | None:
        """A group's position in a partition, None when it has not met the partition."""
        known = self._unwritten.get(group.id, {}).get(partition_id) or self._known.get((group.id, partition_id))
        if known is not None:
            return known
        row = self._connection.row(self._sql.get_cursor, (group.id, partition_id), CursorRow)
        return None if row is None else cursor_of(row)

    def ready(self, group: Group, now: int, limit: int) -> list[tuple[PartitionId, Cursor]]:
        """The partitions that a group may lease now: those of a priority, then the one that has waited longest."""
        if self._catalog.has_priorities(group.queue):
            return self._ready_by_priority(group, now, limit)
        unwritten = self._unwritten.get(group.id, {})
        rows = self._connection.rows(self._sql.ready_cursors, (group.id, now, limit + len(unwritten)), CursorRow)
        if not unwritten:
            return [(row[0], cursor_of(row)) for row in rows]
        found = [(row[0], cursor_of(row)) for row in rows if row[0] not in unwritten]
        found += [place for place in unwritten.items() if place[1].ready_at is not None and place[1].ready_at <= now]
        found.sort(key=_ready_at)
        return found[:limit]

    def _ready_by_priority(self, group: Group, now: int, limit: int) -> list[tuple[PartitionId, Cursor]]:
        self.flush()
        urgent = self._connection.rows(self._sql.urgent_cursors, (group.id, group.queue.id, now, limit), CursorRow)
        found = {row[0]: cursor_of(row) for row in urgent}
        if len(found) < limit:
            # All that are urgent were found: what else is among so many is not.
            rows = self._connection.rows(self._sql.ready_cursors, (group.id, now, limit), CursorRow)
            found |= {row[0]: cursor_of(row) for row in rows if row[0] not in found}
        return list(found.items())[:limit]

    def next_ready_at(self, group: Group) -> int | None:
        """When the next partition of a group may be leased."""
        self.flush()
        [(ready_at,)] = self._connection.rows(self._sql.next_ready, (group.id,), NumberOrNone)
        return ready_at

    def held(self, database: str, partition_id: PartitionId, group_name: str) -> tuple[Partition, Group, Cursor]:
        """What a lease is about. A partition of another database is answered like one that is not there."""
        partition = self._catalog.partition_by_id(partition_id)
        if partition is None or partition.queue.database != database:
            raise QueueMissing(f"there is no partition {partition_id}")
        group = self._catalog.find_group(partition.queue, group_name)
        cursor = None if group is None else self.find(group, partition_id)
        if group is None or cursor is None:
            raise LeaseLost(f"group {group_name!r} holds no lease here; pop again")
        return partition, group, cursor

    def write(self, group: Group, partition_id: PartitionId, cursor: Cursor) -> None:
        """Keep a group's new position."""
        self.write_numbered(group.id, partition_id, cursor)

    def write_numbered(self, group_id: int, partition_id: PartitionId, cursor: Cursor) -> None:
        """The same for a group that is known by its number only."""
        if cursor.ready_at is None:
            self._segments.idle(partition_id)
        self._unwritten.setdefault(group_id, {})[partition_id] = cursor

    def put_off(self, group: Group, partition_id: PartitionId, ready_at: int | None) -> None:
        """Look at this partition again then; None for never. All else stays as it was written last."""
        cursor = self.find(group, partition_id)
        if cursor is not None:
            self.write(group, partition_id, msgspec.structs.replace(cursor, ready_at=ready_at))

    def flush(self) -> None:
        """Write what was kept. Before anything else looks at the rows, and before the commit."""
        if not self._unwritten:
            return
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        rows = []
        for group_id, places in self._unwritten.items():
            for partition_id, cursor in places.items():
                if cursor.ready_at is None:
                    self._known.pop((group_id, partition_id), None)
                else:
                    self._known[group_id, partition_id] = cursor
                rows.append(_row(group_id, partition_id, cursor))
        if len(rows) == 1:
            self._connection.run(self._sql.set_cursor, rows[0])
        else:
            self._connection.executemany(self._sql.set_cursor, rows)
        self._unwritten.clear()

    def caught_up(self, cursor: Cursor, partition_id: PartitionId) -> Cursor:
        """The cursor as idle when nothing is behind its position."""
        if cursor.position < self._segments.end(partition_id):
            return cursor
        return msgspec.structs.replace(cursor, ready_at=None)

    def expire(self, group: Group, partition: Partition, cursor: Cursor, now: Timestamp) -> tuple[Cursor, int]:
        """The cursor after its lease ran out, and how many records that buried."""
        if group.name.startswith(STREAM_GROUP_PREFIX):
            return rules.take_away(cursor, now), 0
        settled = rules.expire(cursor, group.options, now)
        reasons: dict[int | str, str] = dict.fromkeys(settled.buried, LEASE_RAN_OUT)
        self.bury(group, partition, settled.buried, Burial(cursor.attempts, reasons, now))
        return settled.cursor, len(settled.buried)

    def bury(self, group: Group, partition: Partition, offsets: Sequence[int], burial: Burial) -> None:
        """Move records that failed for good to the dead letters, if the queue keeps them; they are counted anyway."""
        if not offsets:
            return
        database = group.queue.database
        self.buried = {**self.buried, database: self.buried.get(database, 0) + len(offsets)}
        self._connection.run(self._sql.count_buried, (len(offsets), group.id))
        if not group.queue.options.dead_letters:
            return
        wanted = set(offsets)
        found = [row for row in self.records_between(partition.id, min(wanted), max(wanted) + 1) if row[0] in wanted]
        for offset, record, written_at in found:
            self._dead_letters.add(group, partition, offset, record, written_at, burial)
        if len(found) < len(wanted):
            # Retention has dropped them while they were worked on.
            self._connection.run(self._sql.count_lost, (len(wanted) - len(found), group.id))

    def records_between(
        self, partition_id: PartitionId, first: int, end: int
    ) -> Iterator[tuple[int, Record, Timestamp]]:
        """Offset, record and time of what is kept from `first` up to `end`."""
        for header in self._segments.headers(partition_id, Offset(first)):
            if header.first_offset >= end:
                return
            for offset, record in enumerate(self._segments.records_of(header), header.first_offset):
                if first <= offset < end:
                    yield offset, record, header.written_at

    def reap(self, operation: Reap, now: Timestamp) -> Reaped:
        """End those of the leases that ran out and were not taken over or settled meanwhile."""
        ended = buried = 0
        for partition_id, name in operation.leases:
            partition = self._catalog.partition_by_id(partition_id)
            group = partition and self._catalog.find_group(partition.queue, name)
            cursor = group and self.find(group, partition_id)
            if partition and group and cursor and cursor.lease_until is not None and cursor.lease_until <= now:
                cursor, count = self.expire(group, partition, cursor, now)
                self.write(group, partition.id, self.caught_up(cursor, partition.id))
                ended += 1
                buried += count
        return Reaped(ended, buried)


def _ready_at(place: tuple[PartitionId, Cursor]) -> int:
    return place[1].ready_at or 0


def cursor_of(row: CursorRow) -> Cursor:
    """The cursor in a row that begins with the partition's number."""
    _, position, settled, failed, token, lease_until, leased_to, attempts, retry_to, cautious, ready_at, holder = row
    return Cursor(
        position,
        () if settled is None else offsets_of(settled),
        () if failed is None else offsets_of(failed),
        token,
        lease_until,
        leased_to,
        attempts,
        retry_to,
        bool(cautious),
        ready_at,
        holder,
    )


def _row(group_id: int, partition_id: PartitionId, cursor: Cursor) -> tuple[Value, ...]:
    return (
        cursor.position,
        _text(cursor.settled) if cursor.settled else None,
        _text(cursor.failed) if cursor.failed else None,
        cursor.token,
        cursor.lease_until,
        cursor.leased_to,
        cursor.attempts,
        cursor.retry_to,
        cursor.cautious,
        cursor.ready_at,
        cursor.holder,
        group_id,
        partition_id,
    )


def offsets_of(text: str | None) -> tuple[int, ...]:
    """The offsets that a row keeps as text."""
    if text is None:
        return ()
    try:
        return msgspec.json.decode(text, type=tuple[int, ...])
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the position of a group cannot be read: {error}") from error


def _text(numbers: tuple[int, ...]) -> str:
    return msgspec.json.encode(numbers).decode()
