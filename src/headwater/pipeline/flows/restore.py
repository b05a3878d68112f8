"""restore: an archive back into a queue, under the same name or another, order, ids and times kept.

    manifest ─► every file checked ─► files in LSN order ─ load_file, or load_rows where they overlap ─► queue

A record is known by where it came from: its first partition and its offset there. A partition remembers which of these
it has, so running a restore twice, or from two archives of the same log, adds nothing. What the queue itself still
holds is left alone.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.client.access import Access
from headwater.errors import FlowError, QueueMissing, SourceUnfit
from headwater.pipeline.ends import RECORDS_PER_STEP, partitions_of
from headwater.pipeline.flows.archive import KIND, read_entries
from headwater.pipeline.loading import Tally, Target, load_rows
from headwater.pipeline.manifest import Entry, Manifest, need_manifest, verify
from headwater.pipeline.options import anywhere
from headwater.pipeline.progress import Progress, Tell, keep_quiet, rate
from headwater.pipeline.restoring import Origin, in_log_order, load_file
from headwater.pipeline.served import Log, open_log
from headwater.pipeline.summary import Summary

NOWHERE = 2**62


class Restore(msgspec.Struct, frozen=True, kw_only=True):
    """Which queue of which archive goes where. Days (`2026-11-15`) are those the records were written on."""

    store: str
    access: Access = Access()
    database: str = "main"
    folder: str
    queue: str = ""
    target: str = ""
    since: str = ""
    until: str = ""
    records_per_step: int = RECORDS_PER_STEP


def place_rows(rows: DataFrame, origins: DataFrame) -> DataFrame:
    """Archived rows as rows to load: each with its source and position, less those that the queue still holds.

    `origins` says of each partition how its source is called, and from which offset on the queue holds it itself.
    """
    known = rows.join(f.broadcast(origins), "partition_id").where(f.col("offset") < f.col("held_from"))
    return known.select(
        "partition",
        "source",
        f.col("offset").alias("position"),
        "transaction_id",
        "trace_id",
        "type",
        "headers",
        "producer_sub",
        f.unix_micros("timestamp").alias("timestamp"),
        "value",
    )


def run(spark: SparkSession, job: Restore, tell: Tell = keep_quiet) -> Summary:
    """Restore what is missing; nothing is written before every file was found whole."""
    folder = Path(job.folder)
    manifest = need_manifest(folder, KIND)
    queue = choose_queue(manifest, job.queue, folder)
    entries = [entry for entry in manifest.entries if entry.queue == queue and _is_wanted(entry, job)]
    for entry in entries:
        verify(folder, entry)
    target = Target(anywhere(job.store), job.database, job.target or queue, job.access)
    with open_log(job.store, job.access, create=True) as log:
        began_at = log.now()
        origins = origin_rows(log, manifest, target)
        counts = Tally(0, 0)
        progress = Progress(tell, sum(entry.records for entry in entries))
        for step in in_order(entries, job.records_per_step):
            for tally in _restore_step(spark, folder, step, origins, log, target, progress):
                counts = Tally(counts.appended + tally.appended, counts.before + tally.before)
        return _summary(entries, counts, target, rate(counts.appended, began_at, log.now()))


def _restore_step(
    spark: SparkSession,
    folder: Path,
    step: Sequence[Entry],
    origins: Sequence[tuple[int, str, int]],
    log: Log,
    target: Target,
    progress: Progress,
) -> Iterator[Tally]:
    """Files as they stand when that is the order of the log, which is quicker; else Spark sorts them."""
    paths = [folder / entry.path for entry in step]
    if in_log_order(paths):
        known = {number: Origin(source, held_from) for number, source, held_from in origins}
        for entry, path in zip(step, paths, strict=True):
            with progress.step(spark.sparkContext, entry.records):
                yield load_file(log, path, known, target)
        return
    with progress.step(spark.sparkContext, sum(entry.records for entry in step)):
        lookup = spark.createDataFrame(list(origins), "partition_id BIGINT, source STRING, held_from BIGINT")
        yield load_rows(place_rows(read_entries(spark, folder, step), lookup), target, gaps=None)


def choose_queue(manifest: Manifest, wanted: str, folder: Path) -> str:
    """The queue of the archive that is meant: the only one needs no name."""
    there = sorted({*manifest.queues, *(entry.queue for entry in manifest.entries)})
    if not wanted and len(there) == 1:
        return there[0]
    if not wanted:
        raise SourceUnfit(f"{folder} has several queues: say which with --queue; there are {', '.join(there)}")
    if wanted not in there:
        raise QueueMissing(f"{folder} has no queue {wanted!r}; there are {', '.join(there) or 'none'}")
    return wanted


def origin_rows(log: Log, manifest: Manifest, target: Target) -> list[tuple[int, str, int]]:
    """Number, name as a source, and first offset that the target itself holds, of every partition of the archive."""
    held = {
        (int(status.partition_id), int(status.created_at)): int(status.start)
        for status in partitions_of(log, target.database, target.queue)
    }
    return [
        (number, f"log:{number}.{created_at}", held.get((number, created_at), NOWHERE))
        for number, created_at in manifest.partitions.items()
    ]


def in_order(entries: Sequence[Entry], records_max: int) -> list[list[Entry]]:
    """Files as steps, so that what was written first comes first: files whose LSNs overlap stay together."""
    steps: list[list[Entry]] = []
    last = records = 0
    for entry in sorted(entries, key=lambda entry: entry.first_lsn):
        if not steps or (entry.first_lsn > last and records + entry.records > records_max):
            steps.append([])
            records = 0
        steps[-1].append(entry)
        records += entry.records
        last = max(last, entry.last_lsn)
    return steps


def _is_wanted(entry: Entry, job: Restore) -> bool:
    return (not job.since or entry.day >= job.since) and (not job.until or entry.day <= job.until)


def _summary(entries: Sequence[Entry], counts: Tally, target: Target, speed: int) -> Summary:
    archived = sum(entry.records for entry in entries)
    held = archived - counts.appended - counts.before
    if held < 0:
        raise FlowError(f"{-held:,} records more than the manifest names came from the archive")
    facts: dict[str, Any] = {
        "queue": target.queue,
        "in the archive": archived,
        "restored": counts.appended,
        "restored before": counts.before,
        "still in the queue": held,
        "messages a second": speed,
    }
    return Summary(flow="restore", facts=facts)
