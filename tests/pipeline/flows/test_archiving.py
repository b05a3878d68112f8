"""The quick ways of archive and restore give what the plain ones give: no Spark but where both are compared."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from headwater.clock import Timestamp
from headwater.errors import ArchiveFull
from headwater.log.operations import Push
from headwater.model.coverage import Ranges, uncovered
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.record import Record, encode_bare, encode_records, split_if_bare, split_records
from headwater.pipeline import archiving
from headwater.pipeline.archiving import Files, day_of
from headwater.pipeline.ends import COLUMNS, make_batch
from headwater.pipeline.flows import archive, restore
from headwater.pipeline.flows.archive import Archive
from headwater.pipeline.flows.restore import Restore
from headwater.pipeline.loading import Target
from headwater.pipeline.planning import Range
from headwater.pipeline.ranges import Place, read_bodies
from headwater.pipeline.restoring import Origin, in_log_order, loads
from headwater.stores.log_reader import Body
from tests.pipeline.flows.logs import DAY, NOON, apply, drop_all, fill, oracle, record

RICH = record(
    {"a": "ä", "data": [{}, {"data": 1}]},
    transaction_id="t",
    trace_id="trace",
    type="kind",
    headers={"b": "2", "a": "1"},
    producer_sub="somebody",
    timestamp=NOON - 5,
)


def body_of(lsn: int, *records: Record, queue: str = "orders", number: int = 1, first: int = 0, at: int = NOON) -> Body:
    bare = all(record == Record(record.data) for record in records)
    text = b"[" + encode_bare([bytes(record.data) for record in records]) + b"]" if bare else encode_records(records)
    lane = Lane("main", queue, "", "", f"p{number}")
    return Body(Lsn(lsn), lane, Offset(first), len(records), Timestamp(at), text, PartitionId(number))


def rows_of(body: Body) -> list[dict[str, Any]]:
    """A segment as rows, one record after the other."""
    return [
        {
            "queue": body.lane.queue,
            "partition_id": body.partition_id,
            "partition": body.lane.partition,
            "offset": body.first_offset + index,
            "lsn": body.lsn,
            "written_at": body.written_at,
            "timestamp": each.timestamp or body.written_at,
            "transaction_id": each.transaction_id,
            "trace_id": each.trace_id,
            "type": each.type,
            "headers": list(each.headers.items()) if each.headers else None,
            "producer_sub": each.producer_sub,
            "value": bytes(each.data).decode(),
        }
        for index, each in enumerate(split_records(body.records))
    ]


BARE = [record({"n": 1}), record(None), record([1, {"data": 2}]), record('},{"data":')]
MIXES = {
    "bare": [body_of(1, *BARE), body_of(2, BARE[0], number=2, first=7)],
    "rich": [body_of(1, RICH, RICH), body_of(9, RICH, queue="mails")],
    "both": [body_of(1, *BARE), body_of(2, RICH, BARE[0], number=2, first=3), body_of(3, *BARE, first=4)],
}


@pytest.mark.parametrize("mix", MIXES)
def test_a_batch_has_what_its_segments_have_record_by_record(mix: str) -> None:
    batch = make_batch(MIXES[mix])
    assert batch.schema.names == list(COLUMNS)
    assert batch.to_pylist() == [row for body in MIXES[mix] for row in rows_of(body)]


def test_only_a_segment_whose_records_say_nothing_is_split_as_bare() -> None:
    bare = split_if_bare(body_of(1, *BARE).records)
    assert bare is not None
    assert [bytes(each.data) for each in bare] == [bytes(each.data) for each in BARE]
    telling: tuple[dict[str, Any], ...] = ({"transaction_id": "t"}, {"trace_id": "t"}, {"type": "t"}, {"timestamp": 1})
    for said in (*telling, {"headers": {"a": "b"}}):
        assert split_if_bare(encode_records([BARE[0], record(1, **said)])) is None
    assert split_if_bare(encode_records([record(1, producer_sub="s")])) is None
    assert split_if_bare(b"[{") is None


def test_files_of_many_queues_and_days_hold_every_record_once_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few files may be open at once, and row groups are tiny."""
    monkeypatch.setattr(archiving, "WRITERS_MAX", 2)
    monkeypatch.setattr(archiving, "ROW_GROUP_BYTES", 500)
    monkeypatch.setattr(archiving, "WAITING_BYTES_MAX", 700)
    bodies = [
        body_of(lsn, *BARE[: 1 + lsn % 3], queue=f"q/{lsn % 3}", at=NOON + lsn % 2 * DAY, first=lsn * 10)
        for lsn in range(1, 60)
    ]
    with Files(tmp_path, "span-0") as files:
        for start in range(0, len(bodies), 7):
            files.add(bodies[start : start + 7])
    found = sorted(tmp_path.rglob("*"))
    assert not [path for path in found if ".part" in path.name]
    named = [path for path in found if path.suffix == ".parquet"]
    assert {path.parent.relative_to(tmp_path).as_posix() for path in named} == {
        f"queue=q%2F{queue}/day={day_of(bodies[day])}" for queue in range(3) for day in range(2)
    }
    places: list[tuple[int, int]] = []
    for path in named:
        rows = parquet.read_table(path, partitioning=None).to_pylist()
        inside = [(row["lsn"], row["offset"]) for row in rows]
        assert inside == sorted(inside)
        places += inside
    assert sorted(places) == [(row["lsn"], row["offset"]) for body in bodies for row in rows_of(body)]


def test_a_task_that_fails_leaves_no_file_that_looks_whole(tmp_path: Path) -> None:
    def fail() -> None:
        with Files(tmp_path, "span-0") as files:
            files.add(MIXES["both"])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet.ParquetWriter, "write_table", fail)
    with pytest.raises(ArchiveFull), Files(tmp_path, "span-0") as files:
        files.add(MIXES["bare"])


def write_rows(path: Path, *places: tuple[int, int]) -> Path:
    numbers, offsets = zip(*places, strict=True)
    parquet.write_table(pa.table({"partition_id": numbers, "offset": offsets}), path)
    return path


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([(1, 0), (2, 0), (1, 1)], [(2, 5), (1, 2)], True),
        ([(1, 0), (1, 5)], [(1, 6), (2, 0)], True),
        ([(1, 1), (1, 0)], [(1, 2)], False),
        ([(1, 0), (1, 0)], [(1, 2)], False),
        ([(1, 0), (1, 3)], [(1, 3)], False),
        ([(1, 2)], [(2, 0), (1, 1)], False),
    ],
)
def test_the_order_of_files_is_seen(
    tmp_path: Path, first: list[tuple[int, int]], second: list[tuple[int, int]], expected: bool
) -> None:
    paths = [write_rows(tmp_path / "a", *first), write_rows(tmp_path / "b", *second)]
    assert in_log_order(paths) is expected


def test_rows_become_one_operation_a_partition_without_what_is_held() -> None:
    batch = archiving.archived(make_batch([*MIXES["both"], body_of(4, RICH, number=3)]))
    origins = {1: Origin("log:1", 6), 2: Origin("log:2", 3)}
    (one,) = loads(batch, origins, Target("", "main", "copy"))
    assert (one.queue, one.partition, one.source) == ("copy", "p1", "log:1")
    assert (list(one.positions), one.covers) == ([0, 1, 2, 3, 4, 5], ((0, 6),))
    kept = [msgspec.structs.replace(each, timestamp=NOON) for each in [*BARE, *BARE[:2]]]
    assert list(one.records) == kept
    parts = list(loads(batch, {1: Origin("log:1", 2**62)}, Target("", "main", "copy"), bytes_max=20))
    assert [len(part.records) for part in parts] == [3, 2, 3]
    assert [position for part in parts for position in part.positions] == list(range(8))
    assert [part.covers for part in parts] == [((0, 3),), ((3, 5),), ((5, 8),)]
    (other,) = loads(batch, {2: Origin("log:2", 2**62)}, Target("", "main", "copy"))
    assert other.records[0] == RICH


@pytest.mark.parametrize("ranges", [(), ((0, 3),), ((3, 4), (6, 9)), ((20, 30),), ((0, 2), (12, 14))])
@pytest.mark.parametrize("positions", [[], [4], [2, 3, 4], [0, 5, 9, 13], list(range(20))])
def test_what_is_covered_is_left_out(ranges: Ranges, positions: list[int]) -> None:
    plainly = [at for at, each in enumerate(positions) if not any(begin <= each < end for begin, end in ranges)]
    assert uncovered(ranges, positions) == plainly


def test_files_that_spark_must_sort_come_back_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = tmp_path / "headwater.db", tmp_path / "archive"
    fill(store, 120)
    apply(store, Push(queue="orders", partition="p1", records=BARE))
    expected = oracle(store)
    archive.run(spark, Archive(store=str(store), folder=str(folder)))
    whole = Range(Lsn(0), Lsn(2**40))
    stood = [body for found in read_bodies(Place(str(store), "main"), ["orders"], whole) for body in found]
    assert sum(body.count for body in stood) == 124
    for quick in (True, False):
        drop_all(store)
        monkeypatch.setattr(restore, "in_log_order", lambda paths, quick=quick: quick)
        job = Restore(store=str(tmp_path / f"{quick}.db"), folder=str(folder))
        assert restore.run(spark, job).facts["restored"] == 124
        assert oracle(tmp_path / f"{quick}.db") == expected
