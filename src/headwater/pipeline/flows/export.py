"""export: a queue as files that other programs read: Parquet, CSV, NDJSON.

    log ─ read_step ─► judge_rows ─► shape ─► staged files ─► their places ─► manifest
                            └──────────────────────────────► quarantine

With a schema, the columns are the payload's fields; without one, a line of NDJSON is a payload, and a row of the others
a message. Running it again adds what is new. Always: messages in = rows out + quarantined.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark_types

from headwater.client.access import Access
from headwater.errors import FlowError, SourceUnfit
from headwater.pipeline.belonging import check_owner, with_end
from headwater.pipeline.ends import RECORDS_PER_STEP, Step, check_gone, check_plain, choose_queues, plan, read_step
from headwater.pipeline.files import CSV_OPTIONS, check_format, plain_place, plain_times
from headwater.pipeline.judging import Rules, judge_rows, parse_schema
from headwater.pipeline.manifest import (
    STAGING,
    Entry,
    Manifest,
    digest,
    holding,
    put_in_place,
    remove_strangers,
    telling_full,
    verify,
    write_manifest,
)
from headwater.pipeline.options import anywhere
from headwater.pipeline.progress import Progress, Tell, keep_quiet, rate
from headwater.pipeline.ranges import Place
from headwater.pipeline.resuming import Purpose, resume_folder
from headwater.pipeline.served import Log, open_log
from headwater.pipeline.spelling import TIME_OPTIONS, json_of
from headwater.pipeline.summary import Summary

KIND = "export"
# Beside the rows, and nobody who reads the folder takes it for some of them.
QUARANTINE = "_quarantine"
OLD_QUARANTINE = "quarantine"
FILES = ("lsn-*", f"{QUARANTINE}/lsn-*", f"{OLD_QUARANTINE}/lsn-*")
UNREAD = "headwater_unread"
# What is in the log was small enough when it was pushed.
BYTES_MAX = 2**62
NESTED = (spark_types.StructType, spark_types.ArrayType, spark_types.MapType, spark_types.VariantType)


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """Which queue goes into which folder, and as what."""

    store: str
    access: Access = Access()
    database: str = "main"
    queue: str
    folder: str
    format: str = "ndjson"
    schema: str = ""
    strict: bool = False
    decrypt: bool = False
    records_per_step: int = RECORDS_PER_STEP


def shape(messages: DataFrame, kind: str, schema: spark_types.StructType | None) -> DataFrame:
    """Messages as the rows of a file."""
    if schema is not None:
        fields = messages.select(f.from_json("value", schema).alias("payload")).select("payload.*")
        if kind == "csv":
            return fields.select(*(_csv_text(field) for field in schema.fields))
        return fields if kind != "ndjson" else fields.select(json_of(f.struct("*"), nulls=True).alias("value"))
    if kind == "ndjson":
        return messages.select("value")
    headers = f.to_json("headers").alias("headers") if kind == "csv" else f.col("headers")
    time = f.timestamp_micros("timestamp").alias("timestamp")
    return messages.select("partition", "offset", "lsn", time, "transaction_id", "type", headers, "value")


def _csv_text(field: spark_types.StructField) -> Column:
    """A column as a CSV file has it: bytes as base64, as in payloads."""
    escaped = field.name.replace("`", "``")
    column = f.col(f"`{escaped}`")
    return f.base64(column).alias(field.name) if isinstance(field.dataType, spark_types.BinaryType) else column


def run(spark: SparkSession, job: Export, tell: Tell = keep_quiet) -> Summary:
    """Export what is new in the queue."""
    kind = check_format(job.format)
    schema = _schema(job, kind)
    folder = Path(job.folder)
    with open_log(job.store, job.access) as log, holding(folder):
        began_at = log.now()
        choose_queues(log, job.database, (job.queue,))
        check_plain(log, job.database, (job.queue,), job.decrypt)
        manifest = before = _resume(folder, log, job)
        marks = {job.queue: manifest.queues.get(job.queue, 0)}
        steps = plan(log, job.database, marks, manifest.ends, job.records_per_step)
        progress = Progress(tell, sum(step.records for step in steps))
        for step in steps:
            with progress.step(spark.sparkContext, step.records):
                manifest = _try_step(spark, job, step, manifest, schema, log)
        return _summary(job, before, manifest, began_at, log.now())


def _schema(job: Export, kind: str) -> spark_types.StructType | None:
    if not job.schema:
        return None
    schema = parse_schema(job.schema)
    nested = [field.name for field in schema.fields if isinstance(field.dataType, NESTED)]
    if kind == "csv" and nested:
        raise SourceUnfit(f"a CSV file cannot hold {', '.join(nested)}: choose parquet or ndjson, or leave it out")
    return schema


def _resume(folder: Path, log: Log, job: Export) -> Manifest:
    about = {"queue": job.queue, "format": job.format, "schema": job.schema}
    known = resume_folder(folder, log, Purpose(KIND, job.database, about, FILES), (job.queue,))
    manifest = _move_quarantine(folder, known)
    if manifest != known:
        remove_strangers(folder, manifest, FILES)
    with suppress(OSError):
        # What is left in it, if anything, is somebody else's.
        (folder / OLD_QUARANTINE).rmdir()
    return manifest


def _move_quarantine(folder: Path, manifest: Manifest) -> Manifest:
    """The manifest with the quarantine where nobody takes it for rows; older versions had it among them.

    Copied first and named next: a run that dies between leaves copies that nobody names.
    """
    if not any(entry.path.startswith(f"{OLD_QUARANTINE}/") for entry in manifest.entries):
        return manifest
    entries = []
    for entry in manifest.entries:
        if entry.path.startswith(f"{OLD_QUARANTINE}/"):
            verify(folder, entry)
            moved = msgspec.structs.replace(entry, path=f"{QUARANTINE}/{Path(entry.path).name}")
            staged = folder / STAGING / Path(entry.path).name
            staged.parent.mkdir(exist_ok=True)
            with telling_full(folder):
                shutil.copyfile(folder / entry.path, staged)
            put_in_place(staged, folder, moved.path)
            entry = moved
        entries.append(entry)
    manifest = msgspec.structs.replace(manifest, entries=tuple(entries))
    write_manifest(folder, manifest)
    return manifest


def _try_step(
    spark: SparkSession, job: Export, step: Step, manifest: Manifest, schema: spark_types.StructType | None, log: Log
) -> Manifest:
    try:
        return _export_step(spark, job, step, manifest, schema, log)
    except Exception:
        # Readers of the folder see what the manifest names, and no half of a step.
        remove_strangers(Path(job.folder), manifest, FILES)
        raise


def _export_step(
    spark: SparkSession, job: Export, step: Step, manifest: Manifest, schema: spark_types.StructType | None, log: Log
) -> Manifest:
    folder = Path(job.folder)
    staged = folder / STAGING / f"{step.through}"
    marks = {job.queue: manifest.queues.get(job.queue, 0)}
    entries: list[Entry] = []
    read = bad = 0
    if step.records:
        messages = read_step(spark, Place(anywhere(job.store), job.database, job.access), marks, step)
        rules = Rules(schema, BYTES_MAX, job.strict)
        judged = _read_by_spark(judge_rows(messages.withColumn("reason", f.lit(None).cast("string")), rules), schema)
        judged.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            read, bad = _write(judged, job, staged, schema)
        finally:
            judged.unpersist()
        entries = [
            *take_parts(folder, staged / "rows", step, job.queue, job.format),
            *take_parts(folder, staged / "bad", step, job.queue, "ndjson", QUARANTINE),
        ]
    out = sum(entry.records for entry in entries if not entry.path.startswith(QUARANTINE))
    if read != out + bad:
        raise FlowError(
            f"{read:,} messages in, {out:,} rows out and {bad:,} quarantined up to LSN {step.through} do not add up. "
            f"Nothing of this step was kept: see that nobody else changes files in {folder}, and run it again"
        )
    # What is missing of it may be so because the queue was deleted meanwhile.
    check_owner(folder, manifest, log, job.database, (job.queue,))
    gone = check_gone(log, job.database, marks, step, read)
    lost = manifest.lost.get(job.queue, 0) + step.lost.get(job.queue, 0) + gone
    after = msgspec.structs.replace(
        manifest,
        entries=(*manifest.entries, *entries),
        queues={job.queue: step.through},
        ends={**manifest.ends, **step.ends},
        lost={job.queue: lost},
        quarantined=manifest.quarantined + bad,
    )
    after = with_end(after, log, step.through)
    write_manifest(folder, after)
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    return after


def _read_by_spark(judged: DataFrame, schema: spark_types.StructType | None) -> DataFrame:
    """Judged messages, less what Spark would make nulls of: a number with more digits than its column has, say."""
    if schema is None:
        return judged
    told = spark_types.StructType([*schema.fields, spark_types.StructField(UNREAD, spark_types.StringType())])
    read = f.from_json("value", told, {"columnNameOfCorruptRecord": UNREAD})
    reason = f.when(read[UNREAD].isNotNull(), f.lit("a value does not fit the type of its column"))
    return judged.withColumn("reason", f.coalesce("reason", reason))


def _write(judged: DataFrame, job: Export, staged: Path, schema: spark_types.StructType | None) -> tuple[int, int]:
    """Write rows and quarantine to where nobody looks; how many messages there were, and how many may not pass."""
    found = judged.agg(f.count("*"), f.count("reason")).first()
    read, bad = (int(found[0]), int(found[1])) if found is not None else (0, 0)
    good = judged.where(f.col("reason").isNull())
    with plain_times(judged.sparkSession):
        _save(shape(good, job.format, schema).write, job.format, staged / "rows")
    if bad:
        about = judged.where(f.col("reason").isNotNull()).select("partition", "offset", "lsn", "reason", "value")
        _save(about.select(f.to_json(f.struct("*")).alias("value")).write, "ndjson", staged / "bad")
    return read, bad


def _save(writer: DataFrameWriter, kind: str, place: Path) -> None:
    address = plain_place(place)
    if kind == "parquet":
        writer.mode("overwrite").option("compression", "zstd").parquet(address)
    elif kind == "csv":
        writer.mode("overwrite").options(**CSV_OPTIONS, **TIME_OPTIONS).csv(address)
    else:
        writer.mode("overwrite").text(address)


def take_parts(folder: Path, staged: Path, step: Step, queue: str, kind: str, below: str = "") -> Iterator[Entry]:
    """Move staged files that hold anything to their places."""
    first = step.spans[0].after + 1
    for number, path in enumerate(sorted(staged.glob("part-*"))):
        records = count_rows(path, kind)
        if records:
            relative = os.path.join(below, f"lsn-{first}-{step.through}-{number}.{kind}")
            size, checksum = path.stat().st_size, digest(path)
            put_in_place(path, folder, relative)
            yield Entry(relative, queue, "", first, step.through, records, size, checksum)


def count_rows(path: Path, kind: str) -> int:
    """How many rows a file has, counted from the file itself."""
    if kind == "parquet":
        from pyarrow import parquet

        return int(parquet.read_metadata(path).num_rows)
    with open(path, "rb") as file:
        return max(sum(1 for _ in _csv_rows(file)) - 1, 0) if kind == "csv" else sum(1 for _ in file)


def _csv_rows(lines: Iterable[bytes]) -> Iterator[int]:
    """The number of each line that ends a row: one within quotes does not. Python's own reader takes no long texts."""
    quotes = 0
    for number, line in enumerate(lines):
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            yield number


def _summary(job: Export, before: Manifest, after: Manifest, began_at: int, ended_at: int) -> Summary:
    def rows(manifest: Manifest) -> int:
        return sum(entry.records for entry in manifest.entries if not entry.path.startswith(QUARANTINE))

    out, bad = rows(after) - rows(before), after.quarantined - before.quarantined
    facts: dict[str, Any] = {
        "queue": job.queue,
        "messages in": out + bad,
        "rows out": out,
        "quarantined": bad,
        "lost to retention before": sum(after.lost.values()) - sum(before.lost.values()),
        "files": len(after.entries) - len(before.entries),
        "bytes": sum(entry.bytes for entry in after.entries) - sum(entry.bytes for entry in before.entries),
        "messages a second": rate(out + bad, began_at, ended_at),
    }
    return Summary(flow=KIND, facts=facts, quarantined=bad)
