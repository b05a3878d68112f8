"""Rooms without a WebSocket: say something, read what is kept, see who is there, or only listen."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headwater.config import Durability
from headwater.doors.holds import check_pushes_taken
from headwater.doors.realtime.envelope import Envelope
from headwater.doors.realtime.rooms import Join
from headwater.doors.realtime.session import RealtimeSession
from headwater.doors.routes import Route
from headwater.doors.sessions import Peer
from headwater.doors.site import Site, check_scope, check_use
from headwater.doors.wire import Request, Response, json_response
from headwater.model.names import check_name
from headwater.model.principal import Scope
from headwater.model.record import check_ready_json
from headwater.model.room import Member, RoomMessage, check_since, queue_of
from headwater.services.checks import check_text
from headwater.services.room_gathering import NewMessage, Sent
from headwater.services.room_metrics import RoomMetrics, room_metrics
from headwater.services.room_requests import check_no_cursor

LIMIT_MAX = 1_000
NO_DATA = msgspec.Raw(b"null")


class MessageBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is said: of which type, under which key, and how safe it has to be."""

    type: str
    data: msgspec.Raw = msgspec.field(default_factory=lambda: NO_DATA)
    key: Annotated[str, Meta(max_length=256)] = ""
    durability: Durability | None = None


class HistoryQuery(msgspec.Struct, frozen=True):
    """Messages behind an offset; all that are kept without one. `epoch` says whose offset it is."""

    since: Annotated[int, Meta(ge=-1)] | None = None
    epoch: str = ""
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX)] = 100


class History(msgspec.Struct, frozen=True):
    """Messages, the newest offset of the room, -1 when there is none, and whose offsets they are."""

    messages: list[RoomMessage]
    offset: int
    epoch: str = ""


class Members(msgspec.Struct, frozen=True):
    """Who is in a room, and how many."""

    members: list[Member]
    count: int


async def send(site: Site, request: Request, body: MessageBody, room: str) -> Response:
    """Say something in a room."""
    check_use(request, queue_of(room))
    await check_pushes_taken(site, request)
    check_ready_json(body.data, site.config.record_bytes_max)
    settings = site.rooms.settings.of(check_no_cursor(check_name("message type", body.type)))
    message = NewMessage(
        database=request.principal.database,
        room=room,
        type=body.type,
        data=body.data,
        sender=request.principal.subject,
        key=check_text("key", body.key),
        durability=body.durability or settings.durability,
        at_least=body.durability or Durability.MEMORY,
    )
    sending = site.rooms.send(message)
    sent = Sent(None, Durability.MEMORY) if sending is None else await sending
    return json_response(sent, status=201)


async def history(site: Site, request: Request, query: HistoryQuery, room: str) -> Response:
    """What is kept of a room."""
    check_use(request, queue_of(room))
    found, outline = await site.rooms.kept.history_of(
        request.principal.database, room, query.since, query.limit, query.epoch
    )
    return json_response(History(found, outline.end - 1, outline.epoch))


async def members(site: Site, request: Request, room: str) -> Response:
    """Who is in a room, on all servers."""
    check_use(request, queue_of(room))
    return json_response(Members(*await site.rooms.roll_call(request.principal.database, room)))


async def listen(site: Site, request: Request, room: str, since: str, epoch: str) -> Response:
    """Everything that happens in a room, as server-sent events. Who comes back says the last id it saw."""
    check_scope(request, Scope.SUBSCRIBE)
    check_use(request, queue_of(room))
    if last := request.headers.get("last-event-id"):
        since, _, epoch = last.partition("@")
    begin_at = check_since(since)
    site.realtime.admit_listener(request)
    join = msgspec.Raw(msgspec.json.encode(Join(room, begin_at, quiet=True, epoch=epoch)))

    def begin(peer: Peer) -> RealtimeSession:
        session = RealtimeSession(site, site.realtime, request, peer)
        session.begin(Envelope("join", payload=join))
        return session

    return Response(session=begin, headers=(("cache-control", "no-store"),))


async def overview(site: Site, request: Request) -> Response:
    """How rooms are."""
    found = await room_metrics(site.rooms, request.principal.database, request.principal.queues)
    return json_response(found)


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/rooms",
        handler=overview,
        summary="How rooms are: sizes, rates, what is undelivered, and the state",
        scope=Scope.METRICS,
        gives=RoomMetrics,
    ),
    Route(
        method="POST",
        path="/api/v1/rooms/{room}/messages",
        handler=send,
        summary="Say something in a room",
        scope=Scope.PUBLISH,
        takes=MessageBody,
        gives=Sent,
        status=201,
    ),
    Route(
        method="GET",
        path="/api/v1/rooms/{room}/messages",
        handler=history,
        summary="What is kept of a room",
        scope=Scope.SUBSCRIBE,
        asks=HistoryQuery,
        gives=History,
    ),
    Route(
        method="GET",
        path="/api/v1/rooms/{room}/members",
        handler=members,
        summary="Who is in a room",
        scope=Scope.SUBSCRIBE,
        gives=Members,
    ),
)
