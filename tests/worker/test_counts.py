"""Counts are true: every start of a job has a token of its own and is an attempt, and nothing else is one."""

import os
from collections import Counter
from pathlib import Path

import pytest

from headwater.log.job_operations import Claim, ClaimedJob, Depart, Rescue
from headwater.model.job import JobState
from headwater.stores.job_starts import COMMANDS, PLAIN, JobStarts, read_starts
from tests.waiting import expect_soon_async
from tests.worker import functions
from tests.worker.bench import Bench
from tests.worker.nasty_functions import SCRIBBLES

ROUNDS = 4
QUICK = 40
LONG = 60.0


def starts_in(file: Path) -> list[tuple[str, int, int]]:
    """Every start: job, token, attempt."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [(name, int(token), int(attempt)) for name, token, attempt in map(str.split, lines)]


async def test_quick_functions_around_a_death_run_once_and_finish_at_their_first_attempt(bench: Bench) -> None:
    """What was done and not told yet is not done again, however suddenly the process dies."""
    marks = bench.folder / "marks"
    jobs = []
    for round in range(ROUNDS):
        jobs += [functions.note_start.using(id=f"quick{round}-{number}").job(str(marks)) for number in range(QUICK)]
        jobs.append(functions.die.using(id=f"die{round}").job())
    handles = await bench.hw.jobs.add_many(jobs)
    await bench.drain()
    shown = {handle.id: await handle.show() for handle in handles}
    quick = [job for name, job in shown.items() if name.startswith("quick")]
    assert {(job.state, job.attempts) for job in quick} == {(JobState.COMPLETED, 1)}
    assert {shown[f"die{round}"].state for round in range(ROUNDS)} == {JobState.DEAD}
    assert Counter(name for name, _, _ in starts_in(marks)) == Counter(job.id for job in quick)


async def claim(bench: Bench, worker: str, count: int) -> list[ClaimedJob]:
    claimed = await bench.hw.jobs_service.run(Claim(database="main", worker=worker, limit=count))
    jobs: list[ClaimedJob] = claimed.jobs
    return jobs


def starts_of(bench: Bench, worker: str) -> JobStarts:
    return JobStarts.make(bench.hw.jobs_service.store.job_starts_path(worker), 200)


async def test_what_a_killed_worker_had_only_fetched_is_not_charged(bench: Bench) -> None:
    handles = await bench.hw.jobs.add_many([functions.add.using(id=f"job{number}").job(1) for number in range(10)])
    starts = starts_of(bench, "killed")
    jobs = await claim(bench, "killed", 10)
    for job in jobs[:2]:
        assert starts.mark(PLAIN, job.number, job.token) is not None
    starts.close()
    await bench.hw.jobs_service.run(Depart(database="main", worker="killed", reason="killed"))
    found = [((await handle.show()).state, (await handle.show()).attempts) for handle in handles]
    assert found == [(JobState.FAILED, 1)] * 2 + [(JobState.PENDING, 0)] * 8
    assert not [name for name in os.listdir(bench.folder) if "-starts-" in name]


async def test_what_nobody_can_know_counts_as_started(bench: Bench) -> None:
    """A file of an earlier boot, a broken one, or none at all: a job that runs at most once must not run again."""
    path = Path(bench.hw.jobs_service.store.job_starts_path("gone"))
    starts = JobStarts.make(str(path), 200)
    whole = path.read_bytes()
    starts.close()
    earlier = whole[:8] + b"0" * 36 + whole[44:]
    for content in (None, b"", whole[:100], b"x" * 64, earlier, whole[:-1]):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        job = await bench.hw.jobs.add(functions.add.using(retries=0).job(1))
        await claim(bench, "gone", 1)
        await bench.hw.jobs_service.run(Depart(database="main", worker="gone"))
        assert (await job.show()).state is JobState.DEAD


async def test_a_worker_whose_jobs_were_taken_back_starts_none_of_them_any_more(bench: Bench) -> None:
    starts = starts_of(bench, "asleep")
    await bench.hw.jobs.add(functions.add.job(1))
    (job,) = await claim(bench, "asleep", 1)
    await bench.hw.jobs_service.run(Depart(database="main", worker="asleep"))
    assert starts.mark(COMMANDS, job.number, job.token) is None
    starts.renew(bench.hw.jobs_service.store.job_starts_path("asleep"))
    (again,) = await claim(bench, "asleep", 1)
    assert again.token > job.token
    assert starts.mark(COMMANDS, again.number, again.token) is not None
    starts.close()


async def test_a_job_that_was_to_be_cancelled_is_cancelled_when_its_worker_dies(bench: Bench) -> None:
    job = await bench.hw.jobs.add(functions.add.job(1))
    await claim(bench, "killed", 1)
    await job.cancel()
    await bench.hw.jobs_service.run(Depart(database="main", worker="killed"))
    assert (await job.show()).state is JobState.CANCELLED


async def test_a_worker_leaves_no_file_behind(bench: Bench) -> None:
    await bench.hw.jobs.add(functions.add.job(1))
    await bench.drain()
    await bench.hw.jobs_service.run(Rescue(database="main"))
    assert not [name for name in os.listdir(bench.folder) if "-starts-" in name]


def test_marks_are_read_however_many_there_were_before(tmp_path: Path) -> None:
    path = str(tmp_path / "starts")
    starts = JobStarts.make(path, 10)
    for number in range(1, 100_000):
        starts.mark(number % 3, number, 1)
    starts.close()
    left = read_starts(path)
    assert left is not None
    assert {(number, 1) for number in range(99_900, 100_000)} <= left.started
    assert read_starts(path) is None


@pytest.mark.parametrize("place", ["/proc/nowhere/starts", ""])
def test_without_a_place_for_its_file_a_worker_works_on(place: str) -> None:
    starts = JobStarts.make(place, 10)
    assert starts.mark(PLAIN, 1, 1) is not None
    assert starts.started() == {(1, 1)}
    starts.close()


@pytest.mark.parametrize("kind", SCRIBBLES)
def test_marks_that_somebody_wrote_over_are_made_anew(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "starts"
    starts = JobStarts.make(str(path), 10)
    runners = JobStarts(os.dup(starts.file))
    assert starts.is_intact()
    with path.open("r+b") as file:
        file.write(SCRIBBLES[kind])
    assert not starts.is_intact()
    assert all(one.mark(ring, 9, 1) is not None for one in (starts, runners) for ring in range(3))
    following = JobStarts(os.open(path, os.O_RDWR))
    assert following.mark(PLAIN, 9, 2) is not None, "the next process starts jobs, too"
    starts.repair([(7, 1)])
    assert starts.is_intact()
    assert runners.mark(PLAIN, 8, 1) is not None
    for one in (starts, runners, following):
        one.close()
    left = read_starts(str(path))
    assert left is not None
    assert {(7, 1), (8, 1)} <= left.started


async def test_a_worker_mends_what_a_job_wrote_over_and_still_knows_what_it_has_started(bench: Bench) -> None:
    gate = bench.folder / "gate"
    async with bench.running(lease=1.0, concurrency=4) as worker:
        job = await bench.hw.jobs.add(functions.wait_and_tell.job(str(bench.folder)))
        command = await bench.hw.jobs.add(command=f"while [ ! -e {gate} ]; do sleep 0.02; done")

        async def run() -> bool:
            return len(worker.starts.started()) == 2 and bool(list(bench.folder.glob("begun-*")))

        await expect_soon_async(run, LONG)
        before = worker.starts.started()
        os.pwrite(worker.starts.file, bytes(70_000), 0)

        async def is_mended() -> bool:
            return worker.starts.is_intact()

        await expect_soon_async(is_mended, LONG)
        assert worker.starts.started() >= before
        later = await bench.hw.jobs.add(functions.add.job(1))
        assert await later.wait(LONG) is JobState.COMPLETED
        gate.touch()
        assert [await one.wait(LONG) for one in (job, command)] == [JobState.COMPLETED] * 2
        assert [(await one.show()).attempts for one in (job, command)] == [1, 1]


async def test_low_numbers_lead_to_nothing_that_a_runner_shares_with_its_worker(bench: Bench) -> None:
    async with bench.running():
        job = await bench.hw.jobs.add(functions.name_descriptors.job())
        found = await job.result(LONG)
    assert not [name for name in found if "headwater" in name or "-starts-" in name]
