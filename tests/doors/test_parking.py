"""Requests that wait and answers that go on: who is noticed to leave, and what is told to whom then."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest

from headwater.doors.edge.limits import Limits
from headwater.doors.wire import Request, Response
from tests.doors.live_edge import LOOPS, LiveEdge, request


class Station:
    """Routes that park, stream, or make an answer that can be given back."""

    def __init__(self) -> None:
        self.parked = threading.Event()
        self.gone = threading.Event()
        self.ended = threading.Event()
        self.returned = threading.Event()
        self.go = threading.Event()

    async def handle(self, message: Request) -> Response:
        if message.path == "/park":
            return await self._park(message)
        if message.path == "/stream":
            return Response(content_type="text/plain", body=b"first,", chunks=self._count())
        if message.path == "/large":
            return Response(body=b"x" * 50_000_000, undelivered=self.returned.set)
        if message.path == "/late":
            self.parked.set()
            await asyncio.to_thread(self.go.wait, 10)
            return Response(body=b"late", undelivered=self.returned.set)
        return Response(body=b"plain")

    async def _park(self, message: Request) -> Response:
        message.park()
        self.parked.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            self.gone.set()
            raise
        return Response()

    async def _count(self) -> AsyncGenerator[bytes, None]:
        try:
            for number in range(3):
                yield f"{number},".encode()
            while not self.go.is_set():
                yield b""
                await asyncio.sleep(0.005)
            yield b"last"
        finally:
            self.ended.set()


@pytest.fixture
def station() -> Station:
    return Station()


@pytest.fixture(params=LOOPS)
def edge(request: pytest.FixtureRequest, station: Station) -> Iterator[LiveEdge]:
    limits = Limits(half_closed_seconds=60.0, send_seconds=0.5, stop_seconds=1.0)
    with LiveEdge(station.handle, limits, request.param) as running:
        yield running


def test_a_client_that_hangs_up_while_it_is_parked_is_noticed_at_once(edge: LiveEdge, station: Station) -> None:
    with edge.connect() as client:
        client.send(request("/park"))
        assert station.parked.wait(10)
    assert station.gone.wait(10)


def test_a_client_that_sends_no_more_while_it_is_parked_has_left(edge: LiveEdge, station: Station) -> None:
    with edge.connect() as client:
        client.send(request("/park"))
        assert station.parked.wait(10)
        client.socket.shutdown(1)
        assert station.gone.wait(10)
        assert client.is_closed()


def test_a_client_that_had_left_before_it_was_parked_is_noticed(edge: LiveEdge, station: Station) -> None:
    with edge.connect() as client:
        client.send(request("/park"))
        client.socket.shutdown(1)
        assert station.gone.wait(10)


def test_a_request_behind_one_that_was_parked_is_read_and_answered(edge: LiveEdge, station: Station) -> None:
    with edge.connect() as client:
        for _ in range(2):
            client.send(request("/late"))
            station.go.set()
            assert client.answer().body == b"late"
        client.send(request("/plain"))
        assert client.answer().body == b"plain"


def test_an_answer_that_a_client_does_not_take_is_given_back(edge: LiveEdge, station: Station) -> None:
    with edge.connect() as client:
        client.send(request("/large"))
        assert station.returned.wait(10)


# ── answers without a length ──


def test_an_answer_without_a_length_goes_in_chunks_and_the_connection_goes_on(edge: LiveEdge, station: Station) -> None:
    station.go.set()
    with edge.connect() as client:
        client.send(request("/stream"))
        head = client._read_until(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        assert b"content-length" not in head
        body = client._read_until(b"0\r\n\r\n")
        assert body == b"6\r\nfirst,\r\n2\r\n0,\r\n2\r\n1,\r\n2\r\n2,\r\n4\r\nlast\r\n0\r\n\r\n"
        client.send(request("/plain"))
        assert client.answer().body == b"plain"
    assert station.ended.is_set()


def test_a_client_of_old_gets_it_plainly_until_the_connection_ends(edge: LiveEdge, station: Station) -> None:
    station.go.set()
    with edge.connect() as client:
        client.send(b"GET /stream HTTP/1.0\r\n\r\n")
        head = client._read_until(b"\r\n\r\n")
        assert b"chunked" not in head
        assert client._read_until(b"last") == b"first,0,1,2,last"
        assert client.is_closed()


def test_an_answer_without_a_length_has_no_body_for_head(edge: LiveEdge) -> None:
    with edge.connect() as client:
        client.send(request("/stream", "HEAD"))
        assert client.answer(to_head=True).status == 200
        client.send(request("/plain"))
        assert client.answer().body == b"plain"


def test_a_stream_whose_client_leaves_is_ended(edge: LiveEdge, station: Station) -> None:
    with edge.connect() as client:
        client.send(request("/stream"))
        client._read_until(b"2,")
    assert station.ended.wait(10)
