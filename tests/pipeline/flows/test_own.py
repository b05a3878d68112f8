"""A flow of one's own runs between two queues as the built-in flows do; the example in the tree is one."""

import random
import sys
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import headwater.sync
from examples.revenue import hourly_revenue
from headwater.errors import InvalidName, InvalidOption, QueueMissing, SourceUnfit
from headwater.pipeline import own
from headwater.pipeline.failures import told_in_one_line
from headwater.pipeline.own import Flow, RunFlow, as_records, find_flow, flow, share_done
from headwater.pipeline.summary import Summary

MORNING = datetime(2026, 11, 15, 8, tzinfo=UTC)
NAME = "examples.revenue:hourly_revenue"


def run(spark: SparkSession, store: Path, **more: Any) -> Summary:
    return own.run(spark, RunFlow(store=str(store), **{"name": NAME, **more}))


def order(minutes: float, amount: float) -> dict[str, Any]:
    time = (MORNING + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
    return {"customer": "ada", "amount": amount, "placed_at": time}


def consume(store: Path, queue: str) -> list[Any]:
    """What a consumer gets that has not had it yet."""
    with headwater.sync.open(str(store), housekeeping=False) as hw:
        found = hw.queue(queue).pop(batch=1_000, partitions=100)
        hw.queue(queue).ack(found)
        return [message.payload for message in found]


def push(store: Path, payloads: list[Any]) -> None:
    with headwater.sync.open(str(store), housekeeping=False) as hw:
        hw.queue("orders").push_many(payloads)


def test_orders_become_hourly_revenue_that_a_consumer_reads(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    chance = random.Random(3)
    expected: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    morning = [(chance.randrange(0, 180), chance.randrange(100, 10_000) / 100) for _ in range(200)]
    for minutes, amount in morning:
        hour = f"2026-11-15T{8 + minutes // 60:02}:00Z"
        expected[hour] += amount
        counts[hour] += 1
    push(store, [order(*one) for one in morning])
    summary = run(spark, store)
    assert (summary.facts["messages in"], summary.facts["messages out"]) == (200, 2)
    assert run(spark, store).facts["messages in"] == 0
    push(store, [order(300, 1.0)])
    assert run(spark, store).facts["messages out"] == 1
    found = consume(store, "revenue")
    assert {row["hour"]: row["orders"] for row in found} == dict(counts)
    assert {row["hour"]: row["revenue"] for row in found} == {hour: round(sum_, 2) for hour, sum_ in expected.items()}


def test_what_an_earlier_run_pushed_is_not_counted_as_pushed_now(spark: SparkSession, tmp_path: Path) -> None:
    """The first run died after it had pushed and before Spark noted that."""
    store, checkpoint = tmp_path / "hw.db", tmp_path / "checkpoint"
    (tmp_path / "copying_flow.py").write_text("def copy(orders):\n    return orders.select('value')\n")
    sys.path.insert(0, str(tmp_path))
    job = {"name": "copying_flow:copy", "queue": "orders", "target": "copies", "checkpoint": str(checkpoint)}
    push(store, [order(1, 1.0)] * 3)
    first = run(spark, store, **job).facts
    assert (first["messages out"], "pushed before" in first) == (3, False)
    for note in (checkpoint / "commits").glob("*"):
        note.unlink()
    push(store, [order(2, 1.0)] * 2)
    again = run(spark, store, **job).facts
    assert (again["messages out"], again["pushed before"]) == (2, 3)
    assert len(consume(store, "copies")) == 5
    assert "pushed before" not in run(spark, store, **job).facts


def test_the_flow_shows_up_as_a_group_without_lag(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    push(store, [order(1, 1.0)] * 3)
    run(spark, store)
    with headwater.sync.open(str(store), housekeeping=False) as hw:
        assert [(one.group, one.lag) for one in hw.groups("orders")] == [
            ("pipeline.examples.revenue.hourly_revenue", 0)
        ]


def test_the_function_can_be_called_with_any_table(spark: SparkSession) -> None:
    rows = spark.sql("SELECT named_struct('placed_at', timestamp'2026-11-15 08:10:00Z', 'amount', 2.5D) AS value")
    assert [row.asDict() for row in hourly_revenue(rows).collect()] == [
        {"hour": "2026-11-15T08:00Z", "orders": 1, "revenue": 2.5}
    ]


def test_columns_of_a_message_stay_and_the_others_become_its_payload(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'north' AS partition, 7 AS id, 'x' AS name")
    (row,) = as_records(rows).collect()
    assert (row["partition"], row["value"]) == ("north", '{"id":7,"name":"x"}')
    assert as_records(rows.select(f.lit("1").alias("value"))).columns == ["value"]
    with pytest.raises(SourceUnfit, match="payload"):
        as_records(rows.select("partition"))


def test_a_flow_that_fails_is_told_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    push(store, [{"amount": "much"}])
    with pytest.raises(headwater.HeadwaterError) as caught, told_in_one_line(tmp_path / "spark.log"):
        run(spark, store)
    assert "\n" not in str(caught.value)


@flow(reads="orders")
def nowhere(orders: DataFrame) -> DataFrame:
    return orders


def plain(orders: DataFrame) -> DataFrame:
    return orders.select("value")


def test_a_plain_function_takes_its_queues_from_the_command_line(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    push(store, [1, {"two": 2}])
    run(spark, store, name=f"{__name__}:plain", queue="orders", target="copy", messages_per_batch=1)
    assert consume(store, "copy") == [1, {"two": 2}]


def test_what_makes_no_sense_is_told(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    push(store, [1])
    for name, error, told in [
        ("no_colon", InvalidOption, "module:function"),
        ("no_such_module:flow", SourceUnfit, "no module 'no_such_module'"),
        ("examples.revenue:daily", SourceUnfit, "there are hourly_revenue"),
        (f"{__name__}:nowhere", InvalidName, "queue"),
    ]:
        with pytest.raises(error, match=told):
            run(spark, store, name=name)
    with pytest.raises(QueueMissing), told_in_one_line():
        run(spark, store, queue="order")


def test_a_flow_is_found_by_its_name() -> None:
    assert isinstance(find_flow(NAME), Flow)
    assert (find_flow(NAME).reads, find_flow(NAME).writes) == ("orders", "revenue")


def test_how_far_a_query_is() -> None:
    source = {"endOffset": '{"lsn": 5}', "latestOffset": '{"lsn": 10}'}
    assert share_done({"sources": [source]}) == 0.5
    assert share_done(None) == 0.0
