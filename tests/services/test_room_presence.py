"""Who is in a room is read once by each server: whoever comes, or asks, pays for what was said since, and no more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.log.operations import DeleteQueue
from headwater.model.room import Member
from headwater.services import room_presence
from headwater.services import rooms as rooms_service
from headwater.services.live_room import LiveRoom
from headwater.stores.questions import Question, ReadPartition

PATIENCE_SECONDS = 30.0
TIMES = 40


@pytest.fixture
async def servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[headwater.Headwater, headwater.Headwater]]:
    """Two on one store, that say who is there only when they are told to."""
    monkeypatch.setattr(rooms_service, "PRESENCE_SECONDS", 1_000_000.0)
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(headwater.open(str(tmp_path / "headwater.db"), housekeeping=False))
            for _ in range(2)
        ]
        yield one, two


class Read:
    """How many records a server has read of partitions since it was last asked."""

    def __init__(self, hw: headwater.Headwater, monkeypatch: pytest.MonkeyPatch) -> None:
        self._records = 0
        self._ask = hw.queues_service.ask
        monkeypatch.setattr(hw.queues_service, "ask", self._count)

    async def _count(self, question: Question[Any]) -> Any:
        answer = await self._ask(question)
        if isinstance(question, ReadPartition):
            self._records += sum(len(segment.records) for segment in answer)
        return answer

    def since(self) -> int:
        records, self._records = self._records, 0
        return records


async def come(hw: headwater.Headwater, name: str, room: str = "a") -> LiveRoom:
    live = await asyncio.wait_for(hw.rooms_service.enter("main", room), PATIENCE_SECONDS)
    await hw.rooms_service.connect(live, Member(name))
    return live


def go(hw: headwater.Headwater, live: LiveRoom, name: str) -> None:
    hw.rooms_service.disconnect(live, name)
    hw.rooms_service.leave(live)


async def come_and_go(hw: headwater.Headwater, name: str, room: str = "a") -> None:
    go(hw, await come(hw, name, room), name)
    # What is said next is behind that they have gone.
    await hw.room("another").send("behind it")


async def names(hw: headwater.Headwater, room: str = "a") -> list[str]:
    members, count = await hw.rooms_service.roll_call("main", room)
    assert count == len(members)
    return sorted(member.member for member in members)


async def test_who_comes_to_an_empty_room_costs_no_more_the_more_came_before(
    servers: tuple[headwater.Headwater, headwater.Headwater], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = servers
    read = Read(here, monkeypatch)
    costs = []
    for turn in range(TIMES):
        await come_and_go(here, f"m{turn}")
        costs.append(read.since())
    # That the one before came, that it went, and how far the server had delivered.
    assert max(costs) <= 3
    assert await names(here) == []


async def test_who_asks_who_is_there_costs_what_was_said_since_it_was_asked(
    servers: tuple[headwater.Headwater, headwater.Headwater], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = servers
    live = await come(here, "ann")
    for turn in range(TIMES):
        await come_and_go(here, f"m{turn}")
    read = Read(there, monkeypatch)
    assert await names(there) == ["ann"]
    assert read.since() >= 2 * TIMES, "it has read none of it before"
    assert await names(there) == ["ann"]
    assert read.since() == 0
    await come(here, "bob")
    assert await names(there) == ["ann", "bob"]
    assert read.since() == 1
    go(here, live, "ann")
    await here.room("another").send("behind it")
    newcomer = await come(there, "cy")
    assert read.since() == 1
    members, count = newcomer.attendance.roll_call(there.rooms_service.origin, newcomer.here)
    assert (sorted(member.member for member in members), count) == (["bob", "cy"], 2)


async def test_many_who_ask_at_once_are_told_the_same(
    servers: tuple[headwater.Headwater, headwater.Headwater],
) -> None:
    here, there = servers
    await come(here, "ann")
    for turn in range(TIMES):
        await come_and_go(here, f"m{turn}")
        assert await asyncio.gather(*[names(there) for _ in range(4)]) == [["ann"]] * 4


async def test_of_a_room_that_was_made_again_nothing_is_known_from_before(
    servers: tuple[headwater.Headwater, headwater.Headwater],
) -> None:
    here, there = servers
    live = await come(here, "ann")
    assert await names(there) == ["ann"]
    go(here, live, "ann")
    await here.queues_service.run(DeleteQueue(queue="rooms/a"))
    assert await names(there) == []
    await come(here, "bob")
    assert await names(there) == ["bob"]


async def test_rooms_that_were_asked_for_last_are_put_by(
    servers: tuple[headwater.Headwater, headwater.Headwater], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_presence, "PUT_BY_BYTES_MAX", 3 * room_presence.ROOM_BYTES)
    here, there = servers
    rooms = [f"room{number}" for number in range(5)]
    for room in rooms:
        await come_and_go(here, "ann", room)
    read = Read(there, monkeypatch)
    for room in rooms:
        assert await names(there, room) == []
        assert read.since() > 0
    for room in rooms[2:]:
        assert await names(there, room) == []
        assert read.since() == 0
    assert await names(there, rooms[0]) == []
    assert read.since() > 0
