"""A program that uses Spark over Spark Connect, run as one of its own: a process has one kind of session.

    python -m tests.pipeline.connected ADDRESS STORE FOLDER

It does what docs/spark.md says works there, and prints what it saw as JSON; what it wrote, the store has.
"""

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.pipeline import payload, read, read_stream, register

SCHEMA = "customer STRING, amount BIGINT"


def main(address: str, store: str, folder: str) -> None:
    spark = SparkSession.builder.remote(address).getOrCreate()
    register(spark)
    print(json.dumps({**use_tables(spark, store), "typo": misspell(spark, store)}))
    copy_as_a_stream(spark, store, folder)
    spark.stop()


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
