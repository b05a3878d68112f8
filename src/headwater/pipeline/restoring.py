"""Archived files back into a queue, in the order they were written in, some thousand records a commit.

    file ─► batches ─► records by partition ─ Load ─► the log

The log has one writer at a time, and files of an archive mostly stand in its order: then they are read one after the
other where the commits are made, and nothing is sorted. `in_log_order` looks whether they do, before anything is
written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headwater.errors import ArchiveDamaged
from headwater.log.flow_operations import Load, Loaded
from headwater.model.coverage import Ranges
from headwater.model.record import Record
from headwater.pipeline.handle import Handle
from headwater.pipeline.loading import RECORDS_PER_COMMIT, Tally, Target
from headwater.pipeline.served import Log
from headwater.stores.log_reader import SegmentOutline

if TYPE_CHECKING:
    import numpy
    import pyarrow
    from pyarrow import parquet

ROWS_PER_LOOK = 100_000
LANES_PER_COMMIT = 4
SAID = ("transaction_id", "trace_id", "type")


NOWHERE = 2**62


class Origin(NamedTuple):
    """What a partition of an archive is called as a source, and which of its offsets the target holds itself."""

    source: str
    held_from: int = NOWHERE
    held_until: int = NOWHERE


def in_log_order(paths: Sequence[Path]) -> bool:
    """Whether the records of every partition rise over these files, one after the other."""
    ends: dict[int, int] = {}
    for path in paths:
        for batch in _batches(path, ROWS_PER_LOOK, ["partition_id", "offset"]):
            for number, rows in _by_partition(batch):
                offsets = batch.column("offset").to_numpy()[rows]
                if offsets[0] < ends.get(number, 0) or (offsets[1:] <= offsets[:-1]).any():
                    return False
                ends[number] = int(offsets[-1]) + 1
    return True


def common_ends(outlines: Iterable[SegmentOutline], paths: Sequence[Path]) -> dict[int, int]:
    """How far a log has the very segments that files have, by partition: the first offset behind them.

    A store that was put back from a copy has the first part of its partitions, and behind it nothing, or other records
    at the offsets of those that were archived.
    """
    there = {(int(one.partition_id), int(one.lsn)): one for one in outlines}
    ends: dict[int, int] = {}
    for path in paths:
        for batch in _batches(path, ROWS_PER_LOOK, ["partition_id", "offset", "lsn", "written_at"]):
            for number, lsn, offset, written_at in _last_rows(batch):
                one = there.get((number, lsn))
                if one is not None and (one.written_at, one.first_offset + one.count > offset) == (written_at, True):
                    ends[number] = max(ends.get(number, 0), offset + 1)
    return ends


def _last_rows(batch: "pyarrow.RecordBatch") -> Iterator[tuple[int, int, int, int]]:
    """Partition, LSN, offset and time of the last row of each segment in a batch."""
    import numpy
    import pyarrow

    lsns, offsets = batch.column("lsn").to_numpy(), batch.column("offset").to_numpy()
    times = batch.column("written_at").cast(pyarrow.int64()).to_numpy()
    for number, rows in _by_partition(batch):
        ends = rows[numpy.append(numpy.diff(lsns[rows]) != 0, True)]
        for row in ends.tolist():
            yield number, int(lsns[row]), int(offsets[row]), int(times[row])


def load_file(log: Log, path: Path, origins: Mapping[int, Origin], target: Target) -> Tally:
    """Append what a queue does not have of a file."""
    appended = before = 0
    for batch in _batches(path, _rows_per_commit(path, log.commit_bytes_max)):
        operations = list(loads(batch, origins, target, log.commit_bytes_max))
        for loaded in log.commit(operations) if operations else ():
            assert isinstance(loaded, Loaded)
            appended += loaded.count
            before += loaded.skipped
    return Tally(appended, before)


def loads(
    batch: "pyarrow.RecordBatch",
    origins: Mapping[int, Origin],
    target: Target,
    bytes_max: int = Handle.commit_bytes_max,
) -> Iterator[Load]:
    """The rows of a batch as operations, each of one partition; rows of which the target holds the record stay out."""
    records = _records(batch)
    offsets, names = batch.column("offset").to_numpy(), batch.column("partition")
    for number, rows in _by_partition(batch):
        origin = origins.get(number)
        if origin is None:
            continue
        is_missing = (offsets[rows] < origin.held_from) | (offsets[rows] >= origin.held_until)
        missing = rows[is_missing].tolist()
        for chunk in _chunks(missing, [len(records[row].data) for row in missing], bytes_max):
            yield Load(
                database=target.database,
                queue=target.queue,
                partition=names[chunk[0]].as_py(),
                source=origin.source,
                covers=_runs(offsets[chunk]),
                positions=offsets[chunk].tolist(),
                records=[records[row] for row in chunk],
            )


def _chunks(rows: Sequence[int], sizes: Sequence[int], bytes_max: int) -> Iterator[Sequence[int]]:
    """Rows in order, as many together as one operation should have."""
    begin = size = 0
    for end, more in enumerate(sizes, 1):
        size += more
        if size >= bytes_max or end == len(rows):
            yield rows[begin:end]
            begin, size = end, 0


def _batches(path: Path, rows: int, columns: "list[str] | None" = None) -> "Iterator[pyarrow.RecordBatch]":
    with _opened(path) as file:
        yield from file.iter_batches(rows, columns=columns, use_threads=False)


def _opened(path: Path) -> "parquet.ParquetFile":
    from pyarrow import ArrowInvalid, parquet

    try:
        return parquet.ParquetFile(path)
    except (OSError, ArrowInvalid) as error:
        raise ArchiveDamaged(f"{path} was whole when this run began, and cannot be read now: run it again") from error


def _rows_per_commit(path: Path, bytes_max: int) -> int:
    """As many rows as have about as many bytes as a commit should."""
    with _opened(path) as file:
        about = file.metadata
    size: int = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    fitting: int = bytes_max * about.num_rows // max(size, 1)
    return max(1, min(fitting, LANES_PER_COMMIT * RECORDS_PER_COMMIT))


def _by_partition(batch: "pyarrow.RecordBatch") -> "Iterator[tuple[int, numpy.ndarray[Any, Any]]]":
    """The rows of each partition, in their order."""
    import numpy

    numbers = batch.column("partition_id").to_numpy()
    order = numpy.argsort(numbers, kind="stable")
    for rows in numpy.split(order, numpy.flatnonzero(numpy.diff(numbers[order])) + 1):
        if len(rows):
            yield int(numbers[rows[0]]), rows


def _runs(positions: "numpy.ndarray[Any, Any]") -> Ranges:
    """Rising positions as ranges."""
    import numpy

    parts = numpy.split(positions, numpy.flatnonzero(numpy.diff(positions) != 1) + 1)
    return tuple((int(part[0]), int(part[-1]) + 1) for part in parts)


def _records(batch: "pyarrow.RecordBatch") -> list[Record]:
    """The records that rows describe."""
    import pyarrow

    values = map(msgspec.Raw, batch.column("value").cast(pyarrow.binary()).to_pylist())
    times = [time or 0 for time in batch.column("timestamp").cast(pyarrow.int64()).to_pylist()]
    said = [_texts(batch.column(name)) for name in SAID]
    pairs = batch.column("headers")
    told = pairs.to_pylist() if pairs.null_count < len(pairs) else [None] * len(pairs)
    headers = [dict(each) if each else None for each in told]
    return list(map(Record, values, *said, headers, _texts(batch.column("producer_sub")), times))


def _texts(column: "pyarrow.Array") -> list[str]:
    """The texts of a column. Most records say nothing, and then they need not be looked at one by one."""
    import pyarrow.compute as pc

    if not pc.max(pc.binary_length(column)).as_py():
        return [""] * len(column)
    return [text or "" for text in column.to_pylist()]
