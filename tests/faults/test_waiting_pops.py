"""Pops that wait, and what can go wrong around them: deadlines, people who leave, names that look alike."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.errors import Overloaded
from headwater.stores.sqlite.barrier import Barrier

SOON = 5.0


class HeldBarrier:
    """A barrier that the test can hold: what was committed is then on its way to the disk for as long as it likes."""

    def __init__(self, real: Barrier) -> None:
        self._real = real
        self._waiting: list[asyncio.Future[None]] = []
        self._arrived = asyncio.Event()
        self.holds = False

    def wait(self, callers: int) -> asyncio.Future[None]:
        """Wait with the others, or not at all."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.holds:
            self._waiting.append(done)
            self._arrived.set()
        else:
            done.set_result(None)
        return done

    async def arrival(self) -> None:
        """Until a commit waits here."""
        await self._arrived.wait()

    def let_go(self) -> None:
        """The disk has answered."""
        self.holds = False
        for done in self._waiting:
            done.set_result(None)
        self._waiting.clear()

    def close(self) -> None:
        """Stop serving."""
        self._real.close()


@pytest.fixture
async def hw(folder: Path) -> AsyncIterator[headwater.Headwater]:
    """An open store that listens already: the first pop that waits would begin with that, in a thread."""
    path = str(folder / "store.db")
    async with headwater.open(path, housekeeping=False, wakeup="data_version", waiters_max=20) as opened:
        await opened.tail.follow(lambda touches: None)
        yield opened


def hold(hw: headwater.Headwater) -> HeldBarrier:
    """Put a barrier that can be held into the store."""
    medium: Any = getattr(hw.store, "medium")  # noqa: B009
    medium._barrier = HeldBarrier(medium._barrier)
    barrier: HeldBarrier = medium._barrier
    return barrier


async def start(*pops: Any) -> list[asyncio.Task[list[headwater.Message]]]:
    """Begin to wait, and get as far as waiting."""
    tasks = [asyncio.ensure_future(pop) for pop in pops]
    for _ in range(20):
        await asyncio.sleep(0)
    return tasks


async def pop_soon(queue: headwater.Queue) -> list[headwater.Message]:
    """What is given back without anybody waiting for it: pops go into the commits after that one."""
    for _ in range(50):
        if messages := await queue.pop():
            return messages
    return []


def payloads(messages: list[headwater.Message]) -> list[Any]:
    return [message.payload for message in messages]


async def test_one_record_for_three_who_wait_goes_to_one_and_the_others_wait_on(hw: headwater.Headwater) -> None:
    queue = hw.queue("orders")
    tasks = await start(*(queue.pop(wait=20, partitions=1) for _ in range(3)))
    for number in range(3):
        await queue.push(number, partition=f"p{number}")
    async with asyncio.timeout(SOON):
        got = [payloads(messages) for messages in await asyncio.gather(*tasks)]
    assert sorted(got) == [[0], [1], [2]]
    assert hw.queues_service.intentions.count == 0


async def test_who_gets_nothing_is_told_so_at_the_deadline(hw: headwater.Headwater) -> None:
    queue = hw.queue("orders")
    tasks = await start(*(queue.pop(wait=0.2) for _ in range(3)))
    await queue.push("only one")
    async with asyncio.timeout(SOON):
        got = [payloads(messages) for messages in await asyncio.gather(*tasks)]
    assert sorted(got) == [[], [], ["only one"]]
    assert hw.queues_service.intentions.count == 0


async def test_waits_that_ended_make_room_for_others(hw: headwater.Headwater) -> None:
    queue = hw.queue("orders")
    for _ in range(3):
        async with asyncio.timeout(SOON):
            assert await asyncio.gather(*(queue.pop(wait=0.02) for _ in range(15))) == [[]] * 15
    tasks = await start(*(queue.pop(wait=20) for _ in range(20)))
    with pytest.raises(Overloaded):
        await queue.pop(wait=20)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert hw.queues_service.intentions.count == 0


async def test_a_record_leased_for_somebody_who_left_is_free_at_once(hw: headwater.Headwater) -> None:
    queue = hw.queue("orders")
    barrier = hold(hw)
    (task,) = await start(queue.pop(wait=20))
    await queue.push("here", durability="written")
    barrier.holds = True
    await barrier.arrival()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    barrier.let_go()
    messages = await pop_soon(queue)
    assert payloads(messages) == ["here"]
    assert messages[0].attempts == 1


async def test_a_record_given_back_by_one_who_left_goes_to_one_who_still_waits(hw: headwater.Headwater) -> None:
    queue = hw.queue("orders")
    barrier = hold(hw)
    leaves, stays = await start(queue.pop(wait=20), queue.pop(wait=20))
    await queue.push("here", durability="written")
    barrier.holds = True
    await barrier.arrival()
    leaves.cancel()
    await asyncio.gather(leaves, return_exceptions=True)
    barrier.let_go()
    async with asyncio.timeout(SOON):
        assert payloads(await stays) == ["here"]


async def test_a_record_that_comes_at_the_deadline_is_delivered_or_kept_never_lost(hw: headwater.Headwater) -> None:
    queue = hw.queue("orders")
    barrier = hold(hw)
    # Long enough for the push to come first on a busy machine: otherwise nothing would ever be asked for.
    (task,) = await start(queue.pop(wait=0.5))
    await queue.push("here", durability="written")
    barrier.holds = True
    await barrier.arrival()
    async with asyncio.timeout(SOON):
        got = payloads(await task)
    barrier.let_go()
    assert got or payloads(await pop_soon(queue)) == ["here"]


async def test_names_that_look_alike_when_joined_are_told_apart(hw: headwater.Headwater) -> None:
    short, long = hw.queue("a"), hw.queue("a/b")
    for_short, for_long = await start(short.pop(wait=20, partition="b/c"), long.pop(wait=20, partition="c"))
    await long.push("for the long one", partition="c")
    async with asyncio.timeout(SOON):
        assert payloads(await for_long) == ["for the long one"]
    assert not for_short.done()
    await short.push("for the short one", partition="b/c")
    async with asyncio.timeout(SOON):
        assert payloads(await for_short) == ["for the short one"]


async def test_an_answer_that_is_refused_reaches_everybody_who_waits(hw: headwater.Headwater) -> None:
    """An outage is no quiet day: who waits when the store fails is told, and does not sit out the deadline."""
    queue = hw.queue("orders")
    tasks = await start(queue.pop(wait=20), queue.pop(wait=20))
    store: Any = hw.store

    def fail(*_: Any) -> None:
        raise OSError(5, "the disk is gone")

    store.apply_now = fail
    hw.queues_service.intentions.released("main", "orders")
    try:
        async with asyncio.timeout(SOON):
            answers = await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        del store.apply_now
        gc.collect()  # What nobody awaited is to be told here, not in another test.
    assert all(isinstance(answer, Exception) for answer in answers)
