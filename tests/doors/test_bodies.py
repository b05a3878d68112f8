"""Bodies: nobody who is not let in makes a server hold one, and all of them together stay within a budget."""

import asyncio
import gc
import socket
import weakref
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.doors.edge.budget import Budget, Hold
from headwater.doors.edge.limits import MIB, Limits
from headwater.doors.edge.server import Edge
from headwater.doors.wire import CONTINUE, Request, Response, json_response, problem_response
from tests.doors.live_edge import LiveEdge, TimedEdge, request
from tests.waiting import expect_soon

SLOW = "/slow"
# Much more than a socket takes by itself.
LARGE, KEPT, LARGE_BYTES = "/large", "/kept", 16 * MIB


class Door:
    """Lets in who says `authorization`, and keeps what it was asked."""

    def __init__(self) -> None:
        self.heads: list[Request] = []
        self.bodies: list[int] = []
        self.waiting = self.returned = 0
        self.go_on = asyncio.Event()
        self.receipts: list[weakref.ref[Receipt]] = []

    async def __call__(self, asked: Request) -> Response:
        if asked.awaits_body:
            self.heads.append(asked)
        if "authorization" not in asked.headers:
            return problem_response(401, "unauthenticated", "who are you?")
        if asked.awaits_body:
            return CONTINUE
        if asked.path.startswith(SLOW):
            self.waiting += 1
            await self.go_on.wait()
        self.bodies.append(len(asked.body))
        if asked.path.endswith(LARGE):
            receipt = Receipt(self)
            self.receipts.append(weakref.ref(receipt))
            return Response(body=b"x" * LARGE_BYTES, undelivered=receipt)
        if asked.path.endswith(KEPT):
            return Response(body=b"x" * LARGE_BYTES, done=True)
        return json_response(len(asked.body))


class Receipt:
    """Goes with an answer: for as long as somebody holds it, the answer is in memory."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def __call__(self) -> None:
        self._door.returned += 1


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture(params=["asyncio", "uvloop"])
def live(request: pytest.FixtureRequest, door: Door) -> Iterator[LiveEdge]:
    limits = Limits(body_bytes_max=4 * MIB, bodies_bytes_max=8 * MIB, linger_seconds=5)
    with LiveEdge(door, limits, request.param, admit=door) as running:
        yield running


def edge_of(live: LiveEdge) -> Edge:
    assert live.edge is not None
    return live.edge


def head(size: int, path: str = "/", **headers: str) -> bytes:
    return request(path, "POST", content_length=str(size), **headers)


def test_a_body_of_somebody_unknown_is_refused_by_its_head(live: LiveEdge, door: Door) -> None:
    with live.connect() as client:
        client.send(head(3 * MIB))
        assert client.answer().status == 401
        assert client.is_closed()
    assert [asked.body for asked in door.heads] == [b""]
    assert door.bodies == []
    assert edge_of(live).budget.bytes == 0


def test_one_who_asks_first_is_not_told_to_go_on_before_it_is_let_in(live: LiveEdge) -> None:
    with live.connect() as client:
        client.send(head(10, expect="100-continue"))
        assert client.answer().status == 401
    with live.connect() as client:
        client.send(head(10, expect="100-continue", authorization="a"))
        assert client.answer().status == 100
        client.send(b"x" * 10)
        assert client.answer().body == b"10"


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_body_of_somebody_known_arrives_whole(live: LiveEdge, door: Door, pieces: int) -> None:
    size = 3 * MIB
    with live.connect() as client:
        for _ in range(2):
            client.send(head(size, authorization="a"))
            for _ in range(pieces):
                client.send(b"x" * (size // pieces))
            client.send(b"x" * (size % pieces))
            assert client.answer().body == str(size).encode()
    assert len(door.heads) == 2
    expect_soon(lambda: edge_of(live).budget.bytes == 0)


def test_a_chunked_body_is_let_in_and_counted_as_it_comes(live: LiveEdge, door: Door) -> None:
    with live.connect() as client:
        client.send(request("/", "POST", transfer_encoding="chunked", authorization="a"))
        client.send(b"100000\r\n" + b"x" * MIB + b"\r\n")
        expect_soon(lambda: edge_of(live).budget.bytes == MIB)
        client.send(b"0\r\n\r\n")
        assert client.answer().body == str(MIB).encode()
    expect_soon(lambda: edge_of(live).budget.bytes == 0)


def test_a_small_body_that_comes_with_its_head_is_judged_once(live: LiveEdge, door: Door) -> None:
    with live.connect() as client:
        client.send(request("/", "POST", b"small", authorization="a"))
        assert client.answer().body == b"5"
    assert door.heads == []


def test_beyond_the_budget_bodies_are_refused_and_the_others_go_on(live: LiveEdge, door: Door) -> None:
    """Half of the budget for one caller, all of it for all; what ends makes room again."""
    budget = edge_of(live).budget
    with live.connect() as first:
        first.send(head(4 * MIB, authorization="a"))
        expect_soon(lambda: budget.bytes == 4 * MIB)
        _expect_no_room(live, "a")
        with live.connect() as second:
            second.send(head(4 * MIB, authorization="b"))
            expect_soon(lambda: budget.bytes == 8 * MIB)
            _expect_no_room(live, "c")
            assert budget.refusals == 2
            first.send(b"x" * 4 * MIB)
            assert first.answer().status == 200
            expect_soon(lambda: budget.bytes == 4 * MIB)
            with live.connect() as third:
                third.send(head(MIB, authorization="c") + b"x" * MIB)
                assert third.answer().body == str(MIB).encode()
    expect_soon(lambda: budget.bytes == 0)


def _expect_no_room(live: LiveEdge, caller: str) -> None:
    with live.connect() as client:
        client.send(head(MIB, authorization=caller))
        answer = client.answer()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_who_has_answers_to_take_gets_no_more_until_they_are_taken(live: LiveEdge, door: Door) -> None:
    """Others are answered, and so is whether the server is alive; nothing is done for who is refused."""
    answers = edge_of(live).answers
    with live.connect() as slow:
        slow.send(request(LARGE, authorization="a"))
        expect_soon(lambda: answers.bytes > 4 * MIB)
        with live.connect() as refused:
            refused.send(request(LARGE, authorization="a"))
            answer = refused.answer()
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        with live.connect() as healthy:
            healthy.send(request("/health", authorization="a"))
            assert healthy.answer().status == 200
        with live.connect() as other:
            other.send(request("/", authorization="b"))
            assert other.answer().status == 200
        assert (len(door.bodies), door.returned) == (3, 0)
        assert len(slow.answer().body) == LARGE_BYTES
        slow.send(request("/", authorization="a"))
        assert slow.answer().status == 200
    assert answers.bytes == 0


@pytest.fixture
def timed(door: Door) -> Iterator[TimedEdge]:
    with TimedEdge(door, Limits(body_bytes_max=4 * MIB, bodies_bytes_max=8 * MIB)) as edge:
        yield edge


def test_who_takes_nothing_is_dropped_soon_when_others_are_refused_for_it(timed: TimedEdge, door: Door) -> None:
    answers = edge_of(timed).answers
    with timed.connect() as stuck:
        stuck.send(request(LARGE, authorization="a"))
        expect_soon(lambda: answers.bytes > 4 * MIB)
        timed.advance(20)
        assert answers.bytes > 4 * MIB, "nobody was refused, so it may take its time"
        with timed.connect() as other:
            other.send(request("/", authorization="a"))
            assert other.answer().status == 503
            timed.advance(2.1)
            expect_soon(lambda: answers.bytes == 0)
            other.send(request("/", authorization="a"))
            assert other.answer().status == 200
    assert door.returned == 1


def test_who_takes_an_answer_slowly_is_not_dropped(timed: TimedEdge) -> None:
    with timed.connect() as slow:
        slow.send(request(LARGE, authorization="a"))
        expect_soon(lambda: edge_of(timed).answers.bytes > 0)
        taken = 0
        for _ in range(4):
            taken += len(slow.socket.recv(2 * MIB, socket.MSG_WAITALL))
            timed.advance(25)
        assert edge_of(timed).answers.bytes > 0
        while taken < LARGE_BYTES:
            taken += len(slow.socket.recv(MIB))


def test_of_many_that_are_asked_for_at_once_only_some_are_held(live: LiveEdge, door: Door) -> None:
    """Each is made before anybody knows how large it is; what it gave is given back."""
    with ExitStack() as stack:
        clients = [stack.enter_context(live.connect()) for _ in range(6)]
        for client in clients:
            client.send(request(f"{SLOW}{LARGE}", authorization="a"))
        expect_soon(lambda: door.waiting == 6)
        live.call(door.go_on.set)
        expect_soon(lambda: door.returned == 5)
        assert edge_of(live).answers.bytes <= LARGE_BYTES
        assert sorted(client.answer().status for client in clients) == [200, *[503] * 5]


def test_an_answer_that_cannot_be_given_again_is_held_whatever_there_is(live: LiveEdge, door: Door) -> None:
    """Such as messages that are acked with the pop."""
    with live.connect() as slow, live.connect() as second:
        second.send(request(f"{SLOW}{KEPT}", authorization="a"))
        expect_soon(lambda: door.waiting == 1)
        slow.send(request(LARGE, authorization="a"))
        expect_soon(lambda: edge_of(live).answers.bytes > 4 * MIB)
        live.call(door.go_on.set)
        assert len(second.answer().body) == LARGE_BYTES
        assert len(slow.answer().body) == LARGE_BYTES


def test_an_answer_to_somebody_who_hung_up_is_held_no_longer(live: LiveEdge, door: Door) -> None:
    gc.disable()
    try:
        with live.connect() as client:
            client.send(request(LARGE, authorization="one"))
            expect_soon(lambda: edge_of(live).answers.bytes > 0)
        expect_soon(lambda: [receipt() for receipt in door.receipts] == [None])
    finally:
        gc.enable()
    assert door.returned == 1


def test_a_client_that_vanishes_gives_its_room_back(live: LiveEdge) -> None:
    for sent in (head(4 * MIB, authorization="a"), head(4 * MIB, SLOW, authorization="a") + b"x" * 4 * MIB):
        with live.connect() as client:
            client.send(sent)
            expect_soon(lambda: edge_of(live).budget.bytes == 4 * MIB)
        expect_soon(lambda: edge_of(live).budget.bytes == 0)


def test_a_flood_of_small_requests_in_one_read_is_taken_in_slices(live: LiveEdge, door: Door) -> None:
    """However many requests one read of a socket brings, no more than a few are made of it in one turn of the loop."""
    with live.connect() as client:
        count = 5_000
        client.send(request("/", "POST", b"x", authorization="a") * count)
        for _ in range(count):
            assert client.answer().status == 200
    assert len(door.bodies) == count
    # The client has the last answer before the server lets go of its bytes.
    expect_soon(lambda: edge_of(live).budget.bytes == 0)


owners = st.sampled_from("abc")


@given(st.lists(st.tuples(owners, st.integers(1, 60)), max_size=40))
def test_a_budget_is_never_overdrawn_and_comes_back_whole(wanted: list[tuple[str, int]]) -> None:
    budget = Budget(100, 30)
    holds: list[tuple[str, int, Hold]] = []
    for owner, size in wanted:
        hold = Hold(budget, owner)
        if hold.grow(size):
            holds.append((owner, size, hold))
        assert budget.bytes == sum(size for _, size, _ in holds) <= 100
        for name in "abc":
            assert sum(size for owner, size, _ in holds if owner == name) <= 50
    for _, _, hold in holds:
        hold.release()
        hold.release()
    assert budget.bytes == 0


def test_a_budget_smaller_than_one_body_still_takes_one() -> None:
    assert Hold(Budget(10, 100), "a").grow(100)
