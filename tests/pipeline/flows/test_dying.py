"""Flows that die, are ended by hand or find no room: what they finished stays, and the next run comes to the same."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from pyspark.sql import SparkSession

import headwater.sync
from headwater.log.operations import Push
from headwater.model.rollup import RollupQuery
from headwater.pipeline.flows import archive, export, load, restore, rollup, shadow_record
from headwater.pipeline.flows.archive import Archive
from headwater.pipeline.flows.load import LoadFiles
from headwater.pipeline.flows.restore import Restore
from headwater.pipeline.flows.rollup import RollUp
from headwater.pipeline.flows.shadow_record import ShadowRecord
from headwater.pipeline.handle import Handle
from headwater.pipeline.manifest import NAME, need_manifest
from headwater.stores.questions import ListRollups
from tests.pipeline.flows.logs import NOON, apply, fill, oracle, record
from tests.pipeline.store import JAVA_OPTIONS
from tests.tidy.tree import ROOT
from tests.waiting import expect_soon

PATIENCE_SECONDS = 240


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> None:
    """For what starts several Javas: a release asks for it, not every check."""
    if not request.config.getoption("--campaign"):
        pytest.skip("it takes long; --campaign runs it")


class Killed(BaseException):
    """What a driver that dies raises here."""


class Death:
    """Ends the driver at the n-th of the calls it is put in front of, or after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.left = 0

    def threaten(self, module: Any, name: str) -> None:
        call = getattr(module, name)

        def threatened(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise Killed
            result = call(*arguments, **named)
            self.left -= 1
            if self.left == 0:
                raise Killed
            return result

        self._patch.setattr(module, name, threatened)


def run_until_it_ends(death: Death, run: Callable[[], Any], step: int = 1) -> int:
    """Let it die at its first call, then at its second, and so on, until it comes to its end; how often it died."""
    deaths = 0
    while True:
        death.left = 1 + deaths * step
        try:
            run()
        except Killed:
            deaths += 1
        else:
            return deaths


def test_an_archive_and_a_restore_whose_driver_dies_at_any_step_lose_and_repeat_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, copy, folder = tmp_path / "hw.db", tmp_path / "copy.db", tmp_path / "archive"
    fill(store, 60)
    death = Death(monkeypatch)
    for name in ("put_in_place", "write_manifest", "_mark"):
        death.threaten(archive, name)
    job = Archive(store=str(store), folder=str(folder), records_per_step=30)
    assert run_until_it_ends(death, lambda: archive.run(spark, job), step=3) > 2
    death.threaten(restore, "load_file")
    back = Restore(store=str(copy), folder=str(folder), records_per_step=1)
    assert run_until_it_ends(death, lambda: restore.run(spark, back)) > 1
    assert oracle(copy) == oracle(store)
    assert not list(folder.glob(".staging"))


def test_a_recording_whose_driver_dies_at_any_step_has_every_change_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = tmp_path / "hw.db", tmp_path / "recording"
    with headwater.sync.open(str(store)) as hw:
        for number in range(40):
            hw.collection("orders").set(f"o{number}", {"number": number})
    death = Death(monkeypatch)
    death.threaten(export, "put_in_place")
    death.threaten(shadow_record, "write_manifest")
    job = ShadowRecord(store=str(store), folder=str(folder), collections=("orders",), records_per_step=20)
    assert run_until_it_ends(death, lambda: shadow_record.run(spark, job), step=2) > 2
    named = [str(folder / entry.path) for entry in need_manifest(folder, shadow_record.KIND).entries]
    assert sorted(map(str, folder.glob("lsn-*"))) == sorted(named)
    found = spark.read.parquet(str(folder)).select("id").collect()
    assert sorted(row["id"] for row in found) == sorted(f"o{number}" for number in range(40))


def test_a_rollup_whose_driver_dies_at_any_step_counts_everything_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "hw.db"
    fill(store, 60)
    death = Death(monkeypatch)
    death.threaten(rollup, "_keep")
    run_until_it_ends(death, lambda: rollup.run(spark, RollUp(store=str(store), records_per_step=30)))
    with Handle(str(store)) as log:
        found = log.ask(log.store.ask(ListRollups("main", RollupQuery(resolution="day"))))
    assert sum(row.pushed for row in found) == 60


# ── real processes ──


def start(name: str, store: Path, place: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.pipeline.flows.dying", name, str(store), str(place)]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """The driver, its Java and its workers at once, as a power cut would."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)


def segments(store: Path) -> int:
    """How many segments a store has that others write to."""
    if not store.exists():
        return 0
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(10_000)
        return sum(count for (count,) in connection.execute("SELECT count(*) FROM hw_segments"))
    except apsw.SQLError:
        # The tables are not made yet.
        return 0
    finally:
        connection.close()


def kill_when(process: subprocess.Popen[bytes], is_time: Callable[[], bool]) -> None:
    try:
        expect_soon(lambda: is_time() or process.poll() is not None, seconds=PATIENCE_SECONDS)
    finally:
        kill(process)


def test_a_load_that_is_killed_is_taken_up(spark: SparkSession, tmp_path: Path) -> None:
    store, file = tmp_path / "hw.db", tmp_path / "orders.ndjson"
    lines = [{"id": number, "text": "x" * 100} for number in range(60_000)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "{broken\n")
    kill_when(start("load", store, file), lambda: segments(store) > 1)
    killed_at = len(oracle(store).get("Default", []))
    facts = load.run(
        spark, LoadFiles(store=str(store), queue="orders", files=(str(file),), quarantine=str(tmp_path / "bad"))
    ).facts
    # Workers are groups of their own, and may have finished a commit after the driver was gone.
    assert facts["loaded before"] >= killed_at
    assert (facts["rows in"], facts["rows out"], facts["quarantined"]) == (60_001, 60_000, 1)
    assert [kept.payload for kept in oracle(store)["Default"]] == lines


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 40,000 records in 80 segments."""
    store = tmp_path_factory.mktemp("long") / "hw.db"
    for start_at in range(0, 40_000, 1_000):
        pushes = [
            Push(queue="orders", partition=f"p{lane}", records=[record(start_at + number) for number in range(500)])
            for lane in range(2)
        ]
        apply(store, *pushes, at=NOON + start_at)
    return store


def test_an_archive_and_a_restore_that_are_killed_are_taken_up(
    campaign: None, spark: SparkSession, tmp_path: Path, long_log: Path
) -> None:
    store, copy, folder = tmp_path / "hw.db", tmp_path / "copy.db", tmp_path / "archive"
    shutil.copy(long_log, store)
    kill_when(start("archive", store, folder), (folder / NAME).exists)
    archive.run(spark, Archive(store=str(store), folder=str(folder)))
    kill_when(start("restore", copy, folder), lambda: segments(copy) > 1)
    restore.run(spark, Restore(store=str(copy), folder=str(folder)))
    assert oracle(copy) == oracle(store)


def cli(*arguments: str, folder: Path, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, "-m", "headwater.cli", "pipeline", "run", *arguments, "--master", "local[2]"]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_ctrl_c_leaves_what_was_finished_and_says_so(campaign: None, spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "orders.ndjson"
    file.write_text("".join(f'{{"id": {number}, "text": "{"x" * 200}"}}\n' for number in range(200_000)))
    process = cli("load", file.name, "--queue", "orders", folder=tmp_path)
    store = tmp_path / "headwater.db"
    expect_soon(lambda: segments(store) > 1 or process.poll() is not None, seconds=PATIENCE_SECONDS)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, said
    assert said.strip() == "ended by Ctrl-C; what was finished stays, and running it again goes on from there"
    facts = load.run(spark, LoadFiles(store=str(store), queue="orders", files=(str(file),))).facts
    assert facts["rows out"] == 200_000
    assert [kept.payload["id"] for kept in oracle(store)["Default"]] == list(range(200_000))


def can_mount() -> bool:
    tried = (
        subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False)
        if shutil.which("unshare")
        else None
    )
    return tried is not None and tried.returncode == 0


@pytest.mark.skipif(not can_mount(), reason="a small disk of one's own needs user namespaces")
def test_a_full_disk_ends_an_archive_with_one_line_and_nothing_half_visible(
    spark: SparkSession, tmp_path: Path, long_log: Path
) -> None:
    shutil.copy(long_log, tmp_path / "headwater.db")
    folder = tmp_path / "archive"
    folder.mkdir()
    show = f"ls -A {folder} >&2; cat {folder}/{NAME} >&2"
    small = f'mount -t tmpfs -o size=64k none {folder} && "$@"; code=$?; {show}; exit $code'
    process = cli("archive", "--to", "archive", folder=tmp_path, prefix=("unshare", "-rm", "sh", "-c", small, "sh"))
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    error, *left = said.strip().splitlines()
    assert process.returncode == 1, said
    assert error.startswith("error[archive_full]: no space is left in archive: ")
    # What readers of the folder see, and what the manifest names: nothing.
    assert not [name for name in left if name.startswith("queue=")]
    assert json.loads(left[-1])["manifest"]["entries"] == []
    assert (
        archive.run(spark, Archive(store=str(tmp_path / "headwater.db"), folder=str(folder))).facts["archived"]
        == 40_000
    )
