"""An edge that listens, in a thread of its own, and a client that speaks raw bytes to it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, Self

import uvloop

from headwater.doors.edge.connection import Connection
from headwater.doors.edge.limits import Limits
from headwater.doors.edge.server import Edge
from headwater.doors.wire import Handler
from tests.loop_clock import LoopClock, standing_still
from tests.waiting import expect_soon

PATIENCE_SECONDS = 60.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class HttpResponse(NamedTuple):
    """A response, taken apart."""

    status: int
    headers: dict[str, str]
    body: bytes


class LiveEdge:
    """An edge on a free port of this machine."""

    def __init__(self, handler: Handler, limits: Limits, loop: str, admit: Handler | None = None) -> None:
        self._handler = handler
        self._admit = admit
        self.edge: Edge | None = None
        self._limits = limits
        self._loop_factory = LOOPS[loop]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        assert not self.is_running(), "the edge did not stop"

    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop as a signal would make it, and wait for the end."""
        if self._thread.is_alive():
            self.begin_stop()
            self._thread.join(PATIENCE_SECONDS)

    def begin_stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)

    def call(self, function: Callable[[], object]) -> None:
        """Do something where the edge runs."""
        self._loop.call_soon_threadsafe(function)

    @contextmanager
    def connect(self) -> Iterator["Client"]:
        """A client's connection."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as connection:
            yield Client(connection)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        edge = self.edge = Edge(self._handler, self._limits, admit=self._admit)
        await edge.start("127.0.0.1", 0)
        self.port = edge.port
        self._ready.set()
        await self._stop.wait()
        await edge.stop()


class TimedEdge(LiveEdge):
    """An edge whose time is the test's: nobody is slow but by `advance`. On asyncio's loop, which alone can be told."""

    _clock: LoopClock

    def __init__(self, handler: Handler, limits: Limits) -> None:
        super().__init__(handler, limits, "asyncio")

    def advance(self, seconds: float) -> None:
        """Let time pass, and what was due by then happen."""
        asyncio.run_coroutine_threadsafe(self._clock.advance(seconds), self._loop).result(PATIENCE_SECONDS)

    def wait_until(self, holds: Callable[[Connection], bool]) -> None:
        """Wait until the server has come so far with its only connection."""
        expect_soon(lambda: any(holds(one) for one in self._connections()))

    def _connections(self) -> list[Connection]:
        everybody = [] if self.edge is None else list(self.edge._connections)
        return [one for one in everybody if isinstance(one, Connection)]

    async def _serve(self) -> None:
        with standing_still() as self._clock:
            await super()._serve()


class Client:
    """One end of a connection. Whatever takes longer than `PATIENCE_SECONDS` is a hang and fails the test."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._rest = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_all_it_takes(self, data: bytes) -> None:
        """Send as a client that does not listen: the server may have closed meanwhile."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def answer(self, *, to_head: bool = False) -> HttpResponse:
        """The next response."""
        head = self._read_until(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:-2])
        length = 0 if to_head else int(headers.get("content-length", "0"))
        while len(self._rest) < length:
            self._read_more()
        body, self._rest = self._rest[:length], self._rest[length:]
        return HttpResponse(int(lines[0].split()[1]), headers, body)

    def has_heard_nothing(self) -> bool:
        """Whether the server has neither answered nor closed until now."""
        self.socket.setblocking(False)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self._rest
        else:
            return False
        finally:
            self.socket.settimeout(PATIENCE_SECONDS)

    def is_closed(self) -> bool:
        """Whether the server has said everything; waits for it."""
        try:
            return not self._rest and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _read_until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            self._read_more()
        head, found, self._rest = self._rest.partition(mark)
        return head + found

    def _read_more(self) -> None:
        data = self.socket.recv(65_536)
        assert data, f"the connection ended; so far {self._rest!r}"
        self._rest += data


def request(path: str = "/", method: str = "GET", body: bytes = b"", /, **headers: str) -> bytes:
    """A request that is as it should be."""
    length = {"content-length": str(len(body))} if body else {}
    named = {"host": "127.0.0.1", **length, **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body
