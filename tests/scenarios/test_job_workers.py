"""`queuectl` as a new user would use it: real workers, real signals, real deaths."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.queuectl import Queuectl, is_running
from tests.cli.test_serve_together import children
from tests.waiting import expect_soon

LONG = 30.0


@pytest.fixture
def queuectl(tmp_path: Path) -> Queuectl:
    return Queuectl(tmp_path)


def state(queuectl: Queuectl, id: str) -> str:
    """The state of a job."""
    return str(queuectl.expect(0, "show", id, "--json").document()["state"])


def expect_state(queuectl: Queuectl, id: str, expected: str) -> None:
    expect_soon(lambda: state(queuectl, id) == expected, LONG)


def worker_processes(queuectl: Queuectl) -> list[int]:
    return [worker["pid"] for worker in queuectl.expect(0, "worker", "list", "--json").documents()]


def ends_when_asked_again(process: "subprocess.Popen[bytes]") -> bool:
    process.send_signal(signal.SIGTERM)
    return process.poll() is not None


def test_the_documents_commands_work_from_start_to_end(queuectl: Queuectl) -> None:
    queuectl.expect(0, "config", "set", "max-retries", "1")
    queuectl.expect(0, "config", "set", "backoff-base", "1")
    queuectl.expect(0, "enqueue", '{"id":"job1","command":"echo hello"}')
    queuectl.expect(0, "enqueue", '{"id":"job2","command":"echo sorry >&2; exit 2"}')
    with queuectl.workers("--count", "2"):
        assert queuectl.expect(0, "wait", "job1", "--timeout", "30s").out == "job1 completed\n"
        assert queuectl.expect(1, "wait", "job2", "--timeout", "30s").out == "job2 dead\n"
        expect_soon(lambda: len(worker_processes(queuectl)) == 2, LONG)
        assert queuectl.expect(0, "logs", "job1").out == "hello\n"
    dead = queuectl.expect(0, "dlq", "show", "job2", "--json").document()
    assert (dead["attempts"], dead["error"], dead["output"]) == (2, "exit code 2: sorry", "sorry\n")
    assert queuectl.expect(0, "dlq", "retry", "job2").out == "armed again: job2\n"
    assert state(queuectl, "job2") == "pending"
    queuectl.expect(4, "dlq", "retry", "--all")
    assert queuectl.expect(0, "cleanup", "--older-than", "0s", "--json").document() == {"dropped": 1}
    stats = queuectl.expect(0, "stats", "--json").document()
    assert (stats["completed"], stats["dead"]) == (1, 1)
    assert queuectl.expect(0, "worker", "list").out == ""


def test_python_functions_run_from_an_app(queuectl: Queuectl) -> None:
    program = """
        from headwater.jobs import JobApp
        app = JobApp()

        @app.job(retries=0)
        async def greet(name: str) -> str:
            return f"hello {name}"
    """
    (queuectl.folder / "tasks.py").write_text("\n".join(line[8:] for line in program.splitlines()))
    queuectl.expect(0, "enqueue", '{"id": "a", "type": "tasks:greet", "kwargs": {"name": "ada"}}')
    with queuectl.workers("--count", "1", "--app", "tasks:app"):
        queuectl.expect(0, "wait", "a", "--timeout", "30s")
    assert queuectl.expect(0, "show", "a", "--json").document()["result"] == "hello ada"


def test_the_first_signal_lets_a_job_finish(queuectl: Queuectl) -> None:
    gate = queuectl.folder / "gate"
    command = f"while [ ! -e {gate} ]; do sleep 0.02; done; echo finished"
    queuectl.expect(0, "enqueue", json.dumps({"id": "a", "command": command}))
    with queuectl.workers("--count", "1") as process:
        expect_state(queuectl, "a", "processing")
        process.send_signal(signal.SIGTERM)
        queuectl.expect(0, "enqueue", '{"id": "b", "command": "true"}')
        gate.touch()
        assert process.wait(LONG) == 0
    assert (state(queuectl, "a"), state(queuectl, "b")) == ("completed", "pending")


def test_a_second_signal_ends_everything_at_once(queuectl: Queuectl) -> None:
    pid = queuectl.folder / "pid"
    queuectl.expect(0, "enqueue", json.dumps({"id": "a", "command": f"echo $$ > {pid}; sleep 1000"}))
    with queuectl.workers("--count", "1") as process:
        expect_soon(lambda: pid.exists() and bool(pid.read_text().strip()), LONG)
        # Two signals that arrive together are one to the kernel: ask until it is heard.
        process.send_signal(signal.SIGTERM)
        expect_soon(lambda: ends_when_asked_again(process), LONG)
    assert state(queuectl, "a") == "failed"
    assert not is_running(int(pid.read_text()))


def test_workers_are_stopped_from_another_terminal(queuectl: Queuectl) -> None:
    queuectl.expect(0, "enqueue", '{"id": "a", "command": "true"}')
    with queuectl.workers("--count", "2") as process:
        queuectl.expect(0, "wait", "a", "--timeout", "30s")
        expect_soon(lambda: len(worker_processes(queuectl)) == 2, LONG)
        assert queuectl.expect(0, "worker", "stop").out == "asked 2 workers to stop\n"
        assert process.wait(LONG) == 0
    queuectl.expect(4, "worker", "stop")


def test_a_killed_workers_job_comes_back_at_once_and_what_it_ran_is_gone(queuectl: Queuectl) -> None:
    pid = queuectl.folder / "pid"
    command = f"setsid sleep 1000 & echo $! $$ > {pid}; sleep 1000"
    job = {"id": "a", "command": command, "max_retries": 0}
    queuectl.expect(0, "enqueue", json.dumps(job))
    with queuectl.workers("--count", "1"):
        expect_soon(lambda: pid.exists() and len(pid.read_text().split()) == 2, LONG)
        (worker,) = worker_processes(queuectl)
        os.kill(worker, signal.SIGKILL)
        expect_state(queuectl, "a", "dead")
        assert "was ended by SIGKILL" in str(queuectl.expect(0, "show", "a", "--json").document()["error"])
        expect_soon(lambda: not any(is_running(int(number)) for number in pid.read_text().split()), LONG)
        queuectl.expect(0, "enqueue", '{"id": "b", "command": "true"}')
        queuectl.expect(0, "wait", "b", "--timeout", "30s")


def test_a_worker_on_a_copy_of_the_store_leaves_alone_what_the_others_run(queuectl: Queuectl, tmp_path: Path) -> None:
    """In the copy, whoever works on the original seems lost: its jobs are taken over there, and nothing is killed."""
    queuectl.expect(0, "config", "set", "lease", "2")
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    command = f"echo $$ >> {begun}; while [ ! -e {gate} ]; do sleep 0.02; done"
    queuectl.expect(0, "enqueue", json.dumps({"id": "a", "command": command, "max_retries": 0}))
    with queuectl.workers("--count", "1"):
        expect_soon(begun.exists, LONG)
        copy = Queuectl(Path(shutil.copytree(queuectl.folder, tmp_path.with_name("copy"))))
        with copy.workers("--count", "1"):
            copy.expect(0, "enqueue", json.dumps({"id": "b", "command": "true"}))
            copy.expect(0, "wait", "b", "--timeout", "30s")
            expect_state(copy, "a", "dead")
        (process,) = begun.read_text().split()
        assert is_running(int(process))
        gate.touch()
        expect_state(queuectl, "a", "completed")


def test_workers_make_no_new_store_where_theirs_was_moved_away_and_go_on_when_it_is_back(
    queuectl: Queuectl, tmp_path: Path
) -> None:
    queuectl.expect(0, "enqueue", '{"id": "a", "command": "true"}')
    store, away = tmp_path / "headwater.db", tmp_path / "away"
    away.mkdir()
    seen: set[int] = set()

    def have_been_replaced_or_made_another() -> bool:
        seen.update(children(supervisor.pid))
        return store.exists() or len(seen) >= 3

    with queuectl.workers("--count", "1") as supervisor:
        queuectl.expect(0, "wait", "a", "--timeout", "30s")
        files = list(tmp_path.glob("headwater.db*"))
        for file in files:
            file.rename(away / file.name)
        expect_soon(have_been_replaced_or_made_another, LONG)
        assert not store.exists()
        for file in files:
            (away / file.name).rename(file)
        queuectl.expect(0, "enqueue", '{"id": "b", "command": "true"}')
        queuectl.expect(0, "wait", "b", "--timeout", "60s")


def test_what_a_killed_worker_held_comes_back_at_once_when_its_store_was_away_before(
    queuectl: Queuectl, tmp_path: Path
) -> None:
    queuectl.expect(0, "config", "set", "lease", "600")
    queuectl.expect(0, "config", "set", "backoff-base", "1")
    away = tmp_path / "away"
    away.mkdir()
    with queuectl.workers("--count", "1"):
        expect_soon(lambda: len(worker_processes(queuectl)) == 1, LONG)
        (first,) = worker_processes(queuectl)
        files = list(tmp_path.glob("headwater.db*"))
        for file in files:
            file.rename(away / file.name)
        expect_soon(lambda: not is_running(first), LONG)
        for file in files:
            (away / file.name).rename(file)
        queuectl.expect(
            0, "enqueue", json.dumps({"id": "a", "command": "[ -e again ] || { touch again; sleep 1000; }"})
        )
        expect_state(queuectl, "a", "processing")
        expect_soon((tmp_path / "again").exists, LONG)
        (holder,) = [pid for pid in worker_processes(queuectl) if is_running(pid)]
        os.kill(holder, signal.SIGKILL)
        queuectl.expect(0, "wait", "a", "--timeout", "60s")


def test_workers_end_when_their_supervisor_is_killed(queuectl: Queuectl) -> None:
    pid = queuectl.folder / "pid"
    queuectl.expect(0, "enqueue", json.dumps({"id": "a", "command": f"echo $$ > {pid}; sleep 0.5"}))
    with queuectl.workers("--count", "1") as process:
        expect_soon(lambda: pid.exists() and bool(pid.read_text().strip()), LONG)
        (worker,) = worker_processes(queuectl)
        process.kill()
        expect_soon(lambda: not is_running(worker), LONG)
    shown = queuectl.expect(0, "show", "a", "--json").document()
    assert (shown["state"], shown["error"]) == ("completed", None)


def test_a_worker_that_slept_past_its_lease_completes_nothing(queuectl: Queuectl) -> None:
    """The zombie's report is refused; whoever took the job over completes it."""
    gate = queuectl.folder / "gate"
    queuectl.expect(0, "config", "set", "lease", "1")
    queuectl.expect(0, "config", "set", "backoff-base", "1")
    command = f"echo $HEADWATER_JOB_TOKEN >> tokens; while [ ! -e {gate} ]; do sleep 0.02; done"
    queuectl.expect(0, "enqueue", json.dumps({"id": "a", "command": command}))
    with queuectl.workers("--count", "1"):
        expect_state(queuectl, "a", "processing")
        (zombie,) = worker_processes(queuectl)
        os.kill(zombie, signal.SIGSTOP)
        with queuectl.workers("--count", "1"):
            expect_soon(lambda: queuectl.expect(0, "show", "a", "--json").document()["token"] == 2, LONG)
            gate.touch()
            os.kill(zombie, signal.SIGCONT)
            queuectl.expect(0, "wait", "a", "--timeout", "30s")
        shown = queuectl.expect(0, "show", "a", "--json").document()
        assert (shown["state"], shown["token"], shown["attempts"]) == ("completed", 2, 2)
    outcomes = [attempt["outcome"] for attempt in shown["attempt_list"]]
    assert outcomes == ["failed", "completed"]


def test_a_schedule_runs_without_anybody_asking(queuectl: Queuectl) -> None:
    job = '{"command": "echo tick >> ticks"}'
    queuectl.expect(0, "schedule", "add", "often", job, "--every", "0.2s")
    ticks = queuectl.folder / "ticks"
    with queuectl.workers("--count", "1"):
        expect_soon(lambda: ticks.exists() and len(ticks.read_text().splitlines()) >= 3, LONG)
    assert queuectl.expect(0, "schedule", "list", "--json").document()["last_id"]


@pytest.mark.parametrize("every", ["0s", "0", "0m"])
def test_a_schedule_of_no_time_at_all_is_refused_and_says_why(queuectl: Queuectl, every: str) -> None:
    refused = queuectl.expect(2, "schedule", "add", "often", '{"command": "true"}', "--every", every)
    assert f"--every has to be above 0, and is {every}" in refused.err
    assert "often" not in queuectl.expect(0, "schedule", "list", "--json").out


def test_a_job_that_runs_at_most_once_is_not_started_again_behind_thousands_when_its_worker_is_killed(
    queuectl: Queuectl,
) -> None:
    program = """
        import asyncio
        from pathlib import Path
        from headwater.jobs import JobApp
        app = JobApp()

        @app.job(retries=0)
        async def long() -> None:
            with Path("starts").open("a") as file:
                file.write("started\\n")
            await asyncio.sleep(1_000)

        @app.job
        async def quick() -> None: ...
    """
    (queuectl.folder / "tasks.py").write_text("\n".join(line[8:] for line in program.splitlines()))
    (queuectl.folder / "quick.ndjson").write_text('{"type": "tasks:quick"}\n' * 2_100)
    starts = queuectl.folder / "starts"
    with queuectl.workers("--count", "1", "--concurrency", "4", "--app", "tasks:app"):
        queuectl.expect(0, "enqueue", '{"id": "long", "type": "tasks:long", "retries": 0}')
        expect_soon(starts.exists, LONG)
        queuectl.expect(0, "enqueue", "--file", "quick.ndjson")
        expect_soon(lambda: queuectl.expect(0, "stats", "--json").document()["completed"] == 2_100, 4 * LONG)
        (worker,) = worker_processes(queuectl)
        os.kill(worker, signal.SIGKILL)
        expect_state(queuectl, "long", "dead")
    assert starts.read_text() == "started\n"
