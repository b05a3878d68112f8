"""`POST /api/v1/transaction`: pushes and reports that take effect together or not at all.

One that asks for something that is not done here is refused as a whole, before anything is done.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from headwater.config import Durability
from headwater.doors.holds import check_pushes_taken
from headwater.doors.queen.identities import parse_leases
from headwater.doors.queen.push import LANES, lanes_of, records_of, results_of
from headwater.doors.queen.reports import Lease, lease_of, operation_of, outcome_of
from headwater.doors.queen.shapes import PushItem, TransactionAck, TransactionBody, TransactionPush, TransactionResponse
from headwater.doors.site import Site, check_scope, key_given, key_of, lane_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import InvalidInput, QueueMissing
from headwater.log.committer import CommittedResult
from headwater.log.operations import Acked, Operation, Push, Transacted, Transaction
from headwater.model.names import PartitionId
from headwater.model.principal import Scope

NO_KEYS = "this server has no key-value store"
NO_TIMERS = "this server has no timers"
# What clients of queen-mq 2 put beside the operations.
_not_done = {"kv": f"{NO_KEYS} and no locks", "timers": NO_TIMERS}
_done = ("push", "ack")


class Step(msgspec.Struct):
    """Operations of the log that one operation of the request became, by their places in the transaction."""

    places: list[int]
    items: Sequence[PushItem] = ()
    members: Sequence[Sequence[int]] = ()


async def transaction(site: Site, request: Request, body: TransactionBody) -> Response:
    """Everything holds, or nothing does and the answer says why."""
    if any(isinstance(operation, TransactionPush) for operation in body.operations):
        await check_pushes_taken(site, request)
    if body.required_leases:
        check_scope(request, Scope.CONSUME)
    key = key_given(request, body.idempotency_key)
    required = [lease for name in dict.fromkeys(body.required_leases) for lease in parse_leases(name)]
    for lease in required:
        await _check_theirs(site, request, lease[0])
    operations, steps = await _operations(site, request, body, required)
    operation = Transaction(
        database=request.principal.database,
        key=key_of(request, key),
        operations=tuple(operations),
        leases=tuple(required),
    )
    transacted: Transacted = await site.queues.run(operation)
    results = [
        _result(index, step, operations, transacted.results, site.queues.config.durability)
        for index, step in enumerate(steps)
    ]
    return json_response(TransactionResponse(transaction_id=key or request.id, success=True, results=results))


def blame(error: InvalidInput, body: bytes) -> InvalidInput:
    """What is wrong with a transaction: first of all that it asks for what is not done here."""
    try:
        asked = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return error
    known = [field.encode_name for field in msgspec.structs.fields(TransactionBody)]
    unknown = {name: _not_done.get(name, "there is no such part") for name in asked if name not in known}
    operations = asked.get("operations")
    for operation in operations if isinstance(operations, list) else []:
        kind = operation.get("type") if isinstance(operation, dict) else None
        if isinstance(kind, str) and kind not in _done:
            unknown[kind] = _not_done.get(kind, f"operations are {' and '.join(_done)}")
    if not unknown:
        return error
    told = "; ".join(f"{name!r:.80}: {why}" for name, why in list(unknown.items())[:8])
    return InvalidInput(f"nothing of this transaction was done, because a part of it is not done here: {told}")


async def _check_theirs(site: Site, request: Request, partition_id: PartitionId) -> None:
    if await lane_of(site, request, partition_id) is None:
        raise QueueMissing(f"there is no partition {partition_id}")


async def _operations(
    site: Site, request: Request, body: TransactionBody, required: Sequence[tuple[PartitionId, str, int]]
) -> tuple[list[Operation], list[Step]]:
    """The operations of the log, and which of them each operation of the request became.

    Reports on one lease become one operation, at the place of the first of them.
    """
    operations: list[Operation] = []
    steps: list[Step] = []
    reports: dict[Lease, tuple[int, list[TransactionAck]]] = {}
    for asked in body.operations:
        if isinstance(asked, TransactionPush):
            check_scope(request, Scope.PUBLISH)
            steps.append(_push_step(site, request, asked, operations))
            continue
        check_scope(request, Scope.CONSUME)
        outcome_of(asked)
        lease = _lease_among(required, asked)
        if lease not in reports:
            await _check_theirs(site, request, lease[0])
            reports[lease] = (len(operations), [])
        place, said = reports[lease]
        said.append(asked)
        operation = operation_of(request.principal.database, lease, said)
        operations[place : place + 1] = [operation]
        steps.append(Step([place]))
    return operations, steps


def _push_step(site: Site, request: Request, asked: TransactionPush, operations: list[Operation]) -> Step:
    lanes = lanes_of(site, request, asked.items)
    records = records_of(site, request, asked.items)
    step = Step([], asked.items, list(lanes.values()))
    for (queue, partition), members in lanes.items():
        push = Push(
            database=request.principal.database,
            queue=queue,
            partition=partition,
            records=[records[index] for index in members],
            lanes=LANES,
        )
        site.queues.check_push(push)
        step.places.append(len(operations))
        operations.append(push)
    return step


def _lease_among(required: Sequence[tuple[PartitionId, str, int]], asked: TransactionAck) -> Lease:
    """The lease of a report. One that names none is about the required lease of its partition and group."""
    lease = lease_of(asked, None)
    if asked.lease_id:
        return lease
    for partition_id, group, token in required:
        if partition_id == lease[0] and (not asked.consumer_group or asked.consumer_group == group):
            return partition_id, group, token
    return lease


def _result(
    index: int, step: Step, operations: Sequence[Operation], results: Sequence[Any], durability: Durability
) -> dict[str, object]:
    outcome = results[step.places[0]]
    if isinstance(outcome, Acked):
        return {"index": index, "type": "ack", "success": True, "leaseReleased": outcome.lease_ended}
    pushes = [operation for place in step.places if isinstance(operation := operations[place], Push)]
    answers = [CommittedResult(results[place], durability) for place in step.places]
    pushed = results_of(step.items, pushes, step.members, answers)
    return {"index": index, "type": "push", "success": True, "items": pushed}
