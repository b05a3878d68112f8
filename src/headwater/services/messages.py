"""What producers hand in and consumers get: values of the library's interface."""

import itertools
import operator
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, overload

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.config import Durability
from headwater.errors import InvalidInput
from headwater.log.committer import CommittedPush
from headwater.log.operations import Ack, Batch, Extend, Push, Pushed
from headwater.model.cursor import Outcome
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.record import Record, decode_payload
from headwater.model.spreading import priority_of
from headwater.services.error_texts import text_of

ERROR_LENGTH_MAX = 4_096


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to push, with more than its payload to say. Names that it does not say are those of the call.

    `timestamp` is when it was made, if that is not now: a datetime with its zone, or microseconds since 1970. `delay`
    and `priority` are those of the call unless they are said here.
    """

    payload: Any
    queue: str | None = None
    partition: str | None = None
    transaction_id: str = ""
    trace_id: str = ""
    type: str = ""
    headers: dict[str, str] | None = None
    timestamp: Timestamp | datetime | None = None
    delay: float | timedelta | None = None
    priority: int | None = None


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Where a pushed message is and how safe it is.

    A duplicate has the offset of the first push, or its `due_at`, and no `lsn` and `written_at`. A message that is only
    in memory has no place yet, nor has one that is delivered later, at `due_at`.
    """

    queue: str
    partition: str
    offset: Offset | None
    durability: Durability
    duplicate: bool = False
    partition_id: PartitionId | None = None
    lsn: Lsn | None = None
    written_at: Timestamp | None = None
    due_at: Timestamp | None = None


class Reporter(Protocol):
    """Takes what is said of messages."""

    async def report(self, messages: "Iterable[Message]", outcome: Outcome, error: str = "") -> None:
        """Say the same of some messages."""
        ...

    async def extend(self, messages: "Iterable[Message]", seconds: float | None) -> None:
        """Keep the leases of some messages for longer."""
        ...


class Delivery:
    """A batch as it was delivered: who takes reports on it, which of its records were reported on from here, and
    whether one of them comes again."""

    __slots__ = ("comes_back", "database", "queues", "reported", "size")

    def __init__(self, queues: Reporter, database: str, size: int) -> None:
        self.queues = queues
        self.database = database
        self.size = size
        self.reported: set[int] = set()
        self.comes_back = False

    @property
    def is_settled(self) -> bool:
        """Whether every record of it was reported on."""
        return len(self.reported) >= self.size


class Message(msgspec.Struct, eq=False):
    """A delivered message. Its payload is decoded when it is first asked for."""

    batch: Batch
    index: int
    delivery: Delivery
    _payload: Any = msgspec.UNSET

    def __repr__(self) -> str:
        return f"Message(queue={self.queue!r}, partition={self.partition!r}, offset={self.offset})"

    @property
    def payload(self) -> Any:
        """The payload as Python values."""
        payload = self._payload
        if payload is msgspec.UNSET:
            payload = self._payload = decode_payload(self.batch.records[self.index].data)
        return payload

    async def ack(self) -> None:
        """Report it as done. A lease that was lost raises `LeaseLost`, and nothing of it changes."""
        await self.delivery.queues.report([self], Outcome.COMPLETED)

    async def fail(self, *, error: str = "", retry: bool = True) -> None:
        """Report it as failed: it comes again after the queue's retry delay, or ends in the dead letters."""
        await self.delivery.queues.report([self], Outcome.FAILED if retry else Outcome.DEAD, error)

    async def release(self) -> None:
        """Give it back untouched: others get it at once, and no attempt is counted."""
        await self.delivery.queues.report([self], Outcome.RELEASED)

    async def extend(self, seconds: float | None = None) -> None:
        """Keep its lease for `seconds` from now, or for the queue's lease time."""
        await self.delivery.queues.extend([self], seconds)

    @property
    def is_reported(self) -> bool:
        """Whether it was acked, failed or released from here; a consumer's loop then says no more of it."""
        return self.index in self.delivery.reported

    @property
    def database(self) -> str:
        """The database (tenant) it came from."""
        return self.delivery.database

    @property
    def record(self) -> Record:
        """The record as the log keeps it; `record.data` is the payload's JSON."""
        return self.batch.records[self.index]

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self.batch.queue

    @property
    def partition(self) -> str:
        """The partition it came from."""
        return self.batch.partition

    @property
    def priority(self) -> int:
        """The priority that it was pushed with."""
        return priority_of(self.batch.partition)

    @property
    def partition_id(self) -> PartitionId:
        """The partition's number."""
        return self.batch.partition_id

    @property
    def group(self) -> str:
        """The consumer group it was delivered to."""
        return self.batch.group

    @property
    def offset(self) -> Offset:
        """Its place in the partition."""
        return self.batch.offsets[self.index]

    @property
    def lsn(self) -> Lsn:
        """The LSN of the segment that holds it."""
        return self.batch.lsns[self.index]

    @property
    def transaction_id(self) -> str:
        """The id its producer gave it, '' for none."""
        return self.record.transaction_id

    @property
    def type(self) -> str:
        """The type its producer gave it."""
        return self.record.type

    @property
    def headers(self) -> dict[str, str]:
        """What its producer attached to it."""
        return self.record.headers or {}

    @property
    def attempts(self) -> int:
        """How often it was delivered to this group, this time included."""
        return self.batch.attempts

    @property
    def token(self) -> int:
        """The fencing token of its lease: a later lease has a higher one."""
        return self.batch.token

    @property
    def created_at(self) -> datetime:
        """When it was pushed."""
        at = self.record.timestamp or self.batch.written_at[self.index]
        return datetime.fromtimestamp(at / SECOND, UTC)

    @property
    def lease_until(self) -> datetime:
        """When others may get it, unless it is acked, failed or extended before."""
        return datetime.fromtimestamp(self.batch.lease_until / SECOND, UTC)

    @property
    def lost_before(self) -> int:
        """How many records before its batch retention dropped before this group could read them."""
        return 0 if self.index else self.batch.lost


def messages_of(batches: list[Batch], database: str, queues: Reporter) -> list[Message]:
    """The messages of some batches, in the order in which they were pushed, as far as commits tell it."""
    messages: list[Message] = []
    for batch in batches:
        count = len(batch.offsets)
        delivery = Delivery(queues, database, count)
        messages += [Message(batch, index, delivery) for index in range(count)]
    return messages if len(batches) < 2 else _in_order_of_pushes(batches, messages)


def _in_order_of_pushes(batches: list[Batch], messages: list[Message]) -> list[Message]:
    """The messages of several batches by LSN; queues that were popped together stay in the order of their priority, and
    so do the messages of one queue."""
    places = {batch.queue: place for place, batch in reversed(list(enumerate(batches)))}
    keys: list[tuple[int, int, Lsn]] = []
    for batch in batches:
        place, rank = places[batch.queue], -priority_of(batch.partition)
        keys += [(place, rank, lsn) for lsn in batch.lsns]
    return [message for _, message in sorted(zip(keys, messages, strict=True), key=_first)]


_first = operator.itemgetter(0)
_batch = operator.attrgetter("batch")
_delivery = operator.attrgetter("delivery")
_index = operator.attrgetter("index")


def deliveries_of(messages: Sequence[Message]) -> set[Delivery]:
    """The deliveries that some messages came with."""
    return set(map(_delivery, messages))


def first_of_each_batch(messages: Sequence[Message]) -> list[Message]:
    """One message of each batch: the first that is held."""
    return list(dict(zip(map(id, map(_batch, reversed(messages))), reversed(messages), strict=True)).values())


def mark_reported(messages: Iterable[Message], outcome: Outcome) -> None:
    """Remember that these were reported on: whoever holds them says no more of them."""
    comes_back = outcome in (Outcome.FAILED, Outcome.RELEASED)
    for delivery, together in itertools.groupby(messages, _delivery):
        delivery.reported.update(map(_index, together))
        delivery.comes_back |= comes_back


def ack_of(
    batch: Batch,
    database: str,
    *,
    offsets: Sequence[Offset] = (),
    outcomes: dict[int | str, Outcome] | None = None,
    errors: dict[int | str, str] | None = None,
) -> Ack:
    """A report on records of one batch: these offsets are done, or these outcomes hold."""
    if not batch.token:
        raise InvalidInput("these messages were acked when they were popped")
    return Ack(
        database=database,
        partition_id=batch.partition_id,
        group=batch.group,
        token=batch.token,
        offsets=offsets,
        outcomes=outcomes,
        errors=errors,
    )


def _report(messages: Sequence[Message], outcome: Outcome, error: str) -> Ack:
    batch, database = messages[0].batch, messages[0].database
    leased = batch.offsets
    places = list(map(_index, messages))
    offsets = leased if places == list(range(len(leased))) else [leased[place] for place in places]
    if outcome is Outcome.COMPLETED:
        return ack_of(batch, database, offsets=offsets)
    # Whatever somebody says of a failure: an exception, too.
    text = text_of(error, ERROR_LENGTH_MAX)
    errors: dict[int | str, str] | None = dict.fromkeys(offsets, text) if text else None
    return ack_of(batch, database, outcomes=dict.fromkeys(offsets, outcome), errors=errors)


def reports_of(messages: Iterable[Message], outcome: Outcome, error: str = "") -> list[Ack]:
    """The same to say of messages of any batches: one report for each lease."""
    batches: dict[int, list[Message]] = {}
    for batch, together in itertools.groupby(messages, _batch):
        batches.setdefault(id(batch), []).extend(together)
    return [_report(chosen, outcome, error) for chosen in batches.values()]


def extension_of(message: Message, seconds: float | None) -> Extend:
    """The extension of a message's lease."""
    return Extend(
        database=message.database,
        partition_id=message.partition_id,
        group=message.group,
        token=message.token,
        seconds=seconds,
    )


def receipt_of(push: Push, answer: CommittedPush) -> Receipt:
    """The receipt of a push of one message."""
    pushed = answer.result
    if pushed is None or pushed.duplicates or pushed.parts or pushed.due_at is not None:
        return Receipts(push, answer)[0]
    partition = pushed.partition or push.partition
    where = (pushed.partition_id, pushed.lsn, pushed.written_at)
    return Receipt(push.queue, partition, pushed.first_offset, answer.durability, False, *where)


class Receipts(Sequence[Receipt]):
    """The receipts of one push, made when they are looked at."""

    def __init__(self, push: Push, answer: CommittedPush) -> None:
        self._push = push
        self._pushed = answer.result
        self._durability = answer.durability
        self._offsets: list[Offset] | None = None
        self._parts: dict[int, Pushed] | None = None

    def __len__(self) -> int:
        return len(self._push.records)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        push, pushed = self._push, self._pushed
        if pushed is None:
            return Receipt(push.queue, push.partition, None, self._durability)
        duplicate = place in pushed.duplicates
        is_plain = not pushed.duplicates and not pushed.parts
        offset = Offset(pushed.first_offset + place) if is_plain else self._offset(pushed, place)
        part = self._part(pushed, place) if pushed.parts else pushed
        if part.due_at is not None or offset < 0:
            return self._to_come(pushed, part, place)
        # When the first one was written is not known: this push wrote nothing of it.
        where = (part.partition_id, None, None) if duplicate else (part.partition_id, part.lsn, part.written_at)
        return Receipt(push.queue, part.partition or push.partition, offset, self._durability, duplicate, *where)

    def _to_come(self, pushed: Pushed, part: Pushed, place: int) -> Receipt:
        """A message for later has no place yet, unless it is the duplicate of one that has."""
        offset = pushed.duplicates.get(place)
        known = None if offset is None or offset < 0 else offset
        due_at = part.due_at if offset is None else pushed.due.get(place)
        where = (part.partition_id, None, part.written_at if offset is None else None, due_at)
        return Receipt(self._push.queue, part.partition, known, self._durability, offset is not None, *where)

    def _offset(self, pushed: Pushed, place: int) -> Offset:
        if self._offsets is None:
            self._offsets = pushed.offsets()
        return self._offsets[place]

    def _part(self, pushed: Pushed, place: int) -> Pushed:
        """What became of the lane that a record went to."""
        if self._parts is None:
            self._parts = {member: part for part in pushed.parts for member in part.members}
        return self._parts[place]


def in_order(parts: Iterable[tuple[Sequence[int], Sequence[Receipt]]], count: int) -> Sequence[Receipt]:
    """Receipts of pushes that were handed in together, in the order of their messages."""
    found: dict[int, Receipt] = {}
    for members, part in parts:
        if len(members) == count:
            return part
        found.update(zip(members, part, strict=True))
    return [found[index] for index in range(count)]
