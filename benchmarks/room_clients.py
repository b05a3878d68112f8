"""A lean WebSocket client for loads: many in one process, so that what is measured is the server.

It is no more of a client than loads need: frames of a server are whole and not masked; only texts count.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

PATH = "/realtime/ws"
MASK = b"\0\0\0\0"
HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_TEXT, _CLOSE, _PING = 1, 8, 9
Told = Callable[[bytes], None]


def frame(opcode: int, data: bytes) -> bytes:
    """A client's frame, masked with nothing."""
    size = len(data)
    if size <= 125:
        return bytes((0x80 | opcode, 0x80 | size)) + MASK + data
    return bytes((0x80 | opcode, 0x80 | 126)) + size.to_bytes(2) + MASK + data


class LeanClient(asyncio.Protocol):
    """One connection. `told` is called with each text; `count` is how many there were."""

    __slots__ = ("_host", "_path", "_port", "_read", "_upgraded", "closed", "count", "opened", "told", "transport")

    def __init__(self, host: str, port: int, told: Told | None = None, path: str = PATH) -> None:
        self._host, self._port, self._path = host, port, path
        self._read = b""
        self._upgraded = False
        self.told = told
        self.count = 0
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[int] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(HANDSHAKE.format(path=self._path, host=self._host, port=self._port).encode())

    def data_received(self, data: bytes) -> None:
        data = self._read + data if self._read else data
        if not self._upgraded:
            head, found, data = data.partition(b"\r\n\r\n")
            if not found:
                self._read = head
                return
            if b" 101 " not in head[:16]:
                self._end(0)
                self.transport.abort()
                return
            self._upgraded = True
            if not self.opened.done():
                self.opened.set_result(None)
        self._read = self._take(data)

    def _take(self, data: bytes) -> bytes:
        """Frames that are whole; what is left of the last one."""
        start, end = 0, len(data)
        while end - start >= 2:
            opcode, size, at = data[start] & 0x0F, data[start + 1], start + 2
            if size >= 126:
                width = 2 if size == 126 else 8
                if end < at + width:
                    break
                size = int.from_bytes(data[at : at + width])
                at += width
            if end < at + size:
                break
            self._frame(opcode, data[at : at + size] if self.told is not None or opcode != _TEXT else b"")
            start = at + size
        return data[start:]

    def _frame(self, opcode: int, data: bytes) -> None:
        if opcode == _TEXT:
            self.count += 1
            if self.told is not None:
                self.told(data)
        elif opcode == _PING:
            self.transport.write(frame(10, data))
        elif opcode == _CLOSE:
            self._end(int.from_bytes(data[:2]))
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(1006)

    def _end(self, code: int) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("the server took no WebSocket"))
            self.opened.exception()
        if not self.closed.done():
            self.closed.set_result(code)

    def say(self, type: str, payload: dict[str, Any], id: str = "1") -> None:
        """Send a message."""
        self.transport.write(frame(_TEXT, json.dumps({"id": id, "type": type, "payload": payload}).encode()))

    def say_raw(self, text: str) -> None:
        """Send a text as it is."""
        self.transport.write(frame(_TEXT, text.encode()))

    def cut(self) -> None:
        """Hang up without a word."""
        self.transport.abort()


async def connect(host: str, port: int, told: Told | None = None, path: str = PATH) -> LeanClient:
    """One connection that was taken; raises an OSError when it was not."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: LeanClient(host, port, told, path), host, port)
    await client.opened
    return client
