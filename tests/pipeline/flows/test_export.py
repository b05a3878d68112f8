"""A queue as files: every message in one of them once, or in quarantine with a reason."""

import csv
import json
from pathlib import Path
from typing import Any

import msgspec
import pandas
import pyarrow.dataset
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from headwater.errors import ArchiveDamaged, QueueMissing, SourceUnfit
from headwater.log.operations import Push
from headwater.pipeline.flows import export, load
from headwater.pipeline.flows.export import Export
from headwater.pipeline.flows.load import LoadFiles
from headwater.pipeline.manifest import LOCK, NAME, OLD_NAME, STAGING, need_manifest, write_manifest
from headwater.pipeline.summary import Summary
from tests.pipeline.flows.logs import apply, drop_all, fill, oracle, record


def export_from(spark: SparkSession, folder: Path, **more: Any) -> Summary:
    job = Export(store=str(folder / "hw.db"), queue="orders", folder=str(folder / "out"), **more)
    summary = export.run(spark, job)
    assert summary.facts["messages in"] == summary.facts["rows out"] + summary.facts["quarantined"]
    return summary


def lines(folder: Path, below: str = "out") -> list[Any]:
    files = sorted((folder / below).glob("lsn-*"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def payloads(folder: Path) -> list[Any]:
    return [kept.payload for lane in oracle(folder / "hw.db").values() for kept in lane]


def test_lines_hold_the_payloads_and_load_back(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "hw.db", 100)
    assert export_from(spark, tmp_path).facts["rows out"] == 100
    assert sorted(map(str, lines(tmp_path))) == sorted(map(str, payloads(tmp_path)))
    load.run(spark, LoadFiles(store=str(tmp_path / "new.db"), queue="orders", files=(str(tmp_path / "out"),)))
    found = [kept.payload for kept in oracle(tmp_path / "new.db")["Default"]]
    assert sorted(map(str, found)) == sorted(map(str, payloads(tmp_path)))


def test_a_second_run_exports_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "hw.db", 60)
    export_from(spark, tmp_path, records_per_step=25)
    fill(tmp_path / "hw.db", 30, first=60)
    assert export_from(spark, tmp_path).facts["rows out"] == 30
    assert export_from(spark, tmp_path).facts["rows out"] == 0
    assert sorted(row["id"] for row in lines(tmp_path)) == list(range(90))


def test_a_schema_gives_columns_and_sets_aside_what_has_others(spark: SparkSession, tmp_path: Path) -> None:
    bad = [{"name": "no id"}, {"id": "seven"}, 8]
    apply(
        tmp_path / "hw.db", Push(queue="orders", records=[record(value) for value in [{"id": 1, "name": 'a"b'}, *bad]])
    )
    summary = export_from(spark, tmp_path, format="csv", schema="id BIGINT NOT NULL, name STRING")
    assert (summary.facts["rows out"], summary.quarantined) == (1, 3)
    with next(iter((tmp_path / "out").glob("lsn-*.csv"))).open(newline="") as file:
        assert list(csv.reader(file)) == [["id", "name"], ["1", 'a"b']]
    aside = lines(tmp_path, "out/_quarantine")
    assert [(row["offset"], json.loads(row["value"])) for row in aside] == list(enumerate(bad, 1))
    assert all(row["reason"] for row in aside)


def test_a_value_that_its_column_cannot_hold_is_set_aside_and_never_a_null(spark: SparkSession, tmp_path: Path) -> None:
    values = [{"sum": 1.25}, {"sum": 123456.5}, {"sum": "NaN"}, {"sum": None}]
    apply(tmp_path / "hw.db", Push(queue="orders", records=[record(value) for value in values]))
    summary = export_from(spark, tmp_path, format="ndjson", schema="sum DECIMAL(5, 2)")
    assert (summary.facts["rows out"], summary.quarantined) == (2, 2)
    assert lines(tmp_path) == [{"sum": 1.25}, {"sum": None}]
    assert [json.loads(row["value"]) for row in lines(tmp_path, "out/_quarantine")] == values[1:3]


def test_parquet_holds_messages_or_typed_fields(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "hw.db", 30)
    export_from(spark, tmp_path, format="parquet")
    rows = spark.read.parquet(*map(str, (tmp_path / "out").glob("lsn-*"))).orderBy("lsn", "offset").collect()
    assert sorted(json.loads(row["value"])["id"] for row in rows) == list(range(30))
    assert {row["transaction_id"] for row in rows} == {f"t{number}" for number in range(30)}


def test_the_folder_of_an_export_is_a_plain_data_set(spark: SparkSession, tmp_path: Path) -> None:
    """Also beside a quarantine, a lock and what a run that died left in staging."""
    fill(tmp_path / "hw.db", 30)
    apply(tmp_path / "hw.db", Push(queue="orders", records=[record({"id": "seven"})]))
    assert export_from(spark, tmp_path, format="parquet", schema="id BIGINT, name STRING").quarantined == 1
    out = tmp_path / "out"
    (out / STAGING / "9").mkdir(parents=True)
    (out / STAGING / "9" / "part-0.parquet").write_text("half a file")
    assert (out / LOCK).exists()
    expected = list(range(30))
    assert sorted(row["id"] for row in spark.read.parquet(str(out)).collect()) == expected
    assert sorted(pyarrow.parquet.read_table(out)["id"].to_pylist()) == expected
    assert sorted(pyarrow.dataset.dataset(out).to_table()["id"].to_pylist()) == expected
    assert sorted(pandas.read_parquet(out)["id"]) == expected


def test_an_export_of_an_older_version_is_moved_over_when_it_is_written_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path / "hw.db", 30)
    apply(tmp_path / "hw.db", Push(queue="orders", records=[record({"id": "seven"})]))
    export_from(spark, tmp_path, format="parquet", schema="id BIGINT")
    out = tmp_path / "out"
    as_an_older_version(out)
    fill(tmp_path / "hw.db", 30, first=30)
    facts = export_from(spark, tmp_path, format="parquet", schema="id BIGINT").facts
    assert (facts["messages in"], facts["rows out"], facts["quarantined"]) == (30, 30, 0)
    assert sorted(row["id"] for row in spark.read.parquet(str(out)).collect()) == list(range(60))
    assert [json.loads(row["value"]) for row in lines(tmp_path, "out/_quarantine")] == [{"id": "seven"}]
    assert not (out / OLD_NAME).exists()
    assert not (out / "quarantine").exists()


def as_an_older_version(out: Path) -> None:
    """The folder as older versions left it: manifest and quarantine among the rows."""
    manifest = need_manifest(out, "export")
    entries = [msgspec.structs.replace(entry, path=entry.path.lstrip("_")) for entry in manifest.entries]
    write_manifest(out, msgspec.structs.replace(manifest, entries=tuple(entries)))
    (out / NAME).rename(out / OLD_NAME)
    (out / "_quarantine").rename(out / "quarantine")


def test_another_kind_of_export_needs_another_folder(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "hw.db", 30)
    export_from(spark, tmp_path)
    with pytest.raises(SourceUnfit, match="something else"):
        export_from(spark, tmp_path, format="csv")


def test_what_makes_no_sense_is_told(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "hw.db", 3)
    with pytest.raises(SourceUnfit, match="cannot hold tags"):
        export_from(spark, tmp_path, format="csv", schema="id BIGINT, tags ARRAY<STRING>")
    with pytest.raises(QueueMissing, match="there are orders"):
        export.run(spark, Export(store=str(tmp_path / "hw.db"), queue="order", folder=str(tmp_path / "out")))
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / NAME).write_text("{")
    with pytest.raises(ArchiveDamaged):
        export_from(spark, tmp_path)


def test_messages_that_retention_took_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "hw.db", 30)
    drop_all(tmp_path / "hw.db")
    fill(tmp_path / "hw.db", 30, first=30)
    facts = export_from(spark, tmp_path).facts
    assert (facts["rows out"], facts["lost to retention before"]) == (30, 30)
