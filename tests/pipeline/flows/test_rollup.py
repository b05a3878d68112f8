"""Rollups say what happened, by minute, hour and day; counted once, however often a run is tried."""

import json
import random
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.clock import SECOND
from headwater.errors import FlowOvertaken, InvalidOption, QueueMissing, SourceUnfit, StoreMissing
from headwater.log.flow_operations import AddRollups
from headwater.log.operations import Ack, Configure, DeleteGroup, Pop, Push, Seek
from headwater.model.cursor import Outcome
from headwater.model.job import JOBS_QUEUE
from headwater.model.rollup import Rollup, RollupQuery, bin_of
from headwater.pipeline.chart import draw
from headwater.pipeline.flows import rollup
from headwater.pipeline.flows.rollup import RollUp
from headwater.pipeline.handle import Handle
from headwater.pipeline.summary import Summary
from headwater.stores.questions import ListRollups
from tests.pipeline.flows.logs import NOON, At, apply, record

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def run(spark: SparkSession, store: Path, at: int = NOON, **more: Any) -> Summary:
    return rollup.run(spark, RollUp(store=str(store), **more), clock=At(at))


def rows(store: Path, resolution: str = "minute", group: str | None = None) -> list[Rollup]:
    with Handle(str(store)) as log:
        found = log.ask(log.store.ask(ListRollups("main", RollupQuery(resolution=resolution))))
    return [row for row in found if group is None or row.group == group]


def push(store: Path, count: int, at: int, queue: str = "orders", **about: Any) -> None:
    apply(store, Push(queue=queue, records=[record(number, **about) for number in range(count)]), at=at)


def take(store: Path, batch: int, at: int, outcome: Outcome = Outcome.COMPLETED, queue: str = "orders") -> None:
    """Pop a batch as the group `billing`, and report on it."""
    (popped,) = apply(store, Pop(queue=queue, group="billing", batch=batch), at=at)
    for found in popped.batches:
        outcomes: dict[int | str, Outcome] = dict.fromkeys(found.offsets, outcome)
        report = Ack(partition_id=found.partition_id, group="billing", token=found.token, outcomes=outcomes)
        apply(store, report, at=at)


def test_what_was_pushed_is_counted_by_queue_type_and_time(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    chance = random.Random(7)
    expected: Counter[tuple[str, str, str, int]] = Counter()
    for moment in sorted(chance.randrange(NOON, NOON + 3 * HOUR) for _ in range(12)):
        queue, kind, count = chance.choice(["orders", "mails"]), chance.choice(["", "a"]), chance.randrange(1, 9)
        push(store, count, moment, queue, type=kind)
        for resolution, length in {"minute": MINUTE, "hour": HOUR, "day": 24 * HOUR}.items():
            expected[resolution, queue, kind, moment - moment % length] += count
    assert run(spark, store, records_per_step=20).facts["messages"] == sum(expected.values()) / 3
    for resolution in ("minute", "hour", "day"):
        found = {(resolution, row.queue, row.type, row.bucket): row.pushed for row in rows(store, resolution, "")}
        assert found == {key: count for key, count in expected.items() if key[0] == resolution}


def test_changes_of_jobs_are_counted_by_type_and_state(spark: SparkSession, tmp_path: Path) -> None:
    changes = [{"type": "mail", "state": "pending"}] * 3 + [{"type": "mail", "state": "completed"}, {"event": "pause"}]
    rows = [(JOBS_QUEUE, "", NOON, NOON, json.dumps(change)) for change in changes]
    schema = "queue STRING, type STRING, timestamp BIGINT, written_at BIGINT, value STRING"
    counted = rollup.count_pushed(spark.createDataFrame(rows, schema), 0).collect()
    assert {row["type"]: row["pushed"] for row in counted} == {"mail pending": 3, "mail completed": 1, "": 1}


def test_a_second_rollup_counts_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    push(store, 3, NOON)
    run(spark, store)
    push(store, 2, NOON + SECOND)
    assert run(spark, store).facts["messages"] == 2
    assert run(spark, store).facts["messages"] == 0
    assert [row.pushed for row in rows(store)] == [5]


def test_records_behind_the_watermark_are_late(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    push(store, 1, NOON)
    push(store, 2, NOON + HOUR, timestamp=NOON - 10 * MINUTE)
    run(spark, store)
    assert {row.bucket: (row.pushed, row.late) for row in rows(store)} == {NOON: (1, 0), NOON - 10 * MINUTE: (2, 0)}
    push(store, 4, NOON + HOUR, timestamp=NOON - 10 * MINUTE)
    push(store, 5, NOON + HOUR, timestamp=NOON + HOUR - 10 * MINUTE)
    run(spark, store, late_seconds=300)
    run(spark, store, late_seconds=300)
    found = {row.bucket: (row.pushed, row.late) for row in rows(store)}
    assert found[NOON + HOUR] == (0, 4)
    assert found[NOON - 10 * MINUTE] == (2, 0)
    assert found[NOON + HOUR - 10 * MINUTE] == (5, 0)


def test_completions_lag_and_latency_of_a_group(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    push(store, 10, NOON)
    push(store, 10, NOON + 10 * SECOND)
    take(store, 15, NOON + 20 * SECOND)
    assert run(spark, store, NOON + 30 * SECOND).facts["completed"] == 15
    (row,) = rows(store, group="billing")
    assert (row.bucket, row.completed, row.lag_max) == (NOON, 15, 5)
    assert (row.latency_total, row.latency_max) == ((10 * 30 + 5 * 20) * SECOND, 30 * SECOND)
    assert row.latency_bins == {bin_of(30 * SECOND): 10, bin_of(20 * SECOND): 5}
    take(store, 5, NOON + 40 * SECOND)
    run(spark, store, NOON + 90 * SECOND)
    run(spark, store, NOON + 95 * SECOND)
    after = rows(store, group="billing")[-1]
    assert (after.bucket, after.completed, after.lag_max, after.latency_max) == (NOON + MINUTE, 5, 0, 80 * SECOND)
    assert sum(one.completed for one in rows(store, "day", "billing")) == 20


def test_retries_and_dead_letters_are_counted_where_they_were_seen(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    apply(store, Configure(queue="orders", options={"retry_limit": 1, "retry_delay_seconds": 0}))
    push(store, 3, NOON)
    take(store, 3, NOON, Outcome.FAILED)
    run(spark, store, NOON)
    take(store, 3, NOON, Outcome.FAILED)
    assert run(spark, store, NOON + MINUTE).facts["dead letters"] == 3
    found = [(row.bucket, row.retried, row.buried) for row in rows(store, group="billing")]
    assert found == [(NOON, 0, 0), (NOON + MINUTE, 3, 3)]


def test_a_group_that_seeks_or_is_made_anew_counts_nothing_twice(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    push(store, 10, NOON)
    take(store, 10, NOON)
    run(spark, store)
    apply(store, Seek(queue="orders", group="billing", to="beginning"))
    assert run(spark, store).facts["completed"] == 0
    apply(store, DeleteGroup(group="billing"))
    run(spark, store)
    apply(store, Pop(queue="orders", group="billing", subscribe="new"))
    push(store, 4, NOON)
    take(store, 4, NOON)
    # It began in the middle: what it did before it was first seen is not known.
    assert run(spark, store).facts["completed"] == 0


def test_of_two_rollups_at_once_one_counts(spark: SparkSession, tmp_path: Path, monkeypatch: Any) -> None:
    store = tmp_path / "hw.db"
    push(store, 5, NOON)
    keep = rollup._keep

    def overtaken(*arguments: Any) -> int:
        apply(store, AddRollups(number=0, state="{}", rows=[]))
        return keep(*arguments)

    monkeypatch.setattr(rollup, "_keep", overtaken)
    with pytest.raises(FlowOvertaken):
        run(spark, store)
    assert rows(store) == []


def test_what_makes_no_sense_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StoreMissing):
        run(spark, tmp_path / "none.db")
    with pytest.raises(InvalidOption, match="minute, hour, day"):
        run(spark, tmp_path / "none.db", resolution="week")
    with pytest.raises(SourceUnfit, match=r"\.svg or \.html"):
        run(spark, tmp_path / "none.db", chart="chart.pdf")


def test_a_chart_is_drawn_of_what_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    push(store, 10, NOON, "a<b".replace("<", "/"))
    push(store, 20, NOON + 5 * MINUTE)
    take(store, 20, NOON + 6 * MINUTE)
    for name in ("chart.svg", "chart.html"):
        run(spark, store, NOON + 7 * MINUTE, chart=str(tmp_path / name))
    picture = ElementTree.parse(tmp_path / "chart.svg").getroot()
    said = " ".join(element.text or "" for element in picture.iter())
    assert "orders · billing" in said
    assert "a/b" in said
    page = (tmp_path / "chart.html").read_text()
    assert "<svg" in page
    assert "<td>20</td>" in page
    assert "script" not in page


def test_queues_and_time_choose_what_is_shown_and_everything_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    for hours, queue, count in ((0, "orders", 1), (1, "orders", 10), (1, "mails", 100), (13, "orders", 1000)):
        push(store, count, NOON + hours * HOUR, queue)
    shown = "shown messages"
    chart = tmp_path / "chart.svg"
    first = run(spark, store, NOON + 14 * HOUR, queues=("mails",), chart=str(chart), resolution="hour").facts
    assert (first["messages"], first[shown], first["shown queues"]) == (1111, 100, "mails")
    said = "".join(ElementTree.parse(chart).getroot().itertext())
    assert "mails" in said
    assert "orders" not in said
    cases: list[tuple[dict[str, Any], int]] = [
        ({"since": "2025-11-15T13:00"}, 1110),
        ({"since": "2025-11-15T14:30+01:00"}, 1110),
        ({"until": "2025-11-15T13:00"}, 1),
        ({"until": "2025-11-15"}, 111),
        ({"since": "2025-11-16"}, 1000),
        ({"since": "2025-11-15T13:00", "until": "2025-11-15T14:00", "queues": ("orders",)}, 10),
    ]
    for more, expected in cases:
        facts = run(spark, store, NOON + 14 * HOUR, resolution="hour", **more).facts
        assert (facts["messages"], facts[shown]) == (0, expected), more
    assert sum(row.pushed for row in rows(store)) == 1111


def test_what_cannot_be_shown_is_told_before_anything_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "hw.db"
    push(store, 1, NOON)
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"queues": ("order",)}, QueueMissing, "there are orders"),
        ({"since": "monday"}, InvalidOption, "since must be a day or time"),
        ({"until": "2025-13-01"}, InvalidOption, "until must be a day or time"),
        ({"since": "2025-11-16", "until": "2025-11-15"}, InvalidOption, "since must be before until"),
    ]
    for wrong, error, told in cases:
        with pytest.raises(error, match=told):
            run(spark, store, **wrong)
    assert rows(store) == []


def test_a_chart_by_queue_has_each_under_its_own_name() -> None:
    both = [Rollup(queue=queue, bucket=NOON, pushed=count) for queue, count in (("a", 6_000), ("b", 420))]
    together, apart = (ElementTree.fromstring(draw(both, "minute", by_queue)) for by_queue in (False, True))
    titles = [[text for text in found.itertext() if text.endswith(", by minute")] for found in (together, apart)]
    assert titles == [["Headwater, by minute"], ["a, by minute", "b, by minute"]]
    assert int(apart.attrib["height"]) == 2 * int(together.attrib["height"])
    # Each has a scale of its own, so that the quiet queue is seen beside the busy one.
    assert "7" in list(apart.itertext())
    assert "7" not in list(together.itertext())


def test_a_chart_of_nothing_and_of_hostile_names_is_still_a_picture() -> None:
    hostile = Rollup(queue='"><script>', group="&<g>", bucket=NOON, pushed=1)
    for found in ([], [hostile]):
        assert ElementTree.fromstring(draw(found, "minute")).tag.endswith("svg")
