"""How many are in a room: every server tells as many as there are, whoever came or went, and where."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import headwater
from headwater.model.room import Member
from headwater.services import rooms as rooms_service
from headwater.services.live_room import LiveRoom


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


async def come(hw: headwater.Headwater, *names: str) -> LiveRoom:
    for name in names:
        live = await hw.rooms_service.enter("main", "a")
        await hw.rooms_service.connect(live, Member(name))
    return live


def go(hw: headwater.Headwater, live: LiveRoom, *names: str) -> None:
    for name in names:
        hw.rooms_service.disconnect(live, name)
        hw.rooms_service.leave(live)


async def counts(here: headwater.Headwater, *others: headwater.Headwater) -> list[int]:
    """What each server tells, once what the first has said is in the log: what it says next is behind it."""
    own = (await here.rooms_service.roll_call("main", "a"))[1]
    await here.room("another").send("behind it")
    return [own, *[(await hw.rooms_service.roll_call("main", "a"))[1] for hw in others]]


async def test_nobody_is_there_once_all_have_left(servers: tuple[headwater.Headwater, headwater.Headwater]) -> None:
    """Also when a roll was called meanwhile, which nobody is left to call again."""
    here, there = servers
    live = await come(here, "ann", "bob", "cy")
    here.rooms_service.say_who_is_here()
    assert await counts(here, there) == [3, 3]
    go(here, live, "ann", "bob")
    assert await counts(here, there) == [1, 1]
    go(here, live, "cy")
    assert await counts(here, there) == [0, 0]
    newcomer = await come(there, "dan")
    assert newcomer.attendance.roll_call(there.rooms_service.origin, newcomer.here) == ([Member("dan")], 1)


async def test_members_are_told_while_rooms_pass_messages_on_in_memory(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "headwater.db"), rooms={"use_message_queue": False}) as hw:
        live = await come(hw, "ann", "bob")
        assert await hw.rooms_service.roll_call("main", "a") == ([Member("ann"), Member("bob")], 2)
        go(hw, live, "ann", "bob")
        assert await hw.rooms_service.roll_call("main", "a") == ([], 0)
