"""The consumer's loop: what a body's end, break, error or cancellation says of the messages."""

import asyncio
import gc
import itertools
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.config import Durability
from headwater.errors import Closed, InvalidOption
from headwater.log.committer import Answer
from headwater.log.operations import Extend, Operation
from tests.contracts.clock import FakeClock
from tests.waiting import expect_soon_async

SOON = 5.0


@pytest.fixture
async def orders(hw: headwater.Headwater) -> headwater.Queue:
    queue = hw.queue("orders")
    await queue.configure(retry_delay_seconds=0, lanes=1)
    return queue


async def payloads(queue: headwater.Queue, batch: int = 100) -> list[tuple[object, int]]:
    """What is free now, soon: payload and attempts."""
    messages = await asyncio.wait_for(queue.pop(batch=batch, wait=SOON), 2 * SOON)
    return [(message.payload, message.attempts) for message in messages]


async def is_waiting(hw: headwater.Headwater) -> bool:
    return hw.queues_service.intentions.count > 0


async def take(queue: headwater.Queue, count: int, batch: int = 1) -> list[object]:
    """The payloads of a loop that is left after so many."""
    found: list[object] = []
    async for message in queue.consume(batch=batch):
        found.append(message.payload)
        if len(found) == count:
            break
    return found


async def raise_at(messages: headwater.Consumption, payload: object, error: Exception) -> None:
    """A loop whose body raises at one message. The loop must be the only one who holds the iterator."""
    iterators = [messages]
    del messages
    async for message in iterators.pop():
        if message.payload == payload:
            raise error


async def raise_inside_the_block(messages: headwater.Consumption, error: Exception) -> None:
    async with messages:
        async for _ in messages:
            raise error


async def has_dead_letters(queue: headwater.Queue) -> bool:
    return bool(await queue.dead_letters())


# ── the ordinary way ──


async def test_a_message_is_acked_when_its_body_ends(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3])
    seen = []
    async for message in orders.consume():
        seen.append((message.payload, (await orders.groups())[0].lag))
        if message.payload == 3:
            break
    assert seen == [(1, 3), (2, 2), (3, 1)]


async def test_an_ack_and_the_next_pop_share_a_commit(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await orders.push_many(list(range(10)))
    commits = []
    async for message in orders.consume():
        commits.append(hw.committer.commits)
        if message.payload == 9:
            break
    assert [later - earlier for earlier, later in itertools.pairwise(commits)] == [1] * 9


async def test_a_batch_is_acked_in_one_go(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await orders.push_many(list(range(100)))
    before = hw.committer.commits
    assert await take(orders, 100, batch=50) == list(range(100))
    assert hw.committer.commits - before == 2


async def test_a_loop_waits_for_what_is_not_there_yet(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    consumer = asyncio.ensure_future(take(orders, 3))
    for number in range(3):
        await orders.push(number)
    assert await asyncio.wait_for(consumer, SOON) == [0, 1, 2]


async def test_two_loops_share_the_work_without_doing_it_twice(orders: headwater.Queue) -> None:
    await orders.push_many([headwater.Outgoing(payload=number, partition=f"p{number % 5}") for number in range(40)])
    found: list[object] = []

    async def work() -> None:
        async for message in orders.consume(batch=3):
            found.append(message.payload)
            await asyncio.sleep(0)
            if len(found) >= 40:
                return

    workers = [asyncio.ensure_future(work()) for _ in range(2)]
    await asyncio.wait(workers, timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert sorted(found, key=str) == sorted(range(40), key=str)


async def test_messages_that_were_acked_when_popped_need_nothing(
    hw: headwater.Headwater, orders: headwater.Queue
) -> None:
    await orders.push_many([1, 2, 3])
    async for message in orders.consume(batch=3, auto_ack=True):
        assert message.payload == 1
        break
    assert (await orders.groups())[0].lag == 0


async def test_options_are_checked_before_the_loop_begins(orders: headwater.Queue) -> None:
    with pytest.raises(InvalidOption):
        orders.consume(colour="red")
    with pytest.raises(InvalidOption):
        orders.consume(batch=0)


# ── leaving the loop ──


async def test_break_acks_the_current_message_and_gives_the_rest_back(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3, 4])
    assert await take(orders, 2, batch=4) == [1, 2]
    assert await payloads(orders) == [(3, 1), (4, 1)]


async def test_return_is_like_break(orders: headwater.Queue) -> None:
    async def first() -> object:
        async for message in orders.consume(batch=3):
            return message.payload
        return None

    await orders.push_many([1, 2, 3])
    assert await first() == 1
    assert await payloads(orders) == [(2, 1), (3, 1)]


async def test_a_body_that_raises_fails_its_message_and_gives_the_rest_back(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3])
    with pytest.raises(ValueError, match="boom"):
        await raise_at(orders.consume(batch=3), 1, ValueError("boom"))
    assert await payloads(orders, batch=1) == [(1, 2)]


async def test_messages_before_the_one_that_failed_are_done(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3])
    with pytest.raises(ValueError, match="boom"):
        await raise_at(orders.consume(batch=3), 2, ValueError("boom"))
    (message,) = await orders.pop(batch=10, wait=SOON)
    assert (message.payload, message.attempts) == (2, 2)
    await orders.ack(message)
    assert await payloads(orders) == [(3, 1)]


async def test_an_error_inside_a_called_function_counts_as_raising(orders: headwater.Queue) -> None:
    async def handle(message: headwater.Message) -> None:
        await asyncio.sleep(0)
        raise KeyError(message.payload)

    async def loop() -> None:
        async for message in orders.consume():
            await handle(message)

    await orders.push_many([1, 2])
    with pytest.raises(KeyError):
        await loop()
    assert await payloads(orders, batch=1) == [(1, 2)]


async def test_an_error_that_the_body_handles_is_none(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2])
    seen = []
    async for message in orders.consume():
        try:
            raise ValueError("handled")
        except ValueError:
            seen.append(message.payload)
        if len(seen) == 2:
            break
    assert seen == [1, 2]
    assert await orders.pop(wait=0) == []


async def test_a_cancelled_body_gives_its_message_back(orders: headwater.Queue) -> None:
    begun = asyncio.Event()

    async def loop() -> None:
        async for _ in orders.consume(batch=2):
            begun.set()
            await asyncio.Event().wait()

    await orders.push_many([1, 2])
    consumer = asyncio.ensure_future(loop())
    await asyncio.wait_for(begun.wait(), SOON)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    assert await payloads(orders) == [(1, 1), (2, 1)]


async def test_a_loop_cancelled_while_it_waits_leaves_nothing_behind(
    hw: headwater.Headwater, orders: headwater.Queue
) -> None:
    consumer = asyncio.ensure_future(take(orders, 1))
    while not hw.queues_service.intentions.count:
        assert not consumer.done()
        await asyncio.sleep(0.001)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    assert hw.queues_service.intentions.count == 0
    await orders.push(1)
    assert await payloads(orders) == [(1, 1)]


async def test_a_loop_that_is_forgotten_half_way_holds_no_message(orders: headwater.Queue) -> None:
    """Nobody can know whether the current message was done: it comes again."""
    await orders.push_many([1, 2])
    messages = orders.consume(batch=2)
    assert (await anext(messages)).payload == 1
    del messages
    gc.collect()
    (message,) = await orders.pop(wait=SOON)
    assert message.payload == 1
    await orders.ack(message)
    assert await payloads(orders) == [(2, 1)]


# ── async with ──


async def test_the_dead_letter_gets_the_error_of_the_body(orders: headwater.Queue) -> None:
    await orders.configure(retry_limit=0)
    await orders.push_many([1, 2])
    with pytest.raises(ValueError, match="no such customer"):
        await raise_inside_the_block(orders.consume(batch=2), ValueError("no such customer"))
    (letter,) = await orders.dead_letters()
    assert letter.error == "ValueError: no such customer"
    assert await payloads(orders) == [(2, 1)]


async def test_without_the_block_the_dead_letter_says_that_the_body_raised(orders: headwater.Queue) -> None:
    async def loop() -> None:
        async for _ in orders.consume():
            raise ValueError("no such customer")

    await orders.configure(retry_limit=0)
    await orders.push(1)
    with pytest.raises(ValueError, match="no such customer"):
        await asyncio.ensure_future(loop())
    await expect_soon_async(lambda: has_dead_letters(orders))
    (letter,) = await orders.dead_letters()
    assert letter.error in ("ValueError: no such customer", "RuntimeError: the body of the loop raised")


async def test_leaving_the_block_settles_before_it_goes_on(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3])
    async with orders.consume(batch=3) as messages:
        async for _ in messages:
            break
    assert (await orders.groups())[0].lag == 2
    assert [message.payload for message in await orders.pop(batch=3)] == [2, 3]


async def test_an_error_text_that_is_no_unicode_is_kept_readable(
    hw: headwater.Headwater, orders: headwater.Queue
) -> None:
    """File names bring such texts; one of them must not fail a commit for everybody in it."""
    await orders.configure(retry_limit=0)
    await orders.push(1)
    with pytest.raises(OSError, match="cannot open"):
        await raise_inside_the_block(orders.consume(), OSError("cannot open \udcff.txt"))
    (letter,) = await orders.dead_letters()
    assert letter.error.startswith("OSError: cannot open")


# ── leases ──


class Extensions:
    """Notes when a lease is extended."""

    def __init__(self, hw: headwater.Headwater, monkeypatch: pytest.MonkeyPatch) -> None:
        self._submit = hw.committer.submit
        self.seen = asyncio.Event()
        self.count = 0
        monkeypatch.setattr(hw.committer, "submit", self._note)

    def _note(self, operation: Operation, durability: Durability = Durability.SYNCED) -> asyncio.Future[Answer]:
        answer = self._submit(operation, durability)
        if isinstance(operation, Extend):
            self.count += 1
            answer.add_done_callback(lambda _: self.seen.set())
        return answer

    async def next(self) -> None:
        """Until one more extension holds."""
        self.seen.clear()
        await asyncio.wait_for(self.seen.wait(), SOON)


async def test_a_lease_is_kept_alive_while_the_body_runs(
    hw: headwater.Headwater, orders: headwater.Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    extensions = Extensions(hw, monkeypatch)
    await orders.push_many([1, 2])
    async for message in orders.consume(lease_seconds=0.09):
        if message.payload == 1:
            for _ in range(3):
                await extensions.next()
                clock.advance(0.08)
            assert await orders.pop() == []
        else:
            assert message.attempts == 1
            break
    assert extensions.count >= 3


async def test_a_lease_is_extended_long_before_it_runs_out(
    orders: headwater.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    original = loop.call_later
    delays: list[float] = []

    def note(delay: float, callback: Any, *arguments: Any, **more: Any) -> asyncio.TimerHandle:
        delays.append(delay)
        return original(delay, callback, *arguments, **more)

    await orders.push(1)
    monkeypatch.setattr(loop, "call_later", note)
    async for _ in orders.consume(lease_seconds=90):
        break
    assert any(10 < delay <= 45 for delay in delays)


async def test_no_lease_is_extended_after_its_message_is_done(
    hw: headwater.Headwater, orders: headwater.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    extensions = Extensions(hw, monkeypatch)
    await orders.push(1)
    async for _ in orders.consume(lease_seconds=0.03):
        await extensions.next()
        break
    await asyncio.sleep(0.01)
    count = extensions.count
    await asyncio.sleep(0.05)
    assert extensions.count == count


async def test_a_lease_that_was_lost_costs_a_second_delivery_and_not_the_loop(
    orders: headwater.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    await orders.push_many([1, 2])
    seen: list[object] = []
    async for message in orders.consume():
        seen.append(message.payload)
        if seen == [1]:
            await orders.seek("beginning")
        if message.payload == 2:
            break
    assert seen == [1, 1, 2]
    assert "lost" in caplog.text


async def test_messages_reported_by_hand_are_not_reported_again(
    orders: headwater.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    await orders.push_many([1, 2, 3, 4])
    seen: list[object] = []
    async for message in orders.consume(batch=3):
        seen.append(message.payload)
        if message.payload == 1:
            await orders.ack(message)
        if message.payload == 2 and message.attempts == 1:
            await orders.fail(message, error="by hand")
        if message.payload == 4:
            break
    assert seen == [1, 2, 3, 2, 4]


async def test_a_loop_over_a_closed_headwater_ends_with_the_reason(path: Path) -> None:
    async with headwater.open(str(path), housekeeping=False) as hw:
        consumer = asyncio.ensure_future(take(hw.queue("orders"), 1))
        while not hw.queues_service.intentions.count:
            assert not consumer.done()
            await asyncio.sleep(0.001)
    with pytest.raises(Closed):
        await asyncio.wait_for(consumer, SOON)


async def test_a_consumer_that_waits_hears_of_a_push_by_another_process(
    hw: headwater.Headwater, path: Path, clock: FakeClock
) -> None:
    async with headwater.open(str(path), clock=clock, housekeeping=False) as elsewhere:
        waiting = asyncio.ensure_future(anext(aiter(hw.queue("orders").consume())))
        await expect_soon_async(lambda: is_waiting(hw))
        await elsewhere.queue("orders").push(7)
        message = await asyncio.wait_for(waiting, 10)
    assert message.payload == 7
