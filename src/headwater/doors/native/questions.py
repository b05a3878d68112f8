"""`GET /v1/bounds` and `segments`: what is taken, and the log of a queue as it grows."""

from headwater.doors.site import Site, check_scope, check_use
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import NotAllowed
from headwater.model.document import collection_of
from headwater.model.names import Lsn, check_name
from headwater.model.principal import Principal, Scope
from headwater.services.requests import Bounds, SegmentsQuery, SegmentsResponse
from headwater.stores.questions import FindLastLsn, FindLastLsnOf


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
        return await site.queues.ask(FindLastLsn())
    return await site.queues.ask(FindLastLsnOf(principal.database, principal.reach))


def _check_log(request: Request, queue: str) -> None:
    """Raises when the log of a queue is not theirs to read; the changes of a collection are those of its documents."""
    collection = collection_of(queue)
    if collection is not None and request.principal.may(Scope.READ_DOCUMENTS):
        # Where rules say which documents are theirs, the log, which has all of them, is not.
        if not request.principal.may_use(queue):
            raise NotAllowed(f"this token may not read all changes of the collection {collection!r:.260}")
    else:
        check_scope(request, Scope.SUBSCRIBE)
    check_use(request, queue)


async def segments(site: Site, request: Request, query: SegmentsQuery) -> Response:
    """The log of a queue, without a group: from an LSN on, and then as it grows."""
    _check_log(request, check_name("queue", query.queue))
    if query.wait_seconds:
        # From the beginning: whatever comes from now on is for who may read it then.
        request.park()
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
    return json_response(SegmentsResponse(through, step.segments, step.resync, await site.queues.identity()))
