"""A driver with a query that remembers: a join of two streams, then windows over it; run as a program of its own.

    python -m tests.pipeline.stateful_driver MASTER STORE FOLDER [PLACE BATCH]

Orders are joined with their payments, and those that were paid are summed up by customer and five minutes. It dies
where it is told, as `driver.py` does. STORE may be a server; where its token is, the environment says.
"""

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.pipeline import payload, read_stream, start_session
from tests.pipeline.driver import BATCH, FOLDER, PLACE, DyingDataSource

ORDERS, PAYMENTS, TOTALS = "orders", "payments", "totals"
RECORDS_PER_BATCH = 30
WATERMARK = "1 minute"
WINDOW_SECONDS = 300
PAID_WITHIN_SECONDS = 600


def paid_totals(spark: SparkSession, store: str) -> DataFrame:
    """The amounts of orders that were paid, by customer and window."""
    orders = _stream(spark, store, ORDERS, "id BIGINT, customer STRING, amount BIGINT, at BIGINT")
    payments = _stream(spark, store, PAYMENTS, "id BIGINT, at BIGINT").toDF("paid_id", "paid_at")
    orders, payments = orders.withWatermark("at", WATERMARK), payments.withWatermark("paid_at", WATERMARK)
    in_time = f"paid_at >= at AND paid_at <= at + INTERVAL {PAID_WITHIN_SECONDS} SECONDS"
    paid = orders.join(payments, f.expr(f"id = paid_id AND {in_time}"))
    windows = paid.groupBy(f.window("at", f"{WINDOW_SECONDS} seconds"), "customer")
    totals = windows.agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))
    start = f.col("window.start").cast("long").alias("start")
    return totals.select(payload(start, "customer", "orders", "amount"), f.col("customer").alias("partition"))


def _stream(spark: SparkSession, store: str, queue: str, schema: str) -> DataFrame:
    limit = {"maxOffsetsPerTrigger": RECORDS_PER_BATCH}
    rows = read_stream(spark, store=store, queue=queue, schema=schema, **limit).select("value.*")
    return rows.withColumn("at", f.timestamp_seconds("at"))


def main(master: str, store: str, folder: str, place: str = "", batch: str = "-1") -> None:
    os.environ.update({FOLDER: folder, PLACE: place, BATCH: batch})
    spark = start_session(master, log=Path(folder) / "spark.log")
    jvm: Any = spark._jvm
    (Path(folder) / "driver.pid").write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    totals = paid_totals(spark, store)
    spark.dataSource.register(DyingDataSource)
    writer = totals.writeStream.format("headwater").options(store=store, queue=TOTALS).outputMode("append")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
