"""A bad way to an S3 server: some PUTs are applied and their answer is lost, others are refused, or land late.

lose      handed on, applied, then the connection is cut without an answer
liar      handed on, applied, then answered 412, as to a client whose library has sent it twice
conflict  409, not handed on
busy      503, not handed on
late      cut at once, handed on some time later
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HOST = "127.0.0.1"
LATE_SECONDS_MAX = 2.0
FATES = {"lose": 0.14, "liar": 0.03, "late": 0.03, "conflict": 0.05, "busy": 0.05}
_REFUSALS = {"conflict": "409 Conflict", "busy": "503 Slow Down", "liar": "412 Precondition Failed"}


class S3Proxy:
    """The way, on a port of its own."""

    def __init__(self, upstream: int, seed: int) -> None:
        self._upstream = upstream
        self._chance = random.Random(seed)
        self._late: set[asyncio.Task[None]] = set()
        self._answering: set[asyncio.Task[object] | None] = set()
        self.met: Counter[str] = Counter()
        self.port = 0

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        """Until it is told to stop."""
        server = await asyncio.start_server(self._answer, HOST, 0, limit=1 << 20)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        # Who has said nothing yet, or waits for an answer, is not waited for.
        answering = [task for task in self._answering if task is not None]
        for task in answering:
            task.cancel()
        if answering or self._late:
            await asyncio.wait([*answering, *self._late])

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._answering.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._carry(reader, writer)
        finally:
            await _close(writer)
            self._answering.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
        body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
        request = head[:-2] + b"connection: close\r\n\r\n" + body
        fate = self._choose() if head.startswith(b"PUT") else ""
        self.met[fate or "well"] += 1
        if fate == "late":
            self._late.add(asyncio.get_running_loop().create_task(self._hand_on_late(request)))
            return
        if fate not in ("conflict", "busy"):
            answer = await self._hand_on(request)
            if fate == "lose":
                return
        if fate:
            answer = f"HTTP/1.1 {_REFUSALS[fate]}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
        writer.write(answer)
        await writer.drain()

    def _choose(self) -> str:
        dice = self._chance.random()
        for name, part in FATES.items():
            dice -= part
            if dice < 0:
                return name
        return ""

    async def _hand_on(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(HOST, self._upstream)
        try:
            writer.write(request)
            await writer.drain()
            return await reader.read()
        finally:
            await _close(writer)

    async def _hand_on_late(self, request: bytes) -> None:
        await asyncio.sleep(self._chance.uniform(0.05, LATE_SECONDS_MAX))
        with suppress(ConnectionError):
            await self._hand_on(request)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@contextmanager
def bad_way(upstream: int, seed: int) -> Iterator[S3Proxy]:
    """A proxy in front of a server, in a thread of its own."""
    proxy, ready = S3Proxy(upstream, seed), threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(proxy.serve(ready, stop)), name="s3-proxy")
    thread.start()
    ready.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
