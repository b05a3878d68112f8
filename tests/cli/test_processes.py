"""Every command and every exit code, as a program of its own: what scripts see."""

import json
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

import headwater
from headwater.cli.exits import ExitCode
from tests.cli.program import COMMAND, Program
from tests.tidy.tree import ROOT

# One after the other on one store: each builds on those before it.
COMMANDS: list[tuple[int, list[str]]] = [
    (0, ["push", "orders", "4"]),
    (0, ["pop", "orders", "--group", "billing"]),
    (0, ["tail", "orders", "--from", "beginning", "--limit", "1"]),
    (0, ["queues"]),
    (0, ["queues", "list"]),
    (0, ["queues", "show", "orders"]),
    (0, ["queues", "configure", "orders", "priority=1"]),
    (0, ["groups"]),
    (0, ["groups", "list"]),
    (0, ["seek", "orders", "--group", "billing", "--to", "end"]),
    (0, ["dlq", "list", "orders"]),
    (0, ["doctor"]),
    (0, ["version"]),
    (0, ["--help"]),
    (1, ["queues", "show", "nope"]),
    (2, ["serve", "--host", "0.0.0.0"]),
    (2, ["queues", "delete", "orders"]),
    (3, ["queues", "--store", "missing.db"]),
    (4, ["pop", "orders", "--group", "billing"]),
    (4, ["dlq", "requeue", "orders"]),
    (4, ["dlq", "purge", "orders", "--yes"]),
    (5, ["doctor"]),
    (0, ["groups", "delete", "billing", "--yes"]),
    (0, ["queues", "delete", "orders", "--yes"]),
]

# The same program, here: a process for each would take minutes.
MISTAKES: list[tuple[int, list[str]]] = [
    (1, ["dlq", "requeue", "nope", "1"]),
    (1, ["leases", "--group", "typo"]),
    (1, ["leases", "nope"]),
    (1, ["leases", "orders", "--group", "typo", "--release", "--yes"]),
    (1, ["leases", "orders", "--group", "typo"]),
    (1, ["push", "orders", "{"]),
    (2, ["groups", "configure", "billing", "--queue", "orders", "lanes=1"]),
    (2, ["push", "no name", "1"]),
    (2, ["push", "orders", "1", "--priority", "1", "--partition", "p"]),
    (2, ["queues", "configure", "orders", "lease=60"]),
    (2, ["queues", "configure", "orders", "lease_seconds=-1"]),
    (2, ["queues", "configure", "orders", "lease_seconds=soon"]),
    (2, ["token", "create", "c i", "--scope", "publish"]),
    (2, ["token", "create", "ci", "--scope", "publish", "--queue", "a b"]),
    (2, ["token", "create", "ci", "--scope", "publsh"]),
    (4, ["dlq", "purge", "orders", "99", "--yes"]),
    (4, ["dlq", "requeue", "orders", "99"]),
    (4, ["dlq", "show", "orders", "99"]),
    (4, ["leases", "orders", "--release", "--yes"]),
]


@pytest.mark.parametrize(("code", "arguments"), MISTAKES, ids=str)
def test_a_mistake_ends_with_the_exit_code_of_its_kind(tmp_path: Path, code: int, arguments: list[str]) -> None:
    shop = Program(tmp_path)
    shop.expect(0, "push", "orders", "1")
    shop.expect(0, "pop", "orders", "--group", "billing")
    ended = shop.expect(code, *arguments)
    assert ended.out == ""
    assert ended.err.startswith(("error[", "nothing of orders is leased"))
    assert shop.expect(0, "token", "list", "--json").out == ""


def test_every_command_ends_with_its_exit_code_and_says_so(tmp_path: Path) -> None:
    shop = Program(tmp_path)
    shop.expect(0, "push", "orders", "1", "2", "3")
    for code, arguments in COMMANDS:
        shop.store.chmod(0o644 if code == 5 else 0o600)
        ended = shop.expect_process(code, *arguments)
        if code in (1, 2, 3):
            assert ended.err.startswith("error[")
            assert ended.err.count("\n") == 1
            assert ended.out == ""
        else:
            assert ended.out or ended.err


# Rows that others show: what stops programs, and what a pipeline sets aside.
ELSEWHERE = {6, 130, 141}


def test_every_row_of_the_document_is_shown_by_a_command() -> None:
    table = (ROOT / "docs/cli.md").read_text(encoding="utf-8").split("## Exit codes")[1].split("##")[0]
    rows = {int(row) for row in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert rows == {code.value for code in ExitCode}
    assert rows - ELSEWHERE == {code for code, _ in COMMANDS}


@pytest.mark.parametrize("arguments", [["--scope", "publsh"], ["--scope", "publish", "--queue", "a b"]])
def test_a_token_that_makes_no_sense_makes_no_store(tmp_path: Path, arguments: list[str]) -> None:
    shop = Program(tmp_path)
    shop.expect(2, "token", "create", "ci", *arguments)
    assert not shop.store.exists()


def test_the_console_script_is_the_same_program(tmp_path: Path) -> None:
    script = shutil.which("headwater", path=sysconfig.get_path("scripts"))
    assert script is not None
    by_name, by_module = Program(tmp_path), Program(tmp_path)
    by_name.command = (script,)
    assert by_module.command == COMMAND
    assert by_name.expect_process(0, "version").out == by_module.expect_process(0, "version").out
    assert json.loads(by_name.expect_process(0, "version", "--json").out)["version"] == headwater.__version__


def shell(shop: Program, line: str) -> "subprocess.CompletedProcess[str]":
    """A command as a shell runs it, with its output sent elsewhere."""
    command = shlex.join([*shop.command, "--store", str(shop.store)])
    return subprocess.run(["bash", "-c", f"{command} {line}"], capture_output=True, text=True, check=False)


def test_nothing_is_popped_for_who_cannot_be_shown_it(tmp_path: Path) -> None:
    shop = Program(tmp_path)
    shop.expect(0, "push", "orders", "1")
    closed = shell(shop, "pop orders >&-")
    assert (closed.returncode, closed.stderr.startswith("error[output_closed]")) == (141, True)
    full = shell(shop, "pop orders > /dev/full")
    assert (full.returncode, full.stderr) == (
        1,
        "error[output_failed]: the output could not be written: No space left on device\n",
    )
    assert shop.expect(0, "pop", "orders").out.endswith("  1\n")
