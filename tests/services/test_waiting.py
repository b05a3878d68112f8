"""Pops that wait, over a real store: whatever sets a record free, somebody who waits for it gets it soon."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.errors import Closed, InvalidOption, Overloaded
from tests.contracts.clock import FakeClock

SOON = 5.0
LONG = 30.0

Messages = list[headwater.Message]


async def turn_until(holds: Callable[[], bool]) -> None:
    """Turn the event loop until it is so; what turns it makes no use of time."""
    for _ in range(1_000_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come about")


async def start(waiting: Coroutine[Any, Any, Messages], hw: headwater.Headwater) -> asyncio.Task[Messages]:
    """A pop that has come to wait."""
    before = hw.queues_service.intentions.count
    task = asyncio.ensure_future(waiting)
    await turn_until(lambda: task.done() or hw.queues_service.intentions.count > before)
    assert not task.done()
    return task


async def soon(waiter: asyncio.Task[Messages]) -> Messages:
    """What a waiter gets, long before it would have given up."""
    return await asyncio.wait_for(waiter, SOON)


async def test_a_waiting_pop_gets_what_is_pushed(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    waiter = await start(orders.pop(wait=LONG), hw)
    await orders.push({"id": 7})
    (message,) = await soon(waiter)
    assert (message.payload, message.attempts) == ({"id": 7}, 1)


async def test_a_pop_does_not_wait_when_something_is_there(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    await orders.push(1)
    assert [message.payload for message in await orders.pop(wait=LONG)] == [1]
    assert hw.queues_service.intentions.count == 0


async def test_a_wait_that_is_over_answers_with_nothing(hw: headwater.Headwater) -> None:
    assert await hw.queue("orders").pop(wait=0.01) == []
    assert hw.queues_service.intentions.count == 0


async def test_one_waiter_gets_what_comes_and_the_others_go_on_waiting(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    waiters = [await start(orders.pop(wait=LONG), hw) for _ in range(3)]
    for place, waiter in enumerate(waiters):
        await orders.push(place, partition=f"p{place}")
        assert [message.payload for message in await soon(waiter)] == [place]
        assert hw.queues_service.intentions.count == 2 - place


async def test_a_thousand_waiters_each_get_their_message(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    waiters = [asyncio.ensure_future(orders.pop(wait=LONG)) for _ in range(1_000)]
    await turn_until(lambda: hw.queues_service.intentions.count == 1_000)
    outgoing = [headwater.Outgoing(payload=number, partition=f"p{number}") for number in range(1_000)]
    await orders.push_many(outgoing)
    found = await asyncio.wait_for(asyncio.gather(*waiters), 30)
    assert sorted(message.payload for (message,) in found) == list(range(1_000))


async def test_a_wait_by_namespace_is_served(hw: headwater.Headwater) -> None:
    await hw.queue("orders").configure(namespace="shop", task="bill")
    waiter = await start(hw.pop(namespace="shop", wait=LONG), hw)
    other = await start(hw.pop(namespace="depot", wait=LONG), hw)
    await hw.queue("orders").push(1)
    assert [message.payload for message in await soon(waiter)] == [1]
    assert not other.done()
    other.cancel()


async def test_a_wait_for_one_partition_is_served_by_that_partition(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    waiter = await start(orders.pop(partition="mine", wait=LONG), hw)
    await orders.push("other", partition="other")
    await orders.push("mine", partition="mine")
    assert [message.payload for message in await soon(waiter)] == ["mine"]


async def test_a_wait_for_one_partition_does_not_ask_again_and_again(hw: headwater.Headwater) -> None:
    """Another partition of the group has something: that is no reason to look at this one."""
    orders = hw.queue("orders")
    await orders.push("other", partition="other")
    waiter = await start(orders.pop(partition="mine", wait=LONG), hw)
    commits = hw.committer.commits
    await asyncio.sleep(0.1)
    assert hw.committer.commits - commits <= 2
    waiter.cancel()


async def test_databases_do_not_wake_each_other(hw: headwater.Headwater) -> None:
    waiter = await start(hw.database("tenant").queue("orders").pop(wait=LONG), hw)
    await hw.queue("orders").push("ours")
    await hw.database("tenant").queue("orders").push("theirs")
    assert [message.payload for message in await soon(waiter)] == ["theirs"]


# ── what sets a record free ──


async def test_an_ack_wakes_whoever_waits_for_the_rest(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    await orders.push_many([1, 2], partition="p")
    held = await orders.pop()
    waiter = await start(orders.pop(wait=LONG), hw)
    await orders.ack(held)
    assert [message.payload for message in await soon(waiter)] == [2]


async def test_a_release_wakes_whoever_waits(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    await orders.push(1)
    held = await orders.pop()
    waiter = await start(orders.pop(wait=LONG), hw)
    await orders.release(held)
    (message,) = await soon(waiter)
    assert message.attempts == 1


async def test_a_failure_wakes_whoever_waits_after_the_delay(hw: headwater.Headwater, clock: FakeClock) -> None:
    orders = hw.queue("orders")
    await orders.configure(retry_delay_seconds=0.01)
    await orders.push(1)
    held = await orders.pop()
    waiter = await start(orders.pop(wait=LONG), hw)
    await orders.fail(held)
    clock.advance(0.01)
    (message,) = await soon(waiter)
    assert message.attempts == 2


async def test_a_lease_that_runs_out_wakes_whoever_waits(path: Path) -> None:
    async with headwater.open(str(path), housekeeping=False) as hw:
        orders = hw.queue("orders")
        await orders.push(1)
        await orders.pop(lease_seconds=0.05)
        (message,) = await asyncio.wait_for(orders.pop(wait=LONG), SOON)
        assert message.attempts == 2


async def test_a_moved_group_wakes_whoever_waits(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    await orders.push(1)
    await orders.ack(await orders.pop())
    waiter = await start(orders.pop(wait=LONG), hw)
    await orders.seek("beginning")
    assert [message.payload for message in await soon(waiter)] == [1]


async def test_an_ack_inside_a_transaction_wakes_whoever_waits(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    await orders.push_many([1, 2], partition="p")
    held = await orders.pop()
    waiter = await start(orders.pop(wait=LONG), hw)
    async with hw.transaction() as together:
        together.ack(held)
        together.push("bills", "bill")
    assert [message.payload for message in await soon(waiter)] == [2]


async def test_a_requeued_dead_letter_wakes_whoever_waits(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    await orders.push(1)
    await orders.fail(await orders.pop(), retry=False)
    waiter = await start(orders.pop(wait=LONG), hw)
    await orders.requeue()
    assert [message.payload for message in await soon(waiter)] == [1]


async def test_a_consumer_that_leaves_wakes_whoever_waits_for_the_rest(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    await orders.push_many([1, 2, 3], partition="p")
    async with orders.consume(batch=3) as messages:
        await anext(messages)
        waiter = await start(orders.pop(wait=LONG), hw)
    assert [message.payload for message in await soon(waiter)] == [2]


async def test_a_commit_in_another_process_wakes_whoever_waits(hw: headwater.Headwater, path: Path) -> None:
    async with headwater.open(str(path), clock=hw.clock, housekeeping=False) as other:
        await other.queue("orders").push_many([1, 2], partition="p")
        held = await other.queue("orders").pop()
        waiter = await start(hw.queue("orders").pop(wait=LONG), hw)
        await other.queue("orders").ack(held)
        assert [message.payload for message in await soon(waiter)] == [2]


# ── leaving ──


async def test_what_a_waiter_that_left_would_have_got_goes_to_another(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    leaving = await start(orders.pop(wait=LONG), hw)
    staying = await start(orders.pop(wait=LONG), hw)
    pushing = asyncio.ensure_future(orders.push(1))
    lines = hw.queues_service.intentions._lines
    await turn_until(lambda: any(line.busy for line in lines.values()))
    leaving.cancel()
    await pushing
    (message,) = await soon(staying)
    assert (message.payload, message.attempts) == (1, 1)
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_what_a_pop_that_was_cancelled_had_leased_is_given_back(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    await orders.push(1)
    leaving = asyncio.ensure_future(orders.pop())
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    (message,) = await asyncio.wait_for(orders.pop(wait=LONG), SOON)
    assert (message.payload, message.attempts) == (1, 1)


async def test_what_a_pop_that_was_cancelled_had_leased_goes_to_those_who_ask_already(
    hw: headwater.Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is made, the disk is slow, and meanwhile the caller leaves and asks again: the record is there."""
    orders = hw.queue("orders")
    await orders.push(1)
    store = hw.store
    disk = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(store, "make_durable", lambda callers: disk)
    leaving = asyncio.ensure_future(orders.pop())
    await turn_until(lambda: bool(hw.committer._syncing))
    leaving.cancel()
    asking = asyncio.ensure_future(orders.pop())
    await turn_until(lambda: bool(hw.committer.pending))
    disk.set_result(None)
    assert [(message.payload, message.attempts) for message in await soon(asking)] == [(1, 1)]


async def test_what_a_consumer_that_was_cancelled_had_leased_is_given_back(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    await orders.push(1)

    async def consume() -> None:
        async for _ in orders.consume():
            raise AssertionError("it was cancelled before")

    leaving = asyncio.ensure_future(consume())
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    (message,) = await asyncio.wait_for(orders.pop(wait=LONG), SOON)
    assert (message.payload, message.attempts) == (1, 1)


# ── bounds ──


async def test_too_many_waiters_are_refused(path: Path) -> None:
    async with headwater.open(str(path), waiters_max=2, housekeeping=False) as hw:
        waiters = [await start(hw.queue("orders").pop(wait=LONG), hw) for _ in range(2)]
        with pytest.raises(Overloaded):
            await hw.queue("orders").pop(wait=LONG)
        for waiter in waiters:
            waiter.cancel()


async def test_a_wait_longer_than_allowed_is_refused(hw: headwater.Headwater) -> None:
    for seconds in (61, -1, float("nan")):
        with pytest.raises(InvalidOption):
            await hw.queue("orders").pop(wait=seconds)


async def test_closing_ends_all_waits(path: Path) -> None:
    async with headwater.open(str(path), housekeeping=False) as hw:
        waiter = await start(hw.queue("orders").pop(wait=LONG), hw)
    with pytest.raises(Closed):
        await soon(waiter)


async def test_a_closed_headwater_takes_no_pop_that_waits(path: Path) -> None:
    async with headwater.open(str(path), housekeeping=False) as hw:
        orders = hw.queue("orders")
    for wait in (0, LONG):
        with pytest.raises(Closed):
            await asyncio.wait_for(orders.pop(wait=wait), SOON)
