"""Rows of one task as records, by queue and partition: checked and encoded a batch at a time, on the executors."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.types import StringType, StructType, VariantVal

from headwater.config import load_config
from headwater.errors import HeadwaterError, InvalidInput
from headwater.model.names import PARTITION_DEFAULT
from headwater.model.record import Record, check_texts, encode_bare, encode_records
from headwater.pipeline.options import WriteOptions
from headwater.services.records import check_envelope, check_target

# What a record says of itself; most say nothing, and then a batch of them is encoded as a whole.
ENVELOPE = ("transaction_id", "trace_id", "type", "headers", "timestamp")

SHOWN_LENGTH = 80

QueuePartition = tuple[str, str]


@dataclass(frozen=True)
class Chunk:
    """Records of one partition, encoded."""

    queue: str
    partition: str
    records: bytes


class Encoder:
    """Rows of one task as chunks of records, in their order."""

    def __init__(self, options: WriteOptions, schema: StructType, task: int = 0) -> None:
        self._options = options
        self._schema = schema
        self._task = task
        self._taken = 0
        self._variant = not isinstance(schema["value"].dataType, StringType)
        self._bytes_max = load_config().record_bytes_max
        self._lanes: dict[QueuePartition, list[bytes]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch; a row that cannot be a record is named."""
        if not batch.num_rows:
            return
        try:
            self._add(batch)
        except HeadwaterError as error:
            raise self._find(batch) or error from error
        self._taken += batch.num_rows

    def _find(self, batch: pa.RecordBatch) -> HeadwaterError | None:
        """The first row of a batch that cannot be a record, and which of its columns is wrong, as an error."""
        names = sorted(batch.schema.names, key=lambda name: (name != "queue", name != "partition"))
        for row in range(batch.num_rows):
            for name in names:
                wrong = self._complaint(batch.slice(row, 1), name)
                if wrong is not None:
                    return self._with_place(batch.slice(row, 1), row, name, wrong)
        return None

    def _complaint(self, row: pa.RecordBatch, name: str) -> HeadwaterError | None:
        """What is wrong with one column of a row, if anything is."""
        wanted = dict.fromkeys(("value", "queue", name))
        columns = {each: row.column(each) for each in wanted if each in row.schema.names}
        if name != "value":
            columns["value"] = pa.nulls(1, row.column("value").type)
        try:
            Encoder(self._options, self._schema)._add(pa.RecordBatch.from_pydict(columns))
        except HeadwaterError as error:
            return error
        return None

    def _with_place(self, row: pa.RecordBatch, index: int, name: str, wrong: HeadwaterError) -> HeadwaterError:
        _, (queue, *_) = _codes(row, "queue", self._options.queue, "")
        _, (partition, *_) = _codes(row, "partition", self._options.partition, PARTITION_DEFAULT)
        where = f"row {self._taken + index + 1} of task {self._task}, for {queue or 'no queue'}/{partition}"
        value = row.column(name)[0].as_py()
        shown = "" if isinstance(value, dict) else f"; it is {value!r:.{SHOWN_LENGTH}}"
        return type(wrong)(f"{where}, column {name}: {wrong}{shown}. Nothing was pushed")

    def _add(self, batch: pa.RecordBatch) -> None:
        payloads = self._payloads(batch.column("value"))
        said = {name: column for name in ENVELOPE if (column := _column(batch, name)) is not None}
        if said:
            records = list(map(_record, payloads, *(_values(said.get(name), name, len(payloads)) for name in ENVELOPE)))
        for lane, rows in self._split(batch):
            pieces = self._lane(lane)
            if said:
                pieces.append(encode_records([records[row] for row in rows])[1:-1])
            else:
                pieces.append(encode_bare([payloads[row] for row in rows]))

    def chunks(self) -> tuple[Chunk, ...]:
        """Everything that was taken."""
        return tuple(Chunk(*lane, b"[" + b",".join(pieces) + b"]") for lane, pieces in self._lanes.items())

    def _payloads(self, column: pa.Array) -> list[bytes]:
        if self._variant:
            values = [
                None if value is None else VariantVal(value["value"], value["metadata"]).toJson().encode()
                for value in column.to_pylist()
            ]
        else:
            values = column.cast(pa.binary()).to_pylist()
        payloads = [b"null" if value is None else value for value in values]
        check_texts(payloads, self._bytes_max)
        return payloads

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[QueuePartition, Any]]:
        """The rows of each partition, in their order."""
        queue, queues = _codes(batch, "queue", self._options.queue, "")
        partition, partitions = _codes(batch, "partition", self._options.partition, PARTITION_DEFAULT)
        lane = queue * len(partitions) + partition
        order = np.argsort(lane, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(lane[order])) + 1):
            first = rows[0]
            yield (queues[queue[first]], partitions[partition[first]]), rows.tolist()

    def _lane(self, lane: QueuePartition) -> list[bytes]:
        if lane not in self._lanes:
            if not lane[0]:
                raise InvalidInput("a row has no queue: name one by the option queue, or in its column queue")
            check_target(*lane)
            self._lanes[lane] = []
        return self._lanes[lane]


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column of a batch; None when there is none, or nothing in it."""
    index = batch.schema.get_field_index(name)
    column = None if index < 0 else batch.column(index)
    return None if column is None or column.null_count == len(column) else column


def _codes(batch: pa.RecordBatch, name: str, option: str, default: str) -> "tuple[np.ndarray[Any, Any], list[str]]":
    """A number for each row, and the name that each number stands for: the option's, else the row's, else the default.

    The option wins, as with other sinks of Spark: rows that were read say where they were, not where they go.
    """
    column = _column(batch, name)
    if option or column is None:
        return np.zeros(batch.num_rows, np.int64), [option or default]
    encoded = column.dictionary_encode(null_encoding="encode")
    names = [name or default for name in encoded.dictionary.to_pylist()]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)[encoded.indices.to_numpy()], list(numbers)


def _values(column: pa.Array | None, name: str, count: int) -> list[Any]:
    if column is None:
        return [None] * count
    return list((column.cast(pa.int64()) if name == "timestamp" else column).to_pylist())


def _record(
    payload: bytes, transaction_id: str | None, trace_id: str | None, kind: str | None, headers: Any, timestamp: Any
) -> Record:
    said = (transaction_id or "", trace_id or "", kind or "", dict(headers) if headers else None)
    check_envelope(*said, timestamp or 0)
    return Record(msgspec.Raw(payload), *said, timestamp=timestamp or 0)
