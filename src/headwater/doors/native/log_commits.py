"""`POST /v1/log/commit` and `stage`: what a query on another machine did, committed once and together.

    small     commit: step + pushes
    large     stage, stage, stage … ─► commit: step + upload ─► unstage

    files     the operation Load: records of a source, each once

Parts wait in the store, so whichever server gets the last request finds what the others got.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from headwater.config import Durability
from headwater.doors.holds import check_pushes_taken
from headwater.doors.native.rules import Rule
from headwater.doors.site import Site, check_scope, check_use, key_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import AlreadyReached, InvalidOption, StagingLost, StoreDamaged
from headwater.log.flow_operations import Load, Stage, Unstage
from headwater.log.operations import Operation, Push, Seek, Transaction
from headwater.model.compression import BadCompression, compress, expand
from headwater.model.idempotency import scoped_name
from headwater.model.names import Lsn, check_name
from headwater.model.principal import Scope
from headwater.model.record import Record
from headwater.model.spreading import check_priority
from headwater.services.checks import check_delay
from headwater.services.log_requests import (
    Appended,
    CommitRequest,
    CommitResponse,
    GroupMove,
    StageRequest,
    StepTaken,
)
from headwater.services.outgoing import Target
from headwater.services.records import admit_record, check_target
from headwater.services.wire_forms import from_wire
from headwater.stores.questions import ListStaged

PART_BYTES_MAX = 64 * 1_048_576

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Appended])


async def stage(site: Site, request: Request, body: StageRequest) -> Response:
    """Keep a part until its upload is committed; what could not be pushed is refused here."""
    await check_pushes_taken(site, request)
    checked = _encoder.encode([_checked(site, request, push) for push in body.pushes])
    packed = await asyncio.to_thread(compress, checked)
    operation = Stage(
        database=request.principal.database, upload=body.upload, part=body.part, size=len(checked), body=packed
    )
    # A part that a power cut takes is missed when the upload is committed, and sent again.
    return json_response(await site.queues.run(operation, Durability.WRITTEN))


async def commit(site: Site, request: Request, body: CommitRequest) -> Response:
    """Take a step with all that belongs to it, if it was not taken before; answered when it survives power loss."""
    if body.upload is None:
        return await _commit(site, request, body, [_checked(site, request, push) for push in body.pushes])
    # One at a time: each is opened in memory.
    async with site.large_commits:
        return await _commit(site, request, body, await _staged(site, request, body.upload, body.parts))


async def _check_load(site: Site, request: Request, load: Load) -> Load:
    """Sources have names of their own for those who may use some queues only: nobody else's is met or learnt of."""
    await check_pushes_taken(site, request)
    source = scoped_name(request.principal, load.source)
    return msgspec.structs.replace(load, source=source, records=_admitted(site, request, load.records))


OPERATIONS: dict[type[Operation], Rule] = {
    # Asked again, it adds nothing.
    Load: Rule(scope=Scope.PUBLISH, queue="queue", check=_check_load, durability=Durability.SYNCED),
    Unstage: Rule(scope=Scope.PUBLISH, durability=Durability.WRITTEN),
}


async def _commit(site: Site, request: Request, body: CommitRequest, pushes: Sequence[Appended]) -> Response:
    database = request.principal.database
    operations: list[Operation] = []
    if body.step is not None or pushes:
        check_scope(request, Scope.PUBLISH)
    if body.step is not None:
        name = scoped_name(request.principal, body.step.name)
        operations.append(from_wire(body.step, database=database, name=name))
    if pushes:
        await check_pushes_taken(site, request)
        operations += _together(database, pushes)
    operations += [_move(request, move) for move in body.moves]
    if not operations:
        raise InvalidOption("a commit has a step, pushes, or groups to move")
    both = Transaction(database=database, key=key_of(request, body.key), operations=tuple(operations))
    try:
        await site.queues.run(both, Durability.SYNCED)
    except AlreadyReached as reached:
        return json_response(CommitResponse(0, StepTaken(reached.number, reached.note)))
    return json_response(CommitResponse(sum(len(push.records) for push in pushes)))


def _move(request: Request, move: GroupMove) -> Seek:
    check_scope(request, Scope.CONSUME)
    check_use(request, check_name("queue", move.queue))
    return Seek(
        database=request.principal.database,
        queue=move.queue,
        group=check_name("group", move.group),
        lsn=Lsn(move.lsn),
        create=True,
    )


def _checked(site: Site, request: Request, push: Appended) -> Appended:
    """A push that they may make, of any number of records: its bytes are bounded by what carries it."""
    _check_lane(request, push)
    return msgspec.structs.replace(push, records=_admitted(site, request, push.records))


def _admitted(site: Site, request: Request, records: Sequence[Record]) -> list[Record]:
    bytes_max, subject = site.config.record_bytes_max, request.principal.subject
    return [admit_record(record, bytes_max, subject) for record in records]


def _check_lane(request: Request, push: Appended) -> None:
    check_target(push.queue, push.partition)
    check_delay(push.delay_seconds)
    check_priority(push.priority, push.partition)
    check_use(request, push.queue)


def _together(database: str, pushes: Sequence[Appended]) -> list[Push]:
    """One push for each partition, with the records of all parts in their order."""
    targets: dict[Target, list[Record]] = {}
    for push in pushes:
        target = Target(push.queue, push.partition, push.delay_seconds, push.priority)
        targets.setdefault(target, []).extend(push.records)
    return [target.push(database, records) for target, records in targets.items()]


async def _staged(site: Site, request: Request, upload: str, count: int) -> list[Appended]:
    """What was uploaded, in the order of its parts. The records were looked at then; the queues are looked at again,
    because another may commit than who uploaded."""
    check_scope(request, Scope.PUBLISH)
    parts = await site.queues.ask(ListStaged(request.principal.database, upload))
    if len(parts) != count:
        raise StagingLost(f"{len(parts):,} of {count:,} parts of this upload are there; upload it again")
    pushes = await asyncio.to_thread(_open, parts)
    for push in pushes:
        _check_lane(request, push)
    return pushes


def _open(parts: Sequence[bytes]) -> list[Appended]:
    try:
        return [push for part in parts for push in _decoder.decode(expand(part, PART_BYTES_MAX))]
    except (BadCompression, msgspec.MsgspecError) as error:
        raise StoreDamaged(f"a part of an upload cannot be read: {error}") from error
