"""Records that cannot be read: giving them up, so that those behind them go on.

Their segment stays in its place with its offsets, and is never delivered: its time is over, and each record is replaced
by an empty one that says what happened. Groups that had not passed it have lost its records, and readers by LSN are
told as of anything that is dropped.
"""

from zlib import crc32

import msgspec

from headwater.clock import Timestamp
from headwater.errors import EncryptionKeyMissing, InvalidOption, QueueMissing, StoreDamaged
from headwater.log.store_operations import GivenUp, GiveUpDamaged
from headwater.model.names import Offset, PartitionId
from headwater.model.record import Record, encode_records
from headwater.stores.codec import PLAIN
from headwater.stores.tables.catalog import Catalog
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.cursors import Cursors
from headwater.stores.tables.segments import SegmentHeader, Segments
from headwater.stores.tables.subject import Handlers, Subject

DAMAGED_TYPE = "headwater/damaged"
# Partition, first offset, count, time of writing, that of expiry.
PlaceRow = tuple[PartitionId, Offset, int, Timestamp, int | None]


class Damage(Subject):
    """Damaged segments of the file, as seen under the write lock."""

    def __init__(self, connection: Connection, catalog: Catalog, segments: Segments, cursors: Cursors) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._segments = segments
        self._cursors = cursors

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {GiveUpDamaged: self.give_up}

    def give_up(self, operation: GiveUpDamaged, now: Timestamp) -> GivenUp:
        """Replace the records of a damaged segment; an error when it can be read, or may be with a key."""
        self._cursors.forget()
        row = self._connection.row(self._sql.segment_place, (operation.lsn,), PlaceRow)
        partition = None if row is None else self._catalog.partition_by_id(row[0])
        if row is None or partition is None:
            raise QueueMissing(f"there is no segment {operation.lsn}")
        header = SegmentHeader(operation.lsn, *row[1:])
        self._refuse_sound(header)
        body = encode_records([Record(msgspec.Raw(b"null"), type=DAMAGED_TYPE)] * header.count)
        self._connection.run(self._sql.replace_records, (PLAIN, crc32(body), body, operation.lsn))
        self._connection.run(self._sql.count_given_up, (header.count, partition.id, header.first_offset))
        self._connection.run(self._sql.wake_put_off, (now, partition.id))
        self._segments.note_loss(partition.id, operation.lsn)
        self._segments.forget_ends()
        return GivenUp(operation.lsn, partition.lane, header.first_offset, header.count)

    def _refuse_sound(self, header: SegmentHeader) -> None:
        try:
            self._segments.records_of(header)
        except StoreDamaged:
            return
        except EncryptionKeyMissing as error:
            raise InvalidOption(f"segment {header.lsn} may be sound: {error}") from error
        raise InvalidOption(f"segment {header.lsn} can be read: nothing is given up")
