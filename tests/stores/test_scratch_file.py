"""A store in a scratch file whose commits are kept elsewhere: what was answered is kept once, whoever takes over."""

import asyncio
import random
import stat
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.config import Config
from headwater.errors import StoreError, StoreReplaced
from headwater.model.names import Lsn
from headwater.stores.contract import RaceLost, Traits
from headwater.stores.questions import FindLastLsn
from headwater.stores.sqlite.connection import SqliteConnection
from headwater.stores.sqlite.frames import PageChanges, WalFrames
from headwater.stores.sqlite.own_turn import OwnTurn
from headwater.stores.sqlite.scratch_file import ScratchFile
from headwater.stores.sqlite.store import SqliteStore
from headwater.wakeups.contract import Wakeup
from headwater.wakeups.data_version import DataVersionWakeup
from tests.contracts.clock import FakeClock
from tests.contracts.factories import buckets
from tests.contracts.log import LSN_MAX, Log, payloads, push, until_durable
from tests.contracts.memory_bucket import FLIGHTS_MAX, SCHEME, Bucket, Buckets, Fate
from tests.waiting import expect_soon_async

ADDRESS = f"{SCHEME}://bucket/store.sqlite"
UNSURE = (Fate.SILENT, Fate.DROPPED)


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Buckets]:
    async with buckets(tmp_path) as opened:
        yield opened


@pytest.fixture
def bucket(made: Buckets) -> Bucket:
    return made.at(ADDRESS)


def opened() -> headwater.Headwater:
    return headwater.open(ADDRESS, housekeeping=False, deduplication_ids_max=10_000)


async def kept() -> list[Any]:
    """Every payload that is kept, in the order of the log."""
    async with opened() as hw:
        messages = []
        while found := await hw.queue("orders").pop(batch=1_000):
            messages += [message.payload for message in found]
            for message in found:
                await message.ack()
        return messages


# ── flights ──


async def test_commits_are_on_their_way_together_and_land_in_order(made: Buckets, bucket: Bucket) -> None:
    async with opened() as hw:
        queue = hw.queue("orders")
        answered: list[int] = []

        async def send(number: int) -> None:
            await queue.push(number, partition="a")
            answered.append(number)

        sending = []
        for number in range(40):
            sending.append(asyncio.ensure_future(send(number)))
            await asyncio.sleep(0)
        await asyncio.gather(*sending)
        assert made.holders[0].flights_seen > 1
        assert made.holders[0].flights_seen <= FLIGHTS_MAX
    assert answered == sorted(answered)
    assert await kept() == list(range(40))


@pytest.mark.parametrize("seed", range(8))
async def test_answers_that_get_lost_lose_no_commit_and_repeat_none(bucket: Bucket, seed: int) -> None:
    chance = random.Random(seed)
    async with opened() as hw:
        queue = hw.queue("orders")
        for number in range(30):
            bucket.script.extend(chance.choices((Fate.CREATED, *UNSURE), k=2))
            await asyncio.gather(*(queue.push([number, part]) for part in range(chance.randint(1, 4))))
        expected = await hw.store.ask(FindLastLsn())
    found = await kept()
    assert expected
    assert len(found) == len({tuple(one) for one in found})
    assert {number for number, _ in found} == set(range(30))


@pytest.mark.parametrize("seed", range(8))
async def test_of_handles_that_take_the_store_from_each_other_nothing_is_lost_and_nothing_twice(
    bucket: Bucket, seed: int
) -> None:
    chance = random.Random(seed)
    answered: Counter[str] = Counter()

    async def work(name: str) -> None:
        async with opened() as hw:
            for number in range(15):
                payload = f"{name}-{number}"
                bucket.script.extend(chance.choices((Fate.CREATED, Fate.CREATED, *UNSURE), k=2))
                await hw.queue("orders").push(payload)
                answered[payload] += 1
                for _ in range(chance.randint(0, 30)):
                    await asyncio.sleep(0)

    await asyncio.gather(*(work(name) for name in ("one", "two", "three")))
    assert sum(answered.values()) == 45
    assert Counter(await kept()) == answered


# ── what others see ──


async def test_an_answer_waits_until_what_it_tells_of_has_landed(made: Buckets, bucket: Bucket) -> None:
    async with opened() as hw:
        await hw.store.apply([push(1)], hw.clock.now())
        before = bucket.free
        assert await hw.store.ask(FindLastLsn()) == 1
        assert bucket.free == before + 1


async def test_what_a_lost_race_took_back_is_not_told(made: Buckets) -> None:
    async with opened() as one, opened() as other:
        await one.queue("orders").push("theirs")
        # Applied by a holder who does not know yet that it is none any more.
        await other.queue("orders").push("first")
        commit = one.store.apply_now([push("taken back")], one.clock.now())
        assert commit is not None
        assert await one.store.ask(FindLastLsn()) == 2
        segments = await one.store.read(Lsn(0), LSN_MAX, 99)
        assert [payloads(segment) for segment in segments] == [["theirs"], ["first"]]


async def test_a_holder_that_was_deposed_goes_on_with_what_the_other_wrote(made: Buckets) -> None:
    async with opened() as one, opened() as other:
        queues = one.queue("orders"), other.queue("orders")
        placed = [await queues[number % 2].push(number, partition="a") for number in range(6)]
        assert [pushed.offset for pushed in placed] == list(range(6))
    assert await kept() == list(range(6))


async def test_a_store_that_cannot_be_opened_anew_refuses_all_until_it_can(
    made: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(connection: SqliteConnection) -> None:
        raise StoreReplaced("it was moved")

    async with opened() as one, opened() as other, asyncio.timeout(30):
        await one.queue("orders").push("first")
        await other.queue("orders").push("second")
        assert one.store.apply_now([push("taken back")], one.clock.now()) is not None
        with monkeypatch.context() as patch:
            patch.setattr(one.store, "_refuse", refuse)
            for number in range(3):
                with pytest.raises(StoreReplaced):
                    await one.queue("orders").push(f"refused {number}")
                with pytest.raises(StoreReplaced):
                    await one.store.ask(FindLastLsn())
        await one.queue("orders").push("third")
    assert await kept() == ["first", "second", "third"]


async def test_the_tail_tells_of_what_others_wrote_once_in_order(made: Buckets) -> None:
    async with opened() as one, opened() as other:
        told: list[int] = []

        async def is_told() -> bool:
            return len(told) >= 3

        await one.tail.follow(lambda touches: told.extend(touch.lsn for touch in touches))
        await one.queue("orders").push("ours")
        await other.queue("orders").push("theirs")
        await one.queue("orders").push("ours again")
        await expect_soon_async(is_told)
    assert told == [1, 2, 3]


async def test_a_reader_that_leaves_takes_nobody_along(made: Buckets) -> None:
    """Many wait for one flight; the one who stops waiting must not stop it."""
    async with opened() as hw:
        pushing = asyncio.ensure_future(hw.queue("orders").push(1))
        await asyncio.sleep(0)
        asking = [asyncio.ensure_future(hw.store.ask(FindLastLsn())) for _ in range(3)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await pushing
        assert await asyncio.gather(*asking[1:]) == [1, 1]


# ── the file ──


async def test_the_scratch_file_is_its_owners_and_goes_with_the_handle(made: Buckets, tmp_path: Path) -> None:
    async with opened() as hw:
        await hw.queue("orders").push(1)
        (folder,) = tmp_path.glob("scratch-*")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    assert list(tmp_path.glob("scratch-*")) == []


async def test_a_log_that_is_moved_into_the_file_meanwhile_loses_no_page(made: Buckets) -> None:
    config = Config(wal_bytes_max=200_000)
    store = made.kind.store(ADDRESS, config, FakeClock(), None)  # type: ignore[arg-type]
    await store.open()
    log = Log(store, FakeClock())
    for number in range(40):
        await log.push("x" * 9_000, number)
        if number % 5 == 0:
            for chore in store.chores():
                await chore.run()
    await store.close()
    assert len(await kept()) == 80


async def test_a_commit_whose_pages_cannot_be_read_is_never_built_on(
    made: Buckets, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as hw:
        await hw.queue("orders").push("before", partition="a")
        with monkeypatch.context() as patch:
            patch.setattr(WalFrames, "take", broken)
            with pytest.raises(Exception, match="cannot be read"):
                await hw.queue("orders").push("lost", partition="a")
        await hw.queue("orders").push("after", partition="a")
    assert await kept() == ["before", "after"]


def broken(frames: WalFrames, through: int) -> None:
    raise StoreError("the log cannot be read")


async def test_a_closed_store_has_sent_what_was_applied(made: Buckets) -> None:
    store = made.kind.store(ADDRESS, Config(), FakeClock(), None)  # type: ignore[arg-type]
    await store.open()
    await store.apply([push("last")], FakeClock().now())
    await store.close()
    assert await kept() == ["last"]


async def test_making_durable_what_is_durable_writes_nothing(made: Buckets, bucket: Bucket) -> None:
    store = made.kind.store(ADDRESS, Config(), FakeClock(), None)  # type: ignore[arg-type]
    assert isinstance(store, SqliteStore)
    assert isinstance(store.medium, ScratchFile)
    await store.open()
    await store.apply([push(1)], FakeClock().now())
    await until_durable(store, 1)
    creations = bucket.creations
    await until_durable(store, 1)
    assert bucket.creations == creations
    await store.close()


class HeldKeeper:
    """A keeper whose answers the test gives."""

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.sent: list[asyncio.Future[None]] = []
        self.confirmed: list[asyncio.Future[None]] = []

    async def take_over(self) -> bytearray:
        return bytearray()

    def send(self, changes: PageChanges) -> asyncio.Future[None]:
        self.sent.append(asyncio.get_running_loop().create_future())
        return self.sent[-1]

    def confirm(self) -> asyncio.Future[None]:
        self.confirmed.append(asyncio.get_running_loop().create_future())
        return self.confirmed[-1]

    def wakeup(self) -> Wakeup:
        return DataVersionWakeup(lambda: False)

    def stop(self) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize("first", ["sent", "confirmed"])
async def test_nothing_has_landed_while_one_of_two_answers_says_that_the_race_is_lost(
    tmp_path: Path, first: str
) -> None:
    traits = Traits("held", "nowhere", "SQLite", several_machines=False, durable_by="the test", answers_wait=True)
    keeper = HeldKeeper(traits)
    medium = ScratchFile(str(tmp_path / "scratch"), keeper, Config())
    opening = asyncio.ensure_future(SqliteStore(medium, Config()).open())
    while not keeper.confirmed:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    landed = medium.landed()
    assert landed is not None
    answers = [(keeper.sent[0], RaceLost()), (keeper.confirmed[1], None)]
    for future, error in answers if first == "sent" else reversed(answers):
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
    with pytest.raises(RaceLost):
        await landed
    assert not await medium.recover()
    opening.cancel()
    await asyncio.wait([opening])


# ── turns ──


async def test_turns_are_given_in_order_and_to_one_at_a_time() -> None:
    turn = OwnTurn()
    taken: list[int] = []

    async def take(number: int) -> None:
        await turn.enter()
        taken.append(number)
        await asyncio.sleep(0)
        turn.leave()

    assert turn.try_enter()
    waiting = [asyncio.ensure_future(take(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert not turn.try_enter()
    turn.leave()
    await asyncio.gather(*waiting)
    assert taken == [0, 1, 2]
    assert turn.try_enter()


async def test_a_turn_that_is_lost_is_given_to_nobody() -> None:
    turn = OwnTurn()
    assert turn.try_enter()
    waiting = asyncio.ensure_future(turn.enter())
    await asyncio.sleep(0)
    turn.lose()
    with pytest.raises(RaceLost):
        await waiting
    turn.leave()
    assert not turn.try_enter()
    with pytest.raises(RaceLost):
        await turn.enter()


async def test_who_stops_waiting_for_a_turn_leaves_it_to_the_next() -> None:
    turn = OwnTurn()
    assert turn.try_enter()
    first, second = (asyncio.ensure_future(turn.enter()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    turn.leave()
    await asyncio.wait_for(second, 5)
    assert not turn.try_enter()
