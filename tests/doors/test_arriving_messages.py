"""Messages of WebSockets that never come whole: what a server holds of them is bounded, over all its connections."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.doors.edge.budget import Budget, Hold
from headwater.doors.edge.limits import KIB, Limits
from headwater.doors.realtime.session import INBOX_BYTES_MAX, UNKNOWN_MESSAGE_BYTES_MAX, MessageHandler
from headwater.doors.sessions import CloseCode
from headwater.doors.websocket import FrameReader, Message, Opcode, encode, encode_close, encode_masked
from tests.doors.echoing import Echo
from tests.doors.live_door import GUARDED_SERVINGS, LiveDoor
from tests.doors.live_edge import LOOPS, PATIENCE_SECONDS, LiveEdge
from tests.doors.realtime.guests import joined, make_hall, settle, visit
from tests.doors.realtime.test_conformance import frame
from tests.doors.realtime.test_door import make_token
from tests.waiting import expect_soon

HANDSHAKE = (
    "GET /echo HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
LIMITS = Limits(message_bytes_max=201 * KIB, body_bytes_max=64 * KIB, bodies_bytes_max=1_024 * KIB)
# Nobody has more than half of what there is for all: two of these, and no third.
LARGE = b"x" * (200 * KIB)


@pytest.fixture(params=LOOPS)
def edge(request: pytest.FixtureRequest) -> Iterator[LiveEdge]:
    with LiveEdge(Echo().handler, LIMITS, request.param) as edge:
        yield edge


class Caller:
    """One end of a WebSocket that sends bytes as it likes."""

    def __init__(self, stack: ExitStack, edge: LiveEdge, owner: str = "") -> None:
        address = ("127.0.0.1", edge.port)
        self._socket = stack.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
        authorization = f"authorization: {owner}\r\n" if owner else ""
        self._socket.sendall(f"{HANDSHAKE}{authorization}\r\n".encode())
        self._heard = b""
        self.hear_until(b"\r\n\r\n")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear_until(self, mark: bytes) -> None:
        """Wait until this has come, and forget what came before it."""
        while mark not in self._heard:
            data = self._socket.recv(65_536)
            assert data, f"the connection ended; so far {self._heard[:200]!r}"
            self._heard += data
        self._heard = self._heard.partition(mark)[2]


def in_one_frame(data: bytes) -> tuple[bytes, bytes]:
    """A message, and what is missing of it."""
    whole = encode_masked(Opcode.BINARY, data)
    return whole[:-10], whole[-10:]


def in_several_frames(data: bytes) -> tuple[bytes, bytes]:
    first = encode_masked(Opcode.BINARY, data[:-10])
    return bytes((first[0] & 0x7F,)) + first[1:], encode_masked(Opcode.CONTINUATION, data[-10:])


@pytest.mark.parametrize("cut", [in_one_frame, in_several_frames])
def test_who_has_no_room_left_for_a_message_is_told_to_come_back(edge: LiveEdge, cut: Any) -> None:
    most, rest = cut(LARGE)
    assert edge.edge is not None
    budget = edge.edge.budget
    with ExitStack() as stack:
        first, second, third = (Caller(stack, edge) for _ in range(3))
        first.send(most)
        second.send(most)
        expect_soon(lambda: budget.bytes >= 2 * len(LARGE) - 20)
        third.send(most)
        third.hear_until(encode_close(CloseCode.TRY_AGAIN_LATER)[2:])
        # Others have a share of their own.
        other = Caller(stack, edge, "Bearer hw_ann")
        other.send(most + rest)
        other.hear_until(encode(Opcode.BINARY, LARGE))
        # Once a message is whole there is room for another.
        first.send(rest)
        first.hear_until(encode(Opcode.BINARY, LARGE))
        fourth = Caller(stack, edge)
        fourth.send(most + rest)
        fourth.hear_until(encode(Opcode.BINARY, LARGE))
        assert budget.bytes > 0
    expect_soon(lambda: budget.bytes == 0)


def test_what_is_held_in_small_pieces_is_counted_with_what_it_takes() -> None:
    reader = FrameReader(10_000)
    head, piece = encode_masked(Opcode.BINARY, b"x" * 1_000)[:8], b"xx"
    for data in (head, *([piece] * 100)):
        reader.feed(data)
    assert reader.held_bytes() > 100 * 40
    reader.give_up()
    assert reader.held_bytes() == 0
    assert reader.feed(piece) == []
    assert reader.held_bytes() == 0


def test_a_message_in_many_small_frames_takes_no_more_than_its_bytes() -> None:
    reader = FrameReader(10_000)
    for number in range(4_000):
        kind = Opcode.CONTINUATION if number else Opcode.BINARY
        reader.feed(frame(kind, b"x" * (number % 2), last=False))
    assert reader.held_bytes() == 2_000
    assert reader.feed(frame(Opcode.CONTINUATION, b"y")) == [Message(b"x" * 2_000 + b"y")]
    assert reader.held_bytes() == 0


def test_what_is_held_for_somebody_is_held_for_who_they_turn_out_to_be() -> None:
    budget = Budget(100, 50)
    hold, theirs = Hold(budget, "127.0.0.1"), Hold(budget, "127.0.0.1")
    assert hold.fit(50)
    assert not theirs.fit(1)
    hold.belong_to("Bearer hw_ann")
    assert hold.fit(50)
    assert theirs.fit(20)
    assert theirs.fit(5)
    assert budget.bytes == 55
    hold.release()
    theirs.release()
    assert budget.bytes == 0


@pytest.fixture(params=GUARDED_SERVINGS)
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveDoor]:
    door = LiveDoor(tmp_path / "headwater.db", GUARDED_SERVINGS[request.param])
    door.start()
    yield door
    door.stop()


def test_who_has_not_said_who_they_are_sends_no_more_than_a_token_takes(served: LiveDoor) -> None:
    _, token = make_token(served, scopes=["publish"])
    large = "x" * 2 * UNKNOWN_MESSAGE_BYTES_MAX
    with joined(served.url) as ann:
        assert ann.ask("auth", token="x" * (UNKNOWN_MESSAGE_BYTES_MAX - 200))["payload"]["code"] == "unauthorized"
        assert ann.ask("auth", token=token)["type"] == "auth_ack"
        assert ann.ask("send", room="a", type="test", data=large)["type"] == "send_ack"
    with joined(served.url) as bob:
        bob.say("auth", token=large)
        assert bob.close_code() == CloseCode.TOO_BIG


class Anything(msgspec.Struct):
    """A payload of any length."""

    data: str = ""


async def test_large_messages_that_wait_for_an_earlier_one_are_not_read_without_end() -> None:
    done = asyncio.Event()

    async def wait(session: Any, id: Any, payload: Any) -> None:
        await done.wait()

    session, peer = visit(make_hall({"wait": MessageHandler(Anything, wait)}))
    message = json.dumps({"type": "wait", "payload": {"data": "x" * (INBOX_BYTES_MAX // 4)}})
    for _ in range(4):
        session.received(message)
        assert not peer.rests()
    session.received(message)
    assert peer.rests()
    done.set()
    await settle()
    assert not peer.rests()
