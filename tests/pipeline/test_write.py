"""The log as a sink: rows become records, a table all or none, a micro-batch once."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from headwater.client.access import Access
from headwater.errors import KeyReused
from headwater.log.operations import Operation, Push, Transaction
from headwater.model.record import Record
from headwater.pipeline import keys, payload
from headwater.pipeline.encoding import Chunk, Encoder
from headwater.pipeline.keys import NOTE_LENGTH_MAX, Kept, add_to_note, parse_note, push_once, rows_of
from headwater.pipeline.options import WriteOptions, write_options
from headwater.pipeline.sink import BatchSink, Written
from headwater.pipeline.writing import close_all, run_once
from tests.pipeline.store import QUERY_ERRORS, Store


def test_a_table_is_pushed_with_all_that_its_columns_say(spark: SparkSession, store: Store) -> None:
    rows = spark.createDataFrame(
        [
            ("a", "eu", "t-1", "order", datetime(2026, 11, 15, 8), {"k": "v"}, '{"id": 1}'),
            ("b", None, None, None, None, None, "[1, 2]"),
        ],
        "queue STRING, partition STRING, transaction_id STRING, type STRING, timestamp TIMESTAMP, "
        "headers MAP<STRING, STRING>, value STRING",
    )
    rows.write.format("headwater").mode("append").options(store=store.address).save()
    (first,) = store.opened.queue("a").pop()
    assert (first.partition, first.transaction_id, first.type, first.headers) == ("eu", "t-1", "order", {"k": "v"})
    assert first.created_at.isoformat() == "2026-11-15T08:00:00+00:00"
    assert first.payload == {"id": 1}
    assert store.records("b") == [("Default", 0, [1, 2])]


def test_rows_become_payloads_in_spark(spark: SparkSession, store: Store) -> None:
    rows = spark.range(5).select(F.col("id"), (F.col("id") * 2).alias("double"))
    writer = rows.select(payload()).write.format("headwater").mode("append")
    writer.options(store=store.address, queue="numbers").save()
    assert sorted(number["double"] for _, _, number in store.records("numbers")) == [0, 2, 4, 6, 8]


def test_what_was_read_can_be_written_as_it_is(spark: SparkSession, store: Store) -> None:
    store.push({"id": 1}, "text", partition="p", type="t")
    table = store.table(spark)
    table.write.format("headwater").mode("append").options(store=store.address, queue="copy").save()
    variants = store.table(spark, valueType="variant").select("value")
    variants.write.format("headwater").mode("append").options(store=store.address, queue="variants").save()
    assert store.records("copy") == store.records("orders")
    assert [value for _, _, value in store.records("variants")] == [{"id": 1}, "text"]


def test_the_order_within_a_partition_is_the_order_of_the_rows(spark: SparkSession, store: Store) -> None:
    rows = spark.range(0, 12_000, numPartitions=3).select(F.col("id").cast("string").alias("value"))
    rows.write.format("headwater").mode("append").options(store=store.address, queue="numbers").save()
    assert [value for _, _, value in store.records("numbers")] == list(range(12_000))


def test_rows_of_many_partitions_keep_their_order_within_each(spark: SparkSession, store: Store) -> None:
    lanes = ["a", "b", None, ""]
    rows = spark.createDataFrame(
        [(str(number), lanes[number % 4], "one" if number % 3 else "two") for number in range(200)],
        "value STRING, partition STRING, queue STRING",
    ).coalesce(1)
    rows.write.format("headwater").mode("append").options(store=store.address).save()
    for queue in ("one", "two"):
        mine = [number for number in range(200) if (number % 3 > 0) == (queue == "one")]
        found: dict[str, list[int]] = {"a": [], "b": [], "Default": []}
        for partition, _, value in store.records(queue):
            found[partition].append(value)
        assert found["a"] == [number for number in mine if number % 4 == 0]
        assert found["b"] == [number for number in mine if number % 4 == 1]
        assert found["Default"] == [number for number in mine if number % 4 > 1]


@pytest.mark.parametrize("option", ["queue", "partition"])
def test_the_option_wins_over_the_column(spark: SparkSession, store: Store, option: str) -> None:
    """Rows that were read say where they were; where they go is what the write says."""
    store.push(1, partition="eu")
    store.push(2, partition="us")
    options = {"queue": "copies", **({"partition": "all"} if option == "partition" else {})}
    store.table(spark).write.format("headwater").mode("append").options(store=store.address, **options).save()
    copied = [(partition, value) for partition, _, value in store.records("copies")]
    assert copied == ([("all", 1), ("all", 2)] if option == "partition" else [("eu", 1), ("us", 2)])
    assert len(store.records("orders")) == 2


def test_a_batch_of_rows_goes_where_the_options_say() -> None:
    rows = {"queue": ["a", "b", "a"], "partition": ["p", None, "q"], "value": ["1", "2", "3"]}
    schema = StructType().add("queue", StringType()).add("partition", StringType()).add("value", StringType())

    def lanes(queue: str = "", partition: str = "") -> list[tuple[str, str, bytes]]:
        encoder = Encoder(WriteOptions(store="log.db", queue=queue, partition=partition), schema)
        encoder.add(pa.RecordBatch.from_pydict(rows))
        return [(chunk.queue, chunk.partition, chunk.records) for chunk in encoder.chunks()]

    assert {lane[:2] for lane in lanes()} == {("a", "p"), ("a", "q"), ("b", "Default")}
    assert {lane[:2] for lane in lanes(queue="c")} == {("c", "p"), ("c", "q"), ("c", "Default")}
    assert lanes(queue="c", partition="all") == [("c", "all", b'[{"data":1},{"data":2},{"data":3}]')]


def test_a_stream_from_one_queue_to_another_pushes_to_the_other(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    store.push({"id": 1}, partition="eu")
    for _ in range(2):
        store.sink(store.stream(spark), tmp_path / "checkpoint")
    assert store.records("copies") == store.records("orders") == [("eu", 0, {"id": 1})]


def test_a_stream_into_the_queue_it_reads_is_refused_unless_it_says_so(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    store.push({"id": 1})
    changed = store.stream(spark).selectExpr("to_json(struct(value)) AS value")
    with pytest.raises(QUERY_ERRORS, match=r"reads orders and pushes to it.*Nothing was pushed.*allowSameQueue"):
        store.sink(changed, tmp_path / "refused", queue="orders")
    with pytest.raises(QUERY_ERRORS, match="reads orders and pushes to it"):
        store.sink(store.stream(spark).drop("queue"), tmp_path / "refused", queue="orders")
    # Where the rows say it themselves.
    named = store.stream(spark).select("queue", "value").writeStream.format("headwater").option("store", store.address)
    with pytest.raises(QUERY_ERRORS, match="reads orders and pushes to it"):
        named.option("checkpointLocation", f"file://{tmp_path}/named").trigger(
            availableNow=True
        ).start().awaitTermination()
    assert len(store.records("orders")) == 1
    store.sink(changed, tmp_path / "meant", queue="orders", allowSameQueue=True)
    assert len(store.records("orders")) == 2


def write_with_key(rows: DataFrame, store: Store, queue: str = "once", key: str = "load-7", **options: str) -> None:
    writer = rows.write.format("headwater").mode("append")
    writer.options(store=store.address, queue=queue, idempotencyKey=key, **options).save()


def test_a_table_with_an_idempotency_key_is_pushed_once(spark: SparkSession, store: Store) -> None:
    for _ in range(2):
        write_with_key(spark.range(3).selectExpr("string(id) AS value").coalesce(1), store)
    assert [value for _, _, value in store.records("once")] == [0, 1, 2]


def test_a_task_that_is_tried_again_pushes_nothing_however_its_rows_are_ordered(
    spark: SparkSession, store: Store
) -> None:
    """Another order, other tasks: what a shuffle makes of the same query on another day."""
    rows = spark.range(60).selectExpr("string(id % 20) AS value", "concat('p', id % 3) AS partition")
    write_with_key(rows.coalesce(1), store)
    before = store.records("once")
    assert len(before) == 60
    for again in (rows.orderBy("value"), rows.repartition(5), rows.orderBy(F.desc("value")).coalesce(1)):
        write_with_key(again, store)
    assert store.records("once") == before


@pytest.mark.parametrize(
    "change",
    ["value = '1'", "partition = 'p1'", "value = '1' OR value IS NULL"],
    ids=["a row less", "other rows", "one of two equal rows less"],
)
def test_other_rows_under_a_key_that_was_used_are_refused(spark: SparkSession, store: Store, change: str) -> None:
    rows = spark.range(4).selectExpr("string(id % 2) AS value", "concat('p', id % 2) AS partition")
    write_with_key(rows, store)
    before = store.records("once")
    with pytest.raises(QUERY_ERRORS, match=r"idempotencyKey of this write was used for a write of other rows"):
        write_with_key(rows.where(change), store)
    with pytest.raises(QUERY_ERRORS, match=r"must make the same rows, in any order"):
        write_with_key(rows.union(rows), store)
    assert store.records("once") == before
    write_with_key(rows.where(change), store, key="load-8")
    assert len(store.records("once")) > len(before)


def test_a_key_belongs_to_its_queue_and_goes_with_it(spark: SparkSession, store: Store) -> None:
    rows = spark.range(2).selectExpr("string(id) AS value")
    for queue in ("once", "other"):
        write_with_key(rows, store, queue)
        write_with_key(rows, store, queue)
        assert len(store.records(queue)) == 2
    store.opened.queue("once").delete()
    write_with_key(rows, store, "once")
    assert len(store.records("once")) == 2
    # A queue that was there before the first write, deleted and made again: what the key stood for is gone with it.
    store.push(0, queue="there")
    write_with_key(rows, store, "there")
    store.opened.queue("there").delete()
    store.push(0, queue="there")
    write_with_key(rows, store, "there")
    assert len(store.records("there")) == 3


def test_a_key_of_rows_that_name_their_queues_goes_when_one_of_them_goes(spark: SparkSession, store: Store) -> None:
    rows = spark.range(4).selectExpr("string(id) AS value", "concat('s', id % 2) AS queue")
    writer = rows.write.format("headwater").mode("append").options(store=store.address, idempotencyKey="z")
    writer.save()
    writer.save()
    assert [len(store.records(queue)) for queue in ("s0", "s1")] == [2, 2]
    store.opened.queue("s1").delete()
    writer.save()
    writer.save()
    assert sorted(value for _, _, value in store.records("s1")) == [1, 3]


def keyed(store: Store, **named: str) -> WriteOptions:
    return write_options({"store": store.address, "idempotencykey": "k", **named})


def one_each(*queues: str, text: bytes = b"1") -> list[Push]:
    return [Push(queue=queue, records=[Record(msgspec.Raw(text))]) for queue in queues]


@pytest.mark.parametrize("named", [{"queue": "a"}, {}], ids=["by option", "by column"])
@pytest.mark.parametrize("there_before", [True, False])
@pytest.mark.parametrize("made_anew", [True, False])
@pytest.mark.parametrize("queues", [("a",), ("b", "a"), ("c", "a", "b")])
def test_a_key_goes_when_any_queue_of_its_write_goes(
    store: Store, named: dict[str, str], there_before: bool, made_anew: bool, queues: tuple[str, ...]
) -> None:
    """Whoever made the queue, and whether another of its name was made since."""
    options, mine = keyed(store, **named), one_each(*(queues if not named else ("a",)))
    if there_before:
        store.push(0, queue="a")
    try:
        for _ in range(3):
            push_once(options, mine)
        assert [value for _, _, value in store.records("a")] == [0, 1][not there_before :]
        store.opened.queue("a").delete()
        if made_anew:
            store.push(0, queue="a")
        for _ in range(3):
            push_once(options, mine)
        assert [value for _, _, value in store.records("a")] == [0, 1][not made_anew :]
        # A queue that the write has nothing to do with takes no key along.
        store.push(0, queue="other")
        store.opened.queue("other").delete()
        push_once(options, mine)
        assert len(store.records("a")) == 1 + made_anew
    finally:
        close_all()


def test_a_key_of_a_write_that_died_before_it_noted_its_queues_is_known(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt pushes nothing and notes them, so that the key still goes with them."""
    options, mine = keyed(store), one_each("a", "b")

    def die(*_: Any) -> None:
        raise ConnectionError("died")

    try:
        with monkeypatch.context() as dying:
            dying.setattr(keys, "_note_queues", die)
            with pytest.raises(ConnectionError):
                push_once(options, mine)
        push_once(options, mine)
        assert [len(store.records(queue)) for queue in ("a", "b")] == [1, 1]
        store.opened.queue("b").delete()
        store.push(0, queue="b")
        push_once(options, mine)
        assert [value for _, _, value in store.records("b")] == [0, 1]
    finally:
        close_all()


def test_who_may_push_and_not_look_pushes_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    options, mine = keyed(store), one_each("a", "b")
    try:
        push_once(options, mine)
        monkeypatch.setattr(keys, "look_at", lambda *_: None)
        push_once(options, mine)
        push_once(keyed(store, idempotencykey="l"), mine)
        push_once(keyed(store, idempotencykey="l"), mine)
    finally:
        close_all()
    assert [len(store.records(queue)) for queue in ("a", "b")] == [2, 2]


@pytest.mark.parametrize("named", [{"queue": "a"}, {}], ids=["by option", "by column"])
@pytest.mark.parametrize("there_before", [True, False])
def test_a_write_of_no_rows_takes_its_key_as_any_other(store: Store, named: dict[str, str], there_before: bool) -> None:
    if there_before:
        store.push(0, queue="a")
    columns = StructType().add("value", StringType()).add("queue", StringType())
    sink = BatchSink(keyed(store, **named), columns, overwrite=False)
    full = Written("", (Chunk("a", "Default", b'[{"data":1}]'),))
    nothing: list[Written | None] = [Written("", ()), None]
    other = BatchSink(keyed(store, **{**named, "idempotencykey": "other"}), columns, overwrite=False)
    try:
        sink.commit(nothing)
        sink.commit(nothing)
        with pytest.raises(KeyReused):
            sink.commit([full])
        other.commit([full])
        with pytest.raises(KeyReused):
            other.commit(nothing)
        other.commit([full])
    finally:
        close_all()
    assert [value for _, _, value in store.records("a")] == [0, 1][not there_before :]


def test_rows_are_known_in_any_order_and_told_from_all_others() -> None:
    def push(*texts: bytes, partition: str = "p", kind: str = "") -> Push:
        return Push(queue="q", partition=partition, records=[Record(msgspec.Raw(text), type=kind) for text in texts])

    same = rows_of([push(b"1", b"2", b"1"), push(b"3", partition="r")])
    assert rows_of([push(b"3", partition="r"), push(b"1", b"1", b"2")]) == same
    assert rows_of([push(b"2"), push(b"1"), push(b"3", partition="r"), push(b"1")]) == same
    others = (
        [push(b"1", b"2"), push(b"3", partition="r")],
        [push(b"1", b"2", b"2"), push(b"3", partition="r")],
        [push(b"1", b"2", b"1", b"3")],
        [push(b"1", b"2", b"1", kind="k"), push(b"3", partition="r")],
        [push(b"12", b"1"), push(b"3", partition="r")],
    )
    assert len({same, *map(rows_of, others)}) == 1 + len(others)


def test_what_a_queue_remembers_of_keys_is_bounded_and_the_newest_stay() -> None:
    note = ""
    for number in range(200):
        note = add_to_note(note, Kept(f"key{number:08}", "r" * 22, number))
        assert len(note) <= NOTE_LENGTH_MAX
    kept = parse_note(note)
    assert len(kept) >= 20
    assert [one.queue_number for one in kept] == list(range(200 - len(kept), 200))
    assert parse_note(add_to_note(note, kept[3]))[-1] == kept[3]
    assert len(parse_note(add_to_note(note, kept[3]))) == len(kept)


@pytest.mark.parametrize("rival", [b"1", b"2"], ids=["the same rows", "other rows"])
def test_of_two_writes_with_one_key_at_once_one_pushes(
    store: Store, monkeypatch: pytest.MonkeyPatch, rival: bytes
) -> None:
    """The other one finds its step taken, and looks again."""
    options = write_options({"store": store.address, "queue": "once", "idempotencykey": "k"})
    waiting = [[Push(queue="once", records=[Record(msgspec.Raw(rival))])]]

    def overtaken(address: str, operation: Operation, access: Access) -> Any:
        if isinstance(operation, Transaction) and waiting:
            push_once(options, waiting.pop())
        return run_once(address, operation, access)

    monkeypatch.setattr(keys, "run_once", overtaken)
    mine = [Push(queue="once", records=[Record(msgspec.Raw(b"1"))])]
    try:
        if rival == b"1":
            push_once(options, mine)
        else:
            with pytest.raises(KeyReused):
                push_once(options, mine)
    finally:
        close_all()
    assert not waiting
    assert store.records("once") == [("Default", 0, int(rival))]


def test_a_table_that_fails_pushes_nothing(spark: SparkSession, store: Store) -> None:
    rows = spark.range(0, 100, numPartitions=4).selectExpr("if(id = 99, 'no json', string(id)) AS value")
    with pytest.raises(QUERY_ERRORS, match="a payload must be a JSON value"):
        rows.write.format("headwater").mode("append").options(store=store.address, queue="numbers").save()
    assert store.opened.queues() == []


def test_a_stream_is_pushed_micro_batch_by_micro_batch(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    for number in range(6):
        store.push({"id": number})
    doubled = store.stream(spark, maxOffsetsPerTrigger=2).selectExpr("value")
    store.sink(doubled, tmp_path / "checkpoint")
    store.push({"id": 6})
    query = store.sink(doubled, tmp_path / "checkpoint")
    assert [value["id"] for _, _, value in store.records("copies")] == list(range(7))
    assert [json.loads(str(progress.json))["numInputRows"] for progress in query.recentProgress] == [1]


def test_a_micro_batch_that_spark_forgot_to_note_is_not_pushed_again(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    store.push({"id": 1}, {"id": 2})
    store.sink(store.stream(spark).select("value"), checkpoint)
    # As if the driver had died between the sink's commit and its own.
    for file in (checkpoint / "commits").iterdir():
        file.unlink()
    store.push({"id": 3})
    store.sink(store.stream(spark).select("value"), checkpoint)
    assert [value["id"] for _, _, value in store.records("copies")] == [1, 2, 3]


def test_the_same_batch_of_another_query_is_another_one(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    store.push({"id": 1})
    for name in ("one", "two"):
        store.sink(store.stream(spark).select("value"), tmp_path / name)
    assert [value["id"] for _, _, value in store.records("copies")] == [1, 1]


@pytest.mark.parametrize(
    ("rows", "options", "told"),
    [
        ("string(id) AS value", {}, "a write needs a queue"),
        ("string(id) AS value, string(NULL) AS queue", {}, "a row has no queue: name one by the option queue"),
        ("id AS number", {"queue": "q"}, "a write takes the columns value, .*payload"),
        ("id AS value", {"queue": "q"}, "column value must be string; got bigint"),
        ("string(id) AS value, id AS type", {"queue": "q"}, "column type must be string"),
        (
            "string(id) AS value",
            {"queue": "q", "qeue": "x"},
            r"no such option: qeue \(did you mean queue\?\); there are",
        ),
        ("string(id) AS value", {"queue": "headwater/own"}, "are Headwater's own"),
        ("string(id) AS value, 'a b' AS partition", {"queue": "q"}, "partition name must be"),
        ("to_json(struct(repeat('x', 300000))) AS value", {"queue": "q"}, "a payload may have 262,144 bytes"),
    ],
)
def test_rows_that_cannot_be_records_are_told(
    spark: SparkSession, store: Store, rows: str, options: dict[str, str], told: str
) -> None:
    writer = spark.range(1).selectExpr(*split_columns(rows)).write.format("headwater").mode("append")
    with pytest.raises(QUERY_ERRORS, match=told):
        writer.options(store=store.address, **options).save()
    assert store.opened.queues() == []


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("if(id = 57, 'no json', string(id)) AS value", "column value: .*JSON.*'no json'"),
        ("if(id = 57, 'a b', 'eu') AS partition", "column partition: partition name must be.*'a b'"),
        ("if(id = 57, 'a b', 'q') AS queue", "for a b/Default, column queue: queue name must be"),
        ("if(id = 57, repeat('x', 300), 't') AS transaction_id", "column transaction_id: .*'xxx"),
        ("if(id = 57, map('h', repeat('x', 70000)), map('a', 'b')) AS headers", "column headers: "),
        ("if(id = 57, timestamp'1800-01-01', timestamp'2026-01-01') AS timestamp", "column timestamp: .*1800"),
    ],
)
def test_a_row_that_cannot_be_a_record_is_named_with_its_column(
    spark: SparkSession, store: Store, column: str, told: str
) -> None:
    value = [] if column.endswith(" AS value") else ["string(id) AS value"]
    queue = {} if column.endswith(" AS queue") else {"queue": "orders"}
    rows = spark.range(0, 100, numPartitions=2).selectExpr(*value, column)
    writer = rows.write.format("headwater").mode("append").options(store=store.address, **queue)
    with pytest.raises(QUERY_ERRORS, match=rf"row 8 of task 1, for [^,]*, {told}|row 8 of task 1, {told}"):
        writer.save()
    assert store.opened.queues() == []


def split_columns(rows: str) -> list[str]:
    return rows.split(", ") if rows.count(" AS ") > 1 else [rows]


def test_a_log_is_never_overwritten_and_a_missing_one_never_made(spark: SparkSession, store: Store) -> None:
    rows = spark.range(1).selectExpr("string(id) AS value")
    with pytest.raises(QUERY_ERRORS, match="never overwritten"):
        rows.write.format("headwater").mode("overwrite").options(store=store.address, queue="q").save()
    with pytest.raises(QUERY_ERRORS, match="there is no store at"):
        rows.write.format("headwater").mode("append").options(store=store.address + ".none", queue="q").save()
