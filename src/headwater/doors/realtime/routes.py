"""Where realtime conversations begin: `/realtime/ws` for those who speak, `/realtime/sse` for those who only listen."""

from http import HTTPStatus

import msgspec

from headwater.doors.realtime import document_routes, room_routes
from headwater.doors.realtime.document_routes import LiveListenQuery
from headwater.doors.realtime.session import RealtimeSession
from headwater.doors.routes import Route
from headwater.doors.sessions import Peer
from headwater.doors.site import Site
from headwater.doors.websocket import asks_for_websocket
from headwater.doors.wire import Refused, Request, Response
from headwater.errors import InvalidOption
from headwater.services.resume_tokens import IncludeData


async def open_websocket(site: Site, request: Request) -> Response:
    """A conversation. Who it is may be said in its first message."""
    if not asks_for_websocket(request):
        detail = "this is for WebSockets; to listen only, GET /realtime/sse"
        raise Refused(HTTPStatus.UPGRADE_REQUIRED, "upgrade_required", detail, (("upgrade", "websocket"),))
    site.realtime.admit(request)
    return Response(session=lambda peer: converse(site, request, peer))


def converse(site: Site, request: Request, peer: Peer) -> RealtimeSession:
    """The session of a client."""
    return RealtimeSession(site, site.realtime, request, peer)


class ListenQuery(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What to listen to: a room, from where on (an offset and its epoch, now or beginning), or a live query."""

    room: str = ""
    since: str = "now"
    epoch: str = ""
    collection: str = ""
    filter: str = ""
    include_data: IncludeData = None
    send_snapshot: bool = False
    checksum: bool = False


async def listen(site: Site, request: Request, query: ListenQuery) -> Response:
    """What happens in a room or to documents, for those who only listen."""
    if not query.collection:
        return await room_routes.listen(site, request, query.room, query.since, query.epoch)
    if query.room:
        raise InvalidOption("listen to a room or to a collection; got both")
    wanted = LiveListenQuery(query.collection, query.filter, query.include_data, query.send_snapshot, query.checksum)
    return await document_routes.listen(site, request, wanted)


ROUTES = (
    Route(
        method="GET",
        path="/realtime/ws",
        handler=open_websocket,
        summary="Rooms and subscriptions, as a WebSocket",
        status=101,
        content_types=("text/plain",),
    ),
    Route(
        method="GET",
        path="/realtime/sse",
        handler=listen,
        summary="Everything that happens in a room, or a live query over documents, as server-sent events",
        asks=ListenQuery,
        content_types=("text/event-stream",),
    ),
)
