"""Payloads that are typed where the log is read are those that Spark would have made of the same text."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import InvalidOption
from headwater.pipeline import read
from headwater.pipeline.reading import split
from headwater.pipeline.typed import Typer, Unspelled, list_column, typer_for
from headwater.pipeline.zones import is_utc, zone_of
from tests.pipeline.store import Store

FOLDER = os.getcwd()
SCHEMA = "n INT, big BIGINT, tiny TINYINT, name STRING, price DOUBLE, paid BOOLEAN, `odd name` STRING, " + (
    "tags ARRAY<STRING>, place STRUCT<city: STRING, at: ARRAY<STRUCT<x: DOUBLE>>>"
)
# Each is pushed on its own and among others, so that it is typed with fitting neighbours and without.
ODD_PAYLOADS = (
    '{"n": 1, "big": 9223372036854775807, "tiny": -128, "name": "ä\\u00e4\\ud83d\\ude00", "price": 0.1, "paid": true}',
    '{"n": 2147483648}',
    '{"n": 1.0}',
    '{"n": 1e2}',
    '{"n": "1"}',
    '{"n": true}',
    '{"big": 9223372036854775808}',
    '{"tiny": 128}',
    '{"name": 7}',
    '{"name": {"a": 1}}',
    '{"name": null, "price": null, "tags": null, "place": null}',
    '{"price": 3, "name": ""}',
    '{"price": -0.0, "name": "a\\"b\\\\c\\n"}',
    '{"price": 12345678901234567890}',
    '{"price": 4.9e-324, "name": "least"}',
    '{"price": "NaN"}',
    '{"price": 1.7976931348623157e308, "paid": false}',
    '{"paid": "true"}',
    '{"name": "first", "name": "second"}',
    '{"odd name": "x", "Name": "other"}',
    '{"tags": []}',
    '{"tags": ["a", null, "b"]}',
    '{"tags": "a"}',
    '{"tags": [1]}',
    '{"place": {}}',
    '{"place": {"city": "Graz", "at": [{"x": 1.5}, null, {}], "more": [[[]]]}}',
    '{"place": []}',
    "{}",
    "null",
    "7",
    '"text"',
    "[]",
    '[{"n": 1}]',
)


@pytest.fixture
def odd(store: Store) -> Store:
    for payload in ODD_PAYLOADS:
        store.push(msgspec.Raw(payload.encode()))
        store.push({"n": 5, "name": "before"}, msgspec.Raw(payload.encode()), {"n": 6}, type="kind")
    return store


def test_odd_payloads_are_what_spark_makes_of_them(spark: SparkSession, odd: Store) -> None:
    ours = read(spark, store=odd.address, queue="orders", schema=SCHEMA, mode="PERMISSIVE")
    segments = spark.read.format("headwater").options(store=odd.address, queue="orders", shape="segments").load()
    assert rows(ours) == rows(split(segments, f"STRUCT<{SCHEMA}>", "PERMISSIVE"))


def test_most_odd_payloads_are_typed_where_they_are_read(spark: SparkSession, odd: Store) -> None:
    rows = {"store": odd.address, "queue": "orders", "shape": "typed", "schema": SCHEMA}
    unfit = spark.read.format("headwater").options(**rows).load().where("unfit IS NOT NULL").count()
    assert unfit == 4 * (len(ODD_PAYLOADS) - 14)
    options = {"store": odd.address, "queue": "orders", "shape": "segments", "schema": SCHEMA}
    found = spark.read.format("headwater").options(**options).load().collect()
    assert all((row.records is None) != (row.payloads is None) for row in found)
    assert sum(row.payloads is not None for row in found) == 2 * 14
    assert {row.envelopes is None for row in found if row["count"] == 1 and row.payloads} == {True}
    assert {row.envelopes[0].type for row in found if row["count"] == 3} == {"kind"}


def rows(table: DataFrame) -> list[Any]:
    found = table.orderBy("lsn", "offset").collect()
    assert len(found) == 4 * len(ODD_PAYLOADS)
    return [str(row.asDict(recursive=True)) for row in found]


def test_a_type_with_several_spellings_is_left_to_spark() -> None:
    for kind in (pa.timestamp("us"), pa.decimal128(10, 2), pa.float32(), pa.binary()):
        assert typer_for(pa.struct([("a", kind)])) is None
        assert typer_for(pa.struct([("a", pa.list_(pa.struct([("b", kind)])))])) is None
    assert typer_for(pa.struct([])) is None
    assert typer_for(pa.string()) is None


def test_a_field_that_must_be_there_is_asked_for() -> None:
    typer = typer_for(pa.struct([pa.field("a", pa.string(), nullable=False), pa.field("b", pa.int64())]))
    assert typer is not None
    assert typer.decode(b'[{"data":{"b":1,"a":"x"}}]') is not None
    assert typer.decode(b'[{"data":{"b":1,"a":"x"}},{"data":null}]') is None
    assert typer.decode(b'[{"data":{"b":1}}]') is None
    assert typer.decode(b'[{"data":{"a":null}}]') is None


def test_columns_are_made_of_decoded_payloads() -> None:
    kind = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    fit = Typer(kind).decode(b'[{"data":{"a":1,"b":[{"c":"x"},null]}},{"data":{"b":[]}},{"data":{}}]')
    assert fit is not None
    assert fit.bare
    assert Typer(kind).column(fit.records).to_pylist() == [
        {"a": 1, "b": [{"c": "x"}, None]},
        {"a": None, "b": []},
        {"a": None, "b": None},
    ]
    lists = [[1, 2], None, [], [3]]
    assert list_column(lists, pa.list_(pa.int64()), pa.array).to_pylist() == lists


# ── times and days ──

TIMES = "name STRING, at TIMESTAMP, day DATE, n INT, events ARRAY<STRUCT<at: TIMESTAMP>>"
PLAIN_TIMES = (
    "2026-11-16T08:09:10Z",
    "2026-11-16 08:09:10Z",
    "2026-11-16T08:09:10.1Z",
    "2026-11-16T08:09:10.123456Z",
    "2026-11-16T08:09:10+05:30",
    "2026-11-16T08:09:10-17:59",
    "1000-01-01T00:00:00Z",
    "1582-10-10T00:00:00Z",
    "2024-02-29T23:59:59.999999Z",
    "2026-03-29T02:30:00",
    "2026-10-25T02:30:00",
    "1883-01-01T12:00:00.654321",
    "2026-11-16 08:09:10.5",
)
ODD_TIMES = (
    "2026-11-16",
    "2026-11-16T08:09",
    "2026-11-16T08",
    "2026-1-6 8:9:1",
    "2026",
    "2026-11",
    "T08:09:10Z",
    "2026-11-16T08:09:10z",
    "2026-11-16t08:09:10Z",
    "2026-11-16T08:09:10.1234567Z",
    "2026-11-16T08:09:10.Z",
    "2026-11-16T08:09:10 Europe/Vienna",
    "2026-11-16T08:09:10UTC",
    "2026-11-16T08:09:10+0530",
    "2026-11-16T08:09:10+05",
    "2026-11-16T08:09:10+18:00",
    "2026-11-16T08:09:10+18:01",
    "2026-11-16T08:09:10-05:60",
    "2026-02-29T00:00:00Z",
    "2026-02-30",
    "2026-13-01T00:00:00Z",
    "2026-11-16T24:00:00Z",
    "2026-11-16T08:60:00Z",
    "2026-11-16T08:09:60Z",
    " 2026-11-16T08:09:10Z",
    "2026-11-16T08:09:10Z\n",
    "\u0662\u0660\u0662\u0666-11-16T08:09:10Z",
    "0000-01-01T00:00:00Z",
    "0999-12-31T00:00:00Z",
    "-2026-11-16T08:09:10Z",
    "+12026-11-16T08:09:10Z",
    "12026-11-16T08:09:10Z",
    "9999-12-31T23:59:59.999999Z",
    "now",
    "epoch",
    "",
    1_763_280_550,
    1_763_280_550.25,
    True,
)


ZONES = ("UTC", "Europe/Vienna", "America/New_York", "+05:30", "GMT-3")


@pytest.mark.parametrize(
    ("way", "zone"), [*(("table", zone) for zone in ZONES), ("stream", ZONES[1]), ("sql", ZONES[2])]
)
def test_the_format_reads_a_time_as_spark_does_or_not_at_all(
    spark: SparkSession, store: Store, tmp_path: Path, way: str, zone: str
) -> None:
    """In the zone of the session when the text has none; also where clocks are set forward or back."""
    texts = [text for text in (*PLAIN_TIMES, *ODD_TIMES) if isinstance(text, str)]
    if way == "stream":
        # The sink that the test looks into keeps days of before the calendar's reform as others.
        texts = [text for text in texts if text[:2] not in ("10", "15", "09")]
    store.push(*({"text": text, "at": text, "day": text} for text in texts))
    schema = "text STRING, at TIMESTAMP, day DATE"
    micros = "value.text", "unix_micros(value.at)", "unix_date(value.day)"
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        lines = [(msgspec.json.encode({"text": text, "at": text, "day": text}).decode(),) for text in texts]
        parsed = spark.createDataFrame(lines, "line STRING").selectExpr(f"from_json(line, '{schema}') AS value")
        expected = {text: (at, day) for text, at, day in parsed.selectExpr(*micros).collect()}
        rows = formatted(spark, store, way, tmp_path, schema).selectExpr(*micros).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert len(rows) == len(texts)
    found = {text: (at, day) for text, at, day in rows if text is not None}
    assert {text for text in PLAIN_TIMES if text in texts} <= set(found)
    assert found == {text: expected[text] for text in found}


def formatted(spark: SparkSession, store: Store, way: str, folder: Path, schema: str) -> DataFrame:
    """The queue by the plain format: as a table, as a stream, as a table of the catalog."""
    if way == "table":
        return store.table(spark, schema=schema, mode="PERMISSIVE")
    if way == "sql":
        spark.sql("DROP TABLE IF EXISTS zoned")
        options = f"store '{store.address}', queue 'orders', schema '{schema}', mode 'PERMISSIVE'"
        spark.sql(f"CREATE TABLE zoned USING headwater OPTIONS ({options})")
        return spark.table("zoned")
    rows = store.stream(spark, schema=schema, mode="PERMISSIVE")
    rows.writeStream.format("memory").queryName("zoned_stream").trigger(availableNow=True).start().awaitTermination()
    return spark.table("zoned_stream")


def test_an_unknown_zone_is_told_and_never_taken_for_utc() -> None:
    for name, hours in [
        ("UTC", 0),
        ("Z", 0),
        ("+01:00", 1),
        ("-08:00", -8),
        ("GMT+2", 2),
        ("UTC+00:00", 0),
        ("Japan", 9),
    ]:
        offset = zone_of(name).utcoffset(datetime(2026, 11, 16))
        assert offset == timedelta(hours=hours), name
        assert is_utc(name) == (hours == 0)
    for name in ("PST", "Nowhere/City", "../etc/passwd", "+1x", ""):
        with pytest.raises(InvalidOption, match="knows no zone"):
            zone_of(name)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna"])
def test_times_and_days_are_what_spark_makes_of_them(spark: SparkSession, store: Store, zone: str) -> None:
    """Each spelling alone, beside a plain one, and in a list; in a session whose zone is UTC, and in another."""
    for text in (*PLAIN_TIMES, *ODD_TIMES):
        store.push({"at": text, "name": "a"}, {"day": text}, {"events": [{"at": text}, None, {}]})
        store.push({"at": text, "day": str(text)[:10], "n": 5})
        store.push({"at": "2026-11-16T08:09:10Z", "day": "2026-11-16", "n": 5}, {"at": text})
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        ours = read(spark, store=store.address, queue="orders", schema=TIMES, mode="PERMISSIVE")
        segments = spark.read.format("headwater").options(store=store.address, queue="orders", shape="segments").load()
        theirs = split(segments, f"STRUCT<{TIMES}>", "PERMISSIVE")
        found, expected = (table.selectExpr("lsn", "offset", "to_json(value)").collect() for table in (ours, theirs))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert len(found) == 6 * len(PLAIN_TIMES + ODD_TIMES)
    assert sorted(found) == sorted(expected)


def test_times_in_full_are_typed_where_they_are_read_and_others_are_not() -> None:
    kind = pa.struct([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])

    def column(typer: Typer, *payloads: Any) -> pa.Array:
        fit = typer.decode(msgspec.json.encode([{"data": payload} for payload in payloads]))
        assert fit is not None
        return typer.column(fit.records)

    for text in PLAIN_TIMES:
        payloads: list[dict[str, Any]] = [{"at": text}, {"at": None, "day": text[:10]}, {}]
        found = column(Typer(kind, utc=True), *payloads)
        assert (found.null_count, found.field(0).null_count, found.field(1).null_count) == (0, 2, 2)
        with_zone = text.endswith("Z") or text[-6] in "+-"
        if not with_zone:
            with pytest.raises(Unspelled):
                column(Typer(kind), *payloads)
    for odd in ODD_TIMES:
        if isinstance(odd, str) and not odd.startswith("9999"):
            with pytest.raises(Unspelled):
                column(Typer(kind, utc=True), {"at": "2026-11-16T08:09:10Z"}, {"at": odd})


def test_a_relative_store_is_found_by_executors_in_other_folders(
    spark: SparkSession, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.push({"n": 1})
    monkeypatch.chdir(tmp_path)
    assert [row.value.n for row in read(spark, store="log.db", queue="orders", schema="n INT").collect()] == [1]
    # The planner of the plain format runs beside Spark, in the folder that the program was in when Spark began.
    relative = os.path.relpath(store.address, FOLDER)
    assert spark.read.format("headwater").options(store=relative, queue="orders").load().count() == 1
