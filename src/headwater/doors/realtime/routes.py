"""Where realtime conversations begin: `/realtime/ws` for those who speak, `/realtime/sse` for those who only listen."""

from http import HTTPStatus

from headwater.doors.realtime.session import RealtimeSession
from headwater.doors.routes import Route
from headwater.doors.sessions import Peer
from headwater.doors.site import Site
from headwater.doors.websocket import asks_for_websocket
from headwater.doors.wire import Refused, Request, Response


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


ROUTES = (
    Route(
        method="GET",
        path="/realtime/ws",
        handler=open_websocket,
        summary="Rooms and subscriptions, as a WebSocket",
        status=101,
        content_types=("text/plain",),
    ),
)
