"""`/v1/log/…`: the log by LSN, for readers on other machines. The same questions as `stores/log_reader.py` has.

A reader is told of the queues that it may use and of nothing else: a queue of others is one that is not there. Bodies
of encrypted queues are opened here, for those who may read them; the key stays.
"""

from collections.abc import AsyncGenerator, Sequence

from headwater.clock import Timestamp
from headwater.doors.site import Site, note_use
from headwater.doors.wire import Request, Response, json_response
from headwater.model.names import Lsn
from headwater.model.principal import Principal, Scope
from headwater.services.log_reading import Part, Place, Question, Result, time_is_over
from headwater.services.log_requests import (
    CONTENT_TYPE,
    DropsRequest,
    LogAbout,
    LogPlace,
    OutlineRequest,
    Partitions,
    PartitionsRequest,
    PlaceQuery,
    Range,
    Remembered,
    Seen,
    SeenRequest,
    SegmentsRequest,
    TimeQuery,
    pack,
)
from headwater.stores.log_reader import Drops, Fingerprint, LogReader

CHUNK_BYTES = 256 * 1_024
LAST = Lsn(2**62)


async def about(site: Site, request: Request) -> Response:
    """Which store it is, from where to where its log goes, and the queues that they may read."""
    principal = request.principal

    async def look(reader: LogReader) -> LogAbout:
        oldest, _ = await reader.span()
        newest = await _end(reader, principal)
        queues = await _readable(reader, principal)
        first = await _part(reader, principal, list(queues)).outline(oldest, newest, 1)
        after = Lsn(first.stretches[0].lsn - 1) if first.stretches else first.reached
        return LogAbout(await reader.identity(), principal.database, after, newest, queues)

    return json_response(await _ask(site, look))


async def at(site: Site, request: Request, query: TimeQuery) -> Response:
    """The LSN before the first of their segments that was written at a time or later."""

    async def look(reader: LogReader) -> LogPlace:
        before = await reader.lsn_at(Timestamp(query.time))
        queues = await _readable(reader, request.principal)
        newest = await _end(reader, request.principal)
        first = await _part(reader, request.principal, list(queues)).outline(min(before, newest), newest, 1)
        return LogPlace(Lsn(first.stretches[0].lsn - 1) if first.stretches else first.reached)

    return json_response(await _ask(site, look))


async def fingerprint(site: Site, request: Request, query: PlaceQuery) -> Response:
    """What the newest of their segments up to an LSN is known by."""

    async def look(reader: LogReader) -> Seen:
        queues = await _readable(reader, request.principal)
        newest = await _part(reader, request.principal, list(queues)).newest(Lsn(0), Lsn(query.through))
        return Seen(None if newest.lsn is None else await reader.fingerprint(newest.lsn))

    return json_response(await _ask(site, look))


async def remembers(site: Site, request: Request, body: SeenRequest) -> Response:
    """Whether the log has what somebody saw in it. Of what they may not read nothing can be said."""

    async def look(reader: LogReader) -> Remembered:
        if request.principal.may(Scope.OPERATOR) and body.lsn > (await reader.span())[1]:
            return Remembered(False)
        queues = await _readable(reader, request.principal)
        there = await _part(reader, request.principal, list(queues)).newest(Lsn(body.lsn - 1), Lsn(body.lsn))
        if there.lsn is None:
            return Remembered(None)
        return Remembered(await reader.remembers(Fingerprint(Lsn(body.lsn), body.mark)))

    return json_response(await _ask(site, look))


async def newest(site: Site, request: Request, body: Range) -> Response:
    """The newest segment of some queues in a stretch."""
    queues = _theirs(request, body.queues)
    return json_response(
        await _ask(
            site, lambda reader: _part(reader, request.principal, queues).newest(Lsn(body.after), Lsn(body.through))
        )
    )


async def outline(site: Site, request: Request, body: OutlineRequest) -> Response:
    """Segments of some queues without their records."""
    queues = _theirs(request, body.queues)
    return json_response(
        await _ask(
            site,
            lambda reader: _part(reader, request.principal, queues).outline(
                Lsn(body.after), Lsn(body.through), body.limit
            ),
        )
    )


async def partitions(site: Site, request: Request, body: PartitionsRequest) -> Response:
    """The partitions of a queue, with where their records begin and end; none of one that they may not use."""
    database = request.principal.database
    if not request.principal.may_use(body.queue):
        return json_response(Partitions([]))

    async def look(reader: LogReader) -> Partitions:
        return Partitions(await reader.partitions(database, body.queue, body.limit, body.after))

    return json_response(await _ask(site, look))


async def drops(site: Site, request: Request, body: DropsRequest) -> Response:
    """What some queues lost to retention; of all of theirs when none is named."""
    principal = request.principal

    async def look(reader: LogReader) -> Drops:
        queues = _theirs(request, body.queues)
        told = await reader.drops(Lsn(body.after), body.since, principal.database, queues, body.partitions)
        # Without a name the number would be that of everybody's drops.
        known = list(await _readable(reader, principal))
        number = (await reader.drops(LAST, 0, principal.database, known)).number if known else 0
        return Drops(number, told.lost, told.partitions)

    return json_response(await _ask(site, look))


async def segments(site: Site, request: Request, body: SegmentsRequest) -> Response:
    """Segments of some queues with their records, as bytes; the place is kept until the client has them."""
    queues = _theirs(request, body.queues)
    note_use(request, *queues)
    bytes_max = min(body.bytes_max, site.config.log_answer_bytes_max)

    async def look(reader: LogReader) -> bytes:
        part = _part(reader, request.principal, queues)
        found, reached = await part.bodies(Lsn(body.after), Lsn(body.through), bytes_max)
        return pack(await reader.identity(), reached, found)

    place = site.log_reading.enter()
    try:
        packed = await site.log_reading.ask(look)
    except BaseException:
        place.leave()
        raise
    return Response(content_type=CONTENT_TYPE, chunks=_in_pieces(packed, place), undelivered=place.leave)


async def _in_pieces(packed: bytes, place: Place) -> AsyncGenerator[bytes, None]:
    try:
        for start in range(0, len(packed), CHUNK_BYTES):
            yield packed[start : start + CHUNK_BYTES]
    finally:
        place.leave()


# ── what they may read ──


async def _ask(site: Site, question: Question[Result]) -> Result:
    place = site.log_reading.enter()
    try:
        return await site.log_reading.ask(question)
    finally:
        place.leave()


def _part(reader: LogReader, principal: Principal, queues: Sequence[str]) -> Part:
    return Part(reader, principal.database, queues, time_is_over(), lambda: _end(reader, principal))


async def _end(reader: LogReader, principal: Principal) -> Lsn:
    """Where the log ends, as far as they may read it: what others write behind that is not theirs to know."""
    if principal.may(Scope.OPERATOR):
        return (await reader.span())[1]
    return await reader.end_of(principal.database, principal.reach)


def _theirs(request: Request, queues: Sequence[str]) -> list[str]:
    """Those of the queues that they may use: the others are as good as not there."""
    return [queue for queue in queues if request.principal.may_use(queue)]


async def _readable(reader: LogReader, principal: Principal) -> dict[str, int]:
    """All queues that they may use, with their numbers."""
    numbers = await reader.queue_numbers(principal.database)
    return {queue: number for queue, number in numbers.items() if principal.may_use(queue)}
