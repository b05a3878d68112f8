"""The program as a whole: help, options of every command, exit codes, errors in one line."""

import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import headwater
from headwater.cli import messages
from headwater.cli.exits import ExitCode
from headwater.cli.program import run
from tests.cli.program import Program
from tests.tidy.tree import ROOT

COMMANDS = [
    "push",
    "pop",
    "tail",
    "queues",
    "queues list",
    "queues show",
    "queues configure",
    "queues delete",
    "groups",
    "groups list",
    "groups delete",
    "seek",
    "dlq",
    "dlq list",
    "dlq show",
    "dlq requeue",
    "dlq purge",
    "pipeline",
    "pipeline list",
    "pipeline run",
    "pipeline run archive",
    "pipeline run restore",
    "pipeline run rollup",
    "pipeline run load",
    "pipeline run export",
    "pipeline run shadow-record",
    "pipeline run shadow-replay",
    "pipeline run my_module:my_flow",
    "serve",
    "doctor",
    "bench",
    "version",
]
READING = [
    ["pop", "orders"],
    ["tail", "orders"],
    ["queues"],
    ["queues", "show", "orders"],
    ["queues", "configure", "orders", "retry_limit=1"],
    ["queues", "delete", "orders", "--yes"],
    ["groups"],
    ["groups", "delete", "billing", "--yes"],
    ["seek", "orders", "--to", "end"],
    ["dlq", "list", "orders"],
    ["dlq", "requeue", "orders"],
    ["doctor"],
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"headwater {command.split()[0]}" in shown.partition("Examples:")[2]
    assert "--store" in shown
    assert "--debug" not in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_the_document_shows_every_command(command: str) -> None:
    assert f"headwater {command}" in (ROOT / "docs/cli.md").read_text()


def test_the_document_has_every_exit_code() -> None:
    table = re.findall(r"^\| (\d+) \|", (ROOT / "docs/cli.md").read_text(), re.MULTILINE)
    assert [int(code) for code in table] == [int(code) for code in ExitCode]


def test_a_push_takes_exactly_the_durabilities_there_are() -> None:
    accepted, _ = get_args(get_type_hints(messages.push)["durability"])
    assert set(get_args(accepted)) == {level.value for level in headwater.Durability}


def test_the_program_alone_shows_its_help(program: Program) -> None:
    assert "Usage: headwater" in program.expect(0).out


@pytest.mark.parametrize("arguments", [["version"], ["--version"], ["version", "--json"]])
def test_the_version_is_told(program: Program, arguments: list[str]) -> None:
    ended = program.expect(0, *arguments)
    if "--json" in arguments:
        assert ended.document()["version"] == headwater.__version__
    else:
        assert ended.out == f"headwater {headwater.__version__}\n"


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_a_command_that_reads_makes_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_STORE", raising=False)
    assert run(arguments) == ExitCode.STORE
    assert capsys.readouterr().err.startswith("error[store_missing]: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["push"],
        ["push", "orders", "1", "--nope"],
        ["push", "orders", "1", "--durability", "perhaps"],
        ["push", "orders", "1", "--file", "f"],
        ["push", "orders", "1", "2", "--transaction-id", "a"],
        ["push", "orders", "--file", "missing.ndjson"],
        ["pop", "orders", "--batch", "0"],
        ["tail", "orders", "--from", "yesterday"],
        ["seek", "orders"],
        ["seek", "orders", "--to", "soon"],
        ["seek", "orders", "--to", "2026-10-03T12:00:00"],
        ["seek", "orders", "--to", "5"],
        ["queues", "configure", "orders", "retry_limit"],
        ["queues", "delete", "orders"],
        ["dlq"],
        ["dlq", "show", "orders", "first"],
        ["serve", "--port", "70000"],
        ["--store", "mysql://localhost/x", "queues"],
        ["--store", ":memory:", "queues"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_told_in_one_line_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == ExitCode.USAGE
    printed = capsys.readouterr()
    assert re.fullmatch(r"error\[(usage|config)\]: .+\n", printed.err)
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []
    assert run([*arguments, "--json"]) == ExitCode.USAGE
    assert '"error":{"code":"' in capsys.readouterr().err


def test_a_setting_that_is_wrong_names_itself(program: Program) -> None:
    ended = program.expect(2, "push", "orders", "1", HEADWATER_BATCH_MAX="many")
    assert ended.err.startswith("error[config]: ")
    assert "batch_max" in ended.err


def test_options_of_every_command_count_before_and_after_it(program: Program) -> None:
    program.expect(0, "--store", "one.db", "push", "orders", "1")
    program.expect(0, "push", "orders", "1", "2", "--store", "two.db", "--database", "other")
    assert program.expect(0, "--json", "--store", "one.db", "queues").document()["records"] == 1
    assert program.expect(0, "--store", "one.db", "queues", "--store", "two.db").out == ""
    found = program.expect(0, "queues", "--store=two.db", "list", "--database", "other", "--json").document()
    assert (found["database"], found["records"]) == ("other", 2)


def test_the_store_may_come_from_the_environment_and_an_option_wins(program: Program) -> None:
    program.expect(0, "push", "orders", "1", HEADWATER_STORE="named.db")
    assert (program.folder / "named.db").exists()
    assert program.expect(3, "queues", "--store", "other.db", HEADWATER_STORE="named.db").out == ""


def test_an_error_is_one_line_and_its_traceback_is_for_those_who_ask(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    plain = program.expect(1, "queues", "show", "nope")
    assert plain.err == "error[not_found]: there is no queue 'nope'\n"
    assert program.expect(1, "queues", "show", "nope", "--json").error() == {
        "code": "not_found",
        "message": "there is no queue 'nope'",
    }
    with program.start("--debug", "queues", "show", "nope") as process:
        _, err = process.communicate(timeout=30)
    assert "Traceback" in err
    assert process.returncode == 1


def test_a_fault_of_ours_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwater.cli.queues.reached", lambda settings: 1 / 0)
    assert run(["queues"]) == ExitCode.FAILED
    assert capsys.readouterr().err == "error[internal]: ZeroDivisionError: division by zero (--debug shows where)\n"


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"hello, world\n" * 100, "store_damaged"), (b"SQLite format 3\x00" + b"\xff" * 4_080, "store_damaged")],
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(program: Program, content: bytes, code: str) -> None:
    program.store.write_bytes(content)
    for arguments in (["push", "orders", "1"], ["queues"], ["serve", "--port", "0"]):
        assert program.expect_process(3, *arguments, "--json").error()["code"] == code
    assert program.store.read_bytes() == content


def test_a_folder_is_no_store(program: Program) -> None:
    program.store.mkdir()
    assert program.expect(3, "push", "orders", "1").err.startswith("error[store_foreign]: ")
    assert program.expect(3, "push", "orders", "1", "--store", "no/such/a.db").err.startswith("error[store_missing]: ")


def test_output_is_plain_in_a_pipe_and_coloured_on_a_terminal(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    assert "\x1b" not in program.expect(0, "queues").out
    assert "\x1b[" in program.run_on_terminal("queues").out


def test_a_terminal_is_asked_before_something_is_lost(program: Program) -> None:
    program.expect(0, "push", "orders", "1")
    refused = program.run_on_terminal("queues", "delete", "orders", typed="n\n")
    assert refused.code == 1
    assert "Delete the queue orders" in refused.out
    assert len(program.expect(0, "queues", "--json").documents()) == 1
    assert program.run_on_terminal("queues", "delete", "orders", typed="y\n").code == 0
    assert program.expect(0, "queues", "--json").documents() == []
