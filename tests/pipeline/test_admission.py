"""A limit admits messages of all partitions by time: whoever windows them with a watermark loses none."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.log.operations import Push, Transaction
from headwater.model.lane import Lane
from headwater.model.names import Lsn, PartitionId
from headwater.pipeline import admission, payload, read, read_stream
from headwater.pipeline.admission import Admission, Backlog, earliest
from headwater.pipeline.planning import (
    Cut,
    Piece,
    Range,
    StreamOffset,
    cut_body,
    gather,
    offset_of,
    piece_of,
    share_out,
)
from headwater.pipeline.times import NONE, Times
from headwater.stores.log_reader import Body, SegmentOutline
from tests.contracts.log import record
from tests.pipeline.store import QUERY_ERRORS, Store

DAY = datetime(2013, 1, 1, tzinfo=UTC)


def lane_of(partition: str) -> Lane:
    return Lane("main", "orders", "", "", partition)


class Log:
    """Segments in memory: for each its partition and the times of its records."""

    def __init__(self, segments: list[tuple[int, list[int]]]) -> None:
        self.bodies: list[Body] = []
        self.looked = 0
        ends: dict[int, int] = {}
        for number, (partition, times) in enumerate(segments, 1):
            first = ends.get(partition, 0)
            ends[partition] = first + len(times)
            records = msgspec.json.encode(
                [{"data": first + index, "timestamp": time} for index, time in enumerate(times)]
            )
            lane = lane_of(str(partition))
            self.bodies.append(Body(number * 3, lane, first, len(times), 1, records, partition))  # type: ignore[arg-type]

    def outlines(self, begin: StreamOffset) -> Iterator[SegmentOutline]:
        for body in self.bodies:
            if body.lsn > begin.lsn:
                yield SegmentOutline(body.lsn, body.partition_id, body.first_offset, body.count, body.written_at)

    def read(self, span: Range) -> Iterator[list[Body]]:
        self.looked += 1
        yield [body for body in self.bodies if span.after < body.lsn <= span.through]

    def follow(self, limit: int) -> Iterator[list[tuple[int, int, int]]]:
        """The records of each micro-batch as (partition, offset, time), planned from what a checkpoint keeps."""
        known, begin = Admission(Times("")), StreamOffset(0)  # type: ignore[arg-type]
        batches_max = sum(body.count for body in self.bodies)
        while list(self.outlines(begin)):
            batches_max -= 1
            assert batches_max >= 0, "more micro-batches than messages: some are read again and again"
            end = offset_of(known.admit(self.outlines(begin), begin, limit, self.read).as_json())
            yield list(self.between(begin, end))
            begin = end

    def between(self, begin: StreamOffset, end: StreamOffset) -> Iterator[tuple[int, int, int]]:
        for share in share_out(self.outlines(begin), begin, end, 2):
            assert share.cut is not None
            for span in share.spans:
                for bodies in self.read(span):
                    for body in filter(None, (cut_body(one, share.cut) for one in bodies)):
                        kept = msgspec.json.decode(body.records)
                        assert [row["data"] for row in kept] == list(
                            range(body.first_offset, body.first_offset + body.count)
                        )
                        yield from ((body.partition_id, row["data"], row["timestamp"]) for row in kept)


SEGMENTS = st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(1, 60), min_size=1, max_size=9)), max_size=25)


@given(segments=SEGMENTS, limit=st.integers(1, 30))
@settings(max_examples=300)
def test_micro_batches_hold_every_record_once_in_order_and_none_more_than_its_limit(
    segments: list[tuple[int, list[int]]], limit: int
) -> None:
    batches = list(Log(segments).follow(limit))
    assert all(0 < len(batch) <= limit for batch in batches)
    found: dict[int, list[tuple[int, int]]] = {}
    for batch in batches:
        for partition, offset, time in batch:
            found.setdefault(partition, []).append((offset, time))
    expected: dict[int, list[tuple[int, int]]] = {}
    for partition, times in segments:
        mine = expected.setdefault(partition, [])
        mine.extend([(len(mine) + index, time) for index, time in enumerate(times)])
    assert found == expected


@given(segments=SEGMENTS, limit=st.integers(1, 30))
@settings(max_examples=300)
def test_what_is_in_order_in_each_partition_is_in_order_over_all_micro_batches(
    segments: list[tuple[int, list[int]]], limit: int
) -> None:
    latest: dict[int, int] = {}
    for partition, times in segments:
        for index, step in enumerate(times):
            latest[partition] = times[index] = latest.get(partition, 0) + step
    batches = [[time for _, _, time in batch] for batch in Log(segments).follow(limit)]
    for earlier, later in pairwise(batches):
        assert max(earlier) <= min(later)


def test_messages_of_one_time_are_taken_in_proportion_to_what_waits() -> None:
    log = Log([(1, [7] * 600), (2, [7] * 300), (3, [7] * 100)])
    first, *_ = log.follow(100)
    taken = [sum(partition == each for partition, _, _ in first) for each in (1, 2, 3)]
    assert taken == [60, 30, 10]


def test_times_are_looked_at_as_far_as_they_matter_and_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "LOAD_RECORDS", 10)
    segments = [(partition, list(range(begin, begin + 10))) for partition in (1, 2) for begin in range(0, 1_000, 10)]
    log = Log(segments)
    known, begin = Admission(Times("")), StreamOffset(0)  # type: ignore[arg-type]
    begin = known.admit(log.outlines(begin), begin, 40, log.read)
    assert log.looked < 20
    before = log.looked
    known.admit(log.outlines(begin), begin, 40, log.read)
    assert log.looked - before < 10


@pytest.mark.parametrize("there", [True, False])
def test_thousands_of_partitions_are_looked_at_together_and_not_one_by_one(there: bool) -> None:
    partitions, segments = 2_000, 5
    log = Log([(partition, [begin]) for begin in range(segments) for partition in range(1, partitions + 1)])
    begin = StreamOffset(Lsn(0))
    outlines = list(log.outlines(begin))
    if not there:
        log.bodies.clear()
    Admission(Times("")).admit(outlines, begin, partitions * segments // 2, log.read)
    # Each look takes the next 1,000 LSNs, and they are three apart.
    assert log.looked <= partitions * segments * 3 // admission.LOAD_RECORDS + 1


def test_what_is_loaded_is_counted_along_and_not_over_all_partitions_for_each_of_them() -> None:
    class Lanes(list[Backlog]):
        passes = 0

        def __iter__(self) -> Iterator[Backlog]:
            self.passes += 1
            return super().__iter__()

    def load(lane: Backlog) -> None:
        (piece,) = lane.next_pieces(1)
        lane.learn(piece, np.array([piece.begin]))

    pieces = [[Piece(Lsn(1), PartitionId(lane), at, at, at + 1) for at in range(20)] for lane in range(50)]
    lanes = Lanes(map(Backlog, pieces))
    assert sum(earliest(lanes, 500, load)) == 500
    assert lanes.passes < 20


def test_a_window_that_is_cut_short_still_comes_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "AHEAD_SEGMENTS", 3)
    segments = [(number % 3, [number, number + 5]) for number in range(20)]
    batches = list(Log(segments).follow(3))
    assert sum(map(len, batches)) == 40
    assert len({(partition, offset) for batch in batches for partition, offset, _ in batch}) == 40


def test_the_time_of_a_message_is_the_field_that_is_named_else_its_own_else_its_push() -> None:
    def times(field: str, *records: dict[str, Any]) -> list[int]:
        lane = lane_of("p")
        body = Body(1, lane, 0, len(records), 99, msgspec.json.encode(records), 1)  # type: ignore[arg-type]
        return [int(time) for time in Times(field).of(body)]

    assert times("", {"data": 1}, {"data": 2}) == [99, 99]
    assert times("", {"data": {"timestamp": 1}}, {"data": 2, "timestamp": 5}) == [99, 5]
    at = int(DAY.timestamp()) * 1_000_000
    assert times(
        "a.b",
        {"data": {"a": {"b": "2013-01-01T00:00:00Z"}}},
        {"data": {"a": {"b": "2013-01-01 01:00:00+01:00"}}},
        {"data": {"a": {"b": "2013-01-01"}}},
        {"data": {"a": 1}},
        {"data": [1]},
        {"data": {"a": {"b": "soon"}}},
    ) == [at, at, at, NONE, NONE, NONE]
    seconds, later = times("t", {"data": {"t": 1.5}}, {"data": {"t": 10**30}})
    assert seconds < later


def test_a_part_of_a_segment_keeps_the_text_of_its_records() -> None:
    text = b'[{"data":{"a": 1.0}},{"data":"x,]"},{"data":[1,  2]},{"data":4}]'
    body = Body(5, lane_of("p"), 10, 4, 0, text, 7)  # type: ignore[arg-type]
    start, end = StreamOffset(4, positions={7: 11}), StreamOffset(4, positions={7: 13}, through=5)  # type: ignore[arg-type, dict-item]
    part = cut_body(body, Cut(start, end))
    assert part is not None
    assert (part.first_offset, part.count) == (11, 2)
    assert part.records == b'[{"data":"x,]"},{"data":[1,  2]}]'
    assert cut_body(body, Cut(end, end)) is None
    assert cut_body(body, Cut(StreamOffset(0), StreamOffset(5))) is body  # type: ignore[arg-type]
    assert piece_of(body, end) == Piece(5, 7, 10, 13, 14)  # type: ignore[arg-type]


def test_segments_that_are_near_are_read_together() -> None:
    assert gather([3]) == (Range(2, 3),)  # type: ignore[arg-type]
    assert gather([3, 4, 9, 100, 101]) == (Range(2, 9), Range(99, 101))  # type: ignore[arg-type]


# ── with Spark ──


def flights(count: int) -> list[tuple[str, datetime]]:
    """Departures of some carriers over a month: each by time, some of them only in a part of it."""
    chance = random.Random(9_384)
    month = {"AA": (0, 31), "B6": (0, 31), "DL": (5, 9), "UA": (20, 31)}
    found = []
    for carrier, (first, last) in month.items():
        minutes = sorted(chance.randrange(first * 1_440, last * 1_440) for _ in range(count))
        found += [(carrier, DAY + timedelta(minutes=minute)) for minute in minutes]
    return found


def windowed(rows: DataFrame, time: str) -> DataFrame:
    return (
        rows.withWatermark(time, "1 hour")
        .groupBy(F.window(time, "6 hours"), "partition")
        .agg(F.count("*").alias("flights"))
        .select("partition", "window.start", "flights")
    )


@pytest.mark.parametrize("where", ["timestamp", "payload"])
def test_windows_with_a_watermark_over_a_bulk_write_equal_the_batch_result(
    spark: SparkSession, store: Store, tmp_path: Path, where: str
) -> None:
    """As a load writes them: one partition after the other, each over the whole month; then read by a limit."""
    rows = spark.createDataFrame(flights(300), "partition STRING, at TIMESTAMP").coalesce(1)
    value = payload("partition", "at")
    own = F.col("at").alias("timestamp") if where == "timestamp" else F.lit(None).cast("timestamp").alias("timestamp")
    writer = rows.select("partition", own, value).write.format("headwater").mode("append")
    writer.options(store=store.address, queue="flights").save()
    options = {"store": store.address, "queue": "flights", "schema": "at TIMESTAMP"}
    limit = {"maxOffsetsPerTrigger": 250, **({"eventTime": "at"} if where == "payload" else {})}
    shape = F.col("timestamp" if where == "timestamp" else "value.at").alias("time")
    # A flight of the next year moves the watermark past all windows, so that all are emitted.
    stream = read_stream(spark, **options, **limit).select("partition", shape)
    for _ in range(2):
        writing = windowed(stream, "time").select("partition", payload("start", "flights")).writeStream
        writing = writing.format("headwater").options(store=store.address, queue="windows")
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writing.start().awaitTermination()
        last = {"at": "2014-01-01T00:00:00Z"}
        store.push(last, queue="flights", partition="last", timestamp=int((DAY.timestamp() + 365 * 86_400) * 1_000_000))
    table = read(spark, **options).where("partition <> 'last'").select("partition", shape)
    expected = {(row.partition, row.start): row.flights for row in windowed(table, "time").collect()}
    found = {
        (partition, datetime.fromisoformat(value["start"]).replace(tzinfo=None)): value["flights"]
        for partition, _, value in store.records("windows")
    }
    assert found == expected
    assert sum(found.values()) == 4 * 300


def test_a_limit_is_kept_over_partitions_and_a_restart(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    pushes = [
        Push(queue="orders", partition=name, records=[record(number) for number in range(10)]) for name in ("a", "b")
    ]
    store.run(Transaction(operations=pushes))
    for _ in range(2):
        store.sink(store.stream(spark, maxOffsetsPerTrigger=6).select("value", "partition"), tmp_path / "checkpoint")
        assert store.records("copies") == store.records("orders")
        store.push(*range(10, 15), partition="a")
        store.push(*range(10, 15), partition="b")
    batches = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    ends = [offset_of(msgspec.json.decode(file.read_text().splitlines()[-1])) for file in batches]
    assert [len(end.positions) > 0 for end in ends] == [True, True, True, False, True, False]


def test_a_read_begins_and_ends_at_offsets_of_partitions(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        store.push(*range(5), partition=name)
    begin = '{"orders": {"a": 3, "b": -1}}'
    table = store.table(spark, startingOffsets=begin, endingOffsets='{"orders": {"c": 2, "a": -1}}')
    assert sorted((row.partition, row.offset, row.value) for row in table.collect()) == [
        ("a", 3, "3"),
        ("a", 4, "4"),
        ("c", 0, "0"),
        ("c", 1, "1"),
    ]
    for _ in range(2):
        stream = store.stream(spark, startingOffsets=begin).select("value", "partition")
        store.sink(stream, tmp_path / "checkpoint")
        store.push(5, partition="b")
    found = [(partition, value) for partition, _, value in store.records("copies")]
    assert found == [("a", 3), ("a", 4), ("b", 5), *(("c", number) for number in range(5))]


@pytest.mark.parametrize(
    ("offsets", "told"),
    [
        ('{"orders": {"none": 1}}', "orders has no partition 'none'; there are a"),
        ('{"bills": {"a": 1}}', "'bills', which is not read here"),
        ('{"orders": {"a": 9}}', "orders/a ends at offset 2, for which -1 stands; got 9"),
        ('{"orders": {"a": -3}}', "as JSON must have an offset"),
        ('{"orders": 5}', "as JSON must have an offset"),
        ("99", "option startingOffsets is LSN 99, but the log of .* ends at 1"),
    ],
)
def test_an_offset_that_is_not_there_is_told(
    spark: SparkSession, store: Store, tmp_path: Path, offsets: str, told: str
) -> None:
    store.push(1, 2, partition="a")
    with pytest.raises(QUERY_ERRORS, match=told):
        store.sink(store.stream(spark, startingOffsets=offsets).select("value"), tmp_path / "checkpoint")
