"""A flow of your own: a function from a DataFrame to a DataFrame, with a queue at either end.

    queue ─ read_stream ─► your function ─► one JSON value a row ─ exactly once ─► queue

`headwater pipeline run my_module:my_flow` gives it what the built-in flows have: a checkpoint to go on from, a bar,
a summary. The function decides nothing about files, stores or batches, and can be called in a test with any DataFrame.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from headwater.client.access import Access
from headwater.errors import InvalidOption, SourceUnfit
from headwater.model.names import DATABASE_DEFAULT, check_name
from headwater.pipeline.checkpoint import Checkpoint
from headwater.pipeline.files import plain_place
from headwater.pipeline.options import access_options, anywhere
from headwater.pipeline.progress import Tell, keep_quiet, rate
from headwater.pipeline.reading import read_stream
from headwater.pipeline.served import open_log
from headwater.pipeline.sink import SINK_COLUMNS
from headwater.pipeline.spelling import json_of
from headwater.pipeline.summary import Summary
from headwater.stores.open import scheme_of

LOOK_SECONDS = 0.25
BATCHES_REMEMBERED = 10_000
# Spark's own count of rows is one of segments: records are counted where they are split, and where they leave.
COMING, GOING = "headwater_coming", "headwater_going"

Transform = Callable[[DataFrame], DataFrame]


class Flow:
    """A function with the queues it stands between. Made by `flow`; calling it calls the function."""

    def __init__(self, transform: Transform, reads: str, writes: str, schema: str) -> None:
        self.transform = transform
        self.reads = reads
        self.writes = writes
        self.schema = schema
        self.__doc__ = transform.__doc__

    def __call__(self, messages: DataFrame) -> DataFrame:
        return self.transform(messages)


def flow(*, reads: str = "", writes: str = "", schema: str = "") -> Callable[[Transform], Flow]:
    """Say between which queues a function stands, and what the payloads it reads look like.

    >>> @flow(reads="orders", writes="revenue", schema="customer STRING, amount DOUBLE")
    ... def revenue(orders: DataFrame) -> DataFrame: ...
    """
    return lambda transform: Flow(transform, reads, writes, schema)


class RunFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Which function runs (`module:name`), and what the command line says instead of its own ends."""

    store: str
    access: Access = Access()
    database: str = "main"
    name: str
    queue: str = ""
    target: str = ""
    schema: str = ""
    checkpoint: str = ""
    every_seconds: float = 0
    messages_per_batch: int = 0


def find_flow(name: str) -> Flow:
    """The flow `module:name`, looked for as `python -m` would, in the current folder too."""
    module, attribute = import_named(name, "a flow")
    found = getattr(module, attribute, None)
    if isinstance(found, Flow):
        return found
    if not callable(found):
        there = [name for name, value in vars(module).items() if isinstance(value, Flow)]
        raise SourceUnfit(f"{module.__name__} has no flow {attribute!r}; there are {', '.join(there) or 'none'}")
    return Flow(found, "", "", "")


def import_named(name: str, what: str) -> tuple[ModuleType, str]:
    """The module of `module:function` and the name in it; `what` says in an error what it would have been."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise InvalidOption(f"{what} is named module:function; got {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module_name), attribute
    except ModuleNotFoundError as error:
        raise SourceUnfit(f"there is no module {error.name!r} here; {what} is named module:function") from error


def as_records(rows: DataFrame) -> DataFrame:
    """Rows as the sink takes them: what has no column `value` becomes one JSON object."""
    if "value" in rows.columns:
        return rows
    about = [name for name in rows.columns if name in SINK_COLUMNS]
    payload = [name for name in rows.columns if name not in SINK_COLUMNS]
    if not payload:
        raise SourceUnfit(f"a flow must give columns for the payload; got {', '.join(rows.columns)}")
    return rows.select(*about, json_of(f.struct(*(f.col(f"`{name}`") for name in payload))).alias("value"))


def run(spark: SparkSession, job: RunFlow, tell: Tell = keep_quiet) -> Summary:
    """Run a flow over what is new in its queue; with `every_seconds`, again and again until it is stopped."""
    found = find_flow(job.name)
    reads = check_name("queue", job.queue or found.reads)
    writes = check_name("queue", job.target or found.writes)
    checkpoint_of(job)
    with open_log(job.store, job.access) as log:
        began_at = log.now()
        query = _start(spark, job, found, reads, writes)
        try:
            _watch(query, tell)
        finally:
            query.stop()
        return _summary(query, job, (reads, writes), began_at, log.now())


def checkpoint_of(job: RunFlow) -> str:
    """Where a flow remembers how far it is: beside the store, unless another place is named.

    What a URL names (a server, a database, a bucket) is beside nothing here, and a place that depended on the current
    folder would one day be another.
    """
    if scheme_of(job.store) and not job.checkpoint:
        raise InvalidOption(
            f"a store at {scheme_of(job.store)}:// has no folder beside it: a flow needs --checkpoint FOLDER, where it "
            "remembers how far it is"
        )
    return job.checkpoint or f"{job.store}-checkpoints/{job.name.replace(':', '.')}"


def _start(spark: SparkSession, job: RunFlow, found: Flow, reads: str, writes: str) -> StreamingQuery:
    store = anywhere(job.store)
    there = {"store": store, **access_options(job.access)}
    if job.database != DATABASE_DEFAULT:
        there["database"] = job.database
    options: dict[str, Any] = {**there, "queue": reads}
    options["group"] = f"pipeline.{job.name.replace(':', '.')}"
    if job.schema or found.schema:
        options["schema"] = job.schema or found.schema
    if job.messages_per_batch:
        options["maxOffsetsPerTrigger"] = str(job.messages_per_batch)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(BATCHES_REMEMBERED))
    count = f.count(f.lit(1)).alias("rows")
    rows = as_records(found(read_stream(spark, **options).observe(COMING, count))).observe(GOING, count)
    writer = rows.writeStream.format("headwater").outputMode("append").queryName(job.name)
    writer = writer.options(**there, queue=writes)
    writer = writer.option("checkpointLocation", plain_place(Path(checkpoint_of(job))))
    if job.every_seconds:
        return writer.trigger(processingTime=f"{job.every_seconds} seconds").start()
    return writer.trigger(availableNow=True).start()


def _watch(query: StreamingQuery, tell: Tell) -> None:
    """Wait for the end, and tell how far it is; what failed is raised."""
    while query.isActive:
        tell(share_done(query.lastProgress))
        time.sleep(LOOK_SECONDS)
    query.awaitTermination()


def share_done(progress: Any) -> float:
    """How much of the log a query has behind it."""
    if progress is None or not progress["sources"]:
        return 0.0
    source = progress["sources"][0]
    end, latest = _lsn(source["endOffset"]), _lsn(source["latestOffset"])
    return min(end / latest, 1.0) if latest else 0.0


def _lsn(offset: Any) -> int:
    decoded = json.loads(offset) if isinstance(offset, str) else offset
    return int(decoded["lsn"]) if isinstance(decoded, dict) and "lsn" in decoded else 0


def _summary(query: StreamingQuery, job: RunFlow, ends: tuple[str, str], began_at: int, ended_at: int) -> Summary:
    batches = query.recentProgress
    messages = _counted(batches, COMING)
    place = Checkpoint(checkpoint_of(job)).destination()
    # Spark died after an earlier run had pushed it and before it noted so: it runs again and nothing is pushed.
    repeated = [batch for batch in batches if place is not None and batch["batchId"] == place.repeated]
    facts: dict[str, Any] = {
        "reads": ends[0],
        "writes": ends[1],
        "messages in": messages,
        "messages out": _counted(batches, GOING) - _counted(repeated, GOING),
        "batches": len(batches),
        "messages a second": rate(messages, began_at, ended_at),
    }
    if repeated:
        facts["pushed before"] = _counted(repeated, GOING)
    return Summary(flow=query.name or "", facts=facts)


def _counted(batches: Sequence[Any], name: str) -> int:
    """What was counted over all batches; one without data counts nothing."""
    observed = [batch["observedMetrics"].get(name) for batch in batches]
    return sum(int(found["rows"]) for found in observed if found is not None)
