"""The power goes at any moment: what was answered is there, and nothing that was never done."""

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from headwater.errors import HeadwaterError
from headwater.log import operations as op
from headwater.model.record import Record, encode_payload
from headwater.stores.sqlite.shared_file import SharedFile
from headwater.stores.sqlite.store import SqliteStore
from tests.contracts.log import until_durable
from tests.faults.bent_clock import BentClock
from tests.faults.simulated_disk import Platter, PowerCutDisk, Write, barrier_factory, restore
from tests.faults.tables import find_damage
from tests.faults.workload import CONFIG, Committed, Judge, Run, Verdict, run_workload

CUTS_PER_RUN = 50
REOPEN_EVERY = 5
SOUND = Verdict([], 0)


def cut_points(run: Run, chance: random.Random, count: int) -> list[int]:
    """Moments after the store was opened, in order."""
    return sorted(chance.randrange(run.opened + 1, len(run.journal) + 1) for _ in range(count))


def cuts(run: Run, seed: int, folder: Path, count: int) -> Iterator[tuple[str, Verdict]]:
    """Cut the power `count` times; each time the file that is left, and what is to be said of it."""
    chance = random.Random(f"cuts of {seed}")
    platter, judge = Platter(run.journal), Judge(run)
    for number, point in enumerate(cut_points(run, chance, count)):
        for note in platter.advance(point):
            judge.take(note)
        path = str(folder / f"after-{number}.db")
        restore(platter.cut_power(chance), path)
        yield path, look_at(path, judge)


def look_at(path: str, judge: Judge) -> Verdict:
    """The verdict over one file. Reading it is what makes SQLite recover it."""
    connection = apsw.Connection(path)
    try:
        return judge.judge(connection)
    except apsw.CorruptError as error:
        return Verdict([str(error)], 0)
    finally:
        connection.close()


async def work_on(path: str) -> list[str]:
    """Open the store that survived and use it; what is wrong afterwards."""
    store = SqliteStore(SharedFile(path, CONFIG), CONFIG, clock=BentClock())
    await store.open()
    record = Record(data=encode_payload({"after": "the cut"}, bytes_max=100))
    push = op.Push(queue="orders", partition="a", records=[record])
    pop = op.Pop(queue="orders", group="later", batch=1_000)
    commit = await store.apply([push, pop], BentClock().now())
    await until_durable(store, 1)
    await store.close()
    connection = apsw.Connection(path)
    damage = find_damage(connection)
    connection.close()
    return damage + [str(result) for result in commit.results if isinstance(result, Exception)]


@pytest.mark.seeds(few=6, many=200)
def test_a_power_cut_takes_nothing_that_was_answered_and_adds_nothing(seed: int, folder: Path) -> None:
    run = asyncio.run(run_workload(seed, folder))
    for number, (path, verdict) in enumerate(cuts(run, seed, folder, CUTS_PER_RUN)):
        assert verdict == SOUND, f"seed {seed}, cut {number}"
        if number % REOPEN_EVERY == 0:
            assert asyncio.run(work_on(path)) == [], f"seed {seed}, cut {number}"


def test_a_power_cut_after_the_disk_refused_a_sync_takes_nothing_that_was_answered(
    folder: Path, campaign: bool
) -> None:
    """Linux takes what it could not write for written: the next sync succeeds, and the log is still not on the disk."""
    wrong: list[str] = []
    for seed in range(100 if campaign else 10):
        (folder / str(seed)).mkdir()
        run = asyncio.run(run_workload(seed, folder / str(seed), refusals=0.1))
        found = enumerate(cuts(run, seed, folder / str(seed), CUTS_PER_RUN))
        wrong += [f"seed {seed}, cut {number}: {verdict}" for number, (_, verdict) in found if verdict != SOUND]
    assert not wrong, f"{len(wrong)} cuts went wrong, the first: {wrong[0]:.300}"


async def test_between_a_refused_sync_and_the_recovery_nothing_is_moved_into_the_file(folder: Path) -> None:
    """Each open file hears of the refusal once; the second checkpoint would believe a log that is not on the disk."""
    disk = PowerCutDisk("refused-once", str(folder / "store.db"))
    always_refuses = barrier_factory(disk, random.Random(0), refusals=1)
    medium = SharedFile(disk.path, CONFIG, vfs=disk.name, barrier=always_refuses)
    store = SqliteStore(medium, CONFIG, clock=BentClock())
    await store.open()
    record = Record(data=encode_payload({"filling": "x" * 9_000}, 10_000))
    await store.apply([op.Push(queue="orders", records=[record])], BentClock().now())
    with pytest.raises(OSError, match="the disk says no"):
        await until_durable(store, 1)
    refused = len(disk.journal)
    for _ in range(3):
        with contextlib.suppress(HeadwaterError):
            await medium.checkpoint()
    moved = [event for event in disk.journal.events[refused:] if isinstance(event, Write) and event.file == ""]
    await store.recover()
    disk.journal.refusals = 0
    await medium.checkpoint()
    await store.close()
    assert not moved


@pytest.mark.seeds(few=6, many=2_000)
def test_every_state_on_the_way_keeps_the_rules_of_the_log(seed: int, folder: Path) -> None:
    run = asyncio.run(run_workload(seed, folder, operations=60))
    broken = [event for event in run.journal.events if isinstance(event, Committed) and event.faults]
    assert not broken, f"seed {seed}: {broken[0]}"


@pytest.mark.seeds(few=1, many=20)
def test_a_power_cut_while_the_file_is_made_leaves_one_that_opens(seed: int, folder: Path) -> None:
    run = asyncio.run(run_workload(seed, folder, operations=1))
    chance = random.Random(f"first open {seed}")
    platter = Platter(run.journal)
    for point in sorted(chance.randrange(run.opened + 1) for _ in range(20)):
        list(platter.advance(point))
        path = str(folder / f"made-{point}-{chance.random()}.db")
        restore(platter.cut_power(chance), path)
        assert asyncio.run(work_on(path)) == [], f"seed {seed}, event {point}"


@pytest.mark.seeds(few=2, many=20)
def test_the_full_sync_of_sqlite_itself_loses_nothing_either(seed: int, folder: Path) -> None:
    run = asyncio.run(run_workload(seed, folder, "full"))
    for number, (_, verdict) in enumerate(cuts(run, seed, folder, CUTS_PER_RUN)):
        assert verdict == SOUND, f"seed {seed}, cut {number}"


def test_without_the_barrier_answered_commits_are_lost(folder: Path) -> None:
    """Shows that the harness can see a loss: the same work, the same cuts, only nobody waits for the disk."""
    verdicts: list[Verdict] = []
    for seed in range(3):
        (folder / str(seed)).mkdir()
        run = asyncio.run(run_workload(seed, folder / str(seed), "none"))
        verdicts += [verdict for _, verdict in cuts(run, seed, folder / str(seed), 20)]
    assert all(not verdict.faults for verdict in verdicts), "a lost commit must not damage the others"
    assert any(verdict.lost for verdict in verdicts)
