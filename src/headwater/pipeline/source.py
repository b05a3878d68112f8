"""The log as a table and a stream of Spark, by its Python Data Source API.

    driver      options → queues, offsets → ranges of LSNs
    executors   range → short looks at the log → Arrow batches

An offset is an LSN: everything up to it was read. The same offsets give the same rows, because segments never change.
Executors open the store by its address, read-only, and know it by its contract alone.

A table is a snapshot, taken by `load()`. Spark keeps one source for a DataFrame and one plan of its tasks, and uses
both for every query over it; so nothing here depends on the query that asks. That is why no filters are taken from
Spark: it leaves those of one query in the plan that all others use.
"""

import logging
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headwater.errors import InvalidOption, QueueMissing
from headwater.log.operations import Seek, Transaction
from headwater.model.names import Lsn
from headwater.pipeline.columns import Rows, check_schema, columns
from headwater.pipeline.looking import Look
from headwater.pipeline.options import LATEST, ReadOptions, read_options, write_options
from headwater.pipeline.planning import Offset, Snapshot, admit, offset_of, split
from headwater.pipeline.sink import BatchSink, StreamSink
from headwater.pipeline.writing import run_once

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

FORMAT = "headwater"


@dataclass(frozen=True)
class Task(InputPartition):
    """What one task reads: a range of LSNs of some queues, planned when this many drops were known."""

    after: Lsn
    through: Lsn
    queues: tuple[str, ...]
    drops: int


class HeadwaterDataSource(DataSource):
    """The format `headwater`. Register it with `headwater.pipeline.register(spark)`, or yourself.

    >>> spark.dataSource.register(HeadwaterDataSource)
    >>> spark.readStream.format("headwater").option("store", "headwater.db").option("queue", "orders").load()
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._snapshot: Snapshot | QueueMissing | None = None

    @classmethod
    def name(cls) -> str:
        """The name in `.format(…)`."""
        return FORMAT

    def schema(self) -> str:
        """The columns of a read. Spark asks in `load()`, and keeps this object as it is then for all queries."""
        options = read_options(self.options)
        try:
            self._snapshot = take_snapshot(options)
        except QueueMissing as missing:
            # A stream may name a queue that is yet to be made, and only `reader` knows that this is a table.
            self._snapshot = missing
        return columns(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a snapshot. Where Spark did not ask for the columns, because it knows them, it is taken now."""
        options = _batch_options(self.options)
        check_schema(options, schema)
        if isinstance(self._snapshot, QueueMissing):
            raise self._snapshot
        return BatchReader(options, schema, self._snapshot or take_snapshot(options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Follows the log."""
        return StreamReader(_stream_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """Pushes the rows of a query, all or none."""
        return BatchSink(write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """Pushes the rows of every micro-batch, once."""
        return StreamSink(write_options(self.options), schema, overwrite)


def register(spark: SparkSession) -> None:
    """Make the format `headwater` known to a session; nothing else of the session changes."""
    spark.dataSource.register(HeadwaterDataSource)


def take_snapshot(options: ReadOptions) -> Snapshot:
    """What there is now of what the options name."""
    with Look(options) as look:
        return look.snapshot()


def _batch_options(given: MutableMapping[str, str]) -> ReadOptions:
    options = read_options(given)
    for name, value in {"group": options.group, "maxOffsetsPerTrigger": options.offsets_per_trigger_max}.items():
        if value:
            raise InvalidOption(f"option {name} is for streams: a table that is read once has no position to keep")
    return options


def _stream_options(given: MutableMapping[str, str]) -> ReadOptions:
    options = read_options(given)
    if options.ending != LATEST:
        raise InvalidOption("option endingOffsets is for tables: a stream has no end; use trigger(availableNow=True)")
    return options


def _read(options: ReadOptions, schema: StructType, task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of a task; after them, whether retention took any of its segments meanwhile."""
    rows = Rows(options, schema)
    with Look(options) as look:
        for bodies in look.bodies(task.after, task.through, task.queues):
            yield rows.batch(bodies)
        look.queues()
        look.check_loss(Offset(task.after, task.drops), task.queues)


class BatchReader(DataSourceReader):
    """A snapshot of a stretch of the log as a table."""

    def __init__(self, options: ReadOptions, schema: StructType, snapshot: Snapshot) -> None:
        self._options = options
        self._schema = schema
        self._snapshot = snapshot

    def partitions(self) -> list[InputPartition]:
        """Ranges of LSNs, from the snapshot alone."""
        queues, start, end, drops = msgspec.structs.astuple(self._snapshot)
        with Look(self._options) as look:
            look.check_loss(start, queues)
        ranges = split(start.lsn, end, self._options.partitions_min) if queues else []
        return [Task(part.after, part.through, queues, drops) for part in ranges] or [Task(end, end, queues, drops)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, on an executor."""
        assert isinstance(partition, Task)
        return _read(self._options, self._schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as a stream. Lives in one process on the driver; only `read` runs on executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(options, schema)
        self._options = options
        self._schema = schema
        self._open: Look | None = None
        self._target: Lsn | None = None
        self._nothing_through = Lsn(0)

    def _look(self) -> Look:
        """The reader of the driver, opened when it is first needed: executors get this object without one."""
        if self._open is None:
            self._open = Look(self._options).__enter__()
        return self._open

    def initialOffset(self) -> dict[str, int]:
        """Where a new query begins."""
        look = self._look()
        look.queues()
        return look.find(self._options.starting).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much one micro-batch may take."""
        most = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Everything up to here is read, in as many micro-batches as the limit asks for, and nothing after it."""
        self._target = self._look().last_lsn()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, int]:
        """How far the next micro-batch goes: up to a segment of these queues, or not at all."""
        begin = offset_of(start)
        look = self._look()
        queues = look.queues()
        last = look.last_lsn() if self._target is None else self._target
        newest = look.newest(Lsn(max(begin.lsn, self._nothing_through)), last, queues)
        if newest is None:
            # Others push too: what was looked through once is not looked through again.
            self._nothing_through = max(self._nothing_through, last)
            return dict(start)
        if isinstance(limit, ReadMaxRows):
            newest = admit(look.outline(begin.lsn, newest, queues), limit.max_rows) or newest
        return Offset(newest, look.drops()).as_json()

    def reportLatestOffset(self) -> dict[str, int] | None:
        """The end of the log, for the progress of a query."""
        look = self._look()
        return Offset(look.last_lsn(), look.drops()).as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> "Sequence[InputPartition]":
        """Ranges of LSNs for one micro-batch."""
        begin, finish = offset_of(start), offset_of(end)
        look = self._look()
        queues = look.queues()
        look.check_loss(begin, queues)
        drops = look.drops()
        ranges = split(begin.lsn, finish.lsn, self._options.partitions_min)
        return [Task(part.after, part.through, queues, drops) for part in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, on an executor."""
        assert isinstance(partition, Task)
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """A micro-batch is done for good: the group, if there is one, has come this far."""
        if not self._options.group:
            return
        lsn = offset_of(end).lsn
        seeks = [
            Seek(database=self._options.database, queue=queue, group=self._options.group, lsn=lsn, create=True)
            for queue in self._look().queues()
        ]
        moved = Transaction(database=self._options.database, operations=seeks)
        run_once(self._options.store, moved, self._options.access)

    def stop(self) -> None:
        """The query ended."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None
