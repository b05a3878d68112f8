"""The log as a table: every record once, in the columns that the documents name."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.errors import HeadwaterError, InvalidOption
from headwater.pipeline import read, read_stream
from headwater.pipeline.options import READ_OPTION_NAMES, WRITE_OPTION_NAMES, read_options, write_options
from tests.pipeline.store import QUERY_ERRORS, Store, collect

SCHEMA = "id BIGINT, name STRING, price DOUBLE, at TIMESTAMP, day DATE, tags ARRAY<STRING>, place STRUCT<city: STRING>"
PAYLOADS = [
    {"id": 1, "name": "a", "price": 1.5, "at": "2026-11-15T08:00:00Z", "day": "2026-11-15", "tags": ["x", "y"]},
    {"id": 2, "name": None, "place": {"city": "Graz", "unknown": 1}, "more": [1, {"deep": True}]},
    {"id": 3, "price": 2, "tags": [], "at": "2026-11-15T08:00:00.25+01:00"},
    {},
]


def test_every_record_is_a_row_with_all_its_columns(spark: SparkSession, store: Store) -> None:
    about: dict[str, Any] = {"transaction_id": "t-1", "trace_id": "5f0c", "type": "order", "headers": {"a": "b"}}
    store.push({"id": 1}, partition="eu", timestamp=1_000_000, **about)
    store.push("text", 7, None, [1, 2])
    first, *others = store.table(spark).orderBy("lsn", "offset").collect()
    assert first.asDict() == {
        "queue": "orders",
        "partition": "eu",
        "offset": 0,
        "lsn": 1,
        "transaction_id": "t-1",
        "trace_id": "5f0c",
        "type": "order",
        "timestamp": datetime(1970, 1, 1, 0, 0, 1),
        "headers": {"a": "b"},
        "value": '{"id":1}',
    }
    assert [(row.partition, row.offset, row.lsn, row.value) for row in others] == [
        ("Default", 0, 2, '"text"'),
        ("Default", 1, 2, "7"),
        ("Default", 2, 2, "null"),
        ("Default", 3, 2, "[1,2]"),
    ]
    assert {(row.transaction_id, row.type, row.headers) for row in others} == {(None, None, None)}


def test_several_queues_are_read_by_name_or_pattern(spark: SparkSession, store: Store) -> None:
    for number, queue in enumerate(["orders/eu", "orders/us", "bills"]):
        store.push(number, queue=queue)
    assert collect(store.table(spark, "", queues="orders/eu, bills"), "value") == [("0",), ("2",)]
    assert collect(store.table(spark, "", pattern="orders/*"), "queue") == [("orders/eu",), ("orders/us",)]


def test_a_stretch_is_read_by_lsn_or_time(spark: SparkSession, store: Store) -> None:
    for number in range(5):
        store.push(number)
    store.push("other", queue="other")
    assert collect(store.table(spark, startingOffsets="2", endingOffsets="4"), "value") == [("1",), ("2",)]
    assert collect(store.table(spark, startingOffsets="latest"), "value") == []
    assert collect(store.table(spark, endingOffsets="99"), "value") == [(str(number),) for number in range(5)]
    past, future = "2020-01-01T00:00:00Z", "2040-01-01T00:00:00+00:00"
    assert store.table(spark, startingOffsets=past, endingOffsets=future).count() == 5
    assert store.table(spark, startingOffsets=future).count() == 0
    assert store.table(spark, endingOffsets=past).count() == 0


def test_many_segments_are_read_by_many_tasks_each_record_once(spark: SparkSession, store: Store) -> None:
    for number in range(40):
        store.push(*range(number * 5, number * 5 + 5), partition=f"p{number % 3}")
    table = store.table(spark, minPartitions=7)
    assert table.select(F.spark_partition_id()).distinct().count() == 7
    assert collect(table, "queue", "partition", "offset", "value") == sorted(
        (queue, partition, offset, str(payload)) for queue, partition, offset, payload in store.pushed
    )


@pytest.mark.parametrize("options", [{"compress_bytes_min": 1}, {"compress_bytes_min": 1, "encrypted": True}])
def test_compressed_and_encrypted_queues_are_read(spark: SparkSession, store: Store, options: dict[str, Any]) -> None:
    store.opened.queue("orders").configure(**options)
    store.push({"text": "long " * 100}, {"text": "more"})
    assert [row.text for row in read(spark, store=store.address, queue="orders", schema="text STRING")
            .select("value.text").collect()] == ["long " * 100, "more"]  # fmt: skip
    assert store.table(spark).count() == 2


@pytest.mark.parametrize("way", ["format", "helper"])
def test_a_schema_types_the_payload(spark: SparkSession, store: Store, way: str) -> None:
    store.push(*PAYLOADS)
    rows = typed(spark, store, way, SCHEMA).orderBy("offset").collect()
    assert [None if row.value is None else row.value.asDict(recursive=True) for row in rows] == [
        {
            "id": 1,
            "name": "a",
            "price": 1.5,
            "at": datetime(2026, 11, 15, 8),
            "day": datetime(2026, 11, 15).date(),
            "tags": ["x", "y"],
            "place": None,
        },
        {"id": 2, "name": None, "price": None, "at": None, "day": None, "tags": None, "place": {"city": "Graz"}},
        {
            "id": 3,
            "name": None,
            "price": 2.0,
            "at": datetime(2026, 11, 15, 7, 0, 0, 250_000),
            "day": None,
            "tags": [],
            "place": None,
        },
        {"id": None, "name": None, "price": None, "at": None, "day": None, "tags": None, "place": None},
    ]


def typed(spark: SparkSession, store: Store, way: str, schema: str, **options: str) -> DataFrame:
    if way == "helper":
        return read(spark, store=store.address, queue="orders", schema=schema, **options)
    return store.table(spark, schema=schema, **options)


@pytest.mark.parametrize("way", ["format", "helper"])
def test_the_other_columns_are_the_same_with_a_schema(spark: SparkSession, store: Store, way: str) -> None:
    store.push({"id": 1}, transaction_id="t", trace_id="5f0c", type="a", headers={"h": "1"}, timestamp=5_000_000)
    store.push({"id": 2}, {"id": 3}, partition="p")
    log = ("queue", "partition", "offset", "lsn", "transaction_id", "trace_id", "type", "timestamp")
    assert typed(spark, store, way, "id BIGINT").columns == store.table(spark).columns
    assert (
        typed(spark, store, way, "id BIGINT").orderBy("lsn", "offset").select(*log, "headers").collect()
        == store.table(spark).orderBy("lsn", "offset").select(*log, "headers").collect()
    )


@pytest.mark.parametrize("way", ["format", "helper"])
def test_a_payload_that_does_not_fit_stops_the_query_unless_it_may_be_null(
    spark: SparkSession, store: Store, way: str
) -> None:
    for poison in POISON:
        store.push({"id": 1}, poison, {"id": 3})
    for lsn in range(1, 1 + len(POISON)):
        one = {"startingOffsets": str(lsn), "endingOffsets": str(lsn + 1)}
        with pytest.raises(QUERY_ERRORS, match=rf"record {3 * lsn - 2} of orders/Default does not fit the schema"):
            typed(spark, store, way, "id BIGINT", **one).collect()
    rows = typed(spark, store, way, "id BIGINT", mode="PERMISSIVE").orderBy("offset").select("offset", "value.id")
    assert [tuple(row) for row in rows.collect()] == list(enumerate([1, None, 3] * len(POISON)))


WAYS = ("format", "helper", "other types", "stream")
POISON = ("text", 7, [1], {"id": "abc"}, None)


def typed_by(spark: SparkSession, store: Store, way: str, schema: str, **options: str) -> list[Any]:
    """The rows of a read in one of the ways that payloads become typed; `other types` are those that Spark reads."""
    if way != "stream":
        more = ", at TIMESTAMP" if way == "other types" else ""
        rows = typed(spark, store, "helper" if more else way, schema + more, **options)
        return rows.orderBy("lsn", "offset").collect()
    rows = read_stream(spark, store=store.address, queue="orders", schema=schema, **options)
    query = rows.writeStream.format("memory").queryName("typed_by").trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.table("typed_by").orderBy("lsn", "offset").collect()


@pytest.mark.parametrize("way", WAYS)
def test_a_payload_that_does_not_fit_is_named_by_queue_partition_and_offset(
    spark: SparkSession, store: Store, way: str
) -> None:
    store.push({"id": 1}, partition="eu")
    store.push({"id": 2}, {"id": "abc"}, partition="eu")
    with pytest.raises(
        QUERY_ERRORS, match=r'record 2 of orders/eu does not fit the schema.*\{\\?"id\\?":\\?"abc\\?"\}'
    ):
        typed_by(spark, store, way, "id BIGINT")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["", "broken"])
def test_the_text_of_a_payload_that_does_not_fit_is_in_the_column_for_it(
    spark: SparkSession, store: Store, way: str, name: str
) -> None:
    for poison in POISON:
        store.push({"id": 1}, poison)
    column = name or "_corrupt_record"
    options = {"mode": "PERMISSIVE", **({"columnNameOfCorruptRecord": name} if name else {})}
    found = typed_by(spark, store, way, f"id BIGINT, {column} STRING", **options)
    assert [(row.value.id, row.value[column]) for row in found] == [
        one for text in ('"text"', "7", "[1]", '{"id":"abc"}', "null") for one in ((1, None), (None, text))
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["PERMISSIVE", "FAILFAST"])
def test_the_column_for_what_does_not_fit_is_filled_by_the_reader_alone(
    spark: SparkSession, store: Store, way: str, mode: str
) -> None:
    """Whatever a payload has under its name: a text, another type, in a segment that fits or one that does not."""
    for claimed in ("I am broken", 7, {"deep": True}, None):
        store.push({"id": 1, "_corrupt_record": claimed}, {"id": 2})
    schema = "_corrupt_record STRING, id BIGINT"
    found = typed_by(spark, store, way, schema, mode=mode)
    assert [(row.value.id, row.value["_corrupt_record"]) for row in found] == [(1, None), (2, None)] * 4
    if mode == "PERMISSIVE":
        store.push({"id": "x", "_corrupt_record": "a lie"}, {"id": 3, "_corrupt_record": "another"})
        told = typed_by(spark, store, way, schema, mode=mode)[-2:]
        text = '{"id":"x","_corrupt_record":"a lie"}'
        assert [(row.value.id, row.value["_corrupt_record"]) for row in told] == [(None, text), (3, None)]


@pytest.mark.parametrize("way", WAYS)
def test_a_field_that_must_be_there_is_missed(spark: SparkSession, store: Store, way: str) -> None:
    schema = "id BIGINT NOT NULL, place STRUCT<city: STRING NOT NULL>"
    store.push({"id": 1}, {"id": 2, "place": {"city": "Graz"}})
    assert [row.value.id for row in typed_by(spark, store, way, schema)] == [1, 2]
    for number, unfit in enumerate([{"place": None}, {"id": None}, {"id": 3, "place": {}}, None]):
        store.push({"id": 1}, unfit)
        one = {"startingOffsets": str(2 + number)}
        with pytest.raises(QUERY_ERRORS, match="does not fit the schema"):
            typed_by(spark, store, way, schema, **one)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("alone", [True, False])
def test_a_field_that_must_be_there_is_empty_in_what_does_not_fit(
    spark: SparkSession, store: Store, way: str, alone: bool
) -> None:
    """The promise is one of payloads that fit; beside them stand those that do not, with their text."""
    schema = "id BIGINT NOT NULL, `a b` STRUCT<c: STRING NOT NULL> NOT NULL COMMENT 'NOT NULL', _corrupt_record STRING"
    fit = {"id": 1, "a b": {"c": "Graz"}}
    unfit: list[Any] = [{}, {"id": 2}, {"id": None, "a b": {"c": "x"}}, {"id": 3, "a b": None}, {"id": 4, "a b": {}}, 7]
    for payload in unfit:
        store.push(*([] if alone else [fit]), payload)
    found = typed_by(spark, store, way, schema, mode="PERMISSIVE")
    texts = [json.loads(row.value["_corrupt_record"]) for row in found if row.value["_corrupt_record"] is not None]
    assert texts == unfit
    whole = [row.value for row in found if row.value["_corrupt_record"] is None]
    assert [(value.id, value["a b"].c) for value in whole] == ([] if alone else [(1, "Graz")] * len(unfit))
    # Without the column for it, it is empty all the same.
    plain = typed_by(spark, store, way, "id BIGINT NOT NULL", mode="PERMISSIVE")
    assert [row.value and row.value.id for row in plain].count(1) == (0 if alone else len(unfit))


@pytest.mark.parametrize("way", ["format", "helper"])
def test_a_value_may_be_a_variant(spark: SparkSession, store: Store, way: str) -> None:
    store.push({"id": 1, "deep": {"list": [1, 2.5, "x", None]}}, "text", None)
    options = {"store": store.address, "queue": "orders", "valueType": "variant"}
    table = read(spark, **options) if way == "helper" else spark.read.format("headwater").options(**options).load()
    values = [json.loads(row.value.toJson()) for row in table.orderBy("offset").collect()]
    assert values == [{"id": 1, "deep": {"list": [1, 2.5, "x", None]}}, "text", None]
    assert table.selectExpr("variant_get(value, '$.id', 'int') AS id").where("id IS NOT NULL").first() == (1,)


@pytest.mark.parametrize("way", ["format", "helper"])
def test_partitions_that_are_named_are_read_and_no_others(spark: SparkSession, store: Store, way: str) -> None:
    for number in range(6):
        store.push({"id": number}, partition=f"p{number % 3}")
    one = typed(spark, store, way, "id BIGINT", partition="p1")
    two = typed(spark, store, way, "id BIGINT", partitions="p2, p0")
    assert collect(one, "partition", "value.id") == [("p1", 1), ("p1", 4)]
    assert collect(two, "partition", "value.id") == [("p0", 0), ("p0", 3), ("p2", 2), ("p2", 5)]
    with pytest.raises(QUERY_ERRORS, match="no partition 'none' in orders; there are p0, p1, p2"):
        typed(spark, store, way, "id BIGINT", partition="none").count()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"qeue": "orders"}, "no such option: qeue .did you mean queue.*there are .*queue, queues"),
        ({}, "one of the options queue, queues or pattern"),
        ({"queue": "orders", "pattern": "o*"}, "one of the options queue, queues or pattern"),
        ({"queue": "orders", "queues": "orders"}, "one of the options queue, queues or pattern"),
        ({"queue": "orders", "partition": "eu", "partitions": "eu"}, "options partition and partitions say the same"),
        ({"queue": "oders"}, r"there is no queue 'oders' in .*; there are bills, orders"),
        ({"queue": "a b"}, "queue name must be"),
        ({"queue": "orders", "startingOffsets": "yesterday"}, "startingOffsets must be earliest, latest, an LSN"),
        ({"queue": "orders", "startingOffsets": "2026-11-15T08:00:00"}, "a time with its zone"),
        ({"queue": "orders", "endingOffsets": "earliest"}, "nothing ends at earliest"),
        ({"queue": "orders", "minPartitions": "0"}, "minPartitions must be a whole number from 1"),
        ({"queue": "orders", "failOnDataLoss": "no"}, "failOnDataLoss must be true or false"),
        ({"queue": "orders", "mode": "DROPMALFORMED"}, "mode must be PERMISSIVE or FAILFAST"),
        ({"queue": "orders", "partition": "a b"}, "partition name must be"),
        ({"queue": "orders", "group": "g"}, "group is for streams"),
        ({"queue": "orders", "schema": "a INT", "valueType": "variant"}, "leave valueType out"),
        ({"queue": "orders", "eventTime": "a"}, "eventTime is for streams"),
        ({"queue": "orders", "partition": "nope"}, "no partition 'nope' in orders; there are Default, eu"),
        ({"queues": "orders, bills", "partitions": "eu, nope, no"}, "no partition 'no', 'nope' in orders, bills"),
        ({"queue": "orders", "startingOffsets": "3", "endingOffsets": "2"}, "begins at LSN 3, behind its end"),
        (
            {"queue": "orders", "startingOffsets": "2030-01-01T00:00:00Z", "endingOffsets": "2029-01-01T00:00:00Z"},
            "behind its end",
        ),
        ({"queue": "orders", "startingOffsets": "99"}, "startingOffsets is LSN 99, but the log of .* ends at 3"),
        (
            {"queue": "orders", "startingOffsets": '{"orders": {"eu": 1}}', "endingOffsets": '{"orders": {"eu": 0}}'},
            "orders/eu.* begins at 1, behind its end 0",
        ),
        ({"queue": "orders", "schema": "a INT, a STRING"}, "a stands there 2 times"),
        ({"queue": "orders", "schema": "a CHAR(3)"}, "a text is a STRING"),
        ({"queue": "orders", "schema": "a STRUCT<b: ARRAY<VARCHAR(3)>>"}, "a text is a STRING"),
        ({"queue": "orders", "schema": "a FOO"}, "a is a FOO, which is no type; there are ARRAY, BIGINT"),
        ({"queue": "orders", "schema": "a"}, "a has no type"),
        ({"queue": "orders", "schema": "a MAP<INT, INT>"}, r"headwater.pipeline.read\(spark"),
    ],
)
def test_a_wrong_option_is_told_with_what_there_is(
    spark: SparkSession, store: Store, options: dict[str, str], told: str
) -> None:
    store.push({"a": {"k": 1}})
    store.push(1, queue="bills")
    store.push({}, partition="eu")
    with pytest.raises(QUERY_ERRORS, match=told):
        spark.read.format("headwater").options(store=store.address, **options).load().collect()


@pytest.mark.parametrize("parse", [read_options, write_options])
@pytest.mark.parametrize("blank", ["", "  "])
def test_no_option_may_be_empty(parse: Callable[[dict[str, str]], object], blank: str) -> None:
    """A variable that nobody set must not pass for an option that was left out."""
    for name in READ_OPTION_NAMES if parse is read_options else WRITE_OPTION_NAMES:
        others = {"store": "https://host", "queue": "q"} if name not in ("store", "path") else {"queue": "q"}
        parse(others | {"store": "https://host"})
        with pytest.raises(HeadwaterError):
            parse({**others, name.lower(): blank})


@pytest.mark.parametrize("parse", [read_options, write_options])
def test_every_option_is_near_to_its_misspellings_and_to_what_it_is_called_elsewhere(
    parse: Callable[[dict[str, str]], object],
) -> None:
    """Spark hands names over in lower case, and those of the other kind may be what was meant."""
    names = READ_OPTION_NAMES if parse is read_options else WRITE_OPTION_NAMES
    for name in names:
        for wrong in (name[:-1], name + "s", name[1] + name[0] + name[2:]):
            if wrong.lower() not in {known.lower() for known in names}:
                with pytest.raises(InvalidOption, match=rf"{wrong.lower()} \(did you mean \w+\?\); there are"):
                    parse({wrong.lower(): "x"})
    for wrong, meant in {"topic": "queue", "kafka.bootstrap.servers": "store"}.items():
        with pytest.raises(InvalidOption, match=rf"{wrong} \(did you mean {meant}\?\)"):
            parse({wrong: "x"})
    with pytest.raises(InvalidOption, match="no such option: zzz; there are"):
        parse({"zzz": "x"})


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("subscribe", "queues"), ("subscribePattern", "pattern"), ("versionAsOf", "endingOffsets")],
)
def test_names_of_kafka_and_of_table_formats_lead_to_ours(wrong: str, meant: str) -> None:
    with pytest.raises(InvalidOption, match=rf"\(did you mean {meant}\?\)"):
        read_options({wrong.lower(): "x"})
    with pytest.raises(InvalidOption, match=f"no such option: {wrong.lower()}; there are"):
        write_options({wrong.lower(): "x"})


def test_a_missing_store_is_told_and_not_made(spark: SparkSession, store: Store) -> None:
    missing = store.address + ".missing"
    with pytest.raises(QUERY_ERRORS, match="there is no store at"):
        spark.read.format("headwater").options(store=missing, queue="orders").load().collect()
    with pytest.raises(QUERY_ERRORS, match="option store is missing"):
        spark.read.format("headwater").options(queue="orders").load()
    with pytest.raises(QUERY_ERRORS, match=r"use .option\('schema'"):
        spark.read.format("headwater").schema("id INT").options(store=store.address, queue="orders").load().collect()


def test_a_time_of_its_own_wins_over_the_time_of_the_push(spark: SparkSession, store: Store) -> None:
    before = datetime.now(UTC).replace(tzinfo=None)
    store.push({"id": 1}, timestamp=1_000_000)
    store.push({"id": 2})
    first, second = store.table(spark).orderBy("lsn").select("timestamp").collect()
    assert first.timestamp == datetime(1970, 1, 1, 0, 0, 1)
    assert second.timestamp >= before
