"""What the processes of the scenarios do: `python -m tests.scenarios.programs <program> <file> <settings as JSON>`.

A program tells what happens in lines of JSON on its output, and takes its orders as lines of its input.
"""

import asyncio
import json
import sys
from typing import Any

import headwater
from headwater.services.messages import Outgoing
from tests.waiting import expect_soon_async

WAIT_SECONDS = 30.0


def tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)


async def order() -> str:
    """The next line of input; '' when there is no more."""
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


async def push(hw: headwater.Headwater, settings: dict[str, Any]) -> None:
    """Pushes what it is told to, line by line, and tells where it is."""
    tell(ready=True)
    while line := await order():
        receipt = await hw.queue("orders").push(json.loads(line), partition=settings.get("partition", "Default"))
        tell(offset=receipt.offset, durability=receipt.durability)


async def consume(hw: headwater.Headwater, settings: dict[str, Any]) -> None:
    """Tells every message that comes, until it has seen as many as it should."""
    orders = hw.queue("orders")
    waiting = asyncio.ensure_future(orders.pop(wait=WAIT_SECONDS))

    async def waits() -> bool:
        return waiting.done() or hw.queues_service.intentions.count > 0

    await expect_soon_async(waits)
    tell(ready=True)
    for left in reversed(range(settings["count"])):
        (message,) = await waiting
        tell(payload=message.payload, attempts=message.attempts, offset=message.offset)
        if left:
            waiting = asyncio.ensure_future(orders.pop(wait=WAIT_SECONDS, ack=[message]))
    await orders.ack(message)


async def hold(hw: headwater.Headwater, settings: dict[str, Any]) -> None:
    """Leases one message and keeps it until it is killed."""
    (message,) = await hw.queue("orders").pop(wait=WAIT_SECONDS, lease_seconds=settings["lease_seconds"])
    tell(payload=message.payload, token=message.token)
    await order()


async def work(hw: headwater.Headwater, settings: dict[str, Any]) -> None:
    """Pushes its share and consumes whatever comes, both at once, until it is told to stop."""
    tell(ready=True)
    await order()
    batches: list[dict[str, Any]] = []
    consuming = asyncio.ensure_future(_consume_all(hw, batches))
    pushed = []
    for start in range(0, settings["count"], 5):
        numbers = range(start, min(start + 5, settings["count"]))
        partitions = [f"p{number % settings['partitions']}" for number in numbers]
        outgoing = [
            Outgoing(payload=[settings["name"], number], partition=partition)
            for number, partition in zip(numbers, partitions, strict=True)
        ]
        receipts = await hw.queue("orders").push_many(outgoing)
        pushed += [(receipt.partition, receipt.offset) for receipt in receipts]
    tell(pushed=pushed)
    await order()
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
    tell(batches=batches)


async def _consume_all(hw: headwater.Headwater, batches: list[dict[str, Any]]) -> None:
    orders = hw.queue("orders")
    while True:
        messages = await orders.pop(batch=7, partitions=1, wait=WAIT_SECONDS)
        if not messages:
            continue
        batches.append(
            {
                "partition": messages[0].partition,
                "token": messages[0].token,
                "offsets": [message.offset for message in messages],
                "payloads": [message.payload for message in messages],
            }
        )
        await orders.ack(messages)


async def commit(hw: headwater.Headwater, settings: dict[str, Any]) -> None:
    """Commits one message after the other, each synced, and tells how many there were, until it is told to stop."""
    tell(ready=True)
    await order()
    stopping = asyncio.ensure_future(order())
    count = 0
    while not stopping.done():
        await hw.queue("orders").push(count, partition=settings["name"])
        count += 1
        tell(count=count)


PROGRAMS = {"push": push, "consume": consume, "hold": hold, "work": work, "commit": commit}


async def main(program: str, path: str, settings: dict[str, Any]) -> None:
    chosen = settings.pop("open", {})
    async with headwater.open(path, **chosen) as hw:
        await PROGRAMS[program](hw, settings)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
