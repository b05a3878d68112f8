"""A session as server-sent events: frames go out one by one, and nothing comes in.

Whatever carries a response in chunks carries this.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable

import msgspec

from headwater.doors.sessions import CloseCode, Frame, MakeSession, OpenSessions, Slowness
from headwater.doors.wire import EVENT_STREAM, Response

log = logging.getLogger(__name__)

SILENCE_SECONDS = 15.0
# So long a client may take to take what was sent to it before the end.
GOODBYE_SECONDS = 30.0
_SIGN_OF_LIFE = b": still here\n\n"


def as_event_stream(
    response: Response, sessions: OpenSessions, outbox_bytes_max: int, let_go: Callable[[], None]
) -> Response:
    """The same answer with its session, if it has one, as a stream of events. `let_go` ends the connection at once,
    whatever is on its way to a client that does not take it."""
    if response.session is None:
        return response
    stream = EventStream(sessions, outbox_bytes_max, let_go)
    return msgspec.structs.replace(
        response, session=None, content_type=EVENT_STREAM, chunks=stream.chunks(response.session)
    )


def encode_event(frame: Frame) -> bytes:
    """A frame as one event; made once for all who get it."""
    encoded = frame.as_event
    if encoded is None and frame.parts:
        encoded = frame.as_event = b"".join(map(encode_event, frame.parts))
    elif encoded is None:
        if isinstance(frame.data, bytes):
            raise TypeError("server-sent events carry text; a frame of bytes needs a WebSocket")
        names = ("id", frame.id), ("event", frame.event or None)
        about = [f"{name}: {value}\n" for name, value in names if value is not None]
        lines = [f"data: {line}\n" for line in frame.data.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
        encoded = frame.as_event = "".join((*about, *lines, "\n")).encode()
    return encoded


class EventStream:
    """The peer of a session whose client only listens."""

    def __init__(self, sessions: OpenSessions, outbox_bytes_max: int, let_go: Callable[[], None]) -> None:
        self._sessions = sessions
        self._let_go = let_go
        self._slowness = Slowness(outbox_bytes_max)
        self._outbox: deque[bytes] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._code: int | None = None
        self._patience: asyncio.TimerHandle | None = None

    def send(self, frame: Frame) -> bool:
        """Send without waiting; False when the client is gone, or is let go because too much waits for it already."""
        if self._code is not None:
            return False
        event = encode_event(frame)
        if self._slowness.is_too_much(self._bytes, len(event)):
            self._outbox.clear()
            self.close(CloseCode.TRY_AGAIN_LATER, "too slow")
            return False
        self._outbox.append(event)
        self._bytes += len(event)
        self._news.set()
        return True

    def waiting_bytes(self) -> int:
        """How much of what was sent still waits to be taken."""
        return self._bytes

    def close(self, code: CloseCode = CloseCode.NORMAL, reason: str = "") -> None:
        """End the stream behind what was sent. An event `close` tells a client that cares why."""
        if self._code is None:
            self._code = code
            told = {"type": "close", "payload": {"code": int(code), "reason": reason}}
            self._outbox.append(b"event: close\ndata: %s\n\n" % msgspec.json.encode(told))
            self._news.set()
            self._patience = asyncio.get_running_loop().call_later(GOODBYE_SECONDS, self._let_go)

    def cut(self) -> None:
        """Let the client go at once, also if what is on its way to it is never taken."""
        self._outbox.clear()
        self.close(CloseCode.TRY_AGAIN_LATER, "too slow")
        self._let_go()

    def pause(self) -> None:
        """Nothing is read here."""

    def resume(self) -> None:
        """Nothing is read here."""

    def hold_back(self, message_bytes_max: int) -> None:
        """Nothing is read here."""

    def let_in(self, owner: str) -> None:
        """Nothing is read here."""

    async def chunks(self, make: MakeSession) -> AsyncGenerator[bytes, None]:
        """What goes out, for as long as somebody listens."""
        session = make(self)
        self._sessions.enter(self)
        try:
            # Whoever opened it knows now that it is open.
            yield b": open\n\n"
            while self._outbox or self._code is None:
                if self._outbox:
                    chunk = b"".join(self._outbox)
                    self._outbox.clear()
                    self._bytes = len(chunk)
                    yield chunk
                    # Only now it is taken: until then it waits, as what comes behind it does.
                    self._bytes -= len(chunk)
                    del chunk
                    continue
                self._news.clear()
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        await self._news.wait()
                except TimeoutError:
                    yield _SIGN_OF_LIFE
        finally:
            self._sessions.leave(self)
            if self._patience is not None:
                self._patience.cancel()
            self._code = CloseCode.LOST if self._code is None else self._code
            try:
                session.closed(self._code)
            except Exception:
                log.exception("a session failed when it was closed")
