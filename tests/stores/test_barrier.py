"""Where the disk is waited for: on the spot while it is quick, in a thread once it is not."""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.stores.sqlite.barrier import FEW_CALLERS, QUICK_SECONDS, QUICK_SECONDS_FOR_MANY, SLOW_MEMORY, FileBarrier

MANY = FEW_CALLERS + 1


class Disk:
    """A disk that takes as long as a test says, by a clock that stands still meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self.seconds = 0.0
        self.refuses = False
        self.threads: list[threading.Thread] = []

    def sync(self, descriptor: int) -> None:
        self.threads.append(threading.current_thread())
        self.now += self.seconds
        if self.refuses:
            raise OSError(5, "the disk refuses")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(os, "fdatasync", made.sync)
    return made


@pytest.fixture
def barrier(tmp_path: Path, disk: Disk) -> Iterator[FileBarrier]:
    path = tmp_path / "log"
    path.touch()
    made = FileBarrier(str(path), clock=lambda: disk.now)
    yield made
    made.close()


async def is_on_the_spot(barrier: FileBarrier, callers: int) -> bool:
    """Whether a wait was over when it was asked for. A refusal is not told here."""
    try:
        done = barrier.wait(callers)
    except OSError:
        return True
    if done is None:
        return True
    at_once = done.done()
    await asyncio.wait([done])
    done.exception()
    return at_once


async def test_a_quick_disk_is_waited_for_on_the_spot(barrier: FileBarrier, disk: Disk) -> None:
    assert [await is_on_the_spot(barrier, callers) for callers in (1, FEW_CALLERS, MANY, 1_000)] == [True] * 4
    assert set(disk.threads) == {threading.current_thread()}


async def test_where_many_wait_only_a_very_quick_disk_is_waited_for_on_the_spot(
    barrier: FileBarrier, disk: Disk
) -> None:
    barrier._usual_seconds = (QUICK_SECONDS + QUICK_SECONDS_FOR_MANY) / 2
    assert await is_on_the_spot(barrier, FEW_CALLERS)
    barrier._usual_seconds = (QUICK_SECONDS + QUICK_SECONDS_FOR_MANY) / 2
    assert not await is_on_the_spot(barrier, MANY)


async def test_after_a_slow_wait_the_thread_waits_for_a_while(barrier: FileBarrier, disk: Disk) -> None:
    disk.seconds = QUICK_SECONDS * 2
    assert await is_on_the_spot(barrier, 1)
    disk.seconds = 0
    assert [await is_on_the_spot(barrier, 1) for _ in range(SLOW_MEMORY + 1)] == [False] * SLOW_MEMORY + [True]


async def on_the_disk(barrier: FileBarrier) -> None:
    """Wait wherever the barrier waits."""
    done = barrier.wait(MANY)
    if done is not None:
        await done


@pytest.mark.parametrize("usual", [0.0, QUICK_SECONDS])
async def test_a_refusal_is_told_wherever_the_wait_was(barrier: FileBarrier, disk: Disk, usual: float) -> None:
    disk.refuses = True
    barrier._usual_seconds = usual
    with pytest.raises(OSError, match="refuses"):
        await on_the_disk(barrier)
    assert not await is_on_the_spot(barrier, 1), "after a refusal the thread waits"
