"""A driver that copies a queue, micro-batch by micro-batch, and dies where it is told: run as a program of its own.

    python -m tests.pipeline.driver MASTER STORE FOLDER [PLACE BATCH]

PLACE is `write` (a task is at work), `before` or `after` (the commit of the sink); `worker` kills not the driver but a
Python worker, once, and in the batch after it the executor, a Java process, that a task runs on. The sink runs in
processes that Spark starts: what to do they find in a file of the folder, which the environment names.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headwater.pipeline import HeadwaterDataSource, start_session
from headwater.pipeline.options import write_options
from headwater.pipeline.sink import StreamSink, Written

FOLDER = "HEADWATER_TEST_FOLDER"
BATCH_ID = "streaming.sql.batchId"
# How often is tried what a busy machine may fail at.
ATTEMPTS = 3
# Who is killed: the Java process of the driver, or the Python process that the sink works in.
DRIVER, PYTHON = "driver", "python"


class Death(NamedTuple):
    """Where somebody is killed, in which micro-batch, and who."""

    place: str
    batch: int
    whom: str = DRIVER


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
            kill()
        return super().write(iterator)

    def commit(self, messages: "list[Any]", batchId: int) -> None:
        if is_time("before", batchId):
            kill()
        super().commit(messages, batchId)
        if is_time("after", batchId):
            kill()


class DyingDataSource(HeadwaterDataSource):
    """The format, with a sink that may die."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        return DyingSink(write_options(self.options), schema, overwrite)


def foretell(folder: Path, death: Death | None) -> None:
    """Say who is to be killed next, and where; None is nobody."""
    (folder / "death").write_text("" if death is None else f"{death.place} {death.batch} {death.whom}")


def foretold() -> Death | None:
    said = (Path(os.environ[FOLDER]) / "death").read_text().split()
    return Death(said[0], int(said[1]), said[2]) if said else None


def is_time(place: str, batch: int) -> bool:
    death = foretold()
    return death is not None and (death.place, death.batch) == (place, batch)


def parent_of(process: int) -> int:
    """A worker is a child of a daemon of Python, and that one of the executor."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def kill_once(name: str, process: int) -> None:
    mark = Path(os.environ[FOLDER]) / f"killed-{name}"
    if not mark.exists():
        mark.touch()
        os.kill(process, signal.SIGKILL)
        signal.pause()


def kill() -> None:
    """Kill whom it was said to be: this process, or the Java one that is the driver and with it this, its child."""
    folder, death = Path(os.environ[FOLDER]), foretold()
    assert death is not None
    foretell(folder, None)
    (folder / f"death-{death.whom}-{os.getpid()}").touch()
    if death.whom == DRIVER:
        with suppress(ProcessLookupError):
            os.kill(int((folder / "driver.pid").read_text()), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def batches_done(folder: Path) -> int:
    """How many micro-batches Spark has noted as done."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


def start(master: str, folder: Path, **settings: Any) -> SparkSession:
    """A session whose Python processes know the folder, and whose Java can be found."""
    os.environ[FOLDER] = str(folder)
    spark = start_session(master, log=folder / "spark.log", **settings)
    jvm: Any = spark._jvm
    (folder / "driver.pid").write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    return spark


def main(master: str, store: str, folder: str, place: str = "", batch: str = "-1") -> None:
    foretell(Path(folder), Death(place, int(batch)) if place else None)
    spark = start(master, Path(folder))
    spark.dataSource.register(DyingDataSource)
    rows = spark.readStream.format("headwater").options(store=store, queue="orders", maxOffsetsPerTrigger=20).load()
    copied = rows.selectExpr("to_json(struct(value, offset)) AS value", "partition", "transaction_id")
    writer = copied.writeStream.format("headwater").options(store=store, queue="copies")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
