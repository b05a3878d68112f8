"""The log as a stream: offsets are LSNs, micro-batches have a limit, and a query goes on where it was."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.pipeline import read_stream
from headwater.pipeline.planning import Range, StreamOffset, offset_of, split
from tests.pipeline.store import QUERY_ERRORS, Store


class Batches:
    """The values of every micro-batch of a query, in the order of the offsets."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self.seen: list[list[Any]] = []

    def follow(self, rows: DataFrame) -> None:
        """Read what there is, and stop."""
        writer = rows.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def _take(self, rows: DataFrame, number: int) -> None:
        self.seen.append([row.value for row in rows.orderBy("lsn", "offset").select("value").collect()])

    def offsets(self) -> list[dict[str, int]]:
        """The ends of the micro-batches, as Spark has them in its checkpoint."""
        files = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        return [json.loads(file.read_text().splitlines()[-1]) for file in files]


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path)


def test_a_query_reads_what_there_is_and_goes_on_where_it_was(
    spark: SparkSession, store: Store, batches: Batches
) -> None:
    store.push(1, 2)
    store.push("other", queue="other")
    store.push(3, partition="p")
    batches.follow(store.stream(spark))
    batches.follow(store.stream(spark))
    store.push(4)
    store.push("other", queue="other")
    batches.follow(store.stream(spark))
    assert batches.seen == [["1", "2", "3"], ["4"]]
    assert [offset["lsn"] for offset in batches.offsets()] == [3, 4]


def test_micro_batches_take_as_many_messages_as_their_limit_says(
    spark: SparkSession, store: Store, batches: Batches
) -> None:
    for size in (2, 2, 2, 7, 1):
        store.push(*[size] * size)
        store.push("other", queue="other")
    batches.follow(store.stream(spark, maxOffsetsPerTrigger=4))
    assert [len(batch) for batch in batches.seen] == [4, 4, 4, 2]


def test_a_stream_begins_where_it_is_told(spark: SparkSession, store: Store, batches: Batches) -> None:
    store.push(1)
    store.push(2)
    batches.follow(store.stream(spark, startingOffsets="latest"))
    store.push(3)
    batches.follow(store.stream(spark, startingOffsets="latest"))
    assert [batch for batch in batches.seen if batch] == [["3"]]


def test_a_stream_of_typed_payloads_ships_segments(spark: SparkSession, store: Store, batches: Batches) -> None:
    store.push({"id": 1}, {"id": 2})
    store.push({"id": 3})
    rows = read_stream(spark, store=store.address, queue="orders", schema="id BIGINT", maxOffsetsPerTrigger=2)
    batches.follow(rows.selectExpr("lsn", "offset", "value.id AS value"))
    assert batches.seen == [[1, 2], [3]]


def test_a_group_shows_how_far_the_stream_is_behind(spark: SparkSession, store: Store, batches: Batches) -> None:
    store.push(1, 2)
    store.push(3, partition="p")
    stream = store.stream(spark, group="spark", maxOffsetsPerTrigger=2)
    batches.follow(stream)
    assert lag(store) == 0
    store.push(4, 5, 6)
    assert lag(store) == 3
    batches.follow(stream)
    assert lag(store) == 0


def test_progress_tells_messages_and_the_lag_of_the_queues_that_are_read(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    store.push({"id": 1}, {"id": 2}, partition="a")
    store.push({"id": 3}, queue="bills")
    store.push("other", queue="other")
    rows = read_stream(
        spark, store=store.address, queues="orders,bills", schema="id BIGINT", maxOffsetsPerTrigger=2
    ).select("value.id")
    writer = rows.writeStream.format("memory").queryName("progress").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    told = [json.loads(str(progress.json)) for progress in query.recentProgress]
    assert [progress["numInputRows"] for progress in told] == [2, 1]
    latest = [progress["sources"][0]["latestOffset"] for progress in told]
    # The third segment is of a queue that nobody reads here.
    assert [offset["lsn"] for offset in latest] == [2, 2]
    assert [{queue: lag["messages"] for queue, lag in offset["lag"].items()} for offset in latest] == [
        {"orders": 0, "bills": 1},
        {"orders": 0, "bills": 0},
    ]
    assert latest[0]["lag"]["bills"]["seconds"] > 0 == latest[1]["lag"]["bills"]["seconds"]


def lag(store: Store) -> int:
    (status,) = store.opened.queue("orders").groups()
    assert status.group == "spark"
    return status.lag


def test_an_aggregation_over_the_stream_equals_the_one_over_the_table(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    for number in range(30):
        store.push({"third": number % 3, "amount": number}, partition=f"p{number % 4}")
    rows = read_stream(
        spark, store=store.address, queue="orders", schema="third INT, amount INT", maxOffsetsPerTrigger=10
    )
    sums = rows.groupBy("value.third").sum("value.amount")
    writer = sums.writeStream.format("memory").queryName("sums").outputMode("complete")
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    expected = [(third, sum(range(third, 30, 3))) for third in range(3)]
    assert sorted(tuple(row) for row in spark.table("sums").collect()) == expected


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"queue": "none"}, "there is no queue 'none'"),
        ({"queue": "orders", "endingOffsets": "5"}, "endingOffsets is for tables"),
        (
            {"queue": "orders", "startingOffsets": "2999-01-01T00:00:00Z"},
            "startingOffsets .* must not lie in the future",
        ),
        ({"queue": "orders", "maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger must be a whole number"),
    ],
)
def test_a_stream_that_cannot_be_is_told(
    spark: SparkSession, store: Store, batches: Batches, options: dict[str, str], told: str
) -> None:
    store.push(1)
    with pytest.raises(QUERY_ERRORS, match=told):
        batches.follow(spark.readStream.format("headwater").options(store=store.address, **options).load())


@pytest.mark.parametrize(
    ("length", "least", "count"), [(0, 3, 0), (1, 3, 1), (10, 3, 3), (10_000, 1, 3), (10**9, 1, 200)]
)
def test_a_stretch_is_split_without_gap_or_overlap(length: int, least: int, count: int) -> None:
    parts = split(7, 7 + length, least)  # type: ignore[arg-type]
    assert len(parts) == count
    ends = [7, *(part.through for part in parts)]
    assert parts == [Range(low, high) for low, high in pairwise(ends)]  # type: ignore[arg-type]
    assert ends[-1] == 7 + length
    assert all(part.after < part.through for part in parts)


def test_an_offset_survives_the_checkpoint_and_a_foreign_one_is_told() -> None:
    offset = StreamOffset(7, 2)  # type: ignore[arg-type]
    assert offset_of(json.loads(json.dumps(offset.as_json()))) == offset
    with pytest.raises(Exception, match="holds no offset of a Headwater source"):
        offset_of({"orders": {"0": 7}})
