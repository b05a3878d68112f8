"""Functions are enqueued from wherever a program is: a loop, a thread, a plain script, a job."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.errors import Closed, InvalidOption
from headwater.jobs import JobApp
from headwater.log.job_operations import NewJob
from headwater.model.names import DATABASE_DEFAULT
from headwater.services.job_functions import EnqueuedJob
from headwater.services.jobs import JobHandle
from tests.cli.program import environment
from tests.cli.queuectl import Queuectl
from tests.forks import CHILD_SECONDS, in_a_child


def send(to: str) -> str:
    return to


def app_on(path: Path) -> JobApp:
    app = JobApp(str(path), housekeeping=False)
    app.job(name="tasks:send", retries=7, queue="mail")(send)
    return app


async def ids(path: Path) -> list[str]:
    async with headwater.open(str(path), housekeeping=False) as hw:
        return sorted(job.id for job in await hw.jobs.list())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "headwater.db"


@pytest.mark.parametrize("nameless", [partial(send, "ada"), object.__new__(type("Caller", (), {"__call__": send}))])
def test_what_has_no_name_to_be_found_by_is_no_job(path: Path, nameless: Any) -> None:
    with pytest.raises(InvalidOption, match="a name of its own"):
        JobApp(str(path), housekeeping=False).job(nameless)


# ── without async ──


def test_a_plain_program_enqueues_without_async(path: Path) -> None:
    app = app_on(path)
    function = app.functions["tasks:send"]
    with app:
        handle = function.using(id="a").enqueue_sync("ada")
        assert (handle.id, handle.duplicate) == ("a", False)
    function.using(id="b").enqueue_sync("bob")
    app.close()
    assert asyncio.run(ids(path)) == ["a", "b"]


def test_a_script_that_never_opens_or_closes_anything_loses_no_job(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from headwater.jobs import JobApp\napp = JobApp()\n@app.job\ndef send(to: str) -> None: ...\n"
        "print(send.using(id='a').enqueue_sync('ada').id)\n"
    )
    ended = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment({}), capture_output=True, text=True, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("a\n", "")
    assert asyncio.run(ids(tmp_path / "headwater.db")) == ["a"]


async def test_inside_a_running_loop_it_says_what_to_write_instead(path: Path) -> None:
    app = app_on(path)
    function = app.functions["tasks:send"]
    with pytest.raises(InvalidOption, match=r"await function\.enqueue"):
        function.enqueue_sync("ada")
    async with app:
        with pytest.raises(InvalidOption, match=r"await function\.enqueue"):
            function.enqueue_sync("ada")
        handle = await asyncio.to_thread(function.using(id="thread").enqueue_sync, "ada")
        assert handle.id == "thread"
        assert [job.id for job in await app.jobs.list()] == ["thread"], "the open app is used, not a second one"


async def test_an_app_that_is_not_open_says_how_to_open_it(path: Path) -> None:
    with pytest.raises(Closed, match="async with app"):
        await app_on(path).functions["tasks:send"].enqueue("ada")
    app = app_on(path)
    async with app:
        with pytest.raises(InvalidOption, match="open already"):
            async with app:
                pass


def test_a_child_of_a_process_that_has_the_store_open_is_refused_it(path: Path) -> None:
    """It would have none of its locks: its parent would take itself for the last, and delete what it had written."""
    app = app_on(path)
    function = app.functions["tasks:send"]
    function.using(id="parent").enqueue_sync("ada")
    said = in_a_child(lambda: function.using(id="child").enqueue_sync("bob"))
    assert said.startswith("Forked: "), said
    assert "spawn" in said
    function.using(id="again").enqueue_sync("eve")
    app.close()
    assert in_a_child(lambda: function.using(id="behind").enqueue_sync("bob")) == "nothing"
    assert asyncio.run(ids(path)) == ["again", "behind", "parent"]


# ── which store ──


def test_the_store_is_what_the_app_names_or_else_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HEADWATER_STORE", str(tmp_path / "named.db"))
    assert JobApp().store == str(tmp_path / "named.db")
    with app_on(tmp_path / "said.db") as app:
        assert app.store == str(tmp_path / "said.db")
    assert "goes before HEADWATER_STORE" in caplog.text
    monkeypatch.delenv("HEADWATER_STORE")
    assert JobApp().store == "headwater.db"


TASKS = """
import asyncio
from headwater.jobs import JobApp

app = JobApp({store})

@app.job(retries=0)
def plain() -> str:
    return child.using(id="of-plain").enqueue_sync(1).id

@app.job(retries=0)
def loops() -> str:
    async def go() -> str:
        return (await child.using(id="of-loop").enqueue(2)).id
    return asyncio.run(go())

@app.job(retries=0)
async def asynchronous() -> str:
    handle = await child.using(id="of-async").enqueue(3)
    return await handle.result(30)

@app.job(retries=4, queue="children")
async def child(number: int) -> str:
    return f"child {{number}}"
"""


def test_a_job_enqueues_others_into_the_store_of_its_worker(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    (tmp_path / "tasks.py").write_text(TASKS.format(store=""))
    for name in ("plain", "loops", "asynchronous"):
        queuectl.expect(0, "enqueue", "--store", "other.db", "--type", f"tasks:{name}", "--id", name)
    with queuectl.workers("--store", "other.db", "--app", "tasks:app", "--count", "1", "--concurrency", "4"):
        names = ("plain", "loops", "asynchronous")
        queuectl.expect(0, "wait", *names, "--store", "other.db", "--timeout", "60s")
        children = ("of-plain", "of-loop", "of-async")
        queuectl.expect(0, "wait", *children, "--store", "other.db", "--timeout", "60s")
    assert queuectl.expect(0, "show", "asynchronous", "--store", "other.db", "--json").document()["result"] == "child 3"
    shown = queuectl.expect(0, "show", "of-plain", "--store", "other.db", "--json").document()
    assert (shown["queue"], shown["max_retries"]) == ("children", 4)
    assert not (tmp_path / "headwater.db").exists(), "nothing goes anywhere else"


def test_what_a_worker_knows_of_its_functions_holds_for_whoever_names_them(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    (tmp_path / "tasks.py").write_text(TASKS.format(store=""))
    queuectl.expect(0, "worker", "start", "--app", "tasks:app", "--count", "1", "--drain", PYTHONPATH=str(tmp_path))
    queuectl.expect(0, "enqueue", '{"id": "a", "type": "tasks:child", "args": [1]}')
    shown = queuectl.expect(0, "show", "a", "--json").document()
    assert (shown["queue"], shown["max_retries"]) == ("children", 4)


def test_a_worker_on_another_store_than_its_app_names_says_so_and_ends(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    (tmp_path / "tasks.py").write_text(TASKS.format(store=repr(str(tmp_path / "mine.db"))))
    arguments = ("worker", "start", "--app", "tasks:app", "--count", "1", "--drain")
    ended = queuectl.run_process(*arguments, "--store", "other.db")
    assert ended.code == 1
    assert "mine.db" in ended.err
    assert "--store" in ended.err
    assert queuectl.run_process(*arguments, "--store", "mine.db").code == 0


# ── schedules that are declared in code ──


async def test_a_schedule_that_is_declared_is_kept_and_changed_and_stays_paused(path: Path) -> None:
    for cron, paused_before in (("0 3 * * *", False), ("0 3 * * *", True), ("0 4 * * *", True)):
        app = app_on(path)
        app.schedule("nightly", app.functions["tasks:send"].job("ada"), cron=cron)
        async with app:
            (schedule,) = await app.jobs.schedules()
            assert (schedule.cron, schedule.job.queue, schedule.paused) == (cron, "mail", paused_before)
            assert await app.jobs.declare(app.schedules) == [], "what is as declared is left alone"
            await app.jobs.pause_schedule("nightly")
    with pytest.raises(InvalidOption, match="already"):
        app.schedule("nightly", app.functions["tasks:send"].job("ada"), cron="@daily")


WRONG_SCHEDULES: dict[str, tuple[str, dict[str, Any]]] = {
    "a minute that no hour has": ("cron minute", {"cron": "61 * * * *"}),
    "a day that never comes": ("no day that ever comes", {"cron": "0 0 30 2 *"}),
    "two kinds of times": ("either cron or every", {"cron": "@daily", "every": 60}),
    "no times": ("either cron or every", {}),
    "too often": ("every must be", {"every": 0.01}),
    "no such time zone": ("no such time zone", {"every": 60, "timezone": "Mars/Base"}),
    "no name": ("schedule", {"name": "", "every": 60}),
    "a function in place of its call": ("NewJob is expected", {"job": send, "every": 60}),
    "a job of its own id": ("leave out id", {"job": NewJob(command="true", id="a"), "every": 60}),
}


@pytest.mark.parametrize("case", WRONG_SCHEDULES)
def test_a_schedule_that_is_wrong_is_refused_where_it_is_declared(path: Path, case: str) -> None:
    app = app_on(path)
    told, wrong = WRONG_SCHEDULES[case]
    with pytest.raises(InvalidOption, match=f"schedule '(nightly)?': .*{told}"):
        app.schedule(**{"name": "nightly", "job": app.functions["tasks:send"].job("ada"), **wrong})
    assert app.schedules == []


async def test_an_app_that_cannot_bring_its_schedules_to_the_store_is_closed_again(path: Path) -> None:
    app = app_on(path)
    app.schedule("unfit", NewJob(type="command:backup"), every=60)  # The store knows that this type has no command.
    with pytest.raises(InvalidOption, match="needs a command"):
        await app.__aenter__()
    app.schedules.clear()
    async with app:
        assert await app.jobs.schedules() == []


def test_a_worker_that_cannot_bring_the_schedules_of_its_app_to_the_store_says_so_and_ends(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    declared = """
from headwater import NewJob
app.schedule("unfit", NewJob(type="command:backup"), every=3600)
"""
    (tmp_path / "tasks.py").write_text(TASKS.format(store="") + declared)
    ended = queuectl.run_process("worker", "start", "--app", "tasks:app", "--count", "1", "--drain")
    assert ended.code == 1
    assert "cannot be brought to the store" in ended.err
    assert "needs a command" in ended.err
    assert "never retrieved" not in ended.err


def test_a_worker_brings_the_schedules_of_its_app_to_the_store(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    declared = 'app.schedule("often", child.job(7), every=3600)\n'
    (tmp_path / "tasks.py").write_text(TASKS.format(store="") + declared)
    queuectl.expect(0, "worker", "start", "--app", "tasks:app", "--count", "1", "--drain", PYTHONPATH=str(tmp_path))
    schedule = queuectl.expect(0, "schedule", "list", "--json").document()
    assert (schedule["name"], schedule["every_seconds"], schedule["job"]["type"]) == ("often", 3_600, "tasks:child")
    queuectl.expect(0, "schedule", "run", "often")
    (job,) = queuectl.expect(0, "list", "--json").documents()
    assert (job["type"], job["queue"], job["arguments"], job["retries"]) == ("tasks:child", "children", [[7], {}], 4)


# ── forks ──


def in_the_child_of(app: JobApp, work: Callable[[], object]) -> str:
    """What a child says that is forked where the app is open on a loop, and which enqueues as the parent does then."""

    async def program() -> str:
        async with app:
            await app.functions["tasks:send"].using(id="before").enqueue("ada")
            said = await asyncio.to_thread(in_a_child, work)
            await app.functions["tasks:send"].using(id="behind").enqueue("ada")
        return said

    return asyncio.run(program())


@pytest.mark.parametrize("way", ["enqueue_sync", "enqueue", "list", "handle"])
def test_a_child_of_an_open_app_is_told_to_open_it_anew(path: Path, way: str) -> None:
    """It has a copy of the loop, which looks as if it ran: whoever waits for that waits for ever."""
    app = app_on(path)
    function = app.functions["tasks:send"].using(id="child")
    handles: list[EnqueuedJob] = []

    async def program() -> str:
        async with app:
            handles.append(await asyncio.to_thread(app.functions["tasks:send"].using(id="parent").enqueue_sync, "ada"))
            said = await asyncio.to_thread(in_a_child, ways[way])
            await app.functions["tasks:send"].using(id="behind").enqueue("ada")
        return said

    ways: dict[str, Callable[[], object]] = {
        "enqueue_sync": lambda: function.enqueue_sync("bob"),
        "enqueue": lambda: asyncio.run(function.enqueue("bob")),
        "list": lambda: asyncio.run(app.jobs.list()),
        "handle": lambda: handles[0].result(CHILD_SECONDS),
    }
    said = asyncio.run(program())
    assert said.startswith("Forked: this JobApp was opened by the process that this one"), said
    assert "with app:" in said
    assert asyncio.run(ids(path)) == ["behind", "parent"]


@pytest.mark.parametrize("way", ["async", "sync"])
def test_a_child_of_an_open_app_is_refused_its_store(path: Path, way: str) -> None:
    app = app_on(path)
    function = app.functions["tasks:send"].using(id="child")

    async def in_a_loop() -> None:
        async with app:
            await function.enqueue("bob")

    def work() -> None:
        if way == "async":
            asyncio.run(in_a_loop())
        with app:
            function.enqueue_sync("bob")

    said = in_the_child_of(app, work)
    assert said.startswith("Forked: "), said
    assert "spawn" in said
    assert asyncio.run(ids(path)) == ["before", "behind"]


def test_a_child_waits_for_no_lock_that_a_thread_of_its_parent_has(path: Path) -> None:
    app = app_on(path)
    with app._making:
        said = in_a_child(lambda: app.functions["tasks:send"].using(id="child").enqueue_sync("bob"))
    assert said == "nothing"
    assert asyncio.run(ids(path)) == ["child"]


def test_a_child_of_an_open_store_is_told_of_its_jobs_too(path: Path) -> None:
    async def program() -> str:
        async with headwater.open(str(path), housekeeping=False) as hw:
            jobs = hw.jobs
            return await asyncio.to_thread(in_a_child, lambda: asyncio.run(jobs.list()))

    assert asyncio.run(program()).startswith("Forked: this store was opened by the process")


def test_a_job_that_a_child_of_a_runner_has_from_its_parent_is_not_waited_for(path: Path) -> None:
    app = app_on(path)
    app.work_for(str(path), DATABASE_DEFAULT)

    async def enqueue() -> JobHandle:
        return await app.functions["tasks:send"].using(id="parent").enqueue("ada")

    async def enqueue_anew() -> None:
        await app.functions["tasks:send"].using(id="child").enqueue("bob")

    handle = asyncio.run(enqueue())
    assert in_a_child(lambda: asyncio.run(handle.wait())).startswith("Forked: this JobApp was opened")
    assert in_a_child(lambda: asyncio.run(enqueue_anew())).startswith("Forked: ")
    app.close()
    assert asyncio.run(ids(path)) == ["parent"]
