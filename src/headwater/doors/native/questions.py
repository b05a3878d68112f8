"""`GET /v1/queues`, `groups`, `dead-letters`, `traces`, `segments` and `bounds`: what is kept, and what is taken."""

from headwater.doors.listing import group_pages, list_response, queue_pages
from headwater.doors.native.messages import check_partition
from headwater.doors.native.upkeep import check_queue
from headwater.doors.site import Site
from headwater.doors.wire import Request, Response, json_response
from headwater.model.names import Lsn, check_name
from headwater.model.principal import Principal, Scope
from headwater.services.checks import check_optional_name, check_text
from headwater.services.requests import (
    Bounds,
    DeadLettersQuery,
    GroupsQuery,
    LeasesQuery,
    QueuesQuery,
    SegmentsAnswer,
    SegmentsQuery,
    TracesQuery,
)
from headwater.stores.questions import FindLastLsn, FindLastLsnOf, ListDeadLetters, ListLeases, ListTraces


async def bounds(site: Site, request: Request) -> Response:
    """What this server takes at most."""
    config = site.config
    said = Bounds(
        version=site.version,
        record_bytes_max=config.record_bytes_max,
        batch_max=config.batch_max,
        batch_bytes_max=config.batch_bytes_max,
        wait_seconds_max=config.wait_seconds_max,
        lsn=await _end(site, request.principal),
        now=site.clock.now(),
    )
    return json_response(said)


async def _end(site: Site, principal: Principal) -> Lsn:
    """Where the log ends, as far as they may read it."""
    if principal.may(Scope.OPERATOR):
        return await site.store.ask(FindLastLsn())
    return await site.store.ask(FindLastLsnOf(principal.database, principal.queues))


async def queues(site: Site, request: Request, query: QueuesQuery) -> Response:
    """The queues that they may use, by name: all of them, or a page."""
    return await list_response(queue_pages(site, request.principal, query.after, query.limit))


async def groups(site: Site, request: Request, query: GroupsQuery) -> Response:
    """The groups of queues that they may use, by queue and name: all of them, or a page."""
    if query.queue:
        check_queue(request, query.queue)
    after = (query.after_queue, query.after_group)
    return await list_response(group_pages(site, request.principal, query.queue, after, query.limit))


async def leases(site: Site, request: Request, query: LeasesQuery) -> Response:
    """What is being worked on in the queues that they may use."""
    if query.queue:
        check_queue(request, query.queue)
    check_optional_name("group", query.group)
    found = await site.store.ask(ListLeases(request.principal.database, query.queue, query.group, query.limit))
    return json_response([status for status in found if request.principal.may_use(status.queue)])


async def dead_letters(site: Site, request: Request, query: DeadLettersQuery) -> Response:
    """Records that failed for good."""
    check_queue(request, query.queue)
    return json_response(
        await site.store.ask(ListDeadLetters(request.principal.database, query.queue, query.limit, query.after))
    )


async def traces(site: Site, request: Request, query: TracesQuery) -> Response:
    """Events in the life of a record."""
    await check_partition(site, request, query.partition_id)
    check_text("transaction_id", query.transaction_id)
    return json_response(
        await site.store.ask(ListTraces(request.principal.database, query.partition_id, query.transaction_id))
    )


async def segments(site: Site, request: Request, query: SegmentsQuery) -> Response:
    """The log of a queue, without a group: from an LSN on, and then as it grows."""
    check_queue(request, check_name("queue", query.queue))
    step = await site.queues.read_on(
        (request.principal.database, query.queue),
        Lsn(query.after),
        limit=query.limit,
        wait_seconds=min(query.wait_seconds, site.config.wait_seconds_max),
        parked=request.park,
    )
    through = step.through
    if not request.principal.may(Scope.OPERATOR):
        # How far the log reaches beyond what is theirs is none of their business.
        through = step.segments[-1].lsn if step.segments else Lsn(max(query.after, step.resync or 0))
    return json_response(SegmentsAnswer(through, step.segments, step.resync))
