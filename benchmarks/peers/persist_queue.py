"""persist-queue's acknowledged SQLite queue."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from persistqueue import SQLiteAckQueue

from benchmarks.peers import Context, Payload, Peer, Queue


class Persist(Queue):
    def __init__(self, queue: SQLiteAckQueue) -> None:
        self._queue = queue

    async def push(self, payload: Payload) -> None:
        self._queue.put(payload)


@asynccontextmanager
async def open_persist(context: Context) -> AsyncIterator[Queue]:
    queue = SQLiteAckQueue(str(context.folder / "persist"), multithreading=True, auto_commit=True)
    try:
        yield Persist(queue)
    finally:
        queue.close()


PEERS = {
    "persist-queue": Peer(
        ("persist-queue",), "WAL, synchronous=FULL (SQLite's default): fsync per commit", open_persist
    )
}
