"""Runs the command line in a folder of its own: as a process of its own, or here, which takes a tenth of the time.

What concerns processes (standard input, signals, closed pipes, terminals, other processes) is tested with processes;
`test_processes.py` runs every command and every exit code as one.
"""

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import apsw

from headwater.cli.program import run

PATIENCE_SECONDS = 30
COMMAND = (sys.executable, "-m", "headwater.cli")
STEERING = ("HEADWATER_", "PYTEST_CURRENT_TEST", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "GITHUB_ACTIONS", "PY_COLORS")


class Ended(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    def lines(self) -> list[str]:
        return self.out.splitlines()

    def documents(self) -> list[Any]:
        """The output as NDJSON. Only \\n ends a line: a text in it may hold other signs that look like an end."""
        return [json.loads(line) for line in self.out.split("\n") if line]

    def document(self) -> Any:
        """The output as one JSON document."""
        [document] = self.documents()
        return document

    def error(self) -> Any:
        """The error of a command that was asked for JSON."""
        return json.loads(self.err)["error"]


class Program:
    """The command line, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "headwater.db"
        self.command: tuple[str, ...] = COMMAND

    def run(self, *arguments: str, **variables: str) -> Ended:
        """Run a command to its end, here. None may end with a traceback."""
        out, err = io.StringIO(), io.StringIO()
        surroundings = patch.dict(os.environ, environment(variables), clear=True)
        with surroundings, chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
            code = run(list(arguments))
        return checked(Ended(int(code), out.getvalue(), err.getvalue()))

    def run_process(self, *arguments: str, given: bytes = b"", **variables: str) -> Ended:
        """The same in a process of its own, which may be given something to read."""
        done = subprocess.run(
            [*self.command, *arguments],
            cwd=self.folder,
            env=environment(variables),
            input=given,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return checked(Ended(done.returncode, done.stdout.decode(), done.stderr.decode()))

    def expect(self, code: int, *arguments: str, **variables: str) -> Ended:
        """Run a command that must end with this exit code, here."""
        ended = self.run(*arguments, **variables)
        assert ended.code == code, ended
        return ended

    def expect_process(self, code: int, *arguments: str, given: bytes = b"") -> Ended:
        """Run a command that must end with this exit code, in a process of its own."""
        ended = self.run_process(*arguments, given=given)
        assert ended.code == code, ended
        return ended

    @contextmanager
    def start(self, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on; what is left of it at the end is killed."""
        process = subprocess.Popen(
            [*self.command, *arguments],
            cwd=self.folder,
            env=environment(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=PATIENCE_SECONDS)

    @contextmanager
    def held_open(self) -> Iterator[None]:
        """Somebody else has the store open, so that no command is the last to close it while another opens it."""
        connection = apsw.Connection(str(self.store))
        connection.pragma("schema_version")
        try:
            yield
        finally:
            connection.close()

    def run_on_terminal(self, *arguments: str, typed: str = "") -> Ended:
        """Run a command with a terminal on both ends; what it printed is all in `out`."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*self.command, *arguments],
            cwd=self.folder,
            env=environment({"TERM": "xterm-256color", "COLUMNS": "100"}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        os.write(ours, typed.encode())
        printed = b"".join(iter(lambda: read_terminal(ours), b""))
        os.close(ours)
        return Ended(process.wait(PATIENCE_SECONDS), printed.decode(), "")


def read_terminal(descriptor: int) -> bytes:
    """What the terminal shows next; nothing when the program is gone."""
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""


def environment(variables: dict[str, str]) -> dict[str, str]:
    """The caller's environment without what would steer the program."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    return {**kept, **variables}


def end(process: "subprocess.Popen[str]", signal: int) -> Ended:
    """Send a signal and wait for the end."""
    process.send_signal(signal)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return checked(Ended(process.returncode, out, err))


def checked(ended: Ended) -> Ended:
    assert "Traceback" not in ended.out + ended.err, ended.err
    return ended
