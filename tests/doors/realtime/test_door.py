"""The realtime door of a whole server, on the edge and inside another app; its client is `websockets`."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

import headwater
from headwater.app import open_door
from headwater.doors.access.settings import AccessSettings, Auth
from headwater.doors.edge.server import Edge
from headwater.doors.sessions import CloseCode
from tests.doors.live_door import LiveDoor
from tests.doors.realtime.guests import PATIENCE_SECONDS, joined


def test_a_client_speaks_and_is_answered(door: LiveDoor) -> None:
    with joined(door.url) as guest:
        assert guest.ask("auth", token="")["type"] == "auth_ack"
        refused = guest.ask("dance")
        assert (refused["type"], refused["payload"]["code"]) == ("error", "invalid_input")


def test_who_does_not_upgrade_is_told_where_to_listen(client: httpx.Client) -> None:
    refused = client.get("/realtime/ws")
    assert refused.status_code == 426
    assert "/realtime/sse" in refused.json()["detail"]


@pytest.mark.parametrize("data", [b"\0\xff", b"{}"])
def test_bytes_end_the_conversation_with_a_code(door: LiveDoor, data: bytes) -> None:
    with joined(door.url) as guest:
        guest.connection.send(data)
        assert guest.close_code() == CloseCode.NOT_ACCEPTED


# ── behind its guards ──


@asynccontextmanager
async def behind_guards(hw: headwater.Headwater) -> AsyncIterator[str]:
    async with open_door(hw, AccessSettings(auth=(Auth.TOKEN,))) as handler:
        edge = Edge(handler, admit=handler)
        await edge.start("127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{edge.port}"
        finally:
            await edge.stop()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[LiveDoor]:
    door = LiveDoor(tmp_path / "headwater.db", behind_guards)
    door.start()
    yield door
    door.stop()


def make_token(door: LiveDoor, **options: Any) -> tuple[str, str]:
    """The id and the text of a new token."""
    scopes = options.pop("scopes", ["publish", "consume"])
    making = door.hw.access_tokens().create("ann", scopes, **options)
    token, text = asyncio.run_coroutine_threadsafe(making, door.loop).result(PATIENCE_SECONDS)
    return token.id, text


def test_a_page_of_elsewhere_is_kept_out(guarded: LiveDoor) -> None:
    with pytest.raises(InvalidStatus) as refused, joined(guarded.url, origin="https://elsewhere.example"):
        pass
    assert refused.value.response.status_code == 403


def test_a_page_says_who_it_is_in_its_first_message(guarded: LiveDoor) -> None:
    _, token = make_token(guarded)
    with joined(guarded.url, origin=guarded.url) as guest:
        assert guest.ask("heartbeat")["payload"]["code"] == "unauthorized"
        assert guest.ask("auth", token="hw_wrong")["payload"]["code"] == "unauthorized"
        answer = guest.ask("auth", token=token)
        assert (answer["type"], answer["payload"]["status"]) == ("auth_ack", "ok")
        assert guest.ask("dance")["payload"]["code"] == "invalid_input"


def test_a_program_shows_its_token_with_the_handshake(guarded: LiveDoor) -> None:
    _, token = make_token(guarded)
    with joined(guarded.url, additional_headers={"authorization": f"Bearer {token}"}) as guest:
        assert guest.ask("dance")["payload"]["code"] == "invalid_input"
    with (
        pytest.raises(InvalidStatus) as refused,
        joined(guarded.url, additional_headers={"authorization": "Bearer no"}),
    ):
        pass
    assert refused.value.response.status_code == 401


def test_whose_token_is_revoked_is_let_go(guarded: LiveDoor) -> None:
    id, token = make_token(guarded)
    with joined(guarded.url) as guest:
        guest.ask("auth", token=token)
        revoking = guarded.hw.access_tokens().revoke(id)
        asyncio.run_coroutine_threadsafe(revoking, guarded.loop).result(PATIENCE_SECONDS)
        assert guest.close_code() == CloseCode.POLICY_VIOLATED


def test_what_was_joined_with_one_token_is_not_heard_with_another(guarded: LiveDoor) -> None:
    """Else whoever has any other token keeps a room although the one that opened it is revoked."""
    id, first = make_token(guarded, scopes=["subscribe"], queues=["rooms/secret", "rooms/both"])
    _, other = make_token(guarded, scopes=["subscribe"], queues=["rooms/both"])
    _, talker = make_token(guarded, scopes=["publish"])
    with joined(guarded.url) as guest:
        guest.ask("auth", token=first)
        guest.ask("join", room="secret")
        guest.ask("join", room="both")
        guest.say("auth", token=other)
        heard = [guest.hear()]
        while heard[-1]["type"] != "auth_ack":
            heard.append(guest.hear())
        assert [one["payload"]["code"] for one in heard if one["type"] == "error"] == ["not_allowed"]
        revoking = guarded.hw.access_tokens().revoke(id)
        asyncio.run_coroutine_threadsafe(revoking, guarded.loop).result(PATIENCE_SECONDS)
        headers = {"authorization": f"Bearer {talker}"}
        for room in ("secret", "both"):
            url = f"{guarded.url}/api/v1/rooms/{room}/messages"
            httpx.post(url, json={"type": "t", "data": room}, headers=headers).raise_for_status()
        while (told := guest.hear())["type"] != "room-message":
            continue
        assert (told["payload"]["room"], told["payload"]["data"]) == ("both", "both")


def test_who_guesses_on_and_on_is_let_go(guarded: LiveDoor) -> None:
    with joined(guarded.url) as guest:
        for number in range(AccessSettings().guesses_burst + 2):
            guest.say("auth", token=f"hw_{number}")
        assert guest.close_code() == CloseCode.POLICY_VIOLATED


def test_a_token_says_which_rooms_and_whether_to_send_or_only_to_see(guarded: LiveDoor) -> None:
    _, looks_on = make_token(guarded, scopes=["subscribe"], queues=["rooms/canvas-*"])
    _, writes = make_token(guarded, scopes=["publish"], queues=["rooms/canvas-*"])
    with joined(guarded.url) as ann, joined(guarded.url) as bob:
        ann.ask("auth", token=looks_on)
        bob.ask("auth", token=writes)
        assert ann.ask("join", room="canvas-1")["type"] == "join_ack"
        assert ann.ask("join", room="elsewhere")["payload"]["code"] == "not_found"
        assert ann.ask("send", room="canvas-1", type="test")["payload"]["code"] == "not_allowed"
        assert bob.ask("join", room="canvas-1")["payload"]["code"] == "not_allowed"
        assert bob.ask("send", room="elsewhere", type="test")["payload"]["code"] == "not_found"
        assert bob.ask("send", room="canvas-1", type="test")["type"] == "send_ack"
        assert ann.until("room-message")["type"] == "test"


FORGED_ROLL = {"origin": "elsewhere", "count": 1, "members": [{"member": "ghost", "profile": None}]}
FORGED = {"data": FORGED_ROLL, "type": "presence", "headers": {"from": "ghost"}}
# Every way on which a token that may publish hands records in.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "queen push": ("/api/v1/push", {"items": [{"queue": "rooms/a", "partition": "{0}", "payload": FORGED_ROLL}]}),
    "queen transaction": (
        "/api/v1/transaction",
        {
            "operations": [
                {
                    "type": "push",
                    "items": [{"queue": "rooms/a", "partition": "{0}", "payload": 1, "headers": {"from": "ghost"}}],
                }
            ]
        },
    ),
    "push": ("/v1/push", {"pushes": [{"queue": "rooms/a", "partition": "{0}", "records": [FORGED]}]}),
    "transaction": (
        "/v1/transaction",
        {"operations": [{"kind": "push", "queue": "rooms/a", "partition": "{0}", "records": [FORGED]}]},
    ),
    "commit of a stream": (
        "/v1/log/commit",
        {
            "step": {"name": "spark/x", "number": 1, "note": ""},
            "pushes": [{"queue": "rooms/a", "partition": "{0}", "records": [FORGED]}],
        },
    ),
    "load": (
        "/v1/operations/load",
        {"queue": "rooms/a", "partition": "{0}", "source": "s", "positions": [0], "covers": [], "records": [FORGED]},
    ),
    "requeue": ("/v1/operations/requeue", {"queue": "orders", "to": "rooms/a"}),
    "requeue to all": ("/v1/operations/requeue", {"queue": "rooms/a", "all_groups": True}),
}


def test_only_a_room_writes_what_is_in_it(guarded: LiveDoor) -> None:
    """Whoever may publish to a room may send there, under their own name, and forge nobody: neither who is there, nor
    who said something."""
    scopes = ["publish", "consume", "subscribe", "admin"]
    _, token = make_token(guarded, scopes=scopes, queues=["rooms/*", "orders"])
    with joined(guarded.url) as ann, guarded.client() as client:
        client.headers["authorization"] = f"Bearer {token}"
        ann.ask("auth", token=token)
        ann.ask("join", room="a")
        for way, (path, body) in WAYS.items():
            for partition in ("messages", "memory", "presence", "other"):
                refused = client.post(path, json=json.loads(json.dumps(body).replace("{0}", partition)))
                assert (refused.status_code, "are rooms" in refused.text) == (400, True), (way, refused.text)
        assert client.post("/v1/send", json={"messages": [{"room": "a", "type": "test"}]}).is_success
        heard = ann.hear()
        assert (heard["type"], heard["payload"]["from"]) == ("room-message", "ann")
        members = client.get("/api/v1/rooms/a/members").json()["members"]
        assert "ghost" not in {one["member"] for one in members}


def test_who_says_something_over_the_wire_is_for_the_server_to_say(guarded: LiveDoor) -> None:
    _, token = make_token(guarded, scopes=["publish", "consume"], queues=["rooms/*"])
    with guarded.client() as client:
        client.headers["authorization"] = f"Bearer {token}"
        for field, value in (("sender", "ghost"), ("from", "ghost"), ("headers", {"from": "ghost"}), ("origin", "x")):
            said = {"type": "test", field: value}
            for path, body in (
                ("/v1/send", {"messages": [{"room": "a", **said}]}),
                ("/v1/transaction", {"operations": [{"kind": "send", "room": "a", **said}]}),
                ("/api/v1/rooms/a/messages", said),
            ):
                assert client.post(path, json=body).status_code == 400, (path, field)
        assert client.get("/api/v1/rooms/a/messages").json()["messages"] == []


def test_what_is_sent_over_the_wire_needs_the_room_and_the_scope(guarded: LiveDoor) -> None:
    _, looks_on = make_token(guarded, scopes=["subscribe", "consume"], queues=["rooms/a"])
    _, writes = make_token(guarded, scopes=["publish", "consume"], queues=["rooms/a"])
    with guarded.client() as client:
        for token, room, statuses in ((looks_on, "a", {403}), (writes, "b", {404}), (writes, "a", {200, 201})):
            client.headers["authorization"] = f"Bearer {token}"
            for path, body in (
                ("/v1/send", {"messages": [{"room": room, "type": "test"}]}),
                ("/v1/transaction", {"operations": [{"kind": "send", "room": room, "type": "test"}]}),
            ):
                assert client.post(path, json=body).status_code in statuses, (path, room)
        client.headers["authorization"] = f"Bearer {looks_on}"
        kept = client.get("/api/v1/rooms/a/messages").json()["messages"]
        assert [(one["type"], one["from"]) for one in kept] == [("test", "ann")] * 2


@pytest.mark.parametrize("path", ["/realtime/sse?room=a", "/api/v1/rooms/a/messages", "/api/v1/rooms/a/members"])
def test_without_a_token_nothing_is_read(guarded: LiveDoor, path: str) -> None:
    with guarded.client() as client:
        assert client.get(path).status_code == 401


def test_a_listener_whose_token_is_revoked_hears_no_more(guarded: LiveDoor) -> None:
    id, token = make_token(guarded)
    headers = {"authorization": f"Bearer {token}"}
    url = f"{guarded.url}/realtime/sse?room=a"
    with httpx.stream("GET", url, headers=headers, timeout=PATIENCE_SECONDS) as stream:
        lines = stream.iter_lines()
        next(lines)
        revoking = guarded.hw.access_tokens().revoke(id)
        asyncio.run_coroutine_threadsafe(revoking, guarded.loop).result(PATIENCE_SECONDS)
        assert any("1008" in line for line in lines)
