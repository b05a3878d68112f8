"""What was read or pushed before is known again: another store or queue in its place is told, and never passed over.

The table drives what Spark drives, without Spark: a stream's reader, a sink, a table, a handle. A few queries of Spark
itself show that they hang together.
"""

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, MapType, StringType, StructType, TimestampType

import headwater.sync
from headwater.errors import DataLost, InvalidOption, PipelineError, QueueMissing, StoreMissing, StoreReplaced
from headwater.log.operations import Push
from headwater.log.store_operations import RenewIdentity
from headwater.pipeline.checkpoint import Checkpoint, Destination
from headwater.pipeline.encoding import Chunk
from headwater.pipeline.handle import Handle
from headwater.pipeline.options import read_options, write_options
from headwater.pipeline.planning import StreamOffset, offset_of
from headwater.pipeline.sink import StreamSink, Written, is_same
from headwater.pipeline.source import BatchReader, HeadwaterDataSource, StreamReader, take_snapshot
from headwater.pipeline.standing import Here, begin_anew, find_change
from headwater.stores.log_reader import Fingerprint
from headwater.stores.questions import FindLastLsn
from tests.contracts.log import record
from tests.pipeline.store import QUERY_ERRORS, Store

KINDS = {
    "offset": LongType(),
    "lsn": LongType(),
    "timestamp": TimestampType(),
    "headers": MapType(StringType(), StringType()),
}
COLUMNS = ("queue", "partition", "offset", "lsn", "transaction_id", "trace_id", "type", "timestamp", "headers", "value")
SCHEMA = StructType()
for name in COLUMNS:
    SCHEMA.add(name, KINDS.get(name, StringType()))


class Place:
    """A store at a path, and what may become of it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "log.db")
        self.checkpoint = folder / "checkpoint"
        (self.checkpoint / "offsets").mkdir(parents=True)

    def push(self, *payloads: Any, queue: str = "orders") -> None:
        with headwater.sync.open(self.path, housekeeping=False) as opened:
            opened.queue(queue).push_many([headwater.Outgoing(payload=payload, partition="p") for payload in payloads])

    def values(self, queue: str) -> list[Any]:
        with headwater.sync.open(self.path, housekeeping=False) as opened:
            return [message.payload for message in opened.queue(queue).pop(batch=100, auto_ack=True)]

    def remove(self) -> None:
        for ending in ("", "-wal", "-shm"):
            Path(self.path + ending).unlink(missing_ok=True)

    def copy(self, name: str) -> str:
        with headwater.sync.open(self.path, housekeeping=False):
            pass
        return shutil.copy(self.path, f"{self.path}.{name}")

    # ── what may become of it, after 1 to 3 were pushed, and copied after 1 and 2; then 7 to 9 are pushed ──

    def remake(self) -> None:
        self.remove()
        self.push(7, 8)
        self.push(9)

    def replace(self) -> None:
        """By another store, whose log is as long."""
        other = Place(Path(self.path).parent / "other")
        other.push(7)
        other.push(8)
        other.push(9)
        other.push(10, queue="copies")
        self.remove()
        shutil.move(other.copy("whole"), self.path)

    def restore(self) -> None:
        """From a copy by hand, written to since: the identity is the same, the log another."""
        self.remove()
        shutil.copy(f"{self.path}.backup", self.path)
        for payload in (7, 8, 9):
            self.push(payload)

    def restore_and_renew(self) -> None:
        """As it is told: the copy gets an identity of its own."""
        self.remove()
        shutil.copy(f"{self.path}.backup", self.path)
        with Handle(self.path) as handle:
            handle.commit([RenewIdentity()])
        self.push(7, 8, 9)

    def delete_queues(self, *names: str) -> None:
        """Those that are named, or all."""
        with headwater.sync.open(self.path, housekeeping=False) as opened:
            for name in names or [queue.queue for queue in opened.queues()]:
                opened.queue(name).delete()

    def remake_queue(self) -> None:
        self.delete_queues()
        self.push(7, 8, 9)


Change = Callable[[Place], None]
CHANGES: dict[str, tuple[Change, type[Exception]]] = {
    "deleted and made again": (Place.remake, StoreReplaced),
    "replaced by another": (Place.replace, StoreReplaced),
    "restored from a copy": (Place.restore, StoreReplaced),
    "restored and renewed": (Place.restore_and_renew, StoreReplaced),
    "queue deleted and made again": (Place.remake_queue, DataLost),
    "queue deleted": (Place.delete_queues, DataLost),
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.push(1)
    made.push(2)
    made.copy("backup")
    made.push(3)
    return made


def options(place: Place, fail: bool) -> dict[str, str]:
    return {"store": place.path, "queue": "orders", "failondataloss": str(fail).lower()}


def without_queue(given: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name != "queue"}


def rows(reader: "StreamReader | BatchReader", tasks: Any) -> list[int]:
    batches = [batch for task in tasks for batch in reader.read(task)]
    return sorted(json.loads(value) for batch in batches for value in batch.column("value").to_pylist())


def stream(place: Place, fail: bool) -> StreamReader:
    return StreamReader(read_options(options(place, fail)), SCHEMA)


def read_on(reader: StreamReader, start: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    """The next micro-batch behind an offset."""
    end = reader.latestOffset(start, ReadAllAvailable())
    return rows(reader, reader.partitions(start, end)), end


# Where a stream goes on that may lose data: behind what it has read if the log has that, else at the beginning.
LEFT = {
    "deleted and made again": [7, 8, 9],
    "replaced by another": [7, 8, 9],
    "restored from a copy": [1, 2, 7, 8, 9],
    "restored and renewed": [1, 2, 7, 8, 9],
    "queue deleted and made again": [7, 8, 9],
    "queue deleted": [],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("open_meanwhile", [True, False])
def test_a_stream_is_told_and_goes_on_as_documented(
    place: Place, change: str, open_meanwhile: bool, caplog: pytest.LogCaptureFixture
) -> None:
    become, error = CHANGES[change]
    readers = [stream(place, fail) for fail in (True, False)]
    read = [read_on(reader, reader.initialOffset()) for reader in readers]
    assert [found for found, _ in read] == [[1, 2, 3]] * 2
    end = read[0][1]
    if not open_meanwhile:
        for reader in readers:
            reader.stop()
    become(place)
    with pytest.raises(error, match="failOnDataLoss"):
        readers[0].latestOffset(end, ReadAllAvailable())
    with pytest.raises(error, match="failOnDataLoss"):
        readers[0].partitions(end, end)
    found, anew = read_on(readers[1], end)
    assert found == LEFT[change]
    assert "as failOnDataLoss says" in caplog.text
    # Who watches the query's progress sees it, too, and each loss once.
    reported = readers[1].reportLatestOffset()
    assert reported is not None
    assert [text in caplog.text for text in reported["lost"]] == [True]
    # The new beginning is kept, and not told with every look at the log.
    caplog.clear()
    assert readers[1].latestOffset(anew, ReadAllAvailable()) == anew
    assert caplog.text == ""
    place.push(11)
    # From then on it is a stream as any other.
    readers.append(stream(place, True))
    assert read_on(readers[-1], anew)[0] == [11]
    for reader in readers:
        reader.stop()


@pytest.mark.parametrize("change", CHANGES)
def test_a_micro_batch_that_was_planned_for_what_is_gone_is_never_read_from_something_else(
    place: Place, change: str
) -> None:
    become, error = CHANGES[change]
    strict, lenient = stream(place, True), stream(place, False)
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    tasks = strict.partitions(start, end)
    strict.stop()
    become(place)
    with pytest.raises(error):
        rows(strict, tasks)
    with pytest.raises(error):
        strict.partitions(start, end)
    assert not {7, 8, 9} & set(rows(lenient, lenient.partitions(start, end)))
    strict.stop()
    lenient.stop()


@pytest.mark.parametrize("again", [False, True])
def test_a_stream_of_two_queues_goes_on_with_the_one_that_is_left(
    place: Place, again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    place.push(21, queue="bills")
    chosen = [{**options(place, fail), "queues": "orders,bills"} for fail in (True, False)]
    strict, lenient = (StreamReader(read_options(without_queue(each)), SCHEMA) for each in chosen)
    found, end = read_on(strict, strict.initialOffset())
    assert found == [1, 2, 3, 21]
    place.delete_queues("bills")
    place.push(4)
    if again:
        place.push(22, queue="bills")
    with pytest.raises(DataLost, match=r"bills was deleted .*since it was read.*failOnDataLoss"):
        strict.latestOffset(end, ReadAllAvailable())
    found, end = read_on(lenient, end)
    assert found == ([4, 22] if again else [4])
    assert "bills was deleted" in caplog.text
    place.push(5)
    place.push(23, queue="bills")
    assert read_on(lenient, end)[0] == [5, 23]
    strict.stop()
    lenient.stop()


def test_a_stream_whose_queue_is_still_gone_says_so_when_it_starts_again(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    before = stream(place, False)
    _, end = read_on(before, before.initialOffset())
    place.delete_queues()
    _, anew = read_on(before, end)
    before.stop()
    caplog.clear()
    after = stream(place, False)
    assert read_on(after, anew) == ([], anew)
    assert caplog.text.count("there is no queue orders") == 1
    place.push(7)
    assert read_on(after, anew)[0] == [7]
    after.stop()
    # One that was never read is misspelt, whatever may be lost.
    place.delete_queues()
    misspelt = stream(place, False)
    with pytest.raises(QueueMissing, match="there is no queue 'orders'"):
        misspelt.initialOffset()
    misspelt.stop()


@pytest.mark.parametrize("again", [False, True])
def test_a_table_of_two_queues_has_what_is_left_of_it(
    place: Place, again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    place.push(21, queue="bills")
    readers, tasks = [], []
    for fail in (True, False):
        chosen = read_options(without_queue({**options(place, fail), "queues": "orders,bills"}))
        readers.append(BatchReader(chosen, SCHEMA, take_snapshot(chosen)))
        tasks.append(readers[-1].partitions())
    place.delete_queues("bills")
    if again:
        place.push(22, queue="bills")
    for ask in (lambda: readers[0].partitions(), lambda: rows(readers[0], tasks[0])):
        with pytest.raises(DataLost, match=r"bills was deleted.*failOnDataLoss"):
            ask()
    # Planned before or after it: the same rows.
    for planned in (tasks[1], readers[1].partitions()):
        caplog.clear()
        assert rows(readers[1], planned) == [1, 2, 3]
    assert rows(readers[1], tasks[1]) == [1, 2, 3]
    assert "bills was deleted" in caplog.text


def put_back_a_backup(place: Place) -> None:
    """A backup as the program makes it, in the place of the store."""
    Path(f"{place.path}.taken").unlink(missing_ok=True)
    with headwater.sync.open(place.path, housekeeping=False) as opened:
        opened._bridge.run(opened._inner.store.backup(f"{place.path}.taken"))
    place.remove()
    shutil.copy(f"{place.path}.taken", place.path)


def test_what_is_read_of_a_backup_before_its_first_writer_stays_good_after_it(place: Place) -> None:
    """It gets its identity from whoever first opens it for writing; until then nobody may hold it to another one."""
    put_back_a_backup(place)
    chosen = read_options(options(place, True))
    table = BatchReader(chosen, SCHEMA, take_snapshot(chosen))
    tasks = table.partitions()
    before = stream(place, True)
    found, end = read_on(before, before.initialOffset())
    assert found == [1, 2, 3]
    place.push(4)
    # The same reader goes on, and so does a new one from the checkpoint; a table and its tasks are what they were.
    assert read_on(before, end)[0] == [4]
    after = stream(place, True)
    found, settled = read_on(after, end)
    assert found == [4]
    assert rows(table, tasks) == rows(table, table.partitions()) == [1, 2, 3]
    # From then on it is known by its identity.
    put_back_a_backup(place)
    for reader in (before, after):
        with pytest.raises(StoreReplaced, match="failOnDataLoss"):
            reader.latestOffset(settled, ReadAllAvailable())
        reader.stop()


@pytest.mark.parametrize("written_to", [False, True])
def test_a_checkpoint_of_the_original_is_never_taken_for_one_of_the_backup(place: Place, written_to: bool) -> None:
    reader = stream(place, True)
    _, end = read_on(reader, reader.initialOffset())
    put_back_a_backup(place)
    if written_to:
        place.push(4)
    with pytest.raises(StoreReplaced, match="failOnDataLoss"):
        reader.latestOffset(end, ReadAllAvailable())
    reader.stop()


def test_a_backup_that_went_on_otherwise_is_found_out_though_it_had_no_identity(place: Place) -> None:
    """Put back twice: what was read of the first copy, beyond the backup, is not in the second."""
    put_back_a_backup(place)
    reader = stream(place, True)
    _, end = read_on(reader, reader.initialOffset())
    place.push(4)
    _, beyond = read_on(reader, end)
    place.remove()
    shutil.copy(f"{place.path}.taken", place.path)
    with pytest.raises(StoreReplaced, match="failOnDataLoss"):
        reader.latestOffset(beyond, ReadAllAvailable())
    # What was read of the backup itself is in both.
    assert read_on(reader, end)[0] == []
    place.push(5)
    assert read_on(reader, end)[0] == [5]
    reader.stop()


def test_a_source_keeps_what_load_has_found(place: Place) -> None:
    """Spark asks for the columns once, keeps the source as it is then, and has it make a reader for every plan."""
    source = HeadwaterDataSource({"store": place.path, "queue": "orders"})
    source.schema()
    kept = pickle.dumps(source)
    place.push(4)
    for _ in range(2):
        reader = pickle.loads(kept).reader(SCHEMA)
        assert rows(reader, reader.partitions()) == [1, 2, 3]
        place.push(5)


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_is_never_read_from_something_else(place: Place, change: str, caplog: pytest.LogCaptureFixture) -> None:
    become, error = CHANGES[change]
    readers = []
    for fail in (True, False):
        chosen = read_options(options(place, fail))
        readers.append(BatchReader(chosen, SCHEMA, take_snapshot(chosen)))
    tasks = readers[0].partitions()
    assert rows(readers[0], tasks) == [1, 2, 3]
    become(place)
    with pytest.raises(error, match="failOnDataLoss"):
        readers[0].partitions()
    caplog.clear()
    assert rows(readers[1], readers[1].partitions()) == []
    assert "as failOnDataLoss says" in caplog.text


def sink(place: Place, fail: bool, queue: str = "copies", **more: str) -> StreamSink:
    given = {"store": place.path, "queue": queue, "failondataloss": str(fail).lower(), **more}
    schema = StructType().add("value", StringType())
    return StreamSink(write_options({**given, "checkpointlocation": str(place.checkpoint)}), schema, False)


def push_batch(into: StreamSink, number: int, *values: int, queue: str = "copies") -> None:
    records = json.dumps([{"data": value} for value in values]).encode()
    into.commit([Written("query", (Chunk(queue, "p", records),))], number)


@pytest.mark.parametrize("change", CHANGES)
def test_a_sink_is_told_that_its_store_or_queue_is_another(place: Place, change: str) -> None:
    become, error = CHANGES[change]
    push_batch(sink(place, True), 0, 100)
    if change.startswith("restored"):
        assert place.copy("backup")
        push_batch(sink(place, True), 1, 101)
    become(place)
    with pytest.raises(error, match=r"Nothing was pushed.*failOnDataLoss"):
        push_batch(sink(place, True), 2, 102)
    push_batch(sink(place, False), 2, 102)
    push_batch(sink(place, True), 3, 103)
    push_batch(sink(place, True), 3, 103)
    assert place.values("copies")[-2:] == [102, 103]


@pytest.mark.parametrize("version", ["first", "now"])
@pytest.mark.parametrize("fail", [True, False])
def test_a_copied_checkpoint_aimed_at_another_queue_never_pushes_nothing_in_silence(
    place: Place, version: str, fail: bool
) -> None:
    push_batch(sink(place, True), 0, 100)
    if version == "first":
        # The first version left nothing beside Spark's own files.
        (place.checkpoint / "headwater-destination.json").unlink()
    copy = Place(place.checkpoint.parent / "copy")
    shutil.rmtree(copy.checkpoint)
    shutil.copytree(place.checkpoint, copy.checkpoint)
    copy.path = place.path
    push_batch(sink(place, True), 1, 101)
    aimed = sink(copy, fail, "elsewhere")
    if version == "first" or fail:
        told = r"(pushed to copies .*aimed at elsewhere|pushed batch 1 with 1 records to copies)"
        with pytest.raises((DataLost, PipelineError), match=told):
            push_batch(aimed, 1, 101, queue="elsewhere")
        with headwater.sync.open(place.path, housekeeping=False) as opened:
            assert "elsewhere" not in [queue.queue for queue in opened.queues()]
    else:
        push_batch(aimed, 1, 101, queue="elsewhere")
        push_batch(aimed, 2, 102, queue="elsewhere")
        push_batch(sink(place, True), 2, 102)
        assert place.values("elsewhere") == [101, 102]
        assert place.values("copies") == [100, 101, 102]


def test_a_copied_checkpoint_that_runs_beside_the_first_is_told_where_they_differ(place: Place) -> None:
    """Both count on from the same number; the same offsets are the same batch, others are not."""
    for number, lsn in enumerate((2, 3)):
        (place.checkpoint / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"lsn": {lsn}}}')
    push_batch(sink(place, True), 0, 100)
    push_batch(sink(place, True), 1, 101)
    push_batch(sink(place, True), 1, 101)
    (place.checkpoint / "offsets" / "1").write_text('v1\n{"batchWatermarkMs":5}\n{"lsn": 4}')
    with pytest.raises(PipelineError, match="Nothing was pushed"):
        push_batch(sink(place, True), 1, 101)
    assert place.values("copies") == [100, 101]


def test_a_query_that_pushes_to_what_it_reads_is_refused(place: Place) -> None:
    reader = stream(place, True)
    end = json.dumps(read_on(reader, reader.initialOffset())[1])
    reader.stop()
    (place.checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n-\n{end}")
    with pytest.raises(InvalidOption, match=r"reads orders and pushes to it.*Nothing was pushed.*allowSameQueue"):
        push_batch(sink(place, False, "orders"), 0, 100, queue="orders")
    push_batch(sink(place, True, "copies"), 0, 100)
    assert place.values("orders") == [1, 2, 3]


@pytest.mark.parametrize("change", ["deleted", "deleted and made again", "replaced by another"])
def test_a_flows_handle_whose_store_is_gone_says_so(place: Place, change: str) -> None:
    with Handle(place.path) as handle:
        handle.commit([Push(queue="orders", records=[record(4)])])
        (Place.remove if change == "deleted" else CHANGES[change][0])(place)
        with pytest.raises(StoreReplaced):
            handle.commit([Push(queue="orders", records=[record(5)])])
        with pytest.raises(StoreReplaced):
            handle.ask(handle.store.ask(FindLastLsn()))
    if change != "deleted":
        assert place.values("orders") == [7, 8, 9]


def test_a_write_to_a_store_that_is_gone_fails_and_goes_to_the_one_that_is_there(place: Place) -> None:
    """The process that commits stays open between writes."""
    into = sink(place, False, "orders", allowsamequeue="true")
    push_batch(into, 0, 4, queue="orders")
    place.remove()
    with pytest.raises(StoreMissing):
        push_batch(into, 1, 5, queue="orders")
    assert not os.path.exists(place.path)
    place.push(7)
    push_batch(into, 1, 5, queue="orders")
    assert place.values("orders") == [7, 5]


# ── the rules ──


HERE = Here("log.db", "store-1", {"orders": 3}, 10)  # type: ignore[arg-type]
SEEN = Fingerprint(7, "mark")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset", "remembered", "error"),
    [
        (StreamOffset(7, 0, "store-1", {"orders": 3}, SEEN), True, None),  # type: ignore[arg-type]
        (StreamOffset(7, 0, "store-1", {"orders": 3}, SEEN), None, None),  # type: ignore[arg-type]
        (StreamOffset(7, 2), None, None),  # type: ignore[arg-type]
        (StreamOffset(10), None, None),  # type: ignore[arg-type]
        (StreamOffset(11), None, StoreReplaced),  # type: ignore[arg-type]
        (StreamOffset(7, 0, "store-2", {"orders": 3}, SEEN), True, StoreReplaced),  # type: ignore[arg-type]
        (StreamOffset(7, 0, "store-1", {"orders": 3}, SEEN), False, StoreReplaced),  # type: ignore[arg-type]
        (StreamOffset(7, 0, "store-1", {"orders": 2}, SEEN), True, DataLost),  # type: ignore[arg-type]
        (StreamOffset(7, 0, "store-1", {"orders": 3, "bills": 4}, SEEN), True, DataLost),  # type: ignore[arg-type]
        (StreamOffset(7, through=11, positions={1: 5}), None, StoreReplaced),  # type: ignore[arg-type, dict-item]
    ],
)
def test_what_changed_since_an_offset_is_found(
    offset: StreamOffset, remembered: bool | None, error: type[Exception] | None
) -> None:
    change = find_change(offset, HERE, remembered)
    assert (None if change is None else type(change)) == error
    if change is not None:
        anew = begin_anew(offset, change, HERE, remembered, drops=5)
        assert (anew.lsn, anew.drops) == ((7, 0) if remembered or error is DataLost else (0, 5))


@pytest.mark.parametrize(
    "kept",
    [{"lsn": -1}, {"lsn": 2**70}, {"lsn": 1, "drops": -1}, {"lsn": "3"}, {"lsn": 1, "positions": {"a": 1}}, {}, None],
)
def test_an_offset_that_cannot_be_is_refused(kept: Any) -> None:
    with pytest.raises(InvalidOption, match="holds no offset of a Headwater source"):
        offset_of(kept)


@pytest.mark.parametrize("fail", [True, False])
def test_an_offset_beyond_the_log_is_refused(place: Place, fail: bool) -> None:
    reader = stream(place, fail)
    if fail:
        with pytest.raises(StoreReplaced, match="ends at LSN 3, but LSN 99 was read before"):
            reader.latestOffset({"lsn": 99, "drops": 0}, ReadAllAvailable())
    else:
        assert read_on(reader, {"lsn": 99, "drops": 0})[0] == [1, 2, 3]
    reader.stop()


def test_offsets_and_steps_of_the_first_version_are_still_read(place: Place) -> None:
    reader = stream(place, True)
    found, end = read_on(reader, {"lsn": 1, "drops": 0})
    assert found == [2, 3]
    assert offset_of(end).store
    reader.stop()
    assert is_same("3 records", "3 records to copies, offsets 1a2b")
    assert not is_same("3 records", "33 records to copies")
    assert not is_same("3 records to copies", "3 records to others")


@pytest.mark.parametrize("location", ["", "s3://bucket/checkpoint", "file://host/x"])
def test_a_checkpoint_that_is_no_folder_of_this_machine_tells_nothing(location: str) -> None:
    elsewhere = Checkpoint(location)
    elsewhere.note_destination(Destination("store", "main"))
    assert (elsewhere.destination(), elsewhere.sources(0), elsewhere.digest(0)) == (None, [], "")


# ── with Spark ──


def test_a_store_that_is_remade_while_a_stream_is_down_is_told(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """10 of 15 new messages never came: their LSNs had been read in the store before."""
    source = Place(tmp_path / "source")
    for number in range(10):
        source.push({"id": number})

    def follow(**more: Any) -> None:
        stream = spark.readStream.format("headwater").options(store=source.path, queue="orders", **more).load()
        store.sink(stream.select("value"), tmp_path / "query")

    follow()
    source.remove()
    for number in range(15):
        source.push({"id": 100 + number})
    with pytest.raises(QUERY_ERRORS, match=r"StoreReplaced.*failOnDataLoss"):
        follow()
    follow(failOnDataLoss=False)
    follow()
    assert [value["id"] for _, _, value in store.records("copies")] == [*range(10), *range(100, 115)]


def test_a_copied_checkpoint_of_a_query_is_told(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    store.push({"id": 1})
    stream = store.stream(spark).select("value")
    store.sink(stream, tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    store.push({"id": 2})
    store.sink(stream, tmp_path / "one")
    with pytest.raises(QUERY_ERRORS, match=r"pushed to copies of main, and is aimed at others"):
        store.sink(stream, tmp_path / "two", queue="others")
    store.sink(stream, tmp_path / "two", queue="others", failOnDataLoss=False)
    store.push({"id": 3})
    for name, queue in (("one", "copies"), ("two", "others")):
        store.sink(stream, tmp_path / name, queue=queue)
    assert [value["id"] for _, _, value in store.records("copies")] == [1, 2, 3]
    assert [value["id"] for _, _, value in store.records("others")] == [2, 3]


@pytest.fixture(autouse=True)
def close_writers() -> Iterator[None]:
    """The processes of a test are one: what it left open is not the next one's."""
    yield
    from headwater.pipeline.writing import close_all

    close_all()
