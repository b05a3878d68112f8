"""The clock jumps by an hour or ten years, either way: tokens rise, one lease lives, no record is lost."""

import asyncio
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.clock import SECOND
from headwater.log.operations import Forget, Reap, Retain
from tests.faults.bent_clock import START, BentClock
from tests.faults.tables import dump_file

HOUR = 3_600
YEARS_10 = 3_650 * 86_400
JUMPS = (HOUR, -HOUR, YEARS_10, -YEARS_10)
PARTITIONS = ("a", "b")


def open_at(path: Path, clock: BentClock) -> headwater.Headwater:
    """The store under a bent clock."""
    return headwater.open(str(path), clock=clock, housekeeping=False, wakeup="data_version")


class Work:
    """Random work under a clock that jumps, with a record of every lease."""

    def __init__(self, hw: headwater.Headwater, clock: BentClock, chance: random.Random) -> None:
        self._hw = hw
        self._clock = clock
        self._chance = chance
        self._queue = hw.queue("orders")
        self._held: list[list[headwater.Message]] = []
        self._tokens: dict[str, int] = {}
        self.pushed: list[tuple[str, int]] = []
        self.done: set[tuple[str, int]] = set()

    async def run(self, steps: int) -> None:
        """One step after the other, with a jump before some."""
        await self._queue.configure(retry_delay_seconds=0, retry_limit=1_000, completed_retention_seconds=0)
        for _ in range(steps):
            if self._chance.random() < 0.3:
                self._clock.move(self._chance.choice(JUMPS))
            await self._chance.choice((self._push, self._push, self._pop, self._report, self._report, self._tend))()

    async def _push(self) -> None:
        partition = self._chance.choice(PARTITIONS)
        number = len(self.pushed)
        receipt = await self._queue.push(number, partition=partition, transaction_id=f"id-{number}")
        assert not receipt.duplicate
        self.pushed.append((partition, number))

    async def _pop(self) -> None:
        messages = await self._queue.pop(batch=self._chance.randint(1, 4))
        if not messages:
            return
        first = messages[0]
        assert first.token > self._tokens.get(first.partition, 0), "a token did not rise"
        self._tokens[first.partition] = first.token
        assert not self.done & {(message.partition, message.payload) for message in messages}, "done came again"
        self._held.append(messages)

    async def _report(self) -> None:
        """Only the newest lease of a partition may be acked, and only while it lives."""
        if not self._held:
            return
        messages = self._held.pop(self._chance.randrange(len(self._held)))
        first = messages[0]
        try:
            await self._queue.ack(messages)
        except headwater.LeaseLost:
            return
        assert first.token == self._tokens[first.partition], "an older lease was taken for a living one"
        assert first.batch.lease_until > self._clock.now(), "a lease that ran out was taken for a living one"
        self.done.update((message.partition, message.payload) for message in messages)

    async def _tend(self) -> None:
        leases = [(held[0].partition_id, held[0].group) for held in self._held]
        for chore in (Retain(), Reap(leases=leases), Forget(before=self._clock.now())):
            await self._hw.committer.submit(chore)


async def drain(hw: headwater.Headwater, clock: BentClock) -> list[tuple[str, int]]:
    """What is left, once the clock is far ahead of everything that was ever promised."""
    clock.move(10 * YEARS_10)
    left: list[tuple[str, int]] = []
    for _ in range(1_000):
        messages = await hw.queue("orders").pop(batch=100)
        if not messages:
            return left
        left += [(message.partition, message.payload) for message in messages]
        await hw.queue("orders").ack(messages)
    raise AssertionError("the queue never ends")


@pytest.mark.seeds(few=12, many=500)
async def test_jumps_between_operations_lose_no_record_and_no_order(seed: int, folder: Path) -> None:
    clock = BentClock()
    async with open_at(folder / "store.db", clock) as hw:
        work = Work(hw, clock, random.Random(seed))
        await work.run(80)
        left = await drain(hw, clock)
    for partition in PARTITIONS:
        pushed = [number for place, number in work.pushed if place == partition]
        done = {number for place, number in work.done if place == partition}
        assert [number for place, number in left if place == partition] == [n for n in pushed if n not in done]


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_jump_while_a_lease_is_held_never_makes_two(folder: Path, jump: float) -> None:
    clock = BentClock()
    async with open_at(folder / "store.db", clock) as hw:
        queue = hw.queue("orders")
        await queue.push_many([1, 2, 3])
        first = await queue.pop(batch=3, lease_seconds=60)
        clock.move(jump)
        second = await queue.pop(batch=3, lease_seconds=60)
        if second:
            assert second[0].token > first[0].token
            with pytest.raises(headwater.LeaseLost):
                await queue.ack(first)
            await queue.ack(second)
        else:
            await queue.ack(first)
        assert (await queue.groups())[0].lag == len(first) - len(second or first)


async def back_and_forth(path: Path, jump: float, during: Any) -> tuple[headwater.Headwater, BentClock]:
    """Do something while the clock is wrong, then set it right."""
    clock = BentClock()
    hw = open_at(path, clock)
    await hw.start()
    queue = hw.queue("orders")
    await queue.push("before")
    await queue.ack(await queue.pop())
    clock.move(jump)
    await during(queue)
    clock.move(-jump)
    clock.move(2 * HOUR)
    return hw, clock


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_record_that_came_while_the_clock_was_wrong_is_delivered_when_it_is_right(
    folder: Path, jump: float
) -> None:
    hw, _ = await back_and_forth(folder / "store.db", jump, lambda queue: queue.push("meanwhile"))
    messages = await hw.queue("orders").pop()
    await hw.close()
    assert [message.payload for message in messages] == ["meanwhile"]


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_lease_that_was_taken_while_the_clock_was_wrong_ends_in_its_time(folder: Path, jump: float) -> None:
    """A minute after the first commit that sees the right time, at the latest, a lease of a minute must be over."""

    async def during(queue: headwater.Queue) -> None:
        await queue.push("meanwhile")
        assert len(await queue.pop(lease_seconds=60)) == 1

    hw, clock = await back_and_forth(folder / "store.db", jump, during)
    messages = await hw.queue("orders").pop()
    if not messages:
        clock.move(60)
        messages = await hw.queue("orders").pop()
    await hw.close()
    assert [message.payload for message in messages] == ["meanwhile"]


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_failed_record_comes_again_when_the_clock_is_right(folder: Path, jump: float) -> None:
    async def during(queue: headwater.Queue) -> None:
        await queue.configure(retry_delay_seconds=60)
        await queue.push("meanwhile")
        await queue.fail(await queue.pop(), error="once")

    hw, clock = await back_and_forth(folder / "store.db", jump, during)
    messages = await hw.queue("orders").pop()
    if not messages:
        clock.move(60)
        messages = await hw.queue("orders").pop()
    await hw.close()
    assert [message.payload for message in messages] == ["meanwhile"]


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_delay_is_no_longer_than_it_should_be(folder: Path, jump: float) -> None:
    async def during(queue: headwater.Queue) -> None:
        await queue.configure(delay_seconds=60)
        await queue.push("meanwhile")

    hw, clock = await back_and_forth(folder / "store.db", jump, during)
    messages = await hw.queue("orders").pop()
    if not messages:
        clock.move(60)
        messages = await hw.queue("orders").pop()
    await hw.close()
    assert [message.payload for message in messages] == ["meanwhile"]


@pytest.mark.parametrize("jump", [HOUR, YEARS_10])
async def test_whoever_opens_the_store_next_sees_that_the_clock_was_ahead(folder: Path, jump: float) -> None:
    """Neither a pop nor a push for later adds to the log, whose segments tell the time."""
    clock = BentClock()
    async with open_at(folder / "store.db", clock) as hw:
        await hw.queue("orders").push("leased meanwhile")
    clock.move(jump)
    async with open_at(folder / "store.db", clock) as hw:
        assert await hw.queue("orders").pop(lease_seconds=5)
    clock.move(-jump)
    async with open_at(folder / "store.db", clock) as hw:
        assert await hw.queue("orders").pop() == []
        clock.move(5)
        assert [message.payload for message in await hw.queue("orders").pop()] == ["leased meanwhile"]
    clock.move(jump)
    async with open_at(folder / "store.db", clock) as hw:
        await hw.queue("later").push("delayed meanwhile", delay=5)
    clock.move(-jump)
    async with open_at(folder / "store.db", clock) as hw:
        assert await hw.queue("later").pop() == []
        clock.move(6)
        assert [message.payload for message in await hw.queue("later").pop()] == ["delayed meanwhile"]


async def test_two_processes_that_see_the_clock_set_back_move_a_lease_once(folder: Path) -> None:
    clock = BentClock()
    async with open_at(folder / "store.db", clock) as one, open_at(folder / "store.db", clock) as two:
        await one.queue("orders").push(1)
        assert await one.queue("orders").pop(lease_seconds=3 * HOUR)
        await two.queue("others").push(1)
        clock.move(-HOUR)
        await one.queue("others").push(2)
        await two.queue("others").push(3)
        clock.move(2 * HOUR)
        assert await two.queue("orders").pop() == []
        clock.move(HOUR)
        assert len(await two.queue("orders").pop()) == 1


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_duplicate_is_known_though_the_clock_jumped_there_and_back(folder: Path, jump: float) -> None:
    clock = BentClock()
    async with open_at(folder / "store.db", clock) as hw:
        queue = hw.queue("orders")
        await queue.push(1, transaction_id="once")
        clock.move(jump)
        await queue.push(2, transaction_id="other")
        clock.move(-jump)
        receipt = await queue.push(1, transaction_id="once")
    assert receipt.duplicate
    async with open_at(folder / "store.db", clock) as hw:
        receipt = await hw.queue("orders").push(1, transaction_id="once")
    assert receipt.duplicate


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_group_that_starts_at_a_time_gets_everything_written_since(folder: Path, jump: float) -> None:
    clock = BentClock()
    async with open_at(folder / "store.db", clock) as hw:
        queue = hw.queue("orders")
        await queue.push("before")
        clock.move(60)
        since = datetime.fromtimestamp(clock.now() / SECOND, UTC)
        await queue.push_many(["first", "second"])
        clock.move(jump)
        await queue.push("meanwhile")
        clock.move(-jump)
        await queue.push("after")
        messages = await queue.pop(group="late", batch=10, since=since)
    payloads = [message.payload for message in messages]
    assert [payload for payload in payloads if payload not in ("before", "meanwhile")] == ["first", "second", "after"]


@pytest.mark.parametrize("jump", JUMPS)
async def test_nothing_is_forgotten_that_was_kept_a_moment_ago(folder: Path, jump: float) -> None:
    """What nobody has read yet stays, however old the clock says it is; only retention by age may drop it."""
    clock = BentClock()
    async with open_at(folder / "store.db", clock) as hw:
        await hw.queue("orders").push("unread")
        clock.move(jump)
        await hw.committer.submit(Retain())
    assert len(dump_file(str(folder / "store.db"))["hw_segments"]) == 1


async def test_waiting_pops_survive_a_jump(folder: Path) -> None:
    clock = BentClock()
    async with open_at(folder / "store.db", clock) as hw:
        queue = hw.queue("orders")
        waiting = asyncio.ensure_future(queue.pop(wait=30))
        await asyncio.sleep(0)
        clock.move(-YEARS_10)
        await queue.push("here")
        assert [message.payload for message in await waiting] == ["here"]


@pytest.mark.parametrize("now", [0, 1, START, 2**53, 2**62])
async def test_any_time_is_a_time(folder: Path, now: int) -> None:
    clock = BentClock(now)
    async with open_at(folder / "store.db", clock) as hw:
        queue = hw.queue("orders")
        await queue.push("here", ttl_seconds=60)
        (message,) = await queue.pop()
        await queue.ack(message)
        assert (await queue.groups())[0].lag == 0
