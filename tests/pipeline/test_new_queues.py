"""A checkpoint that is given more queues or partitions: those are read from their first record, the others go on.

Most of it drives a stream's reader as Spark does, without Spark.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from headwater.errors import DataLost
from headwater.log.operations import Retain
from headwater.pipeline.options import read_options
from headwater.pipeline.planning import offset_of
from headwater.pipeline.source import StreamReader
from tests.pipeline.store import Store
from tests.pipeline.test_identity import SCHEMA

ALL = ReadAllAvailable()
BATCHES_MAX = 50


class Query:
    """A query with its checkpoint, which goes on with whatever options."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.end: dict[str, Any] = {}
        self.reader: StreamReader | None = None

    def open(self, **options: str) -> StreamReader:
        """Start it, again if it was started before."""
        self.stop()
        self.reader = StreamReader(read_options({"store": self._store.address, **options}), SCHEMA)
        self.end = self.end or self.reader.initialOffset()
        return self.reader

    def stop(self) -> None:
        if self.reader is not None:
            self.reader.stop()

    def step(self, limit: ReadLimit = ALL) -> list[Any]:
        """The next micro-batch."""
        assert self.reader is not None
        start, self.end = self.end, self.reader.latestOffset(self.end, limit)
        # As Spark keeps it between two starts.
        self.end = json.loads(json.dumps(self.end))
        found = rows(self.reader, start, self.end)
        assert not isinstance(limit, ReadMaxRows) or len(found) <= limit.max_rows
        return found

    def drain(self, limit: ReadLimit = ALL) -> list[Any]:
        """All that there is, in as many micro-batches as the limit asks for."""
        found: list[Any] = []
        for _ in range(BATCHES_MAX):
            before = self.end
            found += self.step(limit)
            if self.end == before:
                return found
        raise AssertionError(f"there is no end after {BATCHES_MAX} micro-batches")


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    batches = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    return [json.loads(value) for batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture
def query(store: Store) -> Any:
    made = Query(store)
    yield made
    made.stop()


def push_three_times(store: Store) -> None:
    """Two queues with two partitions each; `a` goes on after `b`."""
    store.push(0, 1, queue="a", partition="x")
    store.push(100, 101, queue="b", partition="x")
    store.push(200, 201, queue="b", partition="y")
    store.push(300, 301, queue="a", partition="y")
    store.push(2, 3, queue="a", partition="x")


LIMITS = [ALL, ReadMaxRows(1), ReadMaxRows(3)]


@pytest.mark.parametrize("pushed_meanwhile", [True, False])
@pytest.mark.parametrize("limit", LIMITS, ids=str)
@pytest.mark.parametrize(
    ("first", "then", "read", "left"),
    [
        ({"queue": "a"}, {"queues": "a,b"}, [0, 1, 2, 3, 300, 301], [100, 101, 200, 201]),
        ({"pattern": "a*"}, {"pattern": "*"}, [0, 1, 2, 3, 300, 301], [100, 101, 200, 201]),
        ({"pattern": "none*"}, {"pattern": "b"}, [], [100, 101, 200, 201]),
        ({"queue": "a", "partition": "x"}, {"queue": "a", "partitions": "x,y"}, [0, 1, 2, 3], [300, 301]),
        ({"queue": "a", "partition": "x"}, {"queue": "a"}, [0, 1, 2, 3], [300, 301]),
        (
            {"queue": "a", "partition": "x"},
            {"queues": "a,b", "partitions": "x,y"},
            [0, 1, 2, 3],
            [100, 101, 200, 201, 300, 301],
        ),
    ],
    ids=["queues", "pattern", "pattern of none", "partitions", "all partitions", "both"],
)
def test_what_is_new_to_a_checkpoint_is_read_from_its_first_record(
    store: Store,
    query: Query,
    first: dict[str, str],
    then: dict[str, str],
    read: list[int],
    left: list[int],
    limit: ReadLimit,
    pushed_meanwhile: bool,
) -> None:
    push_three_times(store)
    query.open(**first)
    assert sorted(query.drain(limit)) == read
    pushed = [(4, "a"), (102, "b")] if pushed_meanwhile else []
    for value, name in pushed:
        store.push(value, queue=name, partition="x")
    query.open(**then)
    more = [value for value, name in pushed if is_read(name, then)]
    assert sorted(query.drain(limit)) == sorted([*left, *more])
    # It has caught up, and goes on as any other.
    assert not offset_of(query.end).positions
    store.push(5, queue="a", partition="x")
    assert query.drain(limit) == ([5] if is_read("a", then) else [])


def is_read(queue: str, chosen: dict[str, str]) -> bool:
    return queue in chosen.get("queues", chosen.get("queue", chosen.get("pattern", ""))) or chosen.get("pattern") == "*"


def test_a_micro_batch_in_the_middle_of_catching_up_can_be_read_again(store: Store, query: Query) -> None:
    push_three_times(store)
    query.open(queue="a")
    # Not all of `a` was read when `b` comes.
    assert len(query.step(ReadMaxRows(3))) == 3
    reader, read, later = query.open(queues="a,b"), list[int](), [1_000, 1_001]
    for _ in range(BATCHES_MAX):
        start = query.end
        once = query.step(ReadMaxRows(2))
        read += once
        if query.end == start:
            break
        if later:
            store.push(later.pop(), queue="b", partition="z")
        assert sorted(rows(reader, start, query.end)) == sorted(once)
    assert len(read) == len(set(read))
    assert {value for value in read if value >= 100} >= {100, 101, 200, 201, 1_000, 1_001}


def test_a_micro_batch_that_was_planned_before_has_the_queues_and_partitions_of_then(
    store: Store, query: Query
) -> None:
    push_three_times(store)
    reader = query.open(queue="a", partition="x")
    start = query.end
    query.end = reader.latestOffset(start, ALL)
    # It died before that was committed. Spark reads it again, and then goes on.
    reader = query.open(queues="a,b", partitions="x,y")
    assert rows(reader, start, query.end) == [0, 1, 2, 3]
    assert sorted(query.drain()) == [100, 101, 200, 201, 300, 301]


def test_a_queue_that_is_made_later_costs_no_second_look_at_the_others(store: Store, query: Query) -> None:
    store.push(1, queue="a")
    query.open(pattern="*")
    assert query.drain() == [1]
    store.push(2, queue="b")
    store.push(3, queue="a")
    assert sorted(query.drain()) == [2, 3]
    assert not offset_of(query.end).positions


def test_a_checkpoint_of_an_earlier_version_goes_on_as_before(store: Store, query: Query) -> None:
    push_three_times(store)
    query.end = {"lsn": 3}
    query.open(queues="a,b", partition="x")
    assert query.drain() == [2, 3]


def test_what_retention_takes_of_a_queue_that_was_read_is_no_loss_while_another_catches_up(
    store: Store, query: Query
) -> None:
    push_three_times(store)
    query.open(queue="a")
    query.drain()
    query.open(queues="a,b")
    found = query.step(ReadMaxRows(1))
    retain(store, "a")
    found += query.drain(ReadMaxRows(1))
    assert sorted(found) == [100, 101, 200, 201]


def test_what_retention_took_of_a_queue_before_it_was_named_is_no_loss_and_after_it_is(
    store: Store, query: Query
) -> None:
    push_three_times(store)
    query.open(queue="a")
    query.drain()
    retain(store, "b")
    store.push(7, queue="b")
    reader = query.open(queues="a,b")
    start = query.end
    assert query.step() == [7]
    retain(store, "b")
    with pytest.raises(DataLost, match=r"retention dropped records .*b/Default"):
        reader.partitions(start, query.end)


def retain(store: Store, queue: str) -> None:
    """Let retention take what there is of a queue."""
    store.opened.queue(queue).configure(retention_seconds=0.000_001)
    store.run(Retain())
    store.opened.queue(queue).configure(retention_seconds=0)


def test_a_queue_that_is_not_named_any_more_is_told_by_its_reason(store: Store, query: Query) -> None:
    push_three_times(store)
    query.open(queue="a")
    query.drain()
    query.open(queue="b")
    with pytest.raises(DataLost, match="a was read before, and the options do not name it now") as told:
        query.step()
    assert "deleted" not in str(told.value)
    query.open(queue="b", failondataloss="false")
    assert sorted(query.drain()) == [100, 101, 200, 201]


def test_a_queue_that_is_new_beside_one_that_was_deleted_is_read_whole(store: Store, query: Query) -> None:
    push_three_times(store)
    query.open(queue="a")
    query.drain()
    store.opened.queue("a").delete()
    store.push(9, queue="a")
    query.open(queues="a,b", failondataloss="false")
    assert sorted(query.drain()) == [9, 100, 101, 200, 201]


def test_a_query_of_spark_reads_what_is_new_to_its_checkpoint(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    push_three_times(store)
    store.sink(store.stream(spark, "a").select("value"), tmp_path / "checkpoint")
    store.push(4, queue="a", partition="x")
    widened = store.stream(spark, "", queues="a,b", maxOffsetsPerTrigger=3).select("value")
    store.sink(widened, tmp_path / "checkpoint")
    copied = sorted(value for _, _, value in store.records("copies"))
    assert copied == [0, 1, 2, 3, 4, 100, 101, 200, 201, 300, 301]
