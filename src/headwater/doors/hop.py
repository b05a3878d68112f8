"""One request handed on to another server, and its answer as it comes: the hop between two brokers.

A connection serves one request: beside the PUT that an answer waits for, opening it costs nothing, and whoever is cut
off is cut off alone. What is one connection's own business (its length, how it is framed, whether it goes on) is not
handed on. A WebSocket goes on as one: frames are read on this side and written again on the other.
"""

import asyncio
import secrets
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from http import HTTPStatus
from typing import cast
from urllib.parse import urlsplit

import httptools

from headwater.doors.sessions import CloseCode, Frame, Peer, Session
from headwater.doors.websocket import (
    VERSION,
    Arrived,
    Failure,
    FrameReader,
    Goodbye,
    Message,
    Opcode,
    Ping,
    asks_for_websocket,
    encode_close,
    encode_masked,
)
from headwater.doors.wire import EVENT_STREAM, BrokenOff, Request, Response

CONNECT_SECONDS = 5.0
READ_BYTES = 65_536
HEAD_BYTES_MAX = 65_536
WAITING_BYTES_MAX = 4 * 1_048_576
PORTS = {"http": 6632, "https": 443}

_OWN = frozenset(
    {
        "connection",
        "content-length",
        "date",
        "expect",
        "keep-alive",
        "proxy-connection",
        "sec-websocket-accept",
        "sec-websocket-extensions",
        "sec-websocket-key",
        "sec-websocket-version",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Those that our own edge says with every answer.
_SAID_AGAIN = _OWN | {"content-type", "cache-control", "x-content-type-options"}


class HopFailed(BrokenOff):
    """The other server could not be reached, or went away before it had answered."""


class _Head:
    """What the parser finds: the head of an answer, and pieces of its body."""

    def __init__(self) -> None:
        self.headers: list[tuple[str, str]] = []
        self.pieces: list[bytes] = []
        self.has_head = False
        self.is_complete = False

    def on_header(self, name: bytes, value: bytes | None) -> None:
        self.headers.append((name.decode("latin-1").lower(), (value or b"").decode("latin-1").strip()))

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.is_complete = True


class Hop:
    """One request on its way to the server at `address`, a URL."""

    def __init__(self, address: str, request: Request, extra: Mapping[str, str]) -> None:
        self._address = urlsplit(address)
        self._request = request
        self._extra = extra
        self._is_websocket = asks_for_websocket(request)
        self._found = _Head()
        self._parser = httptools.HttpResponseParser(self._found)
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader
        self._behind = b""
        self.on_cut: Callable[[], None] = lambda: None

    async def go(self) -> Response:
        """The answer. A short one is here whole; a stream is read as it is taken."""
        try:
            await self._connect()
            await self._read_head()
        except (OSError, TimeoutError, httptools.HttpParserError) as error:
            self.cut()
            raise HopFailed(str(error) or type(error).__name__) from error
        except BaseException:
            self.cut()
            raise
        status = self._parser.get_status_code()
        if status == HTTPStatus.SWITCHING_PROTOCOLS:
            return Response(session=self._converse)
        headers = dict(self._found.headers)
        kept = tuple((name, value) for name, value in self._found.headers if name not in _SAID_AGAIN)
        response = Response(status=status, content_type=headers.get("content-type", "application/json"), headers=kept)
        if self._request.method == "HEAD" or "content-length" in headers or status == HTTPStatus.NO_CONTENT:
            return await self._whole(response)
        return _with_chunks(response, self._chunks())

    def cut(self) -> None:
        """Wait for nothing more."""
        if self._writer is not None:
            self._writer.transport.abort()
        self.on_cut()

    # ── there ──

    async def _connect(self) -> None:
        parts = self._address
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        async with asyncio.timeout(CONNECT_SECONDS):
            self._reader, self._writer = await asyncio.open_connection(
                parts.hostname, parts.port or PORTS[parts.scheme], ssl=tls
            )
        self._writer.write(self._encode())

    def _encode(self) -> bytes:
        request = self._request
        target = f"{self._address.path.rstrip('/')}{request.path}{'?' if request.query else ''}{request.query}"
        headers = {name: value for name, value in request.headers.items() if name not in _OWN}
        headers.update(self._extra)
        if self._is_websocket:
            key = b64encode(secrets.token_bytes(16)).decode()
            headers.update({"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": VERSION})
            headers["sec-websocket-key"] = key
        else:
            headers["connection"] = "close"
            if request.body or request.method in ("POST", "PUT", "PATCH"):
                headers["content-length"] = str(len(request.body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{request.method} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + request.body

    # ── and back ──

    async def _read_head(self) -> None:
        size = 0
        while not self._found.has_head:
            data = await self._reader.read(READ_BYTES)
            if not data:
                raise ConnectionResetError("it hung up before it had answered")
            size += len(data)
            if size > HEAD_BYTES_MAX and not self._found.has_head:
                raise ConnectionResetError("the head of its answer has no end")
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._found.has_head = True
            self._behind = data[upgrade.args[0] :]

    async def _whole(self, response: Response) -> Response:
        pieces = [piece async for piece in self._chunks()] if self._request.method != "HEAD" else []
        self.cut()
        return Response(
            status=response.status, content_type=response.content_type, headers=response.headers, body=b"".join(pieces)
        )

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        """The body, for as long as it comes. One that is broken off there is broken off here; only a stream of events
        has no end that could be missed."""
        found = self._found
        try:
            while True:
                while found.pieces:
                    yield found.pieces.pop(0)
                if found.is_complete:
                    return
                data = await self._reader.read(READ_BYTES)
                if not data:
                    if dict(found.headers).get("content-type") != EVENT_STREAM:
                        raise HopFailed("it hung up within its answer")
                    return
                self._feed(data)
        except (OSError, httptools.HttpParserError) as error:
            raise HopFailed(str(error)) from error
        finally:
            self.cut()

    def _converse(self, peer: Peer) -> Session:
        assert self._writer is not None
        return RelayedSession(peer, self._reader, self._writer, self._behind, self.on_cut)


def _with_chunks(response: Response, chunks: AsyncGenerator[bytes, None]) -> Response:
    return Response(status=response.status, content_type=response.content_type, headers=response.headers, chunks=chunks)


class RelayedSession:
    """A WebSocket whose other end is at another server: what the client says goes there, what comes from there goes
    to the client."""

    def __init__(
        self,
        peer: Peer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        behind: bytes,
        on_end: Callable[[], None],
    ) -> None:
        self._peer = peer
        self._on_end = on_end
        self._reader = reader
        self._transport = cast(asyncio.Transport, writer.transport)
        self._frames = FrameReader(WAITING_BYTES_MAX, masked=False)
        self._listening = asyncio.get_running_loop().create_task(self._listen(behind), name="headwater-relayed-socket")

    def received(self, data: str | bytes) -> None:
        """The client has said something."""
        if self._transport.get_write_buffer_size() > WAITING_BYTES_MAX:
            self._peer.close(CloseCode.TRY_AGAIN_LATER, "too fast")
            return
        is_text = isinstance(data, str)
        encoded = data.encode() if isinstance(data, str) else data
        self._write(encode_masked(Opcode.TEXT if is_text else Opcode.BINARY, encoded))

    def closed(self, code: int) -> None:
        """The client has gone."""
        if code not in (CloseCode.LOST, CloseCode.NO_CODE):
            self._write(encode_masked(Opcode.CLOSE, encode_close(code)[2:]))
        self._listening.cancel()
        self._transport.close()
        self._on_end()

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    async def _listen(self, data: bytes) -> None:
        try:
            while True:
                for arrived in self._frames.feed(data):
                    self._take(arrived)
                data = await self._reader.read(READ_BYTES)
                if not data:
                    break
        except OSError:
            pass
        # Whoever comes back finds the broker that holds the store by then.
        self._peer.close(CloseCode.GOING_AWAY, "the broker behind this one went away; come back")
        self._transport.abort()

    def _take(self, arrived: Arrived) -> None:
        if isinstance(arrived, Message):
            self._peer.send(Frame(arrived.data))
        elif isinstance(arrived, Ping):
            self._write(encode_masked(Opcode.PONG, arrived.data))
        elif isinstance(arrived, Goodbye | Failure):
            self._peer.close(cast(CloseCode, arrived.code))
