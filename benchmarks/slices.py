"""Slices of work on a queue, and a process that runs them by name as it is told to: `compare.py` starts two of them.

It uses nothing of Headwater but what every commit since the first has: open, push, pop and ack.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import uvloop

import headwater
from benchmarks.peers import PAYLOAD

BATCH = 100
TAKEN = 10
AT_ONCE = 256

Act = Callable[[headwater.Queue], Awaitable[object]]


class Slice(NamedTuple):
    """So many acts, one after the other, and what has to be done before that does not count."""

    acts: int
    act: Act
    prepare: Act | None = None


async def push_one(queue: headwater.Queue) -> None:
    await queue.push(PAYLOAD, partition="p0")


async def push_batch(queue: headwater.Queue) -> None:
    await queue.push_many([PAYLOAD] * BATCH, partition="p0")


async def push_at_once(queue: headwater.Queue) -> None:
    await asyncio.gather(*(queue.push(PAYLOAD, partition="p0") for _ in range(AT_ONCE)))


async def fill(queue: headwater.Queue) -> None:
    await queue.push_many([PAYLOAD] * (SLICES["pop-10-and-ack"].acts * TAKEN), partition="p0")


async def take(queue: headwater.Queue) -> None:
    messages = await queue.pop(batch=TAKEN, group="workers")
    assert len(messages) == TAKEN
    await queue.ack(messages)


SLICES = {
    "push-1": Slice(200, push_one),
    "push-100": Slice(40, push_batch),
    "pop-10-and-ack": Slice(50, take, fill),
    "push-256-at-once": Slice(4, push_at_once),
}


async def run(store: headwater.Headwater, name: str) -> float:
    """The CPU that a slice takes, in seconds."""
    acts, act, prepare = SLICES[name]
    # One queue for each kind: the messages of the others are not in the way.
    queue = store.queue(name)
    if prepare is not None:
        await prepare(queue)
    begun = time.process_time()
    for _ in range(acts):
        await act(queue)
    return time.process_time() - begun


async def serve(folder: Path) -> None:
    """Run what standard input names, until it ends. Nothing else is done meanwhile, so reading it may block."""
    async with headwater.open(str(folder / "headwater.db")) as store:
        for line in sys.stdin:
            print(await run(store, line.strip()), flush=True)


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
