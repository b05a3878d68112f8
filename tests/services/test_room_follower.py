"""One follower for all rooms of a database, one commit for what is said together, and one chore that cleans up."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

import headwater
from headwater.log.operations import Retain
from headwater.model.room import RoomMessage
from headwater.services.live_room import Event
from headwater.services.room_followers import RoomFollowers
from headwater.services.rooms import Rooms
from headwater.stores.questions import ListPartitions, Segment
from tests.contracts.clock import FakeClock
from tests.waiting import expect_soon_async

ROOMS = 50


def put_all(heard: asyncio.Queue[Event], events: Sequence[Event]) -> None:
    for event in events:
        heard.put_nowait(event)


async def test_however_many_rooms_there_are_one_follower_is_woken_for_them(tmp_path: Path) -> None:
    """S0-15, S0-21, S0-23, T0-g: nobody polls a room; whoever says something wakes those who listen."""
    path = str(tmp_path / "headwater.db")
    async with headwater.open(path) as one, headwater.open(path) as two:
        heard: asyncio.Queue[Event] = asyncio.Queue()
        for number in range(ROOMS):
            live = await two.rooms_service.enter("main", f"canvas-{number}")
            live.listeners.append(partial(put_all, heard))
        assert two.rooms_service.followers == 1
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("poll-")] == []
        for number in range(ROOMS):
            await one.room(f"canvas-{number}").send(number)
        found = [await asyncio.wait_for(heard.get(), 60) for _ in range(ROOMS)]
        assert [event.payload for event in found if hasattr(event, "payload")] == list(range(ROOMS))


async def test_messages_that_are_said_together_are_one_commit_and_one_segment(tmp_path: Path) -> None:
    """S0-12, S0-13: up to ten in the document; here all that wait."""
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        room = hw.room("a")
        before = await hw.queues_service.last_lsn()
        offsets = await asyncio.gather(*(room.send(number) for number in range(25)))
        assert offsets == list(range(25))
        assert await hw.queues_service.last_lsn() == before + 1


async def test_what_expired_two_minutes_ago_is_dropped(tmp_path: Path) -> None:
    """S0-50."""
    clock = FakeClock()
    async with headwater.open(str(tmp_path / "headwater.db"), clock=clock, housekeeping=False) as hw:
        for number in range(3):
            await hw.room("a").send(number)
        clock.advance(180)
        assert (await hw.committer.submit(Retain())).result.records == 3
        [left] = await hw.store.ask(ListPartitions("main", "rooms/a"))
        assert (left.start, left.end) == (3, 3)


async def test_the_chore_of_a_server_drops_what_has_expired_in_its_interval_and_ends_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """S0-25, S0-26, S0-43: nobody asks for it; it says how many, and is over when the server is."""
    with caplog.at_level(logging.DEBUG, "headwater.housekeeping.keeper"):
        path, rooms = str(tmp_path / "headwater.db"), {"cleanup_interval": 0.05}
        async with headwater.open(path, rooms=rooms, housekeeping_seconds=3_600) as hw:
            for number in range(3):
                await hw.room("a").send(number, ttl_seconds=0.001)
            await hw.room("a").send("stays")

            async def is_dropped() -> bool:
                [left] = await hw.store.ask(ListPartitions("main", "rooms/a"))
                return (left.start, left.end) == (3, 4) and "chore retention: " in caplog.text

            await expect_soon_async(is_dropped)
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_so_much_is_read_at_once_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S0-18, S0-42: `max_messages_per_poll` bounds a look at the log; what is behind comes with the next one."""
    path = str(tmp_path / "headwater.db")
    sizes: list[int] = []
    goes_on = asyncio.Event()
    hand_out = Rooms.hand_out

    def note(self: Rooms, segments: Sequence[Segment]) -> None:
        sizes.append(len(segments))
        hand_out(self, segments)

    async def rest(self: RoomFollowers) -> None:
        await goes_on.wait()

    monkeypatch.setattr(Rooms, "hand_out", note)
    monkeypatch.setattr(RoomFollowers, "_rest", rest)
    async with headwater.open(path) as one, headwater.open(path, rooms={"max_messages_per_poll": 3}) as two:
        heard: asyncio.Queue[Event] = asyncio.Queue()
        live = await two.rooms_service.enter("main", "a")
        live.listeners.append(partial(put_all, heard))
        for number in range(8):
            await one.room("a").send(number)
        goes_on.set()
        found = [await asyncio.wait_for(heard.get(), 60) for _ in range(8)]
        assert [event.payload for event in found if isinstance(event, RoomMessage)] == list(range(8))
    assert max(sizes) <= 3
    assert 3 in sizes


@pytest.mark.parametrize(("interval", "rests"), [(20, []), (50, []), (51, [0.051]), (200, [0.2])])
async def test_a_server_that_may_take_its_time_rests_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval: int, rests: list[float]
) -> None:
    """S0-38, S0-45, S0-46: up to 50 ms it looks as soon as it is woken."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.tasks.sleep(0)

    async with headwater.open(str(tmp_path / "headwater.db"), rooms={"queue_poll_interval": interval}) as hw:
        heard: asyncio.Queue[Event] = asyncio.Queue()
        live = await hw.rooms_service.enter("main", "a")
        live.listeners.append(partial(put_all, heard))
        monkeypatch.setattr("headwater.services.rooms.asyncio.sleep", sleep)
        await hw.room("a").send(1)
        await asyncio.wait_for(heard.get(), 60)
        await asyncio.tasks.sleep(0)
        monkeypatch.undo()
    assert slept == rests
