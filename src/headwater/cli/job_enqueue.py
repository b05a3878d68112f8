"""`queuectl enqueue`: jobs as JSON, as arguments or as lines, or one job made of options."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.commands import Result, Working, command
from headwater.cli.exits import InvalidJob, Misuse
from headwater.cli.job_types import find_unregistered, warnings_of
from headwater.cli.job_views import duration_of
from headwater.cli.output import plural, print_line
from headwater.cli.pushing import open_input
from headwater.cli.session import reached
from headwater.cli.settings import Settings
from headwater.errors import HeadwaterError, InvalidInput, JobMissing

if TYPE_CHECKING:
    from headwater.log.job_operations import NewJob
    from headwater.services.jobs import JobHandle

INPUT_BYTES_MAX = 256 * 1_048_576
# A job that is not there can only be one that these depend on.
WRONG_JOB = (InvalidInput, JobMissing)
WORK, POLICY, TIES = "What it does", "How it is run", "What it has to do with others"


def _option(name: str, panel: str, help: str, **about: Any) -> Any:
    return typer.Option(f"--{name}", help=help, rich_help_panel=panel, show_default=False, **about)


@command
def enqueue(
    settings: Settings,
    jobs: Annotated[
        list[str] | None, typer.Argument(help="Jobs as JSON; none: read lines.", metavar="JOB...", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Read one job a line from here; - is standard input.")
    ] = None,
    command: Annotated[str | None, _option("command", WORK, "A line for the shell.")] = None,
    argv: Annotated[str | None, _option("argv", WORK, "A program and its arguments, as a JSON list.")] = None,
    type_: Annotated[
        str | None, _option("type", WORK, "The function, or command:NAME to give a command a type.")
    ] = None,
    args: Annotated[str | None, _option("args", WORK, "The arguments of a function by place, as a JSON list.")] = None,
    kwargs: Annotated[str | None, _option("kwargs", WORK, "Its arguments by name, as a JSON object.")] = None,
    cwd: Annotated[str | None, _option("cwd", WORK, "The folder that a command runs in.")] = None,
    id_: Annotated[str | None, _option("id", POLICY, "A name of your own.")] = None,
    queue: Annotated[str | None, _option("queue", POLICY, "The queue.")] = None,
    priority: Annotated[int | None, _option("priority", POLICY, "Higher comes first.")] = None,
    delay: Annotated[
        str | None, _option("delay", POLICY, "Not before this time has passed: 45s, 10m, 12h, 7d.")
    ] = None,
    run_at: Annotated[str | None, _option("run-at", POLICY, "Not before then: 2026-01-31T08:00:00Z.")] = None,
    timeout: Annotated[str | None, _option("timeout", POLICY, "How long it may run: 45s, 10m.")] = None,
    retries: Annotated[int | None, _option("retries", POLICY, "How often it is tried again.")] = None,
    backoff_base: Annotated[float | None, _option("backoff-base", POLICY, "Retries wait base ** attempts s.")] = None,
    backoff_max: Annotated[str | None, _option("backoff-max", POLICY, "The longest wait before a retry.")] = None,
    backoff_jitter: Annotated[float | None, _option("backoff-jitter", POLICY, "The share added to waits.")] = None,
    result_ttl: Annotated[str | None, _option("result-ttl", POLICY, "How long its result is kept.")] = None,
    depends_on: Annotated[list[str] | None, _option("depends-on", TIES, "After this job; may be repeated.")] = None,
    depends_when: Annotated[str | None, _option("depends-when", TIES, "When they have completed, or finished.")] = None,
    unique_key: Annotated[str | None, _option("unique-key", TIES, "None of this key while another waits.")] = None,
    unique_seconds: Annotated[str | None, _option("unique-seconds", TIES, "Nor for this long: 45s, 10m.")] = None,
    unique_mode: Annotated[str | None, _option("unique-mode", TIES, "Then ignore this one, or replace that.")] = None,
    concurrency_key: Annotated[str | None, _option("concurrency-key", TIES, "One of this key at a time.")] = None,
    concurrency_limit: Annotated[int | None, _option("concurrency-limit", TIES, "Or so many at a time.")] = None,
    limit_key: Annotated[str | None, _option("limit-key", TIES, "Whose share of turns and limits it takes.")] = None,
    batch: Annotated[str | None, _option("batch", TIES, "The batch that it belongs to.")] = None,
) -> Working:
    """Add jobs: all of them in one transaction, or none.

    A job is a JSON object with a command for the shell, or argv, or the type of a function with args and kwargs. What
    else it may say has an option of the same name below, and env. What it does not say, its function and its queue do.
    A type that no app or worker has registered, while others are, is enqueued with a warning: it may be misspelled.

    Examples:
      queuectl enqueue '{"id": "job1", "command": "sleep 2"}'
      queuectl enqueue '{"argv": ["convert", "a.png", "a.jpg"], "priority": 5, "timeout": 60}'
      queuectl enqueue --type tasks:send_email --kwargs '{"to": "ada@example.org"}' --delay 10m
      queuectl enqueue --file jobs.ndjson
    """
    said = {name.rstrip("_"): value for name, value in locals().items() if value is not None and value != []}
    del said["settings"]
    with _wrong_usage():
        return _enqueue(settings, _found(said.pop("jobs", []), said.pop("file", None), said))


@contextmanager
def _wrong_usage() -> Iterator[None]:
    """Whatever is wrong with a job is wrong usage, before a store is opened for it and after."""
    try:
        yield
    except WRONG_JOB as error:
        raise InvalidJob(error) from error


def _found(jobs: list[str], file: Path | None, options: dict[str, Any]) -> "list[NewJob]":
    """The jobs that a command line means."""
    if (bool(jobs) + (file is not None) + bool(options)) > 1:
        raise Misuse("give jobs as arguments, or with --file, or one job by options: one of these")
    if options:
        return [_made(options)]
    found = [_decode(text, f"job {number}") for number, text in enumerate(jobs, 1)] or _read(file)
    counts = Counter(job.id for job in found if job.id)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise InvalidInput(f"these ids come more than once: {', '.join(repeated[:5])}")
    return found


def _made(options: dict[str, Any]) -> "NewJob":
    """The job that the options describe."""
    from headwater.services.job_options import with_options

    for name in ("delay", "timeout", "backoff_max", "result_ttl", "unique_seconds"):
        if name in options:
            options[name] = duration_of(f"--{name.replace('_', '-')}", options[name])
    for name, kind in (("argv", list[str]), ("args", list[Any]), ("kwargs", dict[str, Any])):
        if name in options:
            options[name] = _json(name, options[name], kind)
    return with_options(None, options)


def _json(name: str, text: str, kind: Any) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        example = '{"to": "ada"}' if name == "kwargs" else '["a", "b"]'
        raise InvalidInput(f"--{name} must be JSON like {example}: {error}") from error


def _print_handles(handles: "Sequence[JobHandle]") -> None:
    if len(handles) > 20:
        print_line((f"enqueued {plural(len(handles), 'job')}", ""))
        return
    for handle in handles:
        print_line(("is there already: " if handle.duplicate else "enqueued ", ""), (handle.id, "cyan"))


def _decode(text: str | bytes, place: str) -> "NewJob":
    from headwater.services.job_documents import decode_job

    try:
        return decode_job(text)
    except HeadwaterError as error:
        raise type(error)(f"{place}: {error}") from error


def _read(file: Path | None) -> "list[NewJob]":
    if file is None and sys.stdin.isatty():
        raise Misuse("give a job as JSON, or lines with --file or standard input; --help shows how")
    with open(open_input(file), "rb") as lines:
        text = lines.read(INPUT_BYTES_MAX + 1)
    if len(text) > INPUT_BYTES_MAX:
        raise InvalidInput(f"at most {INPUT_BYTES_MAX:,} bytes are read at once; split the file")
    numbered = [(number, line) for number, line in enumerate(text.split(b"\n"), 1) if line.strip()]
    if not numbered:
        raise InvalidInput("there is no job to enqueue: what was read is empty")
    return [_decode(line, f"line {number}") for number, line in numbered]


async def _enqueue(settings: Settings, jobs: "list[NewJob]") -> Result:
    with _wrong_usage():
        async with reached(settings, create=True) as hw:
            handles = await hw.jobs.add_many(jobs)
            notes = warnings_of(await find_unregistered(hw.jobs, jobs))
    documents = [{"id": handle.id, "duplicate": handle.duplicate} for handle in handles]
    return Result(documents, lambda: _print_handles(handles), notes)
