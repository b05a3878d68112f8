"""A worker that was started wrongly says what is wrong and touches no job: not even a command, which it could run."""

from pathlib import Path

import pytest

from headwater.model.job import JobState
from headwater.worker.worker_options import UNLOADABLE
from tests.cli.queuectl import Queuectl
from tests.waiting import expect_soon
from tests.worker.bench import Bench

BROKEN = "import surely_not_there\n"
EXITS = "import sys\nsys.exit(3)\n"
RAISES = "from headwater.jobs import JobApp\napp = JobApp()\nraise RuntimeError('no database here')\n"
DIES = "import os\nos._exit(9)\n"
HANGS = "import time\ntime.sleep(1_000_000)\n"
EMPTY_ELSEWHERE = "from headwater.jobs import JobApp\napp = JobApp('/somewhere/else.db')\n"
OTHER_DATABASE = "from headwater.jobs import JobApp\napp = JobApp(database='other')\n"
SOUND = "from headwater.jobs import JobApp\nmine = JobApp()\nother = 5\n@mine.job\ndef work() -> None: ...\n"

WRONG = {
    "missing module": ("", "app", "no_such_module:app", "there is no module 'no_such_module'"),
    "missing package": ("", "app", "no_such_package.tasks:app", "there is no module 'no_such_package'"),
    "a path": ("", "app", "tasks.py:app", "no module 'tasks.py'"),
    "a folder": ("", "app", "./tasks:app", "must be the name of a module"),
    "missing name": (SOUND, "app", "tasks:app", "There is tasks:mine there"),
    "no app": (SOUND, "app", "tasks:other", "it is a int"),
    "an import inside it fails": (BROKEN, "app", "tasks:app", "surely_not_there"),
    "it exits": (EXITS, "app", "tasks:app", "SystemExit: 3"),
    "it raises": (RAISES, "app", "tasks:app", "no database here"),
    "it dies": (DIES, "app", "tasks:app", "exit code 9"),
    "it hangs": (HANGS, "app", "tasks:app", "were not imported within 2 s"),
    "another store": (EMPTY_ELSEWHERE, "app", "tasks:app", "keeps its jobs in /somewhere/else.db"),
    "another database": (OTHER_DATABASE, "app", "tasks:app", "keeps its jobs in the database other"),
    "missing module to import": ("", "modules", "no_such_module", "there is no module 'no_such_module'"),
    "missing module of a function": ("", "functions", "no_such_module:f", "there is no module 'no_such_module'"),
    "missing function": (SOUND, "functions", "tasks:nothing", "must name a function"),
}


@pytest.mark.parametrize(("text", "option", "value", "said"), WRONG.values(), ids=WRONG)
async def test_a_worker_that_was_started_wrongly_says_why_and_touches_nothing(
    bench: Bench,
    text: str,
    option: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (bench.folder / "tasks.py").write_text(text)
    monkeypatch.chdir(bench.folder)
    await bench.hw.jobs.add(command="touch ran", id="command", retries=0)
    named = {"app": "", "modules": (), "functions": (), option: value if option == "app" else (value,)}
    seconds = 2.0 if text == HANGS else 60.0
    code = await bench.drain(**named, store=str(bench.folder / "log.db"), database="main", load_seconds_max=seconds)
    assert code == UNLOADABLE
    assert said in caplog.text
    job = await bench.hw.jobs.show("command")
    assert (job.state, job.attempts, job.token) == (JobState.PENDING, 0, 0)
    assert not (bench.folder / "ran").exists()


def test_the_service_ends_with_the_documented_code_and_nothing_ran(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    (tmp_path / "tasks.py").write_text(HANGS)
    queuectl.expect(0, "enqueue", '{"id": "command", "command": "touch ran"}')
    for options in (("--app", "no_such_module:app"), ("--app", "tasks:app", "--load-timeout", "0.5")):
        queuectl.expect(1, "worker", "start", "--count", "2", *options)
    shown = queuectl.expect(0, "show", "command", "--json").document()
    assert (shown["state"], shown["attempts"], shown["token"]) == ("pending", 0, 0)
    assert not (tmp_path / "ran").exists()


def test_an_app_that_breaks_while_its_workers_run_is_tried_again_until_it_is_mended(tmp_path: Path) -> None:
    """A deployment that is under way, say: the service goes on, and no job is charged for it."""
    queuectl = Queuectl(tmp_path)
    sound = "from headwater.jobs import JobApp\napp = JobApp()\n@app.job(retries=0)\ndef work() -> None: ...\n"
    (tmp_path / "tasks.py").write_text(sound)
    with queuectl.workers("--count", "1", "--app", "tasks:app", "--recycle-after", "1") as service:
        queuectl.expect(0, "enqueue", '{"id": "before", "type": "tasks:work"}')
        queuectl.expect(0, "wait", "before", "--timeout", "60s")
        first = queuectl.expect(0, "worker", "list", "--json").document()["id"]
        (tmp_path / "tasks.py").write_text("this is no python\n")
        queuectl.expect(0, "enqueue", '{"id": "after", "type": "tasks:work"}')
        expect_soon(lambda: first not in queuectl.expect(0, "worker", "list", "--json").out, 60.0)
        assert service.poll() is None
        (tmp_path / "tasks.py").write_text(sound)
        queuectl.expect(0, "wait", "after", "--timeout", "60s")
    assert queuectl.expect(0, "show", "after", "--json").document()["attempts"] == 1
