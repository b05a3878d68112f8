"""A table is a snapshot taken by `load()`: whoever uses it, how often and beside what else, sees the same rows."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.pipeline import read, register
from headwater.pipeline.columns import comment_of
from tests.pipeline.store import QUERY_ERRORS, Store, collect
from tests.pipeline.test_losses import retain

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
STEPS = 20

# What Spark would hand down to a source that takes filters, alone and together, and what it would not.
CONDITIONS = (
    "partition = 'A'",
    "partition <> 'A'",
    "partition IN ('A', 'B') AND offset < 3",
    "queue = 'orders'",
    "queue = 'none'",
    "offset >= 2",
    "lsn BETWEEN 2 AND 4",
    "lsn > 3 OR partition = 'C'",
    "timestamp >= '2000-01-01'",
    "type = 'late'",
    "value IS NOT NULL",
)

Action = Callable[[SparkSession, DataFrame, random.Random], list[Any]]


def condition(chance: random.Random) -> str:
    return chance.choice(CONDITIONS)


def count(spark: SparkSession, table: DataFrame, chance: random.Random) -> list[Any]:
    return [table.count()]


def count_some(spark: SparkSession, table: DataFrame, chance: random.Random) -> list[Any]:
    return [table.where(condition(chance)).count()]


def select(spark: SparkSession, table: DataFrame, chance: random.Random) -> list[Any]:
    return sorted(tuple(row) for row in table.where(condition(chance)).select("partition", "offset").collect())


def union(spark: SparkSession, table: DataFrame, chance: random.Random) -> list[Any]:
    both = table.where(condition(chance)).unionAll(table.where(condition(chance)))
    return sorted(tuple(row) for row in both.select("partition", "offset").collect())


def join(spark: SparkSession, table: DataFrame, chance: random.Random) -> list[Any]:
    left = table.where(condition(chance)).alias("left")
    right = table.where(condition(chance)).alias("right")
    rows = left.join(right, F.expr("left.partition = right.partition AND left.offset = right.offset + 1"))
    return sorted(tuple(row) for row in rows.select("left.partition", "left.offset").collect())


def view(spark: SparkSession, table: DataFrame, chance: random.Random) -> list[Any]:
    table.createOrReplaceTempView("shared")
    text = (
        "SELECT a.partition, count(*) FROM shared a "
        f"WHERE a.offset IN (SELECT offset FROM shared WHERE {condition(chance)}) AND {condition(chance)} GROUP BY 1"
    )
    return sorted(tuple(row) for row in spark.sql(text).collect())


def group(spark: SparkSession, table: DataFrame, chance: random.Random) -> list[Any]:
    rows = table.where(condition(chance)).groupBy("partition").agg(F.count("*"), F.max("offset"), F.min("lsn"))
    return sorted(tuple(row) for row in rows.collect())


def limit(spark: SparkSession, table: DataFrame, chance: random.Random) -> list[Any]:
    rows = table.where(condition(chance)).orderBy("partition", "offset").limit(chance.randrange(4))
    return [tuple(row) for row in rows.select("partition", "offset").collect()]


def cached(spark: SparkSession, table: DataFrame, chance: random.Random) -> list[Any]:
    some = table.where(condition(chance)).cache()
    try:
        return [some.count(), some.where(condition(chance)).count(), table.count()]
    finally:
        some.unpersist()


ACTIONS: tuple[Action, ...] = (count, count_some, select, union, join, view, group, limit, cached)
WAYS = ("format", "read", "typed")


def load(spark: SparkSession, store: Store, way: str) -> DataFrame:
    if way == "format":
        return store.table(spark)
    return read(spark, store=store.address, queue="orders", **({"schema": "id BIGINT"} if way == "typed" else {}))


def fill(store: Store, chance: random.Random) -> None:
    for partition in ("A", "B", "C"):
        payloads = [{"id": number} for number in range(chance.randrange(1, 5))]
        store.push(*payloads, partition=partition, **({"type": "late"} if chance.random() < 0.5 else {}))


@pytest.mark.parametrize(("seed", "pushdown"), [(1, "false"), (2, "true")])
def test_any_sequence_of_queries_over_shared_tables_equals_the_same_over_a_copy(
    spark: SparkSession, store: Store, seed: int, pushdown: str
) -> None:
    """Also where somebody else has switched on that sources are handed filters, and while messages are pushed."""
    chance = random.Random(seed)
    fill(store, chance)
    fill(store, chance)
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, pushdown)
    try:
        tables = [load(spark, store, way) for way in WAYS]
        copies = [load(spark, store, way).localCheckpoint() for way in WAYS]
        for step in range(STEPS):
            place, action, rest = chance.randrange(len(WAYS)), chance.choice(ACTIONS), chance.random()
            found = action(spark, tables[place], random.Random(rest))
            expected = action(spark, copies[place], random.Random(rest))
            assert found == expected, (step, WAYS[place], action.__name__)
            if chance.random() < 0.3:
                fill(store, chance)
        assert load(spark, store, "format").count() == len(store.pushed) > copies[0].count()
    finally:
        spark.conf.set(PUSHDOWN, str(before))


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_a_condition_of_one_query_stays_with_it(spark: SparkSession, store: Store, pushdown: str) -> None:
    store.push(*range(10), partition="A")
    store.push(*range(5), partition="B")
    spark.conf.set(PUSHDOWN, pushdown)
    try:
        table = store.table(spark)
        assert [table.count(), table.where("partition = 'A'").count(), table.count()] == [15, 10, 15]
    finally:
        spark.conf.unset(PUSHDOWN)


@pytest.mark.parametrize("way", WAYS)
def test_a_table_is_what_there_was_when_it_was_loaded(spark: SparkSession, store: Store, way: str) -> None:
    store.push({"id": 1})
    table = load(spark, store, way)
    store.push({"id": 2})
    assert table.count() == 1
    assert table.count() == 1
    assert load(spark, store, way).count() == 2
    assert table.where("partition = 'Default'").count() == 1


def test_a_snapshot_can_be_handed_to_a_table_that_is_loaded_later(spark: SparkSession, store: Store) -> None:
    """As over Spark Connect, where a DataFrame is loaded once more for a query."""
    store.push({"id": 1}, partition="A")
    store.push({"id": 2}, partition="B")
    for options in ({}, {"endingOffsets": '{"orders": {"A": 1}}'}, {"shape": "segments"}):
        taken = comment_of(store.table(spark, **options, snapshot="take").schema)
        store.push({"id": 3}, partition="A")
        assert store.table(spark, **options, snapshot=taken).count() == 2
        assert store.table(spark, snapshot=taken).where("partition = 'A'").count() == 1
        store.opened.queue("orders").delete()
        store.push({"id": 4}, partition="A")
        store.push({"id": 5}, partition="B")
        with pytest.raises(QUERY_ERRORS, match="orders was deleted and made again"):
            store.table(spark, **options, snapshot=taken).count()
    with pytest.raises(QUERY_ERRORS, match="there is no queue 'none'"):
        store.table(spark, "none", snapshot="take")
    for wrong in ("taken", "e30="):
        with pytest.raises(QUERY_ERRORS, match="option snapshot must be one that"):
            store.table(spark, snapshot=wrong).count()
    with pytest.raises(QUERY_ERRORS, match="option snapshot is for tables"):
        store.stream(spark, snapshot=taken).writeStream.format("noop").start().awaitTermination()


def test_a_pattern_names_the_queues_of_the_time_of_load(spark: SparkSession, store: Store) -> None:
    store.push(1)
    table = store.table(spark, "", pattern="*")
    store.push(2, queue="other")
    assert collect(table, "queue") == [("orders",)]
    assert store.table(spark, "", pattern="*").count() == 2


def test_a_table_whose_queue_was_not_there_says_so_however_late(spark: SparkSession, store: Store) -> None:
    table = store.table(spark)
    store.push(1)
    with pytest.raises(QUERY_ERRORS, match="there is no queue 'orders'"):
        table.count()
    assert store.table(spark).count() == 1


def test_what_retention_takes_from_a_loaded_table_is_told(spark: SparkSession, store: Store) -> None:
    store.push(1)
    table = store.table(spark)
    lenient = store.table(spark, failOnDataLoss=False)
    retain(store)
    store.push(2)
    with pytest.raises(QUERY_ERRORS, match="retention dropped records after LSN 0"):
        table.count()
    assert lenient.count() == 0
    assert store.table(spark).count() == 1


def test_a_session_keeps_its_settings_when_the_format_is_registered(spark: SparkSession, store: Store) -> None:
    for given in ("false", "true"):
        spark.conf.set(PUSHDOWN, given)
        register(spark)
        read(spark, store=store_with_one(store), queue="orders")
        assert spark.conf.get(PUSHDOWN) == given
    spark.conf.unset(PUSHDOWN)
    assert spark.conf.get(PUSHDOWN) == "false"


def store_with_one(store: Store) -> str:
    store.push(1)
    return store.address
