"""The program: every command under its name, and what becomes of what commands raise.

Nothing a command raises reaches the terminal as a traceback: an error is one line with a stable code, and the exit code
says what kind it was. The hidden `--debug` shows the traceback too.
"""

import errno
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import typer
from typer.main import get_command

from headwater.cli import (
    bench,
    bench_room_targets,
    bench_rooms,
    capture,
    copying,
    dead_letters,
    doctor,
    groups,
    job_config,
    job_dead,
    job_enqueue,
    job_limits,
    job_logs,
    job_schedules,
    job_views,
    jobs,
    messages,
    outbox,
    pipeline,
    pipeline_load,
    pipeline_shadow,
    queues,
    rooms,
    rules,
    serve,
    store,
    tokens,
    version,
    workers,
)
from headwater.cli.access import ServeCommand
from headwater.cli.completion import complete, completion
from headwater.cli.exits import ExitCode, exit_code_of
from headwater.cli.output import print_error
from headwater.cli.settings import Choices, Command, Group, RemoteCommand, RemoteGroup
from headwater.errors import HeadwaterError

HELP = """One durable log in the database you already have, and every way of drinking from it.

Examples:
  headwater push orders '{"id": 7}'
  headwater pop orders
  headwater serve --store headwater.db

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the store cannot be opened, 4 there was nothing, 5 the doctor found
something, 6 a flow or a drain set rows aside, 130 Ctrl-C.
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
# Why what is printed cannot go where it was to go.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
MESSAGES, UPKEEP, JOBS, PIPELINE, SERVER = "Messages", "Queues and groups", "Jobs", "Data pipeline", "Server and store"
MESSAGES_OF_JOBS, LOOKING, OPERATING = "Jobs", "Looking", "Operating"


def build() -> typer.Typer:
    """All commands, in the order in which help shows them."""
    app = _group(RemoteGroup, help=_unwrapped(HELP))
    _add(app, "push", messages.push, MESSAGES, RemoteCommand)
    _add(app, "pop", messages.pop, MESSAGES, RemoteCommand)
    _add(app, "tail", messages.tail, MESSAGES, RemoteCommand)
    app.add_typer(_rooms(), name="room", rich_help_panel=MESSAGES)
    app.add_typer(_queues(), name="queues", rich_help_panel=UPKEEP)
    app.add_typer(_groups(), name="groups", rich_help_panel=UPKEEP)
    _add(app, "leases", groups.leases, UPKEEP, RemoteCommand)
    _add(app, "seek", groups.seek, UPKEEP, RemoteCommand)
    app.add_typer(_dead_letters(), name="dlq", rich_help_panel=UPKEEP)
    app.add_typer(build_jobs(), name="jobs", rich_help_panel=JOBS)
    app.command("run-worker", cls=Command, hidden=True)(workers.run_worker)
    app.add_typer(_pipeline(), name="pipeline", rich_help_panel=PIPELINE)
    _add(app, "serve", serve.serve, SERVER, ServeCommand)
    app.add_typer(_tokens(), name="token", rich_help_panel=SERVER)
    app.add_typer(_rules(), name="rules", rich_help_panel=SERVER)
    app.add_typer(_outbox(), name="outbox", rich_help_panel=SERVER)
    app.add_typer(_capture(), name="capture", rich_help_panel=SERVER)
    app.add_typer(_store(), name="store", rich_help_panel=SERVER)
    _add(app, "copy", copying.copy, SERVER)
    _add(app, "doctor", doctor.doctor, SERVER)
    app.add_typer(_bench(), name="bench", rich_help_panel=SERVER)
    _add(app, "completion", completion, SERVER)
    _add(app, "version", version.version, SERVER)
    return app


def _queues() -> typer.Typer:
    app = _group(RemoteGroup)
    app.callback(invoke_without_command=True, cls=RemoteGroup, help=_unwrapped(queues.queues.__doc__ or ""))(
        queues.queues
    )
    _add(app, "list", queues.list_queues, command=RemoteCommand)
    _add(app, "show", queues.show_queue, command=RemoteCommand)
    _add(app, "configure", queues.configure_queue, command=RemoteCommand)
    _add(app, "delete", queues.delete_queue, command=RemoteCommand)
    return app


def _rooms() -> typer.Typer:
    app = _group(RemoteGroup, help=_unwrapped(rooms.__doc__ or ""))
    _add(app, "send", rooms.send, command=RemoteCommand)
    _add(app, "tail", rooms.tail, command=RemoteCommand)
    _add(app, "members", rooms.members, command=RemoteCommand)
    _add(app, "queue", rooms.queue, command=RemoteCommand)
    _add(app, "drop", rooms.drop, command=RemoteCommand)
    _add(app, "verify", rooms.verify)
    return app


def _bench() -> typer.Typer:
    app = _group()
    app.callback(invoke_without_command=True, cls=Group, help=_unwrapped(bench.bench.__doc__ or ""))(bench.bench)
    loads = _group(help=_unwrapped(bench_rooms.__doc__ or ""))
    _add(loads, "writes", bench_rooms.writes)
    _add(loads, "polls", bench_rooms.polls)
    _add(loads, "targets", bench_room_targets.targets)
    app.add_typer(loads, name="rooms")
    return app


def _groups() -> typer.Typer:
    app = _group(RemoteGroup)
    app.callback(invoke_without_command=True, cls=RemoteGroup, help=_unwrapped(groups.groups.__doc__ or ""))(
        groups.groups
    )
    _add(app, "list", groups.list_groups, command=RemoteCommand)
    _add(app, "configure", groups.configure_group, command=RemoteCommand)
    _add(app, "delete", groups.delete_group, command=RemoteCommand)
    return app


def _dead_letters() -> typer.Typer:
    app = _group(RemoteGroup, help=_unwrapped(dead_letters.__doc__ or ""))
    _add(app, "list", dead_letters.list_letters, command=RemoteCommand)
    _add(app, "show", dead_letters.show_letter, command=RemoteCommand)
    _add(app, "requeue", dead_letters.requeue_letters, command=RemoteCommand)
    _add(app, "purge", dead_letters.purge_letters, command=RemoteCommand)
    return app


def _pipeline() -> typer.Typer:
    app = _group(help=_unwrapped(PIPELINE_HELP))
    _add(app, "list", pipeline.list_flows)
    _add(app, "prepare", pipeline.prepare)
    _add(app, "environment", pipeline.environment)
    flows = typer.Typer(cls=pipeline.Flows, add_completion=False, rich_markup_mode="rich", help=_unwrapped(RUN_HELP))
    for function in (pipeline.archive, pipeline.restore, pipeline.rollup, pipeline_load.load, pipeline.export):
        _add(flows, function.__name__, function, command=RemoteCommand)
    _add(flows, "shadow-record", pipeline_shadow.record, command=RemoteCommand)
    _add(flows, "shadow-replay", pipeline_shadow.replay, command=RemoteCommand)
    _add(flows, pipeline.OWN, pipeline.own, command=RemoteCommand)
    app.add_typer(flows, name="run")
    return app


def _tokens() -> typer.Typer:
    app = _group(help=_unwrapped(tokens.__doc__ or ""))
    _add(app, "create", tokens.create_token)
    _add(app, "list", tokens.list_tokens)
    _add(app, "revoke", tokens.revoke_token)
    return app


def _rules() -> typer.Typer:
    app = _group(RemoteGroup, help=_unwrapped(rules.__doc__ or ""))
    _add(app, "set", rules.set_rules, command=RemoteCommand)
    _add(app, "list", rules.list_rules, command=RemoteCommand)
    return app


def _outbox() -> typer.Typer:
    app = _group(help=_unwrapped(outbox.__doc__ or ""))
    _add(app, "drain", outbox.drain)
    _add(app, "list", outbox.list_rows)
    _add(app, "requeue", outbox.requeue_rows)
    return app


def _capture() -> typer.Typer:
    app = _group(help=_unwrapped(capture.__doc__ or ""))
    _add(app, "run", capture.run)
    _add(app, "list", capture.list_captures)
    _add(app, "drop", capture.drop)
    return app


def _store() -> typer.Typer:
    app = _group(help=_unwrapped(store.__doc__ or ""))
    _add(app, "identity", store.show_identity)
    _add(app, "renew", store.renew_identity)
    _add(app, "backup", store.back_up)
    _add(app, "give-up-damaged", store.give_up_damaged)
    _add(app, "grants", store.show_grants)
    return app


def build_jobs() -> typer.Typer:
    """The commands of `queuectl`, which are also those of `headwater jobs`."""
    app = _group(RemoteGroup, help=_unwrapped(jobs.__doc__ or ""))
    _add(app, "enqueue", job_enqueue.enqueue, MESSAGES_OF_JOBS, RemoteCommand)
    _add(app, "status", job_views.status, LOOKING, RemoteCommand)
    _add(app, "list", job_views.list_jobs, LOOKING, RemoteCommand)
    _add(app, "show", job_views.show, LOOKING, RemoteCommand)
    _add(app, "logs", job_logs.logs, LOOKING, RemoteCommand)
    _add(app, "wait", job_views.wait, LOOKING, RemoteCommand)
    _add(app, "stats", job_views.stats, LOOKING, RemoteCommand)
    _add(app, "cancel", jobs.cancel, MESSAGES_OF_JOBS, RemoteCommand)
    _add(app, "retry", jobs.retry, MESSAGES_OF_JOBS, RemoteCommand)
    app.add_typer(_dead_jobs(), name="dlq", rich_help_panel=MESSAGES_OF_JOBS)
    app.add_typer(_workers(), name="worker", rich_help_panel=OPERATING)
    app.add_typer(_schedules(), name="schedule", rich_help_panel=OPERATING)
    app.add_typer(_config(), name="config", rich_help_panel=OPERATING)
    app.add_typer(_limits(), name="limit", rich_help_panel=OPERATING)
    _add(app, "pause", jobs.pause, OPERATING, RemoteCommand)
    _add(app, "resume", jobs.resume, OPERATING, RemoteCommand)
    _add(app, "cleanup", jobs.cleanup, OPERATING, RemoteCommand)
    _add(app, "completion", completion, OPERATING)
    return app


def _dead_jobs() -> typer.Typer:
    app = _group(RemoteGroup, help=_unwrapped(job_dead.__doc__ or ""))
    _add(app, "list", job_dead.list_dead, command=RemoteCommand)
    _add(app, "show", job_dead.show_dead, command=RemoteCommand)
    _add(app, "retry", job_dead.retry_dead, command=RemoteCommand)
    _add(app, "purge", job_dead.purge_dead, command=RemoteCommand)
    return app


def _workers() -> typer.Typer:
    app = _group(RemoteGroup, help=_unwrapped(workers.__doc__ or ""))
    _add(app, "start", workers.start_workers)
    _add(app, "stop", workers.stop_workers, command=RemoteCommand)
    _add(app, "list", workers.list_workers, command=RemoteCommand)
    return app


def _schedules() -> typer.Typer:
    app = _group(RemoteGroup, help=_unwrapped(job_schedules.__doc__ or ""))
    _add(app, "add", job_schedules.add_schedule, command=RemoteCommand)
    _add(app, "list", job_schedules.list_schedules, command=RemoteCommand)
    _add(app, "pause", job_schedules.pause_schedule, command=RemoteCommand)
    _add(app, "resume", job_schedules.resume_schedule, command=RemoteCommand)
    _add(app, "run", job_schedules.run_schedule, command=RemoteCommand)
    _add(app, "remove", job_schedules.remove_schedule, command=RemoteCommand)
    return app


def _limits() -> typer.Typer:
    app = _group(job_limits.LimitGroup, help=_unwrapped(job_limits.__doc__ or ""))
    _add(app, "set", job_limits.set_limit, command=RemoteCommand)
    _add(app, "list", job_limits.list_limits, command=RemoteCommand)
    _add(app, "clear", job_limits.clear_limit, command=RemoteCommand)
    return app


def _config() -> typer.Typer:
    app = _group(RemoteGroup, help=_unwrapped(job_config.__doc__ or ""))
    _add(app, "set", job_config.set_config, command=RemoteCommand)
    _add(app, "get", job_config.get_config, command=RemoteCommand)
    _add(app, "unset", job_config.unset_config, command=RemoteCommand)
    _add(app, "list", job_config.list_config, command=RemoteCommand)
    return app


def _group(group: type[Group] = Group, **about: Any) -> typer.Typer:
    return typer.Typer(cls=group, add_completion=False, rich_markup_mode="rich", **about)


def _add(
    app: typer.Typer,
    name: str,
    function: Callable[..., None],
    panel: str | None = None,
    command: type[Command] = Command,
) -> None:
    app.command(name, cls=command, help=_unwrapped(function.__doc__ or ""), rich_help_panel=panel)(function)


def _unwrapped(doc: str) -> str:
    """A docstring whose paragraphs are one line each, to be wrapped for the terminal; examples keep their lines."""
    paragraphs = inspect.cleandoc(doc).split("\n\n")
    return "\n\n".join(text if "\n  " in text else text.replace("\n", " ") for text in paragraphs)


def run(arguments: list[str], program: str = "headwater") -> int:
    """Run one command line of `headwater`, or of `queuectl`; the exit code."""
    choices = Choices()
    if arguments[:1] == ["--version"] and program == "headwater":
        arguments = ["version", *arguments[1:]]
    if sys.stdout is None:
        print_error(
            "output_closed",
            "standard output is closed, and nothing was done: send it to a file, or to /dev/null",
            as_json="--json" in arguments,
        )
        return ExitCode.OUTPUT_CLOSED
    try:
        code = _run(program, arguments or ["--help"], choices)
        sys.stdout.flush()
    except BrokenPipeError:
        _close_output()
        return ExitCode.OUTPUT_CLOSED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            _close_output()
        return _tell(error, as_json=choices.json or "--json" in arguments, debug=choices.debug)
    return code


def _run(program: str, arguments: list[str], choices: Choices) -> int:
    command = _command(program)
    if (completed := complete(program, command)) is not None:
        return completed
    with command.make_context(program, list(arguments), obj=choices) as context:
        command.invoke(context)
    return ExitCode.OK


@cache
def _command(program: str) -> Group:
    """All commands, from their signatures. That takes longer than most of them run, so a process does it once."""
    return cast(Group, get_command(build_jobs() if program == "queuectl" else build()))


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
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        # What goes wrong with files of ours is told by name: this is where the answer was to go.
        print_error("output_failed", f"the output could not be written: {error.strerror}", as_json=as_json)
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
