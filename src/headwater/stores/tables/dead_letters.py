"""Records that failed for good: kept with the reason, listed, pushed back or dropped."""

from zlib import crc32

import msgspec

from headwater.clock import Timestamp
from headwater.errors import InvalidOption, QueueMissing, StoreDamaged
from headwater.log.operations import Deleted, Purge, Requeue, Requeued
from headwater.model.names import Offset, PartitionId
from headwater.model.record import Record, bytes_of, encode_records, split_records
from headwater.model.spreading import is_lane, priority_of, reader_of, requeued_name
from headwater.stores.codec import Codec
from headwater.stores.questions import DeadLetter, ListDeadLetters
from headwater.stores.tables.catalog import Catalog, Group, Partition, Queue, QueueRow
from headwater.stores.tables.connection import Connection, take_answer
from headwater.stores.tables.pushes import Pushes
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.subject import Answering, Handlers, Subject, SubjectAnswers

ERROR_LENGTH_MAX = 4_096
_PLACE = b"dead letter"

# Number, partition and its name, group, offset, attempts, error, time of its push and of its failure, codec, checksum,
# body.
DeadLetterRow = tuple[int, int, str, str, int, int, str, int, int, int, int | None, bytes]


class Burial(msgspec.Struct, frozen=True):
    """Why and when records are given up: a reason by offset or by transaction id."""

    attempts: int
    errors: dict[int | str, str]
    now: Timestamp

    def reason(self, offset: int, transaction_id: str) -> str:
        """What to say of one record: an error may name a file whose name is no text."""
        found = self.errors.get(offset) or self.errors.get(transaction_id) or "failed"
        return found[:ERROR_LENGTH_MAX].encode("utf-8", "replace").decode()


class DeadLetters(Subject):
    """The dead letters of all queues, under the write lock."""

    def __init__(
        self, connection: Connection, codec: Codec, catalog: Catalog, segments: Segments, pushes: Pushes
    ) -> None:
        self._pushes = pushes
        self._connection = connection
        self._sql = connection.sql
        self._codec = codec
        self._catalog = catalog
        self._segments = segments

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Requeue: self.requeue, Purge: self.purge}

    def add(
        self, group: Group, partition: Partition, offset: int, record: Record, written_at: Timestamp, burial: Burial
    ) -> None:
        """Keep one record with the reason it failed for."""
        reason = burial.reason(offset, record.transaction_id)
        kept = [record]
        if group.queue.options.encrypted:
            # An error often quotes the record: it is kept beside it, and nobody reads it without the key.
            kept.append(Record(msgspec.Raw(msgspec.json.encode(reason))))
            reason = ""
        codec, body = self._codec.pack(encode_records(kept), group.queue.options, _PLACE)
        row = (group.queue.id, partition.id, group.name, offset, burial.attempts, reason, written_at, burial.now)
        self._connection.run(self._sql.add_dead_letter, (*row, codec, crc32(body), body))

    def requeue(self, operation: Requeue, now: Timestamp) -> Requeued:
        """Append dead letters once more, for those who are to get them. They are not compared with what is there."""
        if operation.to and operation.all_groups:
            raise InvalidOption("requeue to another queue, or to all groups of this one, not both")
        if operation.to == operation.queue:
            raise InvalidOption(f"queue {operation.to!r} has these dead letters; leave `to` out to requeue them there")
        queue = self._catalog.need_queue(operation.database, operation.queue)
        letters = [dead_letter_of(row, queue.name, self._codec) for row in self._chosen(queue, operation)]
        target = queue
        if operation.to:
            self._need_as_safe(queue, operation.to)
            target = self._catalog.make_queue(operation.database, operation.to, now)
            self._pushes.need_room_now(target, len(letters))
        elif not operation.all_groups:
            self._need_groups(queue, {letter.group for letter in letters})
        # All of them have a place before the first is moved: a requeue that is refused changes nothing.
        places = [self._target(operation, target, letter, place, now) for place, letter in enumerate(letters)]
        for partition, letter in zip(places, letters, strict=True):
            records = [_with_its_time(letter)]
            self._segments.append(partition, records, now)
            self._segments.remember(partition, records)
            self._connection.run(self._sql.drop_dead_letter, (queue.id, letter.id))
        # What comes back to its own queue takes room there although nobody asked for it.
        self._pushes.forget()
        return Requeued(len(letters))

    def _need_as_safe(self, queue: Queue, to: str) -> None:
        """Raises when what is kept encrypted here could be read by anybody there."""
        target = self._catalog.find_queue(queue.database, to)
        if queue.options.encrypted and (target is None or not target.options.encrypted):
            raise InvalidOption(
                f"queue {queue.name!r} is encrypted and {to!r} is not: configure {to!r} with encrypted=True first"
            )

    def _need_groups(self, queue: Queue, names: set[str]) -> None:
        """Raises when a group is gone: nobody would get what is requeued for it."""
        gone = sorted(name for name in names if self._catalog.find_group(queue, name) is None)
        if gone:
            raise QueueMissing(
                f"queue {queue.name!r} has no group {gone[0]!r} any more, and nothing was requeued: "
                "requeue for all groups, to another queue, or those of other groups by their ids"
            )

    def _target(self, operation: Requeue, queue: Queue, letter: DeadLetter, place: int, now: Timestamp) -> Partition:
        """The partition for a dead letter: one that only its group reads, or one of the name that it came from. Where
        nobody has named that, a lane for its priority."""
        priority = priority_of(letter.partition)
        if not operation.to and not operation.all_groups:
            name = requeued_name(letter.group, place % queue.options.lanes, priority)
            return self._catalog.make_partition(queue, name, now)
        is_nowhere = not letter.partition or reader_of(letter.partition)
        if is_nowhere or (operation.to and is_lane(letter.partition)):
            return self._pushes.choose_lane(queue, letter.record.transaction_id, now, priority)
        return self._pushes.named(queue, letter.partition, now)

    def purge(self, operation: Purge, now: Timestamp) -> Deleted:
        """Drop dead letters. They are not read: who has lost the key of a queue can still be rid of them."""
        queue = self._catalog.need_queue(operation.database, operation.queue)
        letters = [number for number, *_ in self._chosen(queue, operation)]
        for number in letters:
            self._connection.run(self._sql.drop_dead_letter, (queue.id, number))
        return Deleted(len(letters))

    def _chosen(self, queue: Queue, operation: Requeue | Purge) -> list[DeadLetterRow]:
        if not operation.ids:
            return self._connection.rows(self._sql.dead_letters, (queue.id, 0, operation.limit), DeadLetterRow)
        return [self._named(queue, number) for number in dict.fromkeys(operation.ids)]

    def _named(self, queue: Queue, number: int) -> DeadLetterRow:
        row = self._connection.row(self._sql.get_dead_letter, (queue.id, number), DeadLetterRow)
        if row is None:
            raise QueueMissing(f"queue {queue.name!r} has no dead letter {number}")
        return row


class DeadLetterAnswers(SubjectAnswers):
    """Reads dead letters."""

    def __init__(self, connection: Connection, codec: Codec) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._codec = codec

    def handlers(self) -> Answering:
        """What answers which question."""
        return {ListDeadLetters: self.dead_letters}

    def dead_letters(self, asked: ListDeadLetters) -> list[DeadLetter]:
        """Dead letters of a queue, oldest first."""
        row = self._connection.row(self._sql.find_queue, (asked.database, asked.queue), QueueRow)
        if row is None:
            raise QueueMissing(f"there is no queue {asked.queue!r}")
        rows = self._connection.each(self._sql.dead_letters, (row[0], asked.after, asked.limit), DeadLetterRow)
        letters = (dead_letter_of(found, asked.queue, self._codec) for found in rows)
        return take_answer(letters, lambda letter: bytes_of((letter.record,)))


def _with_its_time(letter: DeadLetter) -> Record:
    """The record of a dead letter, which keeps the time of its push."""
    return msgspec.structs.replace(letter.record, timestamp=letter.record.timestamp or letter.written_at)


def dead_letter_of(row: DeadLetterRow, queue: str, codec: Codec) -> DeadLetter:
    """The dead letter in a row."""
    number, partition_id, partition, group, offset, attempts, error, written_at, failed_at, kind, checksum, body = row
    if checksum is not None and (type(body) is not bytes or crc32(body) != checksum):
        raise StoreDamaged(f"dead letter {number} is damaged: its checksum does not match")
    record, *told = split_records(codec.unpack(kind, body, _PLACE))
    return DeadLetter(
        id=number,
        queue=queue,
        partition=partition,
        partition_id=PartitionId(partition_id),
        group=group,
        offset=Offset(offset),
        record=record,
        error=msgspec.json.decode(told[0].data, type=str) if told else error,
        attempts=attempts,
        written_at=Timestamp(written_at),
        failed_at=Timestamp(failed_at),
    )
