"""What connections and WebSockets need of the server they belong to."""

from typing import TYPE_CHECKING, Protocol

from headwater.doors.edge.budget import Budget
from headwater.doors.edge.limits import Limits
from headwater.doors.sessions import OpenSessions
from headwater.doors.wire import Handler, Request, Response

if TYPE_CHECKING:
    from headwater.doors.edge.connection import Connection
    from headwater.doors.edge.websocket import WebSocket


class SocketServer(Protocol):
    """What a WebSocket needs of the server it belongs to."""

    limits: Limits
    sessions: OpenSessions
    budget: Budget

    def gone(self, socket: "WebSocket") -> None:
        """Count it no more."""
        ...


class ConnectionServer(SocketServer, Protocol):
    """What a connection needs of the server it belongs to."""

    handler: Handler
    admit: Handler | None
    answers: Budget
    stopping: bool

    def enter(self, connection: "Connection") -> bool:
        """Count the connection; False when there are too many."""
        ...

    def leave(self, connection: "Connection") -> None:
        """Count it no more."""
        ...

    def hand_over(self, connection: "Connection", socket: "WebSocket") -> None:
        """The connection goes on as a WebSocket."""
        ...

    def failed(self, request: Request) -> Response:
        """What to say when the handler raised what it is raising now."""
        ...
