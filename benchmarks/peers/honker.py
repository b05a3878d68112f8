"""honker: a SQLite extension in Rust with a Python interface."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import honker

from benchmarks.peers import Context, Messages, Payload, Peer, Queue


class Honker(Queue):
    def __init__(self, database: honker.Database) -> None:
        self._database = database
        self._queue = database.queue("bench")
        self._worker = f"worker-{os.getpid()}"

    async def push(self, payload: Payload) -> None:
        self._queue.enqueue(payload)

    async def push_many(self, payloads: list[Payload]) -> None:
        with self._database.transaction() as transaction:
            for payload in payloads:
                self._queue.enqueue(payload, tx=transaction)

    async def consume(self) -> Messages:
        async for job in self._queue.claim(self._worker):
            yield job.payload
            job.ack()


@asynccontextmanager
async def open_honker(context: Context) -> AsyncIterator[Queue]:
    database = honker.open(str(context.folder / "honker.db"))
    try:
        yield Honker(database)
    finally:
        database.close()


PEERS = {"honker": Peer(("honker",), "WAL, synchronous=NORMAL (fixed): no fsync per commit", open_honker)}
