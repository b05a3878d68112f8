"""A connection that has become a WebSocket: what the edge hands a socket to once the handshake is answered.

    OPEN ──client says goodbye──► answered, closed
      │ ──a rule broken, too slow, the session or the server ends──► goodbye sent; the session hears of it; cut off when
      ▼                                                              the client answers, or after `close_seconds`
    lost: the session hears LOST

There may be a hundred thousand that only wait, so what one holds is counted: no task, no timer of its own while it is
open. `Heartbeats` looks at all of them in turn.
"""

import asyncio
import logging

from headwater.doors.edge.budget import Hold
from headwater.doors.edge.contract import SocketServer
from headwater.doors.edge.writing import encode_upgrade
from headwater.doors.sessions import CloseCode, Frame, MakeSession, Session, Slowness
from headwater.doors.websocket import (
    Arrived,
    Failure,
    FrameReader,
    Goodbye,
    Message,
    Opcode,
    Ping,
    encode,
    encode_close,
    encode_message,
)

log = logging.getLogger(__name__)

_PING = encode(Opcode.PING, b"")
NO_ROOM = Failure(CloseCode.TRY_AGAIN_LATER, "too many bytes are under way to this server; come back later")


class WebSocket(asyncio.Protocol):
    """One client's WebSocket. It is the `Peer` of its session."""

    __slots__ = (
        "_code",
        "_heard",
        "_hold",
        "_pinged",
        "_reader",
        "_server",
        "_session",
        "_slowness",
        "_timer",
        "_transport",
    )

    def __init__(self, server: SocketServer, transport: asyncio.Transport, owner: str) -> None:
        self._server = server
        self._transport = transport
        self._reader = FrameReader(server.limits.message_bytes_max)
        self._hold = Hold(server.budget, owner)
        self._session: Session | None = None
        # What we, or the client, closed with; None while it is open.
        self._code: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = True
        self._pinged = False
        self._slowness = Slowness(server.limits.outbox_bytes_max)

    def begin(self, key: str, make: MakeSession, unread: bytes) -> None:
        """Answer the handshake and take the socket over; `unread` came right behind it."""
        self._transport.write(encode_upgrade(key))
        self._transport.set_protocol(self)
        # Whoever had it before may have paused it.
        self._transport.resume_reading()
        try:
            self._session = make(self)
        except Exception:
            log.exception("a session could not begin")
            self.close(CloseCode.INTERNAL_ERROR, "this server failed")
        self._server.sessions.enter(self)
        if unread:
            self.data_received(unread)

    # ── what the session asks ──

    def send(self, frame: Frame) -> bool:
        """Send without waiting; False when the client is gone, or is let go because too much waits for it already."""
        if self._code is not None or self._transport.is_closing():
            return False
        message = encode_message(frame)
        waiting = self._transport.get_write_buffer_size()
        if self._slowness.is_too_much(waiting, len(message)):
            self.close(CloseCode.TRY_AGAIN_LATER, "too slow")
            return False
        self._transport.write(message)
        return True

    def waiting_bytes(self) -> int:
        """How much of what was sent still waits to be taken."""
        return self._transport.get_write_buffer_size()

    def close(self, code: CloseCode = CloseCode.NORMAL, reason: str = "") -> None:
        """Say goodbye. What was sent before still goes out; a second time changes nothing."""
        if self._code is None:
            self._say_goodbye(code, reason)

    def cut(self) -> None:
        """Let the client go at once: what waits for it is dropped, and it comes back later."""
        if self._code is None:
            self._code = CloseCode.TRY_AGAIN_LATER
            asyncio.get_running_loop().call_soon(self._tell_session)
        self._transport.abort()

    def pause(self) -> None:
        """Read no more from the client until `resume`. What was read already is still handed on."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def hold_back(self, message_bytes_max: int) -> None:
        """Take no larger messages from the client than this: nobody knows who it is."""
        self._reader.bytes_max = min(message_bytes_max, self._server.limits.message_bytes_max)

    def let_in(self, owner: str) -> None:
        """Take messages of any size that the server takes. What is held of them is this one's; '' for whose it was."""
        self._reader.bytes_max = self._server.limits.message_bytes_max
        if owner:
            self._hold.belong_to(owner)
            self._count()

    # ── what the event loop calls ──

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._read(data)
        self._count()

    def _count(self) -> None:
        """Count what is held of a message that has not come whole; who has no room for it is let go."""
        if not self._hold.fit(self._reader.held_bytes()):
            self._reader.give_up()
            self._hold.release()
            if self._code is None:
                self._take(NO_ROOM)

    def _read(self, data: bytes) -> None:
        for arrived in self._reader.feed(data):
            if self._code is not None:
                # Only the client's goodbye is still of interest.
                if isinstance(arrived, Goodbye):
                    self._transport.close()
                continue
            self._take(arrived)

    def eof_received(self) -> bool:
        """Half a WebSocket is none."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._hold.release()
        self._code = CloseCode.LOST if self._code is None else self._code
        self._server.gone(self)
        self._tell_session()

    def _tell_session(self) -> None:
        """It is over for the session as soon as one side has said goodbye, however long the other takes to go."""
        self._server.sessions.leave(self)
        session, self._session = self._session, None
        if session is None or self._code is None:
            return
        try:
            session.closed(self._code)
        except Exception:
            log.exception("a session failed when it was closed")

    # ── frames ──

    def _take(self, arrived: Arrived) -> None:
        if isinstance(arrived, Message):
            self._hand_on(arrived.data)
        elif isinstance(arrived, Ping):
            self._pong(arrived.data)
        elif isinstance(arrived, Failure):
            self._say_goodbye(arrived.code, arrived.reason)
            # Nothing that it says is read any more, its goodbye neither: it is told so, and hangs up.
            if self._transport.can_write_eof():
                self._transport.write_eof()
        else:
            self._say_goodbye(arrived.code, "")
            self._transport.close()

    def _hand_on(self, data: str | bytes) -> None:
        if self._session is None:
            return
        try:
            self._session.received(data)
        except Exception:
            log.exception("a session failed")
            self.close(CloseCode.INTERNAL_ERROR, "this server failed")

    def _pong(self, data: bytes) -> None:
        """Answer, unless the client does not take what it asks for."""
        if self._transport.get_write_buffer_size() <= self._server.limits.outbox_bytes_max:
            self._transport.write(encode(Opcode.PONG, data))
        else:
            self.close(CloseCode.TRY_AGAIN_LATER, "too slow")

    def _say_goodbye(self, code: int, reason: str) -> None:
        self._code = code
        loop = asyncio.get_running_loop()
        # Later: the session itself may have asked for this, in the middle of something.
        loop.call_soon(self._tell_session)
        if self._transport.is_closing():
            return
        # Somebody may have paused it; the client's goodbye must be heard.
        self._transport.resume_reading()
        self._transport.write(encode_close(code, reason))
        self._timer = loop.call_later(self._server.limits.close_seconds, self._transport.abort)

    # ── the server's ──

    def beat(self) -> None:
        """Time has passed: one that was silent is asked whether it is there, and cut off when it stays silent."""
        if self._code is not None:
            return
        # Who is not read, because the server has enough to do with what it said, cannot be heard.
        if self._heard or not self._transport.is_reading():
            self._heard = self._pinged = False
        elif self._pinged:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._pinged = True
            self._transport.write(_PING)

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()
