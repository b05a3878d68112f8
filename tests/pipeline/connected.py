"""A program that uses Spark over Spark Connect, run as one of its own: a process has one kind of session.

    python -m tests.pipeline.connected ADDRESS STORE FOLDER

It does what docs/spark.md says works there, and prints what it saw as JSON; what it wrote, the store has.
"""

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headwater.sync
from headwater.pipeline import payload, read, read_stream, register

SCHEMA = "customer STRING, amount BIGINT"
# More plans than a server keeps for a session (spark.connect.session.planCache.maxSize).
PLANS_KEPT = 32


def main(address: str, store: str, folder: str) -> None:
    spark = SparkSession.builder.remote(address).getOrCreate()
    register(spark)
    print(json.dumps({**keep_tables(spark, store), **use_tables(spark, store), "typo": misspell(spark, store)}))
    copy_as_a_stream(spark, store, folder)
    spark.stop()


def keep_tables(spark: SparkSession, store: str) -> dict[str, Any]:
    """Tables that are used when more was pushed since, and again when the server has forgotten their plans."""
    push_late(store)
    ways: list[dict[str, Any]] = [{}, {"schema": SCHEMA}, {"valueType": "variant"}]
    tables = [read(spark, store=store, queue="kept", **about) for about in ways]
    seen = []
    for _ in range(2):
        push_late(store)
        seen.append([table.count() for table in tables])
        for number in range(PLANS_KEPT + 1):
            assert spark.range(number).columns == ["id"]
    return {"kept": seen, "kept now": read(spark, store=store, queue="kept").count()}


def push_late(store: str) -> None:
    with headwater.sync.open(store, housekeeping=False) as hw:
        hw.queue("kept").push({"customer": "late", "amount": 1}, partition="p0")


def use_tables(spark: SparkSession, store: str) -> dict[str, Any]:
    """The same DataFrame more than once, typed, and by SQL."""
    plain = spark.read.format("headwater").options(store=store, queue="orders").load()
    counts = [plain.count(), plain.where("partition = 'p1'").count(), plain.count()]
    typed = read(spark, store=store, queue="orders", schema=SCHEMA)
    sums = typed.groupBy("value.customer").sum("value.amount").collect()
    spark.sql(f"CREATE TABLE orders USING headwater OPTIONS (store '{store}', queue 'orders')")
    spark.sql("INSERT INTO orders (value, partition) VALUES ('{}', 'sql')")
    rows = spark.sql("SELECT count(*) AS rows FROM orders").collect()
    return {"counts": counts, "sums": {row[0]: row[1] for row in sums}, "by SQL": rows[0]["rows"]}


def misspell(spark: SparkSession, store: str) -> str:
    try:
        spark.read.format("headwater").options(store=store, qeue="orders").load().count()
    except PySparkException as error:
        return str(error)
    return ""


def copy_as_a_stream(spark: SparkSession, store: str, folder: str) -> None:
    rows = read_stream(spark, store=store, queue="orders", schema=SCHEMA, maxOffsetsPerTrigger=5)
    writer = rows.select(payload("value.*")).writeStream.format("headwater").options(store=store, queue="copies")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
