"""Payloads that are typed where the log is read are those that Spark would have made of the same text."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.pipeline import read
from headwater.pipeline.reading import split
from headwater.pipeline.typed import Typer, list_column, payload_column, typer_for
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
    options = {"store": odd.address, "queue": "orders", "shape": "segments", "schema": SCHEMA}
    found = spark.read.format("headwater").options(**options).load().collect()
    assert all((row.records is None) != (row.payloads is None) for row in found)
    assert sum(row.payloads is not None for row in found) == 2 * 15
    assert {row.envelopes is None for row in found if row["count"] == 1 and row.payloads} == {True}
    assert {row.envelopes[0].type for row in found if row["count"] == 3} == {"kind"}


def rows(table: DataFrame) -> list[Any]:
    found = table.orderBy("lsn", "offset").collect()
    assert len(found) == 4 * len(ODD_PAYLOADS)
    return [str(row.asDict(recursive=True)) for row in found]


def test_a_type_with_several_spellings_is_left_to_spark() -> None:
    for kind in (pa.timestamp("us", "UTC"), pa.date32(), pa.decimal128(10, 2), pa.float32(), pa.binary()):
        assert typer_for(pa.struct([("a", kind)])) is None
        assert typer_for(pa.struct([("a", pa.list_(pa.struct([("b", kind)])))])) is None
    assert typer_for(pa.struct([])) is None
    assert typer_for(pa.string()) is None


def test_a_field_that_must_be_there_is_asked_for() -> None:
    typer = typer_for(pa.struct([pa.field("a", pa.string(), nullable=False), pa.field("b", pa.int64())]))
    assert typer is not None
    assert typer.decode(b'[{"data":{"b":1,"a":"x"}},{"data":null}]') is not None
    assert typer.decode(b'[{"data":{"b":1}}]') is None
    assert typer.decode(b'[{"data":{"a":null}}]') is None


def test_columns_are_made_of_decoded_payloads() -> None:
    kind = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    fit = Typer(kind).decode(b'[{"data":{"a":1,"b":[{"c":"x"},null]}},{"data":null},{"data":{"b":[]}},{"data":{}}]')
    assert fit is not None
    assert fit.bare
    assert payload_column([record.data for record in fit.records], kind).to_pylist() == [
        {"a": 1, "b": [{"c": "x"}, None]},
        None,
        {"a": None, "b": []},
        {"a": None, "b": None},
    ]
    lists = [[1, 2], None, [], [3]]
    assert list_column(lists, pa.list_(pa.int64()), pa.array).to_pylist() == lists


def test_a_relative_store_is_found_by_executors_in_other_folders(
    spark: SparkSession, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.push({"n": 1})
    monkeypatch.chdir(tmp_path)
    assert [row.value.n for row in read(spark, store="log.db", queue="orders", schema="n INT").collect()] == [1]
    # The planner of the plain format runs beside Spark, in the folder that the program was in when Spark began.
    relative = os.path.relpath(store.address, FOLDER)
    assert spark.read.format("headwater").options(store=relative, queue="orders").load().count() == 1
