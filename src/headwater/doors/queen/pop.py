"""`GET /api/v1/pop…`: leases the next messages, and waits for some when there are none.

A pop that waits is parked: an intention in a registry, no thread and no timer. A client that leaves is noticed, and
what was leased for it is given back at once.
"""

from collections.abc import Awaitable, Sequence

from msgspec import UNSET, structs

from headwater.clock import Timestamp
from headwater.doors.holds import are_pops_held_off
from headwater.doors.queen.identities import lease_name, message_id, parse_time, record_name, show_time
from headwater.doors.queen.push import LANES
from headwater.doors.queen.shapes import PoppedMessage, PopQuery, PopResponse
from headwater.doors.site import Site, check_use, key_of
from headwater.doors.wire import NOTHING, Request, Response, json_response
from headwater.errors import InvalidOption
from headwater.log.operations import Batch, Pop
from headwater.model.principal import Scope, require_all

# A client that leaves the size of a batch to the server gets this many at most.
BATCH_AUTOMATIC = 100

_modes = {"": "all", "all": "all", "from_beginning": "all", "new": "new", "new-only": "new"}


# Plain functions that hand on a coroutine: while a pop is parked, every coroutine on the way to it takes its room.


def pop_queue(site: Site, request: Request, query: PopQuery, queue: str) -> Awaitable[Response]:
    """Messages of any partition of a queue."""
    check_use(request, queue)
    return _pop(site, request, query, queue, "")


def pop_partition(site: Site, request: Request, query: PopQuery, queue: str, partition: str) -> Awaitable[Response]:
    """Messages of one partition."""
    check_use(request, queue)
    return _pop(site, request, query, queue, partition)


def pop_together(site: Site, request: Request, query: PopQuery) -> Awaitable[Response]:
    """Messages of any queue of a namespace and task."""
    require_all(request.principal, Scope.CONSUME)
    return _pop(site, request, query, "", "")


async def _pop(site: Site, request: Request, query: PopQuery, queue: str, partition: str) -> Response:
    operation = operation_of(site, request, query, queue, partition)
    seconds = min(_seconds_of(site, query), site.config.wait_seconds_max) if query.wait else 0
    if await are_pops_held_off(site, request, seconds):
        return NOTHING
    # It may be parked for long, with thousands of others.
    del query, queue, partition
    popped = await site.queues.pop_batches(operation, seconds, parked=request.park, is_known=request.is_known)
    if not popped.batches:
        return NOTHING
    response = json_response(answer_of(popped.batches))
    if operation.auto_ack:
        return structs.replace(response, done=True)
    # With a way to give the messages back if the client turns out to be gone.
    return Response(body=response.body, undelivered=lambda: site.queues.give_back(popped, operation))


def operation_of(site: Site, request: Request, query: PopQuery, queue: str, partition: str) -> Pop:
    """The pop that a query asks for."""
    if query.conflation:
        # Its clients take an answer without it for a failure, and would leave what it leased to run out.
        raise InvalidOption("conflation is not served here; pop without it, and take the newest message of each key")
    subscribe, since = subscription_of(site, query)
    batch = query.batch
    if batch is None:
        batch = BATCH_AUTOMATIC if query.autopilot else site.config.pop_batch
    return Pop(
        database=request.principal.database,
        key=key_of(request, query.idempotency_key),
        group=query.consumer_group,
        queue=queue,
        partition=partition,
        namespace="" if queue else query.namespace,
        task="" if queue else query.task,
        batch=batch,
        partitions=query.partitions,
        lease_seconds=query.lease_seconds,
        auto_ack=query.auto_ack,
        subscribe=subscribe,
        since=since,
        lanes=LANES,
        holder=request.principal.as_holder(),
    )


def _seconds_of(site: Site, query: PopQuery) -> float:
    return site.config.pop_wait_seconds if query.timeout is None else query.timeout / 1_000


def subscription_of(site: Site, query: PopQuery) -> tuple[str, Timestamp | None]:
    """Where a group that is new begins: at the beginning, at the end, or at a time."""
    mode = _modes.get(query.subscription_mode)
    if mode is None:
        known = ", ".join(name for name in _modes if name)
        raise InvalidOption(f"subscriptionMode must be one of {known}; got {query.subscription_mode!r:.80}")
    if not query.subscription_from:
        return mode, None
    if query.subscription_from == "now":
        return "new", None
    return "all", parse_time("subscriptionFrom", query.subscription_from)


def answer_of(batches: Sequence[Batch]) -> PopResponse:
    """What a pop got, as the clients read it."""
    first = batches[0]
    lease = lease_name(batches) if first.token else None
    messages: list[PoppedMessage] = []
    for batch in batches:
        messages.extend(messages_of(batch, lease))
    return PopResponse(
        success=True,
        queue=first.queue,
        partition=first.partition,
        partition_id=str(first.partition_id),
        lease_id=lease,
        consumer_group=first.group,
        partitions_claimed=len(batches),
        messages=messages,
    )


def messages_of(batch: Batch, lease: str | None) -> list[PoppedMessage]:
    """The messages of one partition; `lease` is the name of what the pop leased."""
    number, queue, partition, group, attempts = (
        batch.partition_id,
        batch.queue,
        batch.partition,
        batch.group,
        batch.attempts,
    )
    partition_id = str(number)
    until = show_time(batch.lease_until) if batch.token else None
    lost = batch.lost or UNSET
    times = {at: show_time(at) for at in set(batch.written_at)}
    return [
        PoppedMessage(
            message_id(number, offset),
            record_name(record.transaction_id, offset),
            record.trace_id or None,
            record.data,
            record.producer_sub or None,
            show_time(record.timestamp) if record.timestamp else times[written_at],
            partition_id,
            partition,
            lease,
            group,
            queue,
            attempts - 1,
            attempts,
            offset,
            lsn,
            until,
            record.type or UNSET,
            record.headers or UNSET,
            # The loss lies before the first of them.
            UNSET if place else lost,
        )
        for place, (record, offset, lsn, written_at) in enumerate(
            zip(batch.records, batch.offsets, batch.lsns, batch.written_at, strict=True)
        )
    ]
