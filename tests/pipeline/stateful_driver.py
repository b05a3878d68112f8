"""A driver with a query that remembers: a join of two streams, then windows over it; run as a program of its own.

    python -m tests.pipeline.stateful_driver MASTER STORE FOLDER [PLACE,STEP,WHOM…]

Orders are joined with their payments, and those that were paid are summed up by customer and five minutes. Each death
that is told comes STEP micro-batches after those that are done, as `driver.py` has it: a query whose Python process is
killed fails, and is begun again from its checkpoint; one whose driver is killed has no more to say. STORE may be a
server; where its token is, the environment says.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.pipeline import payload, read_stream
from tests.pipeline.driver import ATTEMPTS, Death, DyingDataSource, batches_done, foretell, foretold, start
from tests.pipeline.store import QUERY_ERRORS

ORDERS, PAYMENTS, TOTALS = "orders", "payments", "totals"
RECORDS_PER_BATCH = 12
WATERMARK = "1 minute"
WINDOW_SECONDS = 300
PAID_WITHIN_SECONDS = 600
# One partition of state, and little compiled: micro-batches of a dozen records are to be many, not quick.
SETTINGS = {"spark.sql.codegen.wholeStage": "false", "spark.python.authenticate.socketTimeout": "120s"}


def paid_totals(spark: SparkSession, store: str) -> DataFrame:
    """The amounts of orders that were paid, by customer and window."""
    orders = _stream(spark, store, ORDERS, "id BIGINT, customer STRING, amount BIGINT, at BIGINT")
    payments = _stream(spark, store, PAYMENTS, "id BIGINT, at BIGINT").toDF("paid_id", "paid_at")
    orders, payments = orders.withWatermark("at", WATERMARK), payments.withWatermark("paid_at", WATERMARK)
    in_time = f"paid_at >= at AND paid_at <= at + INTERVAL {PAID_WITHIN_SECONDS} SECONDS"
    paid = orders.join(payments, f.expr(f"id = paid_id AND {in_time}"))
    windows = paid.groupBy(f.window("at", f"{WINDOW_SECONDS} seconds"), "customer")
    totals = windows.agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))
    start_of = f.col("window.start").cast("long").alias("start")
    return totals.select(payload(start_of, "customer", "orders", "amount"), f.col("customer").alias("partition"))


def _stream(spark: SparkSession, store: str, queue: str, schema: str) -> DataFrame:
    limit = {"maxOffsetsPerTrigger": RECORDS_PER_BATCH}
    rows = read_stream(spark, store=store, queue=queue, schema=schema, **limit).select("value.*")
    return rows.withColumn("at", f.timestamp_seconds("at"))


def run(totals: DataFrame, store: str, folder: Path) -> None:
    """Run the query until it has read what there is."""
    writer = totals.writeStream.format("headwater").options(store=store, queue=TOTALS).outputMode("append")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()


def main(master: str, store: str, place: str, *deaths: str) -> None:
    folder = Path(place)
    foretell(folder, None)
    spark = start(master, folder, brief=True, settings=SETTINGS)
    totals = paid_totals(spark, store)
    spark.dataSource.register(DyingDataSource)
    for told in deaths:
        where, step, whom = told.split(",")
        foretell(folder, Death(where, batches_done(folder) + int(step), whom))
        run_until_killed(totals, store, folder)
    foretell(folder, None)
    run(totals, store, folder)


def run_until_killed(totals: DataFrame, store: str, folder: Path) -> None:
    """Run the query until what was foretold has come, or there is no more to read.

    On a busy machine a query fails by itself, too: Spark waits some seconds for a Python process, and no longer.
    """
    for _ in range(ATTEMPTS):
        try:
            run(totals, store, folder)
        except QUERY_ERRORS as error:
            print(error, file=sys.stderr)
            if foretold() is not None:
                continue
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
