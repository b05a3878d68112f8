"""Processes on one file: what one pushes another gets, nothing is lost, nothing comes twice, everybody is served."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.services.intentions import ELSEWHERE_SECONDS
from headwater.wakeups.inotify import LOOK_AGAIN_SECONDS, REST_SECONDS
from tests.scenarios.process import Program
from tests.waiting import expect_soon_async

WAKEUPS = ["inotify", "data_version"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


async def start(stack: AsyncExitStack, programs: Sequence[Program]) -> None:
    """All of them, at the same time, until each has opened the file."""
    for program in programs:
        await stack.enter_async_context(program)
    await asyncio.gather(*[program.hear_ready() for program in programs])


@pytest.mark.parametrize("wakeup", WAKEUPS)
async def test_a_waiting_consumer_gets_what_another_process_pushes(path: Path, wakeup: str) -> None:
    consumer = Program("consume", path, count=3, open={"wakeup": wakeup})
    pusher = Program("push", path, open={"wakeup": wakeup})
    async with AsyncExitStack() as stack:
        await start(stack, [consumer, pusher])
        for number in range(3):
            pusher.say(str(number))
            assert await pusher.hear() == {"offset": number, "durability": "synced"}
            assert await consumer.hear() == {"payload": number, "attempts": 1, "offset": number}
        await consumer.end()
        await pusher.end()


async def test_what_one_instance_writes_another_receives_without_polling(path: Path) -> None:
    """S0-49 allows a tenth of a second; how long it takes is measured in `script/bench queues`, side `waking`.

    Nothing here looks at a pace of its own, and all the pauses that may be made on the way come to less than that.
    """
    assert sum(LOOK_AGAIN_SECONDS) + REST_SECONDS + ELSEWHERE_SECONDS < 0.1
    consumer = Program("consume", path, count=20, open={"wakeup": "inotify"})
    async with headwater.open(str(path), housekeeping=False) as hw, consumer:
        await consumer.hear_ready()
        for number in range(20):
            await hw.queue("orders").push(number)
            assert (await consumer.hear())["payload"] == number
        await consumer.end()


async def test_messages_survive_a_process_that_is_killed(path: Path) -> None:
    async with Program("push", path) as pusher:
        await pusher.hear_ready()
        for number in range(10):
            pusher.say(str(number))
            await pusher.hear()
        pusher.kill()
        await pusher.gone()
    async with Program("consume", path, count=10) as consumer:
        await consumer.hear_ready()
        assert [(await consumer.hear())["payload"] for _ in range(10)] == list(range(10))
        await consumer.end()


async def test_messages_and_positions_survive_a_restart(path: Path) -> None:
    async with headwater.open(str(path)) as hw:
        await hw.queue("orders").push_many([1, 2, 3])
        await hw.queue("orders").ack(await hw.queue("orders").pop())
    async with Program("consume", path, count=2) as consumer:
        await consumer.hear_ready()
        assert [(await consumer.hear())["payload"] for _ in range(2)] == [2, 3]
        await consumer.end()
    async with headwater.open(str(path)) as hw:
        assert (await hw.queue("orders").groups())[0].lag == 0


async def test_the_message_of_a_consumer_that_was_killed_goes_to_another(path: Path) -> None:
    holder = Program("hold", path, lease_seconds=1.0)
    async with headwater.open(str(path)) as hw, holder:
        await hw.queue("orders").push("precious")
        held = await holder.hear()
        holder.kill()
        (message,) = await hw.queue("orders").pop(wait=30)
        assert (message.payload, message.attempts) == ("precious", 2)
        assert message.token > held["token"]


# ── many at once ──

PROCESSES = 4
MESSAGES = 150
PARTITIONS = 5


async def test_processes_push_and_pop_at_once_and_nothing_is_lost_or_doubled(path: Path) -> None:
    workers = [Program("work", path, name=name, count=MESSAGES, partitions=PARTITIONS) for name in range(PROCESSES)]
    async with AsyncExitStack() as stack:
        hw = await stack.enter_async_context(headwater.open(str(path), housekeeping=False))
        await start(stack, workers)
        for worker in workers:
            worker.say("push and consume")
        pushed = [(await worker.hear())["pushed"] for worker in workers]

        async def is_consumed() -> bool:
            groups = await hw.groups("orders")
            return bool(groups) and groups[0].lag == 0

        await expect_soon_async(is_consumed, 60)
        for worker in workers:
            worker.say("stop")
        batches = [batch for worker in workers for batch in (await worker.hear())["batches"]]
        for worker in workers:
            await worker.end()
    check_offsets(pushed)
    check_deliveries(batches)


def check_offsets(pushed: list[list[tuple[str, int]]]) -> None:
    """Every offset of a partition was given out once, from 0 on, and to each producer in its own order."""
    found: dict[str, list[int]] = defaultdict(list)
    for receipts in pushed:
        own: dict[str, list[int]] = defaultdict(list)
        for partition, offset in receipts:
            own[partition].append(offset)
        for partition, offsets in own.items():
            assert offsets == sorted(offsets)
            found[partition] += offsets
    for offsets in found.values():
        assert sorted(offsets) == list(range(len(offsets)))
    assert sum(map(len, found.values())) == PROCESSES * MESSAGES


def check_deliveries(batches: list[dict[str, Any]]) -> None:
    """Every message was delivered once; in the order of the tokens, the offsets of a partition have no gap."""
    delivered = [tuple(payload) for batch in batches for payload in batch["payloads"]]
    assert len(delivered) == len(set(delivered)) == PROCESSES * MESSAGES
    lanes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for batch in batches:
        lanes[batch["partition"]].append(batch)
    for lane in lanes.values():
        ordered = sorted(lane, key=lambda batch: int(batch["token"]))
        offsets = [offset for batch in ordered for offset in batch["offsets"]]
        assert offsets == list(range(len(offsets)))
        check_producers([payload for batch in ordered for payload in batch["payloads"]])


def check_producers(payloads: list[tuple[int, int]]) -> None:
    """Each producer's messages come in the order it pushed them."""
    for name in range(PROCESSES):
        own = [number for producer, number in payloads if producer == name]
        assert own == sorted(own)


async def test_every_process_is_served_when_all_write_at_once(path: Path) -> None:
    """SQLite's own waiting would let some processes have no turn for seconds."""
    committers = [Program("commit", path, name=f"p{number}") for number in range(PROCESSES)]
    counts = [0] * PROCESSES
    async with AsyncExitStack() as stack:
        await start(stack, committers)
        for committer in committers:
            committer.say("go")

        async def listen(place: int) -> None:
            while min(counts) < 40:
                counts[place] = (await committers[place].hear())["count"]

        await asyncio.gather(*[listen(place) for place in range(PROCESSES)])
        for committer in committers:
            committer.kill()
    assert max(counts) <= 25 * min(counts)
