"""The quick way to read: a row a segment travels, and Spark makes records of it in its own process.

    format("headwater")      a row a record: any query, any option
    read(spark, …)           the same columns; several times as fast with a schema

Payloads of plain types are typed where the log is read (`typed.py`); others, and variants, Spark takes from the text of
a segment. Without a schema a payload must stay the very text it was, and only Python cuts it out untouched.
"""

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from headwater.pipeline.options import FAILFAST, read_options
from headwater.pipeline.source import FORMAT, register
from headwater.pipeline.typed import typer_for

_OF_SEGMENT = ("queue", "partition", "first_offset", "lsn", "written_at")
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
    given = {name.lower(): _text(value) for name, value in options.items()}
    checked = read_options(given)
    given["store"] = checked.store
    given.pop("path", None)
    if checked.shape == "segments" or not (checked.schema or checked.value_type == "variant"):
        return _segments(reader, given)
    if checked.schema and typer_for(to_arrow_type(StructType.fromDDL(checked.schema), timezone="UTC")):
        return join(_segments(reader, {**given, "shape": "segments"}), checked.schema, checked.mode)
    # What is said of the payload is done here; the source only ships segments.
    about_payload = {"schema", "mode", "valuetype"}
    shipped = {name: value for name, value in given.items() if name not in about_payload}
    kind = f"STRUCT<{checked.schema}>" if checked.schema else "VARIANT"
    return split(_segments(reader, {**shipped, "shape": "segments"}), kind, checked.mode)


def _segments(reader: Any, options: dict[str, str]) -> DataFrame:
    loaded: DataFrame = reader.format(FORMAT).options(**options).load()
    return loaded


def join(segments: DataFrame, schema: str, mode: str = FAILFAST) -> DataFrame:
    """Segments whose payloads were typed where they were read, as records; Spark types the payloads of the others."""
    unfit = F.from_json("records", f"ARRAY<STRUCT<data STRUCT<{schema}>>>", {"mode": mode})["data"]
    values = F.posexplode(F.coalesce("payloads", unfit, _damaged())).alias("index", "value")
    rows = segments.select(*_OF_SEGMENT, "envelopes", values)
    return _records(rows, F.get("envelopes", "index"), "transaction_id", F.col("value"))


def split(segments: DataFrame, kind: str, mode: str = FAILFAST) -> DataFrame:
    """Segments as records, with their payloads of the type `kind`."""
    parsed = F.from_json("records", f"ARRAY<STRUCT<data {kind}, {_ENVELOPE}>>", {"mode": mode})
    # One expression, not a column that is exploded: a column would be copied once more.
    records = F.posexplode(F.coalesce(parsed, _damaged())).alias("index", "record")
    return _records(segments.select(*_OF_SEGMENT, records), F.col("record"), "transactionId", F.col("record.data"))


def _damaged() -> Column:
    """A segment that cannot be read at all must never pass for an empty one."""
    return F.raise_error(F.concat(F.lit("the records of segment "), "lsn", F.lit(" cannot be read")))


def _records(rows: DataFrame, envelope: Column, transaction_id: str, value: Column) -> DataFrame:
    return rows.select(
        "queue",
        "partition",
        (F.col("first_offset") + F.col("index")).alias("offset"),
        "lsn",
        envelope[transaction_id].alias("transaction_id"),
        envelope["type"].alias("type"),
        F.coalesce(F.timestamp_micros(envelope["timestamp"]), "written_at").alias("timestamp"),
        envelope["headers"].alias("headers"),
        value.alias("value"),
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
