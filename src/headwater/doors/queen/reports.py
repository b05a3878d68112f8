"""`POST /api/v1/ack`, `/ack/batch` and `/lease/{lease}/extend`: what consumers say of messages they hold.

Reports on one lease travel together as one operation. A report that cannot be taken is answered with its reason; the
others count.

A client of queen-mq 2 that reports one message as failed leaves the rest of that partition alone, and counts on its
being given back; one of queen-mq 1 goes on with the rest. So a single such report ends the lease, and what a late
report says is completed still counts while nobody else has leased it.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import UNSET

from headwater.doors.queen.identities import (
    lease_of_partition,
    parse_leases,
    parse_partition,
    parse_record,
    show_time,
)
from headwater.doors.queen.shapes import (
    AckBatchBody,
    Acknowledgment,
    AckResult,
    ExtendBody,
    ExtendResponse,
    TransactionAck,
)
from headwater.doors.site import Site, lane_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import HeadwaterError, InvalidOption, LeaseLost, QueueMissing, TooLarge, UnknownRecord
from headwater.log.operations import Ack, Acked, Extend, Transacted, Transaction
from headwater.model.cursor import Outcome
from headwater.model.lane import Lane
from headwater.model.names import GROUP_DEFAULT, PartitionId
from headwater.services.checks import check_seconds
from headwater.services.messages import ERROR_LENGTH_MAX

_outcomes: Mapping[str | bool, Outcome] = {
    True: Outcome.COMPLETED,
    "completed": Outcome.COMPLETED,
    "success": Outcome.COMPLETED,
    "acked": Outcome.COMPLETED,
    False: Outcome.FAILED,
    "failed": Outcome.FAILED,
    "dlq": Outcome.DEAD,
    "dead": Outcome.DEAD,
    "retry": Outcome.RELEASED,
    "released": Outcome.RELEASED,
}

MessageReport = Acknowledgment | TransactionAck
Lease = tuple[PartitionId, str, int | None]


async def ack(site: Site, request: Request, body: Acknowledgment) -> Response:
    """Report on one message. One that failed or is given back gives back the rest of its lease with it."""
    return json_response(await settle(site, request, [body], None, releases_rest=True))


async def ack_batch(site: Site, request: Request, body: AckBatchBody) -> Response:
    """Report on several messages."""
    count = len(body.acknowledgments)
    if count > site.config.batch_max:
        raise TooLarge(f"a report takes up to {site.config.batch_max:,} messages; got {count:,}")
    return json_response(await settle(site, request, body.acknowledgments, body.consumer_group))


async def settle(
    site: Site,
    request: Request,
    reports: Sequence[Acknowledgment],
    group: str | None,
    *,
    releases_rest: bool = False,
) -> list[AckResult]:
    """Hand reports in, one operation for each lease; what became of each."""
    results: dict[int, AckResult] = {}
    leases: dict[Lease, list[int]] = {}
    # Most reports of a batch say the same of their lease, so that is read once.
    alike: dict[tuple[str, str | None, str | None], list[int]] = {}
    for index, report in enumerate(reports):
        alike.setdefault((report.partition_id, report.lease_id, report.consumer_group), []).append(index)
    for members in alike.values():
        try:
            lease = lease_of(reports[members[0]], group)
        except HeadwaterError as error:
            results.update((index, _refused(index, reports[index], error)) for index in members)
            continue
        taken = leases.setdefault(lease, [])
        named = {_record(reports[index]) for index in taken}
        for index in members:
            refusal = _refusal(reports[index]) or _repetition(reports[index], named)
            if refusal is None:
                taken.append(index)
                named.add(_record(reports[index]))
            else:
                results[index] = _refused(index, reports[index], refusal)
    chosen = {lease: members for lease, members in leases.items() if members}
    said = [[reports[index] for index in members] for members in chosen.values()]
    outcomes = await _hand_in(site, request, list(chosen), said, releases_rest)
    for members, outcome in zip(chosen.values(), outcomes, strict=True):
        results.update(await _results(site, request, reports, members, outcome, group))
    return [results[index] for index in range(len(reports))]


def _refusal(report: MessageReport) -> HeadwaterError | None:
    """What is wrong with a report whatever its lease is."""
    if report.status not in _outcomes:
        return InvalidOption(f"status must be completed, failed, dlq or retry; got {report.status!r:.80}")
    if report.transaction_id is None and report.offset is None:
        return InvalidOption("a report names a transactionId or an offset")
    if None not in (report.transaction_id, report.offset) and report.transaction_id != f"@{report.offset}":
        return InvalidOption(
            f"a report names a message by one of both; got transactionId {report.transaction_id!r:.80} and offset "
            f"{report.offset}"
        )
    return None


def _record(report: MessageReport) -> int | str:
    """The message that a report is about."""
    return report.offset if report.offset is not None else parse_record(report.transaction_id or "")


def _repetition(report: MessageReport, named: Collection[int | str]) -> HeadwaterError | None:
    """What is wrong with a report on a message that another of the same request has settled."""
    if _record(report) not in named:
        return None
    return UnknownRecord(f"message {_name(report)!r:.80} is named twice in one request: the first report on it counts")


async def _hand_in(
    site: Site,
    request: Request,
    leases: Sequence[Lease],
    reports: Sequence[Sequence[MessageReport]],
    releases_rest: bool,
) -> list[tuple[Lane | None, Acked | HeadwaterError]]:
    lanes = [await lane_of(site, request, lease[0]) for lease in leases]
    known = [place for place, lane in enumerate(lanes) if lane is not None]
    strict = [operation_of(request.principal.database, leases[place], reports[place]) for place in known]
    operations = [msgspec.structs.replace(one, releases_rest=releases_rest, counts_late=True) for one in strict]
    settled = iter(await site.queues.settle_each(operations) if operations else [])
    found: list[tuple[Lane | None, Acked | HeadwaterError]] = []
    for lease, lane in zip(leases, lanes, strict=True):
        missing = QueueMissing(f"there is no partition {lease[0]}")
        found.append((lane, missing if lane is None else next(settled)))
    site.refuse_reports(request.principal.database, reports, [outcome for _, outcome in found])
    return found


async def _results(
    site: Site,
    request: Request,
    reports: Sequence[Acknowledgment],
    indexes: list[int],
    settled: tuple[Lane | None, Acked | HeadwaterError],
    group: str | None,
) -> dict[int, AckResult]:
    """What became of the reports on one lease. When one of them was wrong, each is handed in again for itself."""
    lane, outcome = settled
    if isinstance(outcome, UnknownRecord) and len(indexes) > 1:
        alone = [await settle(site, request, [reports[index]], group) for index in indexes]
        return {index: _renumbered(one[0], index) for index, one in zip(indexes, alone, strict=True)}
    if isinstance(outcome, HeadwaterError):
        return {index: _refused(index, reports[index], outcome) for index in indexes}
    said = [_outcomes[reports[index].status] for index in indexes]
    # One count of attempts holds for a lease, so of those that failed all were buried or none.
    exhausted = len(outcome.buried) > said.count(Outcome.DEAD)
    queue, partition = (lane.queue, lane.partition) if lane else (None, None)
    return {
        index: AckResult(
            index,
            _name(reports[index]),
            True,
            None,
            UNSET,
            queue,
            partition,
            outcome.lease_ended,
            meant is Outcome.DEAD or (exhausted and meant is Outcome.FAILED),
        )
        for index, meant in zip(indexes, said, strict=True)
    }


def _renumbered(result: AckResult, index: int) -> AckResult:
    return msgspec.structs.replace(result, index=index)


def _refused(index: int, report: MessageReport, error: HeadwaterError) -> AckResult:
    return AckResult(index=index, transaction_id=_name(report), success=False, error=str(error), code=error.code)


def _name(report: MessageReport) -> str:
    return report.transaction_id or (f"@{report.offset}" if report.offset is not None else "")


def lease_of(report: MessageReport, group: str | None) -> Lease:
    """The lease that a report is about."""
    partition_id = parse_partition(report.partition_id)
    named = report.consumer_group or group
    if not report.lease_id:
        return partition_id, named or GROUP_DEFAULT, None
    lease = lease_of_partition(report.lease_id, partition_id)
    if named is not None and named != lease[1]:
        raise InvalidOption("the lease is of another group than the report says")
    return lease


def status_outcome(status: str | bool) -> Outcome:
    """What a status means."""
    outcome = _outcomes.get(status)
    if outcome is None:
        raise InvalidOption(f"status must be completed, failed, dlq or retry; got {status!r:.80}")
    return outcome


def outcome_of(report: MessageReport) -> Outcome:
    """What a report says; raises when it cannot be understood."""
    refusal = _refusal(report)
    if refusal is not None:
        raise refusal
    return _outcomes[report.status]


def operation_of(database: str, lease: Lease, reports: Sequence[MessageReport]) -> Ack:
    """The reports on one lease as one operation."""
    outcomes: dict[int | str, Outcome] = {}
    errors: dict[int | str, str] = {}
    for report in reports:
        repetition = _repetition(report, outcomes)
        if repetition is not None:
            raise repetition
        name = _record(report)
        outcomes[name] = _outcomes[report.status]
        if report.error:
            errors[name] = report.error[:ERROR_LENGTH_MAX]
    partition_id, group, token = lease
    return Ack(
        database=database,
        partition_id=partition_id,
        group=group,
        token=token,
        outcomes=outcomes,
        errors=errors or None,
    )


async def extend(site: Site, request: Request, body: ExtendBody, lease: str) -> Response:
    """Keep a lease for longer; one over several partitions in all of them that are not reported yet or, when one of
    them is lost, in none."""
    leases = parse_leases(lease)
    if body.seconds is not None:
        check_seconds("seconds", body.seconds)
    for partition_id, _, _ in leases:
        if await lane_of(site, request, partition_id) is None:
            raise QueueMissing(f"there is no partition {partition_id}")
    database = request.principal.database
    extensions = [
        Extend(
            database=database,
            partition_id=partition_id,
            group=group,
            token=token,
            seconds=body.seconds,
            passes_reported=len(leases) > 1,
        )
        for partition_id, group, token in leases
    ]
    extended: Transacted = await site.queues.run(Transaction(database=database, operations=tuple(extensions)))
    held = [result.lease_until for result in extended.results if result.lease_until]
    if not held:
        raise LeaseLost("everything that was leased is reported; pop again")
    until = show_time(min(held))
    return json_response(
        ExtendResponse(success=True, leaseId=lease, newExpiresAt=until, lease_expires_at=until, expiresAt=until)
    )
