"""What functions print and log is their job's output, while they run and afterwards; what they report last stays."""

import logging

import msgspec
import pytest

from headwater.model.job import JobState
from tests.waiting import expect_soon_async
from tests.worker import functions
from tests.worker.bench import Bench


async def output_of(bench: Bench, id: str) -> str:
    attempts = await bench.hw.jobs.attempts(id)
    return "".join(attempt.output for attempt in attempts)


async def test_what_a_function_prints_and_logs_is_seen_while_it_runs(bench: Bench) -> None:
    gate = bench.folder / "gate"
    job = await bench.hw.jobs.add(functions.print_and_log.using(id="job").job(str(gate)))
    async with bench.running():

        async def is_shown() -> bool:
            text = await output_of(bench, "job")
            return "printed\nto standard error\n" in text and text.endswith("INFO logged\n")

        await expect_soon_async(is_shown)
        assert (await job.show()).state is JobState.PROCESSING
        gate.touch()
        assert await job.wait(30) is JobState.COMPLETED
    assert (await output_of(bench, "job")).endswith("INFO logged\nafter the gate\n")


async def test_async_functions_that_run_together_keep_their_output_apart(bench: Bench) -> None:
    for number in range(10):
        await bench.hw.jobs.add(functions.print_politely.using(id=f"job{number}").job(f"text {number}"))
    await bench.drain(concurrency=10)
    assert [await output_of(bench, f"job{number}") for number in range(10)] == [f"text {n}\n" * 3 for n in range(10)]


async def test_what_is_printed_in_threads_that_a_function_starts_is_its_output(bench: Bench) -> None:
    for number in range(3):
        await bench.hw.jobs.add(functions.print_in_threads.using(id=f"job{number}").job(f"text {number}"))
    await bench.drain(concurrency=3)
    for number in range(3):
        said = f"text {number}"
        assert await output_of(bench, f"job{number}") == f"{said}, in a thread\n{said}, deeper\n{said}, at the end\n"


async def test_the_last_words_of_a_function_that_takes_its_process_down_are_kept(bench: Bench) -> None:
    await bench.hw.jobs.add(functions.print_and_die.using(id="job").job())
    await bench.drain()
    assert await output_of(bench, "job") == "last words\n"
    assert (await bench.hw.jobs.show("job")).error == "the process that ran it was ended by SIGABRT"


async def test_the_progress_that_was_set_last_is_kept(bench: Bench) -> None:
    jobs = [await bench.hw.jobs.add(functions.progress_to_the_end.job()) for _ in range(5)]
    await bench.drain()
    found = [(await job.show()).progress for job in jobs]
    assert [msgspec.json.decode(progress or b"null") for progress in found] == [100] * 5


async def test_failures_are_in_the_workers_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.hw.jobs.add(functions.fail.using(id="a-function", retries=0).job())
    await bench.hw.jobs.add(command="echo sorry; exit 3", id="a-command", retries=0)
    with caplog.at_level(logging.WARNING):
        await bench.drain()
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "a-function" in said
    assert "ValueError: this went wrong" in said
    assert "a-command" in said
    assert "exit code 3: sorry" in said
