"""A bucket without room, and a scratch folder without room: it is told, nothing is lost, and it ends by itself."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater.errors import StoreFailed, StoreFull
from headwater.stores.bucket.address import Ship
from headwater.stores.questions import FindLastLsn
from tests.contracts.factories import in_memory
from tests.faults.small_disk import fill, mounted
from tests.waiting import expect_soon_async

PATIENCE_SECONDS = 60.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder) as disk:
        if disk is None:
            pytest.skip("no file system can be mounted here")
        yield disk


def noise() -> str:
    """What no codec makes smaller."""
    return os.urandom(60_000).hex()


async def payloads(address: str) -> list[object]:
    async with headwater.open(address, housekeeping=False) as hw:
        return [message.payload for message in await hw.queue("orders").pop(batch=1_000)]


async def push_until_full(hw: headwater.Headwater, answered: list[object]) -> None:
    for _ in range(1_000):
        block = noise()
        try:
            await hw.queue("orders").push(block)
        except StoreFull:
            return
        answered.append(block)
    raise AssertionError("it was never full")


@pytest.mark.parametrize("ship", [Ship.CHAIN, Ship.IMAGE])
async def test_a_full_bucket_is_told_and_what_waited_lands_when_there_is_room(disk: Path, ship: Ship) -> None:
    address = f"file://{disk}/log.sqlite?ship={ship}"
    async with headwater.open(address, housekeeping=False) as hw:
        await hw.queue("orders").push("first")
        filler = fill(disk)
        # Nobody can say that it will not land: it waits.
        waiting = asyncio.ensure_future(hw.queue("orders").push(second := noise()))

        async def is_told() -> bool:
            await asyncio.sleep(0.02)
            return hw.store._keeper.full  # type: ignore[attr-defined,no-any-return]

        await expect_soon_async(is_told, PATIENCE_SECONDS)
        for _ in range(2):
            with pytest.raises(StoreFull, match="no room in the bucket"):
                await asyncio.wait_for(hw.queue("orders").push("refused"), PATIENCE_SECONDS)
        assert hw.committer.full
        assert not waiting.done()
        filler.unlink()
        await asyncio.wait_for(waiting, PATIENCE_SECONDS)

        async def has_room() -> bool:
            return not hw.committer.full

        await expect_soon_async(has_room, PATIENCE_SECONDS)
        await hw.queue("orders").push("third")
    assert await payloads(address) == ["first", second, "third"]


@pytest.mark.parametrize("durability", ["synced", "memory"])
@pytest.mark.parametrize("ship", [Ship.CHAIN, Ship.IMAGE])
async def test_whoever_leaves_a_full_bucket_is_told_what_was_given_up(disk: Path, ship: Ship, durability: str) -> None:
    address = f"file://{disk}/log.sqlite?ship={ship}&lease_seconds=1"
    hw = headwater.open(address, housekeeping=False)
    await hw.start()
    await hw.queue("orders").push("first")
    filler = fill(disk)
    pushing = asyncio.ensure_future(hw.queue("orders").push(noise(), durability=durability))

    async def is_told() -> bool:
        await asyncio.sleep(0.02)
        return hw.store._keeper.full  # type: ignore[attr-defined,no-any-return]

    await expect_soon_async(is_told, PATIENCE_SECONDS)
    with pytest.raises(StoreFull):
        await hw.store.ask(FindLastLsn())
    with pytest.raises(StoreFailed, match="is given up"):
        await asyncio.wait_for(hw.close(), PATIENCE_SECONDS)
    if durability == "memory":
        await pushing
    else:
        with pytest.raises(StoreFailed, match="whether it holds is not known"):
            await pushing
    filler.unlink()
    assert (await payloads(address))[0] == "first"


async def test_whoever_leaves_a_full_bucket_with_nothing_on_its_way_just_leaves(disk: Path) -> None:
    address = f"file://{disk}/log.sqlite?lease_seconds=1"
    async with headwater.open(address, housekeeping=False) as hw:
        await hw.queue("orders").push("first")
        filler = fill(disk)
    filler.unlink()
    assert await payloads(address) == ["first"]


async def test_a_full_scratch_folder_is_told_and_what_was_answered_is_there(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.stores.bucket.scratch_folder.MEMORY", str(disk))
    answered: list[object] = []
    with in_memory() as folder:
        address = f"file://{folder}/log.sqlite?bytes_max=8388608"
        async with headwater.open(address, housekeeping=False) as hw:
            assert str((await hw.store.examine()).named("scratch_file")).startswith(str(disk))
            filler = fill(disk)
            await push_until_full(hw, answered)
            filler.unlink()

            async def is_taken() -> bool:
                try:
                    await hw.queue("orders").push("after")
                except StoreFull:
                    return False
                return True

            await expect_soon_async(is_taken, PATIENCE_SECONDS)
        assert await payloads(address) == [*answered, "after"]
