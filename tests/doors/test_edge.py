"""The edge over real sockets: what clients send, well-formed or not, slowly or never, is answered or ended."""

import asyncio
import json
import logging
import select
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from headwater.doors.edge.connection import Connection
from headwater.doors.edge.limits import Limits
from headwater.doors.edge.reading import Phase
from headwater.doors.edge.server import Edge
from headwater.doors.wire import Request, Response, problem_response
from tests.doors.live_edge import LOOPS, PATIENCE_SECONDS, Client, LiveEdge, TimedEdge, request

MakeEdge = Callable[..., LiveEdge]
given_up = threading.Event()
opened = threading.Event()


async def echo(message: Request) -> Response:
    """Answers with what it was asked; some paths are slow, large or broken."""
    if message.path == "/broken":
        raise RuntimeError("a secret of the server")
    if message.path == "/gate":
        await asyncio.to_thread(opened.wait, PATIENCE_SECONDS)
    if message.path == "/never":
        await wait_for_ever()
    if message.path == "/slow":
        await asyncio.sleep(float(message.query or 0.2))
    if message.path == "/large":
        return Response(body=b"x" * int(message.query))
    if message.path == "/split":
        return Response(headers=(("x-trick", "a\r\nx-planted: b"),))
    return Response(content_type="text/plain", body=f"{message.method} {message.path} ".encode() + message.body)


async def wait_for_ever() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        given_up.set()


@pytest.fixture(params=LOOPS)
def make_edge(request: pytest.FixtureRequest) -> Iterator[MakeEdge]:
    """Makes edges on each kind of event loop, and stops them."""
    made: list[LiveEdge] = []

    def make(limits: Limits | None = None, **bounds: float) -> LiveEdge:
        edge = LiveEdge(echo, limits or Limits(**bounds), request.param)  # type: ignore[arg-type]
        made.append(edge)
        return edge.__enter__()

    yield make
    for edge in made:
        edge.__exit__(None, None, None)


@pytest.fixture
def timed_edge() -> Iterator[TimedEdge]:
    """An edge with the usual limits, whose time the test lets pass; `/gate` is answered when `opened` is set."""
    opened.clear()
    with TimedEdge(echo, Limits()) as edge:
        yield edge
        opened.set()


def expect_problem(client: Client, status: int, code: str) -> None:
    """The next answer is this problem, and the connection ends with it."""
    answer = client.answer()
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = json.loads(answer.body)
    assert (problem["status"], problem["code"]) == (status, code)
    assert "Traceback" not in answer.body.decode()
    assert answer.headers["connection"] == "close"
    assert client.is_closed()


def test_requests_of_one_connection_are_answered_one_after_the_other(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        for path in ("/a", "/b?x=1", "/c"):
            client.send(request(path))
            assert client.answer().body == f"GET {path.partition('?')[0]} ".encode()


def test_a_head_request_gets_the_length_and_not_the_body(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        client.send(request("/a", "HEAD"))
        answer = client.answer(to_head=True)
        assert (answer.status, answer.headers["content-length"]) == (200, "8")
        client.send(request("/b"))
        assert client.answer().body == b"GET /b "


def test_pipelined_requests_are_answered_in_their_order(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        client.send(request("/slow") + request("/a", "POST", b"body") + request("/b"))
        assert [client.answer().body for _ in range(3)] == [b"GET /slow ", b"POST /a body", b"GET /b "]


def test_a_flood_of_pipelined_requests_is_answered_to_the_last(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        sender = threading.Thread(target=client.send, args=(request("/a") * 5_000,))
        sender.start()
        assert all(client.answer().status == 200 for _ in range(5_000))
        sender.join()


def test_a_request_in_single_bytes_is_one_request(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        for byte in request("/a", "POST", b"body"):
            client.send(bytes([byte]))
        assert client.answer().body == b"POST /a body"


def test_a_chunked_body_arrives_whole(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        client.send(
            request("/a", "POST", transfer_encoding="chunked") + b"3\r\none\r\n3;x=y\r\ntwo\r\n0\r\nt: v\r\n\r\n"
        )
        assert client.answer().body == b"POST /a onetwo"
        client.send(request("/b"))
        assert client.answer().body == b"GET /b "


def test_a_client_that_asks_first_is_told_to_send_its_body(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        client.send(request("/a", "POST", content_length="4", expect="100-continue"))
        assert client.socket.recv(1_000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"body")
        assert client.answer().body == b"POST /a body"


def test_a_client_that_asks_first_with_too_large_a_body_is_refused_before_it_sends(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        client.send(request("/a", "POST", content_length="99999999", expect="100-continue"))
        expect_problem(client, 413, "body_too_large")


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1 extra\r\n\r\n",
        b"GET / HTTQ/1.1\r\nhost: a\r\n\r\n",
        b"G\x00T / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nx: a\x00b\r\n\r\n",
        b"\x00" * 64,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x07" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\n folded: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1e3\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nlonger\r\n",
        b"CONNECT example.org HTTP/1.1\r\nhost: a\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_ends_the_connection(make_edge: MakeEdge, data: bytes) -> None:
    with make_edge().connect() as client:
        client.send(data)
        expect_problem(client, 400, "bad_request")


def test_another_version_of_the_protocol_is_refused(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        client.send(b"GET / HTTP/2.0\r\nhost: a\r\n\r\n")
        answer = client.answer()
        assert answer.status in (400, 505)
        assert client.is_closed()


def test_a_good_request_before_a_bad_one_is_answered_first(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        client.send(request("/slow") + b"nonsense\r\n\r\n" + request("/after"))
        assert client.answer().body == b"GET /slow "
        expect_problem(client, 400, "bad_request")


@pytest.mark.parametrize(
    "data",
    [
        request("/", **{f"x-{number}": "y" * 200 for number in range(100)}),
        request("/", cookie="y" * 20_000),
        request("/" + "a" * 20_000),
        b"GET /" + b"a" * 200_000,
        b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 200_000,
        b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x" * 200_000,
        request("/", "POST", transfer_encoding="chunked") + b"1\r\na\r\n0\r\n" + b"t: v\r\n" * 10_000,
        request("/", "POST", transfer_encoding="chunked") + b"1;" + b"x" * 200_000,
        request("/", "POST", transfer_encoding="chunked") + b"0\r\nt: " + b"x" * 200_000,
    ],
    ids=[
        "many",
        "long",
        "target",
        "endless-target",
        "endless-value",
        "endless-name",
        "trailers",
        "extension",
        "trailer",
    ],
)
def test_a_head_over_its_limit_is_refused_and_its_client_can_read_why(make_edge: MakeEdge, data: bytes) -> None:
    with make_edge().connect() as client:
        client.send_all_it_takes(data)
        expect_problem(client, 431, "head_too_large")


def test_a_head_just_under_its_limit_is_taken(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        client.send(request("/a", cookie="y" * 16_000))
        assert client.answer().status == 200


def test_a_body_over_its_limit_is_refused_while_the_client_still_sends(make_edge: MakeEdge) -> None:
    edge = make_edge(body_bytes_max=1_000, linger_seconds=5)
    with edge.connect() as client:
        client.send(request("/a", "POST", b"x" * 1_000))
        assert client.answer().status == 200
        # More than the systems' buffers hold: closing at once would break this off with an error.
        client.send(request("/a", "POST", b"x" * 10_000_000))
        expect_problem(client, 413, "body_too_large")


def test_a_chunked_body_over_its_limit_is_refused(make_edge: MakeEdge) -> None:
    with make_edge(body_bytes_max=1_048_576).connect() as client:
        client.send_all_it_takes(
            request("/a", "POST", transfer_encoding="chunked") + b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        )
        client.send_all_it_takes((b"10000\r\n" + b"x" * 65_536 + b"\r\n") * 16)
        expect_problem(client, 413, "body_too_large")


@pytest.mark.parametrize(
    ("data", "phase"),
    [
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: ", Phase.HEAD),
        (b"G", Phase.HEAD),
        (request("/", "POST", content_length="10") + b"half", Phase.BODY),
    ],
)
def test_a_request_that_does_not_arrive_in_time_is_refused(timed_edge: TimedEdge, data: bytes, phase: Phase) -> None:
    seconds = Limits().head_seconds if phase is Phase.HEAD else Limits().body_seconds
    with timed_edge.connect() as client:
        client.send(data)
        timed_edge.wait_until(lambda connection: connection._reader.phase is phase)
        timed_edge.advance(seconds - 1)
        assert client.has_heard_nothing()
        timed_edge.advance(2)
        expect_problem(client, 408, "request_timeout")


def test_a_body_that_does_not_arrive_in_time_is_refused_by_the_real_clock_too(make_edge: MakeEdge) -> None:
    with make_edge(body_seconds=0.05).connect() as client:
        client.send(request("/", "POST", content_length="10") + b"half")
        expect_problem(client, 408, "request_timeout")


def test_a_client_that_trickles_its_head_is_refused_in_time(timed_edge: TimedEdge) -> None:
    with timed_edge.connect() as client:
        client.send(b"GET / HTTP/1.1\r\nhost: a\r\nx: ")
        timed_edge.wait_until(lambda connection: connection._reader.phase is Phase.HEAD)
        for _ in range(5):
            client.send_all_it_takes(b"x")
            timed_edge.advance(Limits().head_seconds / 4)
        assert client.answer().status == 408


def test_every_request_of_a_busy_connection_has_its_own_time(timed_edge: TimedEdge) -> None:
    whole = request("/a")
    with timed_edge.connect() as client:
        client.send(request("/gate") + whole[:10])
        for number in range(8):
            timed_edge.wait_until(partial(has_begun, number=number + 2))
            timed_edge.advance(Limits().head_seconds * 0.9)
            client.send(whole[10:] + whole[:10])
        timed_edge.wait_until(partial(has_begun, number=10))
        opened.set()
        assert [client.answer().status for _ in range(9)] == [200] * 9


def has_begun(connection: Connection, number: int) -> bool:
    """Whether so many requests have begun, and the last of them is not all there."""
    return connection._reader.number == number and connection._reader.phase is Phase.HEAD


def test_a_client_that_is_held_back_is_not_called_slow(timed_edge: TimedEdge) -> None:
    whole = request("/a")
    with timed_edge.connect() as client:
        client.send(request("/gate") + whole * 20 + whole[:10])
        timed_edge.wait_until(lambda connection: connection._paused)
        timed_edge.advance(Limits().head_seconds * 3)
        client.send(whole[10:])
        opened.set()
        assert [client.answer().status for _ in range(22)] == [200] * 22


def test_a_client_that_sends_faster_than_it_is_answered_is_held_back(make_edge: MakeEdge) -> None:
    with make_edge(stop_seconds=0.2).connect() as client:
        client.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            client.send(request("/never", cookie="y" * 15_000) * 5_000)


@pytest.mark.parametrize("before", [b"", b"\r\n\r\n", request("/a")])
def test_a_connection_on_which_nothing_happens_is_closed_without_a_word(timed_edge: TimedEdge, before: bytes) -> None:
    seconds = Limits().keep_alive_seconds if before.strip() else Limits().head_seconds
    with timed_edge.connect() as client:
        client.send(before)
        if before.strip():
            assert client.answer().status == 200
        timed_edge.wait_until(lambda connection: connection._task is None)
        timed_edge.advance(seconds - 1)
        assert client.has_heard_nothing()
        timed_edge.advance(2)
        assert client.is_closed()


def test_a_connection_on_which_nothing_happens_is_closed_by_the_real_clock_too(make_edge: MakeEdge) -> None:
    with make_edge(head_seconds=0.05).connect() as client:
        assert client.is_closed()


def test_a_slow_answer_is_not_taken_for_a_slow_client(timed_edge: TimedEdge) -> None:
    with timed_edge.connect() as client:
        client.send(request("/gate"))
        timed_edge.wait_until(lambda connection: connection._task is not None)
        timed_edge.advance(Limits().head_seconds + Limits().keep_alive_seconds)
        opened.set()
        assert client.answer().body == b"GET /gate "


def test_a_client_that_half_closes_still_gets_its_answers(make_edge: MakeEdge) -> None:
    with make_edge(half_closed_seconds=60.0).connect() as client:
        client.send(request("/slow") + request("/a"))
        client.socket.shutdown(1)
        assert [client.answer().body for _ in range(2)] == [b"GET /slow ", b"GET /a "]
        assert client.is_closed()


@pytest.mark.parametrize("data", [b"", b"GET / HT", request("/", "POST", content_length="10") + b"half"])
def test_a_client_that_half_closes_in_the_middle_is_let_go(make_edge: MakeEdge, data: bytes) -> None:
    with make_edge().connect() as client:
        client.send(data)
        client.socket.shutdown(1)
        assert client.is_closed()


def test_a_client_that_vanishes_leaves_no_trace(make_edge: MakeEdge, caplog: pytest.LogCaptureFixture) -> None:
    edge = make_edge()
    with edge.connect() as client:
        client.send(request("/slow") * 3 + b"GET / HT")
    with edge.connect() as client:
        client.send(request("/a"))
        assert client.answer().status == 200
    edge.stop()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_nobody_works_on_for_a_client_that_vanished(make_edge: MakeEdge) -> None:
    given_up.clear()
    with make_edge(half_closed_seconds=0.1).connect() as client:
        client.send(request("/a") + request("/never"))
        assert client.answer().status == 200
    assert given_up.wait(5)


def test_a_client_that_takes_nothing_is_dropped(make_edge: MakeEdge) -> None:
    edge = make_edge(send_seconds=0.3, stop_seconds=3_600)
    with edge.connect() as client:
        client.send(request("/large?50000000"))
        assert client.socket.recv(1) == b"H"
        # A server stops when all its connections are gone: this ends because it gives the client up.
        edge.stop()
        assert not edge.is_running()


def test_a_large_answer_reaches_a_client_that_takes_it_and_closes(make_edge: MakeEdge) -> None:
    with make_edge(linger_seconds=0.05).connect() as client:
        client.send(request("/large?8000000", connection="close"))
        assert len(client.answer().body) == 8_000_000


def test_a_handler_that_fails_is_told_with_a_number_and_nothing_else(
    make_edge: MakeEdge, caplog: pytest.LogCaptureFixture
) -> None:
    with make_edge().connect() as client:
        client.send(request("/broken"))
        answer = client.answer()
        problem = json.loads(answer.body)
        assert (answer.status, problem["code"]) == (500, "internal")
        assert "secret" not in answer.body.decode()
        assert any(problem["request_id"] in record.getMessage() for record in caplog.records)
        client.send(request("/a"))
        assert client.answer().status == 200


def test_a_response_that_would_break_apart_is_not_sent(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        client.send(request("/split"))
        assert client.is_closed()


def test_a_request_to_change_the_protocol_is_answered_as_any_other(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        client.send(request("/a", connection="Upgrade, HTTP2-Settings", upgrade="h2c", http2_settings="AAMAAABk"))
        assert client.answer().body == b"GET /a "
        assert client.is_closed()


def test_http_1_0_is_answered_and_closed(make_edge: MakeEdge) -> None:
    with make_edge().connect() as client:
        client.send(b"GET /a HTTP/1.0\r\n\r\n")
        assert client.answer().body == b"GET /a "
        assert client.is_closed()


def test_one_connection_too_many_is_told_to_come_back(make_edge: MakeEdge) -> None:
    edge = make_edge(connections_max=1)
    with edge.connect() as first:
        first.send(request("/a"))
        assert first.answer().status == 200
        with edge.connect() as second:
            expect_problem(second, 503, "overloaded")
        first.send(request("/b"))
        assert first.answer().status == 200


async def test_a_crowd_that_comes_at_once_while_the_server_is_busy_is_taken() -> None:
    """S0-70: nobody waits for the system to try again."""
    count = 1_100
    if int(Path("/proc/sys/net/core/somaxconn").read_text()) < count:
        pytest.skip("the system lets fewer wait")
    edge = Edge(echo)
    await edge.start("127.0.0.1", 0)
    crowd = [socket.socket() for _ in range(count)]
    try:
        # The loop of the server is this one: nobody is taken meanwhile.
        for client in crowd:
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", edge.port))
        waiting = select.poll()
        for client in crowd:
            waiting.register(client, select.POLLOUT)
        connected = waiting.poll(0)
    finally:
        for client in crowd:
            client.close()
        await edge.stop()
    assert len(connected) == count


def test_a_stopping_server_finishes_what_is_under_way(make_edge: MakeEdge) -> None:
    edge = make_edge()
    with edge.connect() as idle, edge.connect() as sending, edge.connect() as busy:
        sending.send(request("/a", "POST", content_length="4", expect="100-continue"))
        assert sending.socket.recv(1_000).startswith(b"HTTP/1.1 100")
        busy.send(request("/a") + request("/slow"))
        assert busy.answer().status == 200
        edge.begin_stop()
        assert idle.is_closed()
        sending.send(b"body")
        assert sending.answer().body == b"POST /a body"
        answer = busy.answer()
        assert (answer.body, answer.headers["connection"]) == (b"GET /slow ", "close")
        assert busy.is_closed()
        assert sending.is_closed()
        edge.stop()
        with pytest.raises(ConnectionRefusedError), edge.connect():
            pass


def test_a_stopping_server_does_not_wait_for_ever(make_edge: MakeEdge) -> None:
    edge = make_edge(stop_seconds=0.2)
    with edge.connect() as client:
        client.send(request("/a", "POST", content_length="4", expect="100-continue"))
        assert client.socket.recv(1_000).startswith(b"HTTP/1.1 100")
        edge.stop()
        assert client.is_closed()


def test_a_problem_says_which_request_it_was() -> None:
    response = problem_response(404, "not_found", "nothing here", request_id="7")
    assert json.loads(response.body) == {
        "title": "Not Found",
        "status": 404,
        "code": "not_found",
        "detail": "nothing here",
        "error": "nothing here",
        "request_id": "7",
    }
