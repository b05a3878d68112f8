"""How fast does Spark read and write through a server, and what do the server's queues notice of it?"""

import asyncio
import json
import os
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import headwater
from benchmarks import pipeline
from benchmarks.goals import AtMost, Times
from benchmarks.peers import Context
from benchmarks.servers import stop
from benchmarks.suite import Contestant, Question
from benchmarks.timing import Sample, now_ns, summarise
from headwater.client.client import Client
from headwater.pipeline import read
from tests.ports import free_port

SLOWER_MAX = 1.5
READ_RATIO_MIN = 0.5
BESIDE = "beside"
CALLERS = 4


def questions(messages: int) -> tuple[Question, ...]:
    """A typed read and a sink, through a server against the file; and queues while Spark reads."""
    return (typed_read(messages), sink(messages // 4), queues(messages // 4))


def typed_read(messages: int) -> Question:
    server, file = "through a server", "the file"
    return Question(
        "server-read",
        f"Typed batch read and group by, {messages:,} messages, through a server on the same machine; 2 cores",
        server,
        (
            Contestant(server, pipeline.PEER, partial(read_typed, messages, True)),
            Contestant(file, pipeline.PEER, partial(read_typed, messages, False)),
        ),
        (Times(server, READ_RATIO_MIN, file),),
    )


def sink(messages: int) -> Question:
    server, file = "through a server", "the file"
    return Question(
        "server-sink",
        f"A stream copies {messages:,} messages into another queue, exactly once, through a server; 2 cores",
        server,
        (
            Contestant(server, pipeline.PEER, partial(copy, messages, True)),
            Contestant(file, pipeline.PEER, partial(copy, messages, False)),
        ),
        (),
    )


def queues(messages: int) -> Question:
    through, beside, alone = "while Spark reads through it", "while Spark reads the file", "alone"
    return Question(
        "server-queues",
        f"{CALLERS} callers push a message over HTTP, pop and ack it, while Spark (1 core) reads again and again",
        through,
        (
            Contestant(through, pipeline.PEER, partial(serve_beside, messages, "server")),
            Contestant(beside, pipeline.PEER, partial(serve_beside, messages, "file")),
            Contestant(alone, pipeline.PEER, partial(serve_beside, messages, "")),
        ),
        (AtMost(through, "p99_ms", SLOWER_MAX, alone), AtMost(through, "p99_ms", SLOWER_MAX, beside)),
    )


# ── workloads ──


async def read_typed(messages: int, served: bool, side: str, context: Context) -> Sample:
    store = await pipeline.fill(context, messages)
    with address(store, served) as where, pipeline.session(context, 2) as spark:

        def query(number: int) -> None:
            pipeline.checked(pipeline.flow_typed(spark, where).collect(), messages)

        return pipeline.time_runs(query, messages, "2 cores")


async def copy(messages: int, served: bool, side: str, context: Context) -> Sample:
    store = await pipeline.fill(context, messages)
    batch = {"maxOffsetsPerTrigger": str(pipeline.SINK_BATCH_RECORDS)}
    with address(store, served) as where, pipeline.session(context, 2) as spark:

        def query(number: int) -> None:
            options = {"store": where, "queue": pipeline.QUEUE, **batch}
            rows = spark.readStream.format("headwater").options(**options).load().select("value", "partition")
            writer = rows.writeStream.format("headwater").options(store=where, queue=f"copies{number}")
            writer = writer.option("checkpointLocation", str(context.folder / f"checkpoint{number}"))
            writer.trigger(availableNow=True).start().awaitTermination()

        found = pipeline.time_runs(query, messages, f"2 cores; {pipeline.SINK_BATCH_RECORDS:,} in a micro-batch")
    async with headwater.open(store, housekeeping=False) as opened:
        kept = {status.queue: status.records for status in await opened.queues()}
    if short := {queue: count for queue, count in kept.items() if count != messages}:
        raise AssertionError(f"not all of {messages:,} messages were copied: {short}")
    return found


async def serve_beside(messages: int, reads: str, side: str, context: Context) -> Sample:
    """What callers of a server wait for, while a thread has Spark read through it, or its file, or nothing."""
    store = await pipeline.fill(context, messages)
    with address(store, True) as url, pipeline.session(context, 1) as spark:
        source = store if reads == "file" else url
        limits = {"endingOffsets": str(messages // pipeline.SEGMENT_RECORDS)}

        def flow() -> None:
            rows = read(spark, store=source, queue=pipeline.QUEUE, schema=pipeline.SCHEMA, **limits)
            pipeline.totals(rows).collect()

        flow()
        done = threading.Event()

        def read_on() -> None:
            while reads and not done.is_set():
                flow()

        reader = threading.Thread(target=read_on)
        reader.start()
        try:
            return await call(url, context.seconds)
        finally:
            done.set()
            reader.join()


async def call(url: str, seconds: float) -> Sample:
    """Each caller pushes, pops and acks its own message, one request after the other."""
    latencies = array("Q")
    started = now_ns()

    async def caller(client: Client, number: int) -> None:
        queue = client.queue(f"{BESIDE}{number}")
        while now_ns() - started < seconds * 1e9:
            for act in (partial(queue.push, {"number": number}), partial(queue.pop, auto_ack=True)):
                before = now_ns()
                await act()
                latencies.append(now_ns() - before)

    async with headwater.connect(url) as client:
        await asyncio.gather(*(caller(client, number) for number in range(CALLERS)))
    return summarise(latencies, len(latencies) // 2, now_ns() - started)


@contextmanager
def address(store: str, served: bool) -> Iterator[str]:
    """Where Spark finds the store: its file, or a server over it."""
    if not served:
        yield store
        return
    port = free_port()
    command = [sys.executable, "-m", "headwater", "--store", store, "serve", "--port", str(port), "--json"]
    log = Path(store).with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, env=dict(os.environ))
        assert process.stdout is not None
        try:
            if json.loads(process.stdout.readline() or b"{}").get("event") != "ready":
                raise RuntimeError(f"the server did not start: {log.read_text()[-500:]}")
            yield f"http://127.0.0.1:{port}"
        finally:
            stop(process)
            process.stdout.close()
