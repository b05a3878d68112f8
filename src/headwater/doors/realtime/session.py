"""One realtime conversation, whatever it is about.

    received ─► envelope ─► who is it? (`auth` first, where the server asks) ─► handler of its type ─► answer or error

**How a subject joins.** It is a module of this package with a mapping `HANDLERS` from message type to `MessageHandler`,
and its line in `table.py`. A handler says by `takes` what its payload is, a struct, and its `handle` is called with the
session, the id of the message and the decoded payload:

    async def subscribe(session: RealtimeSession, id: MessageId, payload: Subscribe) -> None:
        require(session.known, Scope.SUBSCRIBE, …)
        session.send(answer("subscribe_ack", …, id))

    HANDLERS = {"subscribe": MessageHandler(Subscribe, subscribe)}

- `handle` may be a plain function, or a coroutine: then the next messages of this client wait until it is done.
- An error of `errors.py` that it raises becomes `error {code, message}` with the id. Anything else ends the session.
- `session.site` has the services, `session.known` who it is, `session.member` the name of this connection.
- `session.send(frame)` never waits; a client that is too slow is let go with a code that says to come back. A frame for
  many is made once (`envelope.tell`) and sent to each.
- What a subject keeps for a session is in `session.kept[subject]`; `session.at_end` takes what is to be called when it
  is over.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.config import KIB
from headwater.doors.access.rates import address_key
from headwater.doors.realtime.envelope import (
    NO_PLACE,
    Envelope,
    MessageId,
    answer,
    decode_envelope,
    decode_payload,
    trouble,
)
from headwater.doors.realtime.hall import Hall
from headwater.doors.realtime.limits import RealtimeLimits
from headwater.doors.sessions import CloseCode, Frame, Peer
from headwater.doors.wire import Request
from headwater.errors import HeadwaterError, InvalidInput, NotAllowed, Overloaded, RateExceeded, Unauthenticated
from headwater.model.allowance import Level, owed_seconds, refill
from headwater.model.names import DATABASE_DEFAULT
from headwater.model.principal import Principal
from headwater.model.watermarks import Pressure

if TYPE_CHECKING:
    from headwater.doors.site import Site

log = logging.getLogger(__name__)

# So many messages may wait while an earlier one is worked on; no more is read meanwhile.
INBOX_MAX = 64
INBOX_BYTES_MAX = 1_024 * KIB
# Who has not said who they are says no more than a token takes.
UNKNOWN_MESSAGE_BYTES_MAX = 16 * KIB
# How often it is looked whether a client has taken what was sent.
TAKEN_PAUSE_SECONDS = 0.002
TAKEN_PAUSE_SECONDS_MAX = 0.05
# So much may wait for a client while it catches up; what comes next is read when it has taken some.
CATCH_UP_BYTES = 256 * KIB
# What clients of the documents call the database of a server without tenants.
DATABASE_ALIAS = "default"
WHO = "say who you are first: send auth with a token"

Handle = Callable[["RealtimeSession", MessageId, Any], Awaitable[None] | None]


class MessageHandler:
    """One type of message: what its payload is, and what is done about it."""

    __slots__ = ("decoder", "handle")

    def __init__(self, takes: type[msgspec.Struct], handle: Handle) -> None:
        self.decoder = msgspec.json.Decoder(takes)
        self.handle = handle


class Auth(msgspec.Struct, frozen=True):
    """The payload of `auth`."""

    token: str = ""
    database: str = ""


class AuthAck(msgspec.Struct, frozen=True):
    """Who they are now: their database, and the name of this connection."""

    database: str
    member: str
    status: str = "ok"


_auth = msgspec.json.Decoder(Auth)


class RealtimeSession:
    """One client. A `Session`."""

    __slots__ = (
        "_at_change",
        "_at_end",
        "_at_pressure",
        "_hall",
        "_inbox",
        "_is_over",
        "_is_slowed",
        "_level",
        "_only_listens",
        "_peer",
        "_working",
        "address",
        "credential",
        "identify",
        "kept",
        "key",
        "member",
        "principal",
        "site",
    )

    def __init__(self, site: "Site", hall: Hall, request: Request, peer: Peer) -> None:
        self.site = site
        self._hall = hall
        self._peer = peer
        self.address = address_key(request.client)
        self.identify = request.identify
        self.member = secrets.token_hex(8)
        self.kept: dict[str, Any] = {}
        # Whose limit it counts for, and the credential it goes by; the hall's.
        self.key: Hashable | None = None
        self.credential = ""
        # There while messages wait: of a hundred thousand who only listen, nobody needs the room that a deque takes.
        self._inbox: deque[str] | None = None
        self._working: asyncio.Task[None] | None = None
        self._at_end: tuple[Callable[[], None], ...] = ()
        self._at_change: tuple[Callable[[], None], ...] = ()
        self._at_pressure: tuple[tuple[Callable[[], None], Callable[[], None]], ...] = ()
        self._level = Level(hall.rate.burst, 0.0)
        self._is_slowed = False
        self._is_over = False
        self._only_listens = False
        shown = request.headers.get("authorization", "").partition(" ")[2]
        is_known = request.identify is None or bool(shown)
        self.principal: Principal | None = request.principal if is_known else None
        hall.enter(self)
        if self.principal is None:
            peer.hold_back(UNKNOWN_MESSAGE_BYTES_MAX)
        else:
            self._know(self.principal, shown if request.identify is not None else "")

    @property
    def database(self) -> str:
        """The database that is theirs."""
        return self.known.database

    @property
    def known(self) -> Principal:
        """Who it is; raises while nobody knows."""
        if self.principal is None:
            raise Unauthenticated(WHO)
        return self.principal

    @property
    def is_over(self) -> bool:
        """Whether the client is gone."""
        return self._is_over

    @property
    def limits(self) -> RealtimeLimits:
        """The bounds of this door."""
        return self._hall.limits

    @property
    def hall(self) -> Hall:
        """Where it is, with all others."""
        return self._hall

    @property
    def owner(self) -> Hashable:
        """Who pays for what is held for it: a token or, without one, an address."""
        return self.key or self.address

    # ── what handlers ask ──

    def send(self, frame: Frame) -> bool:
        """Send without waiting; False when the client is gone, or is let go because it is too slow."""
        return self._peer.send(frame)

    async def taken(self, bytes_max: int = 0) -> None:
        """Wait until no more than this waits to be taken by the client, or it is gone: for whoever has much to send."""
        pause = TAKEN_PAUSE_SECONDS
        while not self._is_over and self._peer.waiting_bytes() > bytes_max:
            await asyncio.sleep(pause)
            pause = min(2 * pause, TAKEN_PAUSE_SECONDS_MAX)

    def fail(self, error: HeadwaterError, id: MessageId) -> None:
        """Tell the client what became of its message. Who only listens had but that one: the conversation ends, and
        what fails again and again at a place is not gone on with from there."""
        frame = trouble(error, id)
        if self._only_listens and not error.retryable:
            frame.id = NO_PLACE
        self._peer.send(frame)
        if self._only_listens:
            self._peer.close(CloseCode.TRY_AGAIN_LATER if error.retryable else CloseCode.POLICY_VIOLATED, error.code)

    def begin_anew(self, gap: Frame) -> None:
        """Tell the client of a gap that ended what it followed. Who only listens has no word to follow anew with: the
        conversation ends, and they come back without a place."""
        self._peer.send(gap)
        if self._only_listens:
            self._peer.close(CloseCode.TRY_AGAIN_LATER, gap.event)

    def refuse(self, error: HeadwaterError, code: CloseCode) -> None:
        """Tell the client why, and end the conversation."""
        self._peer.send(trouble(error, ""))
        self._peer.close(code, error.code)

    def at_end(self, call: Callable[[], None]) -> None:
        """Call this when the session is over; at once when it is already."""
        if self._is_over:
            call()
        else:
            self._at_end += (call,)

    def at_change(self, call: Callable[[], None]) -> None:
        """Call this when something else is known of who it is than before."""
        self._at_change += (call,)

    def know_anew(self, principal: Principal) -> None:
        """Who it is, looked at again."""
        if principal is not self.principal:
            self.principal = principal
            for call in self._at_change:
                call()

    def at_pressure(self, give_up: Callable[[], None], go_on: Callable[[], None]) -> None:
        """Call these when more waits for this client than the server has room for, and when there is room again."""
        self._at_pressure += ((give_up, go_on),)

    def waiting_bytes(self) -> int:
        """How much of what was sent still waits to be taken."""
        return self._peer.waiting_bytes()

    def is_pressed(self, level: Pressure = Pressure.SOFT) -> bool:
        """Whether so much waits for all clients together that something is done about it."""
        return self._hall.pressure >= level

    def give_up(self) -> None:
        """Too much waits for this client."""
        for give_up, _ in self._at_pressure:
            give_up()

    def cut(self) -> None:
        """It takes nothing, and what waits for it is in the way of others."""
        self._peer.cut()

    def go_on(self) -> None:
        """There is room again."""
        for _, go_on in self._at_pressure:
            go_on()

    def begin(self, envelope: Envelope) -> None:
        """Do as if the client had sent this: for those who can only listen. It is all that they ask for."""
        self._only_listens = True
        self._begin(envelope)

    # ── what the transport calls ──

    def received(self, data: str | bytes) -> None:
        """The client has sent a message."""
        if not isinstance(data, str):
            self._peer.close(CloseCode.NOT_ACCEPTED, "messages are JSON, sent as text")
            return
        if self._working is None and not self._is_slowed:
            self._take(data)
            return
        self._inbox = self._inbox or deque()
        self._inbox.append(data)
        if self._is_inbox_full():
            self._peer.pause()

    def closed(self, code: int) -> None:
        """It is over; called once."""
        self._is_over = True
        self._inbox = None
        # What is being worked on is finished: it finds nobody to tell, and `at_end` is called at once.
        self._hall.leave(self)
        for call in self._at_end:
            try:
                call()
            except Exception:
                log.exception("somebody who was to be told that a realtime session is over failed")

    # ── one message after the other ──

    def _take(self, text: str) -> None:
        """Begin with a message, when its time has come: of a client, or of all of somebody's, who speak too often, the
        next is taken up later, and no more is read until then. What was read already waits behind it: nothing is
        lost."""
        loop = asyncio.get_running_loop()
        level = refill(self._level, self._hall.rate, loop.time())
        self._level = Level(level.left - 1.0, level.at)
        together = self._hall.allowances.reserve(self.owner)
        wait = max(owed_seconds(self._level, self._hall.rate), together)
        if not wait:
            self._open(text)
            return
        self._is_slowed = True
        self._peer.pause()
        loop.call_later(wait, self._take_up, text)

    def _take_up(self, text: str) -> None:
        """The time of a message has come."""
        self._is_slowed = False
        if not self._is_over:
            self._open(text)
            self._work_on()

    def _is_inbox_full(self) -> bool:
        if self._inbox is None:
            return False
        return len(self._inbox) >= INBOX_MAX or sum(map(len, self._inbox)) >= INBOX_BYTES_MAX

    def _work_on(self) -> None:
        """Handle what waits, up to the next message that takes time, or whose time has not come; then read on."""
        while self._inbox and self._working is None and not self._is_slowed:
            self._take(self._inbox.popleft())
        self._inbox = self._inbox or None
        if not self._is_slowed and not self._is_inbox_full():
            self._peer.resume()

    def _open(self, text: str) -> None:
        try:
            envelope = decode_envelope(text)
        except InvalidInput as error:
            self.fail(error, "")
            return
        self._begin(envelope)

    def _begin(self, envelope: Envelope) -> None:
        """Handle a message; what takes time is waited for in a task."""
        try:
            pending = self._handle(envelope)
        except HeadwaterError as error:
            self.fail(error, envelope.id)
            return
        if pending is not None:
            self._working = asyncio.ensure_future(self._finish(envelope.id, pending))

    def _handle(self, envelope: Envelope) -> Awaitable[None] | None:
        if envelope.type == "auth":
            return self._authenticate(envelope.id, decode_payload(envelope, _auth))
        if self.principal is None:
            raise Unauthenticated(WHO)
        handler = self._hall.handlers.get(envelope.type)
        if handler is None:
            raise InvalidInput(f"there is no message of type {envelope.type!r:.80}")
        return handler.handle(self, envelope.id, decode_payload(envelope, handler.decoder))

    async def _finish(self, id: MessageId, pending: Awaitable[None]) -> None:
        try:
            await pending
        except HeadwaterError as error:
            self.fail(error, id)
        except Exception:
            log.exception("a realtime session failed")
            self._peer.close(CloseCode.INTERNAL_ERROR, "this server failed")
        self._working = None
        self._work_on()

    # ── who it is ──

    async def _authenticate(self, id: MessageId, auth: Auth) -> None:
        principal = self.principal
        if self.identify is not None:
            try:
                principal = await self.identify(auth.token)
            except RateExceeded as error:
                self.refuse(error, CloseCode.POLICY_VIOLATED)
                return
        if principal is None:
            raise Unauthenticated("nobody is known here")
        if auth.database not in ("", principal.database, _alias(principal)):
            raise NotAllowed(f"this token is not for the database {auth.database!r:.80}")
        if not self._know(principal, auth.token if self.identify is not None else ""):
            return
        # What it sends counts as a request with this token does.
        self._peer.let_in("" if self.identify is None else f"Bearer {auth.token}")
        self.know_anew(principal)
        self.send(answer("auth_ack", AuthAck(principal.database, self.member), id))

    def _know(self, principal: Principal, credential: str) -> bool:
        try:
            self._hall.know(self, principal, credential)
        except Overloaded as error:
            self.refuse(error, CloseCode.TRY_AGAIN_LATER)
            return False
        return True


def _alias(principal: Principal) -> str:
    return DATABASE_ALIAS if principal.database == DATABASE_DEFAULT else principal.database
