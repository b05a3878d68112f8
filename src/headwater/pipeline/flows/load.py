"""load: files into a queue, every row checked, those that may not pass set aside with a reason.

    file ─ read_file ─► judge_rows ─► address ─ load_rows ─► queue
                            └──────────────────────────────► quarantine

A file is known by its content and a row by its place in it, so loading a file twice, or again after a run that died,
adds what is missing and nothing else. Always: rows in = rows out + quarantined.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from headwater.client.access import Access
from headwater.config import load_config
from headwater.errors import FlowError, SourceUnfit
from headwater.model.names import PARTITION_DEFAULT, check_name
from headwater.pipeline.files import (
    PLAIN_CSV,
    CsvStyle,
    check_style,
    csv_lines,
    cut_alike,
    find_files,
    format_of,
    read_file,
)
from headwater.pipeline.judging import Rules, judge_rows, parse_schema
from headwater.pipeline.loading import Target, load_rows
from headwater.pipeline.manifest import digest, replace_file
from headwater.pipeline.options import anywhere
from headwater.pipeline.progress import Progress, Tell, keep_quiet, rate
from headwater.pipeline.served import open_log
from headwater.pipeline.summary import Summary
from headwater.services.records import check_target

NAME_PATTERN = r"^[A-Za-z0-9._:/-]{1,256}$"
TEXT_LENGTH_MAX = 256
QUARANTINE_MAX = 10_000
SAMPLE_ROWS = 5
# How much of a text a dry run shows.
SHOWN_LENGTH = 1_000


class LoadFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Which files go into which queue. `partition_field` and `id_field` are fields of the payloads.

    A `dry_run` says what would become of the rows, and shows the first `sample` of them; nothing is written.
    """

    store: str
    access: Access = Access()
    database: str = "main"
    queue: str
    files: tuple[str, ...]
    format: str = ""
    csv: CsvStyle = PLAIN_CSV
    schema: str = ""
    strict: bool = False
    partition: str = PARTITION_DEFAULT
    partition_field: str = ""
    id_field: str = ""
    type: str = ""
    label: str = ""
    quarantine: str = "quarantine"
    quarantine_max: int = QUARANTINE_MAX
    dry_run: bool = False
    sample: int = SAMPLE_ROWS


class Counts(NamedTuple):
    """What became of the rows of one file."""

    read: int
    appended: int
    before: int
    quarantined: int


def address(rows: DataFrame, job: LoadFiles) -> DataFrame:
    """Judged rows with the partition and the id that their payloads name; one that names none may not pass."""
    partition, no_partition = _field(job.partition_field, NAME_PATTERN, "is no name of a partition")
    identity, no_identity = _field(job.id_field, rf"^(?s).{{1,{TEXT_LENGTH_MAX}}}$", "is no id")
    return rows.withColumns(
        {
            "partition": f.lit(job.partition) if partition is None else partition,
            "transaction_id": f.lit("") if identity is None else identity,
            "reason": f.coalesce("reason", no_partition, no_identity),
        }
    )


def _field(name: str, pattern: str, complaint: str) -> tuple[Column | None, Column]:
    """A field of the payload as text, and why it cannot be used."""
    if not name:
        return None, f.lit(None).cast("string")
    text = f.get_json_object("value", f"$['{name}']")
    complained = f.concat(
        f.lit(f"{name}: "), f.coalesce(f.substring(text, 1, 80), f.lit("null")), f.lit(f" {complaint}")
    )
    return text, f.when(text.isNull() | ~text.rlike(pattern), complained)


def run(spark: SparkSession, job: LoadFiles, tell: Tell = keep_quiet) -> Summary:
    """Load files one after the other; each is whole in the queue before the next begins."""
    _check(job)
    files = find_files(job.files)
    formats = [format_of(path, job.format) for path in files]
    _check_csv(spark, job, files, formats)
    if job.dry_run:
        return preview(spark, job, list(zip(files, formats, strict=True)), tell)
    with open_log(job.store, job.access, create=True) as log:
        began_at = log.now()
        bytes_max = log.config.record_bytes_max
        counts = []
        progress = Progress(tell, sum(path.stat().st_size for path in files))
        for path, kind in zip(files, formats, strict=True):
            with progress.step(spark.sparkContext, path.stat().st_size), cut_alike(spark):
                counts.append(_load_file(spark, job, path, kind, bytes_max))
        total = Counts(*map(sum, zip(*counts, strict=True)))
        return _summary(job, len(files), total, rate(total.appended, began_at, log.now()))


def _check(job: LoadFiles) -> None:
    check_name("partition", job.partition)
    check_target(job.queue, job.partition)
    for field in (job.partition_field, job.id_field):
        if "'" in field or "\\" in field:
            raise SourceUnfit(f"a field of payloads has no quotes in its name; got {field!r}")


def _check_csv(spark: SparkSession, job: LoadFiles, files: Sequence[Path], formats: Sequence[str]) -> None:
    if job.csv == PLAIN_CSV:
        return
    for path, kind in zip(files, formats, strict=True):
        if kind != "csv":
            raise SourceUnfit(
                f"{path} is {kind}: encoding, null markers, delimiter, quote, header and formats are of CSV files"
            )
    check_style(spark, job.csv, _schema(job))


def _schema(job: LoadFiles) -> StructType | None:
    return parse_schema(job.schema) if job.schema else None


def _judged(spark: SparkSession, job: LoadFiles, path: Path, kind: str, bytes_max: int) -> DataFrame:
    """The rows of a file, each with where it would go or why it may not."""
    schema = _schema(job)
    judged = judge_rows(read_file(spark, path, kind, schema, job.csv), Rules(schema, bytes_max, job.strict))
    return address(judged, job)


def source_of(job: LoadFiles, checksum: str) -> str:
    """What a file is known by: its content, where its rows begin when that was said, and the label."""
    return ":".join(part for part in ("file", checksum, job.csv.cuts, job.label) if part)


def _load_file(spark: SparkSession, job: LoadFiles, path: Path, kind: str, bytes_max: int) -> Counts:
    rows = _judged(spark, job, path, kind, bytes_max).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        checksum = digest(path)
        read, bad = _count(rows)
        gaps = _set_aside(_bad_rows(spark, rows, job, path, kind, job.quarantine_max + 1), job, path, checksum, bad)
        source = source_of(job, checksum)
        tally = load_rows(
            _to_load(rows, source, job.type), Target(anywhere(job.store), job.database, job.queue, job.access), gaps
        )
    finally:
        rows.unpersist()
    found = Counts(read, tally.appended, tally.before, bad)
    if read != tally.appended + tally.before + bad:
        raise FlowError(f"{path}: {read:,} rows in, {tally.appended + tally.before:,} out and {bad:,} quarantined")
    return found


# ── a dry run ──


def preview(spark: SparkSession, job: LoadFiles, files: Sequence[tuple[Path, str]], tell: Tell = keep_quiet) -> Summary:
    """What would become of every row, and the first of them as they would be pushed or set aside. Writes nothing."""
    bytes_max = load_config().record_bytes_max
    read = bad = 0
    pushed: list[dict[str, Any]] = []
    aside: list[dict[str, Any]] = []
    progress = Progress(tell, sum(path.stat().st_size for path, _ in files))
    for path, kind in files:
        with progress.step(spark.sparkContext, path.stat().st_size), cut_alike(spark):
            rows = _judged(spark, job, path, kind, bytes_max).persist(StorageLevel.MEMORY_AND_DISK)
            try:
                counted = _count(rows)
                pushed += _first_good(rows, job.sample - len(pushed))
                aside += map(cut_texts, _bad_rows(spark, rows, job, path, kind, job.sample - len(aside)))
            finally:
                rows.unpersist()
            read, bad = read + counted[0], bad + counted[1]
    facts: dict[str, Any] = {
        "queue": job.queue,
        "files": len(files),
        "rows in": read,
        "would be pushed": read - bad,
        "would be set aside": bad,
        "first rows": pushed,
        "first set aside": aside,
    }
    return Summary(flow="load (dry run)", facts=facts, quarantined=bad)


def _first_good(rows: DataFrame, count: int) -> list[dict[str, Any]]:
    good = rows.where(f.col("reason").isNull()).orderBy("position").limit(max(count, 0))
    found = good.select("partition", "transaction_id", "value").collect()
    return [
        {"partition": row[0], **({"transaction_id": row[1]} if row[1] else {}), "payload": _shown(row[2])}
        for row in found
    ]


def _shown(value: str) -> Any:
    return cut_texts(msgspec.json.decode(value))


def cut_texts(value: Any) -> Any:
    """A value as it is shown: of long texts in it the beginning.

    >>> cut_texts({"note": "x" * 3000})["note"][-22:]
    'xx… (3,000 characters)'
    """
    if isinstance(value, str) and len(value) > SHOWN_LENGTH:
        return f"{value[:SHOWN_LENGTH]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        return {name: cut_texts(inner) for name, inner in value.items()}
    return [cut_texts(inner) for inner in value] if isinstance(value, list) else value


# ── both ends ──


def _count(rows: DataFrame) -> tuple[int, int]:
    """Rows, and those of them that may not pass."""
    found = rows.agg(f.count("*"), f.count("reason")).first()
    return (0, 0) if found is None else (int(found[0]), int(found[1]))


def _bad_rows(
    spark: SparkSession, rows: DataFrame, job: LoadFiles, path: Path, kind: str, count: int
) -> list[dict[str, Any]]:
    """The first rows that may not pass, as they are told: with their own text where the file has one."""
    unfit = rows.where(f.col("reason").isNotNull()).select("position", "reason", "value").orderBy("position")
    bad = unfit.limit(max(count, 0)).collect()
    lines = {}
    if bad and kind == "csv":
        lines = csv_lines(spark, path, _schema(job), job.csv, [row[0] for row in bad])
    return [
        {"file": str(path), "position": place, "reason": reason, "value": lines.get(place, value)}
        for place, reason, value in bad
    ]


def _to_load(rows: DataFrame, source: str, kind: str) -> DataFrame:
    nothing = f.lit("")
    return rows.where(f.col("reason").isNull()).select(
        "partition",
        f.lit(source).alias("source"),
        "position",
        "transaction_id",
        nothing.alias("trace_id"),
        f.lit(kind).alias("type"),
        f.lit(None).cast("map<string,string>").alias("headers"),
        nothing.alias("producer_sub"),
        f.lit(0).cast("bigint").alias("timestamp"),
        "value",
    )


def _set_aside(kept: list[dict[str, Any]], job: LoadFiles, path: Path, checksum: str, bad: int) -> list[int]:
    """Write the rows that may not pass to a file of their own; their positions."""
    if not bad:
        return []
    lines = [msgspec.json.encode(row) for row in kept]
    folder = Path(job.quarantine)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceUnfit(f"the quarantine {folder} cannot be made: {error.strerror}") from error
    aside = folder / f"{path.name}-{checksum[:12]}.ndjson"
    replace_file(aside, b"\n".join([*lines, b""]))
    if bad > job.quarantine_max:
        raise SourceUnfit(
            f"{path}: {bad:,} rows may not pass, and at most {job.quarantine_max:,} are set aside: nothing of it was "
            f"loaded; {aside} has the first of them: {kept[0]['reason']}"
        )
    return [int(row["position"]) for row in kept]


def _summary(job: LoadFiles, files: int, counts: Counts, speed: int) -> Summary:
    facts: dict[str, Any] = {
        "queue": job.queue,
        "files": files,
        "rows in": counts.read,
        "rows out": counts.appended + counts.before,
        "quarantined": counts.quarantined,
        "loaded": counts.appended,
        "loaded before": counts.before,
        "messages a second": speed,
    }
    if counts.quarantined:
        facts["quarantine"] = job.quarantine
    return Summary(flow="load", facts=facts, quarantined=counts.quarantined)
