"""Headwater as a library inside the measured process. A batch is acked by the pop of the next: one commit a turn."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle

import headwater
from benchmarks.peers import Context, Messages, Payload, Peer, Queue


class Headwater(Queue):
    """A queue whose pushes go round its partitions."""

    def __init__(self, queue: headwater.Queue, partitions: int) -> None:
        self._queue = queue
        self._numbers = cycle(range(partitions))
        self._taken: dict[str, list[headwater.Message]] = {}

    async def push(self, payload: Payload) -> None:
        await self._queue.push(payload, partition=self._next_partition())

    async def push_many(self, payloads: list[Payload]) -> None:
        await self._queue.push_many(payloads, partition=self._next_partition())

    async def take(self, count: int, group: str = "workers") -> int:
        messages = await self._queue.pop(batch=count, group=group, ack=self._taken.pop(group, ()))
        for message in messages:
            _ = message.payload  # decoded when it is first asked for
        self._taken[group] = messages
        return len(messages)

    async def consume(self) -> Messages:
        async with self._queue.consume(group="workers", batch=1) as messages:
            async for message in messages:
                yield message.payload

    def _next_partition(self) -> str:
        return f"p{next(self._numbers)}"


@asynccontextmanager
async def open_queue(durability: str, context: Context) -> AsyncIterator[Queue]:
    async with headwater.open(str(context.folder / "headwater.db"), durability=durability) as store:
        yield Headwater(store.queue("bench"), context.partitions)


PEERS = {
    "headwater": Peer(("headwater", "apsw"), "synced: fsync before every answer", partial(open_queue, "synced")),
    "headwater-written": Peer(("headwater", "apsw"), "written: committed, no fsync", partial(open_queue, "written")),
}
