"""`POST /api/v1/push`: messages in, and where each of them is now.

Payloads are never decoded: their bytes go from the body into the log. Everything is checked before anything is pushed.
"""

from collections.abc import Sequence
from typing import TypeGuard

from headwater.config import Durability
from headwater.doors.holds import check_pushes_taken
from headwater.doors.queen.identities import OFFSET_MARK, message_id
from headwater.doors.queen.shapes import PushBody, PushItem, PushResult
from headwater.doors.site import Site, check_use, key_given, key_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import EncryptionKeyMissing, HeadwaterError, InvalidOption, KeyReused, StoreError, TooLarge
from headwater.log.committer import CommittedPush
from headwater.log.operations import Push, Pushed
from headwater.model.names import PARTITION_DEFAULT
from headwater.model.record import SHALLOW_BYTES_MAX, Record, check_ready_json
from headwater.services.checks import check_durability
from headwater.services.queue import with_keys
from headwater.services.records import ON_THE_WIRE, check_envelope

CREATED = 201
# Queues that this wire makes have the one partition that its clients know, whoever else pushes to them.
LANES = 1

QueuePartition = tuple[str, str]


async def push(site: Site, request: Request, body: PushBody) -> Response:
    """Append messages; answered when they are as durable as was asked for."""
    await check_pushes_taken(site, request)
    durability = check_durability(body.durability)
    key = key_of(request, key_given(request, body.idempotency_key))
    lanes = lanes_of(site, request, body.items)
    records = records_of(site, request, body.items)
    pushes = [
        Push(
            database=request.principal.database,
            queue=queue,
            partition=partition,
            records=records if len(lanes) == 1 else [records[index] for index in members],
            ttl_seconds=body.ttl_seconds,
            lanes=LANES,
        )
        for (queue, partition), members in lanes.items()
    ]
    pushes = with_keys(pushes, key)
    answers = await site.queues.push_each(pushes, durability)
    for answer in answers:
        if isinstance(answer, KeyReused):
            raise answer
    site.refuse_pushes(pushes, answers)
    refused = [answer for answer in answers if is_of_the_store(answer)]
    if refused and len(refused) == len(answers):
        # The store itself took nothing: many clients look no further than the status.
        raise refused[0]
    return json_response(results_of(body.items, pushes, list(lanes.values()), answers), status=CREATED)


def is_of_the_store(answer: CommittedPush | HeadwaterError) -> TypeGuard[StoreError]:
    """Whether it is the store that cannot, whatever is pushed: full, busy, broken or gone."""
    return isinstance(answer, StoreError) and not isinstance(answer, EncryptionKeyMissing)


def lanes_of(site: Site, request: Request, items: Sequence[PushItem]) -> dict[QueuePartition, Sequence[int]]:
    """Which messages go to which queue and partition."""
    if len(items) > site.config.batch_max:
        raise TooLarge(f"a push takes 1 to {site.config.batch_max:,} messages; got {len(items):,}")
    if len({(item.queue, item.partition) for item in items}) == 1:
        lane = (items[0].queue, items[0].partition or PARTITION_DEFAULT)
        check_use(request, lane[0])
        return {lane: range(len(items))}
    lanes: dict[QueuePartition, list[int]] = {}
    for index, item in enumerate(items):
        lanes.setdefault((item.queue, item.partition or PARTITION_DEFAULT), []).append(index)
    for queue, _ in lanes:
        check_use(request, queue)
    return {**lanes}


def records_of(site: Site, request: Request, items: Sequence[PushItem]) -> list[Record]:
    """The messages as records.

    What is rare is looked for in the whole body first, at the speed of memory: escapes, which could stand for what a
    text may not have, headers, times, and ids that look like offsets.
    """
    subject = request.principal.subject
    body = request.body
    if b"\\u" in body or b'"headers"' in body or b'"timestamp"' in body or b'"@' in body:
        for item in items:
            _check_about(item)
    _check_payloads(site, body, items)
    return [
        Record(
            item.payload,
            item.transaction_id or "",
            item.trace_id or "",
            item.type,
            item.headers,
            subject,
            item.timestamp,
        )
        for item in items
    ]


def _check_about(item: PushItem) -> None:
    identity = item.transaction_id or ""
    check_envelope(identity, item.trace_id or "", item.type, item.headers, item.timestamp, names=ON_THE_WIRE)
    if identity[:1] == OFFSET_MARK:
        raise InvalidOption(f"a transaction id may not begin with {OFFSET_MARK}: that is how offsets are named")


def _check_payloads(site: Site, body: bytes, items: Sequence[PushItem]) -> None:
    """Size and depth. In a small body nothing can be too large, and where there are few brackets nothing too deep."""
    if len(body) <= SHALLOW_BYTES_MAX:
        return
    bytes_max = site.config.record_bytes_max
    shallow = min(bytes_max, SHALLOW_BYTES_MAX)
    payloads = [item.payload for item in items]
    if max(map(len, payloads)) > shallow:
        for payload in payloads:
            if len(payload) > shallow:
                check_ready_json(payload, bytes_max)


def results_of(
    items: Sequence[PushItem],
    pushes: Sequence[Push],
    members: Sequence[Sequence[int]],
    answers: Sequence[CommittedPush | HeadwaterError],
) -> list[PushResult]:
    """What became of each message, in the order in which they came."""
    results: list[PushResult] = []
    for push, indexes, answer in zip(pushes, members, answers, strict=True):
        if isinstance(answer, HeadwaterError):
            results.extend(_failed(index, items[index], push, answer) for index in indexes)
        elif answer.result is None:
            results.extend(_taken(index, items[index], push) for index in indexes)
        else:
            results.extend(_placed(items, indexes, push, answer.result, answer.durability.value))
    if len(pushes) > 1:
        results.sort(key=_index)
    return results


def _index(result: PushResult) -> int:
    return result.index


def _placed(
    items: Sequence[PushItem], indexes: Sequence[int], push: Push, pushed: Pushed, durability: str
) -> list[PushResult]:
    number = pushed.partition_id
    partition_id = str(number)
    queue, partition, lsn = push.queue, push.partition, pushed.lsn
    duplicates = pushed.duplicates
    offsets = pushed.offsets() if duplicates else range(pushed.first_offset, pushed.first_offset + pushed.count)
    return [
        PushResult(
            index,
            items[index].transaction_id or f"{OFFSET_MARK}{offset}",
            "duplicate" if place in duplicates else "queued",
            message_id(number, offset),
            partition_id,
            items[index].trace_id,
            queue,
            partition,
            offset,
            lsn,
            durability,
        )
        for place, (index, offset) in enumerate(zip(indexes, offsets, strict=True))
    ]


def _taken(index: int, item: PushItem, push: Push) -> PushResult:
    """Answered from memory: it has no place yet."""
    about = (index, item.transaction_id or "", "queued", None, None, item.trace_id, push.queue, push.partition)
    return PushResult(*about, durability=Durability.MEMORY.value)


def _failed(index: int, item: PushItem, push: Push, error: HeadwaterError) -> PushResult:
    about = (index, item.transaction_id or "", "failed", None, None, item.trace_id, push.queue, push.partition)
    return PushResult(*about, error=str(error), code=error.code)
