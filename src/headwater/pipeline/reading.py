"""The quick way to read: segments travel whole, and Spark splits and types them in its own process.

    format("headwater")      a row a record, split in Python: any query, any option
    read(spark, …)           the same columns; typed payloads about twice as fast

Without a schema a payload must stay the very text it was, and only Python cuts it out untouched.
"""

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.pipeline.options import FAILFAST, read_options
from headwater.pipeline.source import FORMAT, register

_ENVELOPE = "transactionId STRING, type STRING, headers MAP<STRING, STRING>, timestamp BIGINT"


def read(spark: SparkSession, **options: Any) -> DataFrame:
    """Records of the log as a table; options are those of the format, by name.

    >>> read(spark, store="headwater.db", queue="orders", schema="customer STRING, amount DOUBLE")
    """
    return _load(spark.read, spark, options)


def read_stream(spark: SparkSession, **options: Any) -> DataFrame:
    """Records of the log as a stream; options are those of the format, by name.

    >>> read_stream(spark, store="headwater.db", queue="orders", schema="customer STRING, amount DOUBLE")
    """
    return _load(spark.readStream, spark, options)


def payload(*columns: "Column | str") -> Column:
    """Columns as the JSON payload of a record, for a write; all of them when none is named.

    >>> totals.select(payload()).write.format("headwater").option("store", …).option("queue", "totals")
    """
    return F.to_json(F.struct(*(columns or ("*",)))).alias("value")


def _load(reader: Any, spark: SparkSession, options: dict[str, Any]) -> DataFrame:
    register(spark)
    given = {name: _text(value) for name, value in options.items()}
    checked = read_options({name.lower(): value for name, value in given.items()})
    kind = f"STRUCT<{checked.schema}>" if checked.schema else "VARIANT"
    if checked.shape == "segments" or not (checked.schema or checked.value_type == "variant"):
        loaded: DataFrame = reader.format(FORMAT).options(**given).load()
        return loaded
    # What is said of the payload is done here; the source only ships segments.
    about_payload = {"schema", "mode", "valuetype"}
    shipped = {name: value for name, value in given.items() if name.lower() not in about_payload}
    return split(reader.format(FORMAT).options(**shipped, shape="segments").load(), kind, checked.mode)


def split(segments: DataFrame, kind: str, mode: str = FAILFAST) -> DataFrame:
    """Segments as records, with their payloads of the type `kind`."""
    parsed = F.from_json("records", f"ARRAY<STRUCT<data {kind}, {_ENVELOPE}>>", {"mode": mode})
    # A segment that cannot be read at all must never pass for an empty one.
    damaged = F.raise_error(F.concat(F.lit("the records of segment "), "lsn", F.lit(" cannot be read")))
    # One expression, not a column that is exploded: a column would be copied once more.
    records = F.posexplode(F.coalesce(parsed, damaged)).alias("index", "record")
    rows = segments.select("queue", "partition", "first_offset", "lsn", "written_at", records)
    return rows.select(
        "queue",
        "partition",
        (F.col("first_offset") + F.col("index")).alias("offset"),
        "lsn",
        F.col("record.transactionId").alias("transaction_id"),
        F.col("record.type").alias("type"),
        F.coalesce(F.timestamp_micros("record.timestamp"), "written_at").alias("timestamp"),
        F.col("record.headers").alias("headers"),
        F.col("record.data").alias("value"),
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
