"""A payload that does not fit stops every query over it, whichever columns the query asks for, whichever way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.pipeline import read, read_stream
from tests.pipeline.store import QUERY_ERRORS, QUEUE, Store

# Typed where the log is read; by Spark; and with a field for what does not fit.
SCHEMAS = [
    "id BIGINT",
    "id BIGINT, m MAP<STRING, STRING>",
    "id BIGINT, d DECIMAL(10, 2)",
    "id BIGINT NOT NULL, m MAP<STRING, STRING>, _corrupt_record STRING",
]
WAYS = ["read", "format", "table"]
GOOD = [{"id": 1}, {"id": 2}]
COLUMNS = [*("queue", "partition", "offset", "lsn", "type", "timestamp", "headers"), "value", "value.id"]

Ask = Callable[[DataFrame], DataFrame]


def single(column: str) -> Ask:
    return lambda rows: rows.select(column)


# Each asks for less than all columns.
PARTS: dict[str, Ask] = {
    **{column: single(column) for column in COLUMNS},
    "count": lambda rows: rows.agg(f.count("*")),
    "max": lambda rows: rows.agg(f.max("offset")),
    "nothing": lambda rows: rows.select(f.lit(1)),
    "groups": lambda rows: rows.groupBy("partition").count(),
    "distinct": lambda rows: rows.select("queue").distinct(),
    "limit": lambda rows: rows.select("lsn").limit(100),
    "sorted": lambda rows: rows.orderBy(f.desc("offset")).select("offset").limit(1),
    "join": lambda rows: rows.select("offset").join(rows.sparkSession.range(9).toDF("offset"), "offset"),
    "semi": lambda rows: rows.select("offset").join(rows.sparkSession.range(9).toDF("offset"), "offset", "semi"),
    "exists": lambda rows: rows.sparkSession.range(9).toDF("offset").join(rows, "offset", "semi"),
    "union": lambda rows: rows.select("lsn").union(rows.select("offset")),
}


def load(spark: SparkSession, store: Store, way: str, **options: str) -> DataFrame:
    if way == "read":
        return read(spark, store=store.address, queue=QUEUE, **options)
    if way == "format":
        return store.table(spark, **options)
    given = {"store": store.address, "queue": QUEUE, **options}
    listed = ", ".join(f"{name} '{text}'" for name, text in given.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW log_unfit USING headwater OPTIONS ({listed})")
    return spark.table("log_unfit")


def stops(rows: DataFrame) -> bool:
    try:
        rows.collect()
    except QUERY_ERRORS as error:
        if "does not fit the schema" not in str(error):
            raise
        return True
    return False


@pytest.mark.parametrize(
    ("way", "schema"), [("read", SCHEMAS[0]), ("read", SCHEMAS[1]), ("format", SCHEMAS[1]), ("table", SCHEMAS[1])]
)
def test_a_payload_that_does_not_fit_stops_whatever_a_query_asks_for(
    spark: SparkSession, store: Store, way: str, schema: str
) -> None:
    store.push(*GOOD)
    sound = load(spark, store, way, schema=schema)
    assert (sound.count(), len(sound.collect())) == (2, 2)
    store.push({"id": "x"})
    whole = load(spark, store, way, schema=schema)
    assert stops(whole)
    assert [name for name, ask in PARTS.items() if not stops(ask(whole))] == []


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_payload_that_does_not_fit_stops_a_count_whatever_the_schema(
    spark: SparkSession, store: Store, schema: str
) -> None:
    store.push(*GOOD, {"id": "x"})
    assert stops(load(spark, store, "read", schema=schema).agg(f.count("*")))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("schema", SCHEMAS[1::2])
def test_a_payload_that_may_be_unfit_stops_nothing(spark: SparkSession, store: Store, way: str, schema: str) -> None:
    store.push(*GOOD, {"id": "x"})
    whole = load(spark, store, way, schema=schema, mode="PERMISSIVE")
    assert whole.count() == len(whole.collect()) == 3


@pytest.mark.parametrize("way", ["read_stream", "format"])
@pytest.mark.parametrize("schema", SCHEMAS[:2])
def test_a_payload_that_does_not_fit_stops_a_stream_that_counts(
    spark: SparkSession, store: Store, tmp_path: Path, way: str, schema: str
) -> None:
    def run(ask: Ask, name: str) -> int:
        options: dict[str, Any] = {"schema": schema}
        rows = (
            read_stream(spark, store=store.address, queue=QUEUE, **options)
            if way == "read_stream"
            else store.stream(spark, **options)
        )
        counted: list[int] = []
        writing = ask(rows).writeStream.foreachBatch(lambda batch, _: counted.append(batch.count()))
        query = writing.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(counted)

    store.push(*GOOD)
    assert run(single("offset"), "sound") == 2
    store.push({"id": "x"})
    for name in ("offset", "value"):
        with pytest.raises(QUERY_ERRORS, match="does not fit the schema"):
            run(single(name), name)


@pytest.mark.parametrize("way", WAYS)
def test_a_variant_takes_every_payload(spark: SparkSession, store: Store, way: str) -> None:
    payloads: list[Any] = [*GOOD, {"id": "x"}, None, [], "text"]
    store.push(*payloads)
    whole = load(spark, store, way, valueType="variant")
    assert whole.count() == len(whole.collect()) == len(payloads)
