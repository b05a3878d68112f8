"""Segments as the Parquet files of an archive, on the executors: column by column, and no record goes through Java.

    a span of the log ─► bodies by queue and day ─► batches ─► row groups ─► staged files

A file has its name when it is whole. A task that is tried again writes the same names again.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from pyspark.sql import SparkSession

from headwater.clock import SECOND
from headwater.pipeline.ends import Step, make_batch
from headwater.pipeline.manifest import telling_full
from headwater.pipeline.ranges import Place, read_bodies

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import parquet

    from headwater.stores.log_reader import Body

SUFFIX = ".parquet"
ROW_GROUP_BYTES = 32 * 1_048_576
WAITING_BYTES_MAX = 4 * ROW_GROUP_BYTES
WRITERS_MAX = 64
TIMES = ("written_at", "timestamp")
# Others have as many values as there are records, or nearly.
REPEATING = ["partition_id", "partition", "lsn", "written_at", "timestamp", "type", "producer_sub"]


class Heap(NamedTuple):
    """Where a record is kept: by queue, and by the day it was written on."""

    queue: str
    day: str


def write_step(spark: SparkSession, place: Place, marks: Mapping[str, int], step: Step, staged: Path) -> None:
    """Write the records of a step, those of each queue that come after its mark, below a folder nobody looks into."""
    spans, folder = step.spans, staged.absolute()

    def run(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        for batch in batches:
            for number in batch.column("id").to_pylist():
                with Files(folder, f"span-{number}") as files:
                    for bodies in read_bodies(place, sorted(marks), spans[number]):
                        files.add([body for body in bodies if body.lsn > marks[body.lane.queue]])
            yield batch

    spark.range(0, len(spans), 1, len(spans)).mapInArrow(run, "id BIGINT").write.format("noop").mode("append").save()


def day_of(body: "Body") -> str:
    """The day that a segment was written on."""
    return datetime.fromtimestamp(body.written_at // SECOND, UTC).strftime("%Y-%m-%d")


class Files:
    """The files of one task, one for each queue and day."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._round = 0
        self._waiting: dict[Heap, list[pyarrow.RecordBatch]] = {}
        self._sizes: dict[Heap, int] = {}
        self._writers: dict[Heap, tuple[parquet.ParquetWriter, Path]] = {}

    def __enter__(self) -> "Files":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self._finish()
        else:
            for writer, _ in self._writers.values():
                # What went wrong first is told.
                with suppress(OSError):
                    writer.close()

    def add(self, bodies: "Sequence[Body]") -> None:
        """Take segments in."""
        heaps: dict[Heap, list[Body]] = {}
        for body in bodies:
            heaps.setdefault(Heap(body.lane.queue, day_of(body)), []).append(body)
        for heap, members in heaps.items():
            batch = archived(make_batch(members))
            self._waiting.setdefault(heap, []).append(batch)
            self._sizes[heap] = self._sizes.get(heap, 0) + batch.nbytes
            if self._sizes[heap] >= ROW_GROUP_BYTES:
                self._write(heap)
        while sum(self._sizes.values()) > WAITING_BYTES_MAX:
            self._write(max(self._sizes, key=lambda heap: self._sizes[heap]))

    def _write(self, heap: Heap) -> None:
        """A row group of what waits."""
        import pyarrow

        table = pyarrow.Table.from_batches(self._waiting.pop(heap))
        del self._sizes[heap]
        if heap not in self._writers and len(self._writers) >= WRITERS_MAX:
            self._close()
        with telling_full(self._folder):
            self._writer(heap, table.schema).write_table(table, row_group_size=table.num_rows)

    def _writer(self, heap: Heap, schema: "pyarrow.Schema") -> "parquet.ParquetWriter":
        from pyarrow import parquet

        if heap not in self._writers:
            below = self._folder / f"queue={quote(heap.queue, safe='')}" / f"day={heap.day}"
            below.mkdir(parents=True, exist_ok=True)
            part = below / f"{self._name}-{self._round}.part-{os.getpid()}"
            writer = parquet.ParquetWriter(part, schema, compression="zstd", use_dictionary=REPEATING)
            self._writers[heap] = (writer, part)
        return self._writers[heap][0]

    def _finish(self) -> None:
        while self._waiting:
            self._write(next(iter(self._waiting)))
        self._close()

    def _close(self) -> None:
        """Give every file its name; what comes later goes into others."""
        with telling_full(self._folder):
            while self._writers:
                writer, part = self._writers.popitem()[1]
                writer.close()
                os.replace(part, part.with_suffix(SUFFIX))
        self._round += 1


def archived(batch: "pyarrow.RecordBatch") -> "pyarrow.RecordBatch":
    """Messages as an archive keeps them: times as times; the queue is in the file's path."""
    import pyarrow

    for name in TIMES:
        times = batch.column(name).cast(pyarrow.timestamp("us", "UTC"))
        batch = batch.set_column(batch.schema.get_field_index(name), name, times)
    return batch.drop_columns(["queue"])
