"""The program: every command under its name, and what becomes of what commands raise.

Nothing a command raises reaches the terminal as a traceback: an error is one line with a stable code, and the exit code
says what kind it was. The hidden `--debug` shows the traceback too.
"""

import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer
from typer.main import get_command

from headwater.cli import bench, dead_letters, doctor, groups, messages, pipeline, queues, serve, version
from headwater.cli.exits import ExitCode, exit_code_of
from headwater.cli.output import print_error
from headwater.cli.settings import Choices, Command, Group
from headwater.errors import HeadwaterError

HELP = """One durable log in the database you already have, and every way of drinking from it.

Examples:
  headwater push orders '{"id": 7}'
  headwater pop orders
  headwater serve --store headwater.db

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the store cannot be opened, 4 there was nothing, 5 the doctor found
something, 6 a flow set rows aside, 130 Ctrl-C.
"""
PIPELINE_HELP = """The data pipeline on Spark: flows over the log, with checkpoints, a bar and a summary.

Examples:
  headwater pipeline list
  headwater pipeline run archive --to archive
"""
RUN_HELP = """Run a flow; each has options of its own (--help after its name shows them).

Examples:
  headwater pipeline run rollup --chart chart.html
  headwater pipeline run my_module:my_flow
"""
MESSAGES, UPKEEP, PIPELINE, SERVER = "Messages", "Queues and groups", "Data pipeline", "Server and store"


def build() -> typer.Typer:
    """All commands, in the order in which help shows them."""
    app = _group(help=_unwrapped(HELP))
    _add(app, "push", messages.push, MESSAGES)
    _add(app, "pop", messages.pop, MESSAGES)
    _add(app, "tail", messages.tail, MESSAGES)
    app.add_typer(_queues(), name="queues", rich_help_panel=UPKEEP)
    app.add_typer(_groups(), name="groups", rich_help_panel=UPKEEP)
    _add(app, "seek", groups.seek, UPKEEP)
    app.add_typer(_dead_letters(), name="dlq", rich_help_panel=UPKEEP)
    app.add_typer(_pipeline(), name="pipeline", rich_help_panel=PIPELINE)
    _add(app, "serve", serve.serve, SERVER)
    _add(app, "doctor", doctor.doctor, SERVER)
    _add(app, "bench", bench.bench, SERVER)
    _add(app, "version", version.version, SERVER)
    return app


def _queues() -> typer.Typer:
    app = _group()
    app.callback(invoke_without_command=True, cls=Group, help=_unwrapped(queues.queues.__doc__ or ""))(queues.queues)
    _add(app, "list", queues.list_queues)
    _add(app, "show", queues.show_queue)
    _add(app, "configure", queues.configure_queue)
    _add(app, "delete", queues.delete_queue)
    return app


def _groups() -> typer.Typer:
    app = _group()
    app.callback(invoke_without_command=True, cls=Group, help=_unwrapped(groups.groups.__doc__ or ""))(groups.groups)
    _add(app, "list", groups.list_groups)
    _add(app, "delete", groups.delete_group)
    return app


def _dead_letters() -> typer.Typer:
    app = _group(help=_unwrapped(dead_letters.__doc__ or ""))
    _add(app, "list", dead_letters.list_letters)
    _add(app, "show", dead_letters.show_letter)
    _add(app, "requeue", dead_letters.requeue_letters)
    _add(app, "purge", dead_letters.purge_letters)
    return app


def _pipeline() -> typer.Typer:
    app = _group(help=_unwrapped(PIPELINE_HELP))
    _add(app, "list", pipeline.list_flows)
    flows = typer.Typer(cls=pipeline.Flows, add_completion=False, rich_markup_mode="rich", help=_unwrapped(RUN_HELP))
    for function in (pipeline.archive, pipeline.restore, pipeline.rollup, pipeline.load, pipeline.export):
        _add(flows, function.__name__, function)
    _add(flows, pipeline.OWN, pipeline.own)
    app.add_typer(flows, name="run")
    return app


def _group(**about: Any) -> typer.Typer:
    return typer.Typer(cls=Group, add_completion=False, rich_markup_mode="rich", **about)


def _add(app: typer.Typer, name: str, function: Callable[..., None], panel: str | None = None) -> None:
    app.command(name, cls=Command, help=_unwrapped(function.__doc__ or ""), rich_help_panel=panel)(function)


def _unwrapped(doc: str) -> str:
    """A docstring whose paragraphs are one line each, to be wrapped for the terminal; examples keep their lines."""
    paragraphs = inspect.cleandoc(doc).split("\n\n")
    return "\n\n".join(text if "\n  " in text else text.replace("\n", " ") for text in paragraphs)


def run(arguments: list[str]) -> int:
    """Run one command line; the exit code."""
    choices = Choices()
    if arguments[:1] == ["--version"]:
        arguments = ["version", *arguments[1:]]
    try:
        code = _run(arguments or ["--help"], choices)
        sys.stdout.flush()
    except BrokenPipeError:
        _close_output()
        return ExitCode.OUTPUT_CLOSED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        return _tell(error, as_json=choices.json or "--json" in arguments, debug=choices.debug)
    return code


def _run(arguments: list[str], choices: Choices) -> int:
    command = get_command(build())
    with command.make_context("headwater", list(arguments), obj=choices) as context:
        command.invoke(context)
    return ExitCode.OK


def _tell(error: Exception, *, as_json: bool, debug: bool) -> int:
    """Say what went wrong in one line; the exit code."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if debug:
        traceback.print_exception(error)
    if isinstance(error, HeadwaterError):
        print_error(error.code, str(error), as_json=as_json)
        return exit_code_of(error)
    if isinstance(error, typer.TyperException):
        print_error("usage", _usage(error), as_json=as_json)
        return ExitCode.USAGE
    if isinstance(error, typer.Abort):
        print_error("aborted", "nothing was done", as_json=as_json)
        return ExitCode.FAILED
    print_error("internal", f"{type(error).__name__}: {error} (--debug shows where)", as_json=as_json)
    return ExitCode.FAILED


def _usage(error: typer.TyperException) -> str:
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    return message if context is None else f"{message}; `{context.command_path} --help` shows how"


def _close_output() -> None:
    """Nobody reads any more. What is buffered goes nowhere, so that the interpreter does not stumble over it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
