"""Values of every type on every way into a queue and out of it: none is cut, rounded or taken for another."""

import csv
import io
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.pipeline import payload, read, read_stream
from headwater.pipeline.files import CSV_OPTIONS
from headwater.pipeline.flows import archive, export, load, restore
from headwater.pipeline.flows.archive import Archive
from headwater.pipeline.flows.export import Export
from headwater.pipeline.flows.load import LoadFiles
from headwater.pipeline.flows.restore import Restore
from headwater.pipeline.own import as_records
from headwater.pipeline.spelling import TIME_OPTIONS
from tests.pipeline.store import Store

FLAT = (
    "number INT, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, sum DECIMAL(38, 10), whole BIGINT, share DOUBLE, "
    "ratio FLOAT, bytes BINARY, text STRING, yes BOOLEAN"
)
NESTED = (
    f"{FLAT}, inner STRUCT<text: STRING, at: TIMESTAMP, sum: DECIMAL(30, 12)>, shares ARRAY<DOUBLE>, "
    "ats MAP<STRING, TIMESTAMP>"
)


def moment(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


VALUES: dict[str, list[Any]] = {
    "at": [
        moment(2026, 11, 15, 8, 0, 0, 123456),
        moment(2026, 11, 15, 8, 0, 0, 1),
        moment(1969, 12, 31, 23, 59, 59, 999999),
        moment(1883, 1, 1, 12, 0, 0, 654321),
        moment(9999, 12, 31, 23, 59, 59, 999999),
        moment(1970, 1, 1),
    ],
    "local": [datetime(2026, 3, 29, 2, 30, 0, 123456), datetime(1, 1, 1, 0, 0, 0, 1), datetime(1970, 1, 1)],
    "day": [date(2026, 2, 28), date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31)],
    "sum": [
        Decimal("1234567890123456789012345678.0123456789"),
        Decimal("-0.0000000001"),
        Decimal("0.1"),
        Decimal("9007199254740993"),
    ],
    "whole": [2**53 + 1, -(2**63), 2**63 - 1, 0],
    "share": [float("nan"), float("inf"), float("-inf"), 0.1, 5e-324, 1.7976931348623157e308, -0.0, 1e22],
    "ratio": [0.5, float("nan"), float("-inf"), 0.10000000149011612],
    "bytes": [b"", b"\x00\xff\x80", bytes(range(256))],
    "text": ["", " ", "NULL", "NaN", 'say "no", or\n\\n', "\u2028\u00e4\U0001f600", "\t", "null"],
    "yes": [True, False],
}


def make_rows(spark: SparkSession) -> DataFrame:
    """A row for each value, in which every other column is null; one of nulls alone."""
    names = ["number", *VALUES]
    rows = [
        (number, *(value if name == column else None for name in VALUES))
        for number, (column, value) in enumerate((column, value) for column in VALUES for value in VALUES[column])
    ]
    return spark.createDataFrame([*rows, (len(rows), *[None] * len(VALUES))], FLAT).select(*names)


def nest(rows: DataFrame) -> DataFrame:
    """The same with values inside of values."""
    inner = f.when(f.col("number") % 2 == 0, f.struct("text", "at", f.col("sum").cast("decimal(30, 12)").alias("sum")))
    ats = f.create_map(f.lit("at"), "at", f.lit(""), f.lit(None))
    return (
        rows.where("sum IS NULL OR abs(sum) < 1e17")
        .select("*", inner, f.array("share", f.lit(None)), ats)
        .toDF(*rows.columns, "inner", "shares", "ats")
    )


class Ways:
    """Ways into a queue and out of it."""

    def __init__(self, spark: SparkSession, store: Store, folder: Path) -> None:
        self.spark, self.store, self.folder = spark, store, folder

    def write(self, rows: DataFrame, queue: str = "orders") -> None:
        rows.coalesce(1).write.format("headwater").mode("append").options(store=self.store.address, queue=queue).save()

    def load(self, kind: str, schema: str = "", queue: str = "orders") -> None:
        place = self.folder / f"in.{kind}"
        (part,) = (self.folder / "in").glob("part-*")
        shutil.copyfile(part, place)
        job = LoadFiles(store=self.store.address, queue=queue, files=(str(place),), schema=schema)
        summary = load.run(self.spark, job)
        assert summary.quarantined == 0, (self.folder / "quarantine").exists()

    def written(self, rows: DataFrame) -> Any:
        return rows.coalesce(1).write

    # ── in ──

    def by_payload(self, rows: DataFrame, schema: str) -> None:
        self.write(rows.select(payload()))

    def by_own_flow(self, rows: DataFrame, schema: str) -> None:
        self.write(as_records(rows))

    def by_parquet(self, rows: DataFrame, schema: str) -> None:
        self.written(rows).parquet(str(self.folder / "in"))
        self.load("parquet", schema)

    def by_parquet_unchecked(self, rows: DataFrame, schema: str) -> None:
        self.written(rows).parquet(str(self.folder / "in"))
        self.load("parquet")

    def by_ndjson(self, rows: DataFrame, schema: str) -> None:
        self.written(rows).options(**TIME_OPTIONS).json(str(self.folder / "in"))
        self.load("ndjson", schema)

    def by_csv(self, rows: DataFrame, schema: str) -> None:
        texts = rows.withColumn("bytes", f.base64("bytes"))
        self.written(texts).options(**CSV_OPTIONS, **TIME_OPTIONS).csv(str(self.folder / "in"))
        self.load("csv", schema)

    def by_copy(self, rows: DataFrame, schema: str) -> None:
        self.write(rows.select(payload()), "first")
        self.store.sink(self.store.stream(self.spark, "first"), self.folder / "checkpoint", "orders")

    def by_archive(self, rows: DataFrame, schema: str) -> None:
        self.write(rows.select(payload()), "first")
        place = str(self.folder / "archive")
        archive.run(self.spark, Archive(store=self.store.address, folder=place, queues=("first",)))
        restore.run(self.spark, Restore(store=self.store.address, folder=place, queue="first", target="orders"))

    # ── out ──

    def to_read(self, schema: str) -> DataFrame:
        return read(self.spark, store=self.store.address, queue="orders", schema=schema).select("value.*")

    def to_stream(self, schema: str) -> DataFrame:
        name = f"out_{self.folder.name.replace('-', '_')}"
        rows = read_stream(self.spark, store=self.store.address, queue="orders", schema=schema).select("value.*")
        query = rows.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        return self.spark.table(name)

    def to_format(self, schema: str) -> DataFrame:
        return self.store.table(self.spark, schema=schema).select("value.*")

    def to_files(self, kind: str, schema: str) -> str:
        out = str(self.folder / kind)
        job = Export(store=self.store.address, queue="orders", folder=out, format=kind, schema=schema)
        assert export.run(self.spark, job).quarantined == 0
        return out

    def to_parquet(self, schema: str) -> DataFrame:
        return self.spark.read.parquet(self.to_files("parquet", schema))

    def to_ndjson(self, schema: str) -> DataFrame:
        return self.spark.read.schema(schema).json(self.to_files("ndjson", schema))

    def to_csv(self, schema: str) -> DataFrame:
        out = self.to_files("csv", schema)
        lines = [line for path in sorted(Path(out).glob("lsn-*.csv")) for line in read_csv(path)]
        texts = self.spark.createDataFrame(lines, ", ".join(f"`{part.split()[0]}` STRING" for part in _parts(schema)))
        return texts.select(
            *(
                (f.unbase64(name) if kind == "BINARY" else f.col(name).cast(kind)).alias(name)
                for name, kind in (part.split(maxsplit=1) for part in _parts(schema))
            )
        )


def _parts(schema: str) -> list[str]:
    return schema.replace("(38, 10)", "(38;10)").replace(", ", "\n").replace("(38;10)", "(38, 10)").split("\n")


def read_csv(path: Path) -> list[tuple[str | None, ...]]:
    """The rows of a file; Python's own reader does not tell an empty text from none, so one is marked first."""
    marked = path.read_text().replace(',""', ",\x00").replace('\n""', "\n\x00")
    rows = list(csv.reader(io.StringIO(marked, newline="")))[1:]
    return [tuple(None if text == "" else text.replace("\x00", "") for text in row) for row in rows]


def shown(rows: DataFrame) -> list[str]:
    """Rows as texts in which every value is told from every other."""
    return sorted(map(repr, rows.collect()))


IN = {
    "payload": Ways.by_payload,
    "flow of one's own": Ways.by_own_flow,
    "load parquet": Ways.by_parquet,
    "load parquet without a schema": Ways.by_parquet_unchecked,
    "load ndjson": Ways.by_ndjson,
    "copy": Ways.by_copy,
    "archive and restore": Ways.by_archive,
}
OUT = {
    "read": Ways.to_read,
    "read_stream": Ways.to_stream,
    "format": Ways.to_format,
    "export parquet": Ways.to_parquet,
    "export ndjson": Ways.to_ndjson,
}


@pytest.mark.parametrize("way", IN)
def test_values_are_the_same_whichever_way_they_came_in(
    spark: SparkSession, store: Store, tmp_path: Path, way: str
) -> None:
    rows = nest(make_rows(spark))
    IN[way](Ways(spark, store, tmp_path), rows, NESTED)
    assert shown(Ways(spark, store, tmp_path).to_read(NESTED)) == shown(rows)


@pytest.mark.parametrize("way", OUT)
def test_values_are_the_same_whichever_way_they_go_out(
    spark: SparkSession, store: Store, tmp_path: Path, way: str
) -> None:
    ways, rows = Ways(spark, store, tmp_path), nest(make_rows(spark))
    ways.by_payload(rows, NESTED)
    assert shown(OUT[way](ways, NESTED)) == shown(rows)


@pytest.mark.parametrize(
    ("way_in", "way_out", "schema"),
    [
        (Ways.by_csv, Ways.to_read, FLAT),
        (Ways.by_payload, Ways.to_csv, FLAT),
    ],
    ids=["load csv", "export csv"],
)
def test_values_are_the_same_on_ways_that_know_only_plain_types(
    spark: SparkSession,
    store: Store,
    tmp_path: Path,
    way_in: Callable[[Ways, DataFrame, str], None],
    way_out: Callable[[Ways, str], DataFrame],
    schema: str,
) -> None:
    ways = Ways(spark, store, tmp_path)
    rows = make_rows(spark).select(*(part.split()[0] for part in _parts(schema)))
    way_in(ways, rows, schema)
    assert shown(way_out(ways, schema)) == shown(rows)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_values_are_the_same_in_a_session_of_another_zone(
    spark: SparkSession, store: Store, tmp_path: Path, zone: str
) -> None:
    ways, rows = Ways(spark, store, tmp_path), make_rows(spark)
    expected = shown(rows)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        ways.by_payload(rows, FLAT)
        assert shown(ways.to_read(FLAT)) == expected
        assert shown(ways.to_parquet(FLAT)) == expected
        assert shown(ways.to_csv(FLAT)) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
