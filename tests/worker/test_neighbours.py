"""What one job does, or has done to it, is no matter of those beside it."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from headwater.model.job import JobState
from headwater.stores.questions import FindLastLsn
from tests.cli.queuectl import Queuectl, is_running
from tests.waiting import expect_soon, expect_soon_async
from tests.worker import functions
from tests.worker.bench import Bench

LONG = 60.0


async def test_ending_a_plain_function_leaves_async_ones_alone(bench: Bench) -> None:
    """By its time, and by a cancel; both take their process with them because they do not stop when asked to."""
    gate, begun = bench.folder / "gate", bench.folder / "begun"
    waiting = [await bench.hw.jobs.add(functions.wait_for_file_politely.job(str(gate))) for _ in range(3)]
    async with bench.running(concurrency=5):
        overdue = await bench.hw.jobs.add(functions.hang.job())
        assert await overdue.wait(LONG) is JobState.DEAD
        cancelled = await bench.hw.jobs.add(functions.clean_up_slowly.job(str(begun)))

        async def runs() -> bool:
            return begun.exists()

        await expect_soon_async(runs)
        await cancelled.cancel()
        assert await cancelled.wait(LONG) is JobState.CANCELLED
        gate.touch()
        assert [await job.result(LONG) for job in waiting] == [1, 1, 1]


async def test_a_plain_function_that_takes_long_holds_up_neither_async_ones_nor_other_workers(bench: Bench) -> None:
    """What would wait behind it is not claimed and given back again and again, which would fill the log."""
    gate = bench.folder / "gate"
    long = await bench.hw.jobs.add(functions.wait_for_file.job(str(gate)))
    async with bench.running(concurrency=4):

        async def runs() -> bool:
            return (await long.show()).state is JobState.PROCESSING

        await expect_soon_async(runs)
        behind = [await bench.hw.jobs.add(functions.add.job(number)) for number in range(6)]
        politely = await bench.hw.jobs.add(functions.add_later.job(1))
        assert await politely.result(LONG) == 2
        before = await bench.hw.store.ask(FindLastLsn())
        await asyncio.sleep(1)
        assert await bench.hw.store.ask(FindLastLsn()) - before < 100
        async with bench.running(id="worker-2"):
            assert [await job.result(LONG) for job in behind] == [1, 2, 3, 4, 5, 6]
        gate.touch()
        assert await long.wait(LONG) is JobState.COMPLETED
    assert [(await job.show()).attempts for job in behind] == [1] * 6


async def test_a_plain_function_whose_time_is_over_can_clean_up(bench: Bench) -> None:
    file = bench.folder / "file"
    job = await bench.hw.jobs.add(functions.clean_up.job(str(file)))
    before = await bench.hw.jobs.add(functions.note_start.job(str(bench.folder / "marks")))
    after = await bench.hw.jobs.add(functions.note_start.job(str(bench.folder / "marks")))
    await bench.drain()
    shown = await job.show()
    assert (shown.state, shown.error) == (JobState.DEAD, "timed out after 0.3 s")
    assert file.read_text() == "cleaned"
    assert await before.result(5) == await after.result(5)  # The process outlived it.


@pytest.mark.parametrize("how", ["stdin", "0", "1", "2", "pipe"])
async def test_what_a_plain_function_does_to_the_standard_descriptors_ends_with_it(bench: Bench, how: str) -> None:
    """A neighbour in the same process finds an empty input, its programs can speak, and files get high numbers."""
    spoiler = await bench.hw.jobs.add(functions.spoil_input.job(how))
    neighbour = await bench.hw.jobs.add(functions.read_input.job())
    await bench.drain()
    process, found, status, opened = await neighbour.result(5)
    assert (found, status) == ("", 0)
    assert opened > 2
    assert process == await spoiler.result(5)


async def test_functions_run_in_a_new_process_after_so_many_of_them(bench: Bench) -> None:
    marks = str(bench.folder / "marks")
    jobs = [await bench.hw.jobs.add(functions.note_start.job(marks)) for _ in range(9)]
    await bench.drain(recycle_after=3)
    processes = [await job.result(5) for job in jobs]
    assert len(set(processes)) == 3
    assert {(await job.show()).attempts for job in jobs} == {1}


async def test_async_functions_run_in_a_new_process_after_so_many_of_them(bench: Bench) -> None:
    jobs = [await bench.hw.jobs.add(functions.add_later.job(number)) for number in range(9)]
    await bench.drain(recycle_after=2, concurrency=2)
    assert [await job.result(5) for job in jobs] == [number + 1 for number in range(9)]
    assert {(await job.show()).attempts for job in jobs} == {1}


def test_a_command_that_ends_kills_no_helper_of_its_neighbour(tmp_path: Path) -> None:
    """Helpers that hide as well as they can: without a parent, in sessions of their own, without an environment."""
    queuectl = Queuectl(tmp_path)
    hidden = "env -i setsid sh -c 'echo $$ >> helpers; exec sleep 1000' &"
    marked = "setsid sh -c 'echo $$ >> helpers; exec sleep 1000' &"
    command = f"({hidden}); ({marked}); while [ ! -e gate ]; do sleep 0.02; done"
    queuectl.expect(0, "enqueue", f'{{"id": "long", "argv": ["sh", "-c", "{command}"]}}')
    helpers = tmp_path / "helpers"
    with queuectl.workers("--count", "1", "--concurrency", "2"):
        expect_soon(lambda: helpers.exists() and len(helpers.read_text().split()) == 2, LONG)
        for number in range(3):
            queuectl.expect(0, "enqueue", f'{{"id": "short{number}", "command": "(setsid sleep 1000 &)"}}')
            queuectl.expect(0, "wait", f"short{number}", "--timeout", "60s")
        processes = [int(text) for text in helpers.read_text().split()]
        assert [is_running(process) for process in processes] == [True, True]
        (tmp_path / "gate").touch()
        queuectl.expect(0, "wait", "long", "--timeout", "60s")
        expect_soon(lambda: not any(map(is_running, processes)), LONG)


def test_killing_supervisor_and_worker_leaves_no_command_beside_its_second_attempt(tmp_path: Path) -> None:
    """The command, and a helper in a session of its own, are gone before the second attempt begins."""
    queuectl = Queuectl(tmp_path)
    for name, value in (("lease", "1"), ("backoff-base", "1"), ("backoff-jitter", "0")):
        queuectl.expect(0, "config", "set", name, value)
    # One that has ended and waits for somebody to notice does not run any more.
    running = "case $(cut -d' ' -f3 /proc/$p/stat 2>/dev/null) in ''|Z|X) ;; *) echo $p >> overlaps;; esac"
    look = f"for p in $(cat pids 2>/dev/null); do {running}; done"
    stay = "echo $$ >> pids; setsid sh -c 'echo $$ >> pids; exec sleep 1000' & [ -e gate ] || exec sleep 1000"
    queuectl.expect(0, "enqueue", f'{{"id": "job", "argv": ["sh", "-c", "{look}; {stay}"]}}')
    pids = tmp_path / "pids"
    with queuectl.workers("--count", "1") as supervisor:
        expect_soon(lambda: pids.exists() and len(pids.read_text().split()) == 2, LONG)
        (worker,) = [one["pid"] for one in queuectl.expect(0, "worker", "list", "--json").documents()]
        for process in (supervisor.pid, worker):
            os.kill(process, signal.SIGKILL)
        supervisor.wait(LONG)
    first = [int(text) for text in pids.read_text().split()]
    try:
        assert all(map(is_running, first))
        (tmp_path / "gate").touch()
        with queuectl.workers("--count", "1"):
            queuectl.expect(0, "wait", "job", "--timeout", "60s")
        assert not (tmp_path / "overlaps").exists()
        assert queuectl.expect(0, "show", "job", "--json").document()["attempts"] == 2
        assert not any(map(is_running, first))
    finally:
        for process in first:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


async def test_a_worker_without_the_function_leaves_the_job_to_others_and_says_so_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [await bench.hw.jobs.add(functions.add.job(number)) for number in range(300)]
    command = await bench.hw.jobs.add(command="true")
    await bench.drain(app="", id="without")
    assert await command.wait(5) is JobState.COMPLETED
    shown = [await job.show() for job in jobs]
    assert {(job.state, job.attempts) for job in shown} == {(JobState.PENDING, 0)}
    said = [record for record in caplog.records if "are left to others" in record.getMessage()]
    assert len(said) == 1
    await bench.drain(id="with")
    assert [await job.result(5) for job in jobs] == [number + 1 for number in range(300)]
    assert await bench.hw.jobs.limits() == []


async def test_an_import_that_hangs_keeps_no_worker_from_ending_and_touches_nothing(bench: Bench) -> None:
    waits = await bench.hw.jobs.add(functions.add.job(1))
    command = await bench.hw.jobs.add(command="true")
    worker = bench.worker(app="tests.worker.hanging:app")
    task = asyncio.get_running_loop().create_task(worker.run())

    async def loads() -> bool:
        return bool(worker.functions.processes)

    await expect_soon_async(loads, LONG)
    worker.stop()
    assert await asyncio.wait_for(task, LONG) == 0
    for job in (waits, command):
        assert ((await job.show()).state, (await job.show()).token) == (JobState.PENDING, 0)
