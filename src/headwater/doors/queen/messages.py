"""`/api/v1/dlq` and `/api/v1/messages…`: looking at single messages, dead or alive, and deciding about them."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from headwater.config import MIB
from headwater.doors.queen.identities import (
    message_id,
    parse_partition,
    parse_record,
    parse_time,
    record_name,
    show_time,
)
from headwater.doors.site import Site, check_use, lane_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import InvalidOption, QueueMissing
from headwater.log.operations import PassOver, Purge, Requeue
from headwater.model.lane import Lane
from headwater.model.names import GROUP_DEFAULT, Offset, PartitionId, check_name
from headwater.model.record import Record, bytes_of
from headwater.stores.questions import (
    CursorStatus,
    DeadLetter,
    ListCursors,
    ListDeadLetters,
    ListPartitions,
    PartitionStatus,
    ReadPartition,
)

PAGE = 1_000
# A page of messages has so many bytes of them, and always one.
PAGE_BYTES_MAX = 8 * MIB
# How many messages are looked through, from the newest back, for one with a certain id.
SEARCH_MAX = 100_000
# In how many partitions it is looked up how far a group is.
CURSORS_MAX = 10_000

Item = TypeVar("Item")
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]


class DeadLetterQuery(Struct, frozen=True, rename={"from_": "from", "consumer_group": "consumerGroup"}):
    """Which dead letters."""

    queue: str
    limit: Limit = 100
    offset: Count = 0
    consumer_group: str = ""
    partition: str = ""
    from_: str = ""
    to: str = ""


class MessagesQuery(Struct, frozen=True, rename="camel"):
    """Which messages: the newest of a queue or of one of its partitions, of those that have come so far in a group."""

    queue: str
    partition: str = ""
    status: Literal["", "pending", "processing", "completed", "failed", "dead_letter"] = ""
    consumer_group: str = GROUP_DEFAULT
    limit: Limit = 50
    offset: Count = 0


class DeadMessage(Struct, frozen=True, rename="camel"):
    """A message that failed for good. `letter` is its number among the dead letters."""

    id: str
    letter: int
    transaction_id: str
    trace_id: str | None
    partition_id: str
    queue: str
    queue_name: str
    partition: str
    partition_name: str
    consumer_group: str
    offset: int
    error_message: str
    retry_count: int
    attempts: int
    data: Raw
    producer_sub: str | None
    created_at: str
    failed_at: str


class DeadMessages(Struct, frozen=True):
    """A page of dead letters; `total` counts all that fit."""

    messages: list[DeadMessage]
    total: int
    limit: int
    offset: int


class KeptMessage(Struct, frozen=True, rename="camel"):
    """A message as the log keeps it. Of a dead letter the rest is known too; then the log may have dropped it."""

    id: str
    transaction_id: str
    trace_id: str | None
    partition_id: str
    queue: str
    partition: str
    offset: int
    lsn: int | None
    status: str
    data: Raw
    payload: Raw
    producer_sub: str | None
    created_at: str
    type: str = ""
    headers: dict[str, str] | None = None
    error_message: str | UnsetType = UNSET
    consumer_group: str | UnsetType = UNSET
    retry_count: int | UnsetType = UNSET
    failed_at: str | UnsetType = UNSET


class KeptMessages(Struct, frozen=True):
    """Messages of a queue, newest first."""

    messages: list[KeptMessage]
    limit: int
    offset: int


class Decision(Struct, frozen=True, rename="camel"):
    """What became of a message."""

    success: bool
    partition_id: str
    transaction_id: str
    message: str


# ── dead letters ──


async def list_dead_letters(site: Site, request: Request, query: DeadLetterQuery) -> Response:
    """Dead letters of a queue, newest first. A queue that is not there has none."""
    check_use(request, check_name("queue", query.queue))
    begin = parse_time("from", query.from_) if query.from_ else 0
    end = parse_time("to", query.to) if query.to else 2**62
    database = request.principal.database
    found: list[tuple[int, int]] = []
    async for letter in _dead_letters(site, database, query.queue):
        group_fits = query.consumer_group in ("", letter.group)
        if group_fits and query.partition in ("", letter.partition) and begin <= letter.failed_at <= end:
            found.append((letter.id, bytes_of((letter.record,))))
    found.reverse()
    page = {number for number, _ in _fitting(found[query.offset : query.offset + query.limit], lambda one: one[1])}
    # Only those that are shown are held.
    letters = _dead_letters(site, database, query.queue, min(page, default=0) - 1, max(page, default=-1))
    messages = [dead_message(letter) async for letter in letters if letter.id in page]
    messages.reverse()
    return json_response(DeadMessages(messages, len(found), query.limit, query.offset))


async def _dead_letters(
    site: Site, database: str, queue: str, after: int = 0, through: int = 2**62
) -> AsyncIterator[DeadLetter]:
    while after < through:
        try:
            page = await site.queues.ask(ListDeadLetters(database, queue, PAGE, after))
        except QueueMissing:
            return
        if not page:
            return
        for letter in page:
            yield letter
        after = page[-1].id


def dead_message(letter: DeadLetter) -> DeadMessage:
    """A dead letter as the clients read it."""
    record = letter.record
    return DeadMessage(
        id=message_id(letter.partition_id, letter.offset),
        letter=letter.id,
        transaction_id=record_name(record.transaction_id, letter.offset),
        trace_id=record.trace_id or None,
        partition_id=str(letter.partition_id),
        queue=letter.queue,
        queue_name=letter.queue,
        partition=letter.partition,
        partition_name=letter.partition,
        consumer_group=letter.group,
        offset=letter.offset,
        error_message=letter.error,
        retry_count=max(letter.attempts - 1, 0),
        attempts=letter.attempts,
        data=record.data,
        producer_sub=record.producer_sub or None,
        created_at=show_time(record.timestamp or letter.written_at),
        failed_at=show_time(letter.failed_at),
    )


# ── messages in the log ──


async def list_messages(site: Site, request: Request, query: MessagesQuery) -> Response:
    """The newest messages of a queue, or of one partition of it."""
    check_use(request, check_name("queue", query.queue))
    partitions = [
        status
        for status in await site.queues.ask(ListPartitions(request.principal.database, query.queue))
        if query.partition in ("", status.partition)
    ]
    wanted = query.offset + query.limit
    progress = await _progress(site, request, query)
    found: list[Sketch] = []
    for status in partitions:
        # Those that have come so far may lie anywhere: they are looked for among all that a search looks through.
        first = Offset(max(status.end - (SEARCH_MAX if query.status else wanted), status.start))
        async for message in _kept(site, status, first):
            state = progress.status(message)
            if query.status in ("", state, _aliases.get(state)):
                # Under `data` and under `payload`.
                found.append(Sketch(message.lsn or 0, message.offset, status, state, 2 * len(message.data)))
    found.sort(key=lambda sketch: (sketch.lsn, sketch.offset), reverse=True)
    shown = list(_fitting(found[query.offset : wanted], lambda sketch: sketch.size))
    return json_response(KeptMessages(await _drawn(site, shown), query.limit, query.offset))


class Sketch(NamedTuple):
    """A message that may be shown, without what is large of it."""

    lsn: int
    offset: int
    partition: PartitionStatus
    state: str
    size: int


def _fitting(found: Sequence[Item], size_of: Callable[[Item], int]) -> Iterator[Item]:
    """The first of them, as many as an answer may have bytes, and one at least."""
    size = 0
    for place, item in enumerate(found):
        size += size_of(item)
        if place and size > PAGE_BYTES_MAX:
            return
        yield item


async def _drawn(site: Site, sketches: Sequence[Sketch]) -> list[KeptMessage]:
    """The messages themselves, in the order of their sketches."""
    wanted = {(sketch.partition.partition_id, sketch.offset): sketch for sketch in sketches}
    found: dict[tuple[int, int], KeptMessage] = {}
    for partition in {sketch.partition.partition_id: sketch.partition for sketch in sketches}.values():
        offsets = [sketch.offset for sketch in sketches if sketch.partition.partition_id == partition.partition_id]
        async for message in _kept(site, partition, Offset(min(offsets)), max(offsets) + 1):
            place = (partition.partition_id, message.offset)
            if place in wanted:
                found[place] = msgspec.structs.replace(message, status=wanted[place].state)
    return [found[place] for place in wanted if place in found]


# What a client may call a message that failed for good.
_aliases = {"dead_letter": "failed"}


class Progress(NamedTuple):
    """How far a group has come in a queue: where it stands in each partition, and what failed for good."""

    cursors: dict[int, CursorStatus]
    dead: set[tuple[int, int]]

    def status(self, message: KeptMessage) -> str:
        """What has become of a message."""
        number = int(message.partition_id)
        cursor = self.cursors.get(number)
        if (number, message.offset) in self.dead:
            return "dead_letter"
        if cursor is None:
            return "pending"
        if message.offset < cursor.position or message.offset in cursor.settled:
            return "completed"
        return "processing" if cursor.leased and message.offset < cursor.leased_to else "pending"


async def _progress(site: Site, request: Request, query: MessagesQuery) -> Progress:
    database, group = request.principal.database, check_name("group", query.consumer_group)
    cursors = await site.queues.ask(ListCursors(database, group, CURSORS_MAX))
    letters = _dead_letters(site, database, query.queue)
    return Progress(
        {cursor.partition_id: cursor for cursor in cursors if cursor.queue == query.queue},
        {(letter.partition_id, letter.offset) async for letter in letters if letter.group == group},
    )


async def _kept(
    site: Site, status: PartitionStatus, first: Offset, end: int | None = None
) -> AsyncIterator[KeptMessage]:
    """Messages of a partition from an offset on, up to where it ended when that was looked up."""
    lane = Lane("", status.queue, "", "", status.partition)
    end = status.end if end is None else end
    while first < end and (segments := await site.queues.ask(ReadPartition(status.partition_id, first, PAGE))):
        for segment in segments:
            for offset, record in enumerate(segment.records, segment.first_offset):
                if first <= offset < end:
                    yield kept_message(status.partition_id, lane, offset, segment.lsn, record, segment.written_at)
        first = Offset(segments[-1].first_offset + len(segments[-1].records))


def kept_message(
    partition_id: PartitionId, lane: Lane, offset: int, lsn: int | None, record: Record, written_at: int
) -> KeptMessage:
    """A record as the clients read it."""
    return KeptMessage(
        id=message_id(partition_id, offset),
        transaction_id=record_name(record.transaction_id, offset),
        trace_id=record.trace_id or None,
        partition_id=str(partition_id),
        queue=lane.queue,
        partition=lane.partition,
        offset=offset,
        lsn=lsn,
        status="kept",
        data=record.data,
        payload=record.data,
        producer_sub=record.producer_sub or None,
        created_at=show_time(record.timestamp or written_at),
        type=record.type,
        headers=record.headers,
    )


async def show_message(site: Site, request: Request, partition: str, name: str) -> Response:
    """One message, from the log or from the dead letters."""
    partition_id, lane = await _theirs(site, request, partition)
    letter = await _find_letter(site, request, lane, partition_id, name)
    found = await _find(site, partition_id, lane, name)
    if letter is not None:
        return json_response(_dead(letter, lane, found))
    if found is None:
        raise QueueMissing(f"there is no message {name!r:.80} in this partition")
    return json_response(found)


def _dead(letter: DeadLetter, lane: Lane, kept: KeptMessage | None) -> KeptMessage:
    """A dead letter as a message, whether the log still has it or not."""
    dead = dead_message(letter)
    message = kept or kept_message(letter.partition_id, lane, letter.offset, None, letter.record, letter.written_at)
    return msgspec.structs.replace(
        message,
        status="dead_letter",
        error_message=dead.error_message,
        consumer_group=dead.consumer_group,
        retry_count=dead.retry_count,
        failed_at=dead.failed_at,
    )


async def delete_message(site: Site, request: Request, partition: str, name: str) -> Response:
    """Drop a dead letter; or have every group that there is pass a message that nobody works on."""
    partition_id, lane = await _theirs(site, request, partition)
    letter = await _find_letter(site, request, lane, partition_id, name)
    if letter is not None:
        operation = Purge(database=lane.database, queue=lane.queue, ids=(letter.id,))
        await site.queues.run(operation)
        return _decided(partition, name, "the dead letter is gone")
    message = await _need(site, partition_id, lane, name)
    passing = PassOver(database=lane.database, partition_id=partition_id, offset=Offset(message.offset))
    count = (await site.queues.run(passing)).count
    return _decided(
        partition,
        name,
        f"{count} of the groups there are pass it; the log keeps it until retention drops it, so that a group that is "
        "made later gets it",
    )


async def retry_message(site: Site, request: Request, partition: str, name: str) -> Response:
    """Push a dead letter back to where it came from."""
    partition_id, lane = await _theirs(site, request, partition)
    letter = await _find_letter(site, request, lane, partition_id, name)
    if letter is None:
        raise QueueMissing(f"there is no dead letter {name!r:.80} of this partition")
    await site.queues.run(Requeue(database=lane.database, queue=lane.queue, ids=(letter.id,)))
    return _decided(partition, name, "it was pushed back")


async def bury_message(site: Site, request: Request, partition: str, name: str) -> Response:
    """Move a message that nobody works on to the dead letters of every group that has it before it."""
    partition_id, lane = await _theirs(site, request, partition)
    message = await _need(site, partition_id, lane, name)
    operation = PassOver(database=lane.database, partition_id=partition_id, offset=Offset(message.offset), bury=True)
    count = (await site.queues.run(operation)).count
    return _decided(
        partition, name, f"it is among the dead letters of {count} groups; a group that is made later gets it"
    )


async def _theirs(site: Site, request: Request, partition: str) -> tuple[PartitionId, Lane]:
    partition_id = parse_partition(partition)
    lane = await lane_of(site, request, partition_id)
    if lane is None:
        raise QueueMissing(f"there is no partition {partition_id}")
    return partition_id, lane


def _decided(partition: str, name: str, message: str) -> Response:
    return json_response(Decision(success=True, partition_id=partition, transaction_id=name, message=message))


async def _find_letter(
    site: Site, request: Request, lane: Lane, partition_id: PartitionId, name: str
) -> DeadLetter | None:
    wanted = parse_record(name)
    async for letter in _dead_letters(site, request.principal.database, lane.queue):
        if letter.partition_id == partition_id and wanted in (letter.offset, letter.record.transaction_id):
            return letter
    return None


async def _need(site: Site, partition_id: PartitionId, lane: Lane, name: str) -> KeptMessage:
    found = await _find(site, partition_id, lane, name)
    if found is None:
        raise QueueMissing(f"there is no message {name!r:.80} in this partition")
    return found


async def _find(site: Site, partition_id: PartitionId, lane: Lane, name: str) -> KeptMessage | None:
    """A message by its offset, or by its transaction id among the newest."""
    wanted = parse_record(name)
    status = await _status(site, lane, partition_id)
    if status is None:
        return None
    if isinstance(wanted, int):
        if not status.start <= wanted < status.end:
            return None
        async for message in _kept(site, status, Offset(wanted)):
            return message
        return None
    if not wanted:
        raise InvalidOption("name a message by its transaction id, or by @ and its offset")
    found: KeptMessage | None = None
    async for message in _kept(site, status, Offset(max(status.end - SEARCH_MAX, status.start))):
        if message.transaction_id == wanted:
            found = message
    return found


async def _status(site: Site, lane: Lane, partition_id: PartitionId) -> PartitionStatus | None:
    found = await site.queues.ask(ListPartitions(lane.database, lane.queue, 1, partition_id - 1))
    return next((status for status in found if status.partition_id == partition_id), None)
