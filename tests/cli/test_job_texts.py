"""What a job's own texts do to whoever reads them: nothing. They steer no terminal and forge no line of a log; of
an error the type and the first line stand for the whole."""

import json
import logging
from pathlib import Path

import pytest

from headwater.cli.serve import JsonLines, TextLines
from headwater.model.job import first_line
from headwater.model.terminal import clean_entry
from headwater.worker.outcomes import describe
from tests.cli.queuectl import Queuectl

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2028x\rover"
STEERING = {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2028, 0x2029, 0xFEFF)}

TASKS = f"""
import os, subprocess
from headwater.jobs import JobApp, current_job
app = JobApp()
EVIL = {EVIL!r}

@app.job(name="raises", retries=0)
def raises() -> None:
    current_job().progress(EVIL)
    print(EVIL)
    os.write(1, EVIL.encode() + b" past the streams")
    subprocess.run(["printf", "%s by a program", EVIL])
    raise ValueError("first " + EVIL + chr(10) + "second line" + chr(10) + "2026-01-01 INFO forged")

@app.job(name="chained", retries=0)
async def chained() -> None:
    try:
        raise KeyError("the cause")
    except KeyError as error:
        raise RuntimeError("the effect" + chr(10) + "in two lines") from error

@app.job(name="returns", retries=0)
def returns() -> str:
    return EVIL
"""


@pytest.fixture
def queuectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queuectl:
    # What a job raised is shown with its trace: that is none of our own.
    monkeypatch.setattr("tests.cli.program.checked", lambda ended: ended)
    (tmp_path / "tasks.py").write_text(TASKS)
    queuectl = Queuectl(tmp_path)
    command = "printf '%s' \"$TEXT\" >&2; exit 3"
    queuectl.expect(0, "enqueue", json.dumps({"id": "c", "command": command, "env": {"TEXT": EVIL}, "retries": 0}))
    queuectl.expect(0, "enqueue", json.dumps({"id": "e", "command": f"exit 3 # {EVIL}", "retries": 0}))
    for name in ("raises", "chained", "returns"):
        queuectl.expect(0, "enqueue", json.dumps({"id": name, "type": name, "retries": 0}))
    return queuectl


@pytest.fixture
def worker_log(queuectl: Queuectl) -> str:
    """What a worker's terminal shows."""
    import subprocess

    from tests.cli.program import environment

    ended = subprocess.run(
        [*queuectl.command, "worker", "start", "--count", "1", "--app", "tasks:app", "--drain"],
        cwd=queuectl.folder,
        env=environment({"PYTHONPATH": str(queuectl.folder)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=True,
    )
    return ended.stdout.decode()


def test_no_text_of_a_job_steers_a_terminal(queuectl: Queuectl, worker_log: str) -> None:
    shown = {"worker": worker_log}
    for arguments in (
        ("list",),
        ("list", "--json"),
        ("dlq", "list"),
        ("dlq", "list", "--json"),
        ("status",),
        *(
            (verb, id, *json_)
            for verb in ("show",)
            for id in ("c", "e", "raises", "returns")
            for json_ in ((), ("--json",))
        ),
        ("dlq", "show", "raises"),
        ("logs", "c"),
        ("logs", "raises"),
        ("logs", "raises", "--json"),
        ("dlq", "retry", "--all", "--error", "first", "--yes"),
    ):
        shown[" ".join(arguments)] = queuectl.expect(0, *arguments).out
    found = {name: sorted(map(repr, STEERING & set(text))) for name, text in shown.items() if STEERING & set(text)}
    assert not found
    assert "\\u001b" in shown["logs raises"], "it is shown, not lost"
    assert "past the streams" in worker_log
    assert "by a program" in worker_log
    assert EVIL in queuectl.expect(0, "logs", "raises", "--raw").out, "but as it is where that is asked for"
    assert json.loads(shown["show returns --json"])["result"] == EVIL, "programs get what it was"


def test_an_error_in_a_line_is_its_type_and_what_it_says_first(queuectl: Queuectl, worker_log: str) -> None:
    for id, expected in (
        ("raises", "ValueError: first"),
        ("chained", "RuntimeError: the effect"),
        ("e", "exit code 3"),
    ):
        (row,) = [line for line in queuectl.expect(0, "dlq", "list").out.splitlines() if line.startswith(f"{id} ")]
        assert expected in row
        (said,) = [line for line in worker_log.splitlines() if f"job {id} " in line]
        assert expected in said
    whole = queuectl.expect(0, "show", "chained").out
    assert "in two lines" in whole
    assert "KeyError: 'the cause'" in whole
    assert "direct cause" in whole
    assert not [line for line in worker_log.splitlines() if line.startswith("2026-01-01 INFO forged")]


class Wordless(Exception):
    """Says nothing."""


def raised(error: BaseException) -> str:
    try:
        raise error
    except BaseException as caught:
        return describe(caught)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one"), "ValueError: one"),
        (ValueError("one\ntwo\nthree"), "ValueError: one"),
        (ValueError(), "ValueError"),
        (Wordless(), f"{__name__}.Wordless"),
        (SyntaxError("no", ("tasks.py", 3, 1, "x ==")), "SyntaxError: no (tasks.py, line 3)"),
        (ExceptionGroup("both", [ValueError("a"), KeyError("b")]), "ExceptionGroup: both (2 sub-exceptions)"),
        (SystemExit(3), "SystemExit: 3"),
        (json.JSONDecodeError("bad", "x", 0), "json.decoder.JSONDecodeError: bad: line 1 column 1 (char 0)"),
        (ValueError("long " + "x" * 100_000), "ValueError: long"),
    ],
)
def test_the_first_line_of_an_error_says_what_it_was(error: BaseException, line: str) -> None:
    told = raised(error)
    assert first_line(told).startswith(line)
    assert len(told) < 20_000
    assert "Traceback" in told


def test_errors_that_older_versions_kept_end_with_what_they_were() -> None:
    assert first_line("Traceback (most recent call last):\n  File x\nValueError: one") == "ValueError: one"
    assert first_line("exit code 3: sorry") == "exit code 3: sorry"
    assert first_line("") == ""


@pytest.mark.parametrize("formatter", [TextLines("%(levelname)s %(message)s"), JsonLines()])
def test_an_entry_of_a_log_stays_one_entry_and_steers_nothing(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "job %s", (f"{EVIL}\nINFO forged",), None)
    text = formatter.format(record)
    assert not STEERING & set(text)
    assert not [line for line in text.splitlines() if line.startswith("INFO")]
    assert clean_entry("plain, ä, 漢, 🙂\tx") == "plain, ä, 漢, 🙂\tx"
