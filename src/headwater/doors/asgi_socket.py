"""A session over a WebSocket that an ASGI server speaks: it knows frames and pings, we know messages."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from headwater.doors.edge.budget import Hold
from headwater.doors.edge.limits import Limits
from headwater.doors.edge.websocket import NO_ROOM
from headwater.doors.sessions import CloseCode, Frame, MakeSession, OpenSessions, Session, Slowness
from headwater.doors.wire import Response

log = logging.getLogger(__name__)

_limits = Limits()

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]

_DENIAL = "websocket.http.response"


class AsgiSocket:
    """One client's WebSocket. It is the `Peer` of its session."""

    def __init__(self, sessions: OpenSessions, hold: Hold, receive: Receive, send: Send) -> None:
        self._sessions = sessions
        self._hold = hold
        self._message_bytes_max = _limits.message_bytes_max
        self._receive = receive
        self._send = send
        self._outbox: deque[Frame] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()
        # What we, or the client, closed with; None while it is open. The client's needs no answer.
        self._code: int | None = None
        self._reason = ""
        self._client_closed = False
        self._slowness = Slowness(_limits.outbox_bytes_max)
        # Until when what is sent is waited for: from a goodbye on not for ever.
        self._patience: asyncio.Timeout | None = None

    async def converse(self, make: MakeSession) -> None:
        """From the answer to the handshake to the end."""
        await self._send({"type": "websocket.accept"})
        session = self._make(make)
        self._sessions.enter(self)
        listening = asyncio.ensure_future(self._listen(session))
        try:
            await self._pump_patiently()
        finally:
            listening.cancel()
            self._sessions.leave(self)
            with suppress(asyncio.CancelledError):
                await listening
            self._code = CloseCode.LOST if self._code is None else self._code
            if session is not None:
                try:
                    session.closed(self._code)
                except Exception:
                    log.exception("a session failed when it was closed")

    # ── what the session asks ──

    def send(self, frame: Frame) -> bool:
        """Send without waiting; False when the client is gone, or is let go because too much waits for it already."""
        if frame.parts:
            return all(self.send(part) for part in frame.parts)
        if self._code is not None:
            return False
        size = len(frame.data)
        if self._slowness.is_too_much(self._bytes, size):
            self.close(CloseCode.TRY_AGAIN_LATER, "too slow")
            return False
        self._outbox.append(frame)
        self._bytes += size
        self._news.set()
        return True

    def waiting_bytes(self) -> int:
        """How much of what was sent still waits to be taken."""
        return self._bytes

    def close(self, code: CloseCode = CloseCode.NORMAL, reason: str = "") -> None:
        """Say goodbye. What was sent before still goes out; a second time changes nothing."""
        if self._code is None:
            self._code = code
            self._reason = reason
            self._news.set()
            self._wait_until(asyncio.get_running_loop().time() + _limits.send_seconds)

    def cut(self) -> None:
        """Let the client go at once: nothing more of what was sent is waited for."""
        self._outbox.clear()
        self._bytes = 0
        self.close(CloseCode.TRY_AGAIN_LATER, "too slow")
        self._wait_until(asyncio.get_running_loop().time())

    def pause(self) -> None:
        """Read no more from the client until `resume`. What was read already is still handed on."""
        self._reads.clear()

    def resume(self) -> None:
        """Read on."""
        self._reads.set()

    def hold_back(self, message_bytes_max: int) -> None:
        """Take no larger messages from the client than this: nobody knows who it is."""
        self._message_bytes_max = min(message_bytes_max, _limits.message_bytes_max)

    def let_in(self, owner: str) -> None:
        """Take messages of any size that the server takes. What is held of them is this one's; '' for whose it was."""
        self._message_bytes_max = _limits.message_bytes_max
        if owner:
            self._hold.belong_to(owner)

    # ── both ways ──

    def _make(self, make: MakeSession) -> Session | None:
        try:
            return make(self)
        except Exception:
            log.exception("a session could not begin")
            self.close(CloseCode.INTERNAL_ERROR, "this server failed")
            return None

    def _wait_until(self, time: float) -> None:
        if self._patience is not None:
            self._patience.reschedule(time)

    async def _pump_patiently(self) -> None:
        """The same, for no longer than a client may take nothing once it was said goodbye to."""
        said = asyncio.get_running_loop().time() + _limits.send_seconds
        try:
            async with asyncio.timeout_at(None if self._code is None else said) as self._patience:
                try:
                    await self._pump()
                finally:
                    self._patience = None
        except TimeoutError:
            log.info("a realtime client has not taken what was sent to it, and is let go")

    async def _pump(self) -> None:
        """Send what there is, until somebody closes."""
        try:
            while self._outbox or self._code is None:
                if not self._outbox:
                    self._news.clear()
                    await self._news.wait()
                    continue
                frame = self._outbox.popleft()
                self._bytes -= len(frame.data)
                kind = "text" if isinstance(frame.data, str) else "bytes"
                await self._send({"type": "websocket.send", kind: frame.data})
            if not self._client_closed:
                await self._send({"type": "websocket.close", "code": self._code, "reason": self._reason[:100]})
        except OSError:
            # How a server says that the client is gone.
            self._code = CloseCode.LOST if self._code is None else self._code

    async def _listen(self, session: Session | None) -> None:
        while True:
            await self._reads.wait()
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                self._leave(event.get("code", CloseCode.NO_CODE))
                return
            if self._code is None and session is not None and event["type"] == "websocket.receive":
                self._hand_on(session, event)

    def _leave(self, code: int) -> None:
        self._client_closed = True
        self._outbox.clear()
        self._code = code if self._code is None else self._code
        self._news.set()

    def _hand_on(self, session: Session, event: Event) -> None:
        text = event.get("text")
        data: str | bytes = event.get("bytes", b"") if text is None else text
        size = len(data) if text is None else len(text.encode())
        if size > self._message_bytes_max:
            self.close(CloseCode.TOO_BIG, f"a message may have {self._message_bytes_max:,} bytes")
            return
        # What has come of a message is known to the host alone until all of it is there.
        if not self._hold.fit(size):
            self.close(*NO_ROOM)
            return
        try:
            session.received(data)
        except Exception:
            log.exception("a session failed")
            self.close(CloseCode.INTERNAL_ERROR, "this server failed")
        finally:
            self._hold.release()


async def refuse_websocket(response: Response, scope: Event, send: Send) -> None:
    """Say why there is no session, as far as the server lets us; else it says 403 for us."""
    if _DENIAL not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": CloseCode.POLICY_VIOLATED})
        return
    headers = [("content-type", response.content_type), ("cache-control", "no-store"), *response.headers]
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": f"{_DENIAL}.start", "status": response.status, "headers": encoded})
    await send({"type": f"{_DENIAL}.body", "body": response.body})
