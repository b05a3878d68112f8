"""What a job is called chooses among the functions that an operator allowed. It never finds one.

The worker imports `tempting.py`; each name of the corpus would run something if any part of it were looked up.
"""

import asyncio
from pathlib import Path

import msgspec
import pytest

from headwater import NewJob
from headwater.errors import InvalidOption
from headwater.jobs import JobApp
from headwater.log.job_operations import Enqueue, FireSchedules, PutSchedule
from headwater.model.job import JobState
from headwater.worker.loading import FunctionSources, load_functions
from tests.worker import functions, tempting
from tests.worker.bench import Bench

LIB = "tests.worker.tempting"

REACHABLE = (
    *("os.system", "os:system", "system", "os.popen", "os.execvp", "os.path.os.system", "os.__dict__"),
    *("subprocess.run", "subprocess:run", "subprocess.os.system", "subprocess.Popen", "pathlib.os.system"),
    *("pathlib.Path", "pathlib.Path.touch", "pathlib.Path.write_text", "Callable", "Any", "partial"),
    *("leave_mark", "leave_mark_later", "leave_mark.__call__", "leave_mark.__globals__", "leave_mark.__code__"),
    *("Tempting", "Tempting.method", "Tempting.for_class", "Tempting.static", "Tempting.__init__", "Tempting.mro"),
    *("callback", "callback.__call__", "Callback", "Callback.__call__", "partly", "partly.func", "unnamed", "<lambda>"),
    *("table", "table.leave_mark", "table['leave_mark']", "anything", "anything.at.all", "app", "app.job", "app.allow"),
    *(
        "welcome.function",
        "welcome.__call__",
        "welcome.__wrapped__",
        "welcome.app.allow",
        "welcome.enqueue",
        "welcome ",
    ),
    *(
        " welcome",
        "Welcome",
        "WELCOME",
        "welcome()",
        "welcome\x00",
        "welcome\n",
        "welcome;leave_mark",
        "welcome,leave_mark",
    ),
    *("named", "named-by-hand", "add", "shout", "plain", "JobApp", "JobApp.job", "MARK", "__all__", "__getattr__"),
    *("__builtins__", "__builtins__.eval", "__builtins__.exec", "__builtins__.__import__", "__loader__.load_module"),
    *("__spec__.loader", "__class__", "__class__.__base__.__subclasses__", "__dict__", "__doc__", "__file__"),
    *(
        "w\u0435lcome",
        "\uff57elcome",
        "welcome\u200b",
        "we\u0301lcome",
        "\ufeffwelcome",
        "welcom\u0435",
        "\uab83elcome",
    ),
)

ANYWHERE = (
    *("os:system", "os.system", "posix:system", "nt:system", "subprocess:run", "subprocess:check_output"),
    *("builtins:eval", "builtins:exec", "builtins:__import__", "builtins:open", "pickle:loads", "marshal:loads"),
    *("importlib:import_module", "runpy:run_path", "runpy:run_module", "ctypes:CDLL", "shutil:rmtree", "code:interact"),
    *("types:FunctionType", "asyncio:run", "asyncio:create_subprocess_shell", "pty:spawn", "webbrowser:open"),
    *("headwater.worker.runner:main", "headwater.worker.processes:kill_group", "headwater.cli:main"),
    *("tests.worker.functions:plain", "tests.worker.functions:add", "tests.worker.functions:die", "tests:worker"),
    *("tests.worker.tempting", "tests.worker.tempting:", ":welcome", ":", "::", "", ".", "..", "/", "*", "tests.*:*"),
    *("tests/worker/tempting.py:welcome", "file:///bin/sh", "../tempting:welcome", "tests.worker:tempting.welcome"),
    *("tests.worker.tempting.welcome", "tests.worker.tempting:welcome:welcome", "TESTS.WORKER.TEMPTING:WELCOME"),
    *(
        "shell ",
        "Shell",
        "SHELL",
        "sh\u0435ll",
        "shell\x00",
        "sh",
        "/bin/sh",
        "`id`",
        "$(id)",
        "; id",
        "| id",
        "%s",
        "{0}",
    ),
    *("{0.__class__}", "None", "null", "0", "true", "[]", "lambda: 0", "x" * 100_000, "a." * 50_000, "é" * 1_000),
    *("'; DROP TABLE hw_jobs; --", "\ud7ff", "\U0001f600", "\r\nx", "cos\nsystem\n(S'id'\ntR.", "gASVHQAAAAAAAAA="),
)

NAMES = (*dict.fromkeys([*(f"{LIB}:{name}" for name in REACHABLE), *ANYWHERE]),)
ALLOWED = {f"{LIB}:welcome", "named-by-hand"}


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is there when something ran; the runner inherits where it would be."""
    path = tmp_path / "mark"
    monkeypatch.setenv("TEMPTING_MARK", str(path))
    return path


def hostile(name: str, mark: Path) -> NewJob:
    """A job of this type whose arguments suit a shell, an evaluator and a file."""
    arguments = msgspec.Raw(msgspec.json.encode([[f"touch {mark}"], {}]))
    return NewJob(type=name, arguments=arguments, retries=0)


def test_the_corpus_has_names_of_every_kind() -> None:
    assert len(NAMES) >= 150
    assert not ALLOWED & set(NAMES)


def test_only_what_a_decorator_made_a_job_is_known_of_a_module() -> None:
    assert set(load_functions(FunctionSources(modules=(LIB,)))) == ALLOWED


async def test_no_name_of_the_corpus_runs_anything_and_the_worker_stays_healthy(bench: Bench, mark: Path) -> None:
    jobs = [hostile(name, mark) for name in NAMES]
    await bench.hw.jobs_service.run(Enqueue(database="main", jobs=jobs))
    neighbours = [await bench.hw.jobs.add(tempting.welcome.job(str(number))) for number in range(20)]
    async with bench.running(app="", modules=(LIB,)):
        assert [await one.result(30) for one in neighbours] == [f"welcome {number}" for number in range(20)]
        last = await bench.hw.jobs.add(NewJob(type="named-by-hand", arguments=msgspec.Raw(b'[["me"],{}]')))
        assert await last.result(30) == "named me"
    assert not mark.exists()
    found = [job for job in await bench.hw.jobs.list(limit=1_000) if job.type in NAMES]
    assert len(found) == len(NAMES)
    assert {(job.state, job.attempts) for job in found} == {(JobState.PENDING, 0)}


async def test_schedules_dependencies_and_retried_dead_letters_find_no_more_than_jobs_do(
    bench: Bench, mark: Path
) -> None:
    """Every other way on which a type comes from the store."""
    names = [f"{LIB}:os.system", f"{LIB}:leave_mark", "os:system", f"{LIB}:plain"]
    service = bench.hw.jobs_service
    for number, name in enumerate(names):
        await service.run(PutSchedule(database="main", name=f"s{number}", every_seconds=0.001, job=hostile(name, mark)))
    first = await bench.hw.jobs.add(tempting.welcome.job("first"))
    waiting = [msgspec.structs.replace(hostile(name, mark), depends_on=(first.id,)) for name in names]
    await service.run(Enqueue(database="main", jobs=waiting))
    await asyncio.sleep(0.01)
    await service.run(FireSchedules(database="main"))
    async with bench.running(app="", modules=(LIB,)):
        await first.wait(30)
        for job in [job for job in await bench.hw.jobs.list(limit=100) if job.type in names]:
            await bench.hw.jobs.cancel(job.id)
            await bench.hw.jobs.retry(job.id)
        healthy = await bench.hw.jobs.add(tempting.welcome.job("last"))
        assert await healthy.wait(30) is JobState.COMPLETED
    assert not mark.exists()
    found = {(job.state, job.attempts) for job in await bench.hw.jobs.list(limit=1_000) if job.type in names}
    assert found == {(JobState.PENDING, 0)}


async def test_an_undecorated_function_runs_where_it_is_named_and_nowhere_else(bench: Bench) -> None:
    name = "tests.worker.functions:plain"
    job = NewJob(type=name, arguments=msgspec.Raw(b'[["a"],{}]'), retries=0)
    allowed = await bench.hw.jobs.add(job)
    await bench.drain(app="", functions=(name,))
    assert await allowed.result(5) == "A"
    refused = await bench.hw.jobs.add(job)
    await bench.drain(modules=("tests.worker.functions",))
    shown = await refused.show()
    assert (shown.state, shown.attempts) == (JobState.PENDING, 0)


@pytest.mark.parametrize(
    "name",
    [f"{LIB}:os.system", f"{LIB}:Tempting.static", f"{LIB}:Tempting", f"{LIB}:missing", f"{LIB}:", LIB, f"{LIB}:table"],
)
def test_an_operator_can_name_functions_of_a_module_and_nothing_else(name: str) -> None:
    with pytest.raises(InvalidOption, match="must name a function"):
        load_functions(FunctionSources(functions=(name,)))


def test_two_functions_of_one_name_are_refused() -> None:
    other = JobApp()
    other.job(name="named-by-hand")(functions.plain)
    functions.__dict__["another_app"] = other
    try:
        with pytest.raises(InvalidOption, match="named-by-hand"):
            load_functions(FunctionSources(modules=(LIB, "tests.worker.functions")))
    finally:
        del functions.__dict__["another_app"]
