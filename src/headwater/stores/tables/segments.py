"""The log itself: appending segments, finding and reading them, recognising duplicates.

Ends of partitions and the last LSN are remembered between commits. When another connection has committed in between,
they are brought up to date from the segments it added; both happen under the write lock, so nothing can slip in.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, pairwise
from zlib import crc32

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.errors import EncryptionKeyMissing, StoreDamaged
from headwater.log.operations import Operation, Touch
from headwater.model.added import Added
from headwater.model.deduplication import RecentIds
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.queue import QueueOptions
from headwater.model.record import Record, encode_records, split_records, transaction_ids
from headwater.stores.codec import Codec
from headwater.stores.tables.catalog import Partition
from headwater.stores.tables.connection import Connection, Meta, Number, NumberOrNone
from headwater.stores.tables.key_check import KeyCheck
from headwater.stores.tables.subject import Read, Seen, Subject

SEGMENT_BYTES_MAX = 1_048_576
CACHE_BYTES_MAX = 8 * 1_048_576
CURRENT_MAX = 1_024
ENDS_KNOWN_MAX = 32_768
OLD_IN_A_ROW_MAX = 64


# LSN, partition, first offset, count.
SegmentRow = tuple[Lsn, PartitionId, Offset, int]
# The same with the time of writing, that of expiry, the origin, the codec, the checksum and the body.
StagedRow = tuple[Lsn, PartitionId, Offset, int, Timestamp, int | None, int, int, int, bytes]
# LSN, first offset, count, time of writing.
PlacedRow = tuple[Lsn, Offset, int, Timestamp]
# The same with the time of expiry.
HeaderRow = tuple[Lsn, Offset, int, Timestamp, int | None]
# Codec, checksum, partition, first offset, body.
BodyRow = tuple[int, int, PartitionId, Offset, bytes]
# The newest LSN, and the version of the catalog.
EndRow = tuple[Lsn, int]
# LSN and time of writing.
PlaceInTime = tuple[Lsn, Timestamp]


class SegmentHeader(msgspec.Struct, frozen=True, gc=False):
    """A segment without its records."""

    lsn: Lsn
    first_offset: Offset
    count: int
    written_at: Timestamp
    expires_at: int | None = None


class Segments(Subject):
    """The segments of the file, as seen under the write lock."""

    def __init__(self, connection: Connection, codec: Codec, origin: int, ids_max: int) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._codec = codec
        self._key = KeyCheck(connection, codec)
        self._origin = origin
        self._ends: dict[int, int] = {}
        self._no_idle: set[int] = set()
        self._recent = RecentIds(ids_max)
        self._recent_from: int | None = None
        self._ids_max = ids_max
        # Of some partitions, the segment that was read last: whoever takes records one by one comes back to it.
        self._current: dict[PartitionId, SegmentHeader] = {}
        self._opened: OrderedDict[int, tuple[int, list[Record]]] = OrderedDict()
        self._opened_bytes = 0
        self.last_lsn = Lsn(0)
        # The latest time that is in the log, or was seen: a commit that waited for its turn began before another's.
        self.latest = Timestamp(0)
        # The segments of this commit and their records, and whether what was there before may read otherwise now.
        self._touched: list[Touch] = []
        self._bodies: list[bytes] = []
        self._rewrote = False
        self.appended_elsewhere: list[SegmentRow] = []
        # Segments and wakes that `write` has not written yet.
        self._staged: list[StagedRow] = []
        self._waking: list[tuple[int, PartitionId]] = []

    def take_added(self, now: Timestamp, renamed: bool) -> tuple[list[Touch], Added]:
        """What this commit did to the log. The next one begins with nothing."""
        touched = self._touched
        added = Added(self._bodies, self._origin, self.time_of(now), self._rewrote or renamed)
        self._begin()
        return touched, added

    def _begin(self) -> None:
        self._touched, self._bodies, self._rewrote = [], [], False

    def forget(self) -> None:
        """Drop what is remembered; the next `catch_up` reads it again."""
        self._begin()
        self._staged.clear()
        self._waking.clear()
        self._ends.clear()
        self._no_idle.clear()
        self._recent.clear()
        self._recent_from = None
        self._current.clear()
        # An LSN that was rolled back is given to another segment.
        self._opened.clear()
        self._opened_bytes = 0
        self.last_lsn = Lsn(0)

    def foresee(self, operations: Sequence[Operation], now: Timestamp) -> list[Read]:
        """What others have done, and the segments that they appended."""
        return [Read("look"), *([Read("segments_since", (self.last_lsn,))] if self.last_lsn else [])]

    def foresee_end(self, partition_id: PartitionId) -> list[Read]:
        """What `end` will read."""
        return [] if partition_id in self._ends else [Read("partition_end", (partition_id,))]

    def keep(self) -> Callable[[], None]:
        """What was appended before."""
        return partial(self._go_back, (list(self._touched), list(self._bodies), self._rewrote))

    def _go_back(self, kept: tuple[list[Touch], list[bytes], bool]) -> None:
        self._touched, self._bodies, self._rewrote = kept

    def catch_up(self, seen: Seen) -> None:
        """Take in what other connections have appended."""
        self.appended_elsewhere = self.catch_up_to(seen.last_lsn)

    def catch_up_to(self, newest: Lsn) -> list[SegmentRow]:
        """Take in what other connections have appended, and that they may have caught up with anything."""
        self._no_idle.clear()
        self._current.clear()
        known = self.last_lsn
        if not known:
            # The log was empty, or nothing is known of it: what was remembered then is of an empty log.
            self._ends.clear()
            self._recent.clear()
            self._recent_from = None
        if not known or known == newest:
            self.last_lsn = newest
            return []
        found = self._connection.rows(self._sql.segments_since, (known,), SegmentRow)
        if len(found) != newest - known or len(self._ends) > ENDS_KNOWN_MAX:
            # Too many are known; or some were added and dropped again since our last look, and only rows know where.
            self._ends.clear()
        for lsn, partition_id, first_offset, count in found:
            self._ends[partition_id] = first_offset + count
            newest = max(newest, lsn)
            if self._recent_from is not None:
                self._remember_ids(partition_id, lsn)
        # Last of all: who fails on the way begins again from where it was.
        self.last_lsn = newest
        return found

    def forget_ends(self) -> None:
        """Partitions went away: read the ends of those that are left again."""
        self._rewrote = True
        self._ends.clear()
        self._current.clear()

    def end(self, partition_id: PartitionId) -> Offset:
        """One past the newest record."""
        end = self._ends.get(partition_id)
        if end is None:
            if len(self._ends) >= ENDS_KNOWN_MAX:
                self._ends.clear()
                self._no_idle.clear()
            [(end,)] = self._connection.rows(self._sql.partition_end, (partition_id,), NumberOrNone)
            end = self._ends[partition_id] = end or 0
        return Offset(end)

    @property
    def knows_ids(self) -> bool:
        """Whether transaction ids are remembered: then those of what others append are read as well."""
        return self._recent_from is not None

    def opened(self, limit: int) -> list[int]:
        """The segments whose records were read last and are remembered."""
        return list(islice(reversed(self._opened), limit))

    # ── appending ──

    def append(
        self, partition: Partition, records: Sequence[Record], now: Timestamp, ttl_seconds: float | None = None
    ) -> Offset:
        """Add records to a partition and wake the groups that were caught up; the offset of the first."""
        first = self.stage(partition, records, now, ttl_seconds)
        self.write()
        return first

    def time_of(self, now: Timestamp) -> Timestamp:
        """When a segment of this commit is said to be written: times rise with LSNs, so that whoever looks for a time
        finds all that came after it."""
        return max(now, self.latest)

    def stage(
        self, partition: Partition, records: Sequence[Record], now: Timestamp, ttl_seconds: float | None = None
    ) -> Offset:
        """The same, but for the rows: `write` writes those of many partitions together, before anybody reads them."""
        number, options = partition.id, partition.queue.options
        if options.encrypted:
            self._key.check(options)
        first = end = self.end(number)
        expires_at, written_at = expiry(now, ttl_seconds), self.time_of(now)
        for body, count in bodies_of(records):
            codec, kept = self._codec.pack(body, options, (number, end))
            lsn = self.last_lsn = Lsn(self.last_lsn + 1)
            row = (lsn, number, end, count, written_at, expires_at, self._origin, codec, crc32(kept), kept)
            self._staged.append(row)
            self._touched.append(Touch(lsn, number, end, count, partition.lane))
            self._bodies.append(body)
            end = Offset(end + count)
        self._ends[number] = end
        if number not in self._no_idle:
            self._waking.append((waking_time(options, now), number))
            self._no_idle.add(number)
        return first

    def write(self) -> None:
        """Write what was staged."""
        if len(self._staged) == 1:
            self._connection.run(self._sql.add_segment, self._staged[0])
        elif self._staged:
            self._connection.executemany(self._sql.add_segment, self._staged)
        self._staged.clear()
        if self._waking:
            self._connection.executemany(self._sql.wake_idle_cursors, self._waking)
            self._waking.clear()

    def idle(self, partition_id: PartitionId) -> None:
        """A group has caught up with this partition: the next push must wake it."""
        self._no_idle.discard(partition_id)

    def drop_before(self, partition_id: PartitionId, offset: int) -> None:
        """Drop the segments before an offset at which one begins. LSNs and offsets are never given out twice."""
        self._rewrote = True
        self._connection.run(self._sql.raise_partition_start, (offset, partition_id))
        self._connection.run(self._sql.raise_meta, ("last_lsn", self.last_lsn))
        self._note_drop(partition_id, offset)
        self._current.pop(partition_id, None)
        self._connection.run(self._sql.drop_segments_before, (partition_id, offset))

    def _note_drop(self, partition_id: PartitionId, offset: int) -> None:
        """Readers that come by LSN must learn that records are gone which they have not seen."""
        [(lsn,)] = self._connection.rows(self._sql.last_lsn_before, (partition_id, offset), NumberOrNone)
        if lsn is not None:
            self.note_loss(partition_id, Lsn(lsn))

    def note_loss(self, partition_id: PartitionId, lsn: Lsn) -> None:
        """Records of a partition up to this LSN are gone."""
        row = self._connection.row(self._sql.get_meta, ("drops",), Meta)
        number = int(row[0]) + 1 if row else 1
        self._connection.run(self._sql.set_meta, ("drops", number))
        self._connection.run(self._sql.note_drop, (partition_id, lsn, number))

    # ── duplicates ──

    def duplicates(
        self,
        partition: Partition,
        records: Sequence[Record],
        now: Timestamp,
        *,
        known: Mapping[int, Offset] | None = None,
        remember: bool = True,
    ) -> dict[int, Offset]:
        """Which of the records (by index) are in the log already, and where; ids of the others are remembered.

        An id that comes twice in the same push is a duplicate of its first place: its offset counts from the end. Those
        that are `known` to be elsewhere are none of the first, and get no place.
        """
        known = known or {}
        ids = [record.transaction_id for record in records]
        if not any(ids):
            return {}
        keys = RecentIds.keys(partition.id, ids)
        window = int(partition.queue.options.recognised_seconds() * SECOND)
        if not window:
            # The queue may get a window later, and the log is not read a second time for it.
            if remember:
                self._recent.add(key for identity, key in zip(ids, keys, strict=True) if identity)
            return dict(known)
        since = now - window
        self._load_recent(since)
        found: dict[int, Offset] = {}
        if self._recent.perhaps_seen(keys):
            wanted = {identity for identity, key in zip(ids, keys, strict=True) if identity and key in self._recent}
            places = self._find_ids(partition.id, wanted, since)
            found = {index: places[identity] for index, identity in enumerate(ids) if identity in places}
        found = {**known, **found}
        if len(set(ids)) < len(ids):
            self._mark_repeats(ids, found, self.end(partition.id))
        if remember:
            self._recent.add(key for identity, key in zip(ids, keys, strict=True) if identity)
        return found

    def remember(self, partition: Partition, records: Sequence[Record]) -> None:
        """Recognise these from now on, because they were appended without being compared."""
        ids = [record.transaction_id for record in records if record.transaction_id]
        if ids:
            self._recent.add(RecentIds.keys(partition.id, ids))

    def may_have_ids(self, lsn: Lsn) -> bool:
        """Whether a segment has transaction ids. One that does not open here may be read by whoever has the key."""
        try:
            return any(transaction_ids(self._body(lsn)[0]))
        except (EncryptionKeyMissing, StoreDamaged):
            return True

    @staticmethod
    def _mark_repeats(ids: list[str], found: dict[int, Offset], end: Offset) -> None:
        first_place: dict[str, Offset] = {}
        offset = end
        for index, identity in enumerate(ids):
            if index in found:
                continue
            if identity and identity in first_place:
                found[index] = first_place[identity]
            else:
                first_place[identity] = offset
                offset = Offset(offset + 1)

    def _find_ids(self, partition_id: PartitionId, wanted: set[str], since: int) -> dict[str, Offset]:
        """Where these ids are in the partition, looking back to `since`, and a little further: clocks have jumped."""
        places: dict[str, Offset] = {}
        too_old = 0
        for header in self._newest(partition_id):
            too_old = too_old + 1 if header.written_at < since else 0
            if too_old > OLD_IN_A_ROW_MAX or len(places) == len(wanted):
                break
            for index, record in enumerate(self.records(header.lsn)):
                if record.transaction_id in wanted and not too_old:
                    places.setdefault(record.transaction_id, Offset(header.first_offset + index))
        return places

    def _load_recent(self, since: int) -> None:
        """Read the ids of the recent past from the log, once: this process may have just begun."""
        if self._recent_from is not None and self._recent_from <= since:
            return
        self._recent_from = since
        lsn = read_lsn_at(self._connection, Timestamp(since), self.last_lsn)
        for row in self._connection.rows(self._sql.segments_since, (lsn,), SegmentRow):
            self._remember_ids(row[1], row[0])

    def _remember_ids(self, partition_id: PartitionId, lsn: Lsn) -> None:
        """A segment that does not open, for want of a key or because it is damaged, must not hold other queues up."""
        try:
            ids = [identity for identity in transaction_ids(self._body(lsn)[0]) if identity]
        except (EncryptionKeyMissing, StoreDamaged):
            return
        self._recent.add(RecentIds.keys(partition_id, ids))

    # ── reading ──

    def headers(self, partition_id: PartitionId, offset: Offset) -> Iterator[SegmentHeader]:
        """The segments of a partition from the one that holds `offset` on; the first may begin after it."""
        current = self._current.get(partition_id)
        if current is not None and current.first_offset <= offset < current.first_offset + current.count:
            yield current
            offset = Offset(current.first_offset + current.count)
            if offset == self.end(partition_id):
                return
        if len(self._current) > CURRENT_MAX:
            self._current.clear()
        for row in self._connection.each(self._sql.segments_from, (partition_id, offset), HeaderRow):
            current = self._current[partition_id] = SegmentHeader(*row)
            yield current

    def _newest(self, partition_id: PartitionId) -> Iterator[SegmentHeader]:
        for row in self._connection.each(self._sql.newest_segments, (partition_id,), PlacedRow):
            yield SegmentHeader(*row)

    def last_written_at(self, partition_id: PartitionId) -> Timestamp:
        """When the newest record of a partition was written."""
        newest = next(self._newest(partition_id), None)
        return newest.written_at if newest else Timestamp(0)

    def first_after(self, partition_id: PartitionId, start: Offset, lsn: Lsn) -> Offset:
        """The first record of a partition that came after `lsn`, or the end. Within a partition, LSNs rise."""
        if lsn == 0:
            return start
        position = self.end(partition_id)
        for header in self._newest(partition_id):
            if header.lsn <= lsn:
                break
            position = header.first_offset
        return position

    def records_of(self, header: SegmentHeader) -> list[Record]:
        """The records of a segment, as many as its row says."""
        records = self.records(header.lsn)
        if len(records) != header.count:
            raise StoreDamaged(f"segment {header.lsn} has {len(records)} records; its row says {header.count}")
        return records

    def records(self, lsn: Lsn) -> list[Record]:
        """The records of one segment. Segments never change, so the last ones read are kept open."""
        known = self._opened.get(lsn)
        if known is not None:
            return known[1]
        body, size = self._body(lsn)
        records = split_records(body)
        self._opened[lsn] = (size, records)
        self._opened_bytes += size
        while self._opened_bytes > CACHE_BYTES_MAX and len(self._opened) > 1:
            _, (freed, _) = self._opened.popitem(last=False)
            self._opened_bytes -= freed
        return records

    def _body(self, lsn: Lsn) -> tuple[bytes, int]:
        row = self._connection.row(self._sql.segment_body, (lsn,), BodyRow)
        if row is None:
            raise StoreDamaged(f"segment {lsn} is damaged: an index names it, and it is not there")
        body = open_body(self._codec, lsn, *row)
        return body, len(body)


def open_body(codec: Codec, lsn: int, kind: int, checksum: int, partition_id: int, first: int, kept: bytes) -> bytes:
    """A segment's body, checked against the sum that was taken when it was written."""
    # In a damaged row a number or a text may stand where bytes were written, and the other way round.
    if type(kept) is not bytes or type(kind) is not int or crc32(kept) != checksum:
        raise StoreDamaged(f"segment {lsn} is damaged: its checksum does not match")
    return codec.unpack(kind, kept, (partition_id, first))


def read_end(connection: Connection) -> EndRow:
    """The newest LSN ever given out, segments may have been dropped since; and the version of names and indexes."""
    [end] = connection.rows(connection.sql.end_of_log, (), EndRow)
    return end


def read_last_lsn(connection: Connection) -> Lsn:
    """The newest LSN ever given out."""
    return read_end(connection)[0]


def read_lsn_at(connection: Connection, time: Timestamp, last_lsn: Lsn) -> Lsn:
    """The LSN before the first segment written at or after `time`. Where the clock was set back, the log has a joint:
    times rise from one to the next."""
    joints = [lsn for (lsn,) in connection.rows(connection.sql.clock_jumps, (), Number)]
    for begin, end in pairwise([0, *joints, last_lsn]):
        before = _lsn_between(connection, time, begin, end)
        row = connection.row(connection.sql.next_lsn, (before + 1,), PlaceInTime)
        if row is not None and row[0] <= end and row[1] >= time:
            return Lsn(before)
    return last_lsn


def _lsn_between(connection: Connection, time: Timestamp, low: int, high: int) -> int:
    """The same for a part of the log in which times rise, by halving."""
    while low < high:
        middle = (low + high) // 2
        row = connection.row(connection.sql.next_lsn, (middle + 1,), PlaceInTime)
        if row is None or row[0] > high or row[1] >= time:
            high = middle
        else:
            low = row[0]
    return low


def expiry(now: Timestamp, ttl_seconds: float | None) -> int | None:
    """When records that are written now expire, if ever."""
    return None if ttl_seconds is None else now + int(ttl_seconds * SECOND)


def waking_time(options: QueueOptions, now: Timestamp) -> int:
    """When groups that were caught up may read what is written now."""
    return now + int(max(options.delay_seconds, options.window_seconds) * SECOND)


def bodies_of(records: Sequence[Record]) -> list[tuple[bytes, int]]:
    """What segments hold of these records, and how many each: one, unless that would be too large."""
    whole = encode_records(records)
    return [(whole, len(records))] if len(whole) <= SEGMENT_BYTES_MAX else list(_bodies(records, whole))


def _bodies(records: Sequence[Record], body: bytes) -> Iterator[tuple[bytes, int]]:
    """The records, which are too much for one segment, as bodies of several, with their counts."""
    if len(body) <= SEGMENT_BYTES_MAX or len(records) == 1:
        yield body, len(records)
        return
    middle = len(records) // 2
    for half in (records[:middle], records[middle:]):
        yield from _bodies(half, encode_records(half))
