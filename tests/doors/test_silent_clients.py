"""Clients that take nothing of what was sent to them before the end: nobody waits for ever, whoever carries the
conversation."""

import asyncio
from typing import Any

import pytest

from headwater.doors import asgi_socket, event_stream
from headwater.doors.asgi_socket import AsgiSocket
from headwater.doors.edge.budget import Budget, Hold
from headwater.doors.edge.limits import Limits
from headwater.doors.event_stream import EventStream
from headwater.doors.sessions import CloseCode, Frame, OpenSessions
from tests.waiting import WAIT_SECONDS

MOMENT = 0.01
FOR_EVER = 86_400.0


class Ended:
    """A session that notes its end."""

    def __init__(self) -> None:
        self.code: int | None = None

    def received(self, data: str | bytes) -> None: ...

    def closed(self, code: int) -> None:
        self.code = code


@pytest.mark.parametrize(
    ("how", "seconds"), [("said goodbye to", MOMENT), ("too slow", MOMENT), ("cut", FOR_EVER)], ids=lambda value: value
)
async def test_a_session_of_a_host_ends_though_its_client_takes_nothing(
    monkeypatch: pytest.MonkeyPatch, how: str, seconds: float
) -> None:
    monkeypatch.setattr(asgi_socket, "_limits", Limits(send_seconds=seconds, outbox_bytes_max=100))
    stuck, never = asyncio.Event(), asyncio.Event()

    async def send(event: Any) -> None:
        if event["type"] == "websocket.send":
            stuck.set()
            await never.wait()

    async def receive() -> Any:
        await never.wait()

    session = Ended()
    socket = AsgiSocket(OpenSessions(), Hold(Budget(1_000, 1_000), ""), receive, send)
    conversing = asyncio.ensure_future(socket.converse(lambda peer: session))
    await asyncio.sleep(0)
    assert socket.send(Frame("x" * 50))
    await asyncio.wait_for(stuck.wait(), WAIT_SECONDS)
    assert socket.send(Frame("x" * 50))
    if how == "cut":
        socket.cut()
    elif how == "too slow":
        assert not socket.send(Frame("x" * 1_000))
    else:
        socket.close(CloseCode.GOING_AWAY, "this server stops")
    await asyncio.wait_for(conversing, WAIT_SECONDS)
    assert session.code == (CloseCode.GOING_AWAY if how == "said goodbye to" else CloseCode.TRY_AGAIN_LATER)
    # Whoever still has it is told that it is over, and nothing else happens.
    assert not socket.send(Frame("x"))
    socket.cut()


async def test_a_stream_that_is_over_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "GOODBYE_SECONDS", MOMENT)
    let_go = asyncio.Event()
    stream = EventStream(OpenSessions(), 1_000, let_go.set)
    chunks = stream.chunks(lambda peer: Ended())
    await anext(chunks)
    stream.send(Frame("x" * 100))
    await anext(chunks)
    stream.close(CloseCode.GOING_AWAY)
    assert await asyncio.wait_for(let_go.wait(), WAIT_SECONDS)
    await chunks.aclose()


async def test_a_stream_that_was_taken_leaves_its_connection_to_the_next_request() -> None:
    let_go = asyncio.Event()
    stream = EventStream(OpenSessions(), 1_000, let_go.set)
    chunks = stream.chunks(lambda peer: Ended())
    await anext(chunks)
    stream.close()
    assert stream._patience is not None
    assert [b"close" in chunk async for chunk in chunks] == [True]
    assert stream._patience.cancelled()
    assert not let_go.is_set()
