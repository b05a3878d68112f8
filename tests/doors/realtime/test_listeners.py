"""Live queries for those who only listen (server-sent events): by the same rights as over a WebSocket, for as long as
they have them (S3-33, T3-e)."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import pytest

from headwater.config import MIB
from headwater.doors.edge.limits import Limits
from headwater.doors.sessions import Slowness
from headwater.model.document_rules import DocumentRule
from headwater.model.watermarks import Pressure
from tests.doors.live_door import GUARDED_SERVINGS, SERVINGS, LiveDoor, Serving, inside_another_app, on_the_edge
from tests.doors.realtime.guests import PATIENCE_SECONDS, joined
from tests.doors.realtime.test_door import behind_guards, make_token
from tests.scenarios.servers import Server
from tests.waiting import expect_soon, expect_soon_async

OWN = DocumentRule(pattern="notes", read="owner == auth.sub")
ADDRESSES = ("/realtime/sse?collection=notes", "/realtime/v1/databases/main/sse?collection=notes")
Found = TypeVar("Found")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[LiveDoor]:
    door = LiveDoor(tmp_path / "headwater.db", behind_guards)
    door.start()
    yield door
    door.stop()


def run(door: LiveDoor, doing: Awaitable[Found]) -> Found:
    async def done() -> Found:
        return await doing

    return asyncio.run_coroutine_threadsafe(done(), door.loop).result(PATIENCE_SECONDS)


class Listener:
    """What comes over a stream of server-sent events."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = self._noting(response.iter_lines())
        # What a browser says as the last that it saw when it comes back; nothing where it is empty.
        self.last_id = ""

    def _noting(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            if line.startswith("id:"):
                self.last_id = line.removeprefix("id:").strip()
            yield line

    def until(self, type: str) -> dict[str, Any]:
        """The payload of the next message of a type."""
        for line in self._lines:
            if line.startswith("data:"):
                message = json.loads(line.removeprefix("data:"))
                if message.get("type") == type:
                    payload: dict[str, Any] = message["payload"]
                    return payload
        raise AssertionError(f"the stream ended without {type}")

    def rest(self) -> str:
        """All that still comes, until the server ends it."""
        return "\n".join(self._lines)


@contextmanager
def listening(door: LiveDoor, address: str, token: str, seen: str = "") -> Iterator[Listener]:
    headers = {"authorization": f"Bearer {token}"} | ({"last-event-id": seen} if seen else {})
    with httpx.stream("GET", f"{door.url}{address}", headers=headers, timeout=PATIENCE_SECONDS) as response:
        assert response.status_code == 200, response.read()
        yield Listener(response)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_listener_hears_of_what_the_rules_let_them_read_until_others_hold(guarded: LiveDoor, address: str) -> None:
    run(guarded, guarded.hw.set_document_rules([OWN]))
    _, token = make_token(guarded, scopes=["documents:read"])
    notes = guarded.hw.collection("notes")
    with listening(guarded, address, token) as heard:
        heard.until("subscribe_ack")
        run(guarded, notes.create({"owner": "bob"}, id="his"))
        run(guarded, notes.create({"owner": "ann"}, id="mine"))
        assert heard.until("event")["delta"]["id"] == "mine"
        run(guarded, guarded.hw.set_document_rules([DocumentRule(pattern="notes", read='owner == "eve"')]))
        assert "rules" in heard.until("resync-required")["reason"]
    with listening(guarded, address, token) as heard:
        heard.until("subscribe_ack")
        run(guarded, guarded.hw.set_document_rules([DocumentRule(pattern="notes", create="true")]))
        assert heard.until("error")["code"] == "not_allowed"


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_listener_who_was_told_of_a_gap_comes_back_as_browsers_do_and_begins_anew(
    guarded: LiveDoor, address: str
) -> None:
    _, token = make_token(guarded, scopes=["documents:read"])
    notes = guarded.hw.collection("notes")
    address = f"{address}&sendSnapshot=true"
    with listening(guarded, address, token) as heard:
        heard.until("snapshot")
        run(guarded, notes.create({"owner": "eve"}, id="hers"))
        heard.until("event")
        place = heard.last_id
        assert place
        run(guarded, guarded.hw.set_document_rules([DocumentRule(pattern="notes", read='owner == "eve"')]))
        heard.until("resync-required")
        assert heard.until("close") == {"code": 1013, "reason": "resync-required"}
        assert heard.rest().strip() == "", "the stream is over"
        assert heard.last_id == ""
    with listening(guarded, address, token, heard.last_id) as again:
        assert [one["id"] for one in again.until("snapshot")["documents"]] == ["hers"]
    with listening(guarded, address, token, place) as late:
        late.until("resync-required")
        assert late.until("close")["code"] == 1013
        assert late.last_id == ""


def test_a_listener_whose_filter_costs_too_much_for_a_document_does_not_come_back_to_it_for_ever(
    guarded: LiveDoor,
) -> None:
    _, token = make_token(guarded, scopes=["documents:read"])
    notes = guarded.hw.collection("notes")
    costly = " || ".join(f'text.contains("q{number}")' for number in range(60))
    address = f"{ADDRESSES[0]}&filter={quote(costly)}"
    with listening(guarded, address, token) as heard:
        heard.until("subscribe_ack")
        run(guarded, notes.create({"text": "q7"}, id="small"))
        heard.until("event")
        run(guarded, notes.create({"text": "x" * 250_000}, id="large"))
        assert heard.until("error")["code"] == "filter_too_large"
        assert heard.until("close")["code"] == 1008
        assert heard.last_id == ""
    run(guarded, notes.delete("large"))
    with listening(guarded, address, token, heard.last_id) as again:
        again.until("subscribe_ack")
        run(guarded, notes.create({"text": "q8"}, id="other"))
        assert again.until("event")["delta"]["id"] == "other"


def test_a_listener_of_a_server_that_stops_goes_on_at_another_from_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "headwater.db"
    first, second = Server(path), Server(path)
    address = "/realtime/sse?collection=notes"
    try:
        with (
            httpx.Client(base_url=second.url, timeout=PATIENCE_SECONDS) as client,
            httpx.stream("GET", f"{first.url}{address}", timeout=PATIENCE_SECONDS) as response,
        ):

            def create(name: str) -> None:
                made = client.post("/api/v1/databases/main/documents/notes", json={"id": name})
                assert made.status_code == 201, made.text

            heard = Listener(response)
            heard.until("subscribe_ack")
            create("before")
            heard.until("event")
            first.tell(signal.SIGTERM)
            rest = heard.rest()
            assert "resync-required" not in rest
            assert "1001" in rest
            create("meanwhile")
            headers = {"last-event-id": heard.last_id}
            with client.stream("GET", address, headers=headers) as again:
                assert Listener(again).until("event")["delta"]["id"] == "meanwhile"
    finally:
        first.stop()
        second.stop()


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_listener_who_is_cut_before_anything_happened_misses_nothing(guarded: LiveDoor, address: str) -> None:
    _, token = make_token(guarded, scopes=["documents:read"])
    notes = guarded.hw.collection("notes")
    with listening(guarded, address, token) as heard:
        heard.until("subscribe_ack")
    run(guarded, notes.create({"owner": "ann"}, id="meanwhile"))
    with listening(guarded, address, token, heard.last_id) as again:
        assert again.until("event")["delta"]["id"] == "meanwhile"
    with listening(guarded, f"{address}&sendSnapshot=true", token) as heard:
        heard.until("subscribe_ack")
        assert heard.last_id == "", "the snapshot is still to come, and is not behind any place"
        heard.until("snapshot")
        assert heard.last_id


def test_a_listener_of_a_room_who_is_cut_before_anything_was_said_misses_nothing(guarded: LiveDoor) -> None:
    _, token = make_token(guarded, scopes=["subscribe"])
    address = "/realtime/sse?room=lobby"
    for name in ("first", "second"):
        with listening(guarded, address, token) as heard:
            heard.until("join_ack")
        run(guarded, guarded.hw.room("lobby").send(name))
        with listening(guarded, address, token, heard.last_id) as again:
            assert again.until("room-message")["data"] == name
    with listening(guarded, f"{address}&since=beginning", token) as heard:
        heard.until("join_ack")
        assert heard.last_id == "", "the history is still to come"


@pytest.mark.parametrize(("include", "has_data", "has_document"), [("both", 1, 1), ("true", 0, 1), ("false", 0, 0)])
def test_a_listener_says_how_much_is_told(guarded: LiveDoor, include: str, has_data: bool, has_document: bool) -> None:
    _, token = make_token(guarded, scopes=["documents:read"])
    with listening(guarded, f"{ADDRESSES[0]}&includeData={include}", token) as heard:
        heard.until("subscribe_ack")
        run(guarded, guarded.hw.collection("notes").create({"owner": "ann"}, id="one"))
        delta = heard.until("event")["delta"]
    assert ("data" in delta["doc"], "document" in delta) == (has_data, has_document)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_listener_whose_right_is_withdrawn_is_not_kept(guarded: LiveDoor, address: str) -> None:
    _, token = make_token(guarded, scopes=["documents:read"])
    with listening(guarded, address, token) as heard:
        heard.until("subscribe_ack")
        run(guarded, guarded.hw.set_document_rules([DocumentRule(pattern="notes", create="true")]))
        heard.until("error")
        assert heard.until("close") == {"code": 1008, "reason": "not_allowed"}
        assert heard.rest().strip() == "", "the stream is over"


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_live_query_ends_with_the_token_that_it_came_with(guarded: LiveDoor, address: str) -> None:
    id, token = make_token(guarded, scopes=["documents:read"])
    with listening(guarded, address, token) as heard:
        heard.until("subscribe_ack")
        run(guarded, guarded.hw.access_tokens().revoke(id))
        assert heard.until("close") == {"code": 1008, "reason": "unauthenticated"}
    _, short = make_token(guarded, scopes=["documents:read"], lifetime_seconds=1.5)
    with listening(guarded, address, short) as heard:
        heard.until("subscribe_ack")
        run(guarded, guarded.hw.collection("notes").create({}, id="before"))
        assert heard.until("event")["delta"]["id"] == "before"
        assert "1008" in heard.rest()
    with httpx.Client(base_url=guarded.url) as client:
        refused = client.get(address, headers={"authorization": f"Bearer {short}"})
        assert refused.status_code == 401


@pytest.mark.parametrize("address", ADDRESSES)
def test_listening_to_documents_needs_the_right_to_read_them(guarded: LiveDoor, address: str) -> None:
    _, token = make_token(guarded, scopes=["subscribe", "consume"])
    with httpx.Client(base_url=guarded.url, headers={"authorization": f"Bearer {token}"}) as client:
        assert client.get(address).status_code == 403
        assert client.get("/realtime/sse?collection=notes&room=a").status_code == 400


@pytest.fixture(params=GUARDED_SERVINGS)
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveDoor]:
    door = LiveDoor(tmp_path / "headwater.db", GUARDED_SERVINGS[request.param])
    door.start()
    yield door
    door.stop()


REFUSED = [
    ("collection=notes&filter=a+%3D%3D", 400, "invalid_filter"),
    (f"collection=notes&filter={'(' * 30}", 400, "filter_too_large"),
    ("collection=rooms%2Fr1", 400, "invalid_name"),
    ("collection=secrets", 403, "not_allowed"),
    ("collection=_jobs", 403, "not_allowed"),
    ("collection=ruled", 403, "not_allowed"),
]


@pytest.mark.parametrize(("query", "status", "code"), REFUSED)
def test_a_live_query_that_is_refused_says_so_by_its_status(
    served: LiveDoor, query: str, status: int, code: str
) -> None:
    run(served, served.hw.set_document_rules([DocumentRule(pattern="ruled", create="true")]))
    queues = ["documents/notes", "documents/ruled", "documents/_jobs"]
    _, token = make_token(served, scopes=["documents:read"], queues=queues)
    with served.client(headers={"authorization": f"Bearer {token}"}) as client:
        for place in ("/realtime/sse", "/realtime/v1/databases/main/sse"):
            refused = client.get(f"{place}?{query}")
            assert (refused.status_code, refused.json()["code"]) == (status, code), refused.text
            assert refused.headers["content-type"] == "application/problem+json"


def test_a_listener_too_many_of_one_token_is_refused_by_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_REALTIME_CONNECTIONS_PER_TOKEN_MAX", "1")
    door = LiveDoor(tmp_path / "headwater.db", behind_guards)
    door.start()
    _, token = make_token(door, scopes=["documents:read", "subscribe"])
    try:
        with (
            listening(door, ADDRESSES[0], token) as heard,
            httpx.Client(base_url=door.url, headers={"authorization": f"Bearer {token}"}) as client,
        ):
            heard.until("subscribe_ack")
            for address in (*ADDRESSES, "/realtime/sse?room=lobby"):
                refused = client.get(address)
                assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
    finally:
        door.stop()


def test_who_waits_on_a_log_is_not_given_what_new_rules_keep_from_them(guarded: LiveDoor) -> None:
    """`/v1/segments` has documents whole; a wait that began before there were rules must not outlast them."""
    _, token = make_token(guarded, scopes=["documents:read", "subscribe"])
    notes = guarded.hw.collection("notes")
    run(guarded, notes.create({"owner": "bob"}, id="first"))
    headers = {"authorization": f"Bearer {token}"}
    address = "/v1/segments?queue=headwater/documents/notes"
    with httpx.Client(base_url=guarded.url, headers=headers, timeout=PATIENCE_SECONDS) as client:
        read = client.get(f"{address}&after=0").json()
        assert "first" in str(read["segments"])

        async def is_waiting() -> bool:
            return bool(guarded.hw.queues_service.followers.under_way)

        async def wait_and_change() -> tuple[int, str]:
            waiting = asyncio.ensure_future(
                asyncio.to_thread(client.get, f"{address}&after={read['through']}&wait_seconds=20")
            )
            await expect_soon_async(is_waiting)
            await guarded.hw.set_document_rules([OWN])
            await notes.create({"owner": "bob", "secret": "x"}, id="second")
            answer = await waiting
            return answer.status_code, answer.text

        status, text = run(guarded, wait_and_change())
        assert (status, "secret" in text) == (404, False)
        assert client.get(f"{address}&after=0").status_code == 403


@pytest.fixture(params=SERVINGS)
def open_door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveDoor]:
    door = LiveDoor(tmp_path / "headwater.db", SERVINGS[request.param])
    door.start()
    yield door
    door.stop()


async def write_together(door: LiveDoor, count: int, size: int) -> None:
    async with door.hw.transaction() as together:
        for number in range(count):
            together.collection("notes").set(f"n{number}", {"text": "x" * size})


@pytest.mark.parametrize(("count", "size"), [(3, 250_000), (500, 2_000), (6, 250_000)])
def test_one_commit_lets_nobody_go_who_reads(open_door: LiveDoor, count: int, size: int) -> None:
    """It may bring more at once than may wait for a client."""
    with (
        listening(open_door, ADDRESSES[0], "none") as heard,
        joined(open_door.url, compression=None) as guest,
    ):
        heard.until("subscribe_ack")
        guest.ask("subscribe", query={"collection": "notes"}, includeData=True)
        for _ in range(2):
            run(open_door, write_together(open_door, count, size))
            for number in range(count):
                assert heard.until("event")["delta"]["id"] == f"n{number}"
                assert guest.until("event")["delta"]["doc"]["path"] == f"notes/n{number}"


# What a client takes within this is long over in a test: nothing else ends those who take nothing.
FOR_EVER = 86_400.0
SILENT_SERVINGS: dict[str, Serving] = {
    "edge": partial(on_the_edge, limits=Limits(send_seconds=FOR_EVER, stuck_seconds=FOR_EVER)),
    "asgi": inside_another_app,
}


def pressure(door: LiveDoor) -> str:
    with door.client() as client:
        lines = client.get("/metrics").text.splitlines()
    return next(line.rpartition(" ")[2] for line in lines if line.startswith("headwater_realtime_pressure"))


@pytest.mark.parametrize("serving", SILENT_SERVINGS)
def test_listeners_who_take_nothing_are_cut_off_when_there_is_no_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, serving: str
) -> None:
    """S3-20, S3-21: what was on its way to them kept a server without room until the connection was given up."""
    monkeypatch.setenv("HEADWATER_REALTIME_OUTBOXES_BYTES_MAX", str(2 * MIB))
    caplog.set_level("INFO", "headwater")
    door = LiveDoor(tmp_path / "headwater.db", SILENT_SERVINGS[serving])
    door.start()
    with ExitStack() as ending:
        ending.callback(door.stop)
        # More than the system takes in for a client that reads nothing.
        run(door, write_together(door, 40, 250_000))
        address = urlsplit(door.url)
        for _ in range(8):
            silent = ending.enter_context(socket.socket())
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            silent.connect((address.hostname, address.port))
            path = f"{address.path}{ADDRESSES[0]}&sendSnapshot=true"
            silent.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        expect_soon(lambda: any("takes nothing is let go" in line for line in caplog.messages))
        expect_soon(lambda: float(pressure(door)) == Pressure.CALM)
        with joined(door.url) as neighbour:
            neighbour.ask("subscribe", query={"collection": "others"})


def test_a_client_that_takes_nothing_is_let_go_once_that_lasts() -> None:
    slowness, now = Slowness(100), 10.0
    assert not slowness.is_too_much(0, 10_000), "alone it may be of any size"
    assert not slowness.is_too_much(60, 40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now)
        assert not slowness.is_too_much(700, 100)
        assert slowness.is_too_much(700, 101), "many times as much is too much at once"
        now = 11.5
        assert slowness.is_too_much(100, 1), "it has not taken anything for a while"
        assert not slowness.is_too_much(50, 1)
        assert not slowness.is_too_much(100, 1), "it reads again"
