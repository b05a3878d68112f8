"""Whoever waits for a store in a bucket asks for what is new, and pays for nothing else."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import headwater
from headwater.config import Config
from headwater.stores.bucket import chain_keeper, lease, store
from headwater.stores.bucket.address import Place, Ship
from headwater.stores.bucket.chain_keeper import ChainKeeper
from headwater.stores.bucket.image_keeper import ImageKeeper
from headwater.stores.bucket.keeper import open_objects
from headwater.stores.bucket.lease import End
from headwater.stores.bucket.objects import Found, Objects
from headwater.stores.bucket.store import BucketStore
from headwater.stores.contract import Holder
from tests.contracts.factories import in_memory
from tests.stores.bucket.test_store import at, drained
from tests.waiting import expect_soon_async

BOTH = [Ship.CHAIN, Ship.IMAGE]
PATIENCE_SECONDS = 60.0
LOOKS = 20


class Counted:
    """A bucket that notes whatever it is asked for, and answers while its gate is open."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.asked: Counter[str] = Counter()
        self.read_bytes = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def get(self, key: str) -> Found | None:
        return await self._count(f"GET {key}", self._objects.get(key))

    async def head(self, key: str, size: int) -> Found | None:
        return await self._count(f"GET {key}", self._objects.head(key, size))

    async def names(self, prefix: str) -> list[str]:
        self.asked["LIST"] += 1
        return await self._objects.names(prefix)

    async def _count(self, what: str, asking: Awaitable[Found | None]) -> Found | None:
        self.asked[what] += 1
        await self.gate.wait()
        found = await asking
        self.read_bytes += 0 if found is None else len(found.data)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)


class Waiting:
    """A broker that stands by, what it asks of the bucket, and how often it has looked."""

    def __init__(self, broker: BucketStore, objects: Counted) -> None:
        self.broker = broker
        self.objects = objects
        self.looks = 0
        self.end: End

    async def look(self, times: int = 1) -> None:
        """Until it has looked so often from now on."""
        until = self.looks + times

        async def has_looked() -> bool:
            return self.looks >= until

        await expect_soon_async(has_looked, PATIENCE_SECONDS)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LOOK_SECONDS_MAX", 0.002)


@pytest.fixture
def folder() -> Iterator[str]:
    with in_memory() as place:
        yield place


@asynccontextmanager
async def waiting_at(address: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Waiting]:
    made: list[Counted] = []

    def count(place: Place) -> Objects:
        made.append(Counted(open_objects(place)))
        return made[-1]

    monkeypatch.setattr(store, "open_objects", count)
    waiting = Waiting(BucketStore(address, Config()), made[0])
    monkeypatch.undo()
    monkeypatch.setattr(lease, "LOOK_SECONDS_MAX", 0.002)
    for keeper in (ChainKeeper, ImageKeeper):
        monkeypatch.setattr(keeper, "_find_end", counting(waiting, keeper._find_end))
    waiting.broker.stand_by(Holder("http://127.0.0.1:9"))
    opening = asyncio.ensure_future(waiting.broker.open())
    try:
        await waiting.look()
        yield waiting
    finally:
        waiting.objects.gate.set()
        opening.cancel()
        await asyncio.wait({opening})


def counting(waiting: Waiting, look: Callable[[Any], Awaitable[End]]) -> Callable[[Any], Awaitable[End]]:
    async def find_end(keeper: Any) -> End:
        waiting.end = await look(keeper)
        waiting.looks += 1
        return waiting.end

    return find_end


async def push(hw: headwater.Headwater, count: int, size: int = 10) -> None:
    for _ in range(count):
        await hw.queue("orders").push(os.urandom(size).hex())


@pytest.mark.parametrize("ship", BOTH)
@pytest.mark.parametrize("entries", [1, 60])
async def test_who_waits_for_an_idle_holder_asks_two_things_a_look(
    folder: str, ship: Ship, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = at(folder, ship=ship, lease_seconds=3_600)
    async with headwater.open(address, housekeeping=False) as hw:
        await push(hw, entries)
        async with waiting_at(address, monkeypatch) as waiting:
            before, looks = waiting.objects.asked.copy(), waiting.looks
            await waiting.look(LOOKS)
            asked = waiting.objects.asked - before
            # One more may be under way.
            assert asked.total() <= 2 * (waiting.looks - looks + 1)
            assert len(asked) <= 2
            assert waiting.broker.numbers()["bucket_gets_total"] >= asked.total()


async def test_who_waits_asks_for_each_new_entry_once_and_not_for_its_pages(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = at(folder, lease_seconds=3_600)
    async with headwater.open(address, housekeeping=False) as hw:
        await push(hw, 1)
        async with waiting_at(address, monkeypatch) as waiting:
            asked, read_bytes = waiting.objects.asked.copy(), waiting.objects.read_bytes
            waiting.objects.gate.clear()
            await push(hw, 40, 50_000)
            waiting.objects.gate.set()
            await waiting.look(3)
            asked = waiting.objects.asked - asked
            entries = [name for name in os.listdir(f"{folder}/log.sqlite-log") if name.isdigit()]
            # The ends of two looks, and those that were asked for ahead, come again.
            again = [name for name in entries if asked[f"GET log.sqlite-log/{name}"] > 1]
            assert len(again) <= 3
            assert waiting.objects.read_bytes - read_bytes < 40 * 50_000
            assert waiting.end.mark == _tip_of(hw)


def _tip_of(hw: headwater.Headwater) -> int:
    assert isinstance(hw.store, BucketStore)
    keeper = hw.store._keeper._keeper
    assert isinstance(keeper, ChainKeeper)
    return keeper._chain.tip


async def test_who_slept_while_what_it_had_seen_was_collected_finds_the_end(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = at(folder, lease_seconds=3_600)
    async with headwater.open(address, housekeeping=False) as hw:
        await push(hw, 3)
        async with waiting_at(address, monkeypatch) as waiting:
            seen = waiting.end.mark
            waiting.objects.gate.clear()
            monkeypatch.setattr(chain_keeper, "BASE_ENTRIES_MAX", 4)
            await push(hw, 40)

            async def is_collected() -> bool:
                return "000000000004" not in os.listdir(f"{folder}/log.sqlite-log")

            await expect_soon_async(is_collected, PATIENCE_SECONDS)
            waiting.objects.gate.set()
            await waiting.look(2)
            assert waiting.end.mark == _tip_of(hw) != seen
            assert waiting.end.lease_seconds == 3_600
    assert len(await drained(address)) == 43
