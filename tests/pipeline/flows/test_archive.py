"""A log goes into an archive once, whole, and comes back as it was; what is damaged is named and refused."""

import asyncio
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas
import pyarrow.dataset
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

import headwater
import headwater.sync
from headwater.errors import ArchiveDamaged, FlowError, FlowOvertaken, QueueMissing, SourceUnfit, StoreMissing
from headwater.log.operations import Configure, Retain
from headwater.model.access_token import digest_of
from headwater.pipeline.archiving import write_step
from headwater.pipeline.flows import archive, export, restore
from headwater.pipeline.flows.archive import Archive, small_groups
from headwater.pipeline.flows.export import Export
from headwater.pipeline.flows.restore import Restore, in_order
from headwater.pipeline.manifest import LOCK, NAME, OLD_NAME, STAGING, Entry, holding, need_manifest
from headwater.pipeline.restoring import load_file
from tests.pipeline.flows.logs import DAY, NOON, apply, drop_all, fill, oracle


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "headwater.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def job(store: Path, folder: Path, *queues: str, **more: int) -> Archive:
    return Archive(store=str(store), folder=str(folder), queues=queues, **more)  # type: ignore[arg-type]


def back(store: Path, folder: Path, **more: Any) -> Restore:
    return Restore(store=str(store), folder=str(folder), **more)


def test_what_was_archived_comes_back_as_it_was(spark: SparkSession, store: Path, folder: Path) -> None:
    fill(store, 500)
    expected = oracle(store)
    summary = archive.run(spark, job(store, folder))
    assert summary.facts["archived"] == 500
    drop_all(store)
    assert oracle(store) == {}
    assert restore.run(spark, back(store, folder)).facts["restored"] == 500
    assert oracle(store) == expected


def test_restoring_twice_adds_nothing(spark: SparkSession, store: Path, folder: Path, tmp_path: Path) -> None:
    fill(store, 200)
    archive.run(spark, job(store, folder))
    elsewhere = tmp_path / "elsewhere.db"
    first = restore.run(spark, back(elsewhere, folder, target="copy"))
    again = restore.run(spark, back(elsewhere, folder, target="copy"))
    assert (first.facts["restored"], again.facts["restored"], again.facts["restored before"]) == (200, 0, 200)
    assert oracle(elsewhere, "copy") == oracle(store)


def test_what_the_queue_still_holds_is_not_restored(spark: SparkSession, store: Path, folder: Path) -> None:
    fill(store, 90)
    archive.run(spark, job(store, folder))
    drop_all(store)
    fill(store, 60, first=90)
    archive.run(spark, job(store, folder))
    facts = restore.run(spark, back(store, folder)).facts
    assert (facts["restored"], facts["still in the queue"]) == (90, 60)
    assert sorted(kept.payload["id"] for lane in oracle(store).values() for kept in lane) == list(range(150))


def test_a_second_run_archives_what_is_new(spark: SparkSession, store: Path, folder: Path, tmp_path: Path) -> None:
    fill(store, 90)
    archive.run(spark, job(store, folder))
    fill(store, 60, first=90)
    assert archive.run(spark, job(store, folder)).facts["archived"] == 60
    assert archive.run(spark, job(store, folder)).facts["archived"] == 0
    restore.run(spark, back(tmp_path / "other.db", folder))
    assert oracle(tmp_path / "other.db") == oracle(store)


def test_files_stand_by_queue_and_day_and_small_ones_become_one(spark: SparkSession, store: Path, folder: Path) -> None:
    fill(store, 30, queue="orders/eu")
    fill(store, 30, queue="orders/eu", at=NOON + DAY, first=30)
    fill(store, 30, queue="mails")
    for _ in range(2):
        archive.run(spark, job(store, folder, records_per_step=20))
    places = sorted(str(path.parent.relative_to(folder)) for path in folder.glob("queue=*/day=*/*"))
    assert places == [
        "queue=mails/day=2025-11-15",
        "queue=orders%2Feu/day=2025-11-15",
        "queue=orders%2Feu/day=2025-11-16",
    ]
    rows = spark.read.parquet(str(folder / "queue=mails")).count()
    assert (rows, sorted(need_manifest(folder, "archive").queues)) == (30, ["mails", "orders/eu"])


def test_the_folder_of_an_archive_is_a_plain_data_set(spark: SparkSession, store: Path, folder: Path) -> None:
    """Queue and day are columns; manifest, lock and what a run that died left in staging are not looked at."""
    fill(store, 30, queue="orders/eu")
    fill(store, 30, queue="orders/eu", at=NOON + DAY, first=30)
    fill(store, 30, queue="mails")
    archive.run(spark, job(store, folder))
    (folder / STAGING / "9").mkdir(parents=True)
    (folder / STAGING / "9" / "part-0.parquet").write_text("half a file")
    assert (folder / LOCK).exists()
    expected = {
        ("mails", "2025-11-15"): list(range(30)),
        ("orders/eu", "2025-11-15"): list(range(30)),
        ("orders/eu", "2025-11-16"): list(range(30, 60)),
    }
    rows = [row.asDict() for row in spark.read.parquet(str(folder)).collect()]
    assert ids_by_place(rows) == expected
    assert ids_by_place(pyarrow.parquet.read_table(folder).to_pylist()) == expected
    assert ids_by_place(pyarrow.dataset.dataset(folder, partitioning="hive").to_table().to_pylist()) == expected
    table = pandas.read_parquet(folder)
    assert ids_by_place(table.to_dict("records")) == expected
    # Times are times in UTC, not the 96 bits of Spark's default, which others read without a zone.
    assert table["written_at"].min() == pandas.Timestamp(NOON, unit="us", tz="UTC")


def ids_by_place(rows: Sequence[Mapping[Any, Any]]) -> dict[tuple[str, str], list[int]]:
    """The ids in the payloads by what the columns of the folders say."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        found.setdefault((str(row["queue"]), str(row["day"])), []).append(json.loads(row["value"])["id"])
    return {place: sorted(ids) for place, ids in found.items()}


def test_an_archive_of_an_older_version_is_read_and_moved_over_when_it_is_written_next(
    spark: SparkSession, store: Path, folder: Path, tmp_path: Path
) -> None:
    fill(store, 30)
    archive.run(spark, job(store, folder))
    (folder / NAME).rename(folder / OLD_NAME)
    assert restore.run(spark, back(tmp_path / "other.db", folder)).facts["restored"] == 30
    assert (folder / OLD_NAME).exists()
    fill(store, 30, first=30)
    assert archive.run(spark, job(store, folder)).facts["archived"] == 30
    assert (folder / NAME).exists()
    assert not (folder / OLD_NAME).exists()
    assert spark.read.parquet(str(folder)).count() == 60


def test_files_without_a_manifest_are_left_alone(spark: SparkSession, store: Path, folder: Path) -> None:
    """Tools that skip names with `_` leave the manifest behind when they copy; that must not cost the files."""
    fill(store, 30)
    archive.run(spark, job(store, folder))
    (folder / NAME).unlink()
    with pytest.raises(SourceUnfit, match=r"no _manifest\.json: put that back"):
        archive.run(spark, job(store, folder))
    assert spark.read.parquet(str(folder)).count() == 30


def test_only_the_queues_that_were_asked_for_are_archived(spark: SparkSession, store: Path, folder: Path) -> None:
    fill(store, 30)
    fill(store, 30, queue="mails")
    archive.run(spark, job(store, folder, "mails"))
    assert {entry.queue for entry in need_manifest(folder, "archive").entries} == {"mails"}
    assert archive.run(spark, job(store, folder)).facts["archived"] == 30


def test_days_can_be_restored_in_any_order(spark: SparkSession, store: Path, folder: Path, tmp_path: Path) -> None:
    fill(store, 60)
    fill(store, 60, at=NOON + DAY, first=60)
    archive.run(spark, job(store, folder))
    other = tmp_path / "other.db"
    assert restore.run(spark, back(other, folder, since="2025-11-16")).facts["restored"] == 60
    assert restore.run(spark, back(other, folder, until="2025-11-15")).facts["restored"] == 60
    assert restore.run(spark, back(other, folder)).facts["restored"] == 0
    found = {kept for lane in oracle(other).values() for kept in map(repr, lane)}
    assert found == {kept for lane in oracle(store).values() for kept in map(repr, lane)}


def test_a_queue_that_requires_an_archive_drops_after_it(spark: SparkSession, store: Path, folder: Path) -> None:
    apply(store, Configure(queue="orders", options={"retention_seconds": 1, "archive_required": True}))
    fill(store, 60)
    assert apply(store, Retain(), at=NOON + DAY)[0].records == 0
    archive.run(spark, job(store, folder))
    assert apply(store, Retain(), at=NOON + DAY)[0].records == 60


def test_what_retention_dropped_before_is_counted(spark: SparkSession, store: Path, folder: Path) -> None:
    fill(store, 60)
    drop_all(store)
    fill(store, 30, first=60)
    assert archive.run(spark, job(store, folder)).facts["lost to retention before"] == 60
    assert archive.run(spark, job(store, folder)).facts["lost to retention before"] == 0


def test_what_retention_dropped_is_counted_once_also_when_nothing_came_behind_it(
    spark: SparkSession, store: Path, folder: Path
) -> None:
    fill(store, 30)
    drop_all(store)
    fill(store, 10, queue="others")
    assert archive.run(spark, job(store, folder)).facts["lost to retention before"] == 30
    fill(store, 30, first=30)
    facts = archive.run(spark, job(store, folder)).facts
    assert (facts["archived"], facts["lost to retention before"]) == (30, 0)


def test_an_archive_of_an_empty_queue_is_one(spark: SparkSession, store: Path, folder: Path) -> None:
    apply(store, Configure(queue="orders"))
    archive.run(spark, job(store, folder))
    assert restore.run(spark, back(store, folder)).facts["restored"] == 0


# ── what is damaged ──


@pytest.fixture
def damaged(spark: SparkSession, store: Path, folder: Path) -> Path:
    """A file of an archive."""
    fill(store, 60)
    archive.run(spark, job(store, folder))
    return folder / need_manifest(folder, "archive").entries[0].path


def test_a_truncated_file_is_named_and_nothing_is_restored(
    spark: SparkSession, folder: Path, damaged: Path, tmp_path: Path
) -> None:
    damaged.write_bytes(damaged.read_bytes()[:-7])
    with pytest.raises(ArchiveDamaged, match=damaged.name):
        restore.run(spark, back(tmp_path / "other.db", folder))
    assert not (tmp_path / "other.db").exists()


def test_a_flipped_bit_is_found(spark: SparkSession, store: Path, folder: Path, damaged: Path) -> None:
    body = bytearray(damaged.read_bytes())
    body[len(body) // 2] ^= 1
    damaged.write_bytes(body)
    with pytest.raises(ArchiveDamaged, match="checksum"):
        restore.run(spark, back(store, folder))


def test_a_missing_file_is_named(spark: SparkSession, store: Path, folder: Path, damaged: Path) -> None:
    damaged.unlink()
    with pytest.raises(ArchiveDamaged, match=damaged.name):
        restore.run(spark, back(store, folder))


@pytest.mark.parametrize("body", [b"", b'{"manifest":{"id"', b'{"manifest":{},"sha256":""}'])
def test_a_damaged_manifest_is_refused(
    spark: SparkSession, store: Path, folder: Path, damaged: Path, body: bytes
) -> None:
    (folder / NAME).write_bytes(body)
    with pytest.raises(ArchiveDamaged, match=NAME):
        restore.run(spark, back(store, folder))
    with pytest.raises(ArchiveDamaged, match=NAME):
        archive.run(spark, job(store, folder))
    assert damaged.exists()


def test_files_that_no_manifest_names_are_cleared_away(spark: SparkSession, folder: Path, damaged: Path) -> None:
    left = damaged.with_name("lsn-1-2-dead.parquet")
    shutil.copy(damaged, left)
    (damaged.parent / "notes.txt").write_text("mine")
    (folder / ".staging" / "9").mkdir(parents=True)
    archive.run(spark, job(folder.parent / "headwater.db", folder))
    assert not left.exists()
    assert not (folder / ".staging").exists()
    assert (damaged.parent / "notes.txt").exists()


# ── what makes no sense ──


def test_a_folder_without_a_manifest_is_no_archive(spark: SparkSession, store: Path, folder: Path) -> None:
    folder.mkdir()
    with pytest.raises(SourceUnfit, match="no archive"):
        restore.run(spark, back(store, folder))


def test_a_missing_queue_is_told_with_those_there_are(spark: SparkSession, store: Path, folder: Path) -> None:
    fill(store, 30)
    with pytest.raises(QueueMissing, match="'order'; there are orders"):
        archive.run(spark, job(store, folder, "order"))
    archive.run(spark, job(store, folder))
    with pytest.raises(QueueMissing, match="'order'; there are orders"):
        restore.run(spark, back(store, folder, queue="order"))


def test_all_queues_of_an_archive_are_restored_unless_one_is_named(
    spark: SparkSession, store: Path, folder: Path, tmp_path: Path
) -> None:
    fill(store, 30)
    fill(store, 20, queue="mails")
    archive.run(spark, job(store, folder))
    other = tmp_path / "other.db"
    shown = restore.run(spark, back(other, folder, dry_run=True)).facts
    assert [(row["queue"], row["as"], row["messages"]) for row in shown["would be restored"]] == [
        ("mails", "mails", 20),
        ("orders", "orders", 30),
    ]
    assert not other.exists()
    facts = restore.run(spark, back(other, folder)).facts
    assert (facts["queue"], facts["in the archive"], facts["restored"]) == ("mails, orders", 50, 50)
    assert [(row["queue"], row["restored"]) for row in facts["queues"]] == [("mails", 20), ("orders", 30)]
    for queue in ("mails", "orders"):
        assert oracle(other, queue) == oracle(store, queue)
    again = restore.run(spark, back(other, folder)).facts
    assert (again["restored"], again["restored before"]) == (0, 50)
    one = tmp_path / "one.db"
    assert restore.run(spark, back(one, folder, queue="mails", target="letters")).facts["restored"] == 20
    assert oracle(one, "letters") == oracle(store, "mails")


def test_only_one_of_several_queues_can_have_another_name(spark: SparkSession, store: Path, folder: Path) -> None:
    fill(store, 3)
    fill(store, 3, queue="mails")
    archive.run(spark, job(store, folder))
    with pytest.raises(SourceUnfit, match=r"only one can go to copies: say which with --queue.*mails, orders"):
        restore.run(spark, back(store, folder, target="copies"))
    with pytest.raises(SourceUnfit, match="lies behind the last one"):
        restore.run(spark, back(store, folder, since="2026-11-16", until="2026-11-15"))


def test_a_missing_store_is_not_made(spark: SparkSession, store: Path, folder: Path) -> None:
    with pytest.raises(StoreMissing):
        archive.run(spark, job(store, folder))
    assert not folder.exists()


def test_another_store_is_not_mixed_in(spark: SparkSession, store: Path, folder: Path, tmp_path: Path) -> None:
    fill(store, 30)
    archive.run(spark, job(store, folder))
    fill(tmp_path / "other.db", 30, at=NOON + DAY)
    with pytest.raises(SourceUnfit, match="another store"):
        archive.run(spark, job(tmp_path / "other.db", folder))
    assert need_manifest(folder, "archive").entries


def test_an_encrypted_queue_is_not_written_in_the_open_unasked(spark: SparkSession, store: Path, folder: Path) -> None:
    with headwater.sync.open(str(store), encryption_key="ab" * 32) as hw:
        hw.queue("orders").configure(encrypted=True)
    with pytest.raises(SourceUnfit, match="orders is encrypted"):
        archive.run(spark, job(store, folder))
    with pytest.raises(SourceUnfit, match="orders is encrypted"):
        export.run(spark, Export(store=str(store), queue="orders", folder=str(folder)))
    assert archive.run(spark, job(store, folder, decrypt=True)).facts["archived"] == 0


def test_no_token_key_or_environment_is_in_an_archive_an_export_or_a_column(
    spark: SparkSession, store: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, environment = "c0ffee" * 10 + "beef", "c4n4ry-of-a-job"
    monkeypatch.setenv("HEADWATER_ENCRYPTION_KEY", key)
    token = asyncio.run(_with_secrets(store, environment))
    queues = ("orders", "headwater/jobs")
    summary = archive.run(spark, job(store, folder, *queues))
    assert summary.facts["archived"] >= 2
    said = [str(summary)]
    for queue in queues:
        options = {"store": str(store), "queue": queue}
        rows = spark.read.format("headwater").options(**options).load().collect()
        assert rows, queue
        said += [repr(row) for row in rows]
        out = tmp_path / f"export-{queue.replace('/', '-')}"
        said.append(str(export.run(spark, Export(store=str(store), queue=queue, folder=str(out)))))
    for path in [path for place in tmp_path.iterdir() if place.is_dir() for path in place.rglob("*") if path.is_file()]:
        said.append(path.read_bytes().decode(errors="replace"))
        if path.suffix == ".parquet":
            said.append(str(pyarrow.parquet.read_table(path).to_pylist()))
    whole = "\n".join(said)
    assert "backup" in whole, "the job itself is there"
    for secret in (token, token.rpartition("_")[2], digest_of(token), key, environment):
        assert secret not in whole


async def _with_secrets(store: Path, environment: str) -> str:
    """A message, a token, and a job with something in its environment; the token's text."""
    async with headwater.open(str(store)) as hw:
        await hw.queue("orders").push({"id": 7})
        await hw.jobs.add(id="backup", command="true", env={"PASSWORD": environment})
        await hw.jobs.schedule("nightly", command="true", env={"PASSWORD": environment}, cron="@daily")
        return (await hw.access_tokens().create("boss", ["admin"]))[1]


def test_two_runs_do_not_write_to_one_folder(spark: SparkSession, store: Path, folder: Path) -> None:
    fill(store, 30)
    with holding(folder), pytest.raises(FlowOvertaken, match="another run"):
        archive.run(spark, job(store, folder))


def test_nobody_changes_an_archive_that_is_being_restored(
    spark: SparkSession, store: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files would be made one, and be gone for whoever is about to read them."""
    fill(store, 90)
    archive.run(spark, job(store, folder, records_per_step=30, compact=False))

    def meanwhile(*arguments: Any) -> Any:
        with pytest.raises(FlowOvertaken, match="another run"):
            archive.run(spark, job(store, folder))
        return load_file(*arguments)

    monkeypatch.setattr(restore, "load_file", meanwhile)
    restore.run(spark, back(tmp_path / "other.db", folder))
    assert oracle(tmp_path / "other.db") == oracle(store)
    with holding(folder), pytest.raises(FlowOvertaken, match="another run"):
        restore.run(spark, back(tmp_path / "other.db", folder))


def test_a_copy_of_an_archive_that_changes_while_it_is_read_is_named(
    spark: SparkSession, store: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 90)
    archive.run(spark, job(store, folder))
    (folder / LOCK).unlink()

    def meanwhile(log: Any, path: Path, *more: Any) -> Any:
        path.unlink()
        return load_file(log, path, *more)

    monkeypatch.setattr(restore, "load_file", meanwhile)
    with pytest.raises(ArchiveDamaged, match=r"cannot be read now: run it again"):
        restore.run(spark, back(tmp_path / "other.db", folder))


def test_a_folder_that_is_moved_away_while_it_is_written_to_is_not_made_anew(
    spark: SparkSession, store: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have a manifest that names what went away, and the store would be told that all of it is safe."""
    fill(store, 90)
    apply(store, Configure(queue="orders", options={"archive_required": True}))
    steps = iter(range(10))

    def meanwhile(*arguments: Any) -> None:
        if next(steps) == 1:
            folder.rename(tmp_path / "moved")
        write_step(*arguments)

    monkeypatch.setattr(archive, "write_step", meanwhile)
    with pytest.raises(FlowError, match="moved away or replaced"):
        archive.run(spark, job(store, folder, records_per_step=30))
    assert not (folder / NAME).exists()
    shutil.rmtree(folder)
    (tmp_path / "moved").rename(folder)
    assert archive.run(spark, job(store, folder)).facts["archived"] == 60
    restore.run(spark, back(tmp_path / "other.db", folder))
    assert oracle(tmp_path / "other.db") == oracle(store)


# ── rules ──


def entry(first: int, last: int, *, size: int = 1, day: str = "d", records: int = 10) -> Entry:
    return Entry(f"{first}-{last}", "q", day, first, last, records, size, "")


def test_files_whose_lsns_overlap_are_restored_together() -> None:
    steps = in_order([entry(20, 30), entry(1, 10), entry(5, 12), entry(31, 40)], records_max=10)
    assert [[(one.first_lsn, one.last_lsn) for one in step] for step in steps] == [
        [(1, 10), (5, 12)],
        [(20, 30)],
        [(31, 40)],
    ]


def test_only_several_small_files_of_a_day_are_made_one() -> None:
    big = archive.SMALL_BYTES
    small = [entry(1, 2), entry(3, 4)]
    assert small_groups([*small, entry(5, 6, size=big), entry(7, 8, day="e")]) == [small]
