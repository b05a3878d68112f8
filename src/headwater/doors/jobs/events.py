"""`GET /api/v1/job-events`: every change of a job as it is committed, as server-sent events.

The id of an event is the LSN of its commit and the identity of the store (`17@…`); where a commit made several
changes, all but the last have their number behind the LSN (`17.1`, `17.2`, `17`). A client that comes back says the
last one it saw (`Last-Event-ID`) and gets what came after it; when that is no longer kept, or is of another store, as
after a restore, an event `resync-required` says so first, and its id is where it goes on from. There is no commit 0:
whoever says that has seen nothing, and gets everything.
"""

import re
from collections.abc import AsyncGenerator

import msgspec

from headwater.doors.jobs.own_names import is_visible
from headwater.doors.jobs.shapes import EventsQuery
from headwater.doors.site import Site
from headwater.doors.wire import EVENT_STREAM, BrokenOff, Request, Response
from headwater.errors import InvalidOption
from headwater.model.job import JOBS_QUEUE
from headwater.model.names import Lsn
from headwater.model.principal import Principal
from headwater.model.selection import Selection
from headwater.outage import OUTAGES
from headwater.services.checks import check_said_name
from headwater.services.own_records import OwnRecords
from headwater.stores.questions import FindLastLsn, Segment

SILENCE_SECONDS = 15.0
LSN_MAX = 2**63 - 1

_ID = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,9}))?(?:@([0-9a-f-]{1,64}))?", re.ASCII)


class JobChange(msgspec.Struct, frozen=True):
    """What is needed of a change to know who may see it."""

    id: str
    queue: str = ""


_changes = OwnRecords(msgspec.json.Decoder(JobChange).decode)


class _Place(msgspec.Struct, frozen=True):
    """Behind a whole commit, or behind as many changes of it, in the store of this identity; '' does not say."""

    lsn: Lsn
    changes: int = 0
    identity: str = ""


async def events(site: Site, request: Request, query: EventsQuery) -> Response:
    """Changes from now on, or from where the client left off."""
    name = check_said_name("job", query.id)
    seen = request.headers.get("last-event-id", "")
    identity = await site.queues.identity()
    after = _parse(seen) if seen else None
    is_foreign = after is not None and after.identity not in ("", identity)
    if after is None or is_foreign:
        after = _Place(await site.queues.ask(FindLastLsn()))
    request.park()
    chunks = follow(site, request.principal, name, after, seen=bool(seen) and not is_foreign, is_anew=is_foreign)
    return Response(content_type=EVENT_STREAM, headers=(("cache-control", "no-store"),), chunks=chunks)


def _parse(seen: str) -> _Place:
    found = _ID.fullmatch(seen)
    if found is None or int(found[1]) > LSN_MAX:
        raise InvalidOption(f"Last-Event-ID must be the id of an event; got {seen!r:.80}")
    lsn = Lsn(int(found[1]))
    return _Place(lsn, int(found[2] or 0) if lsn else 0, found[3] or "")


def _resync(lsn: int, identity: str) -> bytes:
    return b"id: %d@%s\nevent: resync-required\ndata: {}\n\n" % (lsn, identity.encode())


async def follow(
    site: Site, principal: Principal, name: str, after: _Place, *, seen: bool, is_anew: bool = False
) -> AsyncGenerator[bytes, None]:
    """Events for as long as somebody listens; a line of comment now and then shows that we are here. Whose place was of
    another store begins anew."""
    jobs, identity = Selection(principal.database, (JOBS_QUEUE,)), await site.queues.identity()
    async with await site.queues.followers.follow(jobs, after.lsn, seen=seen) as following:
        if after.changes and not following.is_unsure_of_past:
            following.position = Lsn(after.lsn - 1)
        yield b": jobs\n\n"
        if is_anew:
            yield _resync(after.lsn, identity)
        while not following.is_over:
            try:
                step = await following.step(SILENCE_SECONDS)
            except OUTAGES as error:
                # Who listens comes again, with the last event that it has.
                raise BrokenOff(str(error)) from error
            if step.resync is not None:
                yield _resync(step.resync, identity)
            for segment in step.segments:
                known = after.changes if segment.lsn == after.lsn else 0
                yield await _events_of(site, principal, name, segment, known, identity.encode())
            if not step and not following.is_over:
                yield b": still here\n\n"


async def _events_of(
    site: Site, principal: Principal, name: str, segment: Segment, known: int, identity: bytes
) -> bytes:
    """The changes of one commit that are shown, without those that are known."""
    found: list[bytes] = []
    count = len(segment.records)
    for offset, record, change in _changes.read(segment):
        number = offset - segment.first_offset + 1
        if number > known and await is_shown(site, principal, name, change):
            place = b"%d" % segment.lsn if number == count else b"%d.%d" % (segment.lsn, number)
            found.append(event(b"%s@%s" % (place, identity), bytes(record.data)))
    return b"".join(found)


async def is_shown(site: Site, principal: Principal, name: str, change: JobChange) -> bool:
    """Whether a change is one that was asked for, of a job that they see. What concerns no queue is told to those who
    may use all: it may be about anybody's."""
    if principal.may_use_all():
        return not name or change.id == name
    if name and change.id not in (name, principal.own_name(name)):
        return False
    return await is_visible(site, principal, change.id, change.queue)


def event(place: bytes, data: bytes) -> bytes:
    """One event."""
    return b"id: %s\nevent: job\ndata: %s\n\n" % (place, data)
