"""Questions about the log itself, answered from the rows of one connection: its end, its identity, its segments."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headwater.clock import Timestamp
from headwater.errors import StoreDamaged
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.record import bytes_of, split_records
from headwater.stores.codec import Codec
from headwater.stores.questions import (
    FindIdentity,
    FindKeyFit,
    FindLastLsn,
    FindLastLsnOf,
    FindLoss,
    Loss,
    ReadPartition,
    Segment,
)
from headwater.stores.tables.connection import Columns, Connection, Meta, NumberOrNone, take_answer
from headwater.stores.tables.identity import read_identity
from headwater.stores.tables.key_check import KeyCheck
from headwater.stores.tables.patterns import as_patterns, as_text
from headwater.stores.tables.queues import read_lane
from headwater.stores.tables.segments import open_body, read_last_lsn
from headwater.stores.tables.subject import Answering, SubjectAnswers

# The columns of a `SegmentRow`.
StoredRow = tuple[int, int, int, int, int, int, int, bytes]


class SegmentRow(NamedTuple):
    """A segment with its records, as they are kept."""

    lsn: int
    partition_id: int
    first_offset: int
    written_at: int
    origin: int
    codec: int
    checksum: int
    body: bytes


def read_last_lsn_of(connection: Connection, database: str, patterns: Sequence[str]) -> Lsn:
    """The newest LSN in the queues of a database whose names fit patterns, also of what was dropped since."""
    about = (database, as_patterns(patterns))
    [(found,)] = connection.rows(connection.sql.last_lsn_of_queues, about, NumberOrNone)
    return Lsn(found or 0)


def _size(segment: Segment) -> int:
    """As it is when it is opened: what is compressed may be many times as large then."""
    return bytes_of(segment.records)


class LogAnswers(SubjectAnswers):
    """Reads the log."""

    def __init__(self, connection: Connection, codec: Codec) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._codec = codec

    def handlers(self) -> Answering:
        """What answers which question."""
        return {
            FindIdentity: self.identity,
            FindKeyFit: self.key_fit,
            FindLastLsn: self.last_lsn,
            FindLastLsnOf: self.last_lsn_of,
            FindLoss: self.loss,
            ReadPartition: self.read_partition,
        }

    def identity(self, asked: FindIdentity) -> str:
        """The UUID of the store."""
        return read_identity(self._connection)

    def key_fit(self, asked: FindKeyFit) -> bool | None:
        """Whether the key at hand opens what is encrypted."""
        return KeyCheck(self._connection, self._codec).fits()

    def last_lsn(self, asked: FindLastLsn) -> Lsn:
        """The newest LSN ever given out."""
        return read_last_lsn(self._connection)

    def last_lsn_of(self, asked: FindLastLsnOf) -> Lsn:
        """The newest LSN in some queues."""
        return read_last_lsn_of(self._connection, asked.database, asked.patterns)

    def loss(self, asked: FindLoss) -> Loss:
        """How far records were dropped; looked for only when there was a drop since."""
        row = self._connection.row(self._sql.get_meta, ("drops",), Meta)
        number = int(row[0]) if row else 0
        if number == asked.known:
            return Loss(number, None)
        about = (asked.database, as_patterns(asked.patterns), as_text(asked.partitions))
        [(lsn,)] = self._connection.rows(self._sql.last_loss, about, NumberOrNone)
        return Loss(number, Lsn(lsn or 0))

    def read_partition(self, asked: ReadPartition) -> list[Segment]:
        """A stretch of one partition."""
        place = (asked.partition_id, asked.first, asked.limit)
        rows = self._connection.each(self._sql.read_partition_segments, place, Columns)
        return take_answer(self._each_segment(rows), _size, asked.bytes_max)

    def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None) -> list[Segment]:
        """A stretch of the log."""
        if queue is None:
            rows = self._connection.rows(self._sql.read_segments, (after, through, limit), Columns)
        else:
            rows = self._connection.rows(self._sql.read_queue_segments, (after, through, limit, *queue), Columns)
        return list(self._each_segment(rows))

    def _each_segment(self, rows: Iterable[Columns]) -> Iterator[Segment]:
        """Segments up to the first that cannot be read; when that is the first one, it is told."""
        is_first = True
        lanes: dict[int, Lane | None] = {}
        for row in rows:
            try:
                segment = self._segment(SegmentRow._make(row), lanes)
            except StoreDamaged:
                if is_first:
                    raise
                return
            if segment is not None:
                yield segment
                is_first = False

    def _segment(self, row: SegmentRow, lanes: dict[int, Lane | None]) -> Segment | None:
        if row.partition_id not in lanes:
            lanes[row.partition_id] = read_lane(self._connection, PartitionId(row.partition_id))
        lane = lanes[row.partition_id]
        if lane is None:
            return None
        opened = open_body(self._codec, row.lsn, row.codec, row.checksum, row.partition_id, row.first_offset, row.body)
        return Segment(
            lsn=Lsn(row.lsn),
            lane=lane,
            partition_id=PartitionId(row.partition_id),
            first_offset=Offset(row.first_offset),
            written_at=Timestamp(row.written_at),
            origin=row.origin,
            records=split_records(opened),
        )
