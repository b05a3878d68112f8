"""`/streams/v1/…`: what the streaming SDK of queen-mq needs: state, pushes and report on the source in one commit."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from headwater.doors.holds import check_pushes_taken
from headwater.doors.queen.identities import lease_of_partition, parse_partition, parse_record, show_time
from headwater.doors.queen.push import LANES, lanes_of, records_of
from headwater.doors.queen.reports import status_outcome
from headwater.doors.queen.shapes import PushItem, Text
from headwater.doors.site import Site, check_scope, check_use, lane_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import InvalidOption, QueueMissing
from headwater.log.operations import Ack, Acked, Advance, Operation, Push, Pushed, Transacted, Transaction
from headwater.log.stream_operations import ChangeState, RegisterStream, StreamRegistered
from headwater.model.cursor import Outcome
from headwater.model.idempotency import scoped_name
from headwater.model.names import PartitionId, check_name
from headwater.model.principal import Scope
from headwater.model.record import check_ready_json
from headwater.services.checks import check_text
from headwater.stores.questions import FindStream, StateQuestion, StreamQuery

CHANGES_MAX = 10_000

Key = Annotated[str, Meta(min_length=1, max_length=1_024)]


class QueryBody(Struct, frozen=True):
    """A streaming query: what it reads, where it writes, and a hash that stands for its shape."""

    name: Text
    source_queue: str
    config_hash: Annotated[str, Meta(min_length=1, max_length=256)]
    sink_queue: str | None = None
    reset: bool = False


class QueryResponse(Struct, frozen=True):
    """The query is known."""

    success: bool
    query_id: str
    name: str
    config_hash: str
    fresh: bool
    reset: bool


class StateChange(Struct, frozen=True):
    """A value to remember under a key, or a key to forget."""

    type: Literal["upsert", "delete"]
    key: Key
    value: Raw | UnsetType = UNSET


class CycleAck(Struct, frozen=True, rename="camel"):
    """The last message of the source that this cycle is done with."""

    transaction_id: str
    lease_id: str
    status: str = "completed"
    count: int | None = None
    error: str | None = None


class CycleBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What one cycle did with one partition. Without `release_lease` the rest of the batch comes as the lease ends."""

    query_id: str
    partition_id: str
    consumer_group: str
    state_ops: Annotated[list[StateChange], Meta(max_length=CHANGES_MAX)] = []
    push_items: list[PushItem] = []
    ack: CycleAck | None = None
    release_lease: bool = True


class CycleResponse(Struct, frozen=True):
    """Everything took effect."""

    success: bool
    query_id: str
    partition_id: str
    state_ops_applied: int
    push_results: list[dict[str, Any]]
    ack_result: dict[str, Any] | None


class StateBody(Struct, frozen=True):
    """Which values: those of these keys, or all that begin so; and only windows that ended by a time (ms)."""

    query_id: str
    partition_id: str
    keys: Annotated[list[str], Meta(max_length=CHANGES_MAX)] = []
    key_prefix: Annotated[str, Meta(max_length=1_024)] = ""
    ripe_at_or_before: int | None = None


class StateRow(Struct, frozen=True):
    """A value that is remembered."""

    key: str
    value: Raw
    updated_at: str


class StateResponse(Struct, frozen=True):
    """The values that there are; those that are not are left out."""

    success: bool
    rows: list[StateRow]


async def register(site: Site, request: Request, body: QueryBody) -> Response:
    """Make a streaming query known, or find it again."""
    for queue in filter(None, (body.source_queue, body.sink_queue)):
        check_use(request, check_name("queue", queue))
    operation = RegisterStream(
        database=request.principal.database,
        name=scoped_name(request.principal, check_text("name", body.name)),
        source_queue=check_name("queue", body.source_queue),
        sink_queue=body.sink_queue or "",
        config_hash=check_text("config_hash", body.config_hash),
        reset=body.reset,
    )
    known: StreamRegistered = await site.queues.run(operation)
    return json_response(
        QueryResponse(
            success=True,
            query_id=str(known.query_id),
            name=body.name,
            config_hash=body.config_hash,
            fresh=known.fresh,
            reset=known.reset,
        )
    )


async def cycle(site: Site, request: Request, body: CycleBody) -> Response:
    """Commit one cycle: everything or nothing."""
    number, _ = await _query(site, request, body.query_id)
    partition_id = await _partition(site, request, body.partition_id)
    operations: list[Operation] = []
    if body.ack is not None:
        operations.append(_report(request.principal.database, partition_id, body, body.ack))
    if body.push_items:
        check_scope(request, Scope.PUBLISH)
        await check_pushes_taken(site, request)
        operations.extend(_pushes(site, request, body.push_items))
    if body.state_ops:
        changes = tuple(_change(site, change) for change in body.state_ops)
        operations.append(
            ChangeState(
                database=request.principal.database, query_id=number, partition_id=partition_id, changes=changes
            )
        )
    results: Sequence[object] = ()
    if operations:
        operation = Transaction(database=request.principal.database, operations=tuple(operations))
        transacted: Transacted = await site.queues.run(operation)
        results = transacted.results
    return json_response(_answer(body, operations, results))


def _answer(body: CycleBody, operations: Sequence[Operation], results: Sequence[object]) -> CycleResponse:
    pushed: list[dict[str, object]] = []
    acked: dict[str, object] | None = None
    for operation, result in zip(operations, results, strict=True):
        if isinstance(operation, Push) and isinstance(result, Pushed):
            place = {"queueName": operation.queue, "partition": operation.partition}
            pushed.extend({**place, "offset": offset, "lsn": result.lsn} for offset in result.offsets())
        elif isinstance(result, Acked):
            acked = {"success": True, "lease_released": result.lease_ended, "dlq": bool(result.buried)}
    return CycleResponse(
        success=True,
        query_id=body.query_id,
        partition_id=body.partition_id,
        state_ops_applied=len(body.state_ops),
        push_results=pushed,
        ack_result=acked,
    )


def _report(database: str, partition_id: PartitionId, body: CycleBody, ack: CycleAck) -> Operation:
    """Everything up to the message is done; or, when the cycle failed, that message failed."""
    _, group, token = lease_of_partition(ack.lease_id, partition_id)
    if group != body.consumer_group:
        raise InvalidOption("the lease is of another group than the cycle says")
    name = parse_record(ack.transaction_id)
    outcome = status_outcome(ack.status)
    if outcome is Outcome.COMPLETED:
        return Advance(
            database=database,
            partition_id=partition_id,
            group=group,
            token=token,
            through=name,
            release=body.release_lease,
        )
    return Ack(
        database=database,
        partition_id=partition_id,
        group=group,
        token=token,
        outcomes={name: outcome},
        errors={name: ack.error} if ack.error else None,
    )


def _pushes(site: Site, request: Request, items: Sequence[PushItem]) -> list[Push]:
    records = records_of(site, request, items)
    pushes = [
        Push(
            database=request.principal.database,
            queue=queue,
            partition=partition,
            records=[records[index] for index in members],
            lanes=LANES,
        )
        for (queue, partition), members in lanes_of(site, request, items).items()
    ]
    for push in pushes:
        site.queues.check_push(push)
    return pushes


def _change(site: Site, change: StateChange) -> tuple[str, Raw | None]:
    if "\x00" in change.key:
        raise InvalidOption("a key is a text without NUL")
    if change.type == "delete":
        return change.key, None
    value = Raw(b"null") if change.value is UNSET else change.value
    check_ready_json(value, site.config.record_bytes_max)
    return change.key, value


async def get_state(site: Site, request: Request, body: StateBody) -> Response:
    """What a streaming query remembers of a partition."""
    number, _ = await _query(site, request, body.query_id)
    partition_id = await _partition(site, request, body.partition_id)
    question = StateQuestion(number, partition_id, body.keys, body.key_prefix, body.ripe_at_or_before)
    values = await site.queues.ask(question)
    rows = [StateRow(value.key, value.value, show_time(value.updated_at)) for value in values]
    return json_response(StateResponse(success=True, rows=rows))


async def _query(site: Site, request: Request, text: str) -> tuple[int, StreamQuery]:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else -1
    found = await site.queues.ask(FindStream(request.principal.database, number))
    if found is None or not request.principal.may_use(found.source_queue):
        raise QueueMissing(f"there is no stream {text!r:.80}")
    return number, found


async def _partition(site: Site, request: Request, text: str) -> PartitionId:
    partition_id = parse_partition(text)
    if await lane_of(site, request, partition_id) is None:
        raise QueueMissing(f"there is no partition {partition_id}")
    return partition_id
