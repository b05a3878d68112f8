"""Sessions, with an echo: the same conversation as a WebSocket and as server-sent events, on the edge and over ASGI.

The client is `websockets`, which knows nothing of us.
"""

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from headwater.doors.edge.connection import Connection
from headwater.doors.edge.limits import Limits
from headwater.doors.edge.reading import RequestReader
from headwater.doors.event_stream import encode_event
from headwater.doors.sessions import CloseCode, Frame
from headwater.doors.wire import Request, Response
from tests.doors.echoing import CARRIERS, FLOOD_BYTES, Echo, on_edge
from tests.doors.live_edge import LOOPS, PATIENCE_SECONDS

LETTERS = "grüße, 世界 🌍"


HANDSHAKE = (
    b"GET /echo HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: keep-alive, Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture(params=CARRIERS)
def port(request: pytest.FixtureRequest, echo: Echo) -> Iterator[int]:
    """A server with the echo, over each transport."""
    with CARRIERS[request.param](echo.handler) as port:
        yield port


@contextmanager
def open_echo(port: int, path: str = "/echo") -> Iterator[ClientConnection]:
    url = f"ws://127.0.0.1:{port}{path}"
    with connect(url, open_timeout=PATIENCE_SECONDS, close_timeout=PATIENCE_SECONDS, max_size=None) as client:
        yield client


def close_code(client: ClientConnection) -> int:
    """What the server closes with, whatever comes before it."""
    try:
        while True:
            client.recv(PATIENCE_SECONDS)
    except ConnectionClosed as closed:
        return int(closed.rcvd.code) if closed.rcvd else CloseCode.LOST


# ── frames both ways ──


@pytest.mark.parametrize(
    "data", ["", "a", LETTERS, "x" * 125, "x" * 126, "x" * 65_535, "x" * 65_536, b"", b"\0\xff", b"y" * 1_000_000]
)
def test_what_is_sent_comes_back_as_it_was(port: int, echo: Echo, data: str | bytes) -> None:
    with open_echo(port) as client:
        client.send(data)
        assert client.recv(PATIENCE_SECONDS) == data
    assert echo.wait_for_closed() == [CloseCode.NORMAL]


def test_a_message_in_pieces_is_one_message(port: int) -> None:
    with open_echo(port) as client:
        client.send(["gr", "ü", "ße", ""])
        assert client.recv(PATIENCE_SECONDS) == "grüße"


def test_messages_come_in_the_order_they_were_sent_in(port: int) -> None:
    with open_echo(port) as client:
        for number in range(500):
            client.send(str(number))
        assert [client.recv(PATIENCE_SECONDS) for _ in range(500)] == [str(number) for number in range(500)]


def test_a_ping_is_answered_while_nothing_else_happens(port: int) -> None:
    with open_echo(port) as client:
        assert client.ping(b"there?").wait(PATIENCE_SECONDS)


def test_nothing_is_read_while_a_session_rests(port: int) -> None:
    with open_echo(port) as client:
        client.send("rest")
        client.recv(PATIENCE_SECONDS)
        client.send("after")
        assert client.recv(PATIENCE_SECONDS) == "after"


def test_several_clients_have_sessions_of_their_own(port: int, echo: Echo) -> None:
    with open_echo(port) as one, open_echo(port) as other:
        one.send("1")
        other.send("2")
        assert (one.recv(PATIENCE_SECONDS), other.recv(PATIENCE_SECONDS)) == ("1", "2")
    assert len(echo.wait_for_closed(2)) == 2


# ── how it ends ──


def test_the_session_hears_the_code_that_the_client_closes_with(port: int, echo: Echo) -> None:
    with open_echo(port) as client:
        client.close(4001, "I have to go")
    assert echo.wait_for_closed() == [4001]


def test_the_client_hears_the_code_that_the_session_closes_with(port: int, echo: Echo) -> None:
    with open_echo(port) as client:
        client.send("before")
        client.send("close")
        assert client.recv(PATIENCE_SECONDS) == "before"
        assert close_code(client) == CloseCode.POLICY_VIOLATED
    assert echo.wait_for_closed() == [CloseCode.POLICY_VIOLATED]


def test_a_client_that_vanishes_is_lost(port: int, echo: Echo) -> None:
    with open_echo(port) as client:
        client.send("hello")
        client.recv(PATIENCE_SECONDS)
        client.socket.shutdown(socket.SHUT_RDWR)
        assert echo.wait_for_closed()[0] in (CloseCode.LOST, CloseCode.NO_CODE)


@pytest.mark.parametrize("path", ["/echo", "/failing"])
def test_what_a_session_raises_ends_it_and_stays_here(
    port: int, echo: Echo, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    with open_echo(port, path) as client:
        if path == "/echo":
            client.send("raise")
        assert close_code(client) == CloseCode.INTERNAL_ERROR
        assert "secret" not in (client.close_reason or "")
    assert "a secret of the server" in caplog.text


def test_a_message_that_is_too_large_ends_the_session(port: int, echo: Echo) -> None:
    with open_echo(port) as client:
        client.send(b"x" * (Limits().message_bytes_max + 1))
        assert close_code(client) == CloseCode.TOO_BIG
    assert echo.wait_for_closed() == [CloseCode.TOO_BIG]


def test_a_client_that_takes_nothing_is_let_go_and_told_to_come_back(port: int, echo: Echo) -> None:
    with open_echo(port) as client, open_echo(port) as neighbour:
        client.send("flood")
        neighbour.send("still served?")
        assert neighbour.recv(PATIENCE_SECONDS) == "still served?"
        assert close_code(client) == CloseCode.TRY_AGAIN_LATER
        [count] = echo.refused_after
        assert Limits().outbox_bytes_max // FLOOD_BYTES <= count < 10_000
    assert CloseCode.TRY_AGAIN_LATER in echo.wait_for_closed()


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_server_that_stops_says_goodbye(carrier: str, echo: Echo) -> None:
    with ExitStack() as server:
        port = server.enter_context(CARRIERS[carrier](echo.handler))
        with open_echo(port) as client:
            client.send("hello")
            client.recv(PATIENCE_SECONDS)
            server.close()
            # uvicorn closes its sockets itself, and says that it starts anew.
            assert close_code(client) in (CloseCode.GOING_AWAY, 1012)
    assert len(echo.wait_for_closed()) == 1


def test_listeners_of_a_server_that_stops_are_told(echo: Echo) -> None:
    """They do not make it wait."""
    with ExitStack() as server:
        port = server.enter_context(on_edge(echo.handler, "uvloop", Limits(stop_seconds=3_600)))
        with httpx.stream("GET", f"http://127.0.0.1:{port}/echo", timeout=PATIENCE_SECONDS) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.close()
            assert '"code":1001' in "".join(lines)


# ── the handshake ──


@pytest.mark.parametrize(("path", "status"), [("/nothing", 404), ("/broken", 500)])
def test_a_route_without_a_session_refuses(port: int, path: str, status: int) -> None:
    with pytest.raises(InvalidStatus) as refused, open_echo(port, path):
        pass
    assert refused.value.response.status_code == status
    assert b"secret" not in refused.value.response.body


# ── server-sent events ──


def test_a_client_that_does_not_ask_to_upgrade_gets_events(port: int, echo: Echo) -> None:
    with httpx.stream("GET", f"http://127.0.0.1:{port}/echo", timeout=PATIENCE_SECONDS) as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        lines = stream.iter_lines()
        assert next(lines) == ": open"
        frames = Frame("one\r\ntwo", event="greeting", id="7"), Frame(LETTERS)
        echo.tell(*frames, close=CloseCode.NORMAL, reason="done")
        rest = [line for line in lines if line]
    assert rest == [
        "id: 7",
        "event: greeting",
        "data: one",
        "data: two",
        f"data: {LETTERS}",
        "event: close",
        'data: {"type":"close","payload":{"code":1000,"reason":"done"}}',
    ]
    assert echo.wait_for_closed() == [CloseCode.NORMAL]


def test_a_listener_that_leaves_is_lost(port: int, echo: Echo) -> None:
    with httpx.stream("GET", f"http://127.0.0.1:{port}/echo", timeout=PATIENCE_SECONDS) as stream:
        next(stream.iter_lines())
    assert echo.wait_for_closed() == [CloseCode.LOST]


def test_events_carry_no_bytes() -> None:
    with pytest.raises(TypeError, match="WebSocket"):
        encode_event(Frame(b"bytes"))


def test_asking_for_the_head_alone_begins_no_session(port: int, echo: Echo) -> None:
    assert httpx.head(f"http://127.0.0.1:{port}/echo").status_code == 200
    assert echo.peers == []


# ── what the edge sees to ──


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_one_that_is_silent_and_does_not_answer_a_ping_is_cut_off(echo: Echo, loop: str) -> None:
    with on_edge(echo.handler, loop, Limits(ping_seconds=0.05)) as port, open_echo(port) as there:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as silent:
            silent.sendall(HANDSHAKE)
            assert echo.wait_for_closed() == [CloseCode.LOST]
        there.send("I answered every ping")
        assert there.recv(PATIENCE_SECONDS) == "I answered every ping"


def test_frames_right_behind_the_handshake_are_heard(echo: Echo, loop: str) -> None:
    hello = bytes((0x81, 0x85, 0, 0, 0, 0)) + b"hello"
    with on_edge(echo.handler, loop) as port:
        for filler in (b"", b"x-filler: " + b"y" * 9_000 + b"\r\n"):
            with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as eager:
                eager.sendall(HANDSHAKE[:-2] + filler + b"\r\n" + hello + hello)
                received = b""
                while received.count(b"hello") < 2:
                    received += eager.recv(65_536)
                assert received.endswith(b"\x81\x05hello\x81\x05hello")


@pytest.mark.parametrize("count", [2, 50_000], ids=["a few", "more than is held"])
def test_frames_that_come_while_the_handshake_is_decided_are_heard(echo: Echo, loop: str, count: int) -> None:
    """A client that does not wait for the answer: its frames come in reads of their own."""
    hello, reply = bytes((0x81, 0x85, 0, 0, 0, 0)) + b"hello", b"\x81\x05hello"
    asked, decided = threading.Event(), threading.Event()

    async def decide_late(request: Request) -> Response:
        asked.set()
        await asyncio.to_thread(decided.wait, PATIENCE_SECONDS)
        return await echo.handler(request)

    with (
        on_edge(decide_late, loop, Limits(outbox_bytes_max=2**30)) as port,
        socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as eager,
    ):
        eager.sendall(HANDSHAKE)
        assert asked.wait(PATIENCE_SECONDS)
        sending = threading.Thread(target=eager.sendall, args=[hello * count])
        sending.start()
        # Long enough, as a rule, for them to be read before the answer; if not, they are heard all the same.
        time.sleep(0.1)
        decided.set()
        received = bytearray()
        while received.count(reply) < count:
            received += eager.recv(65_536)
        sending.join()
    assert received.partition(b"\r\n\r\n")[2] == reply * count


def test_of_what_spoke_http_nothing_stays_once_it_is_a_websocket(echo: Echo, loop: str) -> None:
    """A hundred thousand that only wait would keep as many parsers and timers."""
    gc.collect()
    gc.disable()
    try:
        with on_edge(echo.handler, loop) as port, ExitStack() as clients:
            for _ in range(5):
                clients.enter_context(open_echo(port)).ping().wait(PATIENCE_SECONDS)
            kept = [one for one in gc.get_objects() if isinstance(one, Connection | RequestReader)]
            assert kept == []
    finally:
        gc.enable()


BAD_HANDSHAKES = {
    "another version": (b"version: 13", b"version: 8", b"426"),
    "no version": (b"sec-websocket-version: 13\r\n", b"", b"426"),
    "no key": (b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b"", b"400"),
    "a short key": (b"dGhlIHNhbXBsZSBub25jZQ==", b"dGhl", b"400"),
    "no base64": (b"dGhlIHNhbXBsZSBub25jZQ==", b"!!!!", b"400"),
    "a post": (b"GET", b"POST", b"400"),
}


@pytest.mark.parametrize("how", BAD_HANDSHAKES)
def test_a_handshake_that_is_not_as_it_should_be_begins_no_session(echo: Echo, loop: str, how: str) -> None:
    right, wrong, status = BAD_HANDSHAKES[how]
    assert right in HANDSHAKE
    with on_edge(echo.handler, loop) as port, socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as client:
        client.sendall(HANDSHAKE.replace(right, wrong))
        received = b""
        while chunk := client.recv(65_536):
            received += chunk
        assert received.startswith(b"HTTP/1.1 " + status)
    assert echo.peers == []
