"""Folders may have any name: what Spark writes for a flow is where the flow looks for it."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater.sync
from headwater.errors import FlowError
from headwater.log.operations import Push
from headwater.pipeline import own
from headwater.pipeline.checkpoint import DESTINATION_FILE, Checkpoint
from headwater.pipeline.files import plain_place
from headwater.pipeline.flows import archive, export, load, restore
from headwater.pipeline.flows.archive import Archive
from headwater.pipeline.flows.export import Export
from headwater.pipeline.flows.load import LoadFiles
from headwater.pipeline.flows.restore import Restore
from headwater.pipeline.manifest import NAME
from headwater.pipeline.own import RunFlow
from tests.pipeline.flows.logs import apply, fill, oracle, record

# Hadoop reads nothing whose name has a colon beside a character of patterns.
NAMES = ["o ut 12:30", 'o%20ut 100% a#b?c=d&e größe [a]{b,c}* back\\slash it\'s "so" a+b']
# What a file of CSV, a line and a path could trip over.
TEXTS = [
    'a"b,c\nd',
    "",
    None,
    "NA",
    " x ",
    "\\",
    "=cmd|1",
    "\r\nq",
    "\0ü😀",
    '""',
    "#c",
    "\r",
    "\n",
    "\u2028",
    "x" * 200_000,
]


@pytest.fixture(params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    below = tmp_path / "below"
    below.mkdir()
    return below / str(request.param)


def payloads(store: Path, queue: str = "orders") -> list[str]:
    return sorted(json.dumps(kept.payload) for lane in oracle(store, queue).values() for kept in lane)


def test_an_export_is_in_the_folder_that_was_named(spark: SparkSession, tmp_path: Path, folder: Path) -> None:
    store = tmp_path / "hw.db"
    fill(store, 12)
    apply(store, Push(queue="orders", records=[record({"id": "x"})]))
    job = Export(store=str(store), queue="orders", folder=str(folder), format="csv", schema="id BIGINT NOT NULL")
    summary = export.run(spark, job)
    assert (summary.facts["rows out"], summary.quarantined) == (12, 1)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    loaded = tmp_path / "new.db"
    load.run(spark, LoadFiles(store=str(loaded), queue="orders", files=(str(folder),), schema="id BIGINT NOT NULL"))
    assert payloads(loaded) == sorted(json.dumps({"id": number}) for number in range(12))


def test_an_archive_is_in_the_folder_that_was_named(spark: SparkSession, tmp_path: Path, folder: Path) -> None:
    store = tmp_path / "hw.db"
    for first in (0, 30):
        fill(store, 30, first=first)
        # The second run makes one file of small ones.
        archive.run(spark, Archive(store=str(store), folder=str(folder)))
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert len(list(folder.glob("queue=*/day=*/*"))) == 1
    restore.run(spark, Restore(store=str(store), folder=str(folder), queue="orders", target="copy"))
    assert payloads(store, "copy") == payloads(store)


def test_a_flow_remembers_in_the_folder_that_was_named(spark: SparkSession, tmp_path: Path, folder: Path) -> None:
    store = tmp_path / "hw.db"
    with headwater.sync.open(str(store), housekeeping=False) as hw:
        hw.queue("orders").push({"amount": 1.0, "placed_at": "2026-11-15T08:00:00Z"})
    job = RunFlow(store=str(store), name="examples.revenue:hourly_revenue", checkpoint=str(folder))
    assert own.run(spark, job).facts["messages in"] == 1
    with headwater.sync.open(str(store), housekeeping=False) as hw:
        hw.queue("orders").push({"amount": 1.0, "placed_at": "2026-11-15T12:00:00Z"})
    assert own.run(spark, job).facts["messages out"] == 1
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    # The sink's own note is beside what Spark keeps.
    assert (folder / DESTINATION_FILE).exists()
    assert Checkpoint(plain_place(folder)).destination() == Checkpoint(str(folder)).destination() is not None


def rows_of(path: Path) -> list[list[str]]:
    """The rows of a CSV file as Python reads them."""
    usual = csv.field_size_limit(1_000_000)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.reader(file))[1:]
    finally:
        csv.field_size_limit(usual)


@pytest.mark.parametrize("kind", ["csv", "parquet", "ndjson"])
def test_every_text_is_exported_and_loads_back(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    store, loaded, out = tmp_path / "hw.db", tmp_path / "new.db", tmp_path / "o ut"
    values: list[Any] = [{"id": number, "s": text} for number, text in enumerate(TEXTS)]
    missing = {"id": 99}
    apply(store, Push(queue="orders", records=[record(value) for value in [*values, missing, {"id": "x"}]]))
    schema = "id BIGINT NOT NULL, s STRING"
    job = Export(store=str(store), queue="orders", folder=str(out), format=kind, schema=schema)
    summary = export.run(spark, job)
    assert (summary.facts["rows out"], summary.quarantined) == (len(TEXTS) + 1, 1)
    if kind == "csv":
        found = [row for path in sorted(out.glob("lsn-*.csv")) for row in rows_of(path)]
        assert found == [[str(value["id"]), value.get("s") or ""] for value in [*values, missing]]
    load.run(spark, LoadFiles(store=str(loaded), queue="orders", files=(str(out),), schema=schema))
    expected = [*values, {**missing, "s": None}]
    assert payloads(loaded) == sorted(json.dumps(value) for value in expected)


def test_an_export_that_failed_at_once_does_not_decide_what_its_folder_is_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = tmp_path / "hw.db", tmp_path / "out"
    fill(store, 12)
    with monkeypatch.context() as patched:
        patched.setattr(export, "count_rows", lambda path, kind: 1)
        with pytest.raises(FlowError, match=r"do not add up.*run it again"):
            export.run(spark, Export(store=str(store), queue="orders", folder=str(out), format="csv"))
    assert sorted(path.name for path in out.iterdir() if path.name[0] not in "._") == []
    assert (out / NAME).exists()
    job = Export(store=str(store), queue="orders", folder=str(out), format="csv", schema="id BIGINT")
    assert export.run(spark, job).facts["rows out"] == 12
    with next(out.glob("lsn-*.csv")).open(newline="") as file:
        assert next(csv.reader(file)) == ["id"]
