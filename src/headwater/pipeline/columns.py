"""Segments as columns: one row a record, or one row a segment with its records unsplit.

Segments are cheaper: Spark splits and types them in its own process (`reading.py`). Rows are what
`spark.read.format("headwater")` gives to everybody.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, tzinfo
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, VariantVal

from headwater.errors import InvalidOption, InvalidPayload, StoreDamaged
from headwater.model.record import Record, split_records
from headwater.pipeline.ddl import required_fields, without_required
from headwater.pipeline.options import FAILFAST, PERMISSIVE, RECORDS, ReadOptions
from headwater.pipeline.typed import (
    ENVELOPE,
    Fitting,
    Typer,
    Unspelled,
    envelope_column,
    list_column,
    split_envelopes,
    typer_for,
)
from headwater.pipeline.values import Values
from headwater.stores.log_reader import Body

LOG_COLUMNS = (
    "queue STRING, partition STRING, offset BIGINT, lsn BIGINT, transaction_id STRING, trace_id STRING, type STRING, "
    "timestamp TIMESTAMP, headers MAP<STRING, STRING>"
)
SEGMENT_COLUMNS = (
    "queue STRING, partition STRING, first_offset BIGINT, count BIGINT, lsn BIGINT, written_at TIMESTAMP, "
    "records STRING"
)
# With a schema: typed payloads where all of a segment fit, else the text of its records; and what records say of
# themselves, if any does.
TYPED_COLUMNS = (
    "envelopes ARRAY<STRUCT<transaction_id STRING, trace_id STRING, type STRING, timestamp BIGINT, "
    "headers MAP<STRING, STRING>>>, "
    "payloads ARRAY<STRUCT<{schema}>>, texts ARRAY<STRING>"
)
SHOWN_BYTES_MAX = 80
LOG_COLUMN_COUNT = 9
# What is decoded is made columns of while it is in the processor's cache.
RECORDS_PER_BATCH = 4_000


def columns(options: ReadOptions, kept: str = "") -> str:
    """The columns of a read, as Spark writes a schema; `kept` is what the first one's comment is to keep."""
    found = _columns(options)
    return found.replace("queue STRING", f"queue STRING COMMENT '{kept}'", 1) if kept else found


def comment_of(schema: StructType) -> str:
    """What the comment of the first column has kept."""
    return str(schema.fields[0].metadata.get("comment", "")) if schema.fields else ""


def _columns(options: ReadOptions) -> str:
    if options.is_segments:
        typed = f", {TYPED_COLUMNS.format(schema=options.schema)}" if options.schema else ""
        return SEGMENT_COLUMNS + typed
    # What does not fit leaves the fields of its row empty, whatever must be there in what does.
    schema = without_required(options.schema) if _may_be_unfit(options) else options.schema
    value = f"STRUCT<{schema}>" if options.schema else options.value_type.upper()
    return f"{LOG_COLUMNS}, value {value}{', unfit STRING' if options.is_typed else ''}"


def _may_be_unfit(options: ReadOptions) -> bool:
    """Whether payloads that do not fit are rows, too."""
    return options.mode == PERMISSIVE and options.shape == RECORDS


def check_schema(options: ReadOptions, schema: StructType) -> None:
    """Raises when `.schema(…)` asked for other columns than there are."""
    if options.is_segments:
        expected = [part.split()[0] for part in SEGMENT_COLUMNS.split(", ")]
        expected += ["envelopes", "payloads", "texts"] if options.schema else []
    else:
        expected = [*(part.split()[0] for part in LOG_COLUMNS.replace("STRING, STRING", "").split(", ")), "value"]
        expected += ["unfit"] if options.is_typed else []
    if schema.fieldNames() != expected:
        raise InvalidOption(
            f"the columns are {', '.join(expected)}; to type the payload use .option('schema', …), not .schema(…)"
        )


class Rows:
    """Makes Arrow batches of segments, in the shape that the options and the schema ask for.

    Times without a zone are those of `zone`; who asks for another shape than records says it there.
    """

    def __init__(self, options: ReadOptions, schema: StructType, zone: tzinfo | None) -> None:
        self._options = options
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._typer = self._values = None
        if options.schema:
            kind = self._schema.field("payloads").type.value_type if options.is_segments else self._value_type()
            here = options.shape == RECORDS
            corrupt = options.corrupt_column
            required = required_fields(options.schema) - {corrupt}
            utc = zone is UTC if here else options.is_utc
            self._typer = typer_for(kind, utc=utc, corrupt=corrupt, required=required)
            self._values = Values(kind, zone, corrupt, required) if here else None

    def _value_type(self) -> pa.DataType:
        return self._schema.field("value").type

    def batches(self, bodies: list[Body]) -> Iterator[pa.RecordBatch]:
        """The rows of some segments, in batches."""
        begin = records = 0
        for end, body in enumerate(bodies, 1):
            records += body.count
            if records >= RECORDS_PER_BATCH or end == len(bodies):
                yield self.batch(bodies[begin:end])
                begin, records = end, 0

    def batch(self, bodies: list[Body]) -> pa.RecordBatch:
        """The rows of some segments, of which there is one at least."""
        return self._segments(bodies) if self._options.is_segments else self._records(bodies)

    def _segments(self, bodies: list[Body]) -> pa.RecordBatch:
        columns = [
            [body.lane.queue for body in bodies],
            [body.lane.partition for body in bodies],
            [body.first_offset for body in bodies],
            [body.count for body in bodies],
            [body.lsn for body in bodies],
            [body.written_at for body in bodies],
        ]
        if not self._options.schema:
            return self._arrow([*columns, _texts([body.records for body in bodies])])
        return self._arrow([*columns, *self._typed_segments(bodies)])

    def _typed_segments(self, bodies: list[Body]) -> list[pa.Array]:
        """Segments whose payloads fit are typed here; of the others Spark gets the text, and types it by its rules."""
        fits, parts = self._fit(bodies)
        texts = [body.records if fit is None else None for body, fit in zip(bodies, fits, strict=True)]
        said = [
            split_envelopes(body.records) if fit is None else None if fit.bare else fit.records
            for body, fit in zip(bodies, fits, strict=True)
        ]
        each = [_payloads(_split(body)) if fit is None else None for body, fit in zip(bodies, fits, strict=True)]
        kind = self._schema.field("payloads").type
        payloads = [None if fit is None else fit.records for fit in fits]
        return [
            _texts(texts),
            list_column(said, self._schema.field("envelopes").type, envelope_column),
            list_column(payloads, kind, lambda *_: pa.concat_arrays([pa.nulls(0, kind.value_type), *parts])),
            list_column(each, self._schema.field("texts").type, lambda found, _: _texts(found)),
        ]

    def _fit(self, bodies: list[Body]) -> tuple[list[Fitting | None], list[pa.Array]]:
        """The segments whose payloads fit, decoded, and the column of those payloads in parts."""
        typer = self._typer
        if typer is None:
            return [None] * len(bodies), []
        fits = [typer.decode(body.records) for body in bodies]
        for body, fit in zip(bodies, fits, strict=True):
            if fit is not None:
                _check_count(body, fit.records)
        try:
            return fits, [typer.column(list(chain.from_iterable(fit.records for fit in fits if fit is not None)))]
        except Unspelled:
            columns = [None if fit is None else _column(typer, fit) for fit in fits]
            spelled = [fit if column is not None else None for fit, column in zip(fits, columns, strict=True)]
            return spelled, [column for column in columns if column is not None]

    def _records(self, bodies: list[Body]) -> pa.RecordBatch:
        fits, parts = self._fit(bodies)
        fitting = [fit for fit in fits if fit is not None]
        whole = len(fitting) == len(bodies)
        if whole or self._options.is_typed:
            split = [_split(body) if fit is None else fit.records for body, fit in zip(bodies, fits, strict=True)]
        else:
            split = list(map(_split, bodies))
        records = list(chain.from_iterable(split))
        bare = whole and all(fit.bare for fit in fitting)
        segment = np.repeat(np.arange(len(bodies)), [body.count for body in bodies])
        written_at = self._each("timestamp", [body.written_at for body in bodies], segment)
        return self._arrow(
            [
                self._each("queue", [body.lane.queue for body in bodies], segment),
                self._each("partition", [body.lane.partition for body in bodies], segment),
                np.concatenate([np.arange(body.first_offset, body.first_offset + body.count) for body in bodies]),
                self._each("lsn", [body.lsn for body in bodies], segment),
                *self._envelope_columns(records, written_at, bare),
                *self._payload_columns(bodies, fits, parts, split),
            ]
        )

    def _each(self, name: str, values: list[Any], segment: "np.ndarray[Any, Any]") -> pa.Array:
        """What holds for a whole segment, once for each of its records."""
        return pa.array(values, self._schema.field(name).type).take(pa.array(segment))

    def _envelope_columns(self, records: list[Any], written_at: pa.Array, bare: bool) -> list[Any]:
        """What records say of themselves: transaction and trace ids, types, times and headers."""
        if bare:
            nothing = {name: pa.nulls(len(records), self._schema.field(name).type) for name in ENVELOPE}
            return [nothing["transaction_id"], nothing["trace_id"], nothing["type"], written_at, nothing["headers"]]
        own = pa.array([record.timestamp or None for record in records], written_at.type)
        return [
            [record.transaction_id or None for record in records],
            [record.trace_id or None for record in records],
            [record.type or None for record in records],
            own.fill_null(written_at),
            [None if record.headers is None else list(record.headers.items()) for record in records],
        ]

    def _payload_columns(
        self, bodies: list[Body], fits: "list[Fitting | None]", parts: list[pa.Array], split: list[list[Any]]
    ) -> list[pa.Array]:
        """The payloads: typed here, or of those that do not fit the texts, for whoever types them."""
        kind = self._value_type()
        count = sum(map(len, split))
        if None not in fits:
            value = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
            return [value, pa.nulls(count, pa.string())][: len(self._schema) - LOG_COLUMN_COUNT]
        if not self._options.is_typed:
            return [self._payload_values(bodies, list(chain.from_iterable(split)))]
        texts: list[bytes | None] = []
        places: list[np.ndarray[Any, Any]] = []
        taken = 0
        for fit, found in zip(fits, split, strict=True):
            texts += _payloads(found) if fit is None else [None] * len(found)
            places.append(np.full(len(found), -1) if fit is None else np.arange(taken, taken + len(found)))
            taken += 0 if fit is None else len(found)
        place = np.concatenate(places)
        fitting = pa.concat_arrays([pa.nulls(0, kind), *parts])
        return [fitting.take(pa.array(place, pa.int64(), mask=place < 0)), _texts(texts)]

    def _payload_values(self, bodies: list[Body], records: list[Any]) -> pa.Array:
        payloads = _payloads(records)
        if self._values is not None:
            return self._values.column(payloads, self._refusal(bodies, payloads))
        if self._options.value_type == "variant":
            return _variants(payloads, self._value_type())
        return _texts(payloads)

    def _refusal(self, bodies: list[Body], payloads: list[bytes]) -> Callable[[int, str], None]:
        """What is done about a payload that does not fit, by its place: an error that names it, or nothing."""

        def refuse(place: int, reason: str) -> None:
            if self._options.mode != FAILFAST:
                return
            body, index = next(islice(((body, index) for body in bodies for index in range(body.count)), place, None))
            raise InvalidPayload(
                f"record {body.first_offset + index} of {body.lane.queue}/{body.lane.partition} does not fit the "
                f"schema ({reason}): {payloads[place][:SHOWN_BYTES_MAX]!r}; mode=PERMISSIVE gives a null for it"
            )

        return refuse

    def _arrow(self, values: list[Any]) -> pa.RecordBatch:
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(values, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _column(typer: Typer, fit: Fitting) -> pa.Array | None:
    """The payloads of a segment; None when Spark must read a time among them."""
    try:
        return typer.column(fit.records)
    except Unspelled:
        return None


def _payloads(records: list[Any]) -> list[bytes]:
    return [bytes(record.data) for record in records]


def _split(body: Body) -> list[Record]:
    found = split_records(body.records)
    _check_count(body, found)
    return found


def _check_count(body: Body, records: list[Any]) -> None:
    if len(records) != body.count:
        raise StoreDamaged(f"segment {body.lsn} has {len(records)} records; its row says {body.count}")


def _texts(texts: "list[bytes] | list[bytes | None]") -> pa.Array:
    """JSON is UTF-8, and the log checked it when it was pushed: nothing is decoded."""
    return pa.array(texts, pa.binary()).view(pa.string())


def _variants(payloads: list[bytes], kind: pa.DataType) -> pa.Array:
    parsed = [VariantVal.parseJson(payload.decode()) for payload in payloads]
    return pa.array([{"value": value.value, "metadata": value.metadata} for value in parsed], kind)
