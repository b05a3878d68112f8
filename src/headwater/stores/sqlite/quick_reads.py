"""Small reads of the log on the event loop: to hand one to the thread that reads, and to be told of the answer, takes
longer than the read, and a busy loop makes that thread wait for the interpreter's lock.

How much there is to read is bounded first: so many segments, each of so many bytes. What may take longer, and what
cannot be read, is for the thread.
"""

from collections.abc import Sequence

from headwater.clock import Timestamp
from headwater.errors import StoreDamaged
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.record import split_bodies
from headwater.stores.codec import Codec
from headwater.stores.questions import FindLoss, Loss, ReadPartition, Segment
from headwater.stores.tables.catalog import Catalog
from headwater.stores.tables.connection import Connection, Meta, Value, answer_bytes
from headwater.stores.tables.segments import open_body

QUICK_SEGMENTS = 32
QUICK_BYTES = 2_048

# LSN, partition, first offset, time of writing, origin, codec, checksum; the body where it is small.
SmallRow = tuple[Lsn, PartitionId, Offset, Timestamp, int, int, int, bytes | None]


class QuickReads:
    """Reads through the connection of the loop, or answers None."""

    def __init__(self, connection: Connection, codec: Codec, catalog: Catalog) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._codec = codec
        self._catalog = catalog

    def partition_to_end(self, asked: ReadPartition) -> list[Segment] | None:
        """A stretch of one partition, if that is all that was asked for, or goes to its end."""
        if answer_bytes(asked.bytes_max) < QUICK_SEGMENTS * QUICK_BYTES:
            return None
        place = (asked.partition_id, asked.first, min(asked.limit, QUICK_SEGMENTS + 1), QUICK_BYTES)
        return self._small(self._sql.read_small_segments_of_partition, place)

    def stretch(self, after: Lsn, through: Lsn) -> list[Segment] | None:
        """A stretch of the log."""
        if through - after > QUICK_SEGMENTS:
            return None
        return self._small(self._sql.read_small_segments, (after, through, QUICK_BYTES))

    def loss(self, asked: FindLoss) -> Loss | None:
        """That nothing was dropped since it was asked before."""
        row = self._connection.row(self._sql.get_meta, ("drops",), Meta)
        number = int(row[0]) if row else 0
        return Loss(number, None) if number == asked.known else None

    def _small(self, statement: str, place: Sequence[Value]) -> list[Segment] | None:
        rows = self._connection.rows(statement, place, SmallRow)
        bodies = [body for *_, body in rows if body is not None]
        if len(rows) > QUICK_SEGMENTS or len(bodies) < len(rows):
            return None
        try:
            return self._segments(rows, bodies)
        except StoreDamaged:
            return None

    def _segments(self, rows: Sequence[SmallRow], bodies: Sequence[bytes]) -> list[Segment]:
        """All bodies are taken apart at once: one by one that would take a fifth longer."""
        opened = [
            open_body(self._codec, lsn, kind, checksum, number, first, body)
            for (lsn, number, first, _, _, kind, checksum, _), body in zip(rows, bodies, strict=True)
        ]
        found = []
        for (lsn, number, first, written_at, origin, *_), records in zip(rows, split_bodies(opened), strict=True):
            partition = self._catalog.partition_by_id(number)
            if partition is not None:
                found.append(Segment(lsn, partition.lane, number, first, written_at, origin, records))
        return found
