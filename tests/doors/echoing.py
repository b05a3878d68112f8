"""A session that says back what it hears, and a server of either transport that has it at `/echo`."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager

import uvicorn

from headwater.doors.asgi import AsgiApp
from headwater.doors.edge.limits import Limits
from headwater.doors.sessions import CloseCode, Frame, Peer
from headwater.doors.wire import Handler, Request, Response, problem_response
from tests.doors.live_edge import PATIENCE_SECONDS, LiveEdge

FLOOD_BYTES = 65_536


class Echo:
    """What one server's sessions did: which began, what each heard, with what each was closed."""

    def __init__(self) -> None:
        self.closed_with: list[int] = []
        self.refused_after: list[int] = []
        self.peers: list[Peer] = []
        self.changed = threading.Event()

    def tell(self, *frames: Frame, close: CloseCode, reason: str) -> None:
        """Let the newest session say something, and end."""

        def say() -> None:
            for frame in frames:
                self.peers[-1].send(frame)
            self.peers[-1].close(close, reason)

        self._loop.call_soon_threadsafe(say)

    async def handler(self, request: Request) -> Response:
        self._loop = asyncio.get_running_loop()
        if request.path == "/broken":
            raise RuntimeError("a secret of the server")
        if request.path == "/failing":
            return Response(session=self._fail)
        if request.path != "/echo":
            return problem_response(404, "not_found", "there is nothing here")
        return Response(session=lambda peer: EchoSession(self, peer))

    @staticmethod
    def _fail(peer: Peer) -> "EchoSession":
        raise RuntimeError("a secret of the server")

    def wait_for_closed(self, count: int = 1) -> list[int]:
        """The codes that sessions were closed with, once there are so many."""
        while len(self.closed_with) < count:
            assert self.changed.wait(PATIENCE_SECONDS), "no session was closed"
            self.changed.clear()
        return self.closed_with


class EchoSession:
    """Says back what it hears; some words make it do other things."""

    def __init__(self, echo: Echo, peer: Peer) -> None:
        self._echo = echo
        self._peer = peer
        echo.peers.append(peer)

    def received(self, data: str | bytes) -> None:
        if data == "close":
            self._peer.close(CloseCode.POLICY_VIOLATED, "as you wish")
            self._peer.close(CloseCode.NORMAL, "a second time changes nothing")
        elif data == "raise":
            raise RuntimeError("a secret of the server")
        elif data == "flood":
            self._flood()
        elif data == "rest":
            self._peer.pause()
            asyncio.get_running_loop().call_later(0.05, self._go_on)
        else:
            self._peer.send(Frame(data))

    def _go_on(self) -> None:
        self._peer.send(Frame("rested"))
        self._peer.resume()

    def _flood(self) -> None:
        count = 0
        frame = Frame("x" * FLOOD_BYTES)
        while count < 10_000 and self._peer.send(frame):
            count += 1
        self._echo.refused_after.append(count)

    def closed(self, code: int) -> None:
        self._echo.closed_with.append(int(code))
        self._echo.changed.set()


@contextmanager
def on_edge(handler: Handler, loop: str, limits: Limits | None = None) -> Iterator[int]:
    """The port of an edge."""
    with LiveEdge(handler, limits or Limits(), loop) as edge:
        yield edge.port


@contextmanager
def on_uvicorn(handler: Handler) -> Iterator[int]:
    """The port of an ASGI server."""

    @asynccontextmanager
    async def open_door() -> AsyncIterator[Handler]:
        yield handler

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        config = uvicorn.Config(AsgiApp(open_door), log_level="error", ws="websockets-sansio", lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.01)
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "the server did not stop"


CARRIERS: dict[str, Callable[[Handler], AbstractContextManager[int]]] = {
    "edge on asyncio": lambda handler: on_edge(handler, "asyncio"),
    "edge on uvloop": lambda handler: on_edge(handler, "uvloop"),
    "uvicorn": on_uvicorn,
}
