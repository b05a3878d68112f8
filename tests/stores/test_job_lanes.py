"""Lanes of keys: what a concurrency key promises holds over all queues and types of a database, and lanes that nobody
needs any more are forgotten."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

import headwater
from headwater import NewJob
from headwater.config import Config
from headwater.housekeeping.lane_sweeper import LaneSweeper
from headwater.log.job_operations import (
    CancelJobs,
    Claim,
    Claimed,
    ClaimedJob,
    Depart,
    JobReport,
    SetJobLimit,
    Settle,
)
from headwater.model.job import JobOutcome, JobState
from headwater.stores.sqlite.migrate import migrations

QUEUES = ("default", "mail", "reports")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "log.db")


@pytest.fixture
async def hw(path: str) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(path, housekeeping=False) as opened:
        yield opened


async def claim(
    hw: headwater.Headwater, worker: str, queues: tuple[str, ...] = (), limit: int = 100
) -> list[ClaimedJob]:
    claimed: Claimed = await hw.jobs_service.run(Claim(worker=worker, queues=queues, limit=limit, lease_seconds=1e6))
    return list(claimed.jobs)


async def settle(
    hw: headwater.Headwater, worker: str, jobs: list[ClaimedJob], outcome: JobOutcome = JobOutcome.COMPLETED
) -> None:
    reports = [JobReport(number=job.number, token=job.token, outcome=outcome) for job in jobs]
    await hw.jobs_service.run(Settle(worker=worker, reports=reports))


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("seed", range(4))
async def test_a_concurrency_key_holds_over_all_queues_and_types(
    hw: headwater.Headwater, seed: int, limit: int
) -> None:
    """Workers of some queues and of all of them, ends, failures and deaths by chance: never more than so many at once,
    and everything is done in the end."""
    dice = random.Random(seed)
    jobs = [
        NewJob(
            id=f"job{number}",
            command="true",
            queue=dice.choice(QUEUES),
            type=dice.choice(("shell", "command:a", "command:b")),
            concurrency_key=dice.choice(("ada", "bob")),
            concurrency_limit=limit,
            backoff_base=1,
            backoff_jitter=0,
            retries=100,
        )
        for number in range(40)
    ]
    keys = {job.id: job.concurrency_key for job in jobs}
    await hw.jobs.limit("command:b", queue="mail", concurrency=1)
    held: dict[str, list[ClaimedJob]] = {}
    waiting, done = list(jobs), 0
    for step in range(3_000):
        if waiting and dice.random() < 0.4:
            await hw.jobs.add(waiting.pop())
        worker = dice.choice(("one", "two", "three"))
        serves = {"one": ("mail",), "two": ("default", "reports"), "three": ()}[worker]
        mine = held.setdefault(worker, [])
        if mine and dice.random() < 0.5:
            job = mine.pop(dice.randrange(len(mine)))
            outcome = dice.choice((JobOutcome.COMPLETED, JobOutcome.COMPLETED, JobOutcome.RELEASED))
            done += outcome is JobOutcome.COMPLETED
            await settle(hw, worker, [job], outcome)
        elif mine and dice.random() < 0.02:
            await hw.jobs_service.run(Depart(worker=worker, reason="killed"))
            for job in mine:
                await hw.jobs.retry(job.id)
            mine.clear()
        else:
            mine += await claim(hw, worker, serves, dice.choice((1, 3, 100)))
        running = [keys[job.id] for jobs_of in held.values() for job in jobs_of]
        assert max((running.count(key) for key in ("ada", "bob")), default=0) <= limit, step
        if done == len(jobs):
            break
    assert done == len(jobs)
    counts = [queue.counts for queue in await hw.jobs.queues()]
    assert sum(count.get(JobState.COMPLETED, 0) for count in counts) == len(jobs)


def counted_and_running(path: str) -> tuple[dict[int, int], dict[int, int]]:
    """How many run in each lane, as its limit counts them, and as the jobs themselves say."""
    with closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        lanes: list[Any] = connection.execute("SELECT id, parent, gate, running FROM hw_job_lanes").fetchall()
        held: list[Any] = connection.execute("SELECT lane FROM hw_jobs WHERE state = 'processing'").fetchall()
    running = Counter(lane for (lane,) in held)
    counted = {lane: count for lane, _, _, count in lanes}
    real = dict.fromkeys(counted, 0)
    for lane, parent, gate, _ in lanes:
        for one in {lane, parent, gate} - {0}:
            real[one] += running[lane]
    return counted, real


async def some_change(hw: headwater.Headwater, dice: random.Random, held: dict[str, list[ClaimedJob]]) -> None:
    """One of the things that happen to limited jobs, by chance."""
    run, worker, kind = hw.jobs_service.run, dice.choice(list(held)), dice.choice(("command:a", "command:b"))
    queue, key, jobs = dice.choice(QUEUES), dice.choice(("", "ada", "bob", "eve")), held[worker]
    chance = dice.randrange(11)
    if chance < 3:
        job = NewJob(command="true", type=kind, queue=queue)
        is_turn = dice.random() < 0.5
        keyed = replace(job, limit_key=key) if is_turn else replace(job, concurrency_key=key)
        await hw.jobs.add(keyed if key else job)
    elif chance < 5:
        jobs += (await run(Claim(worker=worker, limit=dice.choice((1, 3, 50)), lease_seconds=1e6))).jobs
    elif chance < 8 and jobs:
        await settle(hw, worker, [jobs.pop(dice.randrange(len(jobs)))], dice.choice(list(JobOutcome)))
    elif chance == 8:
        each = dice.random() < 0.5
        await run(SetJobLimit(queue=queue, type=kind, concurrency=dice.randint(0, 3), each_key=each))
    elif chance == 9:
        await run(CancelJobs(type=kind, queue=queue, limit=2))
    elif dice.random() < 0.3:
        await run(Depart(worker=worker, reason="killed"))
        jobs.clear()


@pytest.mark.parametrize("seed", range(8))
async def test_limits_count_what_really_runs_and_nothing_waits_for_ever(
    hw: headwater.Headwater, path: str, seed: int
) -> None:
    """Keys, limits that come and change while jobs run, failures, cancels and deaths by chance."""
    dice = random.Random(seed)
    held: dict[str, list[ClaimedJob]] = {"one": [], "two": [], "three": []}
    for _ in range(150):
        await some_change(hw, dice, held)
        counted, real = counted_and_running(path)
        assert counted == real
    for worker, jobs in held.items():
        await settle(hw, worker, jobs)
    misses = 0
    while misses < 5:
        jobs = await claim(hw, "one", limit=5)
        misses = 0 if jobs else misses + 1
        await settle(hw, "one", jobs)
    assert [job.id for job in await hw.jobs.list(state=JobState.PENDING)] == []


async def test_the_oldest_job_of_a_key_comes_first_whatever_its_queue(hw: headwater.Headwater) -> None:
    for number, queue in enumerate(("mail", "default", "reports", "mail", "default")):
        await hw.jobs.add(command="true", id=str(number), queue=queue, concurrency_key="ada")
    order = []
    for _ in range(5):
        (job,) = await claim(hw, "w")
        order.append(job.id)
        await settle(hw, "w", [job])
    assert order == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("seed", range(6))
async def test_the_limit_that_came_last_holds_for_all_jobs_of_a_key(hw: headwater.Headwater, seed: int) -> None:
    """Limits by chance, in queues and types by chance, while some run: at any time as many may start as the last job
    that was added says, whatever the others came with."""
    dice = random.Random(seed)
    running: list[ClaimedJob] = []
    waiting = 0
    for number in range(40):
        limit = dice.randint(1, 6)
        job = NewJob(
            command="true",
            id=f"job{number}",
            queue=dice.choice(QUEUES),
            type=dice.choice(("shell", "command:a")),
            concurrency_key="ada",
            concurrency_limit=None if limit == 1 else limit,
        )
        await hw.jobs.add(job)
        waiting += 1
        started = [job for queue in QUEUES for job in await claim(hw, "w", queues=(queue,))]
        assert len(started) == min(waiting, max(limit - len(running), 0))
        waiting -= len(started)
        running += started
        ended = [running.pop() for _ in range(min(dice.randint(0, 2), len(running)))]
        if ended:
            await settle(hw, "w", ended)


async def test_a_job_that_is_to_be_tried_again_or_is_paused_holds_up_nobody_of_its_key(hw: headwater.Headwater) -> None:
    for name, queue in (("fails", "default"), ("rests", "mail"), ("goes-on", "default")):
        await hw.jobs.add(command="true", id=name, queue=queue, concurrency_key="ada", backoff_base=1_000.0)
    await hw.jobs.pause("mail")
    (first,) = await claim(hw, "w")
    await settle(hw, "w", [first], JobOutcome.FAILED)
    (second,) = await claim(hw, "w")
    assert (first.id, second.id) == ("fails", "goes-on")


async def test_a_key_of_one_database_is_not_that_of_another(hw: headwater.Headwater) -> None:
    other = hw.database("other")
    await hw.jobs.add(command="true", concurrency_key="ada")
    await other.jobs.add(command="true", concurrency_key="ada")
    assert len(await claim(hw, "w")) == 1
    claimed: Claimed = await hw.jobs_service.run(Claim(database="other", worker="v", limit=5))
    assert len(claimed.jobs) == 1


async def test_the_same_text_as_a_limit_key_and_a_concurrency_key_means_two_things(hw: headwater.Headwater) -> None:
    for _ in range(2):
        await hw.jobs.add(command="true", limit_key="ada")
        await hw.jobs.add(command="true", concurrency_key="ada")
    await hw.jobs.add(command="true", queue="mail", concurrency_key="ada")
    assert len(await claim(hw, "w")) == 3, "both of the limit key, and one of the concurrency key"


def lanes(path: str) -> int:
    connection = apsw.Connection(path)
    try:
        return int(connection.execute("SELECT count(*) FROM hw_job_lanes").fetchone()[0])  # type: ignore[index]
    finally:
        connection.close()


@pytest.mark.parametrize("kind", ["limit_key", "concurrency_key"])
async def test_lanes_of_ten_thousand_keys_are_forgotten_when_they_are_empty(
    hw: headwater.Headwater, path: str, kind: str
) -> None:
    count = 10_000
    jobs_of_all = []
    for number in range(count):
        key = f"customer-{number}"
        is_limit = kind == "limit_key"
        made = NewJob(command="true", limit_key=key) if is_limit else NewJob(command="true", concurrency_key=key)
        jobs_of_all.append(made)
    await hw.jobs.add_many(jobs_of_all)
    sweeper = LaneSweeper(hw.committer, Config())
    before = lanes(path)
    assert await sweeper.run() == 0, "something waits in each of them"
    while jobs := await claim(hw, "w", limit=1_000):
        await settle(hw, "w", jobs)
    for _ in range(3):
        await sweeper.run()
    assert (before, lanes(path)) == (count if kind == "limit_key" else 2 * count, 0)
    assert len(await hw.jobs.list(state="completed", limit=count)) == count


async def test_a_lane_in_which_something_may_still_run_stays(hw: headwater.Headwater, path: str) -> None:
    """Whatever state it is in, and also what has died: somebody may retry it, and the key must hold then."""
    for name, delay, needs in (("later", 60.0, ()), ("waits", 0.0, ("later",)), ("now", 0.0, ()), ("dead", 0.0, ())):
        await hw.jobs.add(command="true", id=name, concurrency_key=name, retries=0, delay=delay, depends_on=needs)
    jobs = {job.id: job for job in await claim(hw, "w")}
    await settle(hw, "w", [jobs["dead"]], JobOutcome.FAILED)
    sweeper = LaneSweeper(hw.committer, Config())
    assert await sweeper.run() == 0
    await settle(hw, "w", [jobs["now"]])
    assert await sweeper.run() == 1
    await hw.jobs.retry("dead")
    await hw.jobs.add(command="true", id="beside", queue="mail", concurrency_key="dead")
    assert len(await claim(hw, "w")) == 1, "the key of the dead one holds for it again"


async def test_a_rate_is_not_forgotten_before_it_would_let_the_next_one_start(
    hw: headwater.Headwater, path: str
) -> None:
    await hw.jobs.limit("shell", rate=1, per=3_600, each_key=True)
    await hw.jobs.add(command="true", limit_key="ada")
    await settle(hw, "w", await claim(hw, "w"))
    assert await LaneSweeper(hw.committer, Config()).run() == 0
    await hw.jobs.add(command="true", limit_key="ada")
    assert await claim(hw, "w") == []


async def test_keys_of_a_file_of_an_older_version_hold_over_all_queues(tmp_path: Path) -> None:
    """One runs and two wait, in lanes that know nothing of each other."""
    path = str(tmp_path / "old.db")
    async with headwater.open(path, housekeeping=False) as hw:
        for queue in QUEUES:
            await hw.jobs.add(command="true", id=queue, queue=queue, concurrency_key="ada")
        (running,) = await claim(hw, "w", ("mail",))
    number = next(number for number, name, _ in migrations() if "hold_keys" in name)
    text = next(text for found, _, text in migrations() if found == number)
    connection = apsw.Connection(path)
    connection.execute("DELETE FROM hw_job_lanes WHERE queue_id = 0; DROP INDEX hw_job_lanes_by_gate")
    connection.execute("DROP INDEX hw_jobs_by_lane; ALTER TABLE hw_job_lanes DROP COLUMN gate")
    connection.execute("UPDATE hw_job_lanes SET blocked = 0, ready_at = 0 WHERE running = 0")
    connection.execute(text)
    connection.close()
    async with headwater.open(path, housekeeping=False) as hw:
        assert await claim(hw, "v", ("default", "reports")) == []
        await settle(hw, "w", [running])
        assert len(await claim(hw, "v", ("default", "reports"))) == 1
