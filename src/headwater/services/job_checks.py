"""Bounds of jobs that callers hand in: each check returns the value, or raises and names what was expected."""

import math
from datetime import timedelta
from operator import attrgetter
from typing import Any

import msgspec

from headwater.clock import Timestamp
from headwater.errors import InvalidOption, TooLarge
from headwater.log.job_operations import NewJob, PutSchedule
from headwater.model.cron import find_timezone, next_cron
from headwater.model.job import COMMAND_PREFIX, HIDDEN, JOBS_QUEUE, SHELL, runs_command
from headwater.model.names import check_name
from headwater.model.record import check_texts
from headwater.services.checks import TIMESTAMP_MAX, check_optional_name, check_text, is_text

COMMAND_BYTES_MAX = 100_000
ARGUMENTS_MAX = 1_000
VARIABLES_MAX = 1_000
DEPENDENCIES_MAX = 1_000
PRIORITY_MAX = 1_000_000
SECONDS_MAX = 10 * 365 * 86_400.0

_plain = NewJob()
# Most jobs have none of these: one look at all of them together, because jobs come by the hundred thousand.
_named = ("id", "queue", "type", "command", "argv", "arguments", "env", "cwd")
_options = attrgetter(*(name for name in NewJob.__struct_fields__ if name not in _named))
_defaults = _options(_plain)
_modes = {"depends_when": ("completed", "finished"), "unique_mode": ("", "ignore", "replace")}
_seconds = ("delay", "timeout", "backoff_max", "result_ttl", "unique_seconds")


def check_job(job: object, bytes_max: int) -> NewJob:
    """A job that may be handed in."""
    if not isinstance(job, NewJob):
        raise InvalidOption(f"a headwater.NewJob is expected; got a {type(job).__name__}")
    if job.id:
        check_name("job", job.id)
    _check_place(job)
    _check_lists(job)
    if _options(job) != _defaults:
        job = _in_seconds(job)
        _check_options(job)
        _check_company(job)
    if runs_command(job.type):
        _check_command(job)
    else:
        _check_function(job)
    if len(memoryview(job.arguments)) > bytes_max:
        raise TooLarge(
            f"the arguments of a job may have {bytes_max:,} bytes; these have {len(memoryview(job.arguments)):,}"
        )
    if job.arguments != _plain.arguments:
        check_texts([bytes(job.arguments)], bytes_max)
    return job


def check_declared(job: NewJob) -> NewJob:
    """A job as a function declares it for its calls: these may still say what goes with it."""
    _check_place(job)
    if runs_command(job.type):
        raise InvalidOption(f"{job.type!r:.80} is the type of a command: give the function another name")
    _check_lists(job)
    job = _in_seconds(job)
    _check_options(job)
    return job


_of_a_schedule = {"id": "ids of their own", "run_at": "the times of the schedule", "depends_on": "nothing to wait for"}


def check_schedule(schedule: PutSchedule, bytes_max: int) -> NewJob:
    """The job of a schedule that may be handed in."""
    check_name("schedule", schedule.name)
    if bool(schedule.cron) == bool(schedule.every_seconds):
        raise InvalidOption("a schedule needs either cron or every")
    find_timezone(schedule.timezone)
    if schedule.every_seconds:
        check_range("every", schedule.every_seconds, 0.1, SECONDS_MAX)
    else:
        # Which moment it is does not matter: only whether the line names any.
        next_cron(schedule.cron, schedule.timezone, Timestamp(0))
    job = check_job(schedule.job, bytes_max)
    for option, instead in _of_a_schedule.items():
        if getattr(job, option):
            raise InvalidOption(f"the jobs of a schedule have {instead}: leave out {option}")
    return job


def _check_place(job: NewJob) -> None:
    """Its queue and its type."""
    check_optional_name("queue", job.queue)
    check_name("job type", job.type)
    if job.queue == JOBS_QUEUE:
        raise InvalidOption(f"{JOBS_QUEUE} is where changes of jobs are told of: choose another queue")
    if job.type == COMMAND_PREFIX:
        raise InvalidOption(f"a type of your own has a name after {COMMAND_PREFIX}, like {COMMAND_PREFIX}backup")


def _check_lists(job: NewJob) -> None:
    for name, value in (("depends_on", job.depends_on), ("argv", job.argv)):
        if not isinstance(value, tuple | list):
            raise InvalidOption(f"{name} must be a list of texts, like ['a', 'b']; got {value!r:.80}")


# What means nothing without one of the others.
_company = {
    "unique_seconds": ("unique_key",),
    "unique_mode": ("unique_key",),
    "concurrency_limit": ("concurrency_key", "limit_key"),
}


def _check_company(job: NewJob) -> None:
    for name, others in _company.items():
        if getattr(job, name) and not any(getattr(job, other) for other in others):
            raise InvalidOption(f"{name} means nothing without {' or '.join(others)}: say which jobs it is about")


def _check_options(job: NewJob) -> None:
    _check_numbers(job)
    for name, allowed in _modes.items():
        if getattr(job, name) not in allowed:
            raise InvalidOption(f"{name} must be {' or '.join(filter(None, allowed))}; got {getattr(job, name)!r:.80}")
    if job.delay and job.run_at is not None:
        raise InvalidOption("give a job either delay or run_at, not both: which one should hold?")
    if job.limit_key and job.concurrency_key:
        raise InvalidOption("give a job either limit_key or concurrency_key, not both: a job queues in one place")
    _check_ties(job)


def _check_numbers(job: NewJob) -> None:
    for name in _seconds:
        value = getattr(job, name)
        if value is not None:
            check_range(name, value, 0, SECONDS_MAX)
    if job.priority is not None:
        check_range("priority", job.priority, -PRIORITY_MAX, PRIORITY_MAX, whole=True)
    if job.retries is not None:
        check_range("retries", job.retries, 0, 1_000, whole=True)
    if job.backoff_base is not None:
        check_range("backoff_base", job.backoff_base, 1, 1_000)
    if job.backoff_jitter is not None:
        check_range("backoff_jitter", job.backoff_jitter, 0, 10)
    if job.run_at is not None:
        check_range("run_at", job.run_at, 0, TIMESTAMP_MAX, whole=True)
    if job.concurrency_limit is not None:
        check_range("concurrency_limit", job.concurrency_limit, 1, 1_000_000, whole=True)


def _check_command(job: NewJob) -> None:
    if job.type != SHELL and not job.command and not job.argv:
        return  # One that a server allows by this name: it knows, and the store takes none without a command.
    if bool(job.command) == bool(job.argv):
        raise InvalidOption("a job needs either a command for the shell or a list of arguments (argv), not both")
    if job.arguments != _plain.arguments:
        raise InvalidOption("args and kwargs are for functions: name one with type, or use argv")
    if job.env:
        _check_env(job.env)
    if job.cwd and not is_text(job.cwd):
        raise InvalidOption(f"cwd must be a path; got {job.cwd!r:.80}")
    for text in (job.command, *job.argv):
        if not is_text(text):
            raise InvalidOption(f"a command and its arguments are texts without NUL; got {text!r:.80}")
    if job.argv and not job.argv[0]:
        raise InvalidOption("argv begins with the program to run; the first text of this one is empty")
    if len(job.argv) > ARGUMENTS_MAX or len(job.command) + sum(map(len, job.argv)) > COMMAND_BYTES_MAX:
        raise TooLarge(f"a command may have {COMMAND_BYTES_MAX:,} characters in {ARGUMENTS_MAX:,} arguments")


def _check_function(job: NewJob) -> None:
    """Whoever says how a command is run beside the type of a function means one of the two: not for us to guess."""
    if job.command or job.argv:
        raise InvalidOption(
            f"{job.type!r:.80} is the type of a function, and this job has a command; the type of a command is"
            f" {SHELL}, or a name of your own after {COMMAND_PREFIX}, like {COMMAND_PREFIX}backup"
        )
    if job.env or job.cwd:
        raise InvalidOption("env and cwd are for commands: a function runs in its worker's process")


def _in_seconds(job: NewJob) -> NewJob:
    """A job whose lengths of time are numbers."""
    lengths = {name: getattr(job, name) for name in _seconds}
    found = {name: value.total_seconds() for name, value in lengths.items() if isinstance(value, timedelta)}
    return msgspec.structs.replace(job, **found) if found else job


def _check_ties(job: NewJob) -> None:
    if len(job.depends_on) > DEPENDENCIES_MAX:
        raise TooLarge(f"a job may depend on {DEPENDENCIES_MAX:,} others; this one names {len(job.depends_on):,}")
    for name in job.depends_on:
        check_name("job", name)
    for name in ("unique_key", "concurrency_key", "limit_key", "batch"):
        if getattr(job, name):
            check_text(name, getattr(job, name))


def _check_env(env: object) -> None:
    if not isinstance(env, dict) or len(env) > VARIABLES_MAX:
        raise InvalidOption(f"env must be at most {VARIABLES_MAX:,} names with texts; got {_size(env)}")
    for name, value in env.items():
        if not is_text(name) or not is_text(value) or not name or "=" in name:
            raise InvalidOption(f"env must have names without = and texts as values; look at {name!r:.80}")
        if value == HIDDEN:
            raise InvalidOption(f"the value of {name!r:.80} in env is not told by any answer: give it anew")


def _size(env: object) -> str:
    """What came in place of an environment, without what is in it."""
    return f"{len(env):,} names" if isinstance(env, dict) else f"a {type(env).__name__}"


def check_range(name: str, value: Any, low: float, high: float, *, whole: bool = False) -> None:
    """Raises unless the value is a number within bounds."""
    kinds = (int,) if whole else (int, float)
    if type(value) not in kinds or not math.isfinite(value) or not low <= value <= high:
        what = "a whole number" if whole else "a number"
        raise InvalidOption(f"{name} must be {what} from {low:,.0f} to {high:,.0f}; got {value!r:.80}")
