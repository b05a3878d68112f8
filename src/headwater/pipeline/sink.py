"""Rows become records: encoded on the executors, pushed by the driver in one transaction.

    executors   Arrow batches → records by queue and partition, checked and encoded
    driver      Reach(query, batch) + one Push a partition, together

The step `Reach` makes it exactly once: Spark gives a micro-batch the same number however often it runs it, and a number
that was reached is refused. So a driver that dies between this commit and Spark's own pushes nothing twice.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType, VariantType

from headwater.errors import AlreadyReached, InvalidOption, PipelineError
from headwater.log.operations import Push, Reach, Transaction
from headwater.model.record import Record, split_records
from headwater.pipeline.checkpoint import Checkpoint
from headwater.pipeline.destination import check_no_circle, has_moved, look_at, name_step
from headwater.pipeline.encoding import Chunk, Encoder
from headwater.pipeline.keys import push_once
from headwater.pipeline.options import WriteOptions
from headwater.pipeline.writing import run_once
from headwater.stores.open import is_server

SINK_COLUMNS = {
    "value": "string",
    "queue": "string",
    "partition": "string",
    "transaction_id": "string",
    "trace_id": "string",
    "type": "string",
    "timestamp": "timestamp",
    "headers": "map<string,string>",
}
# A row that was read may be written as it is: where it was before says nothing about where it goes.
IGNORED_COLUMNS = ("offset", "lsn")

QUERY_ID = "sql.streaming.queryId"
_counted = re.compile(r"\d+ records")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task made of its rows, and for which query."""

    query: str
    chunks: tuple[Chunk, ...]


def check_columns(schema: StructType, options: WriteOptions, overwrite: bool) -> None:
    """Raises when these rows cannot become records."""
    if overwrite:
        raise InvalidOption("a log is appended to, never overwritten: use mode('append') or outputMode('append')")
    known = {**SINK_COLUMNS, **dict.fromkeys(IGNORED_COLUMNS, "")}
    unknown = [name for name in schema.fieldNames() if name not in known]
    if unknown or "value" not in schema.fieldNames():
        raise InvalidOption(
            f"a write takes the columns {', '.join(SINK_COLUMNS)}, of which value must be there; "
            f"got {', '.join(schema.fieldNames())}. A row as a JSON payload: "
            "select(payload()), with payload from headwater.pipeline"
        )
    for field in schema.fields:
        kind = "variant" if isinstance(field.dataType, VariantType) else field.dataType.simpleString()
        fits = kind == known[field.name] or (field.name == "value" and isinstance(field.dataType, VariantType))
        if field.name not in IGNORED_COLUMNS and not fits:
            raise InvalidOption(f"column {field.name} must be {known[field.name]}; got {kind}")
    if "queue" not in schema.fieldNames() and not options.queue:
        raise InvalidOption("a write needs a queue: the option queue, or a column queue")


def pushes(database: str, messages: "list[Written | None]") -> list[Push]:
    """One push for each partition, with the records of all tasks in the tasks' order."""
    lanes: dict[tuple[str, str], list[Record]] = {}
    for message in messages:
        for chunk in message.chunks if message else ():
            lanes.setdefault((chunk.queue, chunk.partition), []).extend(split_records(chunk.records))
    return [
        Push(database=database, queue=queue, partition=partition, records=records)
        for (queue, partition), records in lanes.items()
    ]


def encode_task(options: WriteOptions, schema: StructType, batches: Iterator[pa.RecordBatch]) -> Written:
    """What one task made of its rows; Spark tells a task for which query it runs."""
    context = TaskContext.get()
    encoder = Encoder(options, schema, context.partitionId() if context is not None else 0)
    for batch in batches:
        encoder.add(batch)
    query = context.getLocalProperty(QUERY_ID) if context is not None else None
    return Written(query or "", encoder.chunks())


def check_same(step: Reach, reached: AlreadyReached) -> None:
    """Spark died after our commit and before its own: this batch is there, and nothing is left to do.

    Unless it is another batch of that number: a checkpoint that lost its newest files, in a power cut or by hand, makes
    Spark count again from an older place, with other rows. Passing those by would lose them.
    """
    if reached.number == step.number and is_same(reached.note, step.note):
        return
    raise PipelineError(
        f"Spark runs batch {step.number} again with {step.note}, but {step.name} pushed batch {reached.number} with "
        f"{reached.note}: the checkpoint is older than what it led to. Nothing was pushed; begin a new checkpoint with "
        "startingOffsets behind the last record that was pushed"
    )


def describe(count: int, queue: str, digest: str) -> str:
    """What is noted with a step, to know its rows again."""
    return f"{count} records{f' to {queue}' if queue else ''}{f', offsets {digest}' if digest else ''}"


def is_same(before: str, now: str) -> bool:
    """Whether two notes are of the same rows. The first version noted their number alone."""
    return before == now or (_counted.fullmatch(before) is not None and now.startswith(before))


class BatchSink(DataSourceArrowWriter):
    """The rows of one query, pushed together or not at all."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        check_columns(schema, options, overwrite)
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """On an executor: rows as records."""
        return encode_task(self._options, self._schema, iterator)

    def commit(self, messages: "list[Any]") -> None:
        """On the driver, when all tasks are done."""
        operations = pushes(self._options.database, messages)
        if self._options.database and is_server(self._options.store):
            # A server pushes to the database of the token; looking tells when another one is named.
            look_at(self._options, None)
        # Also when there is nothing to push: other rows under its key are others than none.
        if self._options.idempotency_key:
            push_once(self._options, operations)
        elif operations:
            whole = Transaction(database=self._options.database, operations=operations)
            run_once(self._options.store, whole, self._options.access)


class StreamSink(DataSourceStreamArrowWriter):
    """The rows of every micro-batch, pushed once."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        # With outputMode("complete") Spark says that it overwrites: every micro-batch has the whole result again, and
        # whoever reads the log takes the newest of each key.
        check_columns(schema, options, overwrite=False)
        if options.idempotency_key:
            raise InvalidOption("option idempotencyKey is for tables: a stream pushes each micro-batch once by itself")
        self._options = options
        self._checkpoint = Checkpoint(options.checkpoint)
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """On an executor: rows as records."""
        return encode_task(self._options, self._schema, iterator)

    def commit(self, messages: "list[Any]", batchId: int) -> None:
        """On the driver, when all tasks are done."""
        operations = pushes(self._options.database, messages)
        if not operations:
            return
        queries = {message.query for message in messages if message}
        if len(queries) != 1 or not all(queries):
            raise PipelineError(f"Spark did not say for which query batch {batchId} is; it was not pushed")
        step = self._step(queries.pop(), batchId, operations)
        both = Transaction(database=self._options.database, operations=[step, *operations])
        before = self._checkpoint.destination()
        repeated = before.repeated if before is not None and before.step == step.name else None
        try:
            run_once(self._options.store, both, self._options.access)
        except AlreadyReached as reached:
            check_same(step, reached)
            repeated = batchId
        now = look_at(self._options, None)
        if now is not None:
            self._checkpoint.note_destination(now.destination(self._options, step.name, repeated))

    def _step(self, query: str, batch: int, operations: list[Push]) -> Reach:
        """The step that a push takes; raises when it must not be taken, at what is there now."""
        before = self._checkpoint.destination()
        found = look_at(self._options, before)
        moved = has_moved(before, found, self._options)
        if found is not None and not self._options.allow_same_queue:
            check_no_circle(self._checkpoint.sources(batch), found, {push.queue for push in operations})
        name = name_step(query, batch, before, moved, self._options)
        count = sum(len(push.records) for push in operations)
        note = describe(count, self._options.queue, self._checkpoint.digest(batch))
        return Reach(database=self._options.database, name=name, number=batch, note=note)
