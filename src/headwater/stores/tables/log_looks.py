"""Short looks at stretches of the log, for whoever reads it by LSN from another process."""

from collections.abc import Iterable, Sequence

import msgspec

from headwater.clock import Timestamp
from headwater.errors import QueueMissing, StoreDamaged
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.stores.codec import Codec
from headwater.stores.log_reader import Body, Drops, SegmentOutline
from headwater.stores.questions import PartitionStatus
from headwater.stores.tables.connection import Connection, Meta, Number, NumberOrNone, Text
from headwater.stores.tables.log_answers import read_last_lsn_of
from headwater.stores.tables.queues import PartitionStatusRow, read_lane
from headwater.stores.tables.segments import open_body, read_last_lsn

PARTITIONS_NAMED_MAX = 10_000
# Patterns of names, as statements take them; whoever may not see a queue is kept from it before it is asked for here.
ANY_QUEUE = '[["*"], ["*"]]'
# LSN, partition, first offset, count, time of writing.
OutlineRow = tuple[Lsn, PartitionId, Offset, int, Timestamp]
# The same with the codec, the checksum and the body.
BodyRow = tuple[Lsn, PartitionId, Offset, int, Timestamp, int, int, bytes]
# Two names, or a name and a number.
Names = tuple[str, str]
Numbered = tuple[str, int]


class LogLooks:
    """Looks through one connection, each of them one or few statements."""

    def __init__(self, connection: Connection, codec: Codec) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._codec = codec
        self._lanes: dict[int, Lane] = {}

    def span(self) -> tuple[Lsn, Lsn]:
        """The LSN before the oldest segment that is kept, and the newest LSN ever given out."""
        last = read_last_lsn(self._connection)
        [(oldest,)] = self._connection.rows(self._sql.oldest_lsn, (), NumberOrNone)
        return Lsn(oldest - 1 if oldest else last), last

    def queue_names(self, database: str) -> list[str]:
        """The names of a database's queues."""
        return [name for (name,) in self._connection.rows(self._sql.queue_names, (database,), Text)]

    def queue_numbers(self, database: str) -> dict[str, int]:
        """The queues of a database by name, each with its number."""
        return dict(self._connection.rows(self._sql.queue_numbers, (database,), Numbered))

    def partitions(self, database: str, queue: str, limit: int, after: int) -> list[PartitionStatus]:
        """Partitions of a queue, with where their records begin and end."""
        about = (database, queue, after, limit, ANY_QUEUE)
        rows = self._connection.rows(self._sql.partition_list, about, PartitionStatusRow)
        return [PartitionStatus(*row) for row in rows]

    def newest(self, after: Lsn, through: Lsn, database: str, queues: Sequence[str]) -> Lsn | None:
        """The newest segment of these queues in a stretch of the log, None when it has none."""
        about = (after, through, database, _names(queues))
        row = self._connection.row(self._sql.newest_of_queues, about, Number)
        return None if row is None else Lsn(row[0])

    def end_of(self, database: str, patterns: Sequence[str]) -> Lsn:
        """Where the log ends for whoever may read these queues."""
        return read_last_lsn_of(self._connection, database, patterns)

    def outline(
        self, after: Lsn, through: Lsn, limit: int, database: str, queues: Sequence[str]
    ) -> list[SegmentOutline]:
        """Segments of these queues in LSN order, without their records."""
        bounds = (after, through, database, _names(queues), limit)
        return [SegmentOutline(*row) for row in self._connection.rows(self._sql.outline, bounds, OutlineRow)]

    def bodies(self, after: Lsn, through: Lsn, bytes_max: int, database: str, queues: Sequence[str]) -> list[Body]:
        """Segments of these queues in LSN order, until their records come to `bytes_max`."""
        found: list[Body] = []
        size = 0
        for row in self._body_rows(after, through, database, _names(queues)):
            try:
                body = self._body(*row)
            except StoreDamaged:
                # Those before it are told first; the next look begins with it, and says so.
                if not found:
                    raise
                break
            found.append(body)
            size += len(body.records)
            if size >= bytes_max:
                break
        return found

    def _body_rows(self, after: Lsn, through: Lsn, database: str, names: str) -> Iterable[BodyRow]:
        """The rows of segments, one after the other: there may be more of them than fit into memory."""
        return self._connection.each(self._sql.bodies, (after, through, database, names), BodyRow)

    def drops(
        self, after: Lsn, since: int, database: str, queues: Sequence[str], partitions: Sequence[str] = ()
    ) -> Drops:
        """How many drops there were, and which partitions lost records after `after` in drops after `since`."""
        number = self._last_drop(database, queues)
        about = (after, since, database, _names(queues), _names(partitions))
        lost = self._connection.rows(self._sql.drops_after, about, Names)
        return Drops(number, len(lost), [f"{queue}/{name}" for queue, name in lost[:PARTITIONS_NAMED_MAX]])

    def _last_drop(self, database: str, queues: Sequence[str]) -> int:
        if queues:
            [(number,)] = self._connection.rows(self._sql.last_drop_of_queues, (database, _names(queues)), Number)
            return number
        row = self._connection.row(self._sql.get_meta, ("drops",), Meta)
        return int(row[0]) if row else 0

    def _body(
        self,
        lsn: Lsn,
        partition_id: PartitionId,
        first: Offset,
        count: int,
        written_at: Timestamp,
        codec: int,
        checksum: int,
        kept: bytes,
    ) -> Body:
        records = open_body(self._codec, lsn, codec, checksum, partition_id, first, kept)
        return Body(
            lsn=lsn,
            lane=self._lane(partition_id),
            first_offset=first,
            count=count,
            written_at=written_at,
            records=records,
            partition_id=partition_id,
        )

    def _lane(self, partition_id: PartitionId) -> Lane:
        lane = self._lanes.get(partition_id)
        if lane is None:
            lane = read_lane(self._connection, partition_id)
            if lane is None:
                raise QueueMissing(f"partition {partition_id} was deleted while it was read")
            self._lanes[partition_id] = lane
        return lane


def _names(queues: Sequence[str]) -> str:
    """Names of queues in one value. No queue has a name with a zero character, and no text of PostgreSQL."""
    return msgspec.json.encode([queue for queue in queues if "\0" not in queue]).decode()
