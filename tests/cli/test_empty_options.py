"""A text that is given and empty, as by a variable that a script forgot to set, never means "all" or "the default"."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from headwater.cli.program import build, build_jobs
from headwater.cli.settings import MAY_BE_EMPTY
from tests.cli.program import Program


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, and every group that is one, under its name."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))
    if not getattr(command, "commands", {}) or command.invoke_without_command:
        yield path, command


def takes_text(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and not parameter.is_flag and parameter.type.name in ("str", "path")


def named(command: Any) -> list[Any]:
    return [parameter for parameter in command.params if takes_text(parameter)]


COMMANDS = list(commands(get_command(build())))
CASES = [(path, parameter.opts[0]) for path, command in COMMANDS for parameter in named(command)]


def needed(path: tuple[str, ...], option: str) -> list[str]:
    """What a command cannot do without: a file of the name 1 is there."""
    [command] = [command for known, command in COMMANDS if known == path]
    given: list[str] = []
    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.required:
            given.append("1")
        elif parameter.required and parameter.opts[0] != option:
            given += [parameter.opts[0], "1"]
    return given


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "1").write_text("1")
    return Program(tmp_path)


def test_the_walk_goes_over_all_commands() -> None:
    assert len(COMMANDS) > 60
    assert len(CASES) > 300
    assert len(list(commands(get_command(build_jobs())))) > 20


def test_no_two_parameters_of_a_command_have_one_name() -> None:
    """What is said by one of them would be taken for the other."""
    for path, command in COMMANDS:
        names = [parameter.name for parameter in command.params]
        assert len(names) == len(set(names)), path


@pytest.mark.parametrize("form", ["apart", "joined"])
def test_an_option_that_is_given_and_empty_is_refused_by_its_name(program: Program, form: str) -> None:
    wrong = []
    for path, option in CASES:
        if option in MAY_BE_EMPTY:
            continue
        empty = [option, ""] if form == "apart" else [f"{option}="]
        ended = program.run(*path, *needed(path, option), *empty)
        if ended.code != 2 or f"{option} is empty" not in ended.err:
            wrong.append((path, option, ended))
    assert wrong == []
    assert {entry.name for entry in program.folder.iterdir()} == {"1"}, "nothing was made"


def test_also_before_the_name_of_a_command_and_told_as_json(program: Program) -> None:
    assert "--store is empty" in program.expect(2, "--store", "", "queues").err
    assert program.expect(2, "pop", "orders", "--partition", "", "--json").error() == {
        "code": "usage",
        "message": "--partition is empty; leave it out, or say which is meant",
    }


def test_one_of_several_that_is_empty_is_refused_too(program: Program) -> None:
    ended = program.expect(2, "token", "create", "ada", "--scope", "publish", "--queue", "orders", "--queue", "")
    assert "--queue is empty" in ended.err


def test_what_may_be_empty_means_something() -> None:
    assert sorted(MAY_BE_EMPTY) == ["--null", "--quote"]


def test_a_name_that_is_headwaters_own_is_wrong_usage(program: Program) -> None:
    for arguments in (("push", "headwater/jobs", "1"), ("push", "orders", "1", "--partition", "headwater/own")):
        ended = program.expect(2, *arguments)
        assert ended.err.startswith("error[invalid_name]:")
