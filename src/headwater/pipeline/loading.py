"""The write end of flows that bring records in: each record once, in order, with its id and its time.

    rows ─ by partition, in order of position ─► tasks ─ Load, some thousand records a commit ─► the log

Every row says where in which source it stands. The partition it goes to remembers what it has of each source, in the
same commit that appends the records; so a run that died, or is started twice, adds what is missing and nothing else.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headwater.client.access import Access
from headwater.log.flow_operations import Load, Loaded
from headwater.model.coverage import Ranges
from headwater.model.record import Record
from headwater.pipeline.handle import Handle
from headwater.pipeline.served import open_log

if TYPE_CHECKING:
    import pyarrow

RECORDS_PER_COMMIT = 5_000
COLUMNS = (
    "partition",
    "source",
    "position",
    "transaction_id",
    "trace_id",
    "type",
    "headers",
    "producer_sub",
    "timestamp",
    "value",
)
SCHEMA = (
    "partition STRING, source STRING, position BIGINT, transaction_id STRING, trace_id STRING, type STRING, "
    "headers MAP<STRING, STRING>, producer_sub STRING, timestamp BIGINT, value STRING"
)
ANSWER = "appended BIGINT, before BIGINT"

Row = tuple[Any, ...]


class Target(NamedTuple):
    """The queue that records go to."""

    store: str
    database: str
    queue: str
    access: Access = Access()


class Tally(NamedTuple):
    """How many records were appended, and how many were there before."""

    appended: int
    before: int


def load_rows(rows: DataFrame, target: Target, gaps: Sequence[int] | None = ()) -> Tally:
    """Append rows (with `COLUMNS`) to a queue.

    What lies between the positions of a source is covered too, as those of other partitions, but for `gaps`, which a
    later run may bring; None covers the positions of the rows and nothing else.
    """
    ordered = rows.select(*COLUMNS).repartition("partition").sortWithinPartitions("partition", "source", "position")

    def run(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow

        appended, before = load_batches(batches, target, gaps)
        yield pyarrow.RecordBatch.from_pydict({"appended": [appended], "before": [before]})

    sums = ordered.mapInArrow(run, ANSWER).agg(f.sum("appended"), f.sum("before")).first()
    return Tally(0, 0) if sums is None else Tally(sums[0] or 0, sums[1] or 0)


def load_batches(batches: "Iterator[pyarrow.RecordBatch]", target: Target, gaps: Sequence[int] | None) -> Tally:
    """Append what one task was given, and count it."""
    appended = before = 0
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return Tally(0, 0)
    with open_log(target.store, target.access, create=True) as log:
        rows = chain.from_iterable(map(_rows, chain([first], batches)))
        for operation in operations(rows, target, gaps, log.commit_bytes_max):
            (loaded,) = log.commit([operation])
            assert isinstance(loaded, Loaded)
            appended += loaded.count
            before += loaded.skipped
    return Tally(appended, before)


def _rows(batch: "pyarrow.RecordBatch") -> Iterator[Row]:
    return zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True)


def operations(
    rows: Iterator[Row], target: Target, gaps: Sequence[int] | None, bytes_max: int = Handle.commit_bytes_max
) -> Iterator[Load]:
    """Rows as commits, each of one source and one partition."""
    for (partition, source), members in groupby(rows, key=itemgetter(0, 1)):
        begin: int | None = None
        for chunk in _chunks(members, bytes_max):
            positions = [row[2] for row in chunk]
            begin, end = (positions[0] if begin is None else begin), positions[-1] + 1
            yield Load(
                database=target.database,
                queue=target.queue,
                partition=partition,
                source=source,
                covers=runs_of(positions) if gaps is None else without(begin, end, gaps),
                positions=positions,
                records=[record_of(row) for row in chunk],
            )
            begin = end


def _chunks(rows: Iterator[Row], bytes_max: int) -> Iterator[list[Row]]:
    """Rows in order, as many together as one commit should have."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += len(row[-1])
        if len(chunk) == RECORDS_PER_COMMIT or size >= bytes_max:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def without(begin: int, end: int, gaps: Sequence[int]) -> Ranges:
    """The range less single positions, which rise.

    >>> without(0, 10, [3, 12])
    ((0, 3), (4, 10))
    """
    found = []
    for gap in gaps[bisect_left(gaps, begin) : bisect_left(gaps, end)]:
        if begin < gap:
            found.append((begin, gap))
        begin = gap + 1
    return tuple([*found, (begin, end)] if begin < end else found)


def runs_of(positions: Sequence[int]) -> Ranges:
    """Rising positions as ranges.

    >>> runs_of([1, 2, 5])
    ((1, 3), (5, 6))
    """
    found: list[tuple[int, int]] = []
    for position in positions:
        if found and found[-1][1] == position:
            found[-1] = (found[-1][0], position + 1)
        else:
            found.append((position, position + 1))
    return tuple(found)


def record_of(row: Row) -> Record:
    """The record that a row describes."""
    _, _, _, transaction_id, trace_id, kind, headers, producer, timestamp, value = row
    return Record(
        data=msgspec.Raw(value.encode()),
        transaction_id=transaction_id or "",
        trace_id=trace_id or "",
        type=kind or "",
        headers=dict(headers) if headers else None,
        producer_sub=producer or "",
        timestamp=timestamp or 0,
    )
