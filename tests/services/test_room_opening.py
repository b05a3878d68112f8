"""A room is opened once for all who come meanwhile: whoever is in it then hears what is said there, whatever became of
others who came with them."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.errors import StoreBusy
from headwater.services.live_room import Event, LiveRoom
from headwater.services.rooms import Rooms

PATIENCE_SECONDS = 30.0
# So many turns of the loop are enough for whoever waits for a room to hear that it could not be opened.
TURNS = 12


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "headwater.db")) as opened:
        yield opened


class Gates:
    """What opens a room waits here, each time until it is let through, or told that it fails."""

    def __init__(self, rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()
        monkeypatch.setattr(rooms, "look_at_switches", self._wait)

    async def _wait(self) -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait(gate)
        await gate

    async def next(self) -> "asyncio.Future[None]":
        """The next who has come."""
        return await asyncio.wait_for(self.waiting.get(), PATIENCE_SECONDS)


async def hears(hw: headwater.Headwater, live: LiveRoom) -> Any:
    """What is heard in a room of what is said there."""
    heard: asyncio.Queue[Event] = asyncio.Queue()
    live.listeners.append(lambda events: heard.put_nowait(events[0]))
    await hw.room(live.name).send("hello")
    return getattr(await asyncio.wait_for(heard.get(), PATIENCE_SECONDS), "payload", None)


async def test_who_gives_up_while_a_room_is_opened_leaves_the_next_in_a_room_that_is_open(
    hw: headwater.Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hw.room("a").send("before")
    rooms = hw.rooms_service
    gates = Gates(rooms, monkeypatch)
    enter = partial(rooms.enter, "main", "a")
    first = asyncio.ensure_future(enter())
    left = await gates.next()
    first.cancel()
    await asyncio.wait({first})
    second = asyncio.ensure_future(enter())
    gate = await gates.next()
    if not left.done():
        left.set_exception(StoreBusy("the store is busy"))
    for _ in range(TURNS):
        await asyncio.sleep(0)
    third = asyncio.ensure_future(enter())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert not third.done(), "it is not open yet"
    gate.set_result(None)
    lives = [await asyncio.wait_for(entered, PATIENCE_SECONDS) for entered in (second, third)]
    assert lives[0] is lives[1]
    assert lives[1].next == 1, "it goes on behind what was said before"
    assert await hears(hw, lives[1]) == "hello"


@pytest.mark.parametrize("turns", range(TURNS))
async def test_who_comes_while_a_room_could_not_be_opened_is_told_so_or_is_in_a_room_that_is_open(
    turns: int, hw: headwater.Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = hw.rooms_service
    gates = Gates(rooms, monkeypatch)
    first = asyncio.ensure_future(rooms.enter("main", "a"))
    (await gates.next()).set_exception(StoreBusy("the store is busy"))
    for _ in range(turns):
        await asyncio.sleep(0)
    monkeypatch.undo()
    try:
        live = await asyncio.wait_for(rooms.enter("main", "a"), PATIENCE_SECONDS)
    except StoreBusy:
        live = await asyncio.wait_for(rooms.enter("main", "a"), PATIENCE_SECONDS)
    with pytest.raises(StoreBusy):
        await first
    assert await hears(hw, live) == "hello"
