"""`GET /api/v1/job-events`: every change of a job as it is committed, as server-sent events.

The id of an event is the LSN of its commit. A client that comes back says the last one it saw (`Last-Event-ID`) and
gets what came after it; when that is no longer kept, an event `resync-required` says so first, and its id is the LSN
to go on from.
"""

from collections.abc import AsyncGenerator

import msgspec

from headwater.doors.jobs.own_names import is_visible
from headwater.doors.jobs.shapes import EventsQuery
from headwater.doors.site import Site
from headwater.doors.wire import Request, Response
from headwater.errors import InvalidOption
from headwater.model.job import JOBS_QUEUE
from headwater.model.names import Lsn
from headwater.model.principal import Principal
from headwater.model.selection import Selection
from headwater.services.checks import check_optional_name
from headwater.stores.questions import FindLastLsn

SILENCE_SECONDS = 15.0


class _Change(msgspec.Struct, frozen=True):
    """What is needed of a change to know who may see it."""

    id: str
    queue: str = ""


_decoder = msgspec.json.Decoder(_Change)


async def events(site: Site, request: Request, query: EventsQuery) -> Response:
    """Changes from now on, or from where the client left off."""
    name = check_optional_name("job", query.id)
    seen = request.headers.get("last-event-id", "")
    if seen and not seen.isdecimal():
        raise InvalidOption(f"Last-Event-ID must be the id of an event; got {seen!r:.80}")
    after = Lsn(int(seen)) if seen else await site.queues.ask(FindLastLsn())
    request.park()
    chunks = follow(site, request.principal, name, after, seen=bool(seen))
    return Response(content_type="text/event-stream", headers=(("cache-control", "no-store"),), chunks=chunks)


async def follow(site: Site, principal: Principal, name: str, after: Lsn, *, seen: bool) -> AsyncGenerator[bytes, None]:
    """Events for as long as somebody listens; a line of comment now and then shows that we are here."""
    jobs = Selection(principal.database, (JOBS_QUEUE,))
    async with await site.queues.followers.follow(jobs, after, seen=seen) as following:
        yield b": jobs\n\n"
        while not following.is_over:
            step = await following.step(SILENCE_SECONDS)
            if step.resync is not None:
                yield b"id: %d\nevent: resync-required\ndata: {}\n\n" % step.resync
            for segment in step.segments:
                found = [bytes(record.data) for record in segment.records]
                theirs = [data for data in found if await is_shown(site, principal, name, data)]
                yield b"".join(event(segment.lsn, data) for data in theirs)
            if not step and not following.is_over:
                yield b": still here\n\n"


async def is_shown(site: Site, principal: Principal, name: str, data: bytes) -> bool:
    """Whether a change is one that was asked for, of a job that they see. What concerns no queue is told to those who
    may use all: it may be about anybody's."""
    change = _decoder.decode(data)
    if principal.may_use_all():
        return not name or change.id == name
    if name and change.id not in (name, principal.own_name(name)):
        return False
    return await is_visible(site, principal, change.id, change.queue)


def event(lsn: Lsn, data: bytes) -> bytes:
    """One event."""
    return b"id: %d\nevent: job\ndata: %s\n\n" % (lsn, data)
