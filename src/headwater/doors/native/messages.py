"""`POST /v1/push`, `pop`, `report`, `extend` and `transaction`: messages in, messages out, and what is said of them."""

from collections.abc import Sequence

import msgspec

from headwater.doors.holds import are_pops_held_off, check_pushes_taken
from headwater.doors.native.jobs import enqueue_of
from headwater.doors.site import Site, check_scope, check_use, key_of, lane_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import HeadwaterError, InvalidOption, QueueMissing, TooLarge
from headwater.log.operations import Ack, Extend, Operation, Pop, Push, Transaction
from headwater.model.cursor import Outcome
from headwater.model.names import PartitionId, check_name
from headwater.model.principal import Scope, require_all
from headwater.model.record import Record, check_ready_json
from headwater.services.checks import check_headers, check_seconds, check_text, check_timestamp
from headwater.services.messages import ERROR_LENGTH_MAX
from headwater.services.queue import with_keys
from headwater.services.requests import (
    ExtendRequest,
    LanePush,
    Lease,
    PopAnswer,
    PopRequest,
    PushAnswer,
    PushRequest,
    Report,
    ReportRequest,
    TransactedJobs,
    TransactedPush,
    TransactedReport,
    TransactionRequest,
)


async def push(site: Site, request: Request, body: PushRequest) -> Response:
    """Append records; answered when they are as durable as was asked for."""
    await check_pushes_taken(site, request)
    pushes = [push_of(site, request, asked, body.ttl_seconds) for asked in body.pushes]
    _check_count(site, pushes)
    pushes = with_keys(pushes, key_of(request, body.key))
    answers = await site.queues.push_each(pushes, body.durability)
    site.pushed(pushes, answers)
    said = []
    for answer in answers:
        if isinstance(answer, HeadwaterError):
            raise answer
        said.append(PushAnswer(answer.durability, answer.result))
    return json_response(said, status=201)


def push_of(site: Site, request: Request, asked: LanePush, ttl_seconds: float | None = None) -> Push:
    """One partition's records, as its push."""
    check_use(request, check_name("queue", asked.queue))
    push = Push(
        database=request.principal.database,
        queue=asked.queue,
        partition=asked.partition,
        records=[record_of(site, request, record) for record in asked.records],
        ttl_seconds=ttl_seconds,
        delay_seconds=asked.delay_seconds,
        priority=asked.priority,
    )
    site.queues.check_push(push)
    return push


def record_of(site: Site, request: Request, record: Record) -> Record:
    """A record that may be kept. Who sent it is for the server to say."""
    check_ready_json(record.data, site.config.record_bytes_max)
    check_text("transactionId", record.transaction_id)
    check_text("traceId", record.trace_id)
    check_text("type", record.type)
    check_timestamp(record.timestamp)
    subject = request.principal.subject
    if record.producer_sub not in ("", subject):
        raise InvalidOption("producerSub is for the server to say; leave it out")
    headers = check_headers(record.headers)
    return Record(record.data, record.transaction_id, record.trace_id, record.type, headers, subject, record.timestamp)


def _check_count(site: Site, pushes: Sequence[Push]) -> None:
    count = sum(len(push.records) for push in pushes)
    if count > site.config.batch_max:
        raise TooLarge(f"a push takes 1 to {site.config.batch_max:,} messages; got {count:,}")


async def pop(site: Site, request: Request, body: PopRequest) -> Response:
    """Lease records, and wait for some when there are none. An empty list says that the time is over."""
    if body.queue:
        check_use(request, body.queue)
    else:
        require_all(request.principal, Scope.CONSUME)
    operation = Pop(
        database=request.principal.database,
        key=key_of(request, body.key),
        queue=body.queue,
        partition=body.partition,
        namespace=body.namespace,
        task=body.task,
        group=body.group,
        batch=body.batch,
        partitions=body.partitions,
        lease_seconds=body.lease_seconds,
        auto_ack=body.auto_ack,
        subscribe=body.subscribe,
        since=None if body.since is None else check_timestamp(body.since),
        holder=request.principal.as_holder(check_text("holder", body.holder)),
        # A client asks again with its key when the answer was lost: for what it got, as long as that is any use.
        asks_again=bool(body.key),
    )
    reports = [await report_of(site, request, report) for report in body.reports]
    seconds = min(body.wait_seconds, site.config.wait_seconds_max)
    if await are_pops_held_off(site, request, 0):
        # What was done is done, also while nothing new is handed out.
        await site.queues.settle(reports)
        await are_pops_held_off(site, request, seconds)
        return json_response(PopAnswer([], site.clock.now()))
    popped = await site.queues.pop_batches(operation, seconds, reports, parked=request.park)
    if popped.batches:
        site.popped(operation.database, popped)
    response = json_response(PopAnswer(popped.batches, site.clock.now()))
    if not popped.batches:
        return response
    if operation.auto_ack:
        return msgspec.structs.replace(response, done=True)
    return Response(body=response.body, undelivered=lambda: site.queues.give_back(popped, operation.database))


async def report(site: Site, request: Request, body: ReportRequest) -> Response:
    """Say what became of records."""
    operations = [await report_of(site, request, report) for report in body.reports]
    outcomes = await site.queues.settle_each(operations)
    site.settled(
        request.principal.database,
        [list(report.outcomes or report.offsets or [0]) for report in body.reports],
        outcomes,
    )
    for outcome in outcomes:
        if isinstance(outcome, HeadwaterError):
            raise outcome
    return json_response(outcomes)


async def report_of(site: Site, request: Request, report: Report | TransactedReport) -> Ack:
    """A report as its operation."""
    check_name("group", report.group)
    await check_partition(site, request, report.partition_id)
    outcomes: dict[int | str, Outcome] = dict((report.outcomes or {}).items())
    errors: dict[int | str, str] = {at: text[:ERROR_LENGTH_MAX] for at, text in (report.errors or {}).items()}
    return Ack(
        database=request.principal.database,
        key=key_of(request, report.key) if isinstance(report, Report) else "",
        partition_id=report.partition_id,
        group=report.group,
        token=report.token,
        offsets=report.offsets,
        outcomes=None if report.outcomes is None else outcomes,
        errors=errors or None,
    )


async def check_partition(site: Site, request: Request, partition_id: PartitionId) -> None:
    """Raises when a partition is not there, or not theirs: nobody learns which."""
    if await lane_of(site, request, partition_id) is None:
        raise QueueMissing(f"there is no partition {partition_id}")


async def extend(site: Site, request: Request, body: ExtendRequest) -> Response:
    """Keep leases for longer."""
    if body.seconds is not None:
        check_seconds("seconds", body.seconds)
    extensions = []
    for lease in body.leases:
        await check_lease(site, request, lease)
        extensions.append(
            Extend(
                database=request.principal.database,
                partition_id=lease.partition_id,
                group=lease.group,
                token=lease.token,
                seconds=body.seconds,
            )
        )
    return json_response(await site.queues.extend_leases(extensions))


async def check_lease(site: Site, request: Request, lease: Lease) -> None:
    """Raises when a lease cannot be one of theirs."""
    check_name("group", lease.group)
    await check_partition(site, request, lease.partition_id)


async def transaction(site: Site, request: Request, body: TransactionRequest) -> Response:
    """Everything holds, or nothing does and the error says why."""
    if not body.operations and not body.leases:
        raise InvalidOption("a transaction has operations, or leases to hold")
    operations: list[Operation] = []
    for asked in body.operations:
        if isinstance(asked, TransactedPush):
            await check_pushes_taken(site, request)
            check_scope(request, Scope.PUBLISH)
            operations.append(push_of(site, request, asked, asked.ttl_seconds))
        elif isinstance(asked, TransactedJobs):
            check_scope(request, Scope.SUBMIT_JOBS)
            operations.append(await enqueue_of(site, request, asked.jobs))
        else:
            operations.append(await report_of(site, request, asked))
    for lease in body.leases:
        await check_lease(site, request, lease)
    leases = tuple((lease.partition_id, lease.group, lease.token) for lease in body.leases)
    transacted = await site.queues.run(
        Transaction(
            database=request.principal.database,
            key=key_of(request, body.key),
            operations=tuple(operations),
            leases=leases,
        )
    )
    return json_response(transacted)
