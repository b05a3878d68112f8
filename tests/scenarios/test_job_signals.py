"""Signals that jobs send to those who run them: a service is ended by whoever operates it, and by no job."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import headwater
from headwater.config import Durability
from headwater.errors import StoreFull
from headwater.log.job_operations import Rescue
from headwater.log.operations import Operation
from headwater.worker import supervisor as supervising
from headwater.worker.supervisor import Fleet, Supervisor
from tests.cli.queuectl import Queuectl, is_running
from tests.waiting import expect_soon, expect_soon_async
from tests.worker.bench import Bench

LONG = 60.0
SOFT = ("TERM", "INT", "HUP", "USR1", "USR2")
HARD = ("QUIT", "KILL")

TASKS = """
import os, signal
from headwater.jobs import JobApp
app = JobApp()

@app.job(retries=0)
def to_worker(name: str) -> str:
    os.kill(os.getppid(), getattr(signal, f"SIG{name}"))
    return "sent"

@app.job(retries=0)
async def to_worker_async(name: str) -> str:
    os.kill(os.getppid(), getattr(signal, f"SIG{name}"))
    os.kill(os.getppid(), getattr(signal, f"SIG{name}"))
    return "sent"

@app.job(retries=0)
def to_runner(name: str) -> str:
    os.kill(os.getpid(), getattr(signal, f"SIG{name}"))
    return "sent"
"""


@pytest.fixture
def queuectl(tmp_path: Path) -> Queuectl:
    (tmp_path / "tasks.py").write_text(TASKS)
    return Queuectl(tmp_path)


def function_job(name: str, signal_name: str) -> dict[str, object]:
    return {"id": f"{name}-{signal_name}", "type": f"tasks:{name}", "args": [signal_name]}


def mixed(queuectl: Queuectl, jobs: list[dict[str, object]]) -> list[str]:
    """Enqueue jobs, a healthy neighbour behind each; the names of the neighbours."""
    lines, neighbours = [], []
    for number, job in enumerate(jobs):
        neighbours.append(f"neighbour-{number}")
        lines += [json.dumps(job), json.dumps({"id": neighbours[-1], "command": "true"})]
    queuectl.expect(0, "enqueue", *lines)
    return neighbours


def test_no_signal_that_a_job_sends_its_worker_ends_the_service(queuectl: Queuectl) -> None:
    soft: list[dict[str, object]] = [
        # Twice, and what follows must still be finished: two alike are no order to end at once.
        {"id": f"command-{name}", "command": f"kill -{name} $PPID; kill -{name} $PPID; echo done", "retries": 0}
        for name in SOFT
    ]
    soft += [function_job("to_worker", "TERM"), function_job("to_worker_async", "INT")]
    soft += [function_job("to_worker", "USR1")]
    hard: list[dict[str, object]] = [
        {"id": f"command-{name}", "command": f"kill -{name} $PPID; sleep 1000", "retries": 0} for name in HARD
    ]
    hard += [function_job("to_runner", name) for name in ("TERM", "KILL")]
    neighbours = mixed(queuectl, soft + hard)
    with queuectl.workers("--count", "1", "--app", "tasks:app") as service:
        for id in neighbours:
            queuectl.expect(0, "wait", id, "--timeout", "60s")
        for job in soft:
            queuectl.expect(0, "wait", str(job["id"]), "--timeout", "60s")
            shown = queuectl.expect(0, "show", str(job["id"]), "--json").document()
            assert (shown["state"], shown["attempts"]) == ("completed", 1), shown
        for job in hard:
            queuectl.expect(1, "wait", str(job["id"]), "--timeout", "60s")
        assert service.poll() is None, "the service goes on"


@pytest.mark.parametrize(("name", "code"), [("TERM", 0), ("HUP", 0), ("INT", 130)])
def test_whoever_operates_the_service_ends_it_and_running_jobs_finish(queuectl: Queuectl, name: str, code: int) -> None:
    gate = queuectl.folder / "gate"
    command = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    queuectl.expect(0, "enqueue", json.dumps({"id": "runs", "command": command}))
    with queuectl.workers("--count", "1") as service:
        expect_soon(lambda: shown_state(queuectl, "runs") == "processing", LONG)
        service.send_signal(signal.SIGUSR1)
        service.send_signal(signal.SIGUSR2)
        service.send_signal(getattr(signal, f"SIG{name}"))
        gate.touch()
        assert service.wait(LONG) == code
    assert shown_state(queuectl, "runs") == "completed"


def shown_state(queuectl: Queuectl, id: str) -> str:
    return str(queuectl.expect(0, "show", id, "--json").document()["state"])


async def test_a_worker_that_a_job_has_stopped_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one worker nobody else would run what it held. One that is stopped ends with the service, too."""
    monkeypatch.setattr(supervising, "LOOK_SECONDS", 0.05)
    store = str(tmp_path / "log.db")
    async with headwater.open(store) as hw:
        await hw.jobs.add(command="kill -STOP $PPID; sleep 1000", id="stops", retries=0)
        await hw.jobs.add(command="true", id="neighbour")
        arguments = ("--store", store, "--database", "main", "--concurrency", "1")
        fleet = Fleet(database="main", count=1, arguments=arguments, stopped_seconds_max=0.2)
        supervisor = Supervisor(hw.jobs_service, fleet)
        running = asyncio.get_running_loop().create_task(supervisor.run())
        assert await hw.jobs.wait("neighbour", LONG) == "completed"
        assert await hw.jobs.wait("stops", LONG) == "dead"
        ((_, process),) = supervisor.workers()
        os.kill(process, signal.SIGSTOP)
        supervisor.stop()
        assert await asyncio.wait_for(running, LONG) == 0
        assert not is_running(process)


# Read by every Python that is started with this folder in its path: a worker spins from a signal on, and hears nothing.
SPIN = """
import signal, sys
def spin(number, frame):
    while True:
        pass
if "run-worker" in sys.orig_argv:
    signal.signal(signal.SIGALRM, spin)
"""


@asynccontextmanager
async def spinning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **limits: float
) -> AsyncIterator[tuple[headwater.Headwater, Supervisor, "asyncio.Task[int]", int]]:
    """A service whose only worker spins, with a job that it holds."""
    (folder / "sitecustomize.py").write_text(SPIN)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    store = str(folder / "log.db")
    async with headwater.open(store) as hw:
        await hw.jobs.configure("lease", 1)
        await hw.jobs.add(command=f"while [ ! -e {folder}/gate ]; do sleep 0.02; done", id="held")
        arguments = ("--store", store, "--database", "main", "--concurrency", "1")
        supervisor = Supervisor(hw.jobs_service, Fleet(database="main", count=1, arguments=arguments, **limits))
        running = asyncio.get_running_loop().create_task(supervisor.run())

        async def holds() -> bool:
            return (await hw.jobs.show("held")).state == "processing"

        await expect_soon_async(holds, LONG)
        ((_, process),) = supervisor.workers()
        os.kill(process, signal.SIGALRM)
        yield hw, supervisor, running, process


async def test_a_worker_that_spins_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with spinning(tmp_path, monkeypatch, silent_seconds_max=2.0) as (hw, supervisor, running, process):
        (tmp_path / "gate").touch()
        assert await hw.jobs.wait("held", LONG) == "completed"
        await hw.jobs.add(command="true", id="later")
        assert await hw.jobs.wait("later", LONG) == "completed"

        async def is_replaced() -> bool:
            return not is_running(process) and process not in dict(supervisor.workers()).values()

        await expect_soon_async(is_replaced, LONG)
        supervisor.stop()
        assert await asyncio.wait_for(running, LONG) == 0


async def test_the_second_signal_ends_a_worker_that_spins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with spinning(tmp_path, monkeypatch, end_seconds_max=0.5) as (hw, supervisor, running, process):
        supervisor.stop()
        supervisor.stop()
        assert await asyncio.wait_for(running, LONG) == 0
        assert not is_running(process)
        assert (await hw.jobs.show("held")).state in ("failed", "pending")


async def test_a_worker_whose_service_may_not_write_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full keeps every worker from its lease: it is none's fault, and none is ended for it."""
    async with spinning(tmp_path, monkeypatch, silent_seconds_max=2.0) as (hw, supervisor, running, process):
        refused: list[object] = []
        run = hw.jobs_service.run

        async def refuse(operation: Operation, durability: Durability | None = None) -> object:
            if isinstance(operation, Rescue):
                refused.append(operation)
                raise StoreFull("the disk is full")
            return await run(operation, durability)

        monkeypatch.setattr(hw.jobs_service, "run", refuse)

        async def was_refused() -> bool:
            return len(refused) >= 2

        await expect_soon_async(was_refused, LONG)
        assert is_running(process)
        supervisor.stop()
        monkeypatch.undo()
        assert await asyncio.wait_for(running, LONG) == 0


async def test_an_async_function_that_stops_its_process_is_ended_beside_its_neighbours(tmp_path: Path) -> None:
    """Its loop cannot end it: the worker does, at one of its heartbeats."""
    async with headwater.open(str(tmp_path / "log.db"), housekeeping=False) as hw:
        bench = Bench(hw, tmp_path)
        await hw.jobs.add(type="stop_itself_async", id="stops", retries=0)
        async with bench.running(app="tests.worker.nasty_functions:app", lease=1.0, concurrency=2):
            assert await hw.jobs.wait("stops", LONG) == "dead"
            await hw.jobs.add(type="healthy_async", kwargs={"number": 1}, id="later")
            assert await hw.jobs.wait("later", LONG) == "completed"
