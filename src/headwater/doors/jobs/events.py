"""`GET /api/v1/job-events`: every change of a job as it is committed, as server-sent events.

The id of an event is the LSN of its commit. A client that comes back says the last one it saw (`Last-Event-ID`) and
gets what came after it; when that is no longer kept, an event `resync-required` says so first.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import msgspec

from headwater.doors.jobs.own_names import is_visible
from headwater.doors.jobs.shapes import EventsQuery
from headwater.doors.site import Site
from headwater.doors.wire import Request, Response
from headwater.errors import InvalidOption
from headwater.log.operations import Touch
from headwater.model.job import JOBS_QUEUE
from headwater.model.names import Lsn
from headwater.model.principal import Principal
from headwater.services.checks import check_optional_name
from headwater.stores.questions import FindLastLsn

SEGMENTS_AT_ONCE = 100
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
    news = asyncio.Event()

    def touched(touches: Sequence[Touch]) -> None:
        mine = [touch.lane.queue for touch in touches if touch.lane.database == principal.database]
        if not touches or JOBS_QUEUE in mine:
            news.set()

    unfollow = await site.jobs.tail.follow(touched)
    try:
        yield b": jobs\n\n"
        if seen and not await is_kept(site, principal, after):
            yield b"event: resync-required\ndata: {}\n\n"
        while True:
            news.clear()
            through = await site.queues.ask(FindLastLsn())
            while after < through:
                lane = (principal.database, JOBS_QUEUE)
                segments = await site.queues.read(after, through, SEGMENTS_AT_ONCE, lane)
                for segment in segments:
                    found = [bytes(record.data) for record in segment.records]
                    theirs = [data for data in found if await is_shown(site, principal, name, data)]
                    yield b"".join(event(segment.lsn, data) for data in theirs)
                after = segments[-1].lsn if len(segments) == SEGMENTS_AT_ONCE else through
            try:
                await asyncio.wait_for(news.wait(), SILENCE_SECONDS)
            except TimeoutError:
                yield b": still here\n\n"
    finally:
        unfollow()


async def is_kept(site: Site, principal: Principal, lsn: Lsn) -> bool:
    """Whether the commit that a client saw last is still on the log: then nothing after it is missing."""
    return bool(await site.queues.read(Lsn(lsn - 1), lsn, 1, (principal.database, JOBS_QUEUE)))


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
