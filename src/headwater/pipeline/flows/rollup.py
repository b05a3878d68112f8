"""rollup: how much was pushed, completed, retried and given up, how long it took and how far behind groups are.

    log ─ read_step ─► count_pushed ─────────────────┐
    groups' positions, now and at the last rollup    ├─► rows by minute, hour and day ─► tables of the store ─► chart
    └─ with segments' times ─► count_completed ──────┘

What the figures are made of:
- `pushed`, `bytes`: every record, in the bucket of its time. A record older than the watermark (the newest time seen
  less the lateness allowed) finds its bucket closed: it is counted as `late` in the bucket it arrived in.
- `completed`: records still kept that a group's position has passed since the last rollup, in the bucket of this one.
- latency: from the record's commit until the rollup that saw it passed. A consumer's ack is not stored with its time,
  so this is too long by up to the time between two rollups, never too short.
- `lag_max`: the greatest lag that a rollup found in the bucket.
- `retried`, `buried`: counted by the store where they happen; what was added since the last rollup.

Rows and the state that says what they cover are kept in one commit: a run that dies is not counted twice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.clock import SECOND, Clock, Timestamp
from headwater.errors import InvalidOption, StoreDamaged
from headwater.log.flow_operations import AddRollups
from headwater.model.job import JOBS_QUEUE
from headwater.model.names import Lsn
from headwater.model.rollup import (
    BINS_PER_DOUBLING,
    MILLISECOND,
    RESOLUTIONS,
    Rollup,
    RollupQuery,
    add_up,
    in_resolution,
)
from headwater.pipeline.chart import check_chart, write_chart
from headwater.pipeline.ends import RECORDS_PER_STEP, Step, choose_queues, plan, read_step
from headwater.pipeline.handle import Handle
from headwater.pipeline.options import anywhere
from headwater.pipeline.planning import Range
from headwater.pipeline.progress import Progress, Tell, keep_quiet, rate
from headwater.pipeline.ranges import Place, read_stretches
from headwater.pipeline.summary import Summary
from headwater.stores.questions import (
    FindRollupState,
    GroupStatus,
    ListGroups,
    ListPositions,
    ListQueues,
    ListRollups,
    Position,
)

if TYPE_CHECKING:
    import pyarrow

    from headwater.stores.log_reader import SegmentOutline

MINUTE = RESOLUTIONS["minute"]
LATE_SECONDS = 3_600
STRETCHES = "queue STRING, partition_id BIGINT, lsn BIGINT, first BIGINT, last BIGINT, written_at BIGINT"
MOVES = "queue STRING, reader STRING, partition_id BIGINT, before BIGINT, after BIGINT"
DAY_LENGTH = len("2026-11-15")
CHART_BUCKETS = {"minute": 24 * 60, "hour": 14 * 24, "day": 365}


class RollUp(msgspec.Struct, frozen=True, kw_only=True):
    """Whose figures, how late records may be, and where a chart of them goes.

    Everything is always counted. `queues`, `since` and `until` (a day such as 2026-11-15, or a time) choose what is
    shown of what is kept; `until` a day is to its end.
    """

    store: str
    database: str = "main"
    late_seconds: float = LATE_SECONDS
    chart: str = ""
    resolution: str = "minute"
    queues: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    by_queue: bool = False
    records_per_step: int = RECORDS_PER_STEP


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows in the store cover: records up to `lsn`, positions and counts of groups as they were then.

    `passed` has, for each queue, the LSN up to which all its groups have completed everything.
    """

    lsn: int = 0
    newest: int = 0
    positions: dict[str, dict[str, dict[int, int]]] = {}
    retried: dict[str, dict[str, int]] = {}
    buried: dict[str, dict[str, int]] = {}
    passed: dict[str, int] = {}


class Move(NamedTuple):
    """From where to where a group's position in a partition went."""

    queue: str
    group: str
    partition_id: int
    before: int
    after: int


# ── pure ──


def count_pushed(messages: DataFrame, watermark: int) -> DataFrame:
    """What was pushed in each minute, by queue and type; what comes after its bucket was closed is late.

    Changes of jobs are told apart by the job's type and the state it came to: `send_mail completed`.
    """
    late = f.col("timestamp") < f.lit(watermark)
    time = f.when(late, f.col("written_at")).otherwise(f.col("timestamp"))
    job = f.concat_ws(" ", f.get_json_object("value", "$.type"), f.get_json_object("value", "$.state"))
    kind = f.when(f.col("queue") == JOBS_QUEUE, job).otherwise(f.col("type"))
    return (
        messages.withColumns({"late": late, "bucket": time - time % MINUTE, "type": kind})
        .groupBy("queue", "type", "bucket")
        .agg(
            f.count_if(~f.col("late")).alias("pushed"),
            f.count_if("late").alias("late"),
            f.sum(f.octet_length("value")).alias("bytes"),
            f.max(f.least("timestamp", "written_at")).alias("newest"),
        )
    )


def count_completed(moves: DataFrame, outlines: DataFrame, seen_at: int) -> DataFrame:
    """What groups have passed, by queue, group and bin of latency: each segment counts with its part of the move."""
    passed = f.least("last", "after") - f.greatest("first", "before")
    latency = f.greatest(f.lit(seen_at) - f.col("written_at"), f.lit(0))
    bins = f.floor(BINS_PER_DOUBLING * f.log2(latency / MILLISECOND + 1)).cast("int")
    return (
        outlines.join(f.broadcast(moves), ["queue", "partition_id"])
        .where(passed > 0)
        .select("queue", "reader", passed.alias("passed"), latency.alias("latency"), bins.alias("bin"))
        .groupBy("queue", "reader", "bin")
        .agg(
            f.sum("passed").alias("completed"),
            f.sum(f.col("passed") * f.col("latency")).alias("latency_total"),
            f.max("latency").alias("latency_max"),
        )
    )


def find_passed(moves: DataFrame, outlines: DataFrame) -> DataFrame:
    """For each queue, the oldest segment that one of its groups has still something of."""
    waiting = outlines.join(f.broadcast(moves), ["queue", "partition_id"]).where(f.col("last") > f.col("after"))
    return waiting.groupBy("queue").agg(f.min("lsn").alias("lsn"))


def find_moves(state: State, positions: Iterable[Position]) -> list[Move]:
    """How far groups came since the last rollup. A group that began in the middle counts from where it was first seen.

    A position that went back (a seek) has completed nothing.
    """
    found = []
    for one in positions:
        known = state.positions.get(one.queue, {}).get(one.group, {}).get(one.partition_id)
        before = known if known is not None else (0 if one.since == 0 else int(one.position))
        found.append(Move(one.queue, one.group, one.partition_id, min(before, one.position), one.position))
    return found


def group_rows(state: State, groups: Iterable[GroupStatus], bucket: int) -> list[Rollup]:
    """Lag as it is now, and what was retried and given up since the last rollup."""
    return [
        Rollup(
            queue=one.queue,
            group=one.group,
            bucket=bucket,
            lag_max=one.lag,
            retried=_added(state.retried, one, one.retried),
            buried=_added(state.buried, one, one.buried),
        )
        for one in groups
    ]


def _added(known: Mapping[str, Mapping[str, int]], group: GroupStatus, count: int) -> int:
    """What a count rose by; one that fell belongs to a group that was made anew."""
    before = known.get(group.queue, {}).get(group.group, 0)
    return count - before if count >= before else count


def by_resolution(rows: Iterable[Rollup]) -> list[Rollup]:
    """Rows of minutes, and the same as parts of hours and days."""
    return add_up(in_resolution(row, resolution) for row in rows for resolution in RESOLUTIONS)


# ── the two ends ──


def run(spark: SparkSession, job: RollUp, tell: Tell = keep_quiet, clock: Clock | None = None) -> Summary:
    """Count what is new and keep it; then draw what is kept."""
    if job.resolution not in RESOLUTIONS:
        raise InvalidOption(f"resolution must be {', '.join(RESOLUTIONS)}; got {job.resolution!r}")
    if job.chart:
        check_chart(Path(job.chart))
    with Handle(job.store, clock=clock) as log:
        began_at = log.now()
        choose_queues(log, job.database, job.queues)
        wanted_of(job, began_at)
        number, state = _read_state(log, job.database)
        queues = [status.queue for status in log.ask(log.store.ask(ListQueues(job.database)))]
        marks = dict.fromkeys(queues, state.lsn)
        steps = plan(log, job.database, marks, {}, job.records_per_step)
        progress = Progress(tell, sum(step.records for step in steps) + 1)
        counted: list[Rollup] = []
        for step in steps:
            with progress.step(spark.sparkContext, step.records):
                rows, state = _count_step(spark, job, step, marks, state)
                number = _keep(log, job, number, state, rows)
                counted.extend(rows)
        with progress.step(spark.sparkContext, 1):
            rows, state = _sample(spark, log, job, state)
            _keep(log, job, number, state, rows)
        shown = _kept(log, job)
        if job.chart:
            write_chart(Path(job.chart), shown, job.resolution, job.by_queue)
        return _summary(job, counted, rows, state, shown, rate(sum(map(_messages, counted)), began_at, log.now()))


def _read_state(log: Handle, database: str) -> tuple[int, State]:
    number, text = log.ask(log.store.ask(FindRollupState(database)))
    try:
        return number, msgspec.json.decode(text, type=State) if text else State()
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the state of the rollups cannot be read: {error}") from error


def _keep(log: Handle, job: RollUp, number: int, state: State, rows: Sequence[Rollup]) -> int:
    text = msgspec.json.encode(state).decode()
    (added,) = log.commit([AddRollups(database=job.database, number=number, state=text, rows=by_resolution(rows))])
    return int(added.number)


def _count_step(
    spark: SparkSession, job: RollUp, step: Step, marks: Mapping[str, int], state: State
) -> tuple[list[Rollup], State]:
    """The rows of one step, and the state after it."""
    rows: list[Any] = []
    if step.records:
        messages = read_step(spark, Place(anywhere(job.store), job.database), marks, step)
        watermark = state.newest - int(job.late_seconds * SECOND)
        rows = count_pushed(messages, watermark).collect()
    newest = max([state.newest, *(row["newest"] for row in rows)])
    counted = [
        Rollup(
            queue=row["queue"],
            type=row["type"],
            bucket=row["bucket"],
            pushed=row["pushed"],
            late=row["late"],
            bytes=row["bytes"],
        )
        for row in rows
    ]
    return counted, msgspec.structs.replace(state, lsn=step.through, newest=newest)


def _sample(spark: SparkSession, log: Handle, job: RollUp, state: State) -> tuple[list[Rollup], State]:
    """Where groups stand now, what they completed since the last rollup, and the state after it."""
    positions = log.ask(log.store.ask(ListPositions(job.database)))
    groups = log.ask(log.store.ask(ListGroups(job.database)))
    seen_at = log.now()
    bucket = seen_at - seen_at % MINUTE
    moves = find_moves(state, positions)
    rows, passed = _completed(spark, log, job, state, moves, seen_at)
    after = msgspec.structs.replace(
        state,
        positions=_positions(moves),
        retried=_by_group(groups, "retried"),
        buried=_by_group(groups, "buried"),
        passed=passed,
    )
    return [*group_rows(state, groups, bucket), *rows], after


def _completed(
    spark: SparkSession, log: Handle, job: RollUp, state: State, moves: list[Move], seen_at: int
) -> tuple[list[Rollup], dict[str, int]]:
    """What was completed in the queues in which a group has moved, and up to where each queue is passed by all."""
    moved = {move.queue for move in moves if move.after > move.before}
    if not moved:
        return [], state.passed
    fresh = {move.queue for move in moves if not _is_known(state, move)}
    marks = {queue: 0 if queue in fresh else state.passed.get(queue, 0) for queue in moved}
    steps = plan(log, job.database, marks, {})
    through = steps[-1].through if steps else 0
    outlines = outline(spark, Place(anywhere(job.store), job.database), marks, steps).persist()
    try:
        table = spark.createDataFrame([tuple(move) for move in moves], MOVES)
        found = count_completed(table, outlines, seen_at).collect()
        waiting = {row["queue"]: row["lsn"] - 1 for row in find_passed(table, outlines).collect()}
    finally:
        outlines.unpersist()
    bucket = seen_at - seen_at % MINUTE
    rows = [
        Rollup(
            queue=row["queue"],
            group=row["reader"],
            bucket=bucket,
            completed=row["completed"],
            latency_total=row["latency_total"],
            latency_max=row["latency_max"],
            latency_bins={row["bin"]: row["completed"]},
        )
        for row in found
    ]
    return rows, {**state.passed, **{queue: waiting.get(queue, through) for queue in moved}}


def _is_known(state: State, move: Move) -> bool:
    return move.partition_id in state.positions.get(move.queue, {}).get(move.group, {})


def outline(spark: SparkSession, place: Place, marks: Mapping[str, int], steps: Sequence[Step]) -> DataFrame:
    """The segments of queues after their marks, without their records."""
    spans = [span for step in steps for span in step.spans]

    def run(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for queue, mark in marks.items():
                    rest = Range(Lsn(max(mark, spans[number].after)), spans[number].through)
                    for found in read_stretches(place, queue, rest):
                        yield _outline(queue, found)

    count = max(len(spans), 1)
    numbers = spark.range(0, len(spans), 1, count)
    return numbers.mapInArrow(run, STRETCHES)


def _outline(queue: str, found: "Sequence[SegmentOutline]") -> "pyarrow.RecordBatch":
    import pyarrow

    columns = {
        "queue": [queue] * len(found),
        "partition_id": [one.partition_id for one in found],
        "lsn": [one.lsn for one in found],
        "first": [one.first_offset for one in found],
        "last": [one.first_offset + one.count for one in found],
        "written_at": [one.written_at for one in found],
    }
    return pyarrow.RecordBatch.from_pydict(columns)


def _positions(moves: Iterable[Move]) -> dict[str, dict[str, dict[int, int]]]:
    found: dict[str, dict[str, dict[int, int]]] = {}
    for move in moves:
        found.setdefault(move.queue, {}).setdefault(move.group, {})[move.partition_id] = move.after
    return found


def _by_group(groups: Iterable[GroupStatus], name: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for group in groups:
        found.setdefault(group.queue, {})[group.group] = getattr(group, name)
    return found


def wanted_of(job: RollUp, now: int) -> RollupQuery:
    """What is shown of what is kept: the time that was asked for, or as much as a chart can show."""
    length = RESOLUTIONS[job.resolution]
    until = moment("until", job.until, through=True) if job.until else 2**62
    last = min(until, now)
    since = moment("since", job.since) if job.since else last - CHART_BUCKETS[job.resolution] * length
    if since >= until:
        raise InvalidOption(f"since must be before until; got {job.since!r} and {job.until!r}")
    # A bucket is known by its begin: the one that the time lies in belongs to it.
    begin = max(since - since % length, 0)
    return RollupQuery(resolution=job.resolution, since=Timestamp(begin), until=Timestamp(until))


def moment(name: str, text: str, *, through: bool = False) -> int:
    """A day or a time in microseconds; of a day the begin, or the end with `through`. What has no zone is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidOption(
            f"{name} must be a day or time such as 2026-11-15 or 2026-11-15T08:00; got {text!r}"
        ) from error
    whole = found.replace(tzinfo=found.tzinfo or UTC)
    if through and len(text) == DAY_LENGTH:
        whole += timedelta(days=1)
    return int(whole.timestamp()) * SECOND


def _kept(log: Handle, job: RollUp) -> list[Rollup]:
    rows = log.ask(log.store.ask(ListRollups(job.database, wanted_of(job, log.now()))))
    return [row for row in rows if not job.queues or row.queue in job.queues]


def _messages(row: Rollup) -> int:
    return row.pushed + row.late


def _summary(
    job: RollUp,
    counted: Sequence[Rollup],
    sampled: Sequence[Rollup],
    state: State,
    shown: Sequence[Rollup],
    speed: int,
) -> Summary:
    messages = sum(map(_messages, counted))
    facts: dict[str, Any] = {
        "messages": messages,
        "late": sum(row.late for row in counted),
        "completed": sum(row.completed for row in sampled),
        "retried": sum(row.retried for row in sampled),
        "dead letters": sum(row.buried for row in sampled),
        "groups": sum(len(groups) for groups in state.retried.values()),
        "lag": sum(row.lag_max for row in sampled),
        "through LSN": state.lsn,
        "messages a second": speed,
    }
    if job.queues or job.since or job.until:
        facts["shown queues"] = ", ".join(sorted({row.queue for row in shown}))
        facts["shown messages"] = sum(map(_messages, shown))
        facts["shown completed"] = sum(row.completed for row in shown)
        facts["shown retried"] = sum(row.retried for row in shown)
        facts["shown dead letters"] = sum(row.buried for row in shown)
    if job.chart:
        facts["chart"] = job.chart
    return Summary(flow="rollup", facts=facts)
