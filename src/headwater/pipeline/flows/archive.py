"""archive: the log as Parquet, by queue and day, with a manifest of LSN ranges and checksums.

    log ─ write_step ─► staged files ─► their places ─► manifest ─► mark in the store

A step is done when the manifest names its files; then the store is told, so that a queue with `archive_required` may
drop them. A run that dies is taken up by the next one where the manifest stands.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.errors import ArchiveDamaged, FlowError, SourceUnfit
from headwater.log.flow_operations import MarkArchived
from headwater.model.names import Lsn
from headwater.pipeline.archiving import SUFFIX, write_step
from headwater.pipeline.belonging import check_owner, made_again, with_end, with_numbers
from headwater.pipeline.ends import (
    RECORDS_PER_STEP,
    Step,
    check_gone,
    check_plain,
    choose_queues,
    partitions_of,
    plan,
)
from headwater.pipeline.files import glob_free, plain_place, plain_times
from headwater.pipeline.handle import Handle
from headwater.pipeline.manifest import (
    STAGING,
    Entry,
    Manifest,
    begin_manifest,
    digest,
    holding,
    new_manifest,
    put_in_place,
    remove_strangers,
    resume_manifest,
    verify,
    write_manifest,
)
from headwater.pipeline.options import anywhere
from headwater.pipeline.progress import Progress, Tell, keep_quiet, rate
from headwater.pipeline.ranges import Place
from headwater.pipeline.summary import Summary

KIND = "archive"
FILES = (f"queue=*/day=*/lsn-*{SUFFIX}",)
SMALL_BYTES = 16 * 1_048_576
COMPACTED_BYTES = 256 * 1_048_576


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues go into which folder; no queues means all of them."""

    store: str
    database: str = "main"
    folder: str
    queues: tuple[str, ...] = ()
    compact: bool = True
    decrypt: bool = False
    records_per_step: int = RECORDS_PER_STEP


def run(spark: SparkSession, job: Archive, tell: Tell = keep_quiet) -> Summary:
    """Archive what is new in the queues; running it again goes on from there."""
    folder = Path(job.folder)
    with Handle(job.store) as log, holding(folder):
        began_at = log.now()
        queues = choose_queues(log, job.database, job.queues)
        check_plain(log, job.database, queues, job.decrypt)
        manifest = before = _resume(folder, log, job, queues)
        marks = {queue: manifest.queues.get(queue, 0) for queue in queues}
        steps = plan(log, job.database, marks, manifest.ends, job.records_per_step)
        manifest = with_numbers(_know_partitions(folder, log, manifest, queues), log, queues)
        progress = Progress(tell, sum(step.records for step in steps))
        for step in steps:
            with progress.step(spark.sparkContext, step.records):
                manifest = _archive_step(spark, job, step, manifest, marks, log)
            _mark(log, manifest, queues)
        if not steps:
            # Also an archive of nothing is one.
            manifest = msgspec.structs.replace(manifest, queues={**manifest.queues, **marks})
            write_manifest(folder, manifest)
        if job.compact:
            manifest = compact(spark, folder, manifest)
        return _summary(log, before, manifest, began_at)


def _resume(folder: Path, log: Handle, job: Archive, queues: Sequence[str]) -> Manifest:
    """Where the last run stands, after what it left half-done is cleared away."""
    known = resume_manifest(folder, KIND, FILES)
    manifest = known or new_manifest(KIND, log.location, job.database)
    if manifest.kind != KIND:
        raise SourceUnfit(f"{folder} holds something else ({manifest.kind}); choose another folder")
    # A queue that was made again goes on: its partitions are others, and in the files each stands under its number.
    manifest = check_owner(folder, manifest, log, job.database, queues=())
    manifest = _know_partitions(folder, log, manifest, queues)
    if known is None:
        begin_manifest(folder, manifest, FILES)
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    remove_strangers(folder, manifest, FILES)
    # A run may have died after it wrote the manifest and before it told the store.
    _mark(log, manifest, [queue for queue in queues if queue in manifest.queues])
    return manifest


def _know_partitions(folder: Path, log: Handle, manifest: Manifest, queues: Sequence[str]) -> Manifest:
    """The manifest with the partitions there are now; those of another store are refused before anything is changed."""
    partitions = dict(manifest.partitions)
    for queue in queues:
        for status in partitions_of(log, manifest.database, queue):
            if partitions.setdefault(status.partition_id, status.created_at) != status.created_at:
                raise SourceUnfit(f"{folder} is the archive of another store ({manifest.store}); choose another folder")
    return msgspec.structs.replace(manifest, partitions=partitions)


def _mark(log: Handle, manifest: Manifest, queues: Sequence[str]) -> None:
    """Tell the store what is safe here."""
    marks = [MarkArchived(database=manifest.database, queue=queue, lsn=Lsn(manifest.queues[queue])) for queue in queues]
    if marks:
        log.commit(marks)


def _archive_step(
    spark: SparkSession, job: Archive, step: Step, manifest: Manifest, marks: dict[str, int], log: Handle
) -> Manifest:
    try:
        return _take_step(spark, job, step, manifest, marks, log)
    except Exception:
        # Readers of the folder see what the manifest names, and no half of a step.
        remove_strangers(Path(job.folder), manifest, FILES)
        raise


def _take_step(
    spark: SparkSession, job: Archive, step: Step, manifest: Manifest, marks: dict[str, int], log: Handle
) -> Manifest:
    folder = Path(job.folder)
    staged = folder / STAGING / f"{step.through}"
    entries: list[Entry] = []
    if step.records:
        write_step(spark, Place(anywhere(job.store), job.database), marks, step, staged)
        entries = take_in(folder, staged)
    short = check_gone(log, job.database, marks, step, sum(entry.records for entry in entries))
    lost = dict(manifest.lost)
    for queue, count in step.lost.items():
        lost[queue] = lost.get(queue, 0) + count
    if short:
        # Retention was faster than this step: told with the rest of what is lost.
        name = next(iter(marks)) if len(marks) == 1 else "*"
        lost[name] = lost.get(name, 0) + short
    after = msgspec.structs.replace(
        manifest,
        entries=(*manifest.entries, *entries),
        queues={**manifest.queues, **{queue: max(marks[queue], step.through) for queue in marks}},
        ends={**manifest.ends, **step.ends},
        lost=lost,
    )
    after = with_end(after, log, step.through)
    write_manifest(folder, after)
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    return after


def write_parquet(rows: DataFrame, staged: Path) -> None:
    """Write rows with `queue` and `day` below a folder that nobody looks into."""
    writer = rows.write.mode("overwrite").option("compression", "zstd").partitionBy("queue", "day")
    with plain_times(rows.sparkSession):
        writer.parquet(plain_place(staged))


def take_in(folder: Path, staged: Path) -> list[Entry]:
    """Move staged files to their places; what the manifest will say of each."""
    return [_take_in(folder, path) for path in sorted(staged.glob(f"queue=*/day=*/*{SUFFIX}"))]


def _take_in(folder: Path, path: Path) -> Entry:
    queue, day = unquote(path.parent.parent.name.removeprefix("queue=")), path.parent.name.removeprefix("day=")
    records, first, last = _footer(path)
    checksum, size = digest(path), path.stat().st_size
    relative = f"queue={quote(queue, safe='')}/day={day}/lsn-{first}-{last}-{checksum[:12]}{SUFFIX}"
    put_in_place(path, folder, relative)
    return Entry(relative, queue, day, first, last, records, size, checksum)


def _footer(path: Path) -> tuple[int, int, int]:
    """How many records a file has, and its first and last LSN."""
    from pyarrow import ArrowInvalid, parquet

    try:
        about = parquet.read_metadata(path)
        place = about.schema.names.index("lsn")
        groups = [about.row_group(number).column(place).statistics for number in range(about.num_row_groups)]
    except (ArrowInvalid, OSError, ValueError) as error:
        raise ArchiveDamaged(f"{path} cannot be read back: {error}") from error
    return about.num_rows, min(group.min for group in groups), max(group.max for group in groups)


# ── compaction ──


def compact(spark: SparkSession, folder: Path, manifest: Manifest) -> Manifest:
    """Small files of the same queue and day as one; the old ones go when the manifest no longer names them."""
    for small in small_groups(manifest.entries):
        manifest = _merge(spark, folder, manifest, small)
    return manifest


def small_groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Files that should be one: several small ones of the same queue and day, as long as the sum stays handy."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.first_lsn, entry.last_lsn)):
        members = groups.setdefault((entry.queue, entry.day), [])
        if entry.bytes < SMALL_BYTES and sum(member.bytes for member in members) + entry.bytes <= COMPACTED_BYTES:
            members.append(entry)
    return [members for members in groups.values() if len(members) > 1]


def _merge(spark: SparkSession, folder: Path, manifest: Manifest, small: list[Entry]) -> Manifest:
    staged = folder / STAGING / "compacted"
    for entry in small:
        verify(folder, entry)
    rows = read_entries(spark, folder, small).withColumns({"queue": f.lit(small[0].queue), "day": f.lit(small[0].day)})
    write_parquet(rows.coalesce(1).sortWithinPartitions("lsn", "offset"), staged)
    merged = take_in(folder, staged)
    if sum(entry.records for entry in merged) != sum(entry.records for entry in small):
        raise FlowError(f"compacting queue {small[0].queue!r}, day {small[0].day} did not keep every record")
    kept = [entry for entry in manifest.entries if entry not in small]
    manifest = msgspec.structs.replace(manifest, entries=(*kept, *merged))
    write_manifest(folder, manifest)
    remove_strangers(folder, manifest, FILES)
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    return manifest


PARQUET_SCHEMA = (
    "partition_id BIGINT, partition STRING, offset BIGINT, lsn BIGINT, written_at TIMESTAMP, timestamp TIMESTAMP, "
    "transaction_id STRING, trace_id STRING, type STRING, headers MAP<STRING, STRING>, producer_sub STRING, "
    "value STRING"
)


def read_entries(spark: SparkSession, folder: Path, entries: Sequence[Entry]) -> DataFrame:
    """The rows of these files."""
    paths = [glob_free((folder / entry.path).absolute()) for entry in entries]
    return spark.read.schema(PARQUET_SCHEMA).parquet(*paths)


def _summary(log: Handle, before: Manifest, after: Manifest, began_at: int) -> Summary:
    old = {entry.path for entry in before.entries}
    records = sum(entry.records for entry in after.entries) - sum(entry.records for entry in before.entries)
    lost = sum(after.lost.values()) - sum(before.lost.values())
    facts: dict[str, Any] = {
        "archived": records,
        "lost to retention before": lost,
        "files written": len([entry for entry in after.entries if entry.path not in old]),
        "files": len(after.entries),
        "bytes": sum(entry.bytes for entry in after.entries),
        "messages in the archive": sum(entry.records for entry in after.entries),
        "through LSN": max(after.queues.values(), default=0),
        "messages a second": rate(records, began_at, log.now()),
    }
    if again := made_again(before, after):
        facts["made again since"] = ", ".join(again)
    return Summary(flow=KIND, facts=facts)
