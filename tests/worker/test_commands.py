"""Commands as jobs: how they are started, what is kept of them, and how they are ended."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from headwater import NewJob
from headwater.model.job import JobState
from tests.waiting import expect_soon, expect_soon_async
from tests.worker.bench import Bench


def exists(process: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def test_a_command_that_could_not_be_watched_does_not_run_on_unseen(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes: list[int] = []

    def refuse(process: int) -> int:
        processes.append(process)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    added = await bench.hw.jobs.add(command="sleep 60", retries=0)
    await bench.drain(app="")
    job = await added.show()
    assert job.state is JobState.DEAD
    assert job.error == "/bin/sh cannot be started: Too many open files"
    assert [exists(process) for process in processes] == [False]


async def test_a_command_runs_through_the_shell_and_its_output_is_kept(bench: Bench) -> None:
    job = await bench.run(command="echo out; echo err >&2", id="a")
    assert job.state is JobState.COMPLETED
    (attempt,) = await bench.hw.jobs.attempts("a")
    assert (attempt.output, attempt.exit_code, attempt.outcome) == ("out\nerr\n", 0, "completed")
    assert attempt.duration_seconds is not None


async def test_arguments_are_passed_on_without_a_shell(bench: Bench) -> None:
    await bench.run(argv=("printf", "%s|", "a b", "$HOME", "; exit 1"), id="a")
    (attempt,) = await bench.hw.jobs.attempts("a")
    assert attempt.output == "a b|$HOME|; exit 1|"


async def test_a_command_fails_by_its_exit_code_with_its_last_line_as_the_reason(bench: Bench) -> None:
    job = await bench.run(command="echo this is why >&2; exit 3")
    assert (job.state, job.error) == (JobState.DEAD, "exit code 3: this is why")


async def test_a_command_that_does_not_exist_fails_and_says_so(bench: Bench) -> None:
    job = await bench.run(argv=("no-such-program-anywhere",))
    assert (job.state, job.error) == (
        JobState.DEAD,
        "no-such-program-anywhere cannot be started: No such file or directory",
    )
    job = await bench.run(command="no-such-program-anywhere")
    assert job.error is not None
    assert job.error.startswith("exit code 127: ")


async def test_a_command_that_a_signal_ended_has_failed(bench: Bench) -> None:
    job = await bench.run(command="kill -SEGV $$")
    assert job.error == "ended by SIGSEGV"


async def test_a_command_knows_its_job_and_not_our_secrets(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_ENCRYPTION_KEY", "canary")
    await bench.run(command="env | sort", id="a", env={"MINE": "yes"})
    (attempt,) = await bench.hw.jobs.attempts("a")
    lines = attempt.output.splitlines()
    assert {"HEADWATER_JOB_ID=a", "HEADWATER_JOB_ATTEMPT=1", "HEADWATER_JOB_TOKEN=1", "MINE=yes"} <= set(lines)
    assert "canary" not in attempt.output


async def test_a_command_runs_in_the_folder_that_it_asks_for(bench: Bench) -> None:
    folder = bench.folder / "with space"
    folder.mkdir()
    await bench.run(argv=("pwd",), cwd=str(folder), id="a")
    (attempt,) = await bench.hw.jobs.attempts("a")
    assert attempt.output.strip() == str(folder)


async def test_a_command_that_takes_too_long_is_ended_with_everything_it_started(bench: Bench) -> None:
    pids = bench.folder / "pids"
    command = f"trap '' TERM; sleep 1000 & echo $! > {pids}; echo $$ >> {pids}; wait; wait; sleep 1000"
    job = await bench.run(command=command, timeout=0.3)
    assert (job.state, job.error) == (JobState.DEAD, "timed out after 0.3 s")
    expect_soon(lambda: not any(exists(int(line)) for line in pids.read_text().split()))


async def test_a_process_that_a_command_leaves_behind_ends_with_it(bench: Bench) -> None:
    pid = bench.folder / "pid"
    job = await bench.run(command=f"sleep 1000 & echo $! > {pid}")
    assert job.state is JobState.COMPLETED
    expect_soon(lambda: not exists(int(pid.read_text())))


async def test_endless_output_is_cut_and_does_not_stop_the_command(bench: Bench) -> None:
    await bench.run(command="head -c 3000000 /dev/zero | tr '\\0' x; echo end", id="a")
    (attempt,) = await bench.hw.jobs.attempts("a")
    assert len(attempt.output) < 5_000
    assert attempt.output.endswith("xend\n")
    assert "bytes left out" in attempt.output


async def test_several_commands_run_at_once_when_the_worker_may(bench: Bench) -> None:
    folder = bench.folder / "met"
    folder.mkdir()
    meet = f'touch {folder}/$HEADWATER_JOB_ID; while [ "$(ls {folder} | wc -l)" -lt 3 ]; do sleep 0.01; done'
    jobs = [await bench.hw.jobs.add(command=meet) for _ in range(3)]
    await bench.drain(concurrency=3)
    assert [(await job.show()).state for job in jobs] == [JobState.COMPLETED] * 3


async def test_a_command_that_runs_is_cancelled_within_moments(bench: Bench) -> None:
    job = await bench.hw.jobs.add(command="echo begun; sleep 1000", id="a")
    async with bench.running():

        async def runs() -> bool:
            return (await job.show()).state is JobState.PROCESSING

        await expect_soon_async(runs)
        await job.cancel()
        assert await bench.ended("a") is JobState.CANCELLED


async def test_the_output_of_a_command_can_be_read_while_it_runs(bench: Bench) -> None:
    gate = bench.folder / "gate"
    job = await bench.hw.jobs.add(command=f"echo begun; while [ ! -e {gate} ]; do sleep 0.01; done; echo done", id="a")
    async with bench.running():

        async def is_shown() -> bool:
            attempts = await bench.hw.jobs.attempts("a")
            return bool(attempts) and attempts[0].output == "begun\n"

        await expect_soon_async(is_shown)
        gate.touch()
        await bench.ended(job.id)
    (attempt,) = await bench.hw.jobs.attempts("a")
    assert attempt.output == "begun\ndone\n"


async def test_a_hundred_short_commands_all_complete(bench: Bench) -> None:
    await bench.hw.jobs.add_many([bench_job(number) for number in range(100)])
    await bench.drain(concurrency=4)
    (queue,) = await bench.hw.jobs.queues()
    assert queue.counts == {JobState.COMPLETED: 100}


def bench_job(number: int) -> NewJob:
    return NewJob(id=f"job{number}", argv=("true",))


async def test_a_worker_that_is_killed_at_once_says_what_became_of_its_jobs(bench: Bench) -> None:
    pid = bench.folder / "pid"
    await bench.hw.jobs.add(command=f"echo $$ > {pid}; sleep 1000", id="runs")
    worker = bench.worker()
    task = asyncio.get_running_loop().create_task(worker.run())

    async def runs() -> bool:
        return pid.exists() and bool(pid.read_text().strip())

    await expect_soon_async(runs)
    worker.stop()
    worker.stop(at_once=True)
    await asyncio.wait_for(task, 30)
    job = await bench.hw.jobs.show("runs")
    assert (job.state, job.error) == (JobState.FAILED, "the worker was told to end at once")
    expect_soon(lambda: not exists(int(pid.read_text())))
