"""A shell completes the commands and options of `queuectl` and `headwater`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import environment
from tests.cli.queuectl import Queuectl

PROGRAMS = {"queuectl": "queuectl", "headwater": "main"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed_and_names_the_program(tmp_path: Path, shell: str) -> None:
    ended = Queuectl(tmp_path).run_process("completion", shell)
    assert ended.code == 0
    assert "_QUEUECTL_COMPLETE" in ended.out
    bash = shutil.which("bash")
    if shell == "bash" and bash:
        checked = subprocess.run([bash, "-n"], input=ended.out, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_a_shell_that_is_not_known_is_refused_with_those_that_are(tmp_path: Path) -> None:
    assert "bash, zsh, fish" in Queuectl(tmp_path).expect(2, "completion", "tcsh").err


@pytest.mark.parametrize(
    ("program", "typed", "expected"),
    [
        ("queuectl", "queuectl sch", ["schedule"]),
        ("queuectl", "queuectl schedule r", ["resume", "run", "remove"]),
        ("queuectl", "queuectl limit cl", ["clear"]),
        ("queuectl", "queuectl logs --ra", ["--raw"]),
        ("headwater", "headwater jobs canc", ["cancel"]),
    ],
)
def test_what_may_come_next_is_told(tmp_path: Path, program: str, typed: str, expected: list[str]) -> None:
    variables = {
        f"_{program.upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    code = f"import sys; from headwater.cli import {PROGRAMS[program]} as run; sys.exit(run())"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment({}), **variables, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout.split()) == (0, expected), ended.stderr
