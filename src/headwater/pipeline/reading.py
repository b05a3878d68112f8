"""The quick way to read: payloads that fit a schema travel typed, and Spark types only what does not.

    format("headwater")      a row a record: any query, any option
    read(spark, …)           the same columns; several times as fast with a schema
    read_stream(spark, …)    the same as a stream

A table travels as a row a segment, which Spark takes apart with less work than rows that each may have to be typed; a
stream as a row a record, because Spark counts rows for who watches it.

Payloads of plain types are typed where the log is read (`typed.py`); others Spark takes from their texts, and variants
from the text of a segment. Without a schema a payload must stay the very text it was, and only Python cuts it out
untouched.
"""

from collections.abc import Iterator
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StringType, StructType

from headwater.errors import InvalidOption, InvalidPayload
from headwater.filters.spark import parse_for_payloads, to_column
from headwater.pipeline.columns import SHOWN_BYTES_MAX, comment_of
from headwater.pipeline.ddl import ONE
from headwater.pipeline.options import (
    FAILFAST,
    PERMISSIVE,
    SEGMENTS,
    SEGMENTS_UTC,
    TAKE,
    TYPED,
    TYPED_UTC,
    ReadOptions,
    read_options,
)
from headwater.pipeline.source import FORMAT, is_connected, register
from headwater.pipeline.spelling import json_of
from headwater.pipeline.typed import typer_for
from headwater.pipeline.zones import SETTING, is_utc

# Where Spark puts a payload that it could not type; no payload has a field of this name.
_UNFIT = "headwater_unfit"
_OF_SEGMENT = ("queue", "partition", "first_offset", "lsn", "written_at")
_ENVELOPE = "transactionId STRING, traceId STRING, type STRING, headers MAP<STRING, STRING>, timestamp BIGINT"


class Typing(NamedTuple):
    """How payloads are typed: the schema, what becomes of one that does not fit, and which field then has its text."""

    schema: str
    mode: str = FAILFAST
    corrupt_column: str = ""


def read(spark: SparkSession, **options: Any) -> DataFrame:
    """Records of the log as a table; options are those of the format, by name.

    >>> read(spark, store="headwater.db", queue="orders", schema="customer STRING, amount DOUBLE")
    """
    return _load(spark.read, spark, options, stream=False)


def read_stream(spark: SparkSession, **options: Any) -> DataFrame:
    """Records of the log as a stream; options are those of the format, by name.

    >>> read_stream(spark, store="headwater.db", queue="orders", schema="customer STRING, amount DOUBLE")
    """
    return _load(spark.readStream, spark, options, stream=True)


def payload(*columns: "Column | str") -> Column:
    """Columns as the JSON payload of a record, for a write; all of them when none is named.

    >>> totals.select(payload()).write.format("headwater").option("store", …).option("queue", "totals")
    """
    return json_of(F.struct(*(columns or ("*",)))).alias("value")


def matches(text: str, column: "Column | str" = "value") -> Column:
    """Whether payloads are meant by a filter, in the language of live queries; `column` has their JSON text.

    >>> orders.where(matches("amount > 10 && customer in ['ada', 'bob']"))
    """
    return to_column(parse_for_payloads(text), F.col(column) if isinstance(column, str) else column)


def _load(reader: Any, spark: SparkSession, options: dict[str, Any], *, stream: bool) -> DataFrame:
    register(spark)
    given = {name.lower(): _text(value) for name, value in options.items()}
    checked = read_options(given)
    given["store"] = checked.store
    given.pop("path", None)
    if not stream and not checked.snapshot and is_connected(spark):
        given["snapshot"] = _take_snapshot(spark, given)
    if checked.is_segments or not (checked.schema or checked.value_type == "variant"):
        return _segments(reader, given)
    if not checked.schema and not stream:
        # What is said of the payload is done here; the source only ships segments.
        shipped = {name: value for name, value in given.items() if name != "valuetype"}
        return split(_segments(reader, {**shipped, "shape": SEGMENTS}), "VARIANT")
    if not checked.schema:
        return _segments(reader, given)
    typing = Typing(checked.schema, checked.mode, checked.corrupt_column)
    # Spark's own typing of a time without a zone is fixed here, too: by the zone that the session has now.
    utc = is_utc(spark.conf.get(SETTING) or "")
    # Spark counts rows where they come in, and who watches a stream counts messages.
    if stream or not _is_plain(checked):
        return finish(_segments(reader, {**given, "shape": TYPED_UTC if utc else TYPED}), typing)
    return join(_segments(reader, {**given, "shape": SEGMENTS_UTC if utc else SEGMENTS}), typing)


def _take_snapshot(spark: SparkSession, options: dict[str, str]) -> str:
    """The snapshot of a table over Spark Connect, taken where its server runs and handed out with the columns.

    Such a DataFrame is a plan that is sent anew with each query. Its server loads the table again when it has not kept
    that plan, and keeps a few.
    """
    return comment_of(_segments(spark.read, {**options, "snapshot": TAKE}).schema)


def _is_plain(options: ReadOptions) -> bool:
    """Whether payloads of the schema are typed where they are read, so that segments are worth shipping."""
    kind = to_arrow_type(_struct(options.schema), timezone="UTC")
    return typer_for(kind, corrupt=options.corrupt_column) is not None


def _segments(reader: Any, options: dict[str, str]) -> DataFrame:
    loaded: DataFrame = reader.format(FORMAT).options(**options).load()
    return loaded


def join(segments: DataFrame, typing: Typing) -> DataFrame:
    """Segments whose payloads were typed where they were read, as records; Spark types the payloads of the others."""
    unfit = F.transform("texts", lambda text, index: parse(text, F.col("first_offset") + index, typing))
    values = F.posexplode(F.coalesce("payloads", unfit, _damaged())).alias("index", "value")
    rows = segments.select(*_OF_SEGMENT, "envelopes", values)
    return _records(rows, F.get("envelopes", "index"), ("transaction_id", "trace_id"), F.col("value"))


def finish(rows: DataFrame, typing: Typing) -> DataFrame:
    """Records whose payloads were typed where they were read, or are texts that Spark types."""
    others = [F.col(name) for name in rows.columns if name not in ("value", "unfit")]
    value = F.coalesce("value", parse(F.col("unfit"), F.col("offset"), typing)).alias("value")
    typed = rows.select(*others, value)
    if typing.mode != FAILFAST:
        return typed
    # Spark leaves out a column that a query does not ask for, and with it the error; what is exploded it keeps. In a
    # step of its own: within one, Spark would parse a text as often as it is spoken of.
    return typed.select(*others, F.explode(F.array("value")).alias("value"))


def parse(text: Column, offset: Column, typing: Typing) -> Column:
    """A payload typed by Spark. Where it does not fit: an error that says which record it is, or what fits of it."""
    wrapped = F.concat(F.lit('{"value":'), text, F.lit("}"))
    options = {"mode": PERMISSIVE, "columnNameOfCorruptRecord": _UNFIT}
    found = F.from_json(wrapped, f"value STRUCT<{typing.schema}>, {_UNFIT} STRING", options)
    kind = _struct(typing.schema)
    value = found["value"]
    has_corrupt = typing.corrupt_column in kind.fieldNames() and kind[typing.corrupt_column].dataType == StringType()
    if has_corrupt:
        # What the payload itself has under this name says nothing about it.
        value = value.withField(f"`{typing.corrupt_column}`", F.lit(None).cast("string"))
    # A payload that is null is a bad record, as a line of a file is that Spark reads.
    fits = reduce(and_, _required(value, kind), found[_UNFIT].isNull() & value.isNotNull())
    if typing.mode == FAILFAST:
        return F.when(fits, value).otherwise(_unfit(text, offset))
    if not has_corrupt:
        return value
    nothing = F.from_json(F.lit("{}"), f"STRUCT<{typing.schema}>")
    return F.when(fits, value).otherwise(F.coalesce(value, nothing).withField(f"`{typing.corrupt_column}`", text))


def _required(value: Column, kind: StructType) -> Iterator[Column]:
    """That fields are there which must be: Spark itself takes NOT NULL for a promise, and keeps it with nothing."""
    for field in kind.fields:
        if not field.nullable:
            yield value.isNull() | value[field.name].isNotNull()
        if isinstance(field.dataType, StructType):
            yield from _required(value[field.name], field.dataType)


def _struct(schema: str) -> StructType:
    try:
        kind = StructType.fromDDL(schema)
    except PySparkException as error:
        line = str(error).strip().splitlines()[0]
        raise InvalidOption(f"option schema cannot be used: {line}; {ONE}") from error
    assert isinstance(kind, StructType)
    return kind


def _unfit(text: Column, offset: Column) -> Column:
    """The same words as the format's own, and so that `failures.py` knows them for an error of ours."""
    where = F.concat(F.lit("record "), offset, F.lit(" of "), F.col("queue"), F.lit("/"), F.col("partition"))
    shown = F.substring(text, 1, SHOWN_BYTES_MAX)
    said = F.concat(F.lit(" does not fit the schema: "), shown, F.lit("; mode=PERMISSIVE gives a null for it"))
    return F.raise_error(F.concat(F.lit(f"{InvalidPayload.__module__}.{InvalidPayload.__name__}: "), where, said))


def split(segments: DataFrame, kind: str, mode: str = FAILFAST) -> DataFrame:
    """Segments as records, with their payloads of the type `kind`."""
    parsed = F.from_json("records", f"ARRAY<STRUCT<data {kind}, {_ENVELOPE}>>", {"mode": mode})
    # One expression, not a column that is exploded: a column would be copied once more.
    records = F.posexplode(F.coalesce(parsed, _damaged())).alias("index", "record")
    ids = ("transactionId", "traceId")
    return _records(segments.select(*_OF_SEGMENT, records), F.col("record"), ids, F.col("record.data"))


def _damaged() -> Column:
    """A segment that cannot be read at all must never pass for an empty one."""
    return F.raise_error(F.concat(F.lit("the records of segment "), "lsn", F.lit(" cannot be read")))


def _records(rows: DataFrame, envelope: Column, ids: tuple[str, str], value: Column) -> DataFrame:
    return rows.select(
        "queue",
        "partition",
        (F.col("first_offset") + F.col("index")).alias("offset"),
        "lsn",
        envelope[ids[0]].alias("transaction_id"),
        envelope[ids[1]].alias("trace_id"),
        envelope["type"].alias("type"),
        F.coalesce(F.timestamp_micros(envelope["timestamp"]), "written_at").alias("timestamp"),
        envelope["headers"].alias("headers"),
        value.alias("value"),
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
