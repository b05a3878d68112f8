"""Servers on one store in a bucket: one holds it, the others hand on to it, and take over when it is gone."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.contracts.factories import in_memory
from tests.doors.realtime.guests import joined
from tests.scenarios.servers import Server
from tests.waiting import expect_soon

PATIENCE_SECONDS = 60.0


def push(server: Server, payload: object) -> httpx.Response:
    item = {"queue": "orders", "payload": payload}
    return httpx.post(f"{server.url}/api/v1/push", json={"items": [item]}, timeout=PATIENCE_SECONDS)


def push_until_taken(server: Server, payload: object) -> None:
    """A broker whose holder has gone says so, until it holds the store itself."""
    expect_soon(lambda: push(server, payload).is_success, seconds=PATIENCE_SECONDS)


def pop(server: Server, **query: str | int) -> list[Any]:
    asked: dict[str, str | int] = {"batch": 100, "autoAck": "true", "wait": "false", **query}
    answer = httpx.get(f"{server.url}/api/v1/pop/queue/orders", params=asked, timeout=PATIENCE_SECONDS)
    return [message["data"] for message in answer.json()["messages"]] if answer.status_code == 200 else []


def holds(server: Server) -> bool:
    return number_of(server, "bucket_holds_store") == 1


def number_of(server: Server, name: str) -> float:
    """One of its metrics, as whoever draws a line through all servers asks for it."""
    text = httpx.get(f"{server.url}/metrics", timeout=PATIENCE_SECONDS).text
    (line,) = [line for line in text.splitlines() if line.startswith(f'headwater_{name}{{process="0"}} ')]
    return float(line.rpartition(" ")[2])


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """Two that are not started yet. The first one is to be started first."""
    with in_memory() as folder:
        address = f"file://{folder}/log.sqlite?lease_seconds=1"
        one, other = (Server(address, starts=False) for _ in range(2))
        try:
            yield one, other
        finally:
            for server in (one, other):
                if server.is_started:
                    server.wake()
                    server.stop()


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    return thread, found


def test_both_servers_serve_reads_and_writes_while_one_holds_the_store(servers: tuple[Server, Server]) -> None:
    one, other = servers
    one.start()
    assert push(one, 1).is_success
    other.start()
    assert (holds(one), holds(other)) == (True, False)
    assert push(other, 2).is_success
    assert pop(other) == [1, 2]
    # A pop that waits at the one is given what is pushed through the other.
    waiting, found = in_thread(lambda: pop(other, wait="true", timeout=30_000))
    assert push(one, 3).is_success
    waiting.join(PATIENCE_SECONDS)
    assert found == [[3]]
    # What was refused there is refused here, in the same words.
    refused = [httpx.post(f"{server.url}/api/v1/push", json={"items": 5}, timeout=30) for server in (one, other)]
    assert [answer.status_code for answer in refused] == [400, 400]
    assert refused[0].json()["detail"] == refused[1].json()["detail"]
    with joined(other.url) as guest:
        guest.say("join", room="a")
        guest.until("join_ack")
        body = {"type": "test", "data": {"text": "grüße"}}
        httpx.post(f"{one.url}/api/v1/rooms/a/messages", json=body, timeout=30).raise_for_status()
        assert guest.until("room-message")["data"] == {"text": "grüße"}


def test_a_server_takes_over_from_one_that_is_killed_or_leaves_and_the_other_hands_on(
    servers: tuple[Server, Server],
) -> None:
    one, other = servers
    one.start()
    push(one, 1)
    other.start()
    one.kill()
    push_until_taken(other, 2)
    assert holds(other)
    one.start()
    assert not holds(one)
    assert pop(one) == [1, 2]
    other.stop()
    push_until_taken(one, 3)
    assert holds(one)
    assert pop(one) == [3]


def test_a_server_that_slept_and_wakes_tells_what_the_new_holder_wrote(
    servers: tuple[Server, Server], capfd: pytest.CaptureFixture[str]
) -> None:
    one, other = servers
    one.start()
    push(one, 1)
    other.start()
    one.sleep()
    push_until_taken(other, 2)
    assert pop(other) == [1, 2]
    assert push(other, 3).is_success
    one.wake()
    # From the moment on at which it wakes: nothing is popped twice, and nothing of before is told.
    answered: list[Any] = []

    def has_answered() -> bool:
        answered.extend(pop(one))
        return bool(answered)

    expect_soon(has_answered, seconds=PATIENCE_SECONDS)
    assert answered == [3]
    assert (holds(one), holds(other)) == (False, True)
    # Nothing has failed: that the store is another's is a line in the log.
    told = capfd.readouterr().err
    assert "holds the store: this one hands on to it" in told
    assert '"level":"error"' not in told
    assert "Traceback" not in told


@pytest.mark.parametrize("ship", ["chain", "image"])
def test_what_a_server_that_stands_by_asks_of_the_bucket_is_counted(servers: tuple[Server, Server], ship: str) -> None:
    one, other = servers
    one._store = other._store = f"{one._store}&ship={ship}"
    one.start()
    push(one, 1)
    other.start()
    before = number_of(other, "bucket_gets_total")
    expect_soon(lambda: number_of(other, "bucket_gets_total") > before, seconds=PATIENCE_SECONDS)
    assert number_of(other, "bucket_puts_total") == 0
    assert number_of(other, "bucket_cost_total") > 0
    assert number_of(one, "bucket_puts_total") > 0


def test_a_holder_that_cannot_be_reached_is_named(servers: tuple[Server, Server]) -> None:
    one, other = servers
    one._options = ("--advertise", "http://127.0.0.1:9")
    one.start()
    other.start()
    answer = push(other, 1)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    told = json.loads(answer.text)
    assert told["code"] == "store_busy"
    assert "http://127.0.0.1:9" in told["detail"]


# ── who is let in ──


def make_token(server: Server) -> str:
    """Before anybody holds the store."""
    command = [sys.executable, "-m", "headwater.cli", "--store", str(server._store), "token", "create", "someone"]
    made = subprocess.run(
        [*command, "--scope", "admin"], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    return made.stdout.strip().splitlines()[-1]


def answers_of(server: Server, headers: dict[str, str]) -> list[int]:
    """Through every door: a write, a pop that waits, a stream of events, metrics, a WebSocket that is opened."""
    item = {"queue": "orders", "payload": "through the port"}
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_SECONDS) as client:
        found = [
            client.post("/api/v1/push", json={"items": [item]}).status_code,
            client.get("/api/v1/pop/queue/orders?wait=true&timeout=1000&autoAck=true").status_code,
            client.get("/metrics").status_code,
        ]
        for path, more in (
            ("/realtime/sse", {}),
            ("/realtime/ws", {**upgrade, "sec-websocket-key": "c2l4dGVlbiBsZXR0ZXJzIQ=="}),
        ):
            with client.stream("GET", path, headers=more) as answer:
                found.append(answer.status_code)
        return found


@pytest.mark.parametrize("ship", ["chain", "image"])
@pytest.mark.parametrize(("theirs", "own"), [((), ("--auth", "token")), (("--auth", "token"), ())])
def test_a_server_hands_nothing_on_to_a_holder_that_lets_others_in(
    servers: tuple[Server, Server], theirs: tuple[str, ...], own: tuple[str, ...], ship: str
) -> None:
    one, other = servers
    one._store = other._store = f"{one._store}&ship={ship}"
    token = make_token(one)
    one._options, other._options = theirs, own
    one.start()
    other.start()
    for headers in ({}, {"authorization": f"Bearer {token}"}):
        # What it says of itself to anybody it says without asking the holder.
        is_open = 200 if not own else 503
        assert answers_of(other, headers) == [503, 503, is_open, 503, 503]
    with httpx.Client(base_url=one.url, headers={"authorization": f"Bearer {token}"}, timeout=30) as client:
        assert client.get("/api/v1/pop/queue/orders?wait=false").status_code == 204


def test_who_is_asked_at_the_holder_is_asked_at_a_server_that_stands_by(servers: tuple[Server, Server]) -> None:
    one, other = servers
    token = make_token(one)
    one._options = other._options = ("--auth", "token")
    one.start()
    other.start()
    # A page says who it is in its first message.
    assert answers_of(other, {}) == [401, 401, 401, 401, 101]
    assert answers_of(other, {"authorization": f"Bearer {token}"})[:3] == [201, 200, 200]
