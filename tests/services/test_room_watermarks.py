"""How far servers have delivered their rooms: what is said of it, what a restart finds, and what is dropped by it."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.config import Durability
from headwater.log.operations import SetSwitch
from headwater.model.names import Lsn
from headwater.model.room import Member
from headwater.services import rooms as rooms_service
from headwater.services.live_room import Event, LiveRoom, Presence
from headwater.services.room_followers import RETRY_SECONDS_MAX, pause_seconds
from headwater.services.room_gathering import NewMessage
from headwater.services.rooms import MEMORY_SWITCH, Rooms
from headwater.stores.questions import ListPartitions
from tests.contracts.clock import FakeClock
from tests.waiting import expect_soon_async


class Ear:
    """Somebody in a room."""

    def __init__(self, live: LiveRoom) -> None:
        self.heard: list[Event] = []
        live.listeners.append(self.heard.extend)


async def soon(holds: Callable[[], bool]) -> None:
    """Returns when it is so."""

    async def look() -> bool:
        return holds()

    await expect_soon_async(look)


async def enter(hw: headwater.Headwater, room: str = "a") -> tuple[LiveRoom, Ear]:
    live = await hw.rooms_service.enter("main", room)
    return live, Ear(live)


async def say(hw: headwater.Headwater, ear: Ear, count: int) -> None:
    """So many messages one after the other, each in a commit of its own, heard before the next."""
    for number in range(count):
        before = len(ear.heard)
        await hw.room("a").send(number)
        await soon(lambda before=before: len(ear.heard) > before)  # type: ignore[misc]


async def marks(hw: headwater.Headwater) -> dict[str, Lsn]:
    return {mark.instance: mark.lsn for mark in await hw.room("a").watermarks()}


async def marks_behind(hw: headwater.Headwater) -> dict[str, Lsn]:
    """The same once what was said before is in the log: what is said next is behind it."""
    await hw.room("another").send("behind it")
    return await marks(hw)


async def test_a_watermark_is_nothing_at_first_and_outlives_its_server(tmp_path: Path) -> None:
    """S0-16, S0-30, S0-31, S0-32, S0-48, T0-b: a server of the same name goes on from where it was."""
    path = str(tmp_path / "headwater.db")
    async with headwater.open(path, rooms={"server_instance_id": "server-a"}) as hw:
        assert await marks(hw) == {}
        live, ear = await enter(hw)
        await say(hw, ear, 3)
        reached = live.delivered
        assert reached > 0
        hw.rooms_service.say_who_is_here()
        await soon(lambda: live.watermarks["server-a"].lsn == reached)
    async with headwater.open(path, rooms={"server_instance_id": "server-a"}) as hw:
        assert await marks(hw) == {"server-a": reached}
        live, _ = await enter(hw)
        assert await marks_behind(hw) == {"server-a": reached}
        hw.rooms_service.say_who_is_here()
        await soon(lambda: live.watermarks["server-a"].lsn > reached)
    async with headwater.open(path, rooms={"server_instance_id": "server-b"}) as hw:
        live, _ = await enter(hw)
        assert (await marks_behind(hw))["server-b"] == 0, "a server of another name has delivered nothing"


async def test_how_far_it_is_is_said_every_ten_steps_and_by_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S0-19, T0-c: every tenth step that brought messages, by counting them, not by a clock that happens to fit."""
    monkeypatch.setattr(rooms_service, "WATERMARK_SECONDS", 0.0)
    async with headwater.open(str(tmp_path / "headwater.db"), rooms={"server_instance_id": "server-a"}) as hw:
        live, ear = await enter(hw)
        await hw.rooms_service.connect(live, Member("ann"))
        await soon(lambda: bool(ear.heard))
        await say(hw, ear, 9)
        assert await marks(hw) == {"server-a": 0}
        await hw.room("a").send("the tenth")
        await soon(lambda: live.watermarks["server-a"].lsn > 0)
        tenth = live.watermarks["server-a"].lsn
        assert tenth == 12
        assert await marks(hw) == {"server-a": tenth}
        # Who is there is not touched by it.
        assert [event.state for event in ear.heard if isinstance(event, Presence)] == ["joined"]
        assert [member.member for member in await hw.room("a").members()] == ["ann"]


async def test_what_all_servers_have_delivered_is_dropped_by_the_lowest_watermark(tmp_path: Path) -> None:
    """S0-28, S0-33, T0-d: the highest would take from the slower one what it has not got yet."""
    path, clock = str(tmp_path / "headwater.db"), FakeClock()

    def settings(name: str) -> dict[str, Any]:
        return {"server_instance_id": name, "cleanup_policy": "watermark"}

    async def kept(hw: headwater.Headwater) -> tuple[int, int]:
        [found] = [one for one in await hw.store.ask(ListPartitions("main", "rooms/a")) if one.partition == "messages"]
        return found.start, found.end

    async with (
        headwater.open(path, clock=clock, rooms=settings("fast"), housekeeping=False) as fast,
        headwater.open(path, clock=clock, rooms=settings("slow"), housekeeping=False) as slow,
    ):
        live, ear = await enter(fast)
        behind, other = await enter(slow)
        await say(fast, ear, 2)
        await soon(lambda: len(other.heard) == 2)
        # It says where it is, and then is stuck.
        slow.rooms_service.say_who_is_here()
        await soon(lambda: live.watermarks["slow"].lsn > 0)
        slow.rooms_service.leave(behind)
        await say(fast, ear, 3)
        for _ in range(2):
            fast.rooms_service.say_who_is_here()
            await soon(lambda: live.watermarks["fast"].lsn > 0)
        assert live.watermarks["slow"].lsn < live.watermarks["fast"].lsn

        async def trimmed() -> tuple[int, int]:
            """What is kept after the next beat; what is sent behind it is committed behind it."""
            fast.rooms_service.say_who_is_here()
            await fast.room("other").send(1)
            return await kept(fast)

        assert await trimmed() == (2, 5)
        # One that was silent for more than five minutes is waited for no longer.
        clock.advance(301)
        await trimmed()
        await soon(lambda: live.watermarks["fast"].updated_at == clock.now())
        assert await trimmed() == (5, 5)


async def test_a_server_that_was_stopped_as_soon_as_it_had_a_member_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not said yet how far it is, and has delivered nothing: what it has not delivered stays."""
    monkeypatch.setattr(rooms_service, "PRESENCE_SECONDS", 1_000_000.0)
    path = str(tmp_path / "headwater.db")

    def settings(name: str) -> dict[str, Any]:
        return {"server_instance_id": name, "cleanup_policy": "watermark"}

    async with (
        headwater.open(path, rooms=settings("fast"), housekeeping=False) as fast,
        headwater.open(path, rooms=settings("slow"), housekeeping=False) as slow,
    ):
        live, ear = await enter(fast)
        behind, _ = await enter(slow)
        await slow.rooms_service.connect(behind, Member("ann"))
        slow.rooms_service.leave(behind)
        await say(fast, ear, 3)
        for _ in range(2):
            fast.rooms_service.say_who_is_here()
            await soon(lambda: "fast" in live.watermarks and live.watermarks["fast"].lsn > 0)
        await fast.room("other").send("behind the beat")
        assert (await fast.rooms_service.kept.outline("main", "a")).start == 0
        assert (await marks(fast))["slow"] == 0


async def test_messages_stay_for_their_time_unless_the_policy_says_otherwise(tmp_path: Path) -> None:
    """S0-28: the default keeps what all have got, for who comes back."""
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        live, ear = await enter(hw)
        await say(hw, ear, 2)
        for _ in range(3):
            hw.rooms_service.say_who_is_here()
            await asyncio.sleep(0.01)
        await soon(lambda: bool(live.watermarks))
        [kept] = [one for one in await hw.store.ask(ListPartitions("main", "rooms/a")) if one.partition == "messages"]
        assert (kept.start, kept.end) == (0, 2)


# ── errors ──


def test_pauses_between_tries_double_up_to_a_bound() -> None:
    """S0-22."""
    pauses = [pause_seconds(failures) for failures in range(12)]
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert pauses[-1] == pause_seconds(10_000) == RETRY_SECONDS_MAX


async def test_an_error_of_the_follower_is_logged_and_never_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S0-20, S0-22: what was said meanwhile comes after it, each once."""
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        _, ear = await enter(hw)
        await say(hw, ear, 1)
        paused: list[float] = []
        hand_out = Rooms.hand_out

        def fail(self: Rooms, segments: Any) -> None:
            if len(paused) < 3:
                raise OSError("the disk is away")
            hand_out(self, segments)

        async def sleep(seconds: float) -> None:
            paused.append(seconds)
            await asyncio.tasks.sleep(0)

        monkeypatch.setattr(Rooms, "hand_out", fail)
        monkeypatch.setattr("headwater.services.rooms.asyncio.sleep", sleep)
        with caplog.at_level(logging.ERROR):
            await hw.room("a").send("while it failed")
            async with asyncio.timeout(60):
                while len(ear.heard) < 2:
                    await asyncio.tasks.sleep(0)
        monkeypatch.undo()
        assert paused[:3] == [0.1, 0.2, 0.4]
        assert caplog.text.count("rooms could not be followed; it is tried again in") == 3
        assert [event.payload for event in ear.heard if hasattr(event, "payload")] == [0, "while it failed"]


# ── the flag ──


def message(text: str) -> NewMessage:
    return NewMessage(
        database="main",
        room="a",
        type="test",
        data=headwater.Raw(f'"{text}"'.encode()),
        sender="ann",
        durability=Durability.WRITTEN,
    )


async def test_rooms_are_switched_to_memory_and_back_while_clients_stay(tmp_path: Path) -> None:
    """S0-44, S0-65: by a switch in the store, which every server on it obeys; whoever is there stays and hears on."""
    path = str(tmp_path / "headwater.db")
    async with headwater.open(path) as one, headwater.open(path) as two:
        _, here = await enter(one)
        _, there = await enter(two)

        async def switch(is_on: bool) -> None:
            await one.queues_service.run(SetSwitch(name=MEMORY_SWITCH, is_on=is_on))
            for hw in (one, two):
                hw.rooms_service.say_who_is_here()
                await soon(lambda hw=hw: hw.rooms_service.goes_through_log("main") is not is_on)  # type: ignore[misc]

        def said(ear: Ear) -> list[str]:
            return [event.payload for event in ear.heard if hasattr(event, "payload")]

        async def speak(text: str) -> int | None:
            sending = one.rooms_service.send(message(text))
            assert sending is not None
            return (await sending).offset

        assert await speak("by the log") == 0
        await switch(True)
        assert await speak("in memory") is None
        await switch(False)
        assert await speak("by the log again") == 1
        await soon(lambda: len(said(here)) == 3 and len(said(there)) == 2)
        assert said(here) == ["by the log", "in memory", "by the log again"]
        assert said(there) == ["by the log", "by the log again"]
        assert one.rooms_service.goes_through_log("other")
