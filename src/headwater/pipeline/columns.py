"""Segments as columns: one row a record, or one row a segment with its records unsplit.

Segments are cheaper: Spark splits and types them in its own process (`reading.py`). Rows are what
`spark.read.format("headwater")` gives to everybody.
"""

import io
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, VariantVal

from headwater.errors import InvalidOption, InvalidPayload, StoreDamaged
from headwater.model.record import Record, split_records
from headwater.pipeline.options import FAILFAST, ReadOptions
from headwater.pipeline.selection import Selection
from headwater.stores.log_reader import Body

LOG_COLUMNS = (
    "queue STRING, partition STRING, offset BIGINT, lsn BIGINT, transaction_id STRING, type STRING, "
    "timestamp TIMESTAMP, headers MAP<STRING, STRING>"
)
SEGMENT_COLUMNS = (
    "queue STRING, partition STRING, first_offset BIGINT, count BIGINT, lsn BIGINT, written_at TIMESTAMP, "
    "records STRING"
)
SHOWN_BYTES_MAX = 80


def columns(options: ReadOptions) -> str:
    """The columns of a read, as Spark writes a schema."""
    if options.shape == "segments":
        return SEGMENT_COLUMNS
    value = f"STRUCT<{options.schema}>" if options.schema else options.value_type.upper()
    return f"{LOG_COLUMNS}, value {value}"


def check_schema(options: ReadOptions, schema: StructType) -> None:
    """Raises when `.schema(…)` asked for other columns than there are."""
    expected = [part.split()[0] for part in SEGMENT_COLUMNS.split(", ")]
    if options.shape == "records":
        expected = ["queue", "partition", "offset", "lsn", "transaction_id", "type", "timestamp", "headers", "value"]
    if schema.fieldNames() != expected:
        raise InvalidOption(
            f"the columns are {', '.join(expected)}; to type the payload use .option('schema', …), not .schema(…)"
        )


class Rows:
    """Makes Arrow batches of segments, in the shape that the options and the schema ask for."""

    def __init__(self, options: ReadOptions, schema: StructType, selection: Selection) -> None:
        self._options = options
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._selection = selection

    def batch(self, bodies: Iterable[Body]) -> pa.RecordBatch | None:
        """The rows of some segments; None when none is wanted."""
        wanted = [
            body
            for body in bodies
            if self._selection.lsn.holds(body.lsn) and self._selection.wants(body.lane.queue, body.lane.partition)
        ]
        if not wanted:
            return None
        return self._segments(wanted) if self._options.shape == "segments" else self._records(wanted)

    def _segments(self, bodies: list[Body]) -> pa.RecordBatch:
        return self._arrow(
            [
                [body.lane.queue for body in bodies],
                [body.lane.partition for body in bodies],
                [body.first_offset for body in bodies],
                [body.count for body in bodies],
                [body.lsn for body in bodies],
                [body.written_at for body in bodies],
                _texts([body.records for body in bodies]),
            ]
        )

    def _records(self, bodies: list[Body]) -> pa.RecordBatch | None:
        places: list[tuple[Body, int]] = []
        records: list[Record] = []
        for body in bodies:
            found = split_records(body.records)
            if len(found) != body.count:
                raise StoreDamaged(f"segment {body.lsn} has {len(found)} records; its row says {body.count}")
            chosen = self._chosen(body, found)
            places += [(body, index) for index in chosen]
            records += found if len(chosen) == len(found) else [found[index] for index in chosen]
        if not records:
            return None
        return self._arrow(
            [
                [body.lane.queue for body, _ in places],
                [body.lane.partition for body, _ in places],
                [body.first_offset + index for body, index in places],
                [body.lsn for body, _ in places],
                [record.transaction_id or None for record in records],
                [record.type or None for record in records],
                [record.timestamp or place[0].written_at for place, record in zip(places, records, strict=True)],
                [None if record.headers is None else list(record.headers.items()) for record in records],
                self._values([bytes(record.data) for record in records], places),
            ]
        )

    def _chosen(self, body: Body, records: list[Record]) -> Sequence[int]:
        """Which records of a segment are wanted, by their place in it."""
        offset, time = self._selection.offset, self._selection.timestamp
        low = max(offset.low - body.first_offset, 0)
        high = min(offset.high - body.first_offset + 1, len(records))
        if time == Selection().timestamp:
            return range(low, max(high, low))
        return [index for index in range(low, high) if time.holds(records[index].timestamp or body.written_at)]

    def _values(self, payloads: list[bytes], places: list[tuple[Body, int]]) -> pa.Array:
        if self._options.schema:
            return self._typed(payloads, places)
        if self._options.value_type == "variant":
            return _variants(payloads, self._schema.field("value").type)
        return _texts(payloads)

    def _typed(self, payloads: list[bytes], places: list[tuple[Body, int]]) -> pa.Array:
        """Payloads as structs. Those that do not fit are found by halving: they are few."""
        kind = self._schema.field("value").type
        try:
            return typed(payloads, kind)
        except pa.ArrowInvalid as error:
            if len(payloads) > 1:
                middle = len(payloads) // 2
                halves = (slice(None, middle), slice(middle, None))
                return pa.concat_arrays([self._typed(payloads[half], places[half]) for half in halves])
            if self._options.mode == FAILFAST:
                body, index = places[0]
                raise InvalidPayload(
                    f"record {body.first_offset + index} of {body.lane.queue}/{body.lane.partition} does not fit the "
                    f"schema ({error}): {payloads[0][:SHOWN_BYTES_MAX]!r}; mode=PERMISSIVE gives a null for it"
                ) from error
            return pa.nulls(1, kind)

    def _arrow(self, values: list[Any]) -> pa.RecordBatch:
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(values, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def typed(payloads: list[bytes], kind: pa.DataType) -> pa.Array:
    """Payloads as values of an Arrow type; raises ArrowInvalid when one does not fit."""
    lines = b'{"value":' + b'}\n{"value":'.join(payloads) + b"}"
    parse = arrow_json.ParseOptions(
        explicit_schema=pa.schema([("value", _readable(kind))]),
        unexpected_field_behavior="ignore",
        # A payload may be written over several lines.
        newlines_in_values=True,
    )
    read = arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    try:
        table = arrow_json.read_json(io.BytesIO(lines), read_options=read, parse_options=parse)
    except pa.ArrowNotImplementedError as error:
        raise InvalidOption(
            f"the format cannot read this type from JSON ({error}); headwater.pipeline.read(spark, …) can"
        ) from error
    return table.column("value").combine_chunks().cast(kind)


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type under which Arrow reads a value from JSON: it knows times, but no dates."""
    if pa.types.is_date(kind):
        return pa.timestamp("s")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _readable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type))
    return kind


def _texts(texts: list[bytes]) -> pa.Array:
    """JSON is UTF-8, and the log checked it when it was pushed: nothing is decoded."""
    return pa.array(texts, pa.binary()).view(pa.string())


def _variants(payloads: list[bytes], kind: pa.DataType) -> pa.Array:
    parsed = [VariantVal.parseJson(payload.decode()) for payload in payloads]
    return pa.array([{"value": value.value, "metadata": value.metadata} for value in parsed], kind)
