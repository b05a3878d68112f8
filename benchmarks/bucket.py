"""How fast is a store in a bucket: by its size and how it is kept, for one caller, and when it is opened cold?"""

import asyncio
import os
import secrets
import subprocess
import sys
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import headwater
from benchmarks.goals import AtMost, Goal, Reaches, Within
from benchmarks.peers import PAYLOAD_BYTES, Context, Payload, encode
from benchmarks.suite import Contestant, Question
from benchmarks.timing import Sample, now_ns, repeat, summarise
from headwater.stores.bucket.s3 import S3Objects
from headwater.stores.bucket.store import BucketStore
from tests.seaweed_server import BUCKET, SeaweedServer, environment_for

PEER = "headwater"
PUT_MS = 60.0
PRODUCERS = 256
BATCH = 10
BALLAST_BYTES = 131_072
BALLAST_AT_ONCE = 128
COLD_ENTRIES = 250
ROUNDS = 1
SPARE_SECONDS = 240.0
MIB = 1_048_576

NOTES = (
    f"A real S3 server (SeaweedFS) on loopback, whose answers arrive {PUT_MS:g} ms late, GETs as PUTs.",
    f"Pushes: {PRODUCERS} producers, each {BATCH} messages of {PAYLOAD_BYTES} bytes at a time, answered when they have "
    "landed; a latency is that of one such call. The store has so many MB in it before. 120 of 200 bytes are digits of "
    "chance, which pack to 60.",
    "Alone: one caller, one message at a time. A plain PUT: an object of 4 KB, created once, by the same client.",
    f"Cold: a store of 10 MB and {COLD_ENTRIES} entries behind its base is opened; nobody holds it.",
)


def questions(quick: bool) -> tuple[Question, ...]:
    """All questions; `quick` leaves out 100 MB."""
    return (pushes((1, 10) if quick else (1, 10, 100)), alone(), cold())


def pushes(sizes: tuple[int, ...]) -> Question:
    contestants = [
        Contestant(f"{ship}, {size} MB", PEER, partial(push_many, ship, size))
        for ship in ("chain", "image")
        for size in sizes
    ]
    goals: list[Goal] = []
    for size in sizes[1:]:
        goals += [Reaches(f"chain, {size} MB", 20_000), Within(f"chain, {size} MB", "p99_ms", 180)]
    return Question(
        "pushes", "Messages pushed to a store in a bucket", "chain, 10 MB", tuple(contestants), tuple(goals)
    )


def alone() -> Question:
    ours, plain = "push of one", "plain PUT"
    contestants = (Contestant(ours, PEER, push_alone), Contestant(plain, PEER, put_alone))
    return Question("alone", "One caller", ours, contestants, (AtMost(ours, "p99_ms", 2.0, plain),))


def cold() -> Question:
    ours = "10 MB"
    return Question(
        "cold", "Opening a store", ours, (Contestant(ours, PEER, open_cold),), (Within(ours, "p50_ms", 1_000),)
    )


# ── workloads ──


def make_payload() -> Payload:
    """200 bytes as JSON, of which 120 are digits of chance: what is sent cannot be packed to nothing."""
    bare = {"id": secrets.token_hex(60), "sent_ns": now_ns(), "padding": ""}
    return {**bare, "padding": "x" * (PAYLOAD_BYTES - len(encode(bare)))}


@asynccontextmanager
async def bucket() -> AsyncIterator[str]:
    """A server and the slow way to it, by the environment of this process; the beginning of an address."""
    server = SeaweedServer()
    command = [sys.executable, "-m", "benchmarks.slow_way", str(server.port), str(PUT_MS)]
    way = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert way.stdout is not None
        os.environ.update(environment_for(int(way.stdout.readline())))
        yield f"s3://{BUCKET}/"
    finally:
        way.kill()
        way.wait()
        server.stop()


async def fill(hw: headwater.Headwater, size_mb: int) -> None:
    """So much that does not get smaller."""
    left = size_mb * MIB // BALLAST_BYTES
    while left:
        blocks = [os.urandom(BALLAST_BYTES // 2).hex() for _ in range(min(left, BALLAST_AT_ONCE))]
        await asyncio.gather(*(hw.queue("ballast").push(block) for block in blocks))
        left -= len(blocks)


async def push_many(ship: str, size_mb: int, peer: str, context: Context) -> Sample:
    """How many messages a second land, and after how long."""
    async with bucket() as begin, headwater.open(f"{begin}log.sqlite?ship={ship}") as hw:
        await fill(hw, size_mb)
        store = hw.store
        assert isinstance(store, BucketStore)
        queue, latencies = hw.queue("orders"), array("Q")
        started = now_ns()
        finish = started + int(context.seconds * 1e9)
        before = store.numbers()

        async def produce() -> None:
            while (begun := now_ns()) < finish:
                await queue.push_many([make_payload() for _ in range(BATCH)])
                latencies.append(now_ns() - begun)

        await asyncio.gather(*(produce() for _ in range(PRODUCERS)))
        elapsed = now_ns() - started
        after = store.numbers()
        messages = len(latencies) * BATCH
        sent = after["bucket_sent_bytes_total"] - before["bucket_sent_bytes_total"]
        bases = after["bucket_bases_total"] - before["bucket_bases_total"]
        puts = after["bucket_puts_total"] - before["bucket_puts_total"]
        sample = summarise(latencies, messages, elapsed)
        note = f"{sent / messages:,.0f} bytes sent a message, {messages / puts:,.0f} messages a PUT, {bases:g} bases"
        return Sample(sample.rate, sample.p50_ms, None, sample.p99_ms, memory_mb=sample.memory_mb, note=note)


async def push_alone(peer: str, context: Context) -> Sample:
    """How long one caller waits."""
    async with bucket() as begin, headwater.open(f"{begin}log.sqlite") as hw:
        queue = hw.queue("orders")

        async def push() -> int:
            await queue.push(make_payload())
            return 1

        return await repeat(push, context.seconds)


async def put_alone(peer: str, context: Context) -> Sample:
    """The least that anybody could wait."""
    async with bucket():
        objects = S3Objects(BUCKET)
        data, numbers = encode(os.urandom(2_048).hex()), iter(range(10**9))

        async def put() -> int:
            await objects.create(f"plain/{next(numbers)}", data)
            return 1

        return await repeat(put, context.seconds)


async def open_cold(peer: str, context: Context) -> Sample:
    """How long it takes until somebody who opens a store could be answered."""
    latencies = array("Q")
    async with bucket() as begin:
        address = f"{begin}log.sqlite?lease_seconds=0"
        async with headwater.open(address) as hw:
            await fill(hw, 10)
        for _ in range(3):
            await leave_entries(address)
            begun = now_ns()
            store = BucketStore(address, headwater.Config())
            await store.open()
            latencies.append(now_ns() - begun)
            await store.close()
    return summarise(latencies, len(latencies), sum(latencies))


async def leave_entries(address: str) -> None:
    """As a broker that was killed: entries behind the base, and no newer base."""
    command = [sys.executable, "-m", "benchmarks.bucket_left", address, str(COLD_ENTRIES)]
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0
