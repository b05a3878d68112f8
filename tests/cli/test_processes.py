"""Every command and every exit code, as a program of its own: what scripts see."""

import json
import shutil
import sysconfig
from pathlib import Path

import headwater
from tests.cli.program import COMMAND, Program

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
    (1, ["dlq", "show", "orders", "99"]),
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


def test_the_console_script_is_the_same_program(tmp_path: Path) -> None:
    script = shutil.which("headwater", path=sysconfig.get_path("scripts"))
    assert script is not None
    by_name, by_module = Program(tmp_path), Program(tmp_path)
    by_name.command = (script,)
    assert by_module.command == COMMAND
    assert by_name.expect_process(0, "version").out == by_module.expect_process(0, "version").out
    assert json.loads(by_name.expect_process(0, "version", "--json").out)["version"] == headwater.__version__
