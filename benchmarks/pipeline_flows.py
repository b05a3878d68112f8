"""How fast does a log go into an archive and back, and how large is it there?"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import pipeline
from benchmarks.peers import Context
from benchmarks.suite import Contestant, Question
from benchmarks.timing import Sample, now_ns
from headwater.pipeline.flows import archive, restore
from headwater.pipeline.flows.archive import Archive
from headwater.pipeline.flows.restore import Restore

MIB = 1_048_576


def questions(messages: int) -> tuple[Question, ...]:
    """Archive and restore, 2 cores."""
    return (_question("archive", messages, into_archive), _question("restore", messages, out_of_archive))


def _question(name: str, messages: int, workload: Any) -> Question:
    contestant = Contestant(name, pipeline.PEER, partial(workload, messages))
    return Question(name, f"{name.capitalize()} {messages:,} messages; 2 cores", name, (contestant,), ())


async def into_archive(messages: int, side: str, context: Context) -> Sample:
    """The log as Parquet, compacted; the note has both sizes."""
    store = await pipeline.fill(context, messages)
    folder = context.folder / "archive"
    with pipeline.session(context, 2) as spark:
        started = now_ns()
        summary = await asyncio.to_thread(archive.run, spark, Archive(store=store, folder=str(folder)))
        elapsed = now_ns() - started
    if summary.facts["archived"] != messages:
        raise AssertionError(f"{summary.facts['archived']:,} of {messages:,} messages were archived")
    log, kept = Path(store).stat().st_size / MIB, summary.facts["bytes"] / MIB
    note = f"2 cores; {kept:,.0f} MiB in the archive, {log:,.0f} MiB in the log: {kept / log:.2f} of it"
    return Sample(rate=messages / elapsed * 1e9, note=note)


async def out_of_archive(messages: int, side: str, context: Context) -> Sample:
    """The same archive into a store of its own, every commit on the disk."""
    store = await pipeline.fill(context, messages)
    folder = context.folder / "archive"
    job = Restore(store=str(context.folder / "restored.db"), folder=str(folder))
    with pipeline.session(context, 2) as spark:
        await asyncio.to_thread(archive.run, spark, Archive(store=store, folder=str(folder)))
        started = now_ns()
        summary = await asyncio.to_thread(restore.run, spark, job)
        elapsed = now_ns() - started
    if summary.facts["restored"] != messages:
        raise AssertionError(f"{summary.facts['restored']:,} of {messages:,} messages were restored")
    return Sample(rate=messages / elapsed * 1e9, note="2 cores; files checked first, fsync on")
