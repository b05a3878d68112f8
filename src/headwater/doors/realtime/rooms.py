"""Rooms on the realtime door: `join`, `leave`, `send`; what happens in a room goes to everybody who is in it.

A member is one connection. Whoever joins `since` an offset gets what came after it, then what comes, without a hole and
nothing twice: what comes while the history is read is put by for it. An event is encoded once, for all members here.
"""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from headwater.config import MIB, Durability
from headwater.doors.realtime.envelope import MessageId, answer, tell
from headwater.doors.realtime.session import CATCH_UP_BYTES, MessageHandler, RealtimeSession
from headwater.doors.sessions import CloseCode, Frame
from headwater.errors import HeadwaterError, InvalidOption, NotAllowed, Overloaded
from headwater.model.names import Offset, check_name
from headwater.model.principal import Scope, require
from headwater.model.record import check_ready_json
from headwater.model.room import NO_PROFILE, Member, RoomMessage, Since, check_since, queue_of
from headwater.services.checks import check_text
from headwater.services.live_room import Event, LiveRoom, Missed, Presence
from headwater.services.room_gathering import NewMessage, Sent
from headwater.services.room_history import begins_behind_hole
from headwater.services.room_outline import DROPPED, UNKNOWN

if TYPE_CHECKING:
    import asyncio

    from headwater.services.room_history import RoomHistory

SUBJECT = "rooms"
PROFILE_BYTES_MAX = 4_096
PAGE = 1_000
# Events that may wait for one who still reads the history: so many, and messages of so many bytes.
PUT_BY_MAX = 10_000
PUT_BY_BYTES_MAX = 8 * MIB


class Join(msgspec.Struct, frozen=True):
    """The payload of `join`. Whoever is `quiet` is not shown to the others. `epoch` says whose offset `since` is."""

    room: str
    since: Since = "now"
    profile: msgspec.Raw = NO_PROFILE
    quiet: bool = False
    epoch: str = ""


class JoinAck(msgspec.Struct, frozen=True):
    """The newest offset, -1 when there is none, and whose offsets they are; who is there, oneself included, and how
    many."""

    room: str
    offset: int
    member: str
    members: list[Member]
    count: int
    epoch: str = ""


class FirstMessage(RoomMessage, frozen=True, gc=False):
    """The first message of a room, which says whose offsets it begins: there were none to whoever was there before."""

    epoch: str = ""


class Leave(msgspec.Struct, frozen=True):
    """The payload of `leave`, and of its answer."""

    room: str


class Send(msgspec.Struct, frozen=True):
    """The payload of `send`."""

    room: str
    type: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    key: Annotated[str, Meta(max_length=256)] = ""
    durability: Durability | None = None


class SendAck(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a message is, when it is kept, and how safe."""

    room: str
    durability: Durability
    offset: int | None = None


class ResyncRequired(msgspec.Struct, frozen=True):
    """Messages up to this offset are gone: whoever keeps a state of them makes it anew."""

    room: str
    reason: str
    offset: int


class PresenceEvent(msgspec.Struct, frozen=True):
    """Somebody came or went."""

    room: str
    member: str
    profile: msgspec.Raw
    state: str


class Seat:
    """One member's place in a room. `after` is the last offset that it has."""

    __slots__ = ("after", "live", "put_by", "put_by_bytes", "quiet", "session")

    def __init__(self, session: RealtimeSession, live: LiveRoom, *, quiet: bool) -> None:
        self.session = session
        self.live = live
        self.quiet = quiet
        self.after = live.next - 1
        self.put_by: list[Event] | None = []
        self.put_by_bytes = 0

    def told(self, events: Sequence[Event], frame: Frame | None) -> None:
        """Something has happened; `frame` is all of it where that is the same for everybody."""
        if self.put_by is not None:
            self.put_by.extend(events)
            self.put_by_bytes += sum(len(one.data) for one in events if isinstance(one, RoomMessage))
            if len(self.put_by) > PUT_BY_MAX or self.put_by_bytes > PUT_BY_BYTES_MAX:
                self.session.refuse(
                    Overloaded("the room is faster than its history is read"), CloseCode.TRY_AGAIN_LATER
                )
        elif frame is not None:
            self.session.send(frame)
        else:
            for one in events:
                if isinstance(one, Missed):
                    # A room that was made again begins with offsets that this member had before.
                    self.after = min(self.after, one.offset)
                if self.wants(one):
                    self.session.send(frame_of(self.live.name, one, self.live.epoch))

    def wants(self, event: Event) -> bool:
        """Whether this is for it: not what it has, nor that it came itself."""
        if isinstance(event, RoomMessage):
            return event.offset is None or event.offset > self.after
        return not isinstance(event, Presence) or event.member.member != self.session.member

    def go_live(self) -> None:
        """The history is read: what came meanwhile, and then what comes."""
        put_by, self.put_by = self.put_by or [], None
        self.told(put_by, None)


class Audience:
    """Everybody on this server who is in a room."""

    def __init__(self) -> None:
        self.seats: dict[RealtimeSession, Seat] = {}

    def told(self, live: LiveRoom, events: Sequence[Event]) -> None:
        """Something has happened. What is the same for all of them is encoded once, and sent in one go."""
        is_same = all(isinstance(event, RoomMessage) for event in events)
        frame = bundle(live.name, events, live.epoch) if is_same else None
        first = next((one.offset for one in events if isinstance(one, RoomMessage) and one.offset is not None), None)
        for seat in list(self.seats.values()):
            # One who came with an offset that this server had not reached yet has some of it already.
            is_ahead = first is not None and seat.after >= first
            seat.told(events, None if is_ahead else frame)


def bundle(room: str, events: Sequence[Event], epoch: str) -> Frame:
    """Events as one frame."""
    frames = [frame_of(room, event, epoch) for event in events]
    return frames[0] if len(frames) == 1 else Frame(parts=tuple(frames))


def frame_of(room: str, event: Event, epoch: str) -> Frame:
    """An event as clients get it."""
    if isinstance(event, RoomMessage):
        told = event
        if event.offset == 0:
            told = FirstMessage(event.room, event.type, event.data, event.sender, event.at, event.offset, epoch)
        return tell("room-message", told, event_id=None if event.offset is None else place_of(event.offset, epoch))
    if isinstance(event, Missed):
        return tell("resync-required", ResyncRequired(room, DROPPED, event.offset))
    return tell("presence", PresenceEvent(room, event.member.member, event.member.profile, event.state))


def place_of(offset: int, epoch: str) -> str:
    """A place in a room as listeners keep it: an EventSource that comes back can say the last id it saw alone."""
    return f"{offset}@{epoch}"


# ── joining and leaving ──


async def join(session: RealtimeSession, id: MessageId, payload: Join) -> None:
    """Be in a room."""
    require(session.known, Scope.SUBSCRIBE, queue_of(payload.room))
    since = check_since(payload.since)
    if len(payload.profile) > PROFILE_BYTES_MAX:
        raise InvalidOption(f"a profile may have {PROFILE_BYTES_MAX:,} bytes; got {len(payload.profile):,}")
    rooms, seats = session.site.rooms, seats_of(session)
    member = Member(session.member, payload.profile)
    before = seats.get(payload.room)
    # Whoever comes again as the same did not go: the others hear nothing of it, however often it is done.
    stays = before is not None and before.live.here.get(session.member) == (None if payload.quiet else member)
    if before is not None and not stays:
        drop_seat(session, payload.room)
    if not stays and len(seats) >= session.limits.rooms_per_connection_max:
        raise Overloaded(f"a connection may be in {session.limits.rooms_per_connection_max:,} rooms; leave one first")
    if before is not None and stays:
        live = before.live
    else:
        live = await rooms.enter(session.database, payload.room)
        if session.is_over:
            rooms.leave(live)
            return
    seat = seats[payload.room] = take_seat(session, live, quiet=payload.quiet)
    if not payload.quiet:
        live.here[member.member] = member
    acknowledged = JoinAck(
        payload.room, seat.after, session.member, *live.attendance.roll_call(rooms.origin, live.here), live.epoch
    )
    if not payload.quiet and not stays:
        await rooms.connect(live, member)
    # A listener who is cut before anything else was told goes on from here, unless there is more to the beginning.
    place = place_of(acknowledged.offset, live.epoch) if since == "now" else None
    session.send(answer("join_ack", acknowledged, id, event_id=place))
    if since != "now":
        await catch_up(rooms.kept, seat, since, payload.epoch)
    seat.go_live()


def seats_of(session: RealtimeSession) -> dict[str, Seat]:
    """The rooms that a session is in, by name; it leaves them all when it is over."""
    seats: dict[str, Seat] | None = session.kept.get(SUBJECT)
    if seats is None:
        seats = session.kept[SUBJECT] = {}
        session.at_end(lambda: drop_all(session))
        session.at_change(lambda: drop_withdrawn(session))
    return seats


def drop_all(session: RealtimeSession) -> None:
    """Leave every room."""
    for room in list(seats_of(session)):
        drop_seat(session, room)


def drop_withdrawn(session: RealtimeSession) -> None:
    """Leave the rooms that whoever it is now may not be in: what was joined with one token is not kept with another."""
    for room, seat in list(seats_of(session).items()):
        try:
            require(session.known, Scope.SUBSCRIBE, queue_of(room))
            is_theirs = seat.live.database == session.database
        except HeadwaterError:
            is_theirs = False
        if not is_theirs:
            drop_seat(session, room)
            session.fail(NotAllowed(f"the right to be in the room {room!r:.80} was withdrawn"), "")


def take_seat(session: RealtimeSession, live: LiveRoom, *, quiet: bool) -> Seat:
    """From now on it is put by for this member what happens."""
    audiences: dict[LiveRoom, Audience] = session.site.audiences
    audience = audiences.get(live)
    if audience is None:
        audience = audiences[live] = Audience()
        live.listeners.append(partial(audience.told, live))
    seat = audience.seats[session] = Seat(session, live, quiet=quiet)
    return seat


def drop_seat(session: RealtimeSession, room: str) -> None:
    """Leave a room; a second time changes nothing."""
    seats: dict[str, Seat] = session.kept.get(SUBJECT, {})
    seat = seats.pop(room, None)
    if seat is None:
        return
    audience = session.site.audiences.get(seat.live)
    if audience is not None:
        audience.seats.pop(session, None)
        if not audience.seats:
            del session.site.audiences[seat.live]
            seat.live.listeners.clear()
    rooms = session.site.rooms
    rooms.disconnect(seat.live, session.member)
    rooms.leave(seat.live)


async def catch_up(kept: "RoomHistory", seat: Seat, since: Since, epoch: str = "") -> None:
    """Send what came after an offset, up to where this member began to listen. An offset of another epoch is none of
    this room: it was deleted and made again, or its store restored, and everything that is kept of it is new."""
    live, session = seat.live, seat.session
    outline = await kept.outline(live.database, live.name)
    end = seat.after + 1
    after = -1 if since == "beginning" else int(since)
    reason = "" if since == "beginning" else outline.why_not_since(after)
    is_another = since != "beginning" and not outline.counts_in(epoch)
    if is_another:
        reason = DROPPED
    if reason:
        session.send(tell("resync-required", ResyncRequired(live.name, reason, outline.start - 1)))
    if reason == UNKNOWN or is_another:
        after = -1
    if after >= end:
        # This server has not delivered as far as the one that it comes from.
        seat.after = after
    outline = msgspec.structs.replace(outline, end=Offset(min(end, outline.end)))
    following = max(after + 1, outline.start)
    while following < outline.end:
        messages = await kept.history(outline, live.name, following - 1, PAGE)
        if (begin := begins_behind_hole(outline, following - 1, messages)) is not None:
            session.send(dropped_before(live, begin))
        if not messages or not session.send(bundle(live.name, messages, outline.epoch)):
            return
        following = (messages[-1].offset or 0) + 1
        # What comes next is read when the client has taken some: who reads is not too slow, however much there is.
        await session.taken(CATCH_UP_BYTES)


def dropped_before(live: LiveRoom, offset: int) -> Frame:
    """Messages before this offset are gone."""
    return tell("resync-required", ResyncRequired(live.name, DROPPED, offset - 1))


def leave(session: RealtimeSession, id: MessageId, payload: Leave) -> None:
    """Be in a room no more."""
    drop_seat(session, payload.room)
    session.send(answer("leave_ack", Leave(payload.room), id))


# ── sending ──


def send(session: RealtimeSession, id: MessageId, payload: Send) -> Awaitable[None] | None:
    """Say something in a room. It is answered when it is as safe as was asked for."""
    if session.site.switches.is_stale():
        return send_after_a_look(session, id, payload)
    say(session, id, payload)
    return None


async def send_after_a_look(session: RealtimeSession, id: MessageId, payload: Send) -> None:
    """The same, once it is known whether pushes are held off."""
    await session.site.switches.refresh()
    say(session, id, payload)


def say(session: RealtimeSession, id: MessageId, payload: Send) -> None:
    """Hand on what a member says."""
    message = new_message(session, payload)
    session.site.switches.check_sends_taken(message.database)
    sent = session.site.rooms.send(message)
    if sent is not None:
        sent.add_done_callback(partial(answer_sent, session, id, payload.room))


def new_message(session: RealtimeSession, payload: Send) -> NewMessage:
    """What a member says, checked."""
    require(session.known, Scope.PUBLISH, queue_of(payload.room))
    check_ready_json(payload.data, session.site.config.record_bytes_max)
    settings = session.site.rooms.settings.of(check_name("message type", payload.type))
    return NewMessage(
        database=session.database,
        room=payload.room,
        type=payload.type,
        data=payload.data,
        sender=session.member,
        key=check_text("key", payload.key),
        durability=payload.durability or settings.durability,
        at_least=payload.durability or Durability.MEMORY,
    )


def answer_sent(session: RealtimeSession, id: MessageId, room: str, sent: "asyncio.Future[Sent]") -> None:
    """What became of a message."""
    if sent.cancelled():
        return
    error = sent.exception()
    if isinstance(error, HeadwaterError):
        session.fail(error, id)
    elif error is not None:
        raise error
    else:
        session.send(answer("send_ack", SendAck(room, sent.result().durability, sent.result().offset), id))


HANDLERS = {
    "join": MessageHandler(Join, join),
    "leave": MessageHandler(Leave, leave),
    "send": MessageHandler(Send, send),
}
