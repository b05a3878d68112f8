"""The keeper: chores go on, whatever one of them does."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headwater
from headwater.config import Config
from headwater.errors import Closed, StoreBusy
from headwater.housekeeping import keeper as keeping
from headwater.housekeeping.keeper import Keeper


class FakeChore:
    """Runs when the test says so, and does what it says."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.due = asyncio.Event()
        self.ran = asyncio.Event()
        self.runs = 0
        self.error: Exception | None = None

    async def wait(self) -> None:
        await self.due.wait()
        self.due.clear()

    async def run(self) -> int:
        self.runs += 1
        self.ran.set()
        if self.error is not None:
            raise self.error
        return 3

    async def make_run(self) -> None:
        """Let it run once."""
        self.ran.clear()
        self.due.set()
        await asyncio.wait_for(self.ran.wait(), 5)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def keeper(hw: headwater.Headwater, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Keeper]:
    monkeypatch.setattr(keeping, "ERROR_PAUSE_SECONDS", 0)
    made = Keeper(hw.store, hw.committer, hw.clock, Config())
    made.chores = [FakeChore("one"), FakeChore("two")]
    made.errors = {"one": 0, "two": 0}
    made.done = {"one": 0, "two": 0}
    made.start()
    yield made
    await made.close()


def chores_of(keeper: Keeper) -> tuple[FakeChore, FakeChore]:
    one, two = keeper.chores
    assert isinstance(one, FakeChore)
    assert isinstance(two, FakeChore)
    return one, two


async def test_a_chore_runs_whenever_it_is_time(keeper: Keeper) -> None:
    one, two = chores_of(keeper)
    await one.make_run()
    await one.make_run()
    await two.make_run()
    assert (one.runs, two.runs) == (2, 1)
    assert keeper.done == {"one": 6, "two": 3}


async def test_a_chore_that_fails_is_told_counted_and_goes_on(keeper: Keeper, caplog: pytest.LogCaptureFixture) -> None:
    one, two = chores_of(keeper)
    one.error = OSError("no")
    await one.make_run()
    await two.make_run()
    assert keeper.errors == {"one": 1, "two": 0}
    assert "chore one failed" in caplog.text
    one.error = None
    await one.make_run()
    assert keeper.done == {"one": 3, "two": 3}


async def test_a_chore_that_finds_the_store_held_by_another_says_so_in_a_line(
    keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = chores_of(keeper)
    one.error = StoreBusy("another broker holds this store")
    await one.make_run()
    (told,) = caplog.records
    assert (told.levelname, told.exc_info) == ("WARNING", None)
    assert "chore one failed" in told.getMessage()
    assert "another broker" in told.getMessage()


async def test_a_chore_whose_store_was_closed_ends(keeper: Keeper) -> None:
    one, _ = chores_of(keeper)
    one.error = Closed("closed")
    await one.make_run()
    assert keeper.errors["one"] == 0
    assert any(task.done() for task in keeper._tasks)


async def test_closing_ends_all_chores(keeper: Keeper) -> None:
    tasks = list(keeper._tasks)
    await keeper.close()
    assert all(task.done() for task in tasks)


async def test_there_is_a_chore_for_everything_that_grows(hw: headwater.Headwater) -> None:
    names = {chore.name for chore in hw.keeper.chores}
    assert names >= {"retention", "lease-reaper", "forgetter", "checkpointer", "vacuum"}


async def test_the_room_for_a_full_disk_is_there_before_a_server_takes_anything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reserve = tmp_path / "headwater.db-reserve"
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        await hw.keeper.prepare()
        assert reserve.stat().st_size == hw.config.reserve_bytes
        assert caplog.records == []


async def test_a_server_without_chores_sets_no_room_aside(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "headwater.db"), housekeeping=False) as hw:
        await hw.keeper.prepare()
    assert not (tmp_path / "headwater.db-reserve").exists()


async def test_a_disk_without_that_room_is_told_of_once_and_keeps_no_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def posix_fallocate(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)
        await hw.keeper.prepare()
        await hw.keeper.prepare()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["the disk is nearly full"]


async def test_room_that_cannot_be_had_for_another_reason_is_told_of_and_keeps_no_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def posix_fallocate(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.EIO, "broken")

    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)
        await hw.keeper.prepare()
    assert ["reserver" in record.getMessage() for record in caplog.records] == [True]
