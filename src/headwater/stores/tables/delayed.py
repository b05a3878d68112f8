"""Messages for later: kept beside the log until they are due, then appended to it.

Every commit appends what is due before it does anything else, so nothing depends on who is awake: a pop that waits is
told when the next message is due, and a chore looks for those that nobody waits for. Messages that are due together are
appended in the order of their times, then of their pushes. Duplicates are recognised when a message is pushed.
"""

import logging
from collections.abc import Sequence
from zlib import crc32

from headwater.clock import SECOND, Timestamp
from headwater.errors import EncryptionKeyMissing, HeadwaterError, StoreDamaged
from headwater.log.operations import Operation, Promote, Promoted
from headwater.model.names import Offset, PartitionId
from headwater.model.record import Record, encode_records, split_records
from headwater.stores.codec import Codec
from headwater.stores.questions import FindNextDue
from headwater.stores.tables.catalog import Catalog, Partition
from headwater.stores.tables.connection import Connection, Number
from headwater.stores.tables.key_check import KeyCheck
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.subject import Answering, Handlers, Read, Seen, Subject, SubjectAnswers

log = logging.getLogger(__name__)

PROMOTED_AT_ONCE = 500
POSTPONE_SECONDS = 60
# A duplicate of a message that is still to come has no offset yet.
NO_OFFSET = Offset(-1)
NOTHING_PASSED = -1
_PLACE = b"delayed"

# When the next one is due, and whether any has an id.
NextDueRow = tuple[Timestamp | None, int]
# When it is due, number, partition, time to live, count, codec, checksum, body.
DelayedRow = tuple[int, int, int, float | None, int, int, int, bytes]


class Delayed(Subject):
    """Messages for later of all queues, under the write lock."""

    def __init__(self, connection: Connection, codec: Codec, catalog: Catalog, segments: Segments) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._codec = codec
        self._key = KeyCheck(connection, codec)
        self._catalog = catalog
        self._segments = segments
        self._is_known = False
        self._next_due: int | None = None
        self._any_ids = False
        self._promoted = 0
        # Up to here this process has met messages that it has no key for, and does not look at them before a time.
        self._passed = NOTHING_PASSED
        self._passed_until = 0

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Promote: self.promote}

    def foresee(self, operations: Sequence[Operation], now: Timestamp) -> list[Read]:
        """When the next message is due, and those that are."""
        found = [Read("next_delayed")]
        if self._next_due is not None and self._next_due <= now:
            found.append(Read("due_delayed", (self._passed, now, PROMOTED_AT_ONCE)))
        return found

    def foresee_duplicates(self, partition: Partition, records: Sequence[Record]) -> list[Read]:
        """What `duplicates` will read."""
        ids = [record.transaction_id for record in records if record.transaction_id] if self._any_ids else []
        return [Read("find_delayed_id", (partition.id, name)) for one in ids for name in self._names(partition, one)]

    def catch_up(self, seen: Seen) -> None:
        """Others may have added some."""
        self.forget()

    def forget(self) -> None:
        """Others may have added some, or what was added may never have been."""
        self._is_known = False

    def next_due(self) -> int | None:
        """When the next message is due."""
        if not self._is_known:
            [(due, ids)] = self._connection.rows(self._sql.next_delayed, (), NextDueRow)
            if due is not None and due <= self._passed:
                due = self._connection.rows(self._sql.next_delayed_after, (self._passed,), NextDueRow)[0][0]
            self._next_due, self._any_ids, self._is_known = due, bool(ids), True
        return self._next_due

    def add(
        self,
        partition: Partition,
        records: Sequence[Record],
        due_at: Timestamp,
        now: Timestamp,
        ttl_seconds: float | None,
    ) -> None:
        """Keep messages of one partition until they are due."""
        self._key.check(partition.queue.options)
        codec, body = self._codec.pack(encode_records(records), partition.queue.options, _PLACE)
        row = (partition.id, due_at, now, ttl_seconds, len(records), codec, crc32(body), body)
        [(number,)] = self._connection.rows(self._sql.add_delayed, row, Number)
        for record in records:
            if record.transaction_id:
                name = self._codec.name(record.transaction_id, partition.queue.options)
                self._connection.run(self._sql.add_delayed_id, (partition.id, name, number))
        self.forget()

    def duplicates(self, partition: Partition, records: Sequence[Record]) -> dict[int, Timestamp]:
        """Which of the records (by index) are among those that are still to come, and when these are due."""
        self.next_due()
        if not self._any_ids:
            return {}
        found = {}
        for index, record in enumerate(records):
            if record.transaction_id:
                due_at = self._due_at(partition, record.transaction_id)
                if due_at is not None:
                    found[index] = due_at
        return found

    def _due_at(self, partition: Partition, identity: str) -> Timestamp | None:
        """When the message with this transaction id is due that is still to come."""
        for name in self._names(partition, identity):
            row = self._connection.row(self._sql.find_delayed_id, (partition.id, name), Number)
            if row is not None:
                return Timestamp(row[0])
        return None

    def _names(self, partition: Partition, identity: str) -> tuple[str, ...]:
        """What a transaction id may be kept under. Messages that came before a queue was encrypted have it as it is."""
        options = partition.queue.options
        return (self._codec.name(identity, options), identity) if options.encrypted else (identity,)

    def begin(self, now: Timestamp) -> None:
        """Append what is due, at most some at a time."""
        self._promoted = 0
        if self._passed_until <= now and self._passed != NOTHING_PASSED:
            self._pass(NOTHING_PASSED, now)
        due = self._next_due if self._is_known else self.next_due()
        if due is None or due > now:
            return
        locked: EncryptionKeyMissing | None = None
        rows = self._connection.rows(self._sql.due_delayed, (self._passed, now, PROMOTED_AT_ONCE), DelayedRow)
        for row in rows:
            try:
                self._promoted += self._promote(row, now)
            except EncryptionKeyMissing as error:
                locked = error
        self.forget()
        if locked is not None:
            log.error("messages that are due are left to a process that has the key of their queue: %s", locked)
            self._pass(rows[-1][0], now)

    def _pass(self, through: int, now: Timestamp) -> None:
        """Leave what is due up to then to others for a while. Who has no key must not put it off for who has."""
        self._passed = through
        self._passed_until = now + POSTPONE_SECONDS * SECOND
        self.forget()

    def promote(self, operation: Promote, now: Timestamp) -> Promoted:
        """It is done with every commit: how many messages there were."""
        return Promoted(self._promoted)

    def _promote(self, row: DelayedRow, now: Timestamp) -> int:
        _, number, partition_id, ttl_seconds, count, codec, checksum, body = row
        partition = self._catalog.partition_by_id(PartitionId(partition_id))
        if partition is not None:
            try:
                if type(body) is not bytes or crc32(body) != checksum:
                    raise StoreDamaged(f"delayed message {number} is damaged: its checksum does not match")
                records = split_records(self._codec.unpack(codec, body, _PLACE))
                self._segments.append(partition, records, now, ttl_seconds)
            except EncryptionKeyMissing:
                raise
            except HeadwaterError as error:
                # Kept and told again and again: others behind it must not wait for it.
                log.error("messages that are due cannot be delivered, and are tried again in a minute: %s", error)
                self._connection.run(self._sql.put_off_delayed, (now + POSTPONE_SECONDS * SECOND, number))
                return 0
            self._segments.remember(partition, records)
        self._connection.run(self._sql.drop_delayed_ids, (number,))
        self._connection.run(self._sql.drop_delayed, (number,))
        return count

    def clear(self, partition_id: PartitionId) -> int:
        """Drop what is still to come for a partition; how many messages that were."""
        [(count,)] = self._connection.rows(self._sql.count_delayed, (partition_id,), Number)
        if count:
            self._connection.run(self._sql.clear_delayed_ids, (partition_id,))
            self._connection.run(self._sql.clear_delayed, (partition_id,))
            self.forget()
        return int(count)

    def clock_set_back(self, now: Timestamp, by: int) -> None:
        """What was pushed while the clock was ahead comes as much earlier; the rest keeps its time."""
        self._connection.run(self._sql.take_delayed_back, (now, by))
        self._pass(NOTHING_PASSED, now)


class DelayedAnswers(SubjectAnswers):
    """Reads when messages for later are due."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Answering:
        """What answers which question."""
        return {FindNextDue: self.next_due}

    def next_due(self, asked: FindNextDue) -> Timestamp | None:
        """When the next message for later is due."""
        [(due, _)] = self._connection.rows(self._sql.next_delayed, (), NextDueRow)
        return None if due is None else Timestamp(due)
