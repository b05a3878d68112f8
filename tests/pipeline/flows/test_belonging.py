"""A folder belongs to one store, one database and, an export, to one queue: for others it is refused and left alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import headwater.sync
from headwater.cli.program import run
from headwater.clock import Timestamp
from headwater.errors import DataLost, FlowError, SourceUnfit, StoreReplaced
from headwater.log.operations import DeleteQueue, Push
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.pipeline.belonging import find_stranger
from headwater.pipeline.flows import archive, export, restore
from headwater.pipeline.flows.archive import Archive
from headwater.pipeline.flows.export import Export
from headwater.pipeline.flows.restore import Restore
from headwater.pipeline.handle import Handle
from headwater.pipeline.manifest import Entry, Manifest, need_manifest, new_manifest, write_manifest
from headwater.pipeline.summary import Summary
from headwater.stores.questions import FindArchived, PartitionStatus
from tests.pipeline.flows.logs import NOON, apply, fill, oracle, record
from tests.scenarios.servers import Server


def push(store: Path, payload: Any, database: str = "main", partition: str = "p") -> None:
    apply(store, Push(database=database, queue="orders", partition=partition, records=[record(payload)]))


def archive_of(spark: SparkSession, store: Path, folder: Path, database: str = "main") -> Summary:
    return archive.run(spark, Archive(store=str(store), folder=str(folder), database=database))


def export_of(spark: SparkSession, store: Path, folder: Path, database: str = "main") -> Summary:
    return export.run(spark, Export(store=str(store), queue="orders", folder=str(folder), database=database))


def archived(store: Path, database: str = "main") -> int:
    """Up to which LSN the store was told that its queue is archived."""
    with Handle(str(store)) as log:
        return log.ask(log.store.ask(FindArchived(database, "orders")))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, to see that nothing was changed."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lines(folder: Path) -> list[Any]:
    return [json.loads(line) for path in sorted(folder.glob("lsn-*")) for line in path.read_text().splitlines()]


def forget_owner(folder: Path, kind: str, **more: Any) -> Manifest:
    """The folder as an older version left it."""
    manifest = msgspec.structs.replace(need_manifest(folder, kind), identity="", numbers={}, seen=None, **more)
    write_manifest(folder, manifest)
    return manifest


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two databases with a queue of one name."""
    push(tmp_path / "hw.db", {"of": "acme"}, "acme")
    push(tmp_path / "hw.db", {"of": "main"})
    return tmp_path / "hw.db"


# ── archives ──


def test_an_archive_takes_nothing_of_another_database_or_store_and_tells_neither_that_it_did(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    folder, other = tmp_path / "archive", tmp_path / "other.db"
    archive_of(spark, store, folder)
    before, mark = contents(folder), archived(store)
    push(store, {"of": "main", "later": True})
    with pytest.raises(SourceUnfit, match=r"belongs to the database 'main', not to 'acme'.*choose another folder"):
        archive_of(spark, store, folder, "acme")
    push(other, {"of": "another store"})
    with pytest.raises(SourceUnfit, match=r"belongs to another store.*choose another folder"):
        archive_of(spark, other, folder)
    assert contents(folder) == before
    assert (archived(store), archived(store, "acme"), archived(other)) == (mark, 0, 0)
    assert archive_of(spark, store, folder).facts["archived"] == 1


def test_a_store_that_was_put_back_from_a_copy_is_not_archived_on(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """Its LSNs are given out a second time, to other records."""
    folder = tmp_path / "archive"
    shutil.copy(store, tmp_path / "copy.db")
    push(store, {"of": "main", "number": 2})
    archive_of(spark, store, folder)
    before = contents(folder)
    with pytest.raises(StoreReplaced, match="choose another folder"):
        archive_of(spark, tmp_path / "copy.db", folder)
    push(tmp_path / "copy.db", {"of": "main", "number": "another"})
    with pytest.raises(StoreReplaced, match="choose another folder"):
        archive_of(spark, tmp_path / "copy.db", folder)
    assert (contents(folder), archived(tmp_path / "copy.db")) == (before, 0)


def test_an_archive_that_does_not_say_whose_it_is_gets_the_owner_whose_records_it_has(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    folder, other = tmp_path / "archive", tmp_path / "other.db"
    archive_of(spark, store, folder)
    forget_owner(folder, "archive")
    for _ in range(3):
        push(other, {"of": "another store"}, partition="other")
    with pytest.raises(SourceUnfit, match="not from here"):
        archive_of(spark, other, folder)
    with pytest.raises(SourceUnfit, match="database 'main'"):
        archive_of(spark, store, folder, "acme")
    assert (archived(other), need_manifest(folder, "archive").identity) == (0, "")
    read = restore.run(spark, Restore(store=str(tmp_path / "new.db"), folder=str(folder)))
    assert read.facts["restored"] == 1
    push(store, {"of": "main", "later": True})
    assert archive_of(spark, store, folder).facts["archived"] == 1
    assert need_manifest(folder, "archive").identity


def test_an_old_archive_that_passed_records_by_is_not_gone_on_with(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """A run for another database moved the place of the archive on, behind records that it does not have."""
    folder = tmp_path / "archive"
    archive_of(spark, store, folder)
    mark = archived(store)
    push(store, {"of": "main", "later": True})
    forget_owner(folder, "archive", queues={"orders": mark + 1})
    with pytest.raises(SourceUnfit, match=r"orders/p has records at LSN \d+ that were left out"):
        archive_of(spark, store, folder)
    assert archived(store) == mark


def test_a_queue_that_was_made_again_is_archived_and_named(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    assert "made again since" not in archive_of(spark, store, folder).facts
    apply(store, DeleteQueue(queue="orders"))
    push(store, {"of": "the new one"})
    facts = archive_of(spark, store, folder).facts
    assert (facts["archived"], facts["made again since"]) == (1, "orders")
    assert "made again since" not in archive_of(spark, store, folder).facts


def test_records_that_were_not_read_are_neither_lost_nor_archived(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "archive"
    with monkeypatch.context() as patched:
        patched.setattr(archive, "write_step", lambda *arguments: None)
        with pytest.raises(FlowError, match="1 records up to LSN 2 are in the log and were not read"):
            archive_of(spark, store, folder)
    assert archived(store) == 0
    facts = archive_of(spark, store, folder).facts
    assert (facts["archived"], facts["lost to retention before"]) == (1, 0)


# ── exports ──


def test_an_export_takes_nothing_of_another_database_or_store(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    folder, other = tmp_path / "out", tmp_path / "other.db"
    export_of(spark, store, folder)
    before = contents(folder)
    push(store, {"of": "acme", "later": True}, "acme")
    with pytest.raises(SourceUnfit, match=r"belongs to the database 'main', not to 'acme'.*choose another folder"):
        export_of(spark, store, folder, "acme")
    fill(other, 9)
    with pytest.raises(SourceUnfit, match=r"belongs to another store.*choose another folder"):
        export_of(spark, other, folder)
    assert contents(folder) == before
    assert lines(folder) == [{"of": "main"}]
    assert export_of(spark, store, tmp_path / "acme", "acme").facts["rows out"] == 2


def test_an_export_of_a_queue_that_was_made_again_is_not_gone_on_with(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    export_of(spark, store, folder)
    before = contents(folder)
    apply(store, DeleteQueue(queue="orders"))
    push(store, {"of": "the new one"})
    with pytest.raises(DataLost, match=r"orders was deleted and made again.*choose another folder"):
        export_of(spark, store, folder)
    assert contents(folder) == before


def test_an_export_that_does_not_say_whose_it_is_gets_the_owner_whose_records_it_has(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    export_of(spark, store, folder)
    old = forget_owner(folder, "export")
    apply(tmp_path / "other.db", Push(queue="orders", records=[record({"of": "another store"})]))
    with pytest.raises(SourceUnfit, match="not from here"):
        export_of(spark, tmp_path / "other.db", folder)
    # One that two databases were mixed in has partitions of both.
    mixed = forget_owner(folder, "export", ends={**old.ends, 1: 1})
    with pytest.raises(SourceUnfit, match="a partition 1, which is not in these queues"):
        export_of(spark, store, folder)
    forget_owner(folder, "export", ends={number: end for number, end in mixed.ends.items() if number != 1})
    assert export_of(spark, store, folder).facts["rows out"] == 0
    assert need_manifest(folder, "export").identity


def test_the_database_of_a_folder_is_that_of_the_token(
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
) -> None:
    monkeypatch.chdir(tmp_path)
    with headwater.sync.open(str(store), housekeeping=False) as hw:
        for database in ("main", "acme"):
            tokens = hw._inner.access_tokens(database)
            _, secret = hw._bridge.run(tokens.create(database, ("subscribe",)))
            Path(database).write_text(secret)
    server = Server(store, "--auth", "token")
    command = ["pipeline", "run", "export", "--queue", "orders", "--to", "out", "--server", server.url, "--token-file"]
    try:
        assert run([*command, "acme"]) == 0
        before = contents(tmp_path / "out")
        capsys.readouterr()
        assert run([*command, "main"]) != 0
        assert "belongs to the database 'acme', not to 'main'" in capsys.readouterr().err
    finally:
        server.stop()
    assert contents(tmp_path / "out") == before
    assert lines(tmp_path / "out") == [{"of": "acme"}]
    # The same store and database by its file is the same owner.
    assert export_of(spark, store, tmp_path / "out", "acme").facts["rows out"] == 0


# ── rules ──


def status(number: int, end: int, made_at: int = NOON) -> dict[PartitionId, PartitionStatus]:
    name = PartitionId(number)
    return {name: PartitionStatus("orders", "p", name, Offset(0), Offset(end), Timestamp(made_at))}


def held(**more: Any) -> Manifest:
    whole = new_manifest("archive", "old.db", "main")
    entry = Entry("a", "orders", "d", 1, 5, 3, 1, "")
    known: dict[str, Any] = {"queues": {"orders": 5}, "ends": {7: 3}, "entries": (entry,), **more}
    return msgspec.structs.replace(whole, **known)


def test_what_a_log_must_have_of_a_folder_that_does_not_say_whose_it_is() -> None:
    assert find_stranger(held(), status(7, 3), Lsn(5)) == ""
    assert find_stranger(held(partitions={7: NOON}), status(7, 9), Lsn(9)) == ""
    assert "ends at 4" in find_stranger(held(), status(7, 3), Lsn(4))
    assert "not in these queues" in find_stranger(held(), status(8, 3), Lsn(5))
    assert "another time" in find_stranger(held(partitions={7: NOON + 1}), status(7, 3), Lsn(5))
    assert "ends at offset 2 here" in find_stranger(held(), status(7, 2), Lsn(5))
    # With its queue a partition may be gone, but not all of them.
    gone = held(ends={7: 3, 8: 1}, partitions={7: NOON, 8: NOON})
    assert find_stranger(gone, status(7, 3), Lsn(5)) == ""
    assert find_stranger(gone, {}, Lsn(5)) == "none of its partitions are here"


# ── restores ──


@pytest.mark.parametrize("put_back", ["copied", "backed up"])
def test_a_store_that_was_put_back_gets_from_the_archive_what_it_lacks(
    spark: SparkSession, tmp_path: Path, put_back: str
) -> None:
    """What came after the copy was made is in the archive alone, and other records may be at its offsets by now."""
    store, folder, copy = tmp_path / "hw.db", tmp_path / "archive", tmp_path / "copy.db"
    fill(store, 60)
    if put_back == "copied":
        shutil.copy(store, copy)
    else:
        assert run(["store", "backup", str(copy), "--store", str(store)]) == 0
    fill(store, 60, first=60)
    archive_of(spark, store, folder)
    fill(copy, 9, first=1_000)
    wanted = {lane: [*kept[:20], *oracle(copy)[lane][20:], *kept[20:]] for lane, kept in oracle(store).items()}
    facts = restore.run(spark, Restore(store=str(copy), folder=str(folder))).facts
    assert (facts["restored"], facts["still in the queue"]) == (60, 60)
    assert oracle(copy) == wanted
    facts = restore.run(spark, Restore(store=str(copy), folder=str(folder))).facts
    assert (facts["restored"], facts["restored before"], facts["still in the queue"]) == (0, 60, 60)
    assert oracle(copy) == wanted
