"""restore: an archive back into its queues, or one under another name, order, ids and times kept.

    manifest ─► every file checked ─► queue by queue, in LSN order ─ load_file, or load_rows where files overlap ─► log

A record is known by where it came from: its first partition and its offset there. A partition remembers which of these
it has, so running a restore twice, or from two archives of the same log, adds nothing. What the queue itself still
holds is left alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.client.access import Access
from headwater.errors import FlowError, QueueMissing, SourceUnfit
from headwater.model.names import PARTITION_DEFAULT, Lsn
from headwater.pipeline.ends import RECORDS_PER_STEP, partitions_of
from headwater.pipeline.flows.archive import KIND, read_entries
from headwater.pipeline.loading import Tally, Target, load_rows
from headwater.pipeline.manifest import Entry, Manifest, need_manifest, reading, verify
from headwater.pipeline.options import anywhere
from headwater.pipeline.progress import Progress, Tell, keep_quiet, rate
from headwater.pipeline.restoring import NOWHERE, Origin, common_ends, in_log_order, load_file
from headwater.pipeline.served import Log, open_log
from headwater.pipeline.summary import Summary
from headwater.services.records import check_target, is_apart
from headwater.stores.log_reader import SegmentOutline

SEGMENTS_PER_LOOK = 10_000


class Restore(msgspec.Struct, frozen=True, kw_only=True):
    """Which queue of which archive goes where: no name stands for all of them, each under its own.

    Days (`2026-11-15`) are those the records were written on. A `dry_run` says what would be restored where, and
    checks every file; nothing is written.
    """

    store: str
    access: Access = Access()
    database: str = "main"
    folder: str
    queue: str = ""
    target: str = ""
    since: str = ""
    until: str = ""
    dry_run: bool = False
    records_per_step: int = RECORDS_PER_STEP


def place_rows(rows: DataFrame, origins: DataFrame) -> DataFrame:
    """Archived rows as rows to load: each with its source and position, less those that the queue still holds.

    `origins` says of each partition how its source is called, and which of its offsets the queue holds itself.
    """
    known = rows.join(f.broadcast(origins), "partition_id")
    known = known.where((f.col("offset") < f.col("held_from")) | (f.col("offset") >= f.col("held_until")))
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
    if job.since and job.until and job.since > job.until:
        raise SourceUnfit(
            f"the first day, {job.since}, lies behind the last one, {job.until}: nothing would be restored"
        )
    folder = Path(job.folder)
    with reading(folder):
        return _restore(spark, job, folder, tell)


def _restore(spark: SparkSession, job: Restore, folder: Path, tell: Tell) -> Summary:
    manifest = need_manifest(folder, KIND)
    queues, apart = set_apart(choose_queues(manifest, job, folder), job)
    wanted = {
        queue: [entry for entry in manifest.entries if entry.queue == queue and _is_wanted(entry, job)]
        for queue in queues
    }
    for entry in chain.from_iterable(wanted.values()):
        verify(folder, entry)
    if job.dry_run:
        return _preview(job, wanted, apart)
    with open_log(job.store, job.access, create=True) as log:
        began_at = log.now()
        counts = {}
        progress = Progress(tell, sum(entry.records for entries in wanted.values() for entry in entries))
        for queue, entries in wanted.items():
            target = Target(anywhere(job.store), job.database, job.target or queue, job.access)
            origins = find_origins(log, manifest, target, [folder / entry.path for entry in entries])
            tallies = [
                tally
                for step in in_order(entries, job.records_per_step)
                for tally in _restore_step(spark, folder, step, origins, log, target, progress)
            ]
            counts[queue] = Tally(sum(tally.appended for tally in tallies), sum(tally.before for tally in tallies))
        speed = rate(sum(tally.appended for tally in counts.values()), began_at, log.now())
        return _summary(job, wanted, counts, speed, apart)


def _restore_step(
    spark: SparkSession,
    folder: Path,
    step: Sequence[Entry],
    origins: Mapping[int, Origin],
    log: Log,
    target: Target,
    progress: Progress,
) -> Iterator[Tally]:
    """Files as they stand when that is the order of the log, which is quicker; else Spark sorts them."""
    paths = [folder / entry.path for entry in step]
    if in_log_order(paths):
        for entry, path in zip(step, paths, strict=True):
            with progress.step(spark.sparkContext, entry.records):
                yield load_file(log, path, origins, target)
        return
    with progress.step(spark.sparkContext, sum(entry.records for entry in step)):
        rows = [(number, *origin) for number, origin in origins.items()]
        lookup = spark.createDataFrame(rows, "partition_id BIGINT, source STRING, held_from BIGINT, held_until BIGINT")
        yield load_rows(place_rows(read_entries(spark, folder, step), lookup), target, gaps=None)


def choose_queues(manifest: Manifest, job: Restore, folder: Path) -> list[str]:
    """The queues of the archive that are meant: the one that is named, or all. Only one can have another name."""
    there = sorted({*manifest.queues, *(entry.queue for entry in manifest.entries)})
    if job.queue and job.queue not in there:
        raise QueueMissing(f"{folder} has no queue {job.queue!r}; there are {', '.join(there) or 'none'}")
    if job.target and not job.queue and len(there) > 1:
        raise SourceUnfit(
            f"{folder} has several queues, and only one can go to {job.target}: say which with --queue; there are "
            f"{', '.join(there)}"
        )
    return [job.queue] if job.queue else there


def set_apart(queues: Sequence[str], job: Restore) -> tuple[list[str], list[str]]:
    """The queues that may be pushed to, and those that are left out: Headwater's own, and rooms.

    What is told there was also done, to documents, jobs or members: told once more, it would not be. One that is named
    is refused, unless it goes to a queue of another name.
    """
    if job.queue or job.target:
        for queue in queues:
            check_target(job.target or queue, PARTITION_DEFAULT)
        return list(queues), []
    apart = [queue for queue in queues if is_apart(queue)]
    return [queue for queue in queues if queue not in apart], apart


def find_origins(log: Log, manifest: Manifest, target: Target, paths: Sequence[Path]) -> dict[int, Origin]:
    """By number, what every partition of the archive is called as a source, and what the target itself holds of it.

    The target holds what it has not dropped of a partition of its own, if it is the store that was archived. One that
    was put back from a copy since then holds less.
    """
    starts = {
        (int(status.partition_id), int(status.created_at)): int(status.start)
        for status in partitions_of(log, target.database, target.queue)
    }
    held = {
        number: starts[number, made_at]
        for number, made_at in manifest.partitions.items()
        if (number, made_at) in starts
    }
    ends: Mapping[int, int] = dict.fromkeys(held, NOWHERE)
    if held and not (manifest.seen and log.ask(log.reader().remembers(manifest.seen))):
        ends = common_ends(_outlines(log, manifest, target), paths)
    return {
        number: Origin(f"log:{number}.{made_at}", held.get(number, NOWHERE), ends.get(number, 0))
        for number, made_at in manifest.partitions.items()
    }


def _outlines(log: Log, manifest: Manifest, target: Target) -> Iterator[SegmentOutline]:
    """The segments of the target as far as the archive goes."""
    database, after = log.tenant(target.database), Lsn(0)
    through = Lsn(max(manifest.queues.values(), default=0))
    queues = (target.queue,)
    while found := log.ask(log.reader().outline(after, through, SEGMENTS_PER_LOOK, database, queues)):
        yield from found
        after = found[-1].lsn


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


def _archived(entries: Sequence[Entry]) -> int:
    return sum(entry.records for entry in entries)


def _preview(job: Restore, wanted: Mapping[str, Sequence[Entry]], apart: Sequence[str]) -> Summary:
    """What a restore would read, and where it would go."""
    shown = [
        {
            "queue": queue,
            "as": job.target or queue,
            "messages": _archived(entries),
            "files": len(entries),
            **({"first day": min(days), "last day": max(days)} if (days := [entry.day for entry in entries]) else {}),
        }
        for queue, entries in wanted.items()
    ]
    total = sum(map(_archived, wanted.values()))
    facts = {"in the archive": total, "would be restored": shown, **_left_out(apart)}
    return Summary(flow="restore (dry run)", facts=facts)


def _left_out(apart: Sequence[str]) -> dict[str, str]:
    told = "only Headwater writes there; --queue and --as restore one under another name"
    return {"left out": f"{', '.join(apart)}: {told}"} if apart else {}


def _summary(
    job: Restore,
    wanted: Mapping[str, Sequence[Entry]],
    counts: Mapping[str, Tally],
    speed: int,
    apart: Sequence[str],
) -> Summary:
    for queue, entries in wanted.items():
        more = counts[queue].appended + counts[queue].before - _archived(entries)
        if more > 0:
            raise FlowError(f"{more:,} records of {queue} more than the manifest names came from the archive")
    archived = sum(map(_archived, wanted.values()))
    appended = sum(tally.appended for tally in counts.values())
    before = sum(tally.before for tally in counts.values())
    facts: dict[str, Any] = {
        "queue": ", ".join(job.target or queue for queue in wanted),
        "in the archive": archived,
        "restored": appended,
        "restored before": before,
        "still in the queue": archived - appended - before,
        "messages a second": speed,
        **_left_out(apart),
    }
    if len(wanted) > 1:
        facts["queues"] = [
            {"queue": queue, "in the archive": _archived(entries), "restored": counts[queue].appended}
            for queue, entries in wanted.items()
        ]
    return Summary(flow="restore", facts=facts)
