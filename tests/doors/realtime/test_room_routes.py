"""Rooms over HTTP: send, read, see who is there, and listen to server-sent events."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.doors.conftest import Arrangement
from tests.doors.live_door import PATIENCE_SECONDS, LiveDoor
from tests.doors.realtime.guests import joined
from tests.waiting import expect_soon


def test_a_message_over_http_reaches_members_and_is_kept(
    door: LiveDoor, client: httpx.Client, arrangement: Arrangement
) -> None:
    with joined(door.url) as ann:
        ann.ask("join", room="a")
        sent = client.post("/api/v1/rooms/a/messages", json={"type": "object-create", "data": {"id": 1}})
        assert (sent.status_code, sent.json()) == (201, {"offset": 0, "durability": arrangement.written})
        assert ann.until("room-message")["data"] == {"id": 1}
    passed = client.post("/api/v1/rooms/a/messages", json={"type": "test", "durability": "memory"})
    assert passed.json() == {"offset": None, "durability": "memory"}
    synced = client.post("/api/v1/rooms/a/messages", json={"type": "test", "durability": "synced"})
    assert synced.json() == {"offset": 1, "durability": "synced"}
    kept = client.get("/api/v1/rooms/a/messages").json()
    assert kept["offset"] == 1
    assert [(one["offset"], one["type"], one["data"]) for one in kept["messages"]] == [
        (0, "object-create", {"id": 1}),
        (1, "test", None),
    ]


def test_history_is_read_a_page_at_a_time(client: httpx.Client) -> None:
    for number in range(7):
        client.post("/api/v1/rooms/a/messages", json={"type": "test", "data": number})
    seen: list[int] = []
    since = -1
    while page := client.get("/api/v1/rooms/a/messages", params={"since": since, "limit": 3}).json()["messages"]:
        assert len(page) <= 3
        seen += [one["data"] for one in page]
        since = page[-1]["offset"]
    assert seen == list(range(7))
    beyond = client.get("/api/v1/rooms/a/messages", params={"since": 99})
    assert (beyond.status_code, beyond.json()["code"]) == (409, "resync-required")
    assert client.get("/api/v1/rooms/empty/messages").json() == {"messages": [], "offset": -1, "epoch": ""}


def test_history_has_as_many_messages_as_are_asked_for(client: httpx.Client) -> None:
    for number in range(130):
        client.post("/api/v1/rooms/a/messages", json={"type": "test", "data": number})
    for large in range(3):
        client.post("/api/v1/rooms/a/messages", json={"type": "test", "data": str(large) * 200_000})
    whole = client.get("/api/v1/rooms/a/messages", params={"limit": 1_000}).json()["messages"]
    assert [one["offset"] for one in whole] == list(range(133))
    some = client.get("/api/v1/rooms/a/messages", params={"since": 9, "limit": 110}).json()["messages"]
    assert [one["offset"] for one in some] == list(range(10, 120))


def test_who_is_there_is_told_over_http(door: LiveDoor, client: httpx.Client) -> None:
    assert client.get("/api/v1/rooms/a/members").json() == {"members": [], "count": 0}
    with joined(door.url) as ann, joined(door.url) as bob:
        ann.ask("join", room="a", profile={"name": "Ann"})
        bob.ask("join", room="a", profile={"name": "Bob"})
        ann.until("presence")
        told = client.get("/api/v1/rooms/a/members").json()
        assert told["count"] == 2
        assert {one["profile"]["name"] for one in told["members"]} == {"Ann", "Bob"}


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/api/v1/rooms/a/messages", {"type": "cursor", "data": {}}, "invalid_option"),
        ("POST", "/api/v1/rooms/a/messages", {"type": "presence", "data": {}}, "invalid_input"),
        ("POST", "/api/v1/rooms/a/messages", {"data": {}}, "invalid_input"),
        ("POST", "/api/v1/rooms/a%20b/messages", {"type": "test"}, "invalid_name"),
        ("GET", "/api/v1/rooms/a/messages?since=-2", None, "invalid_input"),
        ("GET", "/api/v1/rooms/a/messages?limit=0", None, "invalid_input"),
        ("GET", "/realtime/sse", None, "invalid_name"),
        ("GET", "/realtime/sse?room=a&since=then", None, "invalid_option"),
    ],
)
def test_what_cannot_be_is_refused(client: httpx.Client, method: str, path: str, body: object, code: str) -> None:
    refused = client.request(method, path, json=body)
    assert (refused.status_code, refused.json()["code"]) == (400, code)


# ── only listening ──


@contextmanager
def listening(url: str, query: str, **headers: str) -> Iterator[Iterator[tuple[str, str, Any]]]:
    """Events of a room: id, name and data."""
    with httpx.stream("GET", f"{url}/realtime/sse?{query}", headers=headers, timeout=PATIENCE_SECONDS) as stream:
        stream.raise_for_status()
        yield events(stream.iter_lines())


def events(lines: Iterator[str]) -> Iterator[tuple[str, str, Any]]:
    event: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if not line and "data" in event:
            yield event.get("id", ""), event["event"], json.loads(event["data"])
        event = {} if not line else {**event, name: value}


def test_one_who_only_listens_hears_everything_and_is_not_seen(door: LiveDoor, client: httpx.Client) -> None:
    client.post("/api/v1/rooms/a/messages", json={"type": "test", "data": 0})
    with listening(door.url, "room=a&since=beginning") as heard:
        _, name, ack = next(heard)
        assert (name, ack["payload"]["offset"]) == ("join_ack", 0)
        with joined(door.url) as ann:
            assert ann.ask("join", room="a")["payload"]["count"] == 1
            ann.say("send", room="a", type="test", data=1)
            found = [next(heard) for _ in range(3)]
    told = [(id, one["payload"]["data"]) for id, name, one in found if name == "room-message"]
    epoch = ack["payload"]["epoch"]
    assert told == [(f"0@{epoch}", 0), (f"1@{epoch}", 1)]


def test_a_listener_that_comes_back_says_the_last_it_saw(door: LiveDoor, client: httpx.Client) -> None:
    for number in range(4):
        client.post("/api/v1/rooms/a/messages", json={"type": "test", "data": number})
    with listening(door.url, "room=a", **{"last-event-id": "1"}) as heard:
        next(heard)
        assert [next(heard)[2]["payload"]["data"] for _ in range(2)] == [2, 3]


def test_rooms_are_told_in_the_numbers_that_people_know(door: LiveDoor, client: httpx.Client) -> None:
    """S0-57, S0-71, S0-53."""
    with joined(door.url) as ann:
        ann.ask("join", room="a")
        for number in range(3):
            ann.say("send", room="a", type="test", data=number)
            assert ann.until("room-message")["data"] == number
        found = client.get("/api/v1/rooms").json()
        text = client.get("/metrics").text
    assert (found["queue-size"], found["rooms"], found["members"]) == (3, 1, 1)
    assert (found["state"], found["undelivered"], found["active-polling-threads"]) == ("healthy", 0, 1)
    assert found["messages-per-second"] > 0
    assert found["average-poll-latency-ms"] >= 0
    assert 0 <= found["oldest-message-age-seconds"] < 60
    assert 'headwater_rooms{process="0"} 1.0' in text
    assert 'headwater_room_messages_sent_total{process="0"} 3.0' in text
    numbers = dict(re.findall(r'headwater_rooms_(\w+)\{process="0"\} (\S+)', text))
    assert (numbers["members"], numbers["polling_threads"], numbers["state"]) == ("1.0", "1.0", "0.0")
    assert float(numbers["messages_per_second"]) > 0
    assert 0 <= float(numbers["poll_latency_seconds"]) < 60


def test_nothing_is_said_by_any_way_while_pushes_are_held_off(door: LiveDoor, client: httpx.Client) -> None:
    with joined(door.url) as ann:
        ann.ask("join", room="a")
        assert ann.ask("send", room="a", type="test", data=1)["type"] == "send_ack"
        client.post("/api/v1/system/maintenance", json={"enabled": True})

        def refused() -> bool:
            answer = ann.ask("send", room="a", type="test", data=2)
            return answer["type"] == "error" and "maintenance" in answer["payload"]["message"]

        # A server may go by what it knew a second ago.
        expect_soon(refused)
        over_http = client.post("/api/v1/rooms/a/messages", json={"type": "test", "data": 3})
        assert (over_http.status_code, over_http.json()["code"]) == (503, "maintenance")
        client.post("/api/v1/system/maintenance", json={"enabled": False})
        expect_soon(lambda: ann.ask("send", room="a", type="test", data=4)["type"] == "send_ack")
    kept = [one["data"] for one in client.get("/api/v1/rooms/a/messages").json()["messages"]]
    assert 3 not in kept
    assert (kept[0], kept[-1]) == (1, 4)


def test_history_has_as_many_messages_as_were_asked_for(client: httpx.Client) -> None:
    for number in range(230):
        client.post("/api/v1/rooms/a/messages", json={"type": "test", "data": number})
    answer = client.get("/api/v1/rooms/a/messages?limit=1000").json()
    assert [one["data"] for one in answer["messages"]] == list(range(230))
    assert answer["offset"] == 229
    answer = client.get("/api/v1/rooms/a/messages?limit=150&since=9").json()
    assert [one["data"] for one in answer["messages"]] == list(range(10, 160))
