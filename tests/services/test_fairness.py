"""T4-g: who waits longest is served first, and one pop does not take every partition while others wait."""

import asyncio
from collections.abc import Sequence

import headwater
from tests.services.test_waiting import soon, start

LONG = 30.0


def payloads(messages: Sequence[headwater.Message]) -> list[object]:
    return [message.payload for message in messages]


async def test_whoever_acks_and_asks_again_stands_behind_those_who_wait(hw: headwater.Headwater) -> None:
    """T4-g."""
    orders = hw.queue("orders")
    await orders.push_many([1, 2, 3], partition="p")
    first = await orders.pop()
    waiting = await start(orders.pop(wait=LONG), hw)
    again = asyncio.ensure_future(orders.pop(wait=LONG, ack=first))
    second = await soon(waiting)
    assert payloads(second) == [2]
    assert not again.done()
    await orders.ack(second)
    assert payloads(await soon(again)) == [3]


async def test_reports_of_one_who_stands_behind_take_effect(hw: headwater.Headwater) -> None:
    orders = hw.queue("orders")
    await orders.push_many([1, 2], partition="p")
    first = await orders.pop()
    waiting = await start(orders.pop(wait=LONG), hw)
    again = asyncio.ensure_future(orders.pop(wait=LONG, ack=first))
    await soon(waiting)
    (group,) = await orders.groups()
    assert (group.lag, group.leased) == (1, 1)
    again.cancel()


async def test_the_one_who_came_first_is_served_first(hw: headwater.Headwater) -> None:
    """T4-g."""
    orders = hw.queue("orders")
    waiters = [await start(orders.pop(wait=LONG), hw) for _ in range(5)]
    for number, waiter in enumerate(waiters):
        await orders.push(number)
        assert payloads(await soon(waiter)) == [number]


async def test_a_push_is_shared_by_all_who_wait_for_large_batches(hw: headwater.Headwater) -> None:
    """T4-g."""
    orders = hw.queue("orders")
    waiters = [await start(orders.pop(wait=LONG, batch=100), hw) for _ in range(6)]
    await orders.push_many(range(60))
    found = [await soon(waiter) for waiter in waiters]
    assert all(found)
    assert len({message.payload for messages in found for message in messages}) == sum(map(len, found))


async def test_a_pop_that_does_not_wait_leaves_their_share_to_those_who_do(hw: headwater.Headwater) -> None:
    """T4-g."""
    orders = hw.queue("orders")
    waiters = [await start(orders.pop(wait=LONG, batch=100), hw) for _ in range(3)]
    pushing = asyncio.ensure_future(orders.push_many(range(32)))
    greedy = asyncio.ensure_future(orders.pop(batch=100))
    await pushing
    assert len(await soon(greedy)) <= 32 // 4
    assert all([await soon(waiter) for waiter in waiters])
