"""Six workers on messages that name no partition: all of them hold one at the same time, whatever they are made of."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import headwater
import headwater.sync
from tests.client.server import Server
from tests.scenarios.process import Program
from tests.waiting import expect_soon_async

WORKERS = 6
MESSAGES = 60
PATIENCE_SECONDS = 60.0

Push = Callable[[headwater.Queue], Awaitable[None]]


async def one_by_one(queue: headwater.Queue) -> None:
    for number in range(WORKERS):
        await queue.push(number)


async def at_the_same_time(queue: headwater.Queue) -> None:
    await asyncio.gather(*(queue.push(number) for number in range(WORKERS)))


async def in_one_go(queue: headwater.Queue) -> None:
    await queue.push_many(range(MESSAGES))


async def with_an_id_each(queue: headwater.Queue) -> None:
    await queue.push_many([headwater.Outgoing(payload=n, transaction_id=f"order-{n}") for n in range(MESSAGES)])


pushed_in_every_way = pytest.mark.parametrize("push", [one_by_one, at_the_same_time, in_one_go, with_an_id_each])


async def hold_together(queue: headwater.Queue, barrier: asyncio.Barrier) -> object:
    """A worker that goes on when all others hold a message as well."""
    (message,) = await queue.pop(group="workers", wait=30)
    await barrier.wait()
    await queue.ack(message)
    return message.payload


async def held_together(queues: list[headwater.Queue]) -> set[object]:
    """The messages that all of them held at the same time."""
    barrier = asyncio.Barrier(WORKERS)
    async with asyncio.timeout(PATIENCE_SECONDS):
        return set(await asyncio.gather(*(hold_together(queue, barrier) for queue in queues)))


@pushed_in_every_way
async def test_six_tasks_work_at_the_same_time(tmp_path: Path, push: Push) -> None:
    async with headwater.open(str(tmp_path / "log.db")) as hw:
        await push(hw.queue("orders"))
        assert len(await held_together([hw.queue("orders")] * WORKERS)) == WORKERS


@pushed_in_every_way
async def test_six_tasks_that_wait_already_work_at_the_same_time(tmp_path: Path, push: Push) -> None:
    async with headwater.open(str(tmp_path / "log.db")) as hw:
        working = asyncio.ensure_future(held_together([hw.queue("orders")] * WORKERS))

        async def all_wait() -> bool:
            return hw.queues_service.intentions.count == WORKERS

        await expect_soon_async(all_wait)
        await push(hw.queue("orders"))
        assert len(await working) == WORKERS


@pushed_in_every_way
async def test_six_loops_work_at_the_same_time(tmp_path: Path, push: Push) -> None:
    async def consume(queue: headwater.Queue, barrier: asyncio.Barrier) -> object:
        async with queue.consume(group="workers") as messages:
            async for message in messages:
                await barrier.wait()
                return message.payload
        raise AssertionError("a loop does not end by itself")

    async with headwater.open(str(tmp_path / "log.db")) as hw:
        await push(hw.queue("orders"))
        barrier = asyncio.Barrier(WORKERS)
        async with asyncio.timeout(PATIENCE_SECONDS):
            held = await asyncio.gather(*(consume(hw.queue("orders"), barrier) for _ in range(WORKERS)))
        assert len(set(held)) == WORKERS


@pushed_in_every_way
async def test_six_clients_of_a_server_work_at_the_same_time(tmp_path: Path, push: Push) -> None:
    async with Server(tmp_path / "log.db") as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(headwater.connect(server.url)) for _ in range(WORKERS)]
        await push(clients[0].queue("orders"))
        assert len(await held_together([client.queue("orders") for client in clients])) == WORKERS


@pushed_in_every_way
def test_six_threads_work_at_the_same_time(tmp_path: Path, push: Push) -> None:
    barrier = threading.Barrier(WORKERS)

    def work(queue: headwater.sync.Queue) -> object:
        (message,) = queue.pop(group="workers", wait=30)
        barrier.wait(PATIENCE_SECONDS)
        queue.ack(message)
        return message.payload

    path = str(tmp_path / "log.db")
    asyncio.run(_push_to(path, push))
    with headwater.sync.open(path) as hw, ThreadPoolExecutor(WORKERS) as threads:
        held = list(threads.map(work, [hw.queue("orders")] * WORKERS))
    assert len(set(held)) == WORKERS


@pushed_in_every_way
async def test_six_processes_work_at_the_same_time(tmp_path: Path, push: Push) -> None:
    path = tmp_path / "log.db"
    await _push_to(str(path), push)
    async with AsyncExitStack() as stack:
        holders = [await stack.enter_async_context(Program("hold", path, lease_seconds=3_600)) for _ in range(WORKERS)]
        # Each keeps its message until it is killed, so all of them hold one when the last has told.
        held = [(await holder.hear())["payload"] for holder in holders]
    assert len(set(held)) == WORKERS


async def _push_to(path: str, push: Push) -> None:
    async with headwater.open(path) as hw:
        await push(hw.queue("orders"))


async def test_a_newcomer_who_pushes_three_and_pops_ten_gets_three(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "log.db")) as hw:
        orders = hw.queue("orders")
        for number in range(3):
            await orders.push(number)
        messages = await orders.pop(batch=10)
        assert [message.payload for message in messages] == [0, 1, 2]
        await orders.ack(messages)
        assert await orders.pop(batch=10) == []


async def test_a_receipt_says_which_lane_a_message_went_to(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "log.db")) as hw:
        orders = hw.queue("orders")
        receipts = [*await orders.push_many(range(40)), await orders.push(40)]
        kept = {
            (message.partition, message.offset): message.payload for message in await orders.pop(batch=100, group="g")
        }
        assert [kept[receipt.partition, receipt.offset] for receipt in receipts if receipt.offset is not None] == list(
            range(41)
        )
