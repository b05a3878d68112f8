"""Live queries for those who only listen: server-sent events."""

import re

import msgspec

from headwater.doors.realtime.document_messages import Query, Subscribe
from headwater.doors.realtime.envelope import Envelope
from headwater.doors.realtime.session import DATABASE_ALIAS, RealtimeSession
from headwater.doors.routes import Route
from headwater.doors.sessions import Peer
from headwater.doors.site import Site, check_scope
from headwater.doors.wire import Request, Response
from headwater.errors import InvalidOption, NotAllowed
from headwater.model.document import check_collection
from headwater.model.names import DATABASE_DEFAULT
from headwater.model.principal import Scope
from headwater.model.watermarks import Pressure
from headwater.services.resume_tokens import IncludeData
from headwater.services.subscriptions import Wanted, check_may_follow

LISTENER = "sse"
# A `seq`, what rules and claims came to when it was told, and in which store (`mark_of`).
_SEEN = re.compile(r"(-1|[0-9]{1,18})(?:-([0-9a-f.]{1,64}))?(?:@([0-9a-f-]{1,64}))?", re.ASCII)


class LiveListenQuery(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is followed: documents of a collection, by a filter that is CEL text."""

    collection: str
    filter: str = ""
    include_data: IncludeData = None
    send_snapshot: bool = False
    checksum: bool = False


async def listen_to(site: Site, request: Request, query: LiveListenQuery, database: str) -> Response:
    """The same, where the database is said."""
    theirs = request.principal.database
    if database != theirs and not (database == DATABASE_ALIAS and theirs == DATABASE_DEFAULT):
        raise NotAllowed(f"this token is not for the database {database!r:.80}")
    return await listen(site, request, query)


async def listen(site: Site, request: Request, query: LiveListenQuery) -> Response:
    """A live query. The id of an event begins with its `seq`; who comes back says the last one (`Last-Event-ID`)."""
    check_scope(request, Scope.READ_DOCUMENTS)
    seen = request.headers.get("last-event-id", "")
    place = _SEEN.fullmatch(seen)
    if seen and place is None:
        raise InvalidOption(f"Last-Event-ID must be the id of an event; got {seen!r:.80}")
    wanted = Wanted(
        database=request.principal.database, collection=check_collection(query.collection), filter=query.filter
    )
    # What is refused is refused before the stream begins: a listener can tell it from what is over only by the status.
    wanted.expression(request.principal)
    check_may_follow(request.principal, wanted, is_pressed=site.realtime.pressure >= Pressure.HARD)
    site.realtime.admit_listener(request)
    subscribe = Subscribe(
        Query(query.collection, filter=query.filter),
        # Listeners of others expect the document flat, and have no word to ask for it.
        "both" if query.include_data is None else query.include_data,
        query.send_snapshot,
        last_seq=None if place is None else int(place[1]),
        checksum=query.checksum,
        reading=None if place is None else place[2] or "",
        identity="" if place is None else place[3] or "",
    )
    payload = msgspec.Raw(msgspec.json.encode(subscribe))

    def begin(peer: Peer) -> RealtimeSession:
        session = RealtimeSession(site, site.realtime, request, peer)
        session.begin(Envelope("subscribe", LISTENER, payload))
        return session

    return Response(session=begin, headers=(("cache-control", "no-store"),))


ROUTES = (
    Route(
        method="GET",
        path="/realtime/v1/databases/{database}/sse",
        handler=listen_to,
        summary="A live query over documents, as server-sent events",
        scope=Scope.READ_DOCUMENTS,
        asks=LiveListenQuery,
        content_types=("text/event-stream",),
    ),
)
