"""`POST /v1/push`, `pop`, `report`, `extend` and `transaction`: several operations at once, and pops that wait."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from headwater.config import Durability
from headwater.doors.holds import are_pops_held_off, check_pushes_taken
from headwater.doors.native.documents import OPERATIONS as DOCUMENT_RULES
from headwater.doors.native.jobs import OPERATIONS as JOB_RULES
from headwater.doors.native.rules import Rule, allowed
from headwater.doors.site import Site, check_scope, key_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import HeadwaterError, InvalidOption, TooLarge
from headwater.log.document_operations import CreateDocument, DeleteDocument, SetDocument, UpdateDocument
from headwater.log.job_operations import Enqueue
from headwater.log.operations import Ack, Extend, Operation, Pop, Push, Transacted, Transaction
from headwater.log.room_operations import RoomPush
from headwater.model.principal import Scope
from headwater.model.room_settings import EVERY
from headwater.services.admission import admit
from headwater.services.checks import check_text, check_timestamp
from headwater.services.queue import with_keys
from headwater.services.records import admit_record
from headwater.services.requests import (
    ExtendRequest,
    PopRequest,
    PopResponse,
    PushRequest,
    PushResponse,
    ReportRequest,
    RoomSend,
    SendRequest,
    TransactionRequest,
)
from headwater.services.room_requests import as_push
from headwater.services.wire_forms import from_wire

AnyOperation = TypeVar("AnyOperation", bound=Operation)


async def _check_push(site: Site, request: Request, push: Push) -> Push:
    """A push with records that may be kept, as those of who sends them."""
    bytes_max, subject = site.config.record_bytes_max, request.principal.subject
    records = [admit_record(record, bytes_max, subject) for record in push.records]
    push = msgspec.structs.replace(push, records=records)
    site.queues.check_push(push)
    return push


async def _check_said(site: Site, request: Request, push: RoomPush) -> RoomPush:
    site.queues.check_push(push)
    return push


async def _check_pop(site: Site, request: Request, pop: Pop) -> Pop:
    if pop.since is not None:
        check_timestamp(pop.since)
    return msgspec.structs.replace(pop, holder=request.principal.as_holder(check_text("holder", pop.holder)))


async def _check_admitted(site: Site, request: Request, operation: Ack | Extend) -> Ack | Extend:
    return admit(operation, site.config)


# These come several at once, and not on routes of their own.
OPERATIONS: dict[type[Operation], Rule] = {
    Push: Rule(scope=Scope.PUBLISH, queue="queue", check=_check_push),
    RoomPush: Rule(scope=Scope.PUBLISH, queue="queue", check=_check_said),
    Pop: Rule(scope=Scope.CONSUME, queue="queue", check=_check_pop),
    Ack: Rule(scope=Scope.CONSUME, partition=True, check=_check_admitted),
    Extend: Rule(scope=Scope.CONSUME, partition=True, check=_check_admitted),
    Enqueue: JOB_RULES[Enqueue],
    **{kind: DOCUMENT_RULES[kind] for kind in (CreateDocument, SetDocument, UpdateDocument, DeleteDocument)},
}


def _read(request: Request, body: AnyOperation, key: str = "") -> AnyOperation:
    """What was sent, as the operation of who sent it."""
    operation: AnyOperation = from_wire(body, database=request.principal.database, key=key_of(request, key))
    return operation


async def _allowed(site: Site, request: Request, body: AnyOperation, key: str = "") -> AnyOperation:
    operation = _read(request, body, key)
    checked: AnyOperation = await allowed(site, request, OPERATIONS[type(operation)], operation)
    return checked


async def push(site: Site, request: Request, body: PushRequest) -> Response:
    """Append records; answered when they are as durable as was asked for."""
    await check_pushes_taken(site, request)
    pushes = [await _allowed(site, request, asked) for asked in body.pushes]
    _check_count(site, pushes)
    return await _push_all(site, request, pushes, body)


async def send(site: Site, request: Request, body: SendRequest) -> Response:
    """Say something in rooms, as who they are known to be; answered when it is as durable as was asked for."""
    await check_pushes_taken(site, request)
    said: list[RoomPush] = [
        await allowed(site, request, OPERATIONS[RoomPush], _said(site, request, one)) for one in body.messages
    ]
    durability = body.durability or EVERY.durability
    if site.rooms.goes_through_log(request.principal.database):
        return await _push_all(site, request, said, msgspec.structs.replace(body, durability=durability))
    at_least = body.durability or Durability.MEMORY
    passed = [await site.rooms.say(push, durability, at_least) for push in said]
    return json_response([PushResponse(one.durability, None) for one in passed], status=201)


def _said(site: Site, request: Request, send: RoomSend) -> RoomPush:
    """A message of a room, as the operation of who sent it."""
    principal = request.principal
    if send.ttl_seconds is None:
        send = msgspec.structs.replace(send, ttl_seconds=site.rooms.settings.message_ttl)
    return as_push(send, site.config.record_bytes_max, database=principal.database, sender=principal.subject)


async def _push_all(site: Site, request: Request, pushes: Sequence[Push], body: PushRequest | SendRequest) -> Response:
    pushes = with_keys(list(pushes), key_of(request, body.key))
    answers = await site.queues.push_each(pushes, body.durability)
    site.refuse_pushes(pushes, answers)
    said = []
    for answer in answers:
        if isinstance(answer, HeadwaterError):
            raise answer
        said.append(PushResponse(answer.durability, answer.result))
    return json_response(said, status=201)


def _check_count(site: Site, pushes: Sequence[Push]) -> None:
    count = sum(len(push.records) for push in pushes)
    if count > site.config.batch_max:
        raise TooLarge(f"a push takes 1 to {site.config.batch_max:,} messages; got {count:,}")


async def pop(site: Site, request: Request, body: PopRequest) -> Response:
    """Lease records, and wait for some when there are none. An empty list says that the time is over."""
    operation = await _allowed(site, request, body, body.key)
    reports = [await _allowed(site, request, report, report.key) for report in body.reports]
    seconds = min(body.wait_seconds, site.config.wait_seconds_max)
    if await are_pops_held_off(site, request, 0):
        # What was done is done, also while nothing new is handed out.
        await site.queues.settle(reports)
        await are_pops_held_off(site, request, seconds)
        return json_response(PopResponse([], site.clock.now()))
    popped = await site.queues.pop_batches(operation, seconds, reports, parked=request.park, is_known=request.is_known)
    response = json_response(PopResponse(popped.batches, site.clock.now()))
    if not popped.batches:
        return response
    if operation.auto_ack:
        return msgspec.structs.replace(response, done=True)
    return Response(body=response.body, undelivered=lambda: site.queues.give_back(popped, operation))


async def report(site: Site, request: Request, body: ReportRequest) -> Response:
    """Say what became of records."""
    operations = [await _allowed(site, request, report, report.key) for report in body.reports]
    outcomes = await site.queues.settle_each(operations)
    site.refuse_reports(
        request.principal.database,
        [list(report.outcomes or report.offsets or [0]) for report in body.reports],
        outcomes,
    )
    for outcome in outcomes:
        if isinstance(outcome, HeadwaterError):
            raise outcome
    return json_response(outcomes)


async def extend(site: Site, request: Request, body: ExtendRequest) -> Response:
    """Keep leases for longer."""
    extensions = [await _allowed(site, request, lease) for lease in body.leases]
    return json_response(await site.queues.extend_leases(extensions))


async def transaction(site: Site, request: Request, body: TransactionRequest) -> Response:
    """Everything holds, or nothing does and the error says why."""
    if not body.operations and not body.leases:
        raise InvalidOption("a transaction has operations, or leases to hold")
    operations = [await _step(site, request, step) for step in body.operations]
    if body.leases:
        check_scope(request, OPERATIONS[Extend].scope)
    leases = [await _allowed(site, request, lease) for lease in body.leases]
    whole = Transaction(
        database=request.principal.database,
        key=key_of(request, body.key),
        operations=tuple(operations),
        leases=tuple((lease.partition_id, lease.group, lease.token) for lease in leases),
    )
    results = (await site.queues.run(whole)).results
    shown = [await _shown(site, request, *one) for one in zip(operations, results, strict=True)]
    return json_response(Transacted(shown))


async def _shown(site: Site, request: Request, operation: Operation, result: object) -> object:
    """What they may see of what a step came to: what they would of it alone."""
    rule = OPERATIONS[type(operation)]
    return result if rule.show is None else await rule.show(site, request, operation, result)


async def _step(site: Site, request: Request, step: Operation | RoomSend) -> Operation:
    """One step: it needs the scope that it needs alone."""
    operation = _said(site, request, step) if isinstance(step, RoomSend) else _read(request, step)
    rule = OPERATIONS[type(operation)]
    check_scope(request, rule.scope)
    if isinstance(operation, Push):
        await check_pushes_taken(site, request)
    if isinstance(operation, RoomPush):
        await site.rooms.check_kept(operation.database)
    checked: Operation = await allowed(site, request, rule, operation)
    return admit(checked, site.config)
