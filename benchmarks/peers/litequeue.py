"""litequeue: one SQLite table, a message found by its status."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from litequeue import LiteQueue

from benchmarks.peers import Context, Messages, Payload, Peer, Queue, decode, encode


class Lite(Queue):
    def __init__(self, queue: LiteQueue) -> None:
        self._queue = queue

    async def push(self, payload: Payload) -> None:
        self._queue.put(encode(payload).decode())

    async def push_many(self, payloads: list[Payload]) -> None:
        with self._queue.transaction("IMMEDIATE"):
            for payload in payloads:
                self._queue.put(encode(payload).decode())

    async def consume(self) -> Messages:
        while message := self._queue.pop():
            yield decode(message.data)
            self._queue.done(message.message_id)


@asynccontextmanager
async def open_lite(synchronous: str, context: Context) -> AsyncIterator[Queue]:
    queue = LiteQueue(str(context.folder / "lite.db"))
    try:
        queue.conn.execute(f"pragma synchronous = {synchronous}")
        yield Lite(queue)
    finally:
        queue.close()


PEERS = {
    "litequeue": Peer(("litequeue",), "WAL, synchronous=NORMAL (its own): no fsync", partial(open_lite, "normal")),
    "litequeue-full": Peer(
        ("litequeue",), "WAL, synchronous=FULL (set by us): fsync per commit", partial(open_lite, "full")
    ),
}
