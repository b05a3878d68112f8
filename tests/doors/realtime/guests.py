"""Clients of the realtime door: one in memory, one over a real WebSocket."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from headwater.doors.realtime.hall import Hall
from headwater.doors.realtime.limits import RealtimeLimits
from headwater.doors.realtime.session import MessageHandler, RealtimeSession
from headwater.doors.realtime.table import HANDLERS
from headwater.doors.sessions import CloseCode, Frame
from headwater.doors.site import Site
from headwater.doors.wire import Request
from headwater.errors import Unauthenticated
from headwater.model.principal import OWNER, Principal, Scope

PATIENCE_SECONDS = 30.0
MESSAGE_BYTES_MAX = 1_048_576


class MemoryPeer:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.closed_with: tuple[int, str] | None = None
        self.is_paused = False
        self.waiting = 0
        self.was_cut = False
        self.message_bytes_max = MESSAGE_BYTES_MAX

    def send(self, frame: Frame) -> bool:
        if self.closed_with is None:
            self.heard += [json.loads(one.data) for one in frame.parts or (frame,)]
        return self.closed_with is None

    def waiting_bytes(self) -> int:
        return self.waiting

    def close(self, code: CloseCode = CloseCode.NORMAL, reason: str = "") -> None:
        self.closed_with = self.closed_with or (code, reason)

    def cut(self) -> None:
        self.was_cut, self.waiting = True, 0
        self.close(CloseCode.TRY_AGAIN_LATER)

    def is_open(self) -> bool:
        return self.closed_with is None

    def rests(self) -> bool:
        """Whether nothing is read from it."""
        return self.is_paused

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def hold_back(self, message_bytes_max: int) -> None:
        self.message_bytes_max = message_bytes_max

    def let_in(self, owner: str) -> None:
        self.message_bytes_max = MESSAGE_BYTES_MAX


class Desk:
    """Knows tokens, as the reception of a server does."""

    def __init__(self, *names: str) -> None:
        self.tokens = {f"hw_{name}": Principal(subject=name, scopes=frozenset(Scope)) for name in names}

    async def identify(self, credential: str) -> Principal:
        if credential not in self.tokens:
            raise Unauthenticated("the credential is not valid, or not any more")
        return self.tokens[credential]


def make_hall(handlers: Mapping[str, MessageHandler] = HANDLERS, **limits: Any) -> Hall:
    return Hall(RealtimeLimits(**limits), handlers)


def visit(hall: Hall, desk: Desk | None = None, **request: Any) -> tuple[RealtimeSession, MemoryPeer]:
    """A new session: of the owner where nobody is asked, else of somebody who has not said who they are."""
    peer = MemoryPeer()
    identify = None if desk is None else desk.identify
    asked = Request(method="GET", path="/realtime/ws", principal=OWNER, identify=identify, **request)
    return RealtimeSession(cast(Site, None), hall, asked, peer), peer


async def say(session: RealtimeSession, type: str, payload: object = None, id: str = "1") -> None:
    """Send a message, and let what it sets off happen."""
    session.received(json.dumps({"id": id, "type": type, "payload": payload}))
    await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Guest:
    """A client over a real WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._number = 0

    def say(self, kind: str, /, **payload: Any) -> str:
        """Send a message; its id."""
        self._number += 1
        self.connection.send(json.dumps({"id": str(self._number), "type": kind, "payload": payload}))
        return str(self._number)

    def hear(self) -> dict[str, Any]:
        """The next message; heartbeats are passed over."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            message: dict[str, Any] = json.loads(self.connection.recv(max(0.0, deadline - time.monotonic())))
            if message["type"] != "heartbeat":
                return message

    def ask(self, kind: str, /, **payload: Any) -> dict[str, Any]:
        """Send a message, and its answer."""
        id = self.say(kind, **payload)
        while (message := self.hear()).get("id") != id:
            continue
        return message

    def until(self, type: str) -> dict[str, Any]:
        """The payload of the next message of a type."""
        while (message := self.hear())["type"] != type:
            continue
        payload: dict[str, Any] = message["payload"]
        return payload

    def close_code(self) -> int:
        """What the server closes with, whatever comes before it."""
        try:
            while True:
                self.connection.recv(PATIENCE_SECONDS)
        except ConnectionClosed as closed:
            return int(closed.rcvd.code) if closed.rcvd else int(CloseCode.LOST)


@contextmanager
def joined(url: str, **options: Any) -> Iterator[Guest]:
    """A guest of the server at a URL."""
    address = url.replace("http://", "ws://", 1) + "/realtime/ws"
    # A client that does not read hears no pong either; whether the server is there is not its business here.
    patience = {"open_timeout": PATIENCE_SECONDS, "close_timeout": PATIENCE_SECONDS, "ping_interval": None}
    # One that leaves with sixteen messages unread would not hear the answer to its farewell, and wait in vain.
    taking = {"max_queue": None}
    with connect(address, **{**patience, **taking, **options}) as connection:
        yield Guest(connection)
