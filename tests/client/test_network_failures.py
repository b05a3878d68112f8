"""A network that cuts, delays and halves: nothing answered is lost, nothing is pushed twice."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.client.client import Client
from headwater.errors import LeaseLost, ServerUnreachable
from tests.client.proxy import CutAnswers, CutRequests, Proxy, Weather
from tests.client.server import Server
from tests.loop_clock import let_time_jump
from tests.waiting import expect_soon_async

SOON = 60.0


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(server.port) as standing:
        yield standing


@pytest.fixture
async def far(proxy: Proxy) -> AsyncIterator[Client]:
    """A client on the other side of the proxy."""
    async with headwater.connect(proxy.url) as connected:
        yield connected


async def kept(server: Server, queue: str = "orders") -> int:
    status = await server.hw.queue(queue).status()
    return 0 if status is None else status.records


async def waits(server: Server, count: int) -> bool:
    return server.waiting() == count


async def are_more(proxy: Proxy, connections: int) -> bool:
    return proxy.connections > connections


@pytest.mark.parametrize("kept_bytes", [0, 1, 40, 150], ids=["nothing", "a byte", "half a head", "half a body"])
async def test_a_push_whose_answer_was_lost_is_repeated_and_has_one_effect(
    server: Server, proxy: Proxy, far: Client, kept_bytes: int
) -> None:
    proxy.fault = fault = CutAnswers(3, kept_bytes)
    receipt = await far.queue("orders").push({"id": 7})
    assert fault.left == 0
    assert receipt.offset == 0
    assert not receipt.duplicate
    assert await kept(server) == 1


async def test_pushes_to_several_partitions_are_repeated_as_a_whole(server: Server, proxy: Proxy, far: Client) -> None:
    proxy.fault = CutAnswers(2)
    messages = [headwater.Outgoing(payload=n, queue=f"q{n % 3}", partition=f"p{n % 2}") for n in range(12)]
    receipts = await far.push_all(messages)
    assert [receipt.duplicate for receipt in receipts] == [False] * 12
    assert [await kept(server, f"q{n}") for n in range(3)] == [4, 4, 4]


async def test_a_request_that_was_cut_half_way_is_sent_again(server: Server, proxy: Proxy, far: Client) -> None:
    proxy.fault = CutRequests(3)
    await far.queue("orders").push(1)
    assert await kept(server) == 1


async def test_an_ack_whose_answer_was_lost_counts_and_is_no_lost_lease(proxy: Proxy, far: Client) -> None:
    queue = far.queue("orders")
    await queue.push_many([1, 2])
    first = await queue.pop()
    proxy.fault = CutAnswers(2)
    await queue.ack(first)
    with pytest.raises(LeaseLost):
        await queue.ack(first)
    assert [message.payload for message in await queue.pop()] == [2]


@pytest.mark.parametrize("kept_bytes", [0, 40, 150], ids=["nothing", "half a head", "half a body"])
@pytest.mark.parametrize("wait", [0, SOON])
async def test_every_message_is_delivered_once_although_each_answer_is_lost_at_first(
    proxy: Proxy, far: Client, kept_bytes: int, wait: float
) -> None:
    """With `auto_ack` the server keeps no lease, so what was lost would be gone."""
    queue = far.queue("orders")
    await queue.push_many(list(range(100)))
    got: list[Any] = []
    for _ in range(100):
        proxy.fault = fault = CutAnswers(1, kept_bytes)
        got += [message.payload for message in await queue.pop(auto_ack=True, wait=wait)]
        assert fault.left == 0
    assert sorted(got) == list(range(100))
    assert await queue.pop(auto_ack=True) == []


async def test_a_pop_whose_answer_was_lost_has_its_lease_at_once(server: Server, proxy: Proxy, far: Client) -> None:
    """And not when that has run out."""
    queue = far.queue("orders")
    await queue.push(1)
    proxy.fault = CutAnswers(3)
    [message] = await queue.pop()
    assert (message.payload, message.attempts) == (1, 1)
    await queue.ack(message)
    assert [group.lag for group in await server.hw.queue("orders").groups()] == [0]


async def test_a_transaction_whose_answer_was_lost_counts_once(server: Server, proxy: Proxy, far: Client) -> None:
    await far.queue("orders").push(1)
    messages = await far.queue("orders").pop()
    proxy.fault = CutAnswers(2)
    async with far.transaction() as together:
        together.ack(messages)
        together.push("bills", 1)
    assert await kept(server, "bills") == 1


async def test_a_deletion_whose_answer_was_lost_still_says_that_there_was_one(proxy: Proxy, far: Client) -> None:
    await far.queue("orders").push(1)
    proxy.fault = CutAnswers(2)
    assert await far.queue("orders").delete() is True


async def test_a_cancelled_wait_is_hung_up_so_that_the_server_forgets_it(server: Server, far: Client) -> None:
    waiting = asyncio.ensure_future(far.queue("orders").pop(wait=30))
    await expect_soon_async(lambda: waits(server, 1))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await expect_soon_async(lambda: waits(server, 0))


@pytest.mark.parametrize("wait", [0, 30])
async def test_a_pop_cancelled_as_its_answer_comes_gives_the_records_back(client: Client, wait: float) -> None:
    """Whenever it is cancelled, the very next pop gets the record, and no attempt is counted."""
    queue = client.queue("orders")
    await queue.push("x")
    for turns in range(40):
        popping = asyncio.ensure_future(queue.pop(wait=wait))
        for _ in range(turns):
            await asyncio.sleep(0)
        popping.cancel()
        await asyncio.gather(popping, return_exceptions=True)
        if not popping.cancelled():
            await queue.release(popping.result())
        [message] = await queue.pop()
        assert message.attempts == 1
        await queue.release(message)


async def test_a_wait_that_was_cut_goes_on_over_another_connection(server: Server, proxy: Proxy, far: Client) -> None:
    waiting = asyncio.ensure_future(far.queue("orders").pop(wait=30))
    for _ in range(3):
        await expect_soon_async(lambda: waits(server, 1))
        count = proxy.connections
        proxy.cut()
        await expect_soon_async(partial(are_more, proxy, count))
    await server.hw.queue("orders").push("late")
    assert [message.payload for message in await asyncio.wait_for(waiting, SOON)] == ["late"]


async def test_a_wait_that_was_cut_after_longer_than_all_patience_goes_on(server: Server, proxy: Proxy) -> None:
    clock, patience = let_time_jump(), 10
    async with headwater.connect(proxy.url, retry_seconds=patience) as client:
        waiting = asyncio.ensure_future(client.queue("orders").pop(wait=60))
        for _ in range(2):
            await expect_soon_async(lambda: waits(server, 1))
            clock.jump(patience * 1.2)
            count = proxy.connections
            proxy.cut()
            await expect_soon_async(partial(are_more, proxy, count))
        await server.hw.queue("orders").push("late")
        assert [message.payload for message in await asyncio.wait_for(waiting, SOON)] == ["late"]


async def test_a_loop_survives_a_server_that_starts_anew(tmp_path: Path) -> None:
    place = tmp_path / "again.db"
    async with Server(place) as first:
        client = headwater.connect(first.url)
        await client.start()
        await client.queue("orders").push(1)
        messages = client.queue("orders").consume()
        # Each in a task of its own that ends with it: another task that still works on a message may not be overtaken.
        assert (await asyncio.ensure_future(anext(messages))).payload == 1
    following = asyncio.ensure_future(anext(messages))
    async with Server(place, first.port) as second:
        await second.hw.queue("orders").push(2)
        message = await asyncio.wait_for(following, SOON)
        assert message.payload == 2
        await message.ack()
        await messages.aclose()
        [group] = await second.hw.queue("orders").groups()
        assert (group.lag, group.leased) == (0, 0)
        await client.close()


async def test_what_is_repeated_in_vain_ends_with_a_clear_error(proxy: Proxy) -> None:
    async with headwater.connect(proxy.url, retry_seconds=0.2) as client:
        proxy.fault = CutAnswers(10_000)
        with pytest.raises(ServerUnreachable, match="the connection ended before an answer"):
            await asyncio.wait_for(client.queue("orders").push(1), SOON)


async def test_nothing_is_lost_and_nothing_comes_twice_in_bad_weather(
    request: pytest.FixtureRequest, server: Server, proxy: Proxy, far: Client
) -> None:
    """Eight producers and a consumer in weather that cuts one passage in twelve."""
    count = 5_000 if request.config.getoption("--campaign") else 300
    await server.hw.queue("orders").configure(lease_seconds=1)
    queue = far.queue("orders")
    proxy.fault = weather = Weather(seed=7, share=0.08)
    answered: list[int] = []
    finished: set[object] = set()

    async def produce(numbers: range) -> None:
        for number in numbers:
            receipt = await queue.push(number, partition=f"p{number % 3}")
            assert receipt.offset is not None
            answered.append(number)

    async def consume() -> None:
        async for message in queue.consume(group="g", batch=5):
            finished.add(message.payload)

    async def is_complete() -> bool:
        if consumer.done():
            consumer.result()
        return len(finished) == count

    consumer = asyncio.ensure_future(consume())
    await asyncio.gather(*(produce(range(start, count, 8)) for start in range(8)))
    await expect_soon_async(is_complete, 60)
    consumer.cancel()
    await asyncio.gather(consumer, return_exceptions=True)
    assert weather.cuts > 10
    assert sorted(answered) == list(range(count))
    assert await kept(server) == count, "a push took effect twice, or not at all"
