"""Rooms from Python: on an open store, in a transaction, and over a server."""

import asyncio
import gc
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import headwater
import headwater.sync
from headwater import outbox
from headwater.clock import SECOND, Timestamp
from headwater.config import Durability
from headwater.errors import Closed, ConfigError, InvalidName, InvalidOption, ResyncRequired
from headwater.log.operations import Retain
from headwater.model.names import Lsn
from headwater.model.record import Record
from headwater.model.room import Attendance, Came, Coalescing, Member, Roll, RoomMessage, Watermark, lowest_watermark
from headwater.model.room_settings import PROFILES, RoomSettings, load_room_settings
from headwater.services.live_room import Event, Missed, Presence
from headwater.services.room_gathering import NewMessage
from tests.contracts.clock import FakeClock
from tests.doors.live_door import SERVINGS


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "headwater.db")) as opened:
        yield opened


async def take(messages: AsyncIterator[RoomMessage], count: int) -> list[RoomMessage]:
    """The next so many."""
    return [await asyncio.wait_for(anext(messages), 30) for _ in range(count)]


async def test_what_is_sent_is_followed_with_its_offset(hw: headwater.Headwater) -> None:
    """S0-9, S0-47."""
    room = hw.room("canvas-1")
    async with aclosing(room.follow("beginning")) as messages:
        assert await room.send({"x": 1}, type="object-create", sender="ann") == 0
        assert await room.send({"x": 2}) == 1
        heard = await take(messages, 2)
        assert await room.send("passing", durability="memory") is None
        heard += await take(messages, 1)
    assert [(one.offset, one.type, one.payload, one.sender) for one in heard] == [
        (0, "object-create", {"x": 1}, "ann"),
        (1, "message", {"x": 2}, ""),
        (None, "message", "passing", ""),
    ]


async def test_a_program_that_has_the_store_coalesces_as_members_do(tmp_path: Path) -> None:
    types = {"stroke": {"coalescing": "merge"}, "wave": {"durability": "memory"}}
    async with headwater.open(str(tmp_path / "headwater.db"), rooms={"types": types}) as hw:
        room = hw.room("a")
        assert await room.send("passes", type="wave") is None
        sent = [room.send({f"x{number}": number}, type="stroke", key="o1", sender="ann") for number in range(3)]
        async with aclosing(room.follow("beginning")) as messages:
            assert await asyncio.gather(*sent, room.send("every one"), hw.database("other").room("a").send(1)) == [
                1,
                1,
                1,
                0,
                0,
            ]
            heard = await take(messages, 2)
    assert [(one.payload, one.sender) for one in heard] == [
        ("every one", ""),
        ({"x0": 0, "x1": 1, "x2": 2}, "ann"),
    ]


async def test_whoever_comes_back_goes_on_behind_its_offset(hw: headwater.Headwater) -> None:
    room = hw.room("a")
    for number in range(5):
        await room.send(number)
    await room.send("passed before", durability="memory")
    async with aclosing(room.follow(since=2)) as messages:
        assert [one.payload for one in await take(messages, 2)] == [3, 4]
        await room.send("new")
        assert [one.payload for one in await take(messages, 1)] == ["new"]


async def test_a_large_message_is_compressed_in_the_log_and_heard_as_it_was_said(
    hw: headwater.Headwater, tmp_path: Path
) -> None:
    """S0-68."""
    room, large = hw.room("a"), {"text": "to be or not to be " * 5_000}
    await room.send("small")
    await hw.queue("rooms/a").configure(compress_bytes_min=1_000)
    async with aclosing(room.follow("beginning")) as messages:
        await room.send(large)
        assert [one.payload for one in await take(messages, 2)] == ["small", large]
    with closing(apsw.Connection(str(tmp_path / "headwater.db"))) as connection:
        [[size]] = connection.execute("SELECT max(length(records)) FROM hw_segments").fetchall()
    assert int(str(size)) < 1_000


async def test_a_message_of_a_room_takes_effect_with_everything_else_or_not_at_all(hw: headwater.Headwater) -> None:
    orders, room = hw.queue("orders"), hw.room("a")
    await orders.push({"id": 7})
    taken = await orders.pop()
    async with aclosing(room.follow("beginning")) as messages:
        given_up = hw.transaction()
        await given_up.__aenter__()
        given_up.send("a", "never")
        await given_up.__aexit__(RuntimeError, RuntimeError(), None)
        async with hw.transaction() as together:
            together.ack(taken)
            together.push("invoices", {"order": 7})
            together.send("a", {"paid": 7}, type="object-update", key="o7")
        [heard] = await take(messages, 1)
    assert (heard.type, heard.payload, heard.offset) == ("object-update", {"paid": 7}, 0)
    assert [status.records for status in await hw.queues() if status.queue == "invoices"] == [1]


async def test_a_room_over_a_server_is_the_same_room(hw: headwater.Headwater) -> None:
    async with SERVINGS["edge"](hw) as url, headwater.connect(url) as client:
        there, here = client.room("a"), hw.room("a")
        async with aclosing(there.follow("beginning")) as messages:
            await here.send("from the store")
            assert await there.send("from afar", key="o1", ttl_seconds=600) == 1
            async with client.transaction() as together:
                together.send("a", "together")
            assert [one.payload for one in await take(messages, 3)] == ["from the store", "from afar", "together"]
            assert await there.send("passing", durability="memory") is None
            assert [(one.payload, one.offset) for one in await take(messages, 1)] == [("passing", None)]
        assert await there.members() == []
        with pytest.raises(InvalidOption, match="who the server knows it to be"):
            await there.send("who am I?", sender="ann")


@pytest.mark.parametrize("is_far", [False, True], ids=["open", "connect"])
async def test_who_follows_is_told_when_what_it_follows_by_is_closed(tmp_path: Path, is_far: bool) -> None:
    async with headwater.open(str(tmp_path / "headwater.db")) as hw, AsyncExitStack() as stack:
        await hw.room("a").send("one")
        if is_far:
            url = await stack.enter_async_context(SERVINGS["edge"](hw))
            ours: Any = headwater.connect(url)
        else:
            ours = headwater.open(str(tmp_path / "headwater.db"))
        async with ours:
            messages = ours.room("a").follow("beginning")
            changes = ours.collection("notes").follow()
            assert (await anext(messages)).payload == "one"
            assert (await anext(changes)).op == "snapshot"
            following = [asyncio.ensure_future(anext(messages)), asyncio.ensure_future(anext(changes))]
            await asyncio.sleep(0)
        for one in following:
            with pytest.raises(Closed):
                await asyncio.wait_for(one, 30)
        # Not a quiet end either for who asks once more.
        for stream in (messages, changes):
            with pytest.raises(Closed):
                await anext(stream)


async def test_who_follows_is_told_when_messages_were_dropped(tmp_path: Path) -> None:
    clock = FakeClock()
    async with headwater.open(str(tmp_path / "headwater.db"), clock=clock, housekeeping=False) as hw:
        room = hw.room("a")
        for number in range(3):
            await room.send(number)
        clock.advance(61)
        await hw.committer.submit(Retain())
        await room.send("after")
        with pytest.raises(ResyncRequired):
            async with aclosing(room.follow(since=0)) as messages:
                await take(messages, 1)
        async with aclosing(room.follow("beginning")) as messages:
            assert [(one.offset, one.payload) for one in await take(messages, 1)] == [(3, "after")]


async def test_a_message_expires_after_a_minute_unless_it_says_otherwise(tmp_path: Path) -> None:
    """S0-27, S0-50."""
    clock = FakeClock()
    async with headwater.open(str(tmp_path / "headwater.db"), clock=clock, housekeeping=False) as hw:
        await hw.room("short").send(1)
        await hw.room("long").send(1, ttl_seconds=600)
        clock.advance(59)
        assert (await hw.committer.submit(Retain())).result.records == 0
        clock.advance(2)
        assert (await hw.committer.submit(Retain())).result.records == 1
        assert {one.queue: one.records for one in await hw.queues()} == {"rooms/long": 1, "rooms/short": 0}


def test_a_room_is_there_without_async(tmp_path: Path) -> None:
    with headwater.sync.open(str(tmp_path / "headwater.db")) as hw:
        room = hw.room("a")
        assert room.send({"x": 1}, type="object-create") == 0
        with hw.transaction() as together:
            together.send("a", {"x": 2})
        heard = room.follow("beginning")
        assert [next(heard).payload for _ in range(2)] == [{"x": 1}, {"x": 2}]
        heard.close()
        assert room.members() == []


def test_a_loop_that_was_left_may_be_forgotten_after_closing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can do anything about what it would raise then."""
    unraisable: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    with headwater.sync.open(str(tmp_path / "headwater.db")) as hw:
        room = hw.room("a")
        room.send("one")
        heard, seen = room.follow("beginning"), hw.collection("notes").follow()
        assert next(heard).payload == "one"
        assert next(seen).op == "snapshot"
    del heard, seen
    gc.collect()
    assert unraisable == []


@pytest.mark.parametrize("name", ["", "a b", "x" * 251, "x" * 300])
async def test_a_room_has_a_name_that_a_queue_may_have(hw: headwater.Headwater, name: str) -> None:
    with pytest.raises(InvalidName, match="room name must be 1 to 250 characters"):
        hw.room(name)
    assert hw.room("x" * 250).name == "x" * 250


@pytest.mark.parametrize("type", ["cursor-batch", "presence", "user-connected", "user-disconnected"])
async def test_types_of_the_server_are_not_for_others(hw: headwater.Headwater, type: str) -> None:
    with pytest.raises(InvalidOption, match="made by the server"):
        await hw.room("a").send({}, type=type)


async def test_records_of_a_room_are_written_by_the_room_alone(hw: headwater.Headwater, tmp_path: Path) -> None:
    """Neither as messages of a queue, nor in a transaction, nor by way of an outbox."""
    with pytest.raises(InvalidName, match="send to room 'a'"):
        await hw.queue("rooms/a").push({"x": 1})
    with pytest.raises(InvalidName, match="are rooms"):
        async with hw.transaction() as together:
            together.push("rooms/a", {"x": 1})
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        outbox.create_table(shop)
        with pytest.raises(InvalidName, match="are rooms"):
            outbox.stage(shop, "rooms/a", {"x": 1})
    assert await hw.queues() == []


@pytest.mark.parametrize("since", ["then", -2, 1.5])
async def test_a_place_in_a_room_is_an_offset_or_a_word(hw: headwater.Headwater, since: Any) -> None:
    with pytest.raises(InvalidOption, match="since"):
        await anext(hw.room("a").follow(since))


# ── who is there ──


def record(said: Came | Roll, type: str) -> Record:
    return Record(headwater.Raw(msgspec.json.encode(said)), type=type)


def at(seconds: float) -> Timestamp:
    return Timestamp(int(seconds * SECOND))


def test_each_server_answers_for_its_own_members() -> None:
    attendance = Attendance()
    ann, bob = Member("ann"), Member("bob")
    assert attendance.take(record(Came("A", "ann"), "user-connected"), at(0)) == [("joined", ann)]
    assert attendance.take(record(Came("B", "bob"), "user-connected"), at(1)) == [("joined", bob)]
    assert attendance.take(record(Roll("A", count=1, members=[ann]), "presence"), at(10)) == []
    assert attendance.take(record(Came("A", "ann"), "user-disconnected"), at(11)) == [("left", ann)]
    assert attendance.take(record(Came("A", "ann"), "user-disconnected"), at(12)) == []
    assert attendance.members() == [bob]


def test_what_a_server_says_replaces_what_it_said() -> None:
    attendance = Attendance()
    ann, bob, cy = Member("ann"), Member("bob"), Member("cy")
    attendance.take(record(Roll("A", count=2, members=[ann, bob]), "presence"), at(0))
    changes = attendance.take(record(Roll("A", count=2, members=[bob, cy]), "presence"), at(10))
    assert changes == [("left", ann), ("joined", cy)]
    attendance.take(record(Roll("A", count=9_000), "presence"), at(20))
    assert (attendance.members(), attendance.count()) == ([], 9_000)


def test_another_profile_is_told_whatever_says_it_and_the_same_one_is_not() -> None:
    attendance = Attendance()
    red, blue, green = [
        Member("ann", headwater.Raw(f'{{"color": "{name}"}}'.encode())) for name in ("red", "blue", "green")
    ]
    bob = Member("bob")
    attendance.take(record(Roll("A", count=2, members=[red, bob]), "presence"), at(0))
    changes = attendance.take(record(Roll("A", count=2, members=[blue, bob]), "presence"), at(10))
    assert changes == [("left", red), ("joined", blue)]
    assert attendance.take(record(Roll("A", count=2, members=[blue, bob]), "presence"), at(20)) == []
    changes = attendance.take(record(Came("A", "ann", green.profile, 2), "user-connected"), at(21))
    assert changes == [("left", blue), ("joined", green)]
    assert attendance.take(record(Came("A", "ann", green.profile, 2), "user-connected"), at(22)) == []
    assert attendance.members() == [green, bob]


def test_members_of_a_server_that_is_silent_for_half_a_minute_have_left() -> None:
    attendance = Attendance()
    attendance.take(record(Came("A", "ann"), "user-connected"), at(0))
    attendance.take(record(Came("B", "bob"), "user-connected"), at(20))
    assert attendance.expire(at(30)) == []
    assert attendance.expire(at(31)) == [("left", Member("ann"))]
    assert attendance.members() == [Member("bob")]


def test_what_cannot_be_read_changes_nothing() -> None:
    attendance = Attendance()
    assert attendance.take(Record(headwater.Raw(b"7"), type="presence"), at(0)) == []
    assert attendance.take(Record(headwater.Raw(b"{}"), type="user-connected"), at(0)) == []


def test_the_lowest_watermark_is_of_servers_that_were_there_in_the_last_five_minutes() -> None:
    """S0-33."""
    marks = [Watermark("A", Lsn(7), at(0)), Watermark("B", Lsn(9), at(200)), Watermark("C", Lsn(12), at(290))]
    assert lowest_watermark(marks, at(300)) == 7
    assert lowest_watermark(marks, at(301)) == 9
    assert lowest_watermark([], at(0)) is None


# ── settings ──


def test_parameters_have_the_names_and_defaults_that_people_know() -> None:
    """S0-38, S0-39, S0-40, S0-41, S0-42, S0-43, S0-44."""
    settings = load_room_settings({}, {})
    assert (settings.queue_poll_interval, settings.message_ttl, settings.cursor_batch_interval) == (50, 60, 200)
    assert (settings.enable_local_broadcast, settings.max_messages_per_poll) == (True, 100)
    assert (settings.cleanup_interval, settings.use_message_queue) == (30, True)


def test_there_are_two_profiles_and_what_is_said_goes_before_them() -> None:
    """S0-45, S0-46."""
    low = load_room_settings({"profile": "low-latency"}, {})
    high = load_room_settings({}, {"HEADWATER_ROOM_PROFILE": "high-throughput", "HEADWATER_MESSAGE_TTL": "5"})
    names = ("queue_poll_interval", "enable_local_broadcast", "cursor_batch_interval")
    assert [getattr(low, name) for name in names] == [20, True, 100]
    assert [getattr(high, name) for name in names] == [200, False, 500]
    assert high.message_ttl == 5
    assert load_room_settings({"profile": "low-latency", "cursor_batch_interval": 50}, {}).cursor_batch_interval == 50
    assert set(PROFILES) == {"default", "low-latency", "high-throughput"}


def test_types_say_how_safe_and_how_often() -> None:
    """S0-7."""
    settings = load_room_settings({"types": {"stroke": {"durability": "synced", "coalescing": "merge"}}}, {})
    assert settings.of("stroke").durability is Durability.SYNCED
    assert settings.of("cursor").durability is Durability.MEMORY
    assert settings.of("anything").durability is Durability.WRITTEN
    assert RoomSettings().of("object-create").durability is Durability.WRITTEN


def test_types_are_declared_by_a_variable_where_there_is_no_program() -> None:
    environment = {"HEADWATER_ROOM_TYPES": '{"stroke": {"coalescing": "latest"}}'}
    assert load_room_settings({}, environment).of("stroke").coalescing is Coalescing.LATEST
    assert load_room_settings({"types": {}}, environment).of("stroke").coalescing is Coalescing.EVERY
    for wrong in ("{", "[1]", '{"cursor": {}}', '{"stroke": {"colour": 1}}'):
        with pytest.raises(ConfigError, match=r"HEADWATER_ROOM_TYPES must be JSON|types of rooms"):
            load_room_settings({}, {"HEADWATER_ROOM_TYPES": wrong})


@pytest.mark.parametrize("name", ["x y\n", "ä", "x" * 257, " "])
def test_a_server_has_a_name_that_can_be_shown(name: str) -> None:
    with pytest.raises(ConfigError, match="server_instance_id"):
        load_room_settings({}, {"HEADWATER_SERVER_INSTANCE_ID": name})


@pytest.mark.parametrize(
    "wrong",
    [
        {"message_ttl": 0},
        {"cursor_batch_interval": "soon"},
        {"profile": "fast"},
        {"no_such": 1},
        {"types": {"x": {"coalescing": "some"}}},
        {"types": 7},
    ],
    ids=str,
)
def test_a_wrong_setting_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"message_ttl|cursor_batch_interval|room_profile|no_such|types"):
        load_room_settings(wrong, {})


# ── in memory, and by way of the log ──


def new(room: str, data: object, durability: Durability = Durability.WRITTEN) -> NewMessage:
    encoded = headwater.Raw(msgspec.json.encode(data))
    return NewMessage(database="main", room=room, type="test", data=encoded, sender="ann", durability=durability)


async def test_rooms_run_in_memory_and_back_without_losing_who_is_there(tmp_path: Path) -> None:
    """S0-44: the flag changes where messages go, not who listens."""
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        rooms = hw.rooms_service
        live = await rooms.enter("main", "a")
        heard: list[RoomMessage] = []
        arrived = asyncio.Event()

        def listen(events: Sequence[Event]) -> None:
            heard.extend(event for event in events if isinstance(event, RoomMessage))
            arrived.set()

        live.listeners.append(listen)
        for in_memory, data in ((False, "one"), (True, "two"), (False, "three")):
            rooms.settings = msgspec.structs.replace(rooms.settings, use_message_queue=not in_memory)
            arrived.clear()
            sending = rooms.send(new("a", data))
            assert sending is not None
            sent = await sending
            assert (sent.offset is None, sent.durability) == (
                in_memory,
                Durability.MEMORY if in_memory else Durability.WRITTEN,
            )
            await asyncio.wait_for(arrived.wait(), 30)
        assert [(one.payload, one.offset) for one in heard] == [("one", 0), ("two", None), ("three", 1)]
        rooms.leave(live)


async def test_what_only_passes_is_handed_out_once_where_it_was_said(tmp_path: Path) -> None:
    """S0-11, T0-a: at once on this server, and not again when the log brings it back."""
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        rooms = hw.rooms_service
        live = await rooms.enter("main", "a")
        heard: list[object] = []
        done = asyncio.Event()

        def listen(events: Sequence[Event]) -> None:
            heard.extend(event.payload for event in events if isinstance(event, RoomMessage))
            if "last" in heard:
                done.set()

        live.listeners.append(listen)
        rooms.send(new("a", "passing", Durability.MEMORY))
        assert heard == ["passing"]
        # What is kept comes out of the log behind it.
        rooms.send(new("a", "last"))
        await asyncio.wait_for(done.wait(), 30)
        assert heard == ["passing", "last"]
        rooms.leave(live)


async def test_without_local_broadcast_everything_goes_through_the_log(tmp_path: Path) -> None:
    """S0-41, S0-46."""
    async with headwater.open(str(tmp_path / "headwater.db"), rooms={"enable_local_broadcast": False}) as hw:
        rooms = hw.rooms_service
        live = await rooms.enter("main", "a")
        heard: list[object] = []
        done = asyncio.Event()

        def listen(events: Sequence[Event]) -> None:
            heard.extend(event.payload for event in events if isinstance(event, RoomMessage))
            done.set()

        live.listeners.append(listen)
        rooms.send(new("a", "passing", Durability.MEMORY))
        assert heard == []
        await asyncio.wait_for(done.wait(), 30)
        assert heard == ["passing"]
        rooms.leave(live)


async def test_a_room_that_is_deleted_and_made_again_is_heard_from_its_new_beginning(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        for number in range(3):
            await hw.room("a").send(number)
        rooms = hw.rooms_service
        live = await rooms.enter("main", "a")
        heard: list[Event] = []
        done = asyncio.Event()

        def listen(events: Sequence[Event]) -> None:
            heard.extend(event for event in events if not isinstance(event, Presence))
            if len(heard) == 3:
                done.set()

        live.listeners.append(listen)
        await hw.room("a").send("before")
        await hw.queue("rooms/a").delete()
        await hw.room("a").send("after")
        await asyncio.wait_for(done.wait(), 30)
        before, missed, after = heard
        assert isinstance(before, RoomMessage)
        assert missed == Missed(-1)
        assert isinstance(after, RoomMessage)
        assert (before.offset, after.offset, after.payload) == (3, 0, "after")
        rooms.leave(live)


async def test_a_listener_that_fails_silences_nobody_else(hw: headwater.Headwater) -> None:
    rooms = hw.rooms_service
    bad, good = await rooms.enter("main", "bad"), await rooms.enter("main", "good")
    heard = asyncio.Event()

    def fail(events: Sequence[Event]) -> None:
        raise RuntimeError("a mistake of this room")

    bad.listeners.append(fail)
    good.listeners.append(lambda events: heard.set())
    await hw.room("bad").send(1)
    await hw.room("good").send(2)
    await asyncio.wait_for(heard.wait(), 30)
    assert (bad.next, good.next) == (1, 1)
    rooms.leave(bad)
    rooms.leave(good)
