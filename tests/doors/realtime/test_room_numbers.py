"""Numbers in rooms that are larger, smaller or finer than programs can hold: as data they are carried as they were
written, on every way out; as offsets, limits and settings they are taken for what they are, or refused with a code."""

import json
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from msgspec import Raw

from headwater.errors import ConfigError
from headwater.model.room import RoomMessage
from headwater.model.room_settings import RoomSettings, load_room_settings
from tests.doors.conftest import MakeDoor
from tests.doors.live_door import PATIENCE_SECONDS, LiveDoor
from tests.doors.realtime.guests import Guest, joined

# What JSON can write, and Python's value of it.
NUMBERS: dict[str, Any] = {
    "9007199254740993": 2**53 + 1,
    "9223372036854775807": 2**63 - 1,
    "9223372036854775808": 2**63,
    "-9223372036854775809": -(2**63) - 1,
    "18446744073709551616": 2**64,
    "-0": 0,
    "-0.0": -0.0,
    "1E5": 1e5,
    "0.1000000000000000055511151231257827": 0.1,
    "1e308": 1e308,
    "5e-324": 5e-324,
    "1e-400": 0.0,
    "1e400": Decimal("1e400"),
    "-1e400": Decimal("-1e400"),
    "1e999999999": Decimal("1e999999999"),
    "1" * 5_000: Decimal("1" * 5_000),
}
NOT_JSON = ("NaN", "Infinity", "-Infinity", "01", "1.", ".5", "+1", "0x10", "1e", "--1", "1_000")
# Of a query these are whole numbers, however they are written.
WHOLE = ("1.0", "1e3")
BEYOND = (2**53, 2**63 - 1, 2**63, 2**64, 10**30)


def raw_send(guest: Guest, data: str, type: str = "test") -> None:
    guest.connection.send(f'{{"id":"x","type":"send","payload":{{"room":"a","type":"{type}","data":{data}}}}}')


def raw_until(guest: Guest, type: str) -> str:
    """The text of the next message of a type, byte for byte."""
    while True:
        text = guest.connection.recv(PATIENCE_SECONDS)
        assert isinstance(text, str)
        if json.loads(text, parse_int=str, parse_float=str)["type"] == type:
            return text


def value_of(text: str) -> str:
    """The data of a message as it is written."""
    _, _, rest = text.partition('"data":')
    return rest.partition(',"from"')[0]


def test_a_number_goes_to_everybody_as_it_was_written(door: LiveDoor, client: httpx.Client) -> None:
    with joined(door.url) as ann, joined(door.url) as bob:
        for guest in (ann, bob):
            guest.ask("join", room="a")
        for number in NUMBERS:
            raw_send(bob, number)
            assert value_of(raw_until(ann, "room-message")) == number
            raw_send(bob, f'{{"deep":[{number}]}}')
            assert value_of(raw_until(ann, "room-message")) == f'{{"deep":[{number}]}}'
    kept = client.get("/api/v1/rooms/a/messages", params={"limit": 1_000}).text
    for number in NUMBERS:
        assert f'"data":{number},' in kept
    with httpx.stream("GET", f"{door.url}/realtime/sse?room=a&since=beginning", timeout=PATIENCE_SECONDS) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data:") and "room-message" in line)
        assert [value_of(next(lines)) for _ in range(2 * len(NUMBERS))][::2] == list(NUMBERS)


def test_numbers_over_http_are_kept_as_they_were_written(client: httpx.Client) -> None:
    for number in NUMBERS:
        body = f'{{"type":"test","data":{number}}}'
        sent = client.post("/api/v1/rooms/a/messages", content=body, headers={"content-type": "application/json"})
        assert sent.status_code == 201, sent.text
    kept = client.get("/api/v1/rooms/a/messages", params={"limit": 1_000}).text
    assert [f'"data":{number},' in kept for number in NUMBERS] == [True] * len(NUMBERS)


@pytest.mark.parametrize("coalescing", ["latest", "merge"])
def test_numbers_of_messages_that_are_gathered_are_not_touched(make_door: MakeDoor, coalescing: str) -> None:
    door = make_door(rooms={"types": {"fast": {"coalescing": coalescing}}, "cursor_batch_interval": 20})
    with joined(door.url) as ann:
        ann.ask("join", room="a")
        for number in NUMBERS:
            raw_send(ann, f'{{"n":{number}}}', "fast")
            assert value_of(raw_until(ann, "room-message")) == f'{{"n":{number}}}'
            raw_send(ann, f'{{"x":{number},"y":-0}}', "cursor")
            assert f'"x":{number},"y":-0' in raw_until(ann, "room-message")


def test_what_is_no_number_is_refused_and_the_conversation_goes_on(door: LiveDoor, client: httpx.Client) -> None:
    with joined(door.url) as ann:
        ann.ask("join", room="a")
        for text in NOT_JSON:
            raw_send(ann, text)
            assert ann.until("error")["code"] == "invalid_input", text
            refused = client.post(
                "/api/v1/rooms/a/messages",
                content=f'{{"type":"test","data":{text}}}',
                headers={"content-type": "application/json"},
            )
            assert refused.status_code == 400, text
        raw_send(ann, "1")
        assert ann.until("room-message")["offset"] == 0


def test_an_offset_that_no_log_reaches_is_one_that_never_was(door: LiveDoor, client: httpx.Client) -> None:
    client.post("/api/v1/rooms/a/messages", json={"type": "test", "data": 0})
    with joined(door.url) as ann:
        for since in BEYOND:
            for said in (since, str(since)):
                assert ann.ask("join", room="a", since=said)["type"] == "join_ack"
                told = ann.until("resync-required")
                assert told == {"room": "a", "reason": "unknown offset", "offset": -1}
                assert ann.until("room-message")["offset"] == 0
    for since in BEYOND:
        told_by_http = client.get("/api/v1/rooms/a/messages", params={"since": since})
        assert (told_by_http.status_code, told_by_http.json()["code"]) == (409, "resync-required"), since
        with httpx.stream("GET", f"{door.url}/realtime/sse?room=a&since={since}", timeout=PATIENCE_SECONDS) as stream:
            names = (line for line in stream.iter_lines() if line.startswith("event:"))
            assert [next(names) for _ in range(3)] == [
                "event: join_ack",
                "event: resync-required",
                "event: room-message",
            ]


def test_nothing_was_said_in_a_room_that_nobody_was_in(door: LiveDoor, client: httpx.Client) -> None:
    """Not even a message with offset 0."""
    told = client.get("/api/v1/rooms/empty/messages", params={"since": 0})
    assert (told.status_code, told.json()["code"]) == (409, "resync-required")
    assert client.get("/api/v1/rooms/empty/messages", params={"since": -1}).json()["messages"] == []
    with joined(door.url) as ann:
        ann.ask("join", room="empty", since=0)
        assert ann.until("resync-required")["reason"] == "unknown offset"


@pytest.mark.parametrize("since", [*WHOLE, "-2", "NaN", "9" * 5_000, "%D9%A3", "-0x1"])
def test_a_place_that_is_none_is_refused_with_a_code(door: LiveDoor, client: httpx.Client, since: str) -> None:
    refused = client.get(f"/realtime/sse?room=a&since={since}")
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_option")
    if since not in WHOLE:
        assert client.get(f"/api/v1/rooms/a/messages?since={since}").status_code == 400
    with joined(door.url) as ann:
        refused_there = ann.ask("join", room="a", since=unquote(since))
        assert refused_there["payload"]["code"] == "invalid_option"
        for number in ("1e400", "1.5", "9" * 5_000):
            ann.connection.send(f'{{"id":"y","type":"join","payload":{{"room":"a","since":{number}}}}}')
            assert ann.until("error")["code"] == "invalid_input"
        assert ann.ask("join", room="a")["type"] == "join_ack"


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "1.5", str(2**63), str(10**30), "NaN"])
def test_a_limit_beyond_its_bounds_is_refused(client: httpx.Client, limit: str) -> None:
    refused = client.get(f"/api/v1/rooms/a/messages?limit={limit}")
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_input")


def test_an_id_is_answered_as_it_was_said(door: LiveDoor) -> None:
    with joined(door.url) as ann:
        for id in ("9007199254740993", "18446744073709551616", "-9223372036854775809", '"9007199254740993"'):
            ann.connection.send(f'{{"id":{id},"type":"auth"}}')
            assert f'"id":{id},' in raw_until(ann, "auth_ack")


NAMES = [name for name, kind in RoomSettings.__annotations__.items() if kind in (int, float)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", "1e300", "0", "-0.0", "-1", str(2**63), "9" * 400])
def test_a_setting_that_is_no_sensible_number_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load_room_settings({}, {f"HEADWATER_{name.upper()}": value})


def test_python_gets_every_number_that_python_has_and_a_decimal_of_others() -> None:
    for text, value in NUMBERS.items():
        message = RoomMessage("a", "test", Raw(text.encode()), "", 0)
        assert (message.payload, str(message.payload)) == (value, str(value)), text
        assert message.data_text() == text
