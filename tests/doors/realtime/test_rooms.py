"""Rooms over WebSockets: on one server and on two that share a store; the client is `websockets`."""

import asyncio
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from headwater.doors.sessions import CloseCode
from headwater.model.room import KEPT, PASSING
from headwater.stores.questions import ListPartitions, Question
from tests.doors.conftest import Arrangement, MakeDoor
from tests.doors.live_door import SERVINGS, LiveDoor
from tests.doors.realtime.guests import PATIENCE_SECONDS, Guest, joined
from tests.waiting import expect_soon

Asked = TypeVar("Asked")


def run(door: LiveDoor, question: Question[Asked]) -> Asked:
    """What the store of a server answers."""
    asked = door.hw.store.ask(question)
    return asyncio.run_coroutine_threadsafe(_wait(asked), door.loop).result(PATIENCE_SECONDS)


async def _wait(asked: Awaitable[Asked]) -> Asked:
    return await asked


def messages(guest: Guest, count: int) -> list[dict[str, Any]]:
    """The next messages of a room, as they are."""
    return [guest.until("room-message") for _ in range(count)]


def test_what_one_says_everybody_hears_once_the_sender_too(door: LiveDoor, arrangement: Arrangement) -> None:
    """S0-10, S0-17."""
    with joined(door.url) as ann, joined(door.url) as bob:
        assert ann.ask("join", room="canvas-1")["payload"]["offset"] == -1
        bob.ask("join", room="canvas-1")
        member = bob.ask("auth")["payload"]["member"]
        sent = bob.ask("send", room="canvas-1", type="object-create", data={"id": "o1"})
        assert sent["payload"] == {"room": "canvas-1", "durability": arrangement.written, "offset": 0}
        bob.say("send", room="canvas-1", type="test", data=[1, "grüße"])
        heard = messages(ann, 2)
        assert [(one["offset"], one["type"], one["data"], one["from"]) for one in heard] == [
            (0, "object-create", {"id": "o1"}, member),
            (1, "test", [1, "grüße"], member),
        ]
        assert heard[0]["room"] == "canvas-1"
        assert heard[0]["at"] > 1_500_000_000_000


@pytest.mark.parametrize("is_empty", [False, True])
def test_who_was_away_while_a_room_was_made_again_is_told(door: LiveDoor, is_empty: bool) -> None:
    """Its offsets begin anew: messages up to the one that they have would be taken for known."""
    with joined(door.url) as bob:
        if not is_empty:
            bob.ask("send", room="a", type="test", data="old")
        with joined(door.url) as ann:
            # Of a room without a message, the first message says it.
            epoch = ann.ask("join", room="a")["payload"]["epoch"]
            assert (epoch == "") is is_empty
            bob.ask("send", room="a", type="test", data="last")
            heard = ann.until("room-message")
        epoch, last = heard.get("epoch", epoch), heard["offset"]
        with joined(door.url) as ann:
            assert ann.ask("join", room="a", since=last, epoch=epoch)["payload"]["epoch"] == epoch
            bob.ask("send", room="a", type="test", data="on")
            assert ann.until("room-message")["data"] == "on"
        assert httpx.delete(f"{door.url}/api/v1/resources/queues/rooms%2Fa").status_code == 200
        for number in range(last + 3):
            bob.ask("send", room="a", type="test", data=number)
        with joined(door.url) as ann:
            assert ann.ask("join", room="a", since=last, epoch=epoch)["payload"]["epoch"] not in ("", epoch)
            told = ann.until("resync-required")
            assert (told["reason"], told["offset"]) == ("dropped", -1)
            assert [one["data"] for one in messages(ann, last + 3)] == list(range(last + 3))


def test_the_sender_hears_its_own_message_once(door: LiveDoor) -> None:
    with joined(door.url) as ann:
        ann.ask("join", room="a")
        ann.say("send", room="a", type="test", data=1)
        ann.say("send", room="a", type="test", data=2, durability="memory")
        ann.say("send", room="a", type="test", data=3)
        heard = messages(ann, 3)
        assert sorted(one["data"] for one in heard) == [1, 2, 3]
        assert [one["data"] for one in heard if one.get("offset") is not None] == [1, 3]
        ann.say("leave", room="a")
        assert ann.until("leave_ack") == {"room": "a"}


def test_others_hear_who_comes_and_who_goes(door: LiveDoor) -> None:
    with joined(door.url) as ann:
        first = ann.ask("join", room="a", profile={"name": "Ann"})["payload"]
        assert first["members"] == [{"member": first["member"], "profile": {"name": "Ann"}}]
        with joined(door.url) as bob:
            second = bob.ask("join", room="a", profile={"name": "Bob"})["payload"]
            assert {one["profile"]["name"] for one in second["members"]} == {"Ann", "Bob"}
            came = ann.until("presence")
            assert (came["state"], came["member"], came["profile"]) == ("joined", second["member"], {"name": "Bob"})
        left = ann.until("presence")
        assert (left["state"], left["member"]) == ("left", second["member"])


def test_who_comes_again_without_leaving_begins_anew_and_nobody_hears_of_it(door: LiveDoor) -> None:
    """Or one who joins again and again would keep everybody busy."""
    with joined(door.url) as ann, joined(door.url) as bob:
        ann.ask("join", room="a")
        me = bob.ask("join", room="a", profile={"name": "Bob"})["payload"]["member"]
        assert ann.until("presence")["state"] == "joined"
        for number in range(3):
            ann.ask("send", room="a", type="test", data=number)
        for _ in range(5):
            assert bob.ask("join", room="a", since=0, profile={"name": "Bob"})["payload"]["count"] == 2
            assert [one["offset"] for one in messages(bob, 2)] == [1, 2]
        bob.ask("join", room="a", profile={"name": "Robert"})
        states = [ann.until("presence") for _ in range(2)]
        assert [(one["state"], one["member"], one["profile"]["name"]) for one in states] == [
            ("left", me, "Bob"),
            ("joined", me, "Robert"),
        ]
        ann.say("send", room="a", type="test", data="last")
        assert bob.until("room-message")["data"] == "last"
        bob.ask("leave", room="a")
        assert ann.until("presence")["state"] == "left"


def test_who_comes_back_gets_what_it_missed_then_what_comes_without_a_hole_or_a_double(door: LiveDoor) -> None:
    with joined(door.url) as ann, joined(door.url) as bob:
        ann.ask("join", room="a")
        bob.ask("join", room="a")
        for number in range(3):
            ann.ask("send", room="a", type="test", data=number)
        assert [one["offset"] for one in messages(bob, 3)] == [0, 1, 2]
        bob.ask("leave", room="a")
        for number in range(3, 40):
            ann.say("send", room="a", type="test", data=number)
        bob.say("join", room="a", since=2)
        for number in range(40, 80):
            ann.say("send", room="a", type="test", data=number)
        assert [(one["offset"], one["data"]) for one in messages(bob, 77)] == [(n, n) for n in range(3, 80)]


def test_the_beginning_is_what_is_kept(door: LiveDoor) -> None:
    with joined(door.url) as ann, joined(door.url) as bob:
        for number in range(5):
            ann.ask("send", room="a", type="test", data=number)
        assert bob.ask("join", room="a", since="beginning")["payload"]["offset"] == 4
        assert [one["offset"] for one in messages(bob, 5)] == [0, 1, 2, 3, 4]


def test_one_with_an_offset_that_never_was_is_told_to_begin_anew(door: LiveDoor) -> None:
    with joined(door.url) as ann:
        ann.ask("send", room="a", type="test", data=0)
        ann.ask("join", room="a", since=700)
        assert ann.until("resync-required") == {"room": "a", "reason": "unknown offset", "offset": -1}
        assert ann.until("room-message")["offset"] == 0


def test_one_whose_messages_were_dropped_is_told_before_what_is_left(make_door: MakeDoor) -> None:
    door = make_door(rooms={"message_ttl": 0.001}, housekeeping_seconds=0.05)
    with joined(door.url) as ann:
        for number in range(3):
            ann.ask("send", room="a", type="test", data=number)

        def is_dropped() -> bool:
            return run(door, ListPartitions("main", "rooms/a"))[0].start == 3

        expect_soon(is_dropped)
        ann.ask("join", room="a", since=0)
        assert ann.until("resync-required") == {"room": "a", "reason": "dropped", "offset": 2}


def test_cursors_are_gathered_and_the_latest_of_each_goes_on(make_door: MakeDoor) -> None:
    """S0-34, S0-35, S0-37."""
    door = make_door(rooms={"cursor_batch_interval": 100})
    with joined(door.url) as ann, joined(door.url) as bob:
        ann.ask("join", room="a")
        me = bob.ask("join", room="a")["payload"]["member"]
        for number in range(30):
            bob.say("send", room="a", type="cursor", data={"x": number, "y": 1})
        bob.ask("auth")
        cursors: list[dict[str, Any]] = []
        batches = 0
        while not cursors or cursors[-1]["x"] != 29:
            heard = ann.until("room-message")
            assert (heard["type"], heard["offset"]) == ("cursor-batch", None)
            assert len(heard["data"]["cursors"]) == 1
            cursors += heard["data"]["cursors"]
            batches += 1
        assert {one["member"] for one in cursors} == {me}
        assert batches < 30

    def ends() -> dict[str, int]:
        return {one.partition: one.end for one in run(door, ListPartitions("main", "rooms/a"))}

    # Members on this server had them at once, before the log has them.
    expect_soon(lambda: ends().get(PASSING) == batches)
    assert KEPT not in ends()


@pytest.mark.parametrize(("coalescing", "left"), [("latest", {"x": 9}), ("merge", {"x": 9, "y0": 0, "y9": 9})])
def test_a_type_that_is_coalesced_goes_on_once_for_each_key(
    make_door: MakeDoor, coalescing: str, left: dict[str, int]
) -> None:
    types = {"object-update": {"coalescing": coalescing}}
    door = make_door(rooms={"types": types, "cursor_batch_interval": 300})
    with joined(door.url) as ann:
        ann.ask("join", room="a")
        for number in range(10):
            data = {"x": number, f"y{number}": number} if coalescing == "merge" else {"x": number}
            ann.say("send", room="a", type="object-update", key="o1", data=data)
        # The message and the answers to who sent it come in any order.
        told = [ann.hear() for _ in range(11)]
        [heard] = [one["payload"] for one in told if one["type"] == "room-message"]
        assert left.items() <= heard["data"].items()
        assert heard["offset"] == 0
        assert [one["payload"]["offset"] for one in told if one["type"] == "send_ack"] == [0] * 10


@pytest.mark.parametrize("coalescing", ["latest", "merge"])
def test_what_is_coalesced_is_as_safe_as_any_of_its_senders_asked_for(make_door: MakeDoor, coalescing: str) -> None:
    door = make_door(rooms={"types": {"stroke": {"coalescing": coalescing}}, "cursor_batch_interval": 300})
    with joined(door.url) as ann:
        for durability in ("memory", "synced", "memory"):
            ann.say("send", room="a", type="stroke", key="o1", data={"x": 1}, durability=durability)
        answers = [ann.until("send_ack") for _ in range(3)]
    assert [(one["offset"], one["durability"]) for one in answers] == [(0, "synced")] * 3


@pytest.mark.parametrize("coalescing", ["every", "latest"])
def test_what_must_be_kept_is_refused_while_rooms_pass_messages_on_in_memory(
    make_door: MakeDoor, coalescing: str
) -> None:
    types = {"test": {"coalescing": coalescing}}
    door = make_door(rooms={"types": types, "use_message_queue": False, "cursor_batch_interval": 20})
    with joined(door.url) as ann, door.client() as client:
        ann.ask("join", room="a")
        for durability in ("written", "synced"):
            refused = ann.ask("send", room="a", type="test", data=1, durability=durability)
            assert (refused["type"], refused["payload"]["code"]) == ("error", "invalid_option")
            said = {"type": "test", "data": 1, "durability": durability}
            assert client.post("/api/v1/rooms/a/messages", json=said).status_code == 400
        for level in (None, "memory"):
            ann.say("send", room="a", type="test", data=2, durability=level)
            assert ann.until("room-message")["data"] == 2


def test_of_messages_that_are_merged_the_one_that_is_no_object_is_refused(make_door: MakeDoor) -> None:
    door = make_door(rooms={"types": {"stroke": {"coalescing": "merge"}}, "cursor_batch_interval": 300})
    with joined(door.url) as ann:
        refused = ann.ask("send", room="a", type="stroke", key="o1", data="first")
        assert (refused["type"], refused["payload"]["code"]) == ("error", "invalid_payload")
        ann.ask("join", room="a")
        ann.say("send", room="a", type="stroke", key="o1", data={"x": 1})
        ann.say("send", room="a", type="stroke", key="o1", data=[2])
        assert ann.until("error")["code"] == "invalid_payload"
        assert ann.until("room-message")["data"] == {"x": 1}


@pytest.mark.parametrize("coalescing", ["latest", "merge"])
def test_who_names_another_as_its_key_does_not_speak_for_it(make_door: MakeDoor, coalescing: str) -> None:
    door = make_door(rooms={"types": {"stroke": {"coalescing": coalescing}}, "cursor_batch_interval": 1_000})
    with joined(door.url) as ann, joined(door.url) as eve:
        members = [guest.ask("join", room="a")["payload"]["member"] for guest in (ann, eve)]
        ann.say("send", room="a", type="stroke", data={"x": 1})
        eve.say("send", room="a", type="stroke", key=members[0], data={"x": "evil"})
        heard = [ann.until("room-message") for _ in range(2)]
    assert {one["from"]: one["data"] for one in heard} == {members[0]: {"x": 1}, members[1]: {"x": "evil"}}


def test_what_is_merged_of_several_senders_is_from_none_of_them(make_door: MakeDoor) -> None:
    door = make_door(rooms={"types": {"stroke": {"coalescing": "merge"}}, "cursor_batch_interval": 1_000})
    with joined(door.url) as ann, joined(door.url) as bob:
        member = ann.ask("join", room="a")["payload"]["member"]
        ann.say("send", room="a", type="stroke", key="own", data={"x": 1})
        ann.say("send", room="a", type="stroke", key="o1", data={"x": 1})
        bob.say("send", room="a", type="stroke", key="o1", data={"y": 2})
        heard = [ann.until("room-message") for _ in range(2)]
    assert {len(one["data"]): one["from"] for one in heard} == {1: member, 2: ""}


@pytest.mark.parametrize(
    ("type", "payload", "code"),
    [
        ("join", {"room": ""}, "invalid_name"),
        ("join", {"room": "x" * 300}, "invalid_name"),
        ("join", {"room": "a", "since": "then"}, "invalid_option"),
        ("join", {"room": "a", "since": -2}, "invalid_option"),
        ("join", {"room": "a", "profile": "x" * 5_000}, "invalid_option"),
        ("send", {"room": "a"}, "invalid_input"),
        ("send", {"room": "a", "type": "no name"}, "invalid_name"),
        ("send", {"room": "a", "type": "cursor", "data": 7}, "invalid_payload"),
        ("send", {"room": "a", "type": "presence", "data": {}}, "invalid_input"),
        ("send", {"room": "a", "type": "test", "data": "x" * 300_000}, "too_large"),
        ("send", {"room": "a", "type": "test", "durability": "eternal"}, "invalid_input"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_is_refused_with_a_code(door: LiveDoor, type: str, payload: dict[str, Any], code: str) -> None:
    """S0-14."""
    with joined(door.url) as ann:
        refused = ann.ask(type, **payload)
        assert (refused["type"], refused["payload"]["code"]) == ("error", code)
        assert ann.ask("join", room="a")["type"] == "join_ack"


def test_who_joins_a_room_that_was_dropped_under_others_finds_it_empty(door: LiveDoor) -> None:
    with joined(door.url) as ann, joined(door.url) as bob:
        ann.ask("join", room="a")
        for number in range(3):
            ann.say("send", room="a", type="test", data=number)
            ann.until("room-message")
        deleting = door.hw.queue("rooms/a").delete()
        asyncio.run_coroutine_threadsafe(deleting, door.loop).result(PATIENCE_SECONDS)
        acknowledged = bob.ask("join", room="a")["payload"]
        assert (acknowledged["offset"], acknowledged["epoch"]) == (-1, "")
        assert ann.until("resync-required") == {"room": "a", "reason": "dropped", "offset": -1}
        bob.say("send", room="a", type="test", data="anew")
        for guest in (ann, bob):
            message = guest.until("room-message")
            assert (message["offset"], message["data"]) == (0, "anew")


def test_a_connection_may_be_in_so_many_rooms(door: LiveDoor) -> None:
    with joined(door.url) as ann:
        for number in range(100):
            assert ann.ask("join", room=f"r{number}")["type"] == "join_ack"
        assert ann.ask("join", room="one-more")["payload"]["code"] == "overloaded"
        ann.ask("leave", room="r0")
        assert ann.ask("join", room="one-more")["type"] == "join_ack"


# ── two servers on one store ──


@pytest.fixture
def two_doors(tmp_path: Path) -> Iterator[list[LiveDoor]]:
    doors = [LiveDoor(tmp_path / "headwater.db", SERVINGS["edge"]) for _ in range(2)]
    for door in doors:
        door.start()
    yield doors
    for door in doors:
        door.stop()


def test_members_of_two_servers_are_in_one_room(two_doors: list[LiveDoor]) -> None:
    """S0-49, S0-62, S0-67."""
    with joined(two_doors[0].url) as ann, joined(two_doors[1].url) as bob:
        ann.ask("join", room="a", profile="Ann")
        told = bob.ask("join", room="a", profile="Bob")["payload"]
        assert {one["profile"] for one in told["members"]} == {"Ann", "Bob"}
        assert ann.until("presence")["profile"] == "Bob"
        ann.say("send", room="a", type="test", data="from A")
        bob.say("send", room="a", type="test", data="passing", durability="memory")
        for guest in (ann, bob):
            heard = messages(guest, 2)
            assert sorted((one["data"], one["offset"]) for one in heard) == [("from A", 0), ("passing", None)]
            guest.ask("auth")
        bob.say("send", room="a", type="test", data="last")
        assert [one["data"] for one in (ann.until("room-message"), bob.until("room-message"))] == ["last"] * 2


def test_who_moves_to_the_other_server_goes_on_where_it_was(two_doors: list[LiveDoor]) -> None:
    with joined(two_doors[0].url) as ann:
        with joined(two_doors[0].url) as bob:
            bob.ask("join", room="a")
            for number in range(5):
                ann.ask("send", room="a", type="test", data=number)
            assert [one["offset"] for one in messages(bob, 5)] == list(range(5))
        for number in range(5, 10):
            ann.say("send", room="a", type="test", data=number)
        with joined(two_doors[1].url) as bob:
            bob.say("join", room="a", since=4)
            for number in range(10, 15):
                ann.say("send", room="a", type="test", data=number)
            assert [one["offset"] for one in messages(bob, 10)] == list(range(5, 15))


def test_a_slow_reader_is_let_go_with_a_code_to_come_back_and_holds_up_nobody(door: LiveDoor) -> None:
    # Servers that compress would make little of it.
    with joined(door.url, max_queue=1, compression=None) as slow, joined(door.url) as ann:
        slow.ask("join", room="a")
        ann.ask("join", room="a")
        big = "x" * 200_000
        # More than the system takes for it before the server notices.
        for number in range(100):
            ann.say("send", room="a", type="test", data=[number, big])
            assert ann.until("room-message")["data"][0] == number
        assert slow.close_code() == CloseCode.TRY_AGAIN_LATER


def test_members_of_a_room_that_is_deleted_are_told_and_hear_what_is_said_next(door: LiveDoor) -> None:
    with joined(door.url) as ann, joined(door.url) as bob:
        for number in range(3):
            ann.ask("send", room="a", type="test", data=number)
        for guest in (ann, bob):
            guest.ask("join", room="a")
        with door.client() as client:
            assert client.delete("/api/v1/resources/queues/rooms/a").status_code in (200, 204)
        for number in range(3):
            ann.ask("send", room="a", type="test", data=f"anew {number}")
        assert bob.until("resync-required")["offset"] == -1
        assert [(one["offset"], one["data"]) for one in messages(bob, 3)] == [(n, f"anew {n}") for n in range(3)]
