"""The event loop that async functions share: a worker sees that it does not turn, and who holds it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.log.job_operations import Claim
from headwater.model.job import JobNumber, JobOutcome, JobState
from headwater.services.jobs import JobHandle
from headwater.worker.async_calls import HELD
from headwater.worker.call_reports import Call, Death, is_charged, judge
from headwater.worker.calls import NOBODY, Slate, make_slate
from headwater.worker.functions import APART_MAX
from headwater.worker.loop_watch import LOOKS, LoopWatch, Measure
from headwater.worker.suspects import SUSPECTS_MAX, SUSPICIONS_MAX, Suspects
from headwater.worker.worker import STALLED_SECONDS
from tests.waiting import expect_soon_async
from tests.worker import functions
from tests.worker.bench import Bench
from tests.worker.test_calls import Calls

LONG = 120.0
ONE, OTHER = JobNumber(1), JobNumber(2)


@pytest.fixture
def slate() -> Iterator[Slate]:
    made = Slate(make_slate())
    yield made
    made.close()


def looks(watch: LoopWatch, begun: set[JobNumber], count: int) -> list[tuple[Measure, JobNumber]]:
    return [watch.look(begun) for _ in range(count)]


def test_a_loop_that_turns_is_left_alone(slate: Slate) -> None:
    watch = LoopWatch(slate)
    for _ in range(5 * LOOKS):
        slate.beat()
        assert watch.look({ONE, OTHER})[0] is Measure.NONE


def test_one_that_takes_step_after_step_is_left_alone(slate: Slate) -> None:
    """Even when the loop has no time to count its turns."""
    watch = LoopWatch(slate)
    for moment in range(5 * LOOKS):
        slate.step(ONE, float(moment))
        assert watch.look({ONE, OTHER})[0] is Measure.NONE


@pytest.mark.parametrize("holder", [ONE, NOBODY])
def test_a_loop_that_stands_still_is_interrupted_and_then_ended(slate: Slate, holder: JobNumber) -> None:
    watch = LoopWatch(slate)
    slate.step(holder, 5.0)
    measures = looks(watch, {ONE, OTHER}, 2 * LOOKS + 1)
    assert measures.index((Measure.INTERRUPT, holder)) == LOOKS
    assert [measure for measure, _ in measures].count(Measure.INTERRUPT) == 1
    assert measures[-1] == (Measure.KILL, holder)
    slate.beat()
    assert watch.look({ONE, OTHER})[0] is Measure.NONE


def test_a_call_that_holds_up_nobody_else_may_do_so(slate: Slate) -> None:
    watch = LoopWatch(slate)
    slate.step(ONE, 5.0)
    assert {measure for measure, _ in looks(watch, {ONE}, 5 * LOOKS)} == {Measure.NONE}
    assert Measure.KILL in {measure for measure, _ in looks(watch, {ONE, OTHER}, 5 * LOOKS)}


async def begun(bench: Bench, count: int) -> None:
    async def are() -> bool:
        return len(list(bench.folder.glob("begun-*"))) >= count

    await expect_soon_async(are, LONG)


async def neighbours(bench: Bench, count: int) -> list[JobHandle]:
    """Jobs that wait in the loop for the file `gate`."""
    jobs = [functions.wait_and_tell.job(str(bench.folder)) for _ in range(count)]
    handles = list(await bench.hw.jobs.add_many(jobs))
    await begun(bench, count)
    return handles


async def test_who_holds_up_the_others_is_interrupted_and_they_go_on_where_they_are(bench: Bench) -> None:
    async with bench.running(concurrency=4, loop_seconds_max=3.0):
        waiting = await neighbours(bench, 3)
        holder = await bench.hw.jobs.add(functions.hold_the_loop.job(False))
        assert await holder.wait(LONG) is JobState.DEAD
        assert (await holder.show()).error == HELD
        (bench.folder / "gate").touch()
        results = [await job.result(LONG) for job in waiting]
    assert [(await job.show()).attempts for job in waiting] == [1] * 3
    assert len(list(bench.folder.glob("begun-*"))) == 3  # None of them was started a second time.
    assert len(set(map(str, results))) == 1


async def test_a_loop_that_cannot_be_freed_is_ended_and_the_others_are_given_back(bench: Bench) -> None:
    async with bench.running(concurrency=4, loop_seconds_max=2.0):
        waiting = await neighbours(bench, 3)
        holder = await bench.hw.jobs.add(functions.hold_the_loop.job(True))
        assert await holder.wait(LONG) is JobState.DEAD
        (bench.folder / "gate").touch()
        assert [await job.wait(LONG) for job in waiting] == [JobState.COMPLETED] * 3
    shown = [await job.show() for job in waiting]
    assert {(job.attempts, job.token) for job in shown} == {(1, 2)}  # A second start, that is not counted.


async def test_one_that_may_start_once_at_most_is_not_started_again_for_the_fault_of_another(bench: Bench) -> None:
    async with bench.running(concurrency=4):
        once = await bench.hw.jobs.add(functions.wait_and_tell.using(retries=0).job(str(bench.folder)))
        await begun(bench, 1)
        await bench.hw.jobs.add(functions.die_politely.job())
        assert await once.wait(LONG) is JobState.DEAD
    assert (await once.show()).attempts == 1
    assert len(list(bench.folder.glob("begun-*"))) == 1


@pytest.mark.parametrize(
    "culprit", [functions.close_all_descriptors, functions.end_from_a_thread, functions.end_from_a_callback]
)
async def test_those_who_run_beside_one_that_ends_the_process_again_and_again_are_never_charged(
    bench: Bench, culprit: Any
) -> None:
    """Nobody knows who it was, three times over: whoever was there runs apart until that is known."""
    async with bench.running(concurrency=10):
        jobs = [functions.nap.job() for _ in range(10)]
        culprits = [culprit.job() for _ in range(2)]
        handles = list(await bench.hw.jobs.add_many([*jobs[:3], culprits[0], *jobs[3:6], culprits[1], *jobs[6:]]))
        states = [await job.wait(LONG) for job in handles]
    guilty = [handles[3], handles[7]]
    healthy = [job for job in handles if job not in guilty]
    assert {((await job.show()).state, (await job.show()).attempts) for job in healthy} == {(JobState.COMPLETED, 1)}
    assert {((await job.show()).state, (await job.show()).attempts) for job in guilty} == {(JobState.DEAD, 3)}
    assert states.count(JobState.DEAD) == 2


@pytest.mark.parametrize(
    ("leftover", "healthy"),
    [
        (functions.leave_a_thread, functions.outlast),
        (functions.leave_a_callback, functions.outlast),
        (functions.leave_a_task, functions.outlast),
        (functions.leave_a_thread_plainly, functions.outlast_plainly),
    ],
)
async def test_who_runs_alone_behind_others_is_not_charged_for_what_they_left(
    bench: Bench, leftover: Any, healthy: Any
) -> None:
    """It runs apart when it comes again, where nobody has left anything: also when others like them come before it."""
    async with bench.running(concurrency=4):
        first = await bench.hw.jobs.add(leftover.job(str(bench.folder / "begun-healthy-1")))
        assert await first.wait(LONG) is JobState.COMPLETED
        job = await bench.hw.jobs.add(healthy.using(id="healthy").job(str(bench.folder)))
        await begun(bench, 1)
        await bench.hw.jobs.add(leftover.job(str(bench.folder / "begun-healthy-2")))
        assert await job.result(LONG) == 1
    shown = await job.show()
    assert (shown.attempts, shown.token) == (1, 2)


@pytest.mark.parametrize("worker", ["worker-1", "worker-2"])
async def test_one_that_has_ended_its_process_runs_apart_from_then_on(bench: Bench, worker: str) -> None:
    """In another worker too: it is known by the error of its last attempt."""
    neighbours_there = bench.folder / "neighbours"
    offender = await bench.hw.jobs.add(functions.offend.job(str(neighbours_there)))

    async def has_offended() -> bool:
        return (await offender.show()).error is not None

    async with contextlib.AsyncExitStack() as workers:
        await workers.enter_async_context(bench.running(concurrency=8))
        await expect_soon_async(has_offended, LONG)
        if worker != "worker-1":
            await workers.aclose()
            await workers.enter_async_context(bench.running(concurrency=8, id=worker))
        once = functions.wait_and_tell.using(retries=0)
        waiting = await bench.hw.jobs.add_many([once.job(str(bench.folder)) for _ in range(4)])
        await begun(bench, 4)
        neighbours_there.touch()
        assert await offender.wait(LONG) is JobState.DEAD
        (bench.folder / "gate").touch()
        assert [await job.wait(LONG) for job in waiting] == [JobState.COMPLETED] * 4
    assert (await offender.show()).attempts == 3


@pytest.mark.parametrize("culprit", [functions.die_politely, functions.cancel_the_others])
async def test_what_the_loop_has_not_come_to_is_not_started(bench: Bench, culprit: Any) -> None:
    """One handed over before them ends the process, or cancels all there is: they may start at most once, and do."""
    once = functions.wait_and_tell.using(retries=0)
    jobs = await bench.hw.jobs.add_many([culprit.job(), *(once.job(str(bench.folder)) for _ in range(6))])
    (bench.folder / "gate").touch()
    await bench.drain(concurrency=8)
    shown = [await job.show() for job in jobs[1:]]
    assert {(job.state, job.attempts) for job in shown} == {(JobState.COMPLETED, 1)}
    assert len(list(bench.folder.glob("begun-*"))) == 6


async def test_who_waits_for_another_to_let_go_of_the_loop_has_not_begun(bench: Bench) -> None:
    """Nothing of it is noted as started, and its time does not run."""
    gate = bench.folder / "gate"
    holder = functions.block_until.using(id="holder", timeout=LONG).job(str(gate))
    behind = functions.add_later.using(retries=0, timeout=0.2).job(1)
    async with bench.running(concurrency=4) as worker:
        handles = await bench.hw.jobs.add_many([holder, behind, behind])

        async def has_begun() -> bool:
            return len(worker.starts.started()) > 0

        await expect_soon_async(has_begun, LONG)
        await asyncio.sleep(2)
        started = worker.starts.started()
        gate.touch()
        states = [await job.wait(LONG) for job in handles]
    assert len(started) == 1
    assert states == [JobState.COMPLETED] * 3


async def test_low_descriptors_are_none_of_the_loop(bench: Bench) -> None:
    async with bench.running(concurrency=4):
        waiting = await neighbours(bench, 2)
        closing = await bench.hw.jobs.add(functions.close_low_descriptors.job())
        process = await closing.result(LONG)
        (bench.folder / "gate").touch()
        assert [await job.result(LONG) for job in waiting] == [process] * 2
    assert {((await job.show()).attempts, (await job.show()).token) for job in waiting} == {(1, 1)}


async def test_suspects_do_not_wait_behind_one_that_takes_long(bench: Bench) -> None:
    """As many as may run apart take long, and the one that is left goes on beside others."""
    async with bench.running(concurrency=10):
        count = APART_MAX + 1
        waiting = await neighbours(bench, count)
        (killer,) = await bench.hw.jobs.add_many([functions.end_from_a_thread.using(retries=0).job()])
        assert await killer.wait(LONG) is JobState.DEAD
        for begun_file in bench.folder.glob("begun-*"):
            begun_file.unlink()
        await begun(bench, count)
        (bench.folder / "gate").touch()
        results = [await job.result(LONG) for job in waiting]
    assert [(await job.show()).attempts for job in waiting] == [1] * count
    assert len(set(map(str, results))) == count


@pytest.mark.parametrize("count", [0, 2])
async def test_a_worker_ends_although_its_loop_is_dead(bench: Bench, count: int) -> None:
    """Nothing holds it, and nothing will ever happen in it: not even an end of what waits there."""
    worker = bench.worker(concurrency=4, loop_seconds_max=0.5)
    task = asyncio.get_running_loop().create_task(worker.run())
    await neighbours(bench, count)
    dead = await bench.hw.jobs.add(functions.empty_the_loop.job(str(bench.folder)))
    await begun(bench, count + 1)
    (bench.folder / "gate").touch()
    worker.stop()
    assert await asyncio.wait_for(task, LONG) == 0
    assert (await dead.show()).state is JobState.DEAD


async def test_those_that_are_cancelled_before_their_first_step_run_later_and_are_not_charged(bench: Bench) -> None:
    """All four are in the line before there is a process to take them: it begins them in one turn of its loop."""
    jobs = [
        functions.cancel_the_others.job(),
        *(functions.add_later.using(retries=3).job(number) for number in range(3)),
    ]
    canceller, *others = await bench.hw.jobs.add_many(jobs)
    await bench.drain(concurrency=4)
    assert await canceller.wait(LONG) is JobState.COMPLETED
    assert [await job.result(LONG) for job in others] == [1, 2, 3]
    assert [(await job.show()).attempts for job in others] == [1, 1, 1]


async def test_async_jobs_are_left_to_other_workers_while_one_holds_the_loop(bench: Bench) -> None:
    gate = bench.folder / "gate"
    async with bench.running(concurrency=4) as worker:
        holder = await bench.hw.jobs.add(functions.block_until.job(str(gate)))

        async def is_held() -> bool:
            able = worker.functions.able_to_begin(STALLED_SECONDS)
            return functions.add.name in able and functions.add_later.name not in able

        await expect_soon_async(is_held, LONG)
        async with bench.running(id="worker-2"):
            others = [await bench.hw.jobs.add(functions.add_later.job(number)) for number in range(5)]
            assert [await job.result(LONG) for job in others] == [1, 2, 3, 4, 5]
        gate.touch()
        assert await holder.wait(LONG) is JobState.COMPLETED
        again = await bench.hw.jobs.add(functions.add_later.job(7))
        assert await again.result(LONG) == 8


@pytest.mark.parametrize(
    ("retries", "stopped", "culprits", "suspicions", "alone", "charged"),
    [
        (3, "", {1}, 0, False, True),
        (3, "", {2}, 0, False, False),
        (3, "", {2}, SUSPICIONS_MAX, True, False),
        (3, "", set(), 0, True, True),
        (3, "", set(), 0, False, False),
        (3, "", set(), SUSPICIONS_MAX - 1, False, False),
        (3, "", set(), SUSPICIONS_MAX, False, True),
        (3, "timeout", {2}, 0, False, True),
        (0, "", {2}, 0, False, True),
    ],
)
async def test_who_is_charged_when_a_process_dies(
    bench: Bench, retries: int, stopped: str, culprits: set[int], suspicions: int, alone: bool, charged: bool
) -> None:
    await bench.hw.jobs.add(command="true", retries=retries)
    (job,) = (await bench.hw.jobs_service.run(Claim(worker="w", limit=1))).jobs
    assert job.number == ONE
    call = Call(job, stopped=stopped)
    suspects = Suspects()
    for _ in range(suspicions):
        suspects.add(ONE)
    assert is_charged(call, set(map(JobNumber, culprits)), suspects, alone=alone) is charged


@pytest.mark.parametrize(
    ("stopped", "culprits", "is_late", "alone", "is_apart"),
    [
        ("", {1}, False, False, True),
        ("", {2}, False, False, False),
        ("", {2}, True, False, True),
        ("", set(), True, True, True),
        ("", set(), True, False, True),
        ("timeout", {1}, False, False, True),
        ("timeout", {2}, False, False, False),
    ],
)
async def test_who_runs_apart_when_a_process_has_died(
    bench: Bench, stopped: str, culprits: set[int], is_late: bool, alone: bool, is_apart: bool
) -> None:
    """Whoever did it or may have, and who would be beside the next one that leaves something behind."""
    await bench.hw.jobs.add(command="true", retries=3)
    (job,) = (await bench.hw.jobs_service.run(Claim(worker="w", limit=1))).jobs
    suspects = Suspects()
    death = Death("ended", frozenset(map(JobNumber, culprits)), {}, is_late=is_late, alone=alone)
    report = judge(Call(job, stopped=stopped), death, suspects)
    assert (ONE in suspects) is is_apart
    charged = bool(stopped) or alone or 1 in culprits
    assert report.outcome is (JobOutcome.FAILED if charged else JobOutcome.RELEASED)


def test_suspects_that_others_have_are_forgotten() -> None:
    suspects = Suspects()
    for number in range(SUSPECTS_MAX + 1):
        suspects.add(JobNumber(number))
    assert JobNumber(0) not in suspects
    assert JobNumber(SUSPECTS_MAX) in suspects
    suspects.clear(JobNumber(SUSPECTS_MAX))
    assert JobNumber(SUSPECTS_MAX) not in suspects


@pytest.fixture
async def patient(bench: Bench) -> AsyncIterator[Calls]:
    """Calls with more time of grace than any test has."""
    calls = Calls(bench, grace_seconds=10 * LONG, concurrency=2)
    yield calls
    calls.runner.close()
    await asyncio.wait_for(calls.runner.closed(), LONG)
    calls.starts.close()


async def test_who_holds_the_loop_when_its_time_is_over_is_interrupted_then(patient: Calls, bench: Bench) -> None:
    """And not when the time of grace is over, which is for those who were told."""
    gate = str(bench.folder / "gate")
    neighbour = functions.wait_for_file_politely.using(id="neighbour").job(gate)
    blocks = functions.block_until.using(id="blocks", timeout=0.2).job(gate)
    await patient.run([neighbour, blocks])
    assert await patient.ended("blocks") == [JobOutcome.FAILED]
    assert patient.reports["blocks"].error == "timed out after 0.2 s"
    Path(gate).touch()
    assert await patient.ended("neighbour") == [JobOutcome.COMPLETED]


async def test_who_was_told_that_its_time_is_over_may_clean_up_although_that_holds_the_loop(
    patient: Calls, bench: Bench
) -> None:
    cleaned = bench.folder / "cleaned"
    await patient.run([functions.clean_up_stubbornly.using(id="cleans", timeout=0.2).job(str(cleaned))])
    assert await patient.ended("cleans") == [JobOutcome.FAILED]
    assert cleaned.read_text() == "to the end"
