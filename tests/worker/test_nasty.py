"""A job's mistake is its own: nasty functions and commands, each beside healthy neighbours that must finish at their
first attempt. None stops the worker, holds up its neighbours, or keeps it from ending when it is asked to."""

import errno
import inspect
import os
from pathlib import Path

import msgspec
import pytest

from headwater import NewJob
from headwater.log.job_operations import Enqueue
from headwater.model.job import FINISHED, JobState
from tests.faults.nasty_commands import NASTY as NASTY_COMMANDS
from tests.waiting import expect_soon_async
from tests.worker import nasty_functions
from tests.worker.bench import Bench
from tests.worker.nasty_functions import NASTY

APP = "tests.worker.nasty_functions:app"
LONG = 120.0

ARGV: dict[str, tuple[str, ...]] = {
    "empty program": ("",),
    "empty program with arguments": ("", "-c", "true"),
    "NUL in the program": ("tr\x00ue",),
    "NUL in an argument": ("echo", "a\x00b"),
    "missing": ("/no/such/program",),
    "not in the path": ("surely-not-there",),
    "a folder": ("/",),
    "no permission": ("/etc/passwd",),
    "a name that is too long": ("x" * 10_000,),
    "more arguments than fit": ("true", *(["x" * 100_000] * 40)),
    "dots": ("..",),
    "no program but a file": ("/dev/null",),
}


def arguments(number: int) -> msgspec.Raw:
    return msgspec.Raw(f"[[{number}],{{}}]".encode())


def test_the_corpus_is_large() -> None:
    assert len(NASTY) + len(ARGV) + len(NASTY_COMMANDS) >= 60


async def test_nasty_functions_leave_their_neighbours_alone(bench: Bench) -> None:
    jobs = []
    for number, name in enumerate(NASTY):
        jobs.append(NewJob(id=f"nasty-{name}", type=name, retries=0, timeout=1.0))
        jobs.append(NewJob(id=f"plain-{number}", type="healthy", arguments=arguments(number), retries=3))
        jobs.append(NewJob(id=f"async-{number}", type="healthy_async", arguments=arguments(number), retries=3))
    jobs.append(NewJob(id="command", command="true"))
    await bench.hw.jobs.add_many(jobs)
    async with bench.running(app=APP):
        ended = {job.id: await bench.hw.jobs.wait(job.id, LONG) for job in jobs}
    assert set(ended.values()) <= FINISHED
    shown = {name: await bench.hw.jobs.show(name) for name in ended}
    neighbours = {name: job for name, job in shown.items() if not name.startswith("nasty-")}
    troubled = {name: (job.state, job.attempts, job.error) for name, job in neighbours.items() if job.attempts != 1}
    assert not troubled
    assert {job.state for job in neighbours.values()} == {JobState.COMPLETED}
    results = [msgspec.json.decode(shown[f"plain-{number}"].result or b"null") for number in range(len(NASTY))]
    assert [result[0] for result in results] == list(range(len(NASTY)))
    assert len({msgspec.json.encode(result[1:]) for result in results}) == 1
    assert {job.attempts for name, job in shown.items() if name.startswith("nasty-")} == {1}


async def test_nasty_async_functions_leave_those_alone_that_share_their_loop(bench: Bench) -> None:
    """Three that wait in the same loop at that moment: they finish at their first attempt, as if nothing had been."""
    names = [name for name in NASTY if inspect.iscoroutinefunction(getattr(nasty_functions, name, None))]
    assert len(names) > 20
    folder = str(bench.folder)
    async with bench.running(app=APP, concurrency=8):
        for number, name in enumerate(names):
            work = msgspec.Raw(msgspec.json.encode([[folder, number], {}]))
            patient = [await bench.hw.jobs.add(NewJob(type="patient", arguments=work)) for _ in range(3)]

            async def run() -> bool:
                shown = [await job.show() for job in patient]  # noqa: B023
                return (
                    all(job.state is JobState.PROCESSING for job in shown)
                    and (
                        bench.folder / f"begun-{number}"  # noqa: B023
                    ).exists()
                )

            await expect_soon_async(run, LONG)
            nasty = await bench.hw.jobs.add(NewJob(type=name, retries=0, timeout=1.0))
            assert await nasty.wait(LONG) in FINISHED, name
            (bench.folder / f"gate-{number}").touch()
            assert [await job.wait(LONG) for job in patient] == [JobState.COMPLETED] * 3, name
            assert [(await job.show()).attempts for job in patient] == [1] * 3, name
            assert (await nasty.show()).attempts == 1


async def test_nasty_commands_leave_their_neighbours_alone(bench: Bench) -> None:
    jobs = []
    for number, argv in enumerate(ARGV.values()):
        jobs.append(NewJob(id=f"nasty-{number}", argv=argv, retries=0))
        jobs.append(NewJob(id=f"neighbour-{number}", argv=("true",), retries=3))
    await bench.hw.jobs_service.run(Enqueue(database="main", jobs=jobs))
    async with bench.running(app="", concurrency=2):
        ended = {job.id: await bench.hw.jobs.wait(job.id, LONG) for job in jobs}
    assert {state for name, state in ended.items() if name.startswith("nasty")} == {JobState.DEAD}
    for name in (name for name in ended if name.startswith("neighbour")):
        shown = await bench.hw.jobs.show(name)
        assert (shown.state, shown.attempts) == (JobState.COMPLETED, 1)


async def test_a_worker_that_lacks_descriptors_gives_jobs_back_and_charges_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first few commands cannot be started here; none of them loses an attempt, and all are run in the end."""
    spawn = os.posix_spawnp
    refused: list[int] = []

    def refuse(*arguments: object, **options: object) -> int:
        if len(refused) < 3:
            refused.append(1)
            raise OSError([errno.EMFILE, errno.EAGAIN, errno.ENOMEM][len(refused) - 1], "lacking")
        return spawn(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "posix_spawnp", refuse)
    jobs = [await bench.hw.jobs.add(command="true", retries=0) for _ in range(5)]
    await bench.drain(app="")
    assert len(refused) == 3
    assert {((await job.show()).state, (await job.show()).attempts) for job in jobs} == {(JobState.COMPLETED, 1)}


async def test_the_folder_of_the_tests_is_what_functions_find(bench: Bench) -> None:
    job = await bench.hw.jobs.add(NewJob(type="healthy", arguments=arguments(7)))
    await bench.drain(app=APP)
    assert (await job.result(5))[:2] == [7, str(Path.cwd())]
