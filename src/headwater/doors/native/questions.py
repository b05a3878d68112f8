"""`GET /v1/queues`, `groups`, `dead-letters`, `traces`, `segments` and `bounds`: what is kept, and what is taken."""

from headwater.doors.native.messages import check_partition
from headwater.doors.native.upkeep import check_queue
from headwater.doors.site import Site
from headwater.doors.wire import Request, Response, json_response
from headwater.model.names import Lsn, check_name
from headwater.services.checks import check_optional_name, check_text
from headwater.services.requests import (
    Bounds,
    DeadLettersQuery,
    GroupsQuery,
    LeasesQuery,
    SegmentsAnswer,
    SegmentsQuery,
    TracesQuery,
)


async def bounds(site: Site, request: Request) -> Response:
    """What this server takes at most."""
    config = site.config
    said = Bounds(
        version=site.version,
        record_bytes_max=config.record_bytes_max,
        batch_max=config.batch_max,
        batch_bytes_max=config.batch_bytes_max,
        wait_seconds_max=config.wait_seconds_max,
        lsn=await site.store.last_lsn(),
        now=site.clock.now(),
    )
    return json_response(said)


async def queues(site: Site, request: Request) -> Response:
    """All queues that they may use."""
    found = await site.store.queues(request.principal.database)
    return json_response([status for status in found if request.principal.may_use(status.queue)])


async def groups(site: Site, request: Request, query: GroupsQuery) -> Response:
    """All groups of queues that they may use."""
    if query.queue:
        check_queue(request, query.queue)
    found = await site.store.groups(request.principal.database, query.queue)
    return json_response([status for status in found if request.principal.may_use(status.queue)])


async def leases(site: Site, request: Request, query: LeasesQuery) -> Response:
    """What is being worked on in the queues that they may use."""
    if query.queue:
        check_queue(request, query.queue)
    check_optional_name("group", query.group)
    found = await site.store.leases(request.principal.database, query.queue, query.group, query.limit)
    return json_response([status for status in found if request.principal.may_use(status.queue)])


async def dead_letters(site: Site, request: Request, query: DeadLettersQuery) -> Response:
    """Records that failed for good."""
    check_queue(request, query.queue)
    return json_response(
        await site.store.dead_letters(request.principal.database, query.queue, query.limit, query.after)
    )


async def traces(site: Site, request: Request, query: TracesQuery) -> Response:
    """Events in the life of a record."""
    await check_partition(site, request, query.partition_id)
    check_text("transaction_id", query.transaction_id)
    return json_response(await site.store.traces(request.principal.database, query.partition_id, query.transaction_id))


async def segments(site: Site, request: Request, query: SegmentsQuery) -> Response:
    """The log of a queue, without a group: from an LSN on, and then as it grows."""
    check_queue(request, check_name("queue", query.queue))
    through, found = await site.queues.read_on(
        (request.principal.database, query.queue),
        Lsn(query.after),
        limit=query.limit,
        wait_seconds=min(query.wait_seconds, site.config.wait_seconds_max),
        parked=request.park,
    )
    return json_response(SegmentsAnswer(through, found))
