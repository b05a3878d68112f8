"""A driver that copies a queue, micro-batch by micro-batch, and dies where it is told: run as a program of its own.

    python -m tests.pipeline.driver MASTER STORE FOLDER [PLACE BATCH]

PLACE is `write` (a task is at work), `before` or `after` (the commit of the sink); `worker` kills not the driver but a
Python worker, once, and in the batch after it the executor, a Java process, that a task runs on. The sink runs in
processes that Spark starts: what to do they find in the environment.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from headwater.pipeline import HeadwaterDataSource, start_session
from headwater.pipeline.options import write_options
from headwater.pipeline.sink import StreamSink, Written

FOLDER, PLACE, BATCH = "HEADWATER_TEST_FOLDER", "HEADWATER_TEST_PLACE", "HEADWATER_TEST_BATCH"
BATCH_ID = "streaming.sql.batchId"


class DyingSink(StreamSink):
    """The sink, and the end of its driver."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty(BATCH_ID) or -1)
        if is_time("worker", batch):
            kill_once("worker", os.getpid())
        if is_time("worker", batch - 1):
            kill_once("executor", parent_of(os.getppid()))
        if is_time("write", batch):
            next(iterator, None)
            kill_driver()
        return super().write(iterator)

    def commit(self, messages: "list[Any]", batchId: int) -> None:
        if is_time("before", batchId):
            kill_driver()
        super().commit(messages, batchId)
        if is_time("after", batchId):
            kill_driver()


class DyingDataSource(HeadwaterDataSource):
    """The format, with a sink that may die."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        return DyingSink(write_options(self.options), schema, overwrite)


def is_time(place: str, batch: int) -> bool:
    return os.environ.get(PLACE) == place and int(os.environ[BATCH]) == batch


def parent_of(process: int) -> int:
    """A worker is a child of a daemon of Python, and that one of the executor."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def kill_once(name: str, process: int) -> None:
    mark = Path(os.environ[FOLDER]) / f"killed-{name}"
    if not mark.exists():
        mark.touch()
        os.kill(process, signal.SIGKILL)
        signal.pause()


def kill_driver() -> None:
    """The Java process is the driver; this one, its child, goes with it."""
    (Path(os.environ[FOLDER]) / f"death-{os.getpid()}").touch()
    with suppress(ProcessLookupError):
        os.kill(int((Path(os.environ[FOLDER]) / "driver.pid").read_text()), signal.SIGKILL)
    os._exit(1)


def main(master: str, store: str, folder: str, place: str = "", batch: str = "-1") -> None:
    os.environ.update({FOLDER: folder, PLACE: place, BATCH: batch})
    spark = start_session(master, log=Path(folder) / "spark.log")
    jvm: Any = spark._jvm
    (Path(folder) / "driver.pid").write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    spark.dataSource.register(DyingDataSource)
    rows = spark.readStream.format("headwater").options(store=store, queue="orders", maxOffsetsPerTrigger=20).load()
    copied = rows.selectExpr("to_json(struct(value, offset)) AS value", "partition", "transaction_id")
    writer = copied.writeStream.format("headwater").options(store=store, queue="copies")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
