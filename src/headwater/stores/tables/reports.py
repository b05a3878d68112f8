"""What consumers say of their leases: ack, extend, seek. A late or foreign report changes nothing and says so."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.errors import InvalidOption, QueueMissing, UnknownRecord
from headwater.log.group_operations import LeasesReleased, ReleaseLeases
from headwater.log.operations import (
    Ack,
    Acked,
    Advance,
    Clear,
    Deleted,
    Extend,
    Extended,
    Operation,
    PassOver,
    Seek,
    Sought,
    Transaction,
)
from headwater.model import cursor as rules
from headwater.model.cursor import Cursor, Outcome
from headwater.model.names import GROUP_DEFAULT, GroupId, Lsn, PartitionId
from headwater.model.spreading import reader_of
from headwater.stores.tables.catalog import Catalog, Group, NamedPartitionRow, Partition
from headwater.stores.tables.connection import Connection, Number
from headwater.stores.tables.cursors import CursorRow, Cursors, cursor_of
from headwater.stores.tables.dead_letters import Burial
from headwater.stores.tables.delayed import Delayed
from headwater.stores.tables.groups import LeaseRow
from headwater.stores.tables.pops import Pops
from headwater.stores.tables.segments import Segments, read_lsn_at
from headwater.stores.tables.subject import Handlers, Phase, Read, Subject

# Number, name.
NumberedName = tuple[PartitionId, str]
# As a row of a group's positions, with the group in place of the partition.
GroupCursorRow = tuple[GroupId, int, str | None, str | None, int, int | None, int, int, int, int, int | None, str]


class Reports(Subject):
    """Reports on leases, and moves of whole groups, under the write lock."""

    phases = MappingProxyType({Ack: Phase.REPORTS, Advance: Phase.REPORTS, Extend: Phase.REPORTS})

    def __init__(
        self,
        connection: Connection,
        catalog: Catalog,
        segments: Segments,
        cursors: Cursors,
        pops: Pops,
        delayed: Delayed,
    ) -> None:
        self._delayed = delayed
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._segments = segments
        self._cursors = cursors
        self._pops = pops

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {
            Ack: self.ack,
            Advance: self.advance,
            Extend: self.extend,
            Seek: self.seek,
            ReleaseLeases: self.release_leases,
            Clear: self.clear,
            PassOver: self.pass_over,
        }

    def foresee(self, operations: Sequence[Operation], now: Timestamp) -> list[Read]:
        """The positions of the leases that are reported on, and the ends of their partitions."""
        found: list[Read] = []
        for operation in operations:
            if isinstance(operation, Ack | Advance | Extend):
                found += self._foresee_lease(operation.partition_id, operation.group)
                found += self._segments.foresee_end(operation.partition_id)
            elif isinstance(operation, Transaction):
                for partition_id, group, _ in operation.leases:
                    found += self._foresee_lease(partition_id, group)
        return found

    def _foresee_lease(self, partition_id: PartitionId, name: str) -> list[Read]:
        partition = self._catalog.known_partition_by_id(partition_id)
        if partition is None:
            return [Read("find_partition_by_id", (partition_id,))]
        group = self._catalog.known_group(partition.queue, name)
        if group is None:
            return [Read("find_group", (partition.queue.id, name))]
        return [Read("get_cursor", (group.id, partition_id))]

    def ack(self, operation: Ack, now: Timestamp) -> Acked:
        """Settle records of a live lease, or late ones of the last lease, where that counts."""
        partition, group, cursor = self._cursors.held(operation.database, operation.partition_id, operation.group)
        if operation.counts_late and (left := rules.came_back(cursor, operation.token)):
            return self._ack_late(operation, (partition, group, cursor), left)
        rules.check_lease(cursor, operation.token, now)
        if operation.outcomes is None and rules.is_whole(cursor, operation.offsets):
            return self._settle_all(group, partition, cursor, now)
        outcomes = self._outcomes(operation, partition, cursor, rules.outstanding(cursor))
        if rules.is_all_done(cursor, outcomes):
            return self._settle_all(group, partition, cursor, now)
        if operation.releases_rest:
            outcomes = rules.with_rest_released(cursor, outcomes)
        settled = rules.settle(cursor, outcomes, group.options, now)
        burial = Burial(cursor.attempts, operation.errors or {}, now)
        self._cursors.bury(group, partition, settled.buried, burial)
        after = self._cursors.caught_up(settled.cursor, partition.id) if settled.released else settled.cursor
        self._cursors.write(group, partition.id, after)
        waiting = settled.released and after.ready_at is not None
        return Acked(settled.released, settled.buried, waiting, rules.count_settled(outcomes))

    def _ack_late(self, operation: Ack, held: tuple[Partition, Group, Cursor], left: Sequence[int]) -> Acked:
        """Settle records that came back and that nobody has leased since."""
        partition, group, cursor = held
        outcomes = self._outcomes(operation, partition, cursor, left)
        after = self._cursors.caught_up(rules.settle_late(cursor, outcomes), partition.id)
        self._cursors.write(group, partition.id, after)
        return Acked(True, (), after.ready_at is not None, len(outcomes))

    def _settle_all(self, group: Group, partition: Partition, cursor: Cursor, now: Timestamp) -> Acked:
        done = self._cursors.caught_up(rules.settle_all(cursor, now), partition.id)
        self._cursors.write(group, partition.id, done)
        return Acked(True, (), done.ready_at is not None, cursor.leased_to - cursor.position)

    def advance(self, operation: Advance, now: Timestamp) -> Acked:
        """Settle a live lease up to one record."""
        partition, group, cursor = self._cursors.held(operation.database, operation.partition_id, operation.group)
        rules.check_lease(cursor, operation.token, now)
        through = self._place(operation.through, partition, cursor)
        settled = rules.advance(cursor, through, release=operation.release, now=now)
        after = self._cursors.caught_up(settled.cursor, partition.id)
        self._cursors.write(group, partition.id, after)
        count = sum(offset <= through for offset in rules.outstanding(cursor))
        return Acked(True, (), after.ready_at is not None, count)

    def _place(self, name: int | str, partition: Partition, cursor: Cursor) -> int:
        if isinstance(name, int):
            return name
        offset = self._places(partition, cursor, rules.outstanding(cursor)).get(name)
        if offset is None:
            raise _not_in_lease(name)
        return offset

    def _places(self, partition: Partition, cursor: Cursor, left: Collection[int]) -> dict[str, int]:
        """These records of the lease by transaction id. Only a lease that an earlier version has made has an id twice:
        there it means the first."""
        left = set(left)
        places: dict[str, int] = {}
        for offset, record, _ in self._cursors.records_between(partition.id, cursor.position, cursor.leased_to):
            if offset in left and record.transaction_id:
                places.setdefault(record.transaction_id, offset)
        return places

    def extend(self, operation: Extend, now: Timestamp) -> Extended:
        """Keep a live lease for longer."""
        partition, group, cursor = self._cursors.held(operation.database, operation.partition_id, operation.group)
        if operation.passes_reported and rules.is_reported(cursor, operation.token):
            return Extended(Timestamp(0))
        rules.check_lease(cursor, operation.token, now)
        seconds = group.options.lease_seconds if operation.seconds is None else operation.seconds
        until = now + int(seconds * SECOND)
        extended = msgspec.structs.replace(cursor, lease_until=until, ready_at=until)
        self._cursors.write(group, partition.id, extended)
        return Extended(Timestamp(until))

    def check_lease(self, database: str, lease: tuple[PartitionId, str, int], now: Timestamp) -> None:
        """Raises unless the lease (partition, group, token) is alive."""
        partition_id, group, token = lease
        rules.check_lease(self._cursors.held(database, partition_id, group)[2], token, now)

    def seek(self, operation: Seek, now: Timestamp) -> Sought:
        """Move a group in one partition or in all, ending its leases there."""
        queue = self._catalog.need_queue(operation.database, operation.queue)
        if operation.offset is not None and not operation.partition:
            raise InvalidOption("seeking to an offset needs a partition: offsets count within one")
        rules.check_not_ahead("the time to seek to", operation.timestamp, now)
        chosen = self._catalog.find_partition(queue, operation.partition) if operation.partition else None
        if operation.partition and chosen is None:
            raise QueueMissing(f"queue {queue.name!r} has no partition {operation.partition!r}")
        self._check_target(operation, chosen)
        group = self._catalog.find_group(queue, operation.group)
        if group is None and not (operation.create or operation.group == GROUP_DEFAULT):
            raise QueueMissing(
                f"queue {queue.name!r} has no group {operation.group!r}: groups are made by their first pop, "
                "or by a seek with create"
            )
        if chosen is not None and reader_of(chosen.name) not in ("", operation.group):
            raise QueueMissing(f"group {operation.group!r} does not read partition {operation.partition!r}")
        group = group or self._catalog.add_group(queue, operation.group, Lsn(0), now)
        self._catalog.rereads += 1
        self._pops.discover_all(group, now)
        if chosen is not None:
            self._move(group, chosen.id, operation, now)
            return Sought(1)
        rows = self._connection.rows(self._sql.group_cursors, (group.id,), CursorRow)
        for row in rows:
            self._move(group, row[0], operation, now)
        return Sought(len(rows))

    def release_leases(self, operation: ReleaseLeases, now: Timestamp) -> LeasesReleased:
        """Give back what is leased of a queue, as far as it was asked for."""
        if operation.token is not None and not (operation.group and operation.partition):
            raise InvalidOption("a token is that of one partition and group: name both beside it")
        self._cursors.flush()
        queue = self._catalog.need_queue(operation.database, operation.queue)
        about = (operation.database, queue.name, operation.group, now, -1)
        leases = records = 0
        for row in self._connection.rows(self._sql.lease_list, about, LeaseRow):
            _, name, partition_id, group_name, _, token, _, _, count = row
            if operation.partition not in ("", name) or operation.token not in (None, token):
                continue
            group = self._catalog.find_group(queue, group_name)
            cursor = group and self._cursors.find(group, partition_id)
            if group and cursor:
                free = rules.take_away(cursor, now, group.options)
                self._cursors.write(group, partition_id, self._cursors.caught_up(free, partition_id))
                leases += 1
                records += count
        return LeasesReleased(leases, records)

    def _check_target(self, operation: Seek, partition: Partition | None) -> None:
        """Raises when it lies beyond the end: whoever says so means another partition, or another store."""
        if operation.offset is None or partition is None:
            return
        end, named = self._segments.end(partition.id), operation.partition
        if operation.offset > end:
            raise InvalidOption(f"partition {named!r} ends at offset {end:,}; got {operation.offset:,}")

    def clear(self, operation: Clear, now: Timestamp) -> Deleted:
        """Drop the records of a queue or of one partition, every group being moved behind them first."""
        queue = self._catalog.need_queue(operation.database, operation.queue)
        if operation.partition and self._catalog.find_partition(queue, operation.partition) is None:
            raise QueueMissing(f"queue {queue.name!r} has no partition {operation.partition!r}")
        count = 0
        for number, name in self._connection.rows(self._sql.queue_partitions, (queue.id,), NumberedName):
            if operation.partition in ("", name):
                count += self.clear_partition(number, now)
        return Deleted(count)

    def clear_partition(self, partition_id: PartitionId, now: Timestamp) -> int:
        """The same of one partition by its number; how many records there were."""
        end = self._segments.end(partition_id)
        for row in self._connection.rows(self._sql.partition_cursors, (partition_id,), GroupCursorRow):
            moved = self._cursors.caught_up(rules.seek(cursor_of((partition_id, *row[1:])), end, now), partition_id)
            self._cursors.write_numbered(row[0], partition_id, moved)
        [(count,)] = self._connection.rows(self._sql.count_records, (partition_id,), Number)
        if count:
            self._segments.drop_before(partition_id, end)
        return count + self._delayed.clear(partition_id)

    def pass_over(self, operation: PassOver, now: Timestamp) -> Deleted:
        """Have every group of the queue pass one record; how many had it before them."""
        partition = self._catalog.partition_by_id(operation.partition_id)
        if partition is None or partition.queue.database != operation.database:
            raise QueueMissing(f"there is no partition {operation.partition_id}")
        passed: list[tuple[Group, Cursor]] = []
        for name in self._catalog.group_names(partition.queue):
            group = self._catalog.find_group(partition.queue, name)
            if group is None:
                continue
            self._pops.discover_all(group, now)
            before = self._cursors.find(group, partition.id)
            after = None if before is None else rules.pass_over(before, operation.offset, now)
            if after is not None and after != before:
                passed.append((group, after))
        for group, cursor in passed:
            if operation.bury:
                burial = Burial(cursor.attempts, {operation.offset: "moved to the dead letters"}, now)
                self._cursors.bury(group, partition, (operation.offset,), burial)
            self._cursors.write(group, partition.id, self._cursors.caught_up(cursor, partition.id))
        return Deleted(len(passed))

    def _move(self, group: Group, partition_id: PartitionId, operation: Seek, now: Timestamp) -> None:
        cursor = self._cursors.find(group, partition_id) or Cursor()
        [(_, _, start)] = self._connection.rows(self._sql.find_partition_by_id, (partition_id,), NamedPartitionRow)
        end = self._segments.end(partition_id)
        if operation.offset is not None:
            position = max(operation.offset, start)
        elif operation.lsn is not None or operation.timestamp is not None:
            lsn = operation.lsn
            if lsn is None:
                lsn = read_lsn_at(self._connection, Timestamp(operation.timestamp or 0), self._segments.last_lsn)
            position = self._segments.first_after(partition_id, start, lsn)
        else:
            position = end if operation.to == "end" else start
        moved = rules.seek(cursor, position, now)
        self._cursors.write(group, partition_id, self._cursors.caught_up(moved, partition_id))

    def _outcomes(
        self, operation: Ack, partition: Partition, cursor: Cursor, left: Sequence[int]
    ) -> Mapping[int, Outcome]:
        """The report by offset; transaction ids are looked up among what is `left` of the lease."""
        if operation.outcomes is None:
            return dict.fromkeys(operation.offsets or left, Outcome.COMPLETED)
        places: dict[str, int] = {}
        if any(isinstance(name, str) for name in operation.outcomes):
            places = self._places(partition, cursor, left)
        outcomes: dict[int, Outcome] = {}
        for name, outcome in operation.outcomes.items():
            offset = name if isinstance(name, int) else places.get(name)
            # A record that is named by its offset and by its id would be settled twice, and the last word would win.
            if offset is None or offset in outcomes:
                raise _not_in_lease(name)
            outcomes[offset] = outcome
        return outcomes


def _not_in_lease(name: int | str) -> UnknownRecord:
    return UnknownRecord(f"no record with transaction id {name!r} is in this lease, or it was settled before")
