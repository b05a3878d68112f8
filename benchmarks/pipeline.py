"""How fast is the data pipeline: reading the log typed, following it, writing to it, leaving its writers in peace?"""

import asyncio
import os
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater
from benchmarks.goals import Reaches, Times, Within
from benchmarks.peers import PAYLOAD_BYTES, Context, encode
from benchmarks.suite import Contestant, Question
from benchmarks.timing import Sample, now_ns, summarise
from headwater.pipeline import read, read_stream, start_session

PEER = "spark"
SCHEMA = "number BIGINT, customer STRING, amount DOUBLE"
QUEUE = "orders"
SEGMENT_RECORDS = 100
LANES = 16
CUSTOMERS = 1_000
WARM_UP_PART = 4
WAL_MB_MAX = 64
RUNS = 3
SINK_BATCH_RECORDS = 250_000

MakePayload = Callable[[int], dict[str, Any]]

# A measure is a session with several runs in it, and filling a log of millions takes longer than most measures.
ROUNDS = 1
SPARE_SECONDS = 400.0

NOTES = (
    f"Payload: an order of {PAYLOAD_BYTES} bytes as JSON, {SEGMENT_RECORDS} to a segment, in {LANES} partitions.",
    "The flow: every payload typed by a schema, then a sum and a count by customer. Timed from the query to its "
    f"result in a session that has run the same query before: Java compiles as it goes. The median of {RUNS} such "
    "runs; the note has the first one of the session, which pays for that and for starting Python workers.",
    "One row a message: format('headwater') ships the text of every payload, Spark types each row with from_json.",
    "The JSON file and the table behind JDBC (Derby, inside Spark's process) hold the payloads of the same log.",
    "Cores are those of Spark's master, local[n]; Python workers run beside it on the same machine.",
)


def questions(quick: bool) -> tuple[Question, ...]:
    """All questions; `quick` makes the log ten times smaller."""
    messages = 200_000 if quick else 2_000_000
    from benchmarks import pipeline_flows, pipeline_server, pipeline_typed  # they ask with what is defined here

    first = (*pipeline_typed.questions(messages), catching_up(messages), *pipeline_flows.questions(messages))
    then = (typed_read(messages // 2), sink(messages // 4), writers(messages))
    return (*first, *pipeline_server.questions(messages), *then)


def typed_read(messages: int) -> Question:
    names = {"typed where it is read": flow_typed, "one row a message": flow_over_rows}
    contestants = tuple(
        Contestant(f"{name}, {cores} cores", PEER, partial(read_typed, flow, cores, messages))
        for cores in (2, 1)
        for name, flow in names.items()
    )
    ours, rows = contestants[0].label, contestants[1].label
    return Question(
        "typed-read",
        f"Typed batch read and group by, {messages:,} messages",
        ours,
        contestants,
        (Times(ours, 1.6, rows), Reaches(ours, 800_000)),
    )


def catching_up(messages: int) -> Question:
    stream, table = "stream", "table"
    return Question(
        "catch-up",
        f"A stream catches up with {messages:,} messages, against one table read of them; 2 cores",
        stream,
        (
            Contestant(stream, PEER, partial(follow, messages)),
            Contestant(table, PEER, partial(read_typed, flow_typed, 2, messages)),
        ),
        (Times(stream, 0.8, table),),
    )


def sink(messages: int) -> Question:
    name = "sink, exactly once"
    return Question(
        "sink",
        f"A stream copies {messages:,} messages into another queue, exactly once; 2 cores",
        name,
        (Contestant(name, PEER, partial(copy, messages)),),
        (Reaches(name, 100_000),),
    )


def writers(messages: int) -> Question:
    reading, alone = "while Spark reads", "alone"
    return Question(
        "writers",
        "One producer, batches of 100, fsync on, while Spark reads the log again and again; 1 core",
        reading,
        (
            Contestant(reading, PEER, partial(push_beside, messages // 4, True)),
            Contestant(alone, PEER, partial(push_beside, messages // 4, False)),
        ),
        (Within(reading, "lock_waits", 0), Within(reading, "wal_mb", WAL_MB_MAX)),
    )


# ── flows ──


def totals(rows: DataFrame) -> DataFrame:
    return rows.groupBy("value.customer").agg(F.sum("value.amount").alias("amount"), F.count("*").alias("orders"))


def flow_typed(spark: SparkSession, store: str, **options: Any) -> DataFrame:
    """Payloads are typed where the log is read."""
    return totals(read(spark, store=store, queue=QUEUE, schema=SCHEMA, **options))


def flow_over_rows(spark: SparkSession, store: str, **options: Any) -> DataFrame:
    """Every message travels as a row, Spark types it."""
    rows = spark.read.format("headwater").options(store=store, queue=QUEUE, **options).load()
    return totals(rows.select(F.from_json("value", SCHEMA).alias("value")))


def warm_up(messages: int) -> str:
    """The LSN where the first quarter of the log ends."""
    return str(messages // SEGMENT_RECORDS // WARM_UP_PART)


def checked(rows: list[Any], messages: int) -> None:
    counted = sum(row.orders for row in rows)
    if counted != messages:
        raise AssertionError(f"{counted:,} of {messages:,} messages were counted")


# ── workloads ──


async def read_typed(flow: Callable[..., DataFrame], cores: int, messages: int, side: str, context: Context) -> Sample:
    store = await fill(context, messages)
    with session(context, cores) as spark:

        def query(number: int) -> None:
            checked(flow(spark, store).collect(), messages)

        return time_runs(query, messages, f"{cores} cores")


async def follow(messages: int, side: str, context: Context) -> Sample:
    """A query with state that begins at the beginning, with no limit to its micro-batches."""
    store = await fill(context, messages)
    with session(context, 2) as spark:

        def query(number: int) -> None:
            stream = totals(read_stream(spark, store=store, queue=QUEUE, schema=SCHEMA))
            writer = stream.writeStream.outputMode("complete").format("memory").queryName(f"totals{number}")
            writer = writer.option("checkpointLocation", str(context.folder / f"checkpoint{number}"))
            writer.trigger(availableNow=True).start().awaitTermination()
            checked(spark.table(f"totals{number}").collect(), messages)

        return time_runs(query, messages, "2 cores")


def time_runs(query: Callable[[int], None], messages: int, note: str) -> Sample:
    """The rate of a query in a session that knows it; the rate of its first run is noted."""
    first, *others = [_rate(query, number, messages) for number in range(1 + RUNS)]
    return Sample(rate=median(others), note=f"{note}; first run {first / 1_000:,.0f} k/s")


def _rate(query: Callable[[int], None], number: int, messages: int) -> float:
    started = now_ns()
    query(number)
    return messages / (now_ns() - started) * 1e9


async def copy(messages: int, side: str, context: Context) -> Sample:
    store = await fill(context, messages)
    with session(context, 2) as spark:

        def query(number: int) -> None:
            options = {"store": store, "queue": QUEUE, "maxOffsetsPerTrigger": str(SINK_BATCH_RECORDS)}
            rows = spark.readStream.format("headwater").options(**options).load().select("value", "partition")
            writer = rows.writeStream.format("headwater").options(store=store, queue=f"copies{number}")
            writer = writer.option("checkpointLocation", str(context.folder / f"checkpoint{number}"))
            writer.trigger(availableNow=True).start().awaitTermination()

        found = time_runs(query, messages, f"2 cores; {SINK_BATCH_RECORDS:,} in a micro-batch")
    async with headwater.open(store, housekeeping=False) as opened:
        kept = {status.queue: status.records for status in await opened.queues()}
    if short := {queue: count for queue, count in kept.items() if count != messages}:
        raise AssertionError(f"not all of {messages:,} messages were copied: {short}")
    return found


async def push_beside(messages: int, reading: bool, side: str, context: Context) -> Sample:
    """Commits of one producer, counted when another held the lock, while a thread has Spark read."""
    store = await fill(context, messages)
    with session(context, 1) as spark:
        flow_typed(spark, store, endingOffsets=warm_up(messages)).collect()
        done = threading.Event()

        def read_on() -> None:
            while reading and not done.is_set():
                flow_typed(spark, store).collect()

        reader = threading.Thread(target=read_on)
        reader.start()
        try:
            return await push_counting(store, context.seconds)
        finally:
            done.set()
            reader.join()


async def push_counting(store: str, seconds: float) -> Sample:
    latencies = array("Q")
    payloads = orders(0, SEGMENT_RECORDS)
    waits = wal_bytes = 0
    async with headwater.open(store) as opened:
        store_of: Any = opened.store
        begins = store_of._try_begin

        # Programs that write take turns before they begin; who still holds a lock then is a reader, or a stranger.
        def counted() -> bool:
            nonlocal waits
            begun: bool = begins()
            waits += not begun
            return begun

        store_of._try_begin = counted
        queue = opened.queue(QUEUE)
        started = now_ns()
        while now_ns() - started < seconds * 1e9:
            before = now_ns()
            await queue.push_many(payloads)
            latencies.append(now_ns() - before)
            wal_bytes = max(wal_bytes, os.path.getsize(f"{store}-wal"))
        found = summarise(latencies, len(latencies) * SEGMENT_RECORDS, now_ns() - started)
    return Sample(
        rate=found.rate, p50_ms=found.p50_ms, p99_ms=found.p99_ms, lock_waits=waits, wal_mb=wal_bytes / 1_048_576
    )


# ── the log ──


def orders(first: int, count: int) -> list[dict[str, Any]]:
    return [order(number) for number in range(first, first + count)]


def order(number: int) -> dict[str, Any]:
    """An order that is about 200 bytes as JSON."""
    customer = f"customer-{number % CUSTOMERS}"
    bare = {"number": number, "customer": customer, "amount": number % 10_000 / 100, "padding": ""}
    return {**bare, "padding": "x" * (PAYLOAD_BYTES - len(encode(bare)))}


async def fill(context: Context, messages: int, payload: MakePayload = order) -> str:
    """A store with so many orders, or other payloads, 100 to a segment, on the disk."""
    store = str(context.folder / "headwater.db")
    async with headwater.open(store, durability="written") as opened:
        queue = opened.queue(QUEUE)
        for first in range(0, messages, SEGMENT_RECORDS * LANES):
            starts = range(first, min(first + SEGMENT_RECORDS * LANES, messages), SEGMENT_RECORDS)
            await asyncio.gather(
                *(
                    queue.push_many(
                        [payload(number) for number in range(start, min(start + SEGMENT_RECORDS, messages))],
                        partition=f"p{lane}",
                    )
                    for lane, start in enumerate(starts)
                )
            )
    return store


@contextmanager
def session(context: Context, cores: int) -> Iterator[SparkSession]:
    spark = start_session(f"local[{cores}]", log=Path(context.folder) / "spark.log")
    try:
        yield spark
    finally:
        spark.stop()
