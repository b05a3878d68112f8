"""An answer that only confirms what an earlier call did waits for the disk like any other: power may go in between."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import headwater
from tests.faults.test_waiting_pops import HeldBarrier, hold


async def confirm(queue: headwater.Queue, how: str, barrier: HeldBarrier) -> tuple[Any, Any]:
    """The same push twice: once content with `written`, then once more, asking for the disk, which does not answer."""
    about: dict[str, Any] = {"idempotency_key": "once"} if how == "key" else {"transaction_id": "once"}
    first = await queue.push("record", durability="written", **about)
    barrier.holds = True
    second = asyncio.ensure_future(queue.push("record", **about))
    for _ in range(20):
        await asyncio.sleep(0)
    return first, second


@pytest.mark.parametrize("how", ["key", "transaction id"])
async def test_the_second_of_two_equal_pushes_waits_for_the_disk_too(folder: Path, how: str) -> None:
    async with headwater.open(str(folder / "store.db"), housekeeping=False) as hw:
        barrier = hold(hw)
        first, second = await confirm(hw.queue("orders"), how, barrier)
        assert first.durability == "written"
        assert not second.done()
        barrier.let_go()
        assert (await second).durability == "synced"
        assert (await second).offset == first.offset
