"""The read end that flows share: a stretch of the log in steps, as whole records with all that must be kept of them.

    plan     what is new after each queue's mark, in steps that are done or not done as a whole
    read     one step as a DataFrame, a task for each of its spans

A plan looks at segments without their records. It also finds what retention dropped before it was read: offsets are
dense, so a gap is seen, counted and told.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.errors import FlowError, QueueMissing, SourceUnfit
from headwater.log.operations import Touch
from headwater.model.names import Lsn
from headwater.model.record import BareRecord, Record, split_if_bare, split_records
from headwater.pipeline.planning import Range
from headwater.pipeline.ranges import Place, read_bodies
from headwater.pipeline.served import Log

if TYPE_CHECKING:
    import pyarrow

    from headwater.stores.log_reader import Body
    from headwater.stores.questions import PartitionStatus

PARTITIONS_PER_LOOK = 10_000
RECORDS_PER_TASK = 250_000
RECORDS_PER_STEP = 2_000_000
COLUMNS = {
    "queue": "STRING",
    "partition_id": "BIGINT",
    "partition": "STRING",
    "offset": "BIGINT",
    "lsn": "BIGINT",
    "written_at": "BIGINT",
    "timestamp": "BIGINT",
    "transaction_id": "STRING",
    "trace_id": "STRING",
    "type": "STRING",
    "headers": "MAP",
    "producer_sub": "STRING",
    "value": "STRING",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()).replace("MAP", "MAP<STRING, STRING>")


class Step(NamedTuple):
    """Spans that are done together. `ends` has the next offset of each partition, `lost` what retention dropped."""

    spans: tuple[Range, ...]
    records: int
    ends: dict[int, int]
    lost: dict[str, int]

    @property
    def through(self) -> int:
        return self.spans[-1].through


def choose_queues(log: Log, database: str, wanted: Sequence[str]) -> list[str]:
    """The queues of a database that were asked for, or all; one that is not there is an error that names those."""
    there = [status.queue for status in log.queues(database)]
    missing = [name for name in wanted if name not in there]
    if missing:
        known = ", ".join(there) or "none"
        raise QueueMissing(f"there is no queue {', '.join(map(repr, missing))}; there are {known}")
    return sorted(set(wanted or there))


def check_plain(log: Log, database: str, queues: Sequence[str], decrypt: bool) -> None:
    """Raises when an encrypted queue would end in files that are not, unless that is what was asked for."""
    statuses = log.queues(database)
    secret = [status.queue for status in statuses if status.options.encrypted and status.queue in queues]
    if secret and not decrypt:
        told = "is encrypted in the store and would not be in the files; --decrypt says that you mean it"
        raise SourceUnfit(f"{', '.join(secret)} {told}")


def partitions_of(log: Log, database: str, queue: str) -> "list[PartitionStatus]":
    """All partitions of a queue, however many; none when there is no such queue."""
    found: list[PartitionStatus] = []
    while more := log.partitions(database, queue, PARTITIONS_PER_LOOK, _last(found)):
        found.extend(more)
    return found


def _last(partitions: "list[PartitionStatus]") -> int:
    return partitions[-1].partition_id if partitions else 0


# ── planning ──


class Planner:
    """Goes over the log once, without its records, and cuts it into steps."""

    def __init__(self, database: str, marks: Mapping[str, int], ends: Mapping[int, int], records_max: int) -> None:
        self._database = database
        self._marks = marks
        self._known = dict(ends)
        self._records_max = records_max
        self._begin(min(marks.values(), default=0))

    def _begin(self, after: int) -> None:
        self._spans: list[Range] = []
        self._after = after
        self._in_span = self._in_step = 0
        self._ends: dict[int, int] = {}
        self._lost: dict[str, int] = {}

    def take(self, touch: Touch) -> Step | None:
        """Take one segment in; a step when it is full with this one."""
        lane = touch.lane
        if lane.database == self._database and touch.lsn > self._marks.get(lane.queue, touch.lsn):
            self._count(touch)
        if self._in_span >= RECORDS_PER_TASK:
            self._cut(touch.lsn)
        return self.finish(touch.lsn) if self._in_step >= self._records_max else None

    def finish(self, through: int) -> Step:
        """The step that ends here."""
        self._cut(through)
        step = Step(tuple(self._spans), self._in_step, self._ends, self._lost)
        self._begin(through)
        return step

    def _count(self, touch: Touch) -> None:
        expected = self._known.get(touch.partition_id, 0)
        if touch.first_offset > expected:
            queue = touch.lane.queue
            self._lost[queue] = self._lost.get(queue, 0) + touch.first_offset - expected
        self._known[touch.partition_id] = self._ends[touch.partition_id] = touch.first_offset + touch.count
        self._in_span += touch.count
        self._in_step += touch.count

    def miss(self, status: "PartitionStatus") -> None:
        """Count what retention dropped at the end of a partition: no segment is left that would show a gap."""
        lost = status.start - self._known.get(status.partition_id, 0)
        if lost > 0:
            self._lost[status.queue] = self._lost.get(status.queue, 0) + lost
            self._known[status.partition_id] = self._ends[status.partition_id] = status.start

    def _cut(self, through: int) -> None:
        if through > self._after:
            self._spans.append(Range(Lsn(self._after), Lsn(through)))
        self._after, self._in_span = through, 0


def plan(
    log: Log,
    database: str,
    marks: Mapping[str, int],
    ends: Mapping[int, int],
    records_max: int = RECORDS_PER_STEP,
) -> list[Step]:
    """What the queues in `marks` have after the LSN beside each, in steps."""
    if not marks:
        return []
    last = log.last_lsn()
    planner = Planner(database, marks, ends, records_max)
    steps: list[Step | None] = [
        planner.take(touch) for touch in log.touches(database, sorted(marks), min(marks.values()), last)
    ]
    if last > min(marks.values()):
        for status in chain.from_iterable(partitions_of(log, database, queue) for queue in sorted(marks)):
            planner.miss(status)
        steps.append(planner.finish(last))
    return [step for step in steps if step is not None and step.spans]


def check_gone(log: Log, database: str, marks: Mapping[str, int], step: Step, read: int) -> int:
    """How many records of a step retention took before it was read; raises when the log has some that were not read.

    What a flow has done up to an LSN is never looked at again, so it must be done, or gone.
    """
    short = step.records - read
    if short < 0:
        raise FlowError(f"{-short:,} records more than planned came from the log up to LSN {step.through}")
    if not short:
        return 0
    kept = sum(
        touch.count
        for touch in log.touches(database, sorted(marks), step.spans[0].after, step.through)
        if touch.lane.database == database and touch.lsn > marks.get(touch.lane.queue, touch.lsn)
    )
    if kept > read:
        raise FlowError(
            f"{kept - read:,} records up to LSN {step.through} are in the log and were not read from it. Nothing of "
            "this step was kept: see that all machines read the same store, and run it again"
        )
    return short


# ── reading ──


def read_step(spark: SparkSession, place: Place, marks: Mapping[str, int], step: Step) -> DataFrame:
    """The records of one step: those of each queue that come after its mark."""
    spans, queues = step.spans, sorted(marks)

    def run(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from map(make_batch, read_bodies(place, queues, spans[number]))

    messages = spark.range(0, len(spans), 1, len(spans)).mapInArrow(run, SCHEMA)
    if len(set(marks.values())) == 1:
        return messages
    wanted = f.lit(False)
    for queue, mark in marks.items():
        wanted = wanted | ((f.col("queue") == queue) & (f.col("lsn") > mark))
    return messages.where(wanted)


def make_batch(bodies: "Sequence[Body]") -> "pyarrow.RecordBatch":
    """Segments as rows, column by column."""
    import numpy
    import pyarrow

    text, number = pyarrow.string(), pyarrow.int64()
    kinds = {"BIGINT": number, "STRING": text, "MAP": pyarrow.map_(text, text)}
    split: list[Sequence[BareRecord | Record]] = [
        split_if_bare(body.records) or split_records(body.records) for body in bodies
    ]
    counts = [len(records) for records in split]
    segment = pyarrow.array(numpy.repeat(numpy.arange(len(bodies)), counts))
    records: list[BareRecord | Record] = list(chain.from_iterable(split))

    def each(values: list[Any], kind: Any) -> Any:
        """What holds for a whole segment, once for each of its records."""
        return pyarrow.array(values, kind).take(segment)

    written_at = each([body.written_at for body in bodies], number)
    begins = [body.first_offset for body in bodies]
    offsets = [numpy.arange(begin, begin + count) for begin, count in zip(begins, counts, strict=True)]
    columns = [
        each([body.lane.queue for body in bodies], text),
        each([body.partition_id for body in bodies], number),
        each([body.lane.partition for body in bodies], text),
        numpy.concatenate(offsets),
        each([body.lsn for body in bodies], number),
        written_at,
        *_envelope_columns(records, written_at),
        # JSON is UTF-8, and the log checked it when it was pushed: nothing is decoded.
        pyarrow.array([bytes(record.data) for record in records], pyarrow.binary()).view(text),
    ]
    arrays = [
        column if isinstance(column, pyarrow.Array) else pyarrow.array(column, kinds[kind])
        for column, kind in zip(columns, COLUMNS.values(), strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def _envelope_columns(records: list[Any], written_at: Any) -> list[Any]:
    """What records say of themselves, from `timestamp` to `producer_sub`."""
    import pyarrow

    if not any(isinstance(record, Record) for record in records):
        nothing = pyarrow.repeat("", len(records))
        headers = pyarrow.nulls(len(records), pyarrow.map_(pyarrow.string(), pyarrow.string()))
        return [written_at, nothing, nothing, nothing, headers, nothing]
    return [
        pyarrow.array([record.timestamp or None for record in records], pyarrow.int64()).fill_null(written_at),
        [record.transaction_id for record in records],
        [record.trace_id for record in records],
        [record.type for record in records],
        [list(record.headers.items()) if record.headers else None for record in records],
        [record.producer_sub for record in records],
    ]
