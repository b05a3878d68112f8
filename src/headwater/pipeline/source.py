"""The log as a table and a stream of Spark, by its Python Data Source API.

    driver      options → queues, offsets → ranges of LSNs
    executors   range → short looks at the log → Arrow batches

An offset is an LSN: everything up to it was read. The same offsets give the same rows, because segments never change.
Executors open the store by its address, read-only, and know it by its contract alone.

A table is a snapshot, taken by `load()`. Spark keeps one source for a DataFrame and one plan of its tasks, and uses
both for every query over it; so nothing here depends on the query that asks. That is why no filters are taken from
Spark: it leaves those of one query in the plan that all others use. Over Spark Connect it may make a source anew for
each query; then the snapshot is one of the options (`reading.py`).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

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

from headwater.clock import SystemClock
from headwater.errors import InvalidOption, QueueMissing, StoreReplaced
from headwater.log.operations import Seek, Transaction
from headwater.model.cursor import check_not_ahead
from headwater.model.names import Lsn
from headwater.pipeline.admission import Admission
from headwater.pipeline.columns import Rows, check_schema, columns, comment_of
from headwater.pipeline.looking import Look, check_begin
from headwater.pipeline.options import (
    LATEST,
    TAKE,
    ReadOptions,
    keep_options,
    kept_options,
    read_options,
    write_options,
)
from headwater.pipeline.planning import Share, Snapshot, StreamOffset, lag_of, offset_of, snapshot_of
from headwater.pipeline.sifting import Sieve
from headwater.pipeline.sink import BatchSink, StreamSink
from headwater.pipeline.standing import Here
from headwater.pipeline.times import Times
from headwater.pipeline.writing import run_once
from headwater.pipeline.zones import session_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Answer = TypeVar("Answer")

FORMAT = "headwater"
# How many losses the progress of a query has, the newest.
LOSSES_SHOWN = 5


@dataclass(frozen=True)
class Task(InputPartition):
    """What one task reads: ranges of LSNs, of the store, the log and the queues that it was planned for."""

    share: Share
    known: StreamOffset


class HeadwaterDataSource(DataSource):
    """The format `headwater`. Register it with `headwater.pipeline.register(spark)`, or yourself.

    >>> spark.dataSource.register(HeadwaterDataSource)
    >>> spark.readStream.format("headwater").option("store", "headwater.db").option("queue", "orders").load()
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._snapshot: Snapshot | QueueMissing | InvalidOption | None = None

    @classmethod
    def name(cls) -> str:
        """The name in `.format(…)`."""
        return FORMAT

    def schema(self) -> str:
        """The columns of a read. Spark asks in `load()`, and keeps this object as it is then for all queries."""
        options = read_options(self.options)
        if options.snapshot == TAKE:
            return columns(options, take_snapshot(_batch_options(self.options)).as_text())
        try:
            self._snapshot = take_snapshot(options)
        except (QueueMissing, InvalidOption) as error:
            # A stream may name what is yet to be made or goes on from its checkpoint, and only `reader` knows that this
            # is a table.
            self._snapshot = error
        return columns(options, keep_options(self.options))

    def _given(self, schema: StructType) -> dict[str, str]:
        """The options, with those that a table of the catalog has kept in its columns."""
        return {**kept_options(comment_of(schema)), **self.options}

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a snapshot. Where Spark did not ask for the columns, because it knows them, it is taken now."""
        options = _batch_options(self._given(schema))
        check_schema(options, schema)
        if isinstance(self._snapshot, QueueMissing | InvalidOption):
            raise self._snapshot
        return BatchReader(options, schema, self._snapshot or take_snapshot(options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Follows the log."""
        return StreamReader(_stream_options(self._given(schema)), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """Pushes the rows of a query, all or none."""
        return BatchSink(write_options(self._given(schema)), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """Pushes the rows of every micro-batch, once."""
        return StreamSink(write_options(self._given(schema)), schema, overwrite)


def register(spark: SparkSession) -> None:
    """Make the format `headwater` known to a session, and the session to this thread unless it has one.

    Spark looks formats up in the session of the thread that asks, and for a write in no other: one that has none finds
    no `headwater`.
    """
    spark.dataSource.register(HeadwaterDataSource)
    if not is_connected(spark):
        java = SparkSession._get_j_spark_session_class(spark._jvm)
        if java.getActiveSession().isEmpty():
            java.setActiveSession(spark._jsparkSession)


def is_connected(spark: object) -> bool:
    """Whether a session is one of Spark Connect: formats are looked up, and queries planned, where its server runs."""
    return not isinstance(spark, SparkSession)


def take_snapshot(options: ReadOptions) -> Snapshot:
    """What there is now of what the options name, or what there was when the snapshot in them was taken."""
    if options.snapshot not in ("", TAKE):
        return snapshot_of(options.snapshot)
    with Look(options) as look:
        return look.snapshot()


def _batch_options(given: Mapping[str, str]) -> ReadOptions:
    options = read_options(given)
    for name, value in {
        "group": options.group,
        "maxOffsetsPerTrigger": options.offsets_per_trigger_max,
        "eventTime": options.event_time,
    }.items():
        if value:
            raise InvalidOption(f"option {name} is for streams: a table is read once and whole")
    return options


def _stream_options(given: Mapping[str, str]) -> ReadOptions:
    options = read_options(given)
    if options.ending != LATEST:
        raise InvalidOption("option endingOffsets is for tables: a stream has no end; use trigger(availableNow=True)")
    if options.snapshot:
        raise InvalidOption("option snapshot is for tables: a stream goes on from its checkpoint")
    return options


def _read(options: ReadOptions, schema: StructType, task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of a task; before and after them, whether any of what it was planned for is gone."""
    rows, sieve = Rows(options, schema, session_zone()), Sieve(options.filter)
    with Look(options) as look:
        left = look.left(task.known)
        if not task.share.spans or not left.queues:
            return
        for span in task.share.spans:
            for bodies in look.wanted(span, left, task.share.cut):
                yield from rows.batches(sieve.sift(bodies))
        left = look.left(left)
        ahead = task.share.cut.start.positions if task.share.cut else {}
        look.check_loss(StreamOffset(task.share.spans[0].after, left.drops, positions=ahead), left.queues)


class BatchReader(DataSourceReader):
    """A snapshot of a stretch of the log as a table."""

    def __init__(self, options: ReadOptions, schema: StructType, snapshot: Snapshot) -> None:
        self._options = options
        self._schema = schema
        self._snapshot = snapshot

    def partitions(self) -> list[InputPartition]:
        """Ranges of LSNs, from the snapshot alone."""
        start, end = self._snapshot.start, self._snapshot.end
        known = msgspec.structs.replace(end, positions={})
        shares: list[Share] = []
        with Look(self._options) as look:
            known = look.left(known)
            if known.queues:
                look.check_loss(start, known.queues)
                shares = look.plan(start, msgspec.structs.replace(end, queues=known.queues))
        # Spark takes no tasks at all for one that it knows nothing of.
        return [Task(share, known) for share in shares or [Share((), None)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, on an executor."""
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
        self._planned: StreamOffset | None = None
        self._moved: StreamOffset | None = None
        self._losses: deque[str] = deque(maxlen=LOSSES_SHOWN)
        self._reported: list[str] = []
        self._told: tuple[StreamOffset, str] | None = None

    def _ask(self, question: "Callable[[Look], Answer]") -> "Answer":
        """An answer from the store at the address, which may be another file than the one that is open."""
        try:
            return question(self._look())
        except StoreReplaced:
            self.stop()
            return question(self._look())

    def _look(self) -> Look:
        """The reader of the driver, opened when it is first needed: executors get this object without one."""
        if self._open is None:
            self._open = Look(self._options, self._losses).__enter__()
            self._nothing_through = Lsn(0)
            self._admission = Admission(Times(self._options.event_time))
        return self._open

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        return self._ask(self._first).as_json()

    def _first(self, look: Look) -> StreamOffset:
        here = look.here()
        begin = look.begin(here)
        check_begin(begin, here)
        check_not_ahead("option startingOffsets of a stream", self._options.starting.time, SystemClock().now())
        return begin

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much one micro-batch may take."""
        most = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Everything up to here is read, in as many micro-batches as the limit asks for, and nothing after it."""
        self._target = self._ask(Look.last_lsn)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes: up to a segment of these queues, or not at all."""
        kept = offset_of(start)
        self._move_group(kept)
        found = self._ask(lambda look: self._next(look, kept, limit))
        self._planned = found or kept
        return dict(start) if found is None else found.as_json()

    def _next(self, look: Look, kept: StreamOffset, limit: ReadLimit) -> StreamOffset | None:
        here = look.here(kept)
        wanted = look.aim(StreamOffset(here.last), here)
        resumed = look.resume(kept, here)
        # Told here, not only when the tasks are planned: by then Spark has asked for the progress.
        lost = self._tell_loss(look, kept, resumed, here.queues)
        begin = look.take_in(resumed, wanted)
        if begin is not kept:
            self._nothing_through = Lsn(0)
        last = here.last if self._target is None else min(self._target, here.last)
        newest = look.newest(Lsn(max(begin.lsn, self._nothing_through)), last, here.queues)
        if newest is None:
            # Others push too: what was looked through once is not looked through again.
            self._nothing_through = max(self._nothing_through, last)
            if begin is not kept:
                # A new beginning is kept, or it would be made, and told, again and again.
                return look.mark(begin, here)
            return self._note_loss(look, kept, here) if lost or self._reported != [*self._losses] else None
        end = StreamOffset(max(newest, begin.last))
        if isinstance(limit, ReadMaxRows):
            outlines = look.outline(begin.lsn, newest, here.queues)
            end = self._admission.admit(outlines, begin, limit.max_rows, lambda span: look.wanted(span, wanted))
        return look.mark(msgspec.structs.replace(end, drops=look.drops()), here)

    def _tell_loss(self, look: Look, start: StreamOffset, begin: StreamOffset, queues: Iterable[str]) -> bool:
        """Whether retention took what the micro-batch behind `start`, which goes on at `begin`, should have; told once.

        That is when its end is looked for; of one that was planned before, when its tasks are.
        """
        loss = look.find_loss(begin, [name for name in queues if name not in begin.new_queues(queues)])
        if loss is not None and self._told != (start, str(loss)):
            look.tell_loss(loss)
            self._told = (start, str(loss))
        return loss is not None

    def _note_loss(self, look: Look, kept: StreamOffset, here: Here) -> StreamOffset:
        """The same place with what retention took since: a micro-batch of nothing, whose progress tells of the loss."""
        return look.mark(msgspec.structs.replace(kept, drops=look.drops()), here)

    def _move_group(self, done: StreamOffset) -> None:
        """Move the group, if there is one, to where the stream is.

        Spark asks for the next end when the micro-batch before is done for good, and once more when there is no next.
        Its `commit` comes only with the next one: the group of a query that ended would lag for ever.
        """
        if not self._options.group or done == self._moved:
            return
        here = self._ask(lambda look: look.here(done))
        if done.store in ("", here.store):
            seeks = [
                Seek(database=self._options.database, queue=queue, group=self._options.group, lsn=done.lsn, create=True)
                for queue in here.queues
            ]
            moved = Transaction(database=self._options.database, operations=seeks)
            run_once(self._options.store, moved, self._options.access)
        self._moved = done

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The newest segment of these queues, and how far behind it the query is, for its progress."""
        return self._ask(self._report)

    def _report(self, look: Look) -> dict[str, Any]:
        here = look.here(self._planned)
        begin = self._planned or StreamOffset(here.last)
        newest = look.newest(begin.lsn, here.last, here.queues) or begin.last
        now = SystemClock().now()
        waiting = {queue: list(look.waiting(begin, newest, queue)) for queue in here.queues}
        lag = {queue: lag_of(begin, outlines, now) for queue, outlines in waiting.items()}
        self._reported = [*self._losses]
        lost = {"lost": self._reported} if self._reported else {}
        return {"lsn": newest, "lag": msgspec.to_builtins(lag), **lost}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> "Sequence[InputPartition]":
        """Ranges of LSNs for one micro-batch."""
        return self._ask(lambda look: self._plan(look, offset_of(start), offset_of(end)))

    def _plan(self, look: Look, start: StreamOffset, end: StreamOffset) -> list[Task]:
        here = look.here(msgspec.structs.replace(end, queues={**start.queues, **end.queues}))
        # Where the whole micro-batch was planned for a store that is no more both begin anew, and it is empty.
        begin, finish = look.resume(start, here), look.resume(end, here)
        # Of a queue that is new to the options nothing is read before a micro-batch is planned with it.
        queues = {name: here.queues[name] for name in here.queues if name not in finish.new_queues(here.queues)}
        finish = msgspec.structs.replace(finish, queues=queues)
        self._tell_loss(look, start, self._planned_from(begin, finish), queues)
        # What went before it was planned for was gone before the query could have read it.
        look.check_loss(StreamOffset(Lsn(0), finish.drops), begin.new_queues(queues))
        known = look.mark(StreamOffset(finish.last, look.drops()), here)
        known = msgspec.structs.replace(known, queues=queues, partitions=finish.partitions)
        return [Task(share, known) for share in look.plan(look.take_in(begin, finish), finish)]

    def _planned_from(self, begin: StreamOffset, finish: StreamOffset) -> StreamOffset:
        """Where a micro-batch began when it was planned. Spark does not keep the beginning of the first one: of a query
        that was killed in it, that is made anew, and the oldest message may be another one by then."""
        if begin.drops <= finish.drops or self._options.starting.name != "earliest":
            return begin
        return msgspec.structs.replace(begin, lsn=Lsn(0), drops=finish.drops, positions={})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, on an executor."""
        assert isinstance(partition, Task)
        return _read(self._options, self._schema, partition)

    def stop(self) -> None:
        """The query ended."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None
