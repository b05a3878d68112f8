"""Listening: opens the port, counts connections, guards the handler, and stops without cutting anybody off."""

import asyncio
import logging
import socket
import ssl

from headwater.doors.edge.budget import Budget
from headwater.doors.edge.connection import Connection
from headwater.doors.edge.heartbeats import Heartbeats
from headwater.doors.edge.limits import Limits
from headwater.doors.edge.websocket import WebSocket
from headwater.doors.sessions import OpenSessions
from headwater.doors.wire import Handler, Request, Response, problem_response

log = logging.getLogger(__name__)

# Of a crowd that comes at once, so many wait to be taken; the system bounds it (`net.core.somaxconn`). Whoever finds no
# place there tries again after a second, then after two, four and so on.
BACKLOG = 4_096


class Edge:
    """One listening port and its connections.

    >>> edge = Edge(handler)
    >>> await edge.start("127.0.0.1", 6632)
    >>> await edge.stop()
    """

    def __init__(self, handler: Handler, limits: Limits | None = None, *, admit: Handler | None = None) -> None:
        """`admit` is asked with the head of a request whose body is still to come, whether it is wanted."""
        self.handler = handler
        self.admit = admit
        self._connections: set[Connection | WebSocket] = set()
        self.sessions = OpenSessions()
        self._server: asyncio.Server | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self.limits = limits or Limits()
        self.budget = Budget(self.limits.bodies_bytes_max, self.limits.body_bytes_max)
        self.answers = Budget(self.limits.bodies_bytes_max, self.limits.body_bytes_max)
        self._heartbeats = Heartbeats(self.limits.ping_seconds)
        self.stopping = False
        self.port = 0

    async def start(self, host: str, port: int, *, shared: bool = False, tls: ssl.SSLContext | None = None) -> None:
        """Listen at one address; port 0 takes a free one. Raises OSError when the port cannot be had.

        A `shared` port is one that other processes listen at too: the system deals connections out.
        """
        listener = _listen(host, port, shared=shared)
        self.port = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        seconds = self.limits.head_seconds if tls is not None else None
        self._server = await loop.create_server(
            lambda: Connection(self), sock=listener, backlog=BACKLOG, ssl=tls, ssl_handshake_timeout=seconds
        )

    async def stop(self) -> None:
        """Take no more, finish what is under way, then cut what is left."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
        self.sessions.close()
        for connection in list(self._connections):
            if isinstance(connection, Connection):
                connection.stop()
        try:
            async with asyncio.timeout(self.limits.stop_seconds):
                await self._empty.wait()
        except TimeoutError:
            self.abort()
            await self._empty.wait()

    def abort(self) -> None:
        """Cut all connections."""
        for connection in list(self._connections):
            connection.abort()

    def count(self) -> int:
        """How many connections there are."""
        return len(self._connections)

    def availability(self) -> dict[str, float]:
        """What is free of what this server has, from 0 to 1."""
        return {
            "connections": 1 - len(self._connections) / self.limits.connections_max,
            "bodies": self.budget.free(),
            "answers": max(0.0, self.answers.free()),
        }

    # ── what connections ask ──

    def enter(self, connection: Connection) -> bool:
        """Count a connection; False when there are too many."""
        self._connections.add(connection)
        self._empty.clear()
        return len(self._connections) <= self.limits.connections_max

    def leave(self, connection: Connection) -> None:
        """Count it no more."""
        self._leave(connection)

    def _leave(self, connection: Connection | WebSocket) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def hand_over(self, connection: Connection, socket: WebSocket) -> None:
        """A connection goes on as a WebSocket: it stays counted."""
        self._connections.add(socket)
        self._connections.discard(connection)
        self._heartbeats.add(socket)

    def gone(self, socket: WebSocket) -> None:
        """Count a WebSocket no more."""
        self._heartbeats.remove(socket)
        self._leave(socket)

    def failed(self, request: Request) -> Response:
        """What the handler raises is told here and nowhere else: a client gets a number to ask about."""
        log.exception("request %s failed: %s %s", request.id, request.method, request.path)
        return problem_response(500, "internal", "this server failed to answer", request_id=request.id)


def _listen(host: str, port: int, *, shared: bool) -> socket.socket:
    """A socket bound to exactly one address, so that a free port is one port."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
