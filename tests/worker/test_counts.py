"""Counts are true: every start of a job has a token of its own and is an attempt, and nothing else is one."""

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from headwater.config import Durability
from headwater.log.committer import CommittedResult, Committer
from headwater.log.job_operations import Claim, ClaimedJob, Depart, JobReport, Rescue, Settle, Settled
from headwater.model.job import JobNumber, JobOutcome, JobState
from headwater.stores.job_starts import JobStarts, read_starts, starts_path
from headwater.worker.settlement import Settlement
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
    return JobStarts.make(starts_path(bench.hw.store.traits.beside, worker), 200)


def start(starts: JobStarts, job: ClaimedJob) -> bool:
    return starts.mark(starts.hold(job.number, job.token), job.number, job.token)


async def test_what_a_killed_worker_had_only_fetched_is_not_charged(bench: Bench) -> None:
    handles = await bench.hw.jobs.add_many([functions.add.using(id=f"job{number}").job(1) for number in range(10)])
    starts = starts_of(bench, "killed")
    jobs = await claim(bench, "killed", 10)
    for job in jobs[:2]:
        assert start(starts, job)
    starts.close()
    await bench.hw.jobs_service.run(Depart(database="main", worker="killed", reason="killed"))
    found = [((await handle.show()).state, (await handle.show()).attempts) for handle in handles]
    assert found == [(JobState.FAILED, 1)] * 2 + [(JobState.PENDING, 0)] * 8
    assert not [name for name in os.listdir(bench.folder) if "-starts-" in name]


async def test_what_nobody_can_know_counts_as_started(bench: Bench) -> None:
    """A file of an earlier boot, a broken one, or none at all: a job that runs at most once must not run again."""
    path = Path(starts_path(bench.hw.store.traits.beside, "gone"))
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
    assert not start(starts, job)
    starts.renew(starts_path(bench.hw.store.traits.beside, "asleep"))
    (again,) = await claim(bench, "asleep", 1)
    assert again.token > job.token
    assert start(starts, again)
    starts.close()


async def test_a_worker_that_is_lost_a_second_time_is_asked_anew_what_it_has_started(bench: Bench) -> None:
    """It slept through its lease and went on: what was read of it the first time says nothing about the second."""
    handle = await bench.hw.jobs.add(functions.add.using(retries=0).job(1))
    starts = starts_of(bench, "sleepy")
    await claim(bench, "sleepy", 1)
    await bench.hw.jobs_service.run(Depart(database="main", worker="sleepy"))
    assert (await handle.show()).state is JobState.PENDING
    starts.renew(starts_path(bench.hw.store.traits.beside, "sleepy"))
    (again,) = await claim(bench, "sleepy", 1)
    assert start(starts, again)
    starts.close()
    await bench.hw.jobs_service.run(Depart(database="main", worker="sleepy"))
    assert (await handle.show()).state is JobState.DEAD


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


def test_a_mark_stays_until_its_job_is_let_go_however_many_come_behind_it(tmp_path: Path) -> None:
    path = str(tmp_path / "starts")
    starts = JobStarts.make(path, 10)
    size, room = os.path.getsize(path), starts.room
    held = [(number, 7) for number in range(1, 11)]
    for number in range(1, 100_000):
        assert starts.mark(starts.hold(number, 7), number, 7)
        if (number, 7) not in held:
            starts.let_go(number, 7)
    assert (os.path.getsize(path), starts.room) == (size, room - len(held))
    starts.close()
    left = read_starts(path)
    assert left is not None
    assert set(held) <= left.started
    assert read_starts(path) is None


def test_no_more_jobs_are_held_than_there_are_slots_for_and_each_has_its_own(tmp_path: Path) -> None:
    starts = JobStarts.make(str(tmp_path / "starts"), 10)
    room = starts.room
    assert len({starts.hold(number, 1) for number in range(room)}) == room
    assert starts.hold(3, 1) == starts.hold(3, 1)
    assert starts.room == 0
    starts.let_go(3, 1)
    starts.let_go(3, 1)
    assert starts.room == 1
    starts.renew(str(tmp_path / "starts"))
    assert starts.room == room
    starts.let_go(4, 1)
    assert starts.room == room, "what is let go too late frees nothing that others hold by then"
    starts.close()


@pytest.mark.parametrize("slot", [-1, 10**12])
def test_a_slot_that_makes_no_sense_lies_in_the_file_all_the_same(tmp_path: Path, slot: int) -> None:
    path = tmp_path / "starts"
    starts = JobStarts.make(str(path), 10)
    assert starts.mark(slot, 9, 1)
    assert starts.is_intact()
    assert starts.started() == {(9, 1)}
    starts.close()


MANY = 2_100


async def test_a_long_job_still_counts_as_started_behind_thousands_of_others(bench: Bench) -> None:
    """Its worker is killed then: a job that runs at most once must not run again."""
    async with bench.running(id="busy", concurrency=4) as worker:
        call = functions.wait_for_file_politely.using(retries=0).job(str(bench.folder / "no"))
        long = [await bench.hw.jobs.add(call), await bench.hw.jobs.add(command="sleep 1000", retries=0)]

        async def run() -> bool:
            return len(worker.starts.started()) == len(long)

        await expect_soon_async(run, LONG)
        quick = await bench.hw.jobs.add_many([functions.add_later.job(1) for _ in range(MANY)])
        assert await quick[-1].wait(LONG) is JobState.COMPLETED
        await bench.hw.jobs_service.run(Depart(database="main", worker=f"busy-{os.getpid()}"))
        assert [(await job.show()).state for job in long] == [JobState.DEAD] * len(long)


class Slow:
    """A store that takes its time."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[CommittedResult] = asyncio.get_running_loop().create_future()

    def submit(self, operation: Settle) -> asyncio.Future[CommittedResult]:
        return self.answer


async def test_a_mark_is_kept_until_the_store_has_taken_what_the_job_came_to(tmp_path: Path) -> None:
    """A worker that is killed before that has not reported, and the job must not seem never to have started."""
    starts = JobStarts.make(str(tmp_path / "starts"), 10)
    store = Slow()
    settlement = Settlement(cast("Committer", store), "main", "worker", starts)
    starts.mark(starts.hold(1, 1), 1, 1)
    settlement.hand_in([JobReport(number=JobNumber(1), token=1, outcome=JobOutcome.COMPLETED)])
    for number in range(2, 2 * starts.room):
        starts.mark(starts.hold(number, 1), number, 1)
        starts.let_go(number, 1)
    assert (1, 1) in starts.started()
    room = starts.room
    store.answer.set_result(CommittedResult(Settled([JobState.COMPLETED]), Durability.SYNCED))
    await settlement.finished()
    assert starts.room == room + 1
    starts.close()


async def test_a_worker_fetches_no_more_than_it_has_slots_for(bench: Bench) -> None:
    worker = bench.worker(drain=True)
    kept = [worker.starts.hold(-number, 1) for number in range(1, worker.starts.room - 2)]
    handles = await bench.hw.jobs.add_many([functions.add.job(number) for number in range(50)])
    await asyncio.wait_for(worker.run(), LONG)
    assert {(await handle.show()).state for handle in handles} == {JobState.COMPLETED}
    assert worker.starts.room == 3
    assert len(kept) == len(set(kept))


@pytest.mark.parametrize("place", ["/proc/nowhere/starts", ""])
def test_without_a_place_for_its_file_a_worker_works_on(place: str) -> None:
    starts = JobStarts.make(place, 10)
    assert starts.mark(starts.hold(1, 1), 1, 1)
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
    assert all(one.mark(starts.hold(9, 1), 9, 1) for one in (starts, runners))
    following = JobStarts(os.open(path, os.O_RDWR))
    assert following.mark(starts.hold(9, 2), 9, 2), "the next process starts jobs, too"
    starts.hold(7, 1)
    starts.hold(6, 1)
    starts.repair([(6, 1)])
    assert starts.is_intact()
    assert runners.mark(starts.hold(8, 1), 8, 1)
    for one in (starts, runners, following):
        one.close()
    left = read_starts(str(path))
    assert left is not None
    assert {(7, 1), (8, 1), (9, 1), (9, 2)} <= left.started
    assert (6, 1) not in left.started


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
    # It keeps the folder that it began in, which a checkout has any name for.
    found.remove(os.getcwd())
    assert not [name for name in found if "headwater" in name.removeprefix(os.getcwd()) or "-starts-" in name]
