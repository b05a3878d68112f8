"""What may go wrong around a query: retention, locks, damage, drift. Nothing is missing without a word."""

import json
from pathlib import Path
from typing import Any

import apsw
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.errors import StoreBusy
from headwater.log.operations import Push, Retain
from headwater.model.names import Lsn
from headwater.pipeline import read_stream
from headwater.pipeline.handle import Handle
from headwater.pipeline.looking import Look
from headwater.pipeline.options import read_options
from headwater.pipeline.planning import StreamOffset
from tests.contracts.log import record
from tests.pipeline.store import QUERY_ERRORS, Store


def retain(store: Store) -> None:
    """Let retention take what is older than a moment."""
    store.opened.queue("orders").configure(retention_seconds=0.000_001)
    store.run(Retain())
    store.opened.queue("orders").configure(retention_seconds=0)


def test_records_dropped_before_they_were_read_stop_the_query_unless_it_may_go_on(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    store.push({"id": 1})
    store.sink(store.stream(spark).select("value"), checkpoint)
    store.push({"id": 2}, partition="p")
    retain(store)
    store.push({"id": 3})
    with pytest.raises(QUERY_ERRORS, match=r"retention dropped records after LSN 1 .*orders/p.*failOnDataLoss"):
        store.sink(store.stream(spark).select("value"), checkpoint)
    assert ids(store) == [1]
    store.sink(store.stream(spark, failOnDataLoss=False).select("value"), checkpoint)
    assert ids(store) == [1, 3]


def test_records_dropped_after_they_were_read_are_no_loss(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    store.push({"id": 1})
    store.sink(store.stream(spark).select("value"), tmp_path / "one")
    retain(store)
    store.push({"id": 2})
    store.sink(store.stream(spark).select("value"), tmp_path / "one")
    # Neither are they to a query that begins now.
    assert store.table(spark).count() == 1
    assert ids(store) == [1, 2]
    with pytest.raises(QUERY_ERRORS, match="retention dropped records"):
        store.table(spark, startingOffsets="1").collect()


def test_what_went_of_other_partitions_is_no_loss(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    store.push({"id": 1}, partition="mine")
    store.push({"id": 2}, partition="other")
    store.sink(store.stream(spark, partition="mine").select("value"), tmp_path / "one")
    store.sink(store.stream(spark).select("value"), tmp_path / "all", queue="others")
    store.push({"id": 3}, partition="other")
    table = store.table(spark, partition="mine")
    retain(store)
    store.push({"id": 4}, partition="mine")
    store.sink(store.stream(spark, partition="mine").select("value"), tmp_path / "one")
    assert ids(store) == [1, 4]
    with pytest.raises(QUERY_ERRORS, match=r"in 1 partitions \(orders/other\)"):
        store.sink(store.stream(spark).select("value"), tmp_path / "all", queue="others")
    with pytest.raises(QUERY_ERRORS, match=r"in 1 partitions \(orders/mine\)"):
        table.count()


def test_partitions_that_were_read_ahead_are_no_loss_however_many_they_are(store: Store) -> None:
    for number in range(12):
        store.push({"id": number}, partition=f"p{number:02}")
    with Look(read_options({"store": store.address, "queue": "orders"})) as look:
        ahead = {status.partition_id: 1 for status in look._partitions("orders")}
        retain(store)
        assert look.find_loss(StreamOffset(Lsn(0), positions=ahead), ["orders"]) is None
        behind = dict(list(ahead.items())[1:])
        assert "in 1 partitions (orders/p00)" in str(look.find_loss(StreamOffset(Lsn(0), positions=behind), ["orders"]))
        assert "in 12 partitions" in str(look.find_loss(StreamOffset(Lsn(0)), ["orders"]))


def test_a_loss_is_told_also_when_nothing_came_after_it(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    store.push({"id": 1})
    store.sink(store.stream(spark).select("value"), checkpoint)
    store.push({"id": 2})
    retain(store)
    with pytest.raises(QUERY_ERRORS, match="retention dropped records after LSN 1"):
        store.sink(store.stream(spark).select("value"), checkpoint)
    told = warnings_of(spark, "retention dropped records after LSN 1")
    for _ in range(2):
        store.sink(store.stream(spark, failOnDataLoss=False).select("value"), checkpoint)
        assert warnings_of(spark, "retention dropped records after LSN 1") == told + 1
    store.push({"id": 3})
    store.sink(store.stream(spark).select("value"), checkpoint)
    assert ids(store) == [1, 3]


@pytest.mark.parametrize("strict_first", [False, True])
@pytest.mark.parametrize("more", [False, True])
def test_the_progress_of_the_micro_batch_that_went_on_behind_a_loss_names_it(
    spark: SparkSession, store: Store, tmp_path: Path, strict_first: bool, more: bool
) -> None:
    def follow(**options: Any) -> list[list[str]]:
        query = store.sink(store.stream(spark, **options).select("value"), tmp_path / "checkpoint")
        return [losses for _, losses in reported(query)]

    store.push({"id": 1})
    assert follow() == [[]]
    store.push({"id": 2}, partition="p")
    retain(store)
    if more:
        store.push({"id": 3})
    if strict_first:
        with pytest.raises(QUERY_ERRORS, match=r"retention dropped records after LSN 1 .*orders/p"):
            follow()
    told = "retention dropped records after LSN 1 that were not read, in 1 partitions (orders/p)"
    assert follow(failOnDataLoss=False) == [[told]]
    assert ids(store) == ([1, 3] if more else [1])
    store.push({"id": 4})
    assert follow(failOnDataLoss=False) == [[]]
    assert ids(store) == ([1, 3, 4] if more else [1, 4])


def test_a_loss_in_a_micro_batch_that_was_planned_before_is_named_in_the_next_progress(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    def follow(**options: Any) -> StreamingQuery:
        writer = store.stream(spark, **options).writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        return query

    store.push({"id": 1})
    follow()
    store.push({"id": 2}, partition="p")
    follow()
    # As if it had been killed before its end: the micro-batch is planned, and its record is gone.
    forget(tmp_path / "checkpoint", "commits/1")
    retain(store)
    told = "retention dropped records after LSN 1 that were not read, in 1 partitions (orders/p)"
    # Spark asks for no progress of a micro-batch that was planned before: one of nothing follows.
    assert reported(follow(failOnDataLoss=False)) == [(0, []), (0, [told])]
    assert reported(follow(failOnDataLoss=False)) == [(0, [])]


def test_a_loss_in_the_first_micro_batch_of_a_query_that_was_killed_in_it_is_told(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """Spark does not keep where the first one began: it would begin at what is left, as if that were all."""

    def follow(**options: Any) -> StreamingQuery:
        writer = store.stream(spark, **options).writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        return query

    store.push({"id": 1})
    store.push({"id": 2}, partition="p")
    follow()
    forget(tmp_path / "checkpoint", "commits/0")
    retain(store)
    store.push({"id": 3})
    with pytest.raises(QUERY_ERRORS, match="retention dropped records"):
        follow()
    told = [one for _, losses in reported(follow(failOnDataLoss=False)) for one in losses]
    assert len(told) == 1
    assert "in 2 partitions" in told[0]


def reported(query: StreamingQuery) -> list[tuple[int, list[str]]]:
    """What each progress of a query says: how many rows it took in, and which losses it names."""
    told = [json.loads(str(progress.json)) for progress in query.recentProgress]
    return [(each["numInputRows"], (each["sources"][0]["latestOffset"] or {}).get("lost", [])) for each in told]


def test_the_number_of_lost_records_is_told_where_the_position_in_the_partition_is_known(store: Store) -> None:
    store.push(1, 2, 3)
    store.push(1, partition="p")
    with Look(read_options({"store": store.address, "queue": "orders"})) as look:
        (first, _) = look._partitions("orders")
        retain(store)
        loss = look.find_loss(StreamOffset(Lsn(0), positions={first.partition_id: 1}), ["orders"])
    assert "in 2 partitions (orders/Default: 2 records, orders/p)" in str(loss)


def ids(store: Store) -> list[int]:
    return [value["id"] for _, _, value in store.records("copies")]


def warnings_of(spark: SparkSession, text: str) -> int:
    """How often Spark's log has a text."""
    options = spark.conf.get("spark.driver.extraJavaOptions")
    assert options is not None
    return Path(options.split('headwater.spark.log="')[1].split('"')[0]).read_text(errors="replace").count(text)


def test_a_deleted_queue_stops_the_stream_unless_it_may_go_on(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    def follow(**options: Any) -> None:
        store.sink(store.stream(spark, **options).select("value"), tmp_path / "checkpoint")

    told = "orders was deleted since it was read"
    store.push({"id": 1})
    follow()
    store.opened.queue("orders").delete()
    with pytest.raises(QUERY_ERRORS, match=rf"DataLost.*{told}.*failOnDataLoss"):
        follow()
    before = warnings_of(spark, told)
    follow(failOnDataLoss=False)
    assert warnings_of(spark, told) > before
    # Its new beginning is kept: what comes is read, by who may lose nothing, too.
    store.push({"id": 2})
    follow()
    assert ids(store) == [1, 2]


@pytest.mark.parametrize("again", [False, True])
def test_a_table_whose_queue_was_deleted_is_an_error_or_empty_with_a_warning(
    spark: SparkSession, store: Store, again: bool
) -> None:
    store.push({"id": 1}, {"id": 2})
    strict, lenient = store.table(spark), store.table(spark, failOnDataLoss=False)
    store.opened.queue("orders").delete()
    if again:
        store.push({"id": 3})
    told = f"orders was deleted {'and made again ' if again else ''}since it was read"
    with pytest.raises(QUERY_ERRORS, match=rf"DataLost.*{told}.*load the table again.*failOnDataLoss"):
        strict.count()
    before = warnings_of(spark, told)
    assert lenient.count() == 0
    assert warnings_of(spark, told) > before
    # Loaded again, it is what there is now.
    if again:
        assert store.table(spark, failOnDataLoss=False).count() == 1
    else:
        with pytest.raises(QUERY_ERRORS, match="there is no queue 'orders'"):
            store.table(spark, failOnDataLoss=False).count()


def test_a_locked_store_can_be_read(spark: SparkSession, store: Store) -> None:
    store.push(1, 2)
    writer = apsw.Connection(store.address)
    writer.execute("BEGIN IMMEDIATE")
    try:
        assert store.table(spark).count() == 2
    finally:
        writer.close()


def test_a_store_that_stays_locked_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_LOCK_WAIT_SECONDS", "0.05")
    opened = Handle(store.address).open()
    writer = apsw.Connection(store.address)
    writer.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreBusy, match="another program held the write lock"):
            opened.commit([Push(queue="orders", records=[record(1)])])
    finally:
        writer.close()
        opened.close()
    assert store.opened.queues() == []


def test_a_damaged_segment_is_told_and_not_skipped(spark: SparkSession, store: Store) -> None:
    store.push({"id": 1})
    store.push({"id": 2})
    with apsw.Connection(store.address) as file:
        file.execute("UPDATE hw_segments SET records = CAST('[{\"data\":7}]' AS BLOB) WHERE lsn = 2")
    with pytest.raises(QUERY_ERRORS, match="segment 2 is damaged: its checksum does not match"):
        store.table(spark).collect()


def test_a_new_field_is_passed_over_and_a_changed_one_stops_the_stream_until_the_schema_fits(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    def follow(schema: str) -> None:
        rows = read_stream(spark, store=store.address, queue="orders", schema=schema, maxOffsetsPerTrigger=1)
        store.sink(rows.selectExpr("to_json(struct(value.id)) AS value"), tmp_path / "checkpoint")

    store.push({"id": 1})
    store.push({"id": 2, "new": [True]})
    store.push({"id": "three"})
    with pytest.raises(QUERY_ERRORS, match="record 2 of orders/Default does not fit the schema"):
        follow("id BIGINT")
    assert ids(store) == [1, 2]
    follow("id STRING")
    assert ids(store) == [1, 2, "three"]


@pytest.mark.parametrize("file", ["offsets/1", "commits/1"])
def test_a_checkpoint_that_was_half_written_is_told_and_its_batch_is_not_lost(
    spark: SparkSession, store: Store, tmp_path: Path, file: str
) -> None:
    stream = store.stream(spark, maxOffsetsPerTrigger=1).select("value")
    store.push({"id": 1})
    store.push({"id": 2})
    store.sink(stream, tmp_path / "checkpoint")
    half = tmp_path / "checkpoint" / file
    half.write_text(half.read_text()[:1])
    (half.parent / f".{half.name}.crc").unlink(missing_ok=True)
    # Offsets are written first: where they are cut off there is no commit yet.
    forget(tmp_path / "checkpoint", "commits/1" if file == "offsets/1" else "")
    store.push({"id": 3})
    with pytest.raises(QUERY_ERRORS):
        store.sink(stream, tmp_path / "checkpoint")
    forget(tmp_path / "checkpoint", file)
    store.sink(stream, tmp_path / "checkpoint")
    assert ids(store) == [1, 2, 3]


def test_a_checkpoint_that_fell_behind_never_passes_rows_by(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    stream = store.stream(spark).select("value")
    store.push({"id": 1})
    store.sink(stream, tmp_path / "checkpoint")
    forget(tmp_path / "checkpoint", "offsets/0", "commits/0")
    store.push({"id": 2})
    # Batch 0 has two rows now, and one of them was pushed under that number.
    told = r"batch 0 again with 2 records to copies, .*, but .* pushed batch 0 with 1 records to copies"
    with pytest.raises(QUERY_ERRORS, match=told):
        store.sink(stream, tmp_path / "checkpoint")
    assert ids(store) == [1]


def forget(checkpoint: Path, *files: str) -> None:
    """Take files out of a checkpoint, with the sums beside them."""
    for file in filter(None, files):
        path = checkpoint / file
        path.unlink()
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def test_a_batch_of_the_checkpoint_has_the_same_rows_when_it_is_read_again(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """The same offsets give the same rows, whatever was pushed since."""
    seen: list[list[Any]] = []

    def take(rows: Any, number: int) -> None:
        found = [json.loads(row.value)["id"] for row in rows.orderBy("lsn", "offset").collect()]
        seen.append([number, *found])
        if len(seen) == 1:
            raise ValueError("once")

    store.push({"id": 1}, {"id": 2})
    stream = store.stream(spark, "", pattern="ord*")
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(QUERY_ERRORS, match="once"):
        writer.trigger(availableNow=True).start().awaitTermination()
    store.push({"id": 3})
    store.push({"id": 4}, queue="orders/new")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert seen == [[0, 1, 2], [0, 1, 2], [1, 3, 4]]
