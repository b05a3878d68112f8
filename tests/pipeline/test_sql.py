"""The log as a table of Spark's catalog: made, read, written to and seen as it was, by SQL; and results that change."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.pipeline import payload
from tests.pipeline.store import QUERY_ERRORS, Store


@pytest.fixture
def table(spark: SparkSession, store: Store) -> Iterator[str]:
    store.push({"id": 1}, {"id": 2}, partition="eu", trace_id="5f0c", headers={"a": "b"})
    spark.sql(f"CREATE TABLE log_orders USING headwater OPTIONS (store '{store.address}', queue 'orders')")
    yield "log_orders"
    spark.sql("DROP TABLE log_orders")


def test_a_table_of_the_catalog_is_read_and_inserted_into(spark: SparkSession, store: Store, table: str) -> None:
    assert spark.sql(f"SELECT count(*) FROM {table}").first() == (2,)
    spark.sql(f"INSERT INTO {table} (value, partition) VALUES ('{{\"id\": 3}}', 'us')")
    assert store.records() == [("eu", 0, {"id": 1}), ("eu", 1, {"id": 2}), ("us", 0, {"id": 3})]
    # Every query sees what there is when it begins.
    assert spark.sql(f"SELECT max(lsn), count(*) FROM {table}").first() == (2, 3)


def test_a_copy_by_sql_keeps_what_records_say_of_themselves(spark: SparkSession, store: Store, table: str) -> None:
    spark.sql(f"CREATE TABLE log_copy USING headwater OPTIONS (store '{store.address}', queue 'orders')")
    try:
        spark.sql(f"INSERT INTO log_copy SELECT * FROM {table}")
    finally:
        spark.sql("DROP TABLE log_copy")
    found = spark.sql(f"SELECT trace_id, headers['a'] FROM {table}").collect()
    assert [tuple(row) for row in found] == [("5f0c", "b")] * 4


def test_a_table_is_seen_as_it_was(spark: SparkSession, store: Store, table: str) -> None:
    store.push({"id": 3})
    assert spark.sql(f"SELECT count(*) FROM {table} WITH (endingOffsets = '2')").first() == (2,)
    assert spark.sql(f"SELECT count(*) FROM {table} WITH (endingOffsets = '2020-01-01T00:00:00Z')").first() == (0,)
    assert spark.read.option("startingOffsets", "2").table(table).count() == 1


def test_what_a_table_cannot_do_is_told(spark: SparkSession, store: Store, table: str) -> None:
    with pytest.raises(QUERY_ERRORS, match="never overwritten"):
        spark.sql(f"INSERT OVERWRITE {table} (value) VALUES ('1')")
    with pytest.raises(QUERY_ERRORS, match="make the table first, then INSERT INTO"):
        spark.sql(
            f"CREATE TABLE log_selected USING headwater OPTIONS (store '{store.address}', queue 'orders') "
            "AS SELECT '1' AS value"
        )
    spark.sql("DROP TABLE IF EXISTS log_selected")
    spark.sql(
        f"CREATE TABLE log_named (value STRING) USING headwater OPTIONS (store '{store.address}', queue 'orders')"
    )
    try:
        with pytest.raises(QUERY_ERRORS, match="A table keeps its options when its columns are left out"):
            spark.sql("SELECT * FROM log_named").collect()
    finally:
        spark.sql("DROP TABLE log_named")
    assert len(store.records()) == 2


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_results_that_change_are_pushed_as_messages(
    spark: SparkSession, store: Store, tmp_path: Path, mode: str
) -> None:
    """In mode `update` by foreachBatch: Spark lets no Python sink have it."""

    def push(rows: DataFrame, number: int) -> None:
        writer = rows.write.format("headwater").mode("append").options(store=store.address, queue="sums")
        writer.option("idempotencyKey", f"sums-{number}").save()

    for last in (2, 3):
        store.push(*({"id": number} for number in range(last)), partition=f"p{last}")
        counted = store.stream(spark).groupBy("partition").count().select("partition", payload("count"))
        writing: Any = counted.writeStream.outputMode(mode).option("checkpointLocation", str(tmp_path / "checkpoint"))
        if mode == "update":
            writing = writing.foreachBatch(push)
        else:
            writing = writing.format("headwater").options(store=store.address, queue="sums")
        writing.trigger(availableNow=True).start().awaitTermination()
    found = [(partition, value["count"]) for partition, _, value in store.records("sums")]
    assert found == ([("p2", 2), ("p2", 2), ("p3", 3)] if mode == "complete" else [("p2", 2), ("p3", 3)])
