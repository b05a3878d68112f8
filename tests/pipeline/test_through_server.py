"""The same tests through a server: what Spark reads and writes over a file it reads and writes over HTTP.

The tests are those of the other modules, some of each kind; here their store is reached at http://.
"""

# ruff: noqa: F401  # imported to be collected here, with the store of this module
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headwater.sync
from headwater.errors import StoreMissing
from headwater.pipeline.failures import told_in_one_line
from headwater.pipeline.looking import Look
from headwater.pipeline.options import ReadOptions
from tests.doors.live_door import LiveDoor, on_the_edge
from tests.pipeline.conftest import KEY
from tests.pipeline.store import QUERY_ERRORS, Store
from tests.pipeline.test_losses import (
    test_a_deleted_queue_stops_the_stream_unless_it_may_go_on,
    test_a_table_whose_queue_was_deleted_is_an_error_or_empty_with_a_warning,
    test_records_dropped_before_they_were_read_stop_the_query_unless_it_may_go_on,
)
from tests.pipeline.test_read import (
    test_a_stretch_is_read_by_lsn_or_time,
    test_compressed_and_encrypted_queues_are_read,
    test_every_record_is_a_row_with_all_its_columns,
    test_many_segments_are_read_by_many_tasks_each_record_once,
    test_partitions_that_are_named_are_read_and_no_others,
    test_several_queues_are_read_by_name_or_pattern,
)
from tests.pipeline.test_stream import (
    batches,
    test_a_group_shows_how_far_the_stream_is_behind,
    test_a_query_reads_what_there_is_and_goes_on_where_it_was,
)
from tests.pipeline.test_write import (
    test_a_key_belongs_to_its_queue_and_goes_with_it,
    test_a_key_of_rows_that_name_their_queues_goes_when_one_of_them_goes,
    test_a_micro_batch_that_spark_forgot_to_note_is_not_pushed_again,
    test_a_stream_is_pushed_micro_batch_by_micro_batch,
    test_a_table_is_pushed_with_all_that_its_columns_say,
    test_a_table_with_an_idempotency_key_is_pushed_once,
    test_a_task_that_is_tried_again_pushes_nothing_however_its_rows_are_ordered,
)
from tests.scenarios.servers import Server


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store, open for pushes, and a server over it at whose address Spark finds it."""
    path = tmp_path / "log.db"
    with headwater.sync.open(str(path), housekeeping=False, encryption_key=KEY) as opened:
        door = LiveDoor(path, on_the_edge, housekeeping=False, encryption_key=KEY)
        door.start()
        yield Store(opened, door.url)
        door.stop()


# ── an executor without the file ──


def test_an_executor_that_does_not_see_the_file_is_told_the_way_in_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = ReadOptions(store=str(tmp_path / "on-another-machine.db"), queues=("orders",))
    with pytest.raises(StoreMissing, match="on-another-machine"):
        Look(options).__enter__()

    def read(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Look(options):
            yield from rows

    with pytest.raises(StoreMissing) as told, told_in_one_line():
        spark.range(1).mapInArrow(read, "id BIGINT").collect()
    sentence = str(told.value)
    assert "does not see" in sentence
    assert "store=https://host" in sentence
    assert "\n" not in sentence


# ── a token has a database ──


@pytest.fixture
def of_acme(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A queue in two databases behind a server, and the options of a reader with a token of one of them."""
    path = tmp_path / "tenants.db"
    with headwater.sync.open(str(path), housekeeping=False) as hw:
        hw.queue("orders").push({"tenant": "main"})
        hw.database("acme").queue("orders").push({"tenant": "acme"})
        tokens = hw._inner.access_tokens("acme")
        _, secret = hw._bridge.run(tokens.create("spark", ("publish", "subscribe", "consume")))
    (tmp_path / "token").write_text(secret)
    server = Server(path, "--auth", "token")
    yield {"store": server.url, "tokenFile": str(tmp_path / "token"), "queue": "orders"}
    server.stop()


def test_a_database_that_is_named_is_that_of_the_token_or_refused(
    spark: SparkSession, of_acme: dict[str, str], tmp_path: Path
) -> None:
    def table(**more: str) -> Any:
        return spark.read.format("headwater").options(**of_acme, **more).load().select("value")

    def write(rows: Any, **more: str) -> None:
        rows.write.format("headwater").mode("append").options(**of_acme, **more).save()

    def stream(name: str, **more: str) -> None:
        rows = spark.readStream.format("headwater").options(**of_acme).load().select("value")
        writing = rows.writeStream.format("headwater").options(**{**of_acme, "queue": "copies"}, **more)
        writing.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start().awaitTermination()

    row = spark.sql('SELECT \'{"tenant": "acme"}\' AS value')
    for number, good in enumerate(({}, {"database": "acme"})):
        write(row, **good)
        write(row, **good, idempotencyKey=f"key-{number}")
        stream(f"good-{number}", **good)
        assert {value for (value,) in table(**good).collect()} == {'{"tenant": "acme"}', '{"tenant":"acme"}'}
    there = table().count()
    for foreign in ("main", "other"):
        refused = f"the token is for the database 'acme', not for '{foreign}'"
        for attempt in (
            lambda **more: table(**more).collect(),
            lambda **more: write(row, **more),
            lambda **more: write(row, idempotencyKey="key", **more),
            lambda **more: stream("foreign", **more),
        ):
            with pytest.raises(QUERY_ERRORS, match=refused):
                attempt(database=foreign)
    assert table().count() == there


def test_a_stream_goes_on_when_its_token_is_replaced_in_its_file(spark: SparkSession, tmp_path: Path) -> None:
    path, file = tmp_path / "log.db", tmp_path / "token"
    with headwater.sync.open(str(path), housekeeping=False) as hw:
        hw.queue("orders").push({"id": 1})
        tokens = hw._inner.access_tokens()
        first, secret = hw._bridge.run(tokens.create("first", ("publish", "subscribe", "consume")))
        file.write_text(secret)
        server = Server(path, "--auth", "token")
        there = {"store": server.url, "tokenFile": str(file)}
        rows = spark.readStream.format("headwater").options(**there, queue="orders", group="g").load().select("value")
        writing = rows.writeStream.format("headwater").options(**there, queue="copies")
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.processAllAvailable()
            _, secret = hw._bridge.run(tokens.create("second", ("publish", "subscribe", "consume")))
            file.write_text(secret)
            hw._bridge.run(tokens.revoke(first.id))
            hw.queue("orders").push({"id": 2})
            query.processAllAvailable()
        finally:
            query.stop()
            server.stop()
        with hw.queue("copies").consume(group="seen", idle_seconds=0) as copies:
            assert [message.payload["id"] for message in copies] == [1, 2]


# ── a token is a secret ──

CANARY = "hw_canary0000000000000000000000000000000000000"


def shown_by(spark: SparkSession, rows: Any) -> str:
    """Everything that Spark says of a query's plan."""
    query = rows._jdf.queryExecution()
    modes = spark._jvm.org.apache.spark.sql.execution.ExplainMode  # type: ignore[union-attr]
    plans = [query.explainString(modes.fromString(mode)) for mode in ("simple", "extended", "cost", "formatted")]
    return "\n".join([*plans, query.toString(), query.logical().toString(), rows._jdf.toString()])


def test_a_token_is_in_no_plan_log_progress_checkpoint_or_error(
    spark: SparkSession, store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store.push({"id": 1}, {"id": 2})
    token = {"token": CANARY}
    table = store.table(spark, **token)
    assert table.count() == 2
    said = [shown_by(spark, table), shown_by(spark, store.stream(spark, **token))]
    table.select("value").write.format("headwater").mode("append").options(
        store=store.address, queue="written", **token
    ).save()
    query = store.sink(store.stream(spark, **token).select("value"), tmp_path / "checkpoint", **token)
    said += [json.dumps(progress, default=str) for progress in query.recentProgress]
    said += [str(query.lastProgress), str(query.status)]
    assert len(store.records("copies")) == 2
    for wrong in ({"queue": "nowhere"}, {"queue": "orders", "schema": "id STRING", "mode": "FAILFAST"}):
        reader = spark.read.format("headwater").options(store=store.address, **wrong, **token)
        with pytest.raises(QUERY_ERRORS) as told:
            reader.load().select("value").collect()
        said.append(str(told.value))
    with pytest.raises(QUERY_ERRORS) as told:
        spark.read.format("headwater").options(store=store.address, queue="orders", token=f"{CANARY} twice").load()
    said.append(str(told.value))
    said += [path.read_text(errors="replace") for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    log = spark.conf.get("spark.driver.extraJavaOptions")
    assert log is not None
    said.append(Path(log.split('headwater.spark.log="')[1].split('"')[0]).read_text(errors="replace"))
    events = Path(spark.conf.get("spark.eventLog.dir").removeprefix("file:"))  # type: ignore[union-attr]
    recorded = [path.read_text(errors="replace") for path in events.rglob("*") if path.is_file()]
    assert any("SparkListenerSQLExecutionStart" in text for text in recorded)
    said += [*recorded, *capfd.readouterr()]
    assert [text[max(text.find(CANARY) - 300, 0) : text.find(CANARY)] for text in said if CANARY in text] == []
