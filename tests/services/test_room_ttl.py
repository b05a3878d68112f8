"""How long a message of a room is kept: as the setting says, or as its sender does, on every way in."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import headwater
import headwater.sync
from headwater.errors import InvalidOption
from headwater.log.operations import Retain
from headwater.services.database import Database
from tests.contracts.clock import FakeClock
from tests.doors.live_door import SERVINGS

SETTING_SECONDS = 600


async def by_send(hw: Database, **said: Any) -> None:
    await hw.room("a").send(1, **said)


async def by_transaction(hw: Database, **said: Any) -> None:
    async with hw.transaction() as together:
        together.send("a", 1, **said)


@pytest.mark.parametrize("way", [by_send, by_transaction])
@pytest.mark.parametrize("interface", ["an open store", "a server"])
async def test_a_message_is_kept_for_the_setting_or_for_what_its_sender_says(
    tmp_path: Path, interface: str, way: Callable[..., Awaitable[None]]
) -> None:
    clock = FakeClock()
    path, rooms = str(tmp_path / "headwater.db"), {"message_ttl": SETTING_SECONDS}
    async with AsyncExitStack() as stack:
        hw = await stack.enter_async_context(headwater.open(path, clock=clock, housekeeping=False, rooms=rooms))
        used: Database = hw
        if interface == "a server":
            url = await stack.enter_async_context(SERVINGS["edge"](hw))
            used = await stack.enter_async_context(headwater.connect(url))
        for seconds, said in ((SETTING_SECONDS, {}), (30, {"ttl_seconds": 30}), (900, {"ttl_seconds": 900})):
            await way(used, **said)
            await expire(hw, clock, seconds - 1)
            assert await kept(hw) == 1, said
            await expire(hw, clock, 2)
            assert await kept(hw) == 0, said
        with pytest.raises(InvalidOption, match="ttl_seconds"):
            await way(used, ttl_seconds=0)


def test_the_setting_holds_for_the_sync_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_MESSAGE_TTL", str(SETTING_SECONDS))
    path, clock = str(tmp_path / "headwater.db"), FakeClock()
    with headwater.sync.open(path, clock=clock, housekeeping=False) as plain:
        plain.room("a").send(1)
    assert asyncio.run(kept_around_the_setting(path, clock)) == (1, 0)


async def kept_around_the_setting(path: str, clock: FakeClock) -> tuple[int, int]:
    """How many messages are kept a second before the time of the setting is over, and a second behind it."""
    async with headwater.open(path, clock=clock, housekeeping=False) as hw:
        await expire(hw, clock, SETTING_SECONDS - 1)
        before = await kept(hw)
        await expire(hw, clock, 2)
        return before, await kept(hw)


async def expire(hw: headwater.Headwater, clock: FakeClock, seconds: float) -> None:
    clock.advance(seconds)
    await hw.committer.submit(Retain())


async def kept(hw: headwater.Headwater) -> int:
    outline = await hw.rooms_service.kept.outline("main", "a")
    return outline.end - outline.start
