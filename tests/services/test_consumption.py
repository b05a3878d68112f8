"""The consumer's loop in the library: commits, batches, leases, reports by hand.

What each way of leaving it means, in every interface, is the table of tests/interfaces/test_leaving.py.
"""

import asyncio
import contextlib
import gc
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.config import Durability
from headwater.errors import Closed, InvalidInput, InvalidOption, LeaseLost
from headwater.log.committer import CommittedResult
from headwater.log.operations import Extend, Operation, Pop
from headwater.services.consumption import Session
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
    async with queue.consume(batch=batch) as messages:
        async for message in messages:
            found.append(message.payload)
            if len(found) == count:
                break
    return found


async def raise_at(messages: headwater.Consumption, payload: object, error: Exception) -> None:
    """A block whose body raises at one message."""
    async with messages:
        async for message in messages:
            if message.payload == payload:
                raise error


async def raise_inside_the_block(messages: headwater.Consumption, error: Exception) -> None:
    async with messages:
        async for _ in messages:
            raise error


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
    # Two pops, the second with the ack of the first batch, and the report of the last.
    assert hw.committer.commits - before == 3


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
        orders.consume(batch=0)
    with pytest.raises(InvalidOption):
        orders.consume(subscribe="some")
    with pytest.raises(InvalidOption):
        orders.consume(idle_seconds=-1)


# ── leaving the loop ──


async def test_break_acks_the_current_message_and_gives_the_rest_back(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3, 4])
    assert await take(orders, 2, batch=4) == [1, 2]
    assert await payloads(orders) == [(3, 1), (4, 1)]


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


async def test_an_error_that_the_body_handles_is_none(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2])
    seen = []
    async with orders.consume() as messages:
        async for message in messages:
            try:
                raise ValueError("handled")
            except ValueError:
                seen.append(message.payload)
            if len(seen) == 2:
                break
    assert seen == [1, 2]
    assert await orders.pop(wait=0) == []


async def test_two_tasks_cannot_ask_one_loop_at_once(orders: headwater.Queue) -> None:
    messages = orders.consume()
    first = asyncio.ensure_future(anext(messages))
    await asyncio.sleep(0)
    with pytest.raises(InvalidInput, match="a consume\\(\\) of its own"):
        await anext(messages)
    first.cancel()


async def test_one_object_serves_one_block_at_a_time(orders: headwater.Queue) -> None:
    async with orders.consume() as messages:
        with pytest.raises(InvalidInput, match="call consume\\(\\) again"):
            async with messages:
                pass


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
        self.count = 0
        self._held: asyncio.Queue[int] = asyncio.Queue()
        monkeypatch.setattr(hw.committer, "submit", self._note)

    def _note(
        self, operation: Operation, durability: Durability = Durability.SYNCED
    ) -> asyncio.Future[CommittedResult]:
        answer = self._submit(operation, durability)
        if isinstance(operation, Extend):
            self.count += 1
            answer.add_done_callback(partial(self._note_held, self.count))
        return answer

    def _note_held(self, number: int, answer: asyncio.Future[CommittedResult]) -> None:
        self._held.put_nowait(number)

    async def next(self) -> None:
        """Until one more extension holds that begins from now on: the others knew an earlier time."""
        asked = self.count
        while await asyncio.wait_for(self._held.get(), SOON) <= asked:
            pass


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
    async with orders.consume(lease_seconds=90) as messages:
        await anext(messages)
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
    async with orders.consume(batch=3) as messages:
        async for message in messages:
            seen.append(message.payload)
            if message.payload == 1:
                await orders.ack(message)
            if message.payload == 2 and message.attempts == 1:
                await message.fail(error="by hand")
            if message.payload == 4:
                break
    assert seen == [1, 2, 2, 3, 4]
    assert not caplog.records


async def say(hw: headwater.Headwater, queue: headwater.Queue, message: headwater.Message, how: str) -> None:
    """Report on a message by hand, in one of the ways there are."""
    if how == "transaction":
        async with hw.transaction() as together:
            together.ack(message)
    elif how == "pop":
        await queue.release(await queue.pop(group="other", ack=message))
    elif how == "queue":
        await queue.ack(message)
    else:
        await {"ack": message.ack, "fail": message.fail, "release": message.release}[how]()


# By hand, and what a pop finds first afterwards: payload and attempts.
SAID = {"ack": (2, 1), "queue": (2, 1), "transaction": (2, 1), "pop": (2, 1), "fail": (1, 2), "release": (1, 1)}


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("how", SAID)
@pytest.mark.parametrize("error", [None, ValueError("after the report"), KeyboardInterrupt()], ids=repr)
async def test_a_report_by_hand_is_the_last_word(
    hw: headwater.Headwater,
    orders: headwater.Queue,
    caplog: pytest.LogCaptureFixture,
    batch: int,
    how: str,
    error: BaseException | None,
) -> None:
    """The loop says nothing more of it: not when it is left, and not when it fails after it."""
    await orders.push_many([1, 2, 3])
    with contextlib.suppress(ValueError, KeyboardInterrupt):
        async with orders.consume(batch=batch) as messages:
            await say(hw, orders, await anext(messages), how)
            if error is not None:
                raise error
    assert not caplog.records
    assert (await payloads(orders, batch=1)) == [SAID[how]]


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("how", ["ack", "queue", "transaction", "pop"])
async def test_a_loop_goes_on_behind_what_was_acked_by_hand(
    hw: headwater.Headwater, orders: headwater.Queue, caplog: pytest.LogCaptureFixture, batch: int, how: str
) -> None:
    await orders.push_many([1, 2, 3])
    seen = []
    async with orders.consume(batch=batch, idle_seconds=0) as messages:
        async for message in messages:
            seen.append(message.payload)
            await say(hw, orders, message, how)
    assert seen == [1, 2, 3]
    assert not caplog.records
    assert [(group.lag, group.leased) for group in await orders.groups() if group.group != "other"] == [(0, 0)]


async def test_a_message_can_be_buried_and_extended_by_hand(
    hw: headwater.Headwater, orders: headwater.Queue, clock: FakeClock
) -> None:
    await orders.push_many([1, 2])
    first, second = await orders.pop(batch=2, lease_seconds=10)
    await second.extend(100)
    clock.advance(50)
    await first.fail(error="no such customer", retry=False)
    await second.ack()
    assert [(letter.offset, letter.error) for letter in await orders.dead_letters()] == [(0, "no such customer")]
    assert (await orders.groups())[0].lag == 0
    assert first.is_reported
    with pytest.raises(LeaseLost):
        await second.ack()


# ── several leases at once ──


async def leases_of(queue: headwater.Queue) -> Session:
    """What a consumer holds of three partitions with three messages each, popped at once."""
    for name in "abc":
        await queue.push_many([f"{name}{number}" for number in range(3)], partition=name)
    return Session(queue._queues, Pop(queue=queue.name, batch=9, partitions=3), None)


async def left_of(queue: headwater.Queue) -> dict[str, list[tuple[object, int]]]:
    """What is free now, by partition: payload and attempts."""
    found: dict[str, list[tuple[object, int]]] = {}
    for message in await queue.pop(batch=100, partitions=100):
        found.setdefault(message.partition, []).append((message.payload, message.attempts))
    return found


async def test_messages_of_several_partitions_are_reported_lease_by_lease(orders: headwater.Queue) -> None:
    session = await leases_of(orders)
    taken = [(await session.take()).payload for _ in range(5)]
    await session.leave(ValueError("boom"))
    done, current = set(taken[:4]), taken[4]
    left = [one for ones in (await left_of(orders)).values() for one in ones]
    assert not done & {payload for payload, _ in left}
    assert dict(left)[current] == 2
    assert [attempts for payload, attempts in left if payload != current] == [1] * (len(left) - 1)


async def test_leases_of_several_partitions_are_all_kept_alive(
    hw: headwater.Headwater, orders: headwater.Queue, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await orders.configure(lease_seconds=0.09)
    session = await leases_of(orders)
    extensions = Extensions(hw, monkeypatch)
    await session.take()
    for _ in range(3):
        count = extensions.count
        while extensions.count < count + 3:
            await extensions.next()
        clock.advance(0.08)
    assert await left_of(orders) == {}
    await session.release()
    assert {name: len(found) for name, found in (await left_of(orders)).items()} == {"a": 3, "b": 3, "c": 3}


async def test_a_message_that_fails_takes_only_its_own_partition_out_of_the_batch(orders: headwater.Queue) -> None:
    """What is behind it in its partition goes back, or it would be done out of order; the others go on."""
    session = await leases_of(orders)
    first = await session.take()
    await session.fail_current(ValueError("boom"))
    others = [await session.take() for _ in range(6)]
    assert first.partition not in {message.partition for message in others}
    await session.leave(None)
    left = await left_of(orders)
    assert left == {first.partition: [(f"{first.partition}0", 2)]}


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


# ── one message, one worker ──


async def test_asking_while_another_task_works_on_the_last_message_is_refused(orders: headwater.Queue) -> None:
    """It would ack what the other may still fail."""
    await orders.configure(retry_limit=0)
    await orders.push_many([0, 1], partition="p")
    begun, asked = asyncio.Event(), asyncio.Event()

    async with orders.consume(batch=2) as messages:

        async def fail_first() -> None:
            async for _ in messages:
                begun.set()
                await asked.wait()
                raise RuntimeError("the first failed")

        first = asyncio.ensure_future(fail_first())
        await begun.wait()
        with pytest.raises(InvalidInput, match="consume\\(\\) of its own"):
            await anext(messages)
        asked.set()
        with pytest.raises(RuntimeError):
            await first
        await messages.fail_current(RuntimeError("the first failed"))
    assert [bytes(letter.record.data) for letter in await orders.dead_letters()] == [b"0"]


async def test_a_loop_may_be_handed_on_when_the_last_message_is_reported_or_its_task_over(
    orders: headwater.Queue,
) -> None:
    await orders.push_many([0, 1, 2], partition="p")
    async with orders.consume(batch=3) as messages:
        assert (await asyncio.create_task(messages.take())).payload == 0
        second = await anext(messages)
        await second.ack()
        assert (await asyncio.create_task(messages.take())).payload == 2
    assert (await orders.groups())[0].lag == 0


@pytest.mark.parametrize("how", ["fail", "release"])
async def test_what_lies_behind_a_message_that_comes_again_is_not_done_before_it(
    orders: headwater.Queue, how: str
) -> None:
    await orders.configure(retry_delay_seconds=0)
    await orders.push_many([0, 1, 2, 3], partition="p")
    await orders.push("other", partition="q")
    seen: list[tuple[Any, int]] = []
    async with orders.consume(batch=5, idle_seconds=0.2) as messages:
        async for message in messages:
            seen.append((message.payload, message.attempts))
            if len([one for one in seen if one[0] == 1]) == 1 and message.payload == 1:
                await (message.fail() if how == "fail" else message.release())
    again = 2 if how == "fail" else 1
    in_order = [one for one in seen if one[0] != "other"]
    assert [payload for payload, _ in in_order] == [0, 1, 1, 2, 3]
    assert in_order[2] == (1, again)
    assert ("other", 1) in seen


async def test_a_loop_that_has_ended_stays_ended(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    """As any iterator. What comes later is for another loop."""
    await orders.push(1)
    async with orders.consume(idle_seconds=0) as messages:
        assert [message.payload async for message in messages] == [1]
        await orders.push(2)
        assert [message.payload async for message in messages] == []
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
    bare = aiter(orders.consume(idle_seconds=0))
    assert (await anext(bare)).payload == 2
    with pytest.raises(StopAsyncIteration):
        await anext(bare)
    await orders.push(3)
    assert [message.payload async for message in bare] == []
    assert await payloads(orders) == [(3, 1)]


async def test_what_consume_gave_begins_anew_with_each_bare_loop(orders: headwater.Queue) -> None:
    consumption = orders.consume(idle_seconds=0)
    for number in range(3):
        await orders.push(number)
        assert [message.payload async for message in consumption] == [number]


async def test_a_block_that_was_left_is_over(orders: headwater.Queue) -> None:
    """A loop after it would ack by other rules than the one inside it."""
    await orders.push_many([1, 2])
    consumption = orders.consume(idle_seconds=0)
    async with consumption as messages:
        assert (await anext(messages)).payload == 1
    with pytest.raises(InvalidInput, match="call consume"):
        aiter(messages)
    with pytest.raises(InvalidInput, match="call consume"):
        await anext(messages)
    async with consumption as messages:
        assert [message.payload async for message in messages] == [2]
    async with consumption as messages:
        await orders.push(3)
        assert [message.payload async for message in messages] == [3]
