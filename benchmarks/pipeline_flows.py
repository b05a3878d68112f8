"""How fast does a log go into an archive and back, and how large is it there?

Payloads are filled up with random hexadecimal digits: repeated letters would make any archive look small.
"""

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headwater
from benchmarks import pipeline
from benchmarks.goals import Reaches
from benchmarks.peers import PAYLOAD_BYTES, Context
from benchmarks.suite import Contestant, Question
from benchmarks.timing import Sample, now_ns
from headwater.pipeline.flows import archive, restore
from headwater.pipeline.flows.archive import Archive
from headwater.pipeline.flows.restore import Restore

MIB = 1_048_576
WARM_UP_MESSAGES = 2_000
NAME_BYTES = 60
MESSAGES_A_SECOND_MIN = 150_000


def questions(messages: int) -> tuple[Question, ...]:
    """Archive and restore, 2 cores."""
    return (_question("archive", messages, into_archive), _question("restore", messages, out_of_archive))


def _question(name: str, messages: int, workload: Any) -> Question:
    contestant = Contestant(name, pipeline.PEER, partial(workload, messages))
    title = f"{name.capitalize()} {messages:,} messages; 2 cores"
    return Question(name, title, name, (contestant,), (Reaches(name, MESSAGES_A_SECOND_MIN),))


async def into_archive(messages: int, side: str, context: Context) -> Sample:
    """The log as Parquet, compacted; the note has both sizes."""
    store = await fill(context.folder / "headwater.db", messages)
    with pipeline.session(context, 2) as spark:
        await warm_up(spark, context.folder)
        started = now_ns()
        facts = await run_archive(spark, store, context.folder / "archive", messages)
        elapsed = now_ns() - started
    log, kept = Path(store).stat().st_size / MIB, facts["bytes"] / MIB
    note = f"2 cores; {kept:,.0f} MiB in the archive, {log:,.0f} MiB in the log: {kept / log:.2f} of it"
    return Sample(rate=messages / elapsed * 1e9, note=note)


async def out_of_archive(messages: int, side: str, context: Context) -> Sample:
    """The same archive into a store of its own, every commit on the disk."""
    store = await fill(context.folder / "headwater.db", messages)
    with pipeline.session(context, 2) as spark:
        await warm_up(spark, context.folder)
        await run_archive(spark, store, context.folder / "archive", messages)
        started = now_ns()
        await run_restore(spark, context.folder / "restored.db", context.folder / "archive", messages)
        elapsed = now_ns() - started
    return Sample(rate=messages / elapsed * 1e9, note="2 cores; files checked first, fsync on")


async def warm_up(spark: SparkSession, folder: Path) -> None:
    """Both flows once over a small log, so that starting is not measured."""
    store = await fill(folder / "small.db", WARM_UP_MESSAGES)
    await run_archive(spark, store, folder / "small", WARM_UP_MESSAGES)
    await run_restore(spark, folder / "small-restored.db", folder / "small", WARM_UP_MESSAGES)


async def run_archive(spark: SparkSession, store: str, folder: Path, messages: int) -> dict[str, Any]:
    # A flow has an event loop of its own, so it needs a thread of its own.
    summary = await asyncio.to_thread(archive.run, spark, Archive(store=store, folder=str(folder)))
    _check("archived", summary.facts, messages)
    return summary.facts


async def run_restore(spark: SparkSession, store: Path, folder: Path, messages: int) -> None:
    summary = await asyncio.to_thread(restore.run, spark, Restore(store=str(store), folder=str(folder)))
    _check("restored", summary.facts, messages)


def _check(name: str, facts: dict[str, Any], messages: int) -> None:
    if facts[name] != messages:
        raise AssertionError(f"{facts[name]:,} of {messages:,} messages were {name}")


async def fill(path: Path, messages: int) -> str:
    """A store with so many orders of which no two are alike, as many to a segment as the other questions have."""
    chance = random.Random(7)
    async with headwater.open(str(path), durability="written") as opened:
        queue = opened.queue(pipeline.QUEUE)
        for first in range(0, messages, pipeline.SEGMENT_RECORDS):
            numbers = range(first, min(first + pipeline.SEGMENT_RECORDS, messages))
            lane = f"p{first // pipeline.SEGMENT_RECORDS % pipeline.LANES}"
            await queue.push_many([order(number, chance) for number in numbers], partition=lane)
    return str(path)


def order(number: int, chance: random.Random) -> dict[str, Any]:
    """An order that is about 200 bytes as JSON."""
    note = chance.randbytes((PAYLOAD_BYTES - NAME_BYTES) // 2).hex()
    return {"customer": f"customer-{number % pipeline.CUSTOMERS}", "amount": number % 10_000 / 100, "note": note}
