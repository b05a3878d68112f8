"""Filters that speak of who asks (`auth.…`) mean the same over every way in: REST, our own wire, server-sent events and
WebSockets, whatever carries them."""

import asyncio
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

import headwater
from headwater.errors import InvalidFilter
from tests.doors.live_door import GUARDED_SERVINGS, LiveDoor
from tests.doors.realtime.guests import PATIENCE_SECONDS, joined
from tests.doors.realtime.test_listeners import listening

MINE = "to == auth.sub"
BASE = "/api/v1/databases/main"
Found = TypeVar("Found")


@pytest.fixture(params=GUARDED_SERVINGS)
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveDoor]:
    """A server that asks for tokens, with a message for each of two people and one for nobody."""
    serving = LiveDoor(tmp_path / "headwater.db", GUARDED_SERVINGS[request.param])
    serving.start()
    for to in ("ann", "bob", None):
        run(serving, serving.hw.collection("mails").create({"to": to}, id=f"for-{to}"))
    yield serving
    serving.stop()


def run(door: LiveDoor, doing: Awaitable[Found]) -> Found:
    async def done() -> Found:
        return await doing

    return asyncio.run_coroutine_threadsafe(done(), door.loop).result(PATIENCE_SECONDS)


def token_of(door: LiveDoor, name: str) -> str:
    scopes = ["documents:read", "subscribe", "consume", "metrics"]
    _, text = run(door, door.hw.access_tokens().create(name, scopes))
    return text


def client_of(door: LiveDoor, token: str) -> httpx.Client:
    return door.client(headers={"authorization": f"Bearer {token}"})


def ids(documents: list[dict[str, Any]]) -> list[str]:
    return [one["id"] for one in documents]


@pytest.mark.parametrize("name", ["ann", "bob"])
def test_a_query_may_speak_of_who_asks_over_every_route(door: LiveDoor, name: str) -> None:
    token = token_of(door, name)
    body = {"collection": "mails", "filter": MINE}
    with client_of(door, token) as client:
        for route in (f"{BASE}/query", "/trigger/v1/databases/main/query"):
            assert ids(client.post(route, json=body).raise_for_status().json()["docs"]) == [f"for-{name}"]
        page = client.post("/v1/questions/query-documents", json={"query": body}).raise_for_status().json()
        assert ids(page["documents"]) == [f"for-{name}"]

    async def over_the_client() -> list[str]:
        async with headwater.connect(door.url, token=token) as hw:
            return [one.id for one in await hw.collection("mails").query(MINE)]

    assert asyncio.run(over_the_client()) == [f"for-{name}"]


def test_a_query_of_who_asks_goes_on_behind_its_cursor_and_along_an_index(door: LiveDoor) -> None:
    mails = door.hw.collection("mails")
    run(door, mails.index("to"))
    for number in range(5):
        run(door, mails.create({"to": "ann"}, id=f"more-{number}"))
    found: list[str] = []
    with client_of(door, token_of(door, "ann")) as client:
        body: dict[str, Any] = {"collection": "mails", "filter": MINE, "limit": 2}
        for _ in range(4):
            answer = client.post(f"{BASE}/query", json=body).raise_for_status().json()
            found += ids(answer["docs"])
            body["startAfter"] = answer["nextCursor"]
            if not answer["nextCursor"]:
                break
        wire = {"query": {"collection": "mails", "filter": MINE}}
        page = client.post("/v1/questions/query-documents", json=wire).json()
    assert found == ["for-ann", *(f"more-{number}" for number in range(5))]
    assert page["scanned"] == 6


def test_a_system_collection_is_asked_for_by_who_asks(door: LiveDoor) -> None:
    run(door, door.hw.queue("ann").push(1))
    run(door, door.hw.queue("bob").push(1))
    with client_of(door, token_of(door, "ann")) as client:
        body = {"collection": "_queues", "filter": "queue == auth.sub"}
        assert ids(client.post(f"{BASE}/query", json=body).raise_for_status().json()["docs"]) == ["ann"]


def test_a_caller_cannot_bring_claims(door: LiveDoor) -> None:
    body = {"query": {"collection": "mails", "filter": MINE}, "claims": '{"sub": "bob"}'}
    with client_of(door, token_of(door, "ann")) as client:
        assert client.post("/v1/questions/query-documents", json=body).status_code == 400


def test_a_live_query_of_who_asks_is_told_the_same_over_both_ways(door: LiveDoor) -> None:
    token = token_of(door, "ann")
    address = f"/realtime/sse?collection=mails&sendSnapshot=true&filter={MINE.replace(' ', '%20')}"
    with listening(door, address, token) as heard, joined(door.url) as guest:
        assert ids(heard.until("snapshot")["documents"]) == ["for-ann"]
        guest.ask("auth", token=token)
        guest.say("subscribe", query={"collection": "mails", "filter": MINE}, sendSnapshot=True)
        assert ids(guest.until("snapshot")["documents"]) == ["for-ann"]
        for to in ("bob", None, "ann"):
            run(door, door.hw.collection("mails").create({"to": to}, id=f"new-for-{to}"))
        assert heard.until("event")["delta"]["doc"]["path"] == "mails/new-for-ann"
        assert guest.until("event")["delta"]["doc"]["path"] == "mails/new-for-ann"


async def test_where_nobody_is_known_a_filter_of_who_asks_says_so(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "log.db")) as hw:
        await hw.collection("mails").create({"to": None})
        with pytest.raises(InvalidFilter, match=r"auth\.sub .* nobody is known here"):
            await hw.collection("mails").query(MINE)
