"""How many are in a room: every server tells as many as there are, whoever came or went, and where."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import headwater
from headwater.model.room import MEMBERS_TOLD_MAX, PRESENCE, Member
from headwater.services import rooms as rooms_service
from headwater.services.live_room import LiveRoom
from headwater.stores.questions import ListPartitions
from tests.waiting import expect_soon_async


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


async def said(live: LiveRoom) -> None:
    """Returns when what is to be said of a crowd was said."""

    async def holds() -> bool:
        return not live.is_count_on_its_way

    await expect_soon_async(holds)


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


async def test_a_crowd_is_counted_as_it_comes_and_goes(
    servers: tuple[headwater.Headwater, headwater.Headwater],
) -> None:
    """Above 250 nobody is told by name, and all are counted, without waiting for the next roll."""
    here, there = servers
    names = [f"member-{number}" for number in range(MEMBERS_TOLD_MAX + 50)]
    live = await come(here, *names)
    await said(live)
    assert await counts(here, there) == [300, 300]
    go(here, live, *names[:20])
    await said(live)
    assert await counts(here, there) == [280, 280]
    go(here, live, *names[20:])
    await said(live)
    assert await counts(here, there) == [0, 0]


async def test_a_crowd_that_comes_at_once_costs_a_record_for_each_commit(
    servers: tuple[headwater.Headwater, headwater.Headwater],
) -> None:
    here, there = servers
    live = await come(here, *[f"member-{number}" for number in range(MEMBERS_TOLD_MAX)])
    [before] = [one.end for one in await here.store.ask(ListPartitions("main", "rooms/a")) if one.partition == PRESENCE]
    crowd = [Member(f"late-{number}") for number in range(1_000)]
    await asyncio.gather(*[here.rooms_service.connect(live, member) for member in crowd])
    await said(live)
    assert await counts(here, there) == [1_250, 1_250]
    [after] = [one.end for one in await here.store.ask(ListPartitions("main", "rooms/a")) if one.partition == PRESENCE]
    assert after - before == 2


async def test_a_name_that_was_told_stays_when_a_crowd_was_counted_meanwhile(
    servers: tuple[headwater.Headwater, headwater.Headwater],
) -> None:
    here, there = servers
    names = [f"member-{number}" for number in range(MEMBERS_TOLD_MAX)]
    live = await come(here, *names)
    listener = await there.rooms_service.enter("main", "a")
    # One too many, which is still being said when there are fewer again.
    await here.rooms_service.connect(live, Member("late"))
    go(here, live, "late", names[0])
    await here.rooms_service.connect(live, Member("again"))
    await said(live)
    assert await counts(here, there) == [MEMBERS_TOLD_MAX, MEMBERS_TOLD_MAX]
    assert Member("again") in (await there.rooms_service.roll_call("main", "a"))[0]
    there.rooms_service.leave(listener)
