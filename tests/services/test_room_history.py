"""What is kept of a room is read while messages of it are dropped: an answer has no hole, or is a refusal."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

import headwater
from headwater.errors import ResyncRequired
from headwater.log.operations import Retain
from headwater.model.room import RoomMessage
from headwater.services.room import Room
from headwater.services.room_history import PAGE_SEGMENTS, RoomHistory
from headwater.services.room_outline import Outline
from tests.contracts.clock import FakeClock

OLD, YOUNG = PAGE_SEGMENTS + 20, 30


class Dropping(RoomHistory):
    """A history of which the old messages expire before one of its pages is read."""

    def __init__(self, hw: headwater.Headwater, clock: FakeClock, before_page: int) -> None:
        super().__init__(hw.queues_service)
        self._hw, self._clock, self._pages_left = hw, clock, before_page

    async def history(self, outline: Outline, room: str, after: int, limit: int) -> list[RoomMessage]:
        if self._pages_left == 0:
            await drop_old(self._hw, self._clock)
        self._pages_left -= 1
        return await super().history(outline, room, after, limit)


async def drop_old(hw: headwater.Headwater, clock: FakeClock) -> None:
    clock.advance(30)
    await hw.committer.submit(Retain())


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def hw(tmp_path: Path, clock: FakeClock) -> AsyncIterator[headwater.Headwater]:
    """Room a: old messages, whose time is over soon, and young ones behind them."""
    async with headwater.open(str(tmp_path / "headwater.db"), clock=clock, housekeeping=False) as opened:
        for number in range(OLD):
            await opened.room("a").send(number)
        clock.advance(40)
        for number in range(YOUNG):
            await opened.room("a").send(number)
        yield opened


@pytest.mark.parametrize("before_page", [0, 1])
async def test_messages_that_expire_while_they_are_read_are_told_to_who_names_an_offset(
    hw: headwater.Headwater, clock: FakeClock, before_page: int
) -> None:
    history = Dropping(hw, clock, before_page)
    with pytest.raises(ResyncRequired, match=f"from offset {OLD} up to {OLD + YOUNG - 1}"):
        await history.history_of("main", "a", 0, 1_000)
    found, outline = await history.history_of("main", "a", OLD - 1, 1_000)
    assert [one.offset for one in found] == list(range(OLD, OLD + YOUNG))
    assert outline.end == OLD + YOUNG


@pytest.mark.parametrize("before_page", [0, 1])
async def test_who_asks_for_all_that_is_kept_gets_what_still_is_without_a_hole(
    hw: headwater.Headwater, clock: FakeClock, before_page: int
) -> None:
    found, _ = await Dropping(hw, clock, before_page).history_of("main", "a", None, 1_000)
    assert [one.offset for one in found] == list(range(OLD, OLD + YOUNG))


async def test_a_room_that_is_dropped_whole_while_it_is_read_is_told(hw: headwater.Headwater, clock: FakeClock) -> None:
    history = Dropping(hw, clock, 0)
    clock.advance(60)
    with pytest.raises(ResyncRequired):
        await history.history_of("main", "a", 0, 1_000)


async def test_messages_that_expire_while_one_begins_to_follow_are_told_at_once(
    hw: headwater.Headwater, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the next message: that may never come."""
    outline = Room._outline

    async def look_then_drop(room: Room) -> Outline:
        seen = await outline(room)
        clock.advance(60)
        await drop_old(hw, clock)
        return seen

    monkeypatch.setattr(Room, "_outline", look_then_drop)
    async with aclosing(hw.room("a").follow(0)) as messages:
        with pytest.raises(ResyncRequired, match="were dropped"):
            await asyncio.wait_for(anext(messages), 30)
