"""Orders become hourly revenue, in a queue that a consumer reads.

    headwater pipeline run revenue:hourly_revenue        from this folder, with a store that has the queue `orders`
    headwater pop revenue --batch 10

An order is `{"customer": "ada", "amount": 12.5, "placed_at": "2026-11-15T08:30:00Z"}`. An hour is told when it is over
and a quarter of an hour more has been seen; what comes later than that is left out of it.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headwater.pipeline import flow


@flow(reads="orders", writes="revenue", schema="customer STRING, amount DOUBLE, placed_at TIMESTAMP")
def hourly_revenue(orders: DataFrame) -> DataFrame:
    """How many orders each hour had, and what they came to."""
    placed = orders.select("value.placed_at", "value.amount").withWatermark("placed_at", "15 minutes")
    hours = placed.groupBy(f.window("placed_at", "1 hour").alias("hour"))
    totals = hours.agg(f.count("*").alias("orders"), f.round(f.sum("amount"), 2).alias("revenue"))
    return totals.select(f.date_format("hour.start", "yyyy-MM-dd'T'HH:mm'Z'").alias("hour"), "orders", "revenue")
