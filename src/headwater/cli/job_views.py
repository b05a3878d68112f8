"""`queuectl status`, `list`, `show`, `logs`, `wait` and `stats`: what happened to my job?"""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.commands import Result, Working, cells_of, command, document_table, facts, table
from headwater.cli.exits import ExitCode, Misuse
from headwater.cli.output import cut, note, plural, print_line, print_table, show_bytes, show_seconds
from headwater.cli.session import reached
from headwater.cli.settings import Settings
from headwater.cli.watching import watch
from headwater.model.job import JobState, first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.services.database import Database
    from headwater.stores.job_questions import JobAttempt, JobStatus

JobId = Annotated[str, typer.Argument(help="The job.", metavar="ID", show_default=False)]
JobIds = Annotated[list[str], typer.Argument(help="Jobs by id.", metavar="ID...", show_default=False)]
Queue = Annotated[str, typer.Option("--queue", help="Only this queue.", show_default=False)]
Watch = Annotated[bool, typer.Option("--watch", help="Show it again whenever it changes, until Ctrl-C.")]
TEXT_LENGTH_SHOWN = 60
# Of these, a start that is known is that of an earlier attempt.
NOT_BEGUN = (JobState.PENDING, JobState.SCHEDULED, JobState.WAITING)
COLUMNS = ("ID", "STATE", "QUEUE", "JOB", "ATTEMPTS", "PRIORITY", "CREATED", "STARTED", "WORKER", "WAITING", "ERROR")
STATES = ("pending", "processing", "scheduled", "waiting", "failed", "completed", "dead", "cancelled")


@command
def status(settings: Settings, watching: Watch = False) -> Working:
    """How many jobs are in which state, by queue, and how many workers there are.

    Examples:
      queuectl status
      queuectl status --watch
    """
    return watch(settings, _look_at_queues, watching=watching, or_empty=True)


async def _look_at_queues(hw: "Database") -> Result:
    from headwater.services.job_documents import queue_document

    queues = [dict(queue_document(queue)) for queue in await hw.jobs.queues()]
    workers = len(await hw.jobs.workers())
    totals = {state: sum(int(str(queue[state])) for queue in queues) for state in STATES}

    def show() -> None:
        rows = [(*cells_of(queue, ("queue", *STATES)), "paused" if queue["paused"] else "") for queue in queues]
        print_table(("QUEUE", *(state.upper() for state in STATES), ""), rows)
        note(plural(workers, "worker"))

    return Result([{"queues": queues, "totals": totals, "workers": workers}], show)


@command
def list_jobs(
    settings: Settings,
    state: Annotated[str, typer.Option(help=f"Only jobs in this state: {', '.join(STATES)}.", show_default=False)] = "",
    queue: Queue = "",
    type_: Annotated[str, typer.Option("--type", help="Only jobs of this type.", show_default=False)] = "",
    batch: Annotated[str, typer.Option(help="Only jobs of this batch.", show_default=False)] = "",
    error: Annotated[str, typer.Option(help="Only jobs with this in their error.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The most to list.")] = 100,
    watching: Watch = False,
) -> Working:
    """List jobs: those that ended last first, others in the order in which they would run.

    Examples:
      queuectl list --state pending
      queuectl list --state dead --json
    """
    check_state(state)

    async def look(hw: "Database") -> Result:
        jobs = await hw.jobs.list(
            state=state, queue=queue or None, type=type_ or None, batch=batch or None, error=error, limit=limit
        )
        return job_table(jobs, limit)

    return watch(settings, look, watching=watching, or_empty=True)


def job_table(jobs: "list[JobStatus]", limit: int) -> Result:
    """Jobs as a table, or a line of JSON each."""
    from headwater.clock import SystemClock
    from headwater.services.job_documents import describe_work, job_document, show_time

    now = SystemClock().now()

    def row(job: "JobStatus") -> tuple[object, ...]:
        return (
            job.id,
            show_state(job),
            job.queue,
            cut(describe_work(job), TEXT_LENGTH_SHOWN),
            f"{job.attempts}/{job.attempts_max}",
            job.priority,
            show_time(job.created_at),
            None if job.state in NOT_BEGUN else show_time(job.started_at),
            job.worker,
            show_waiting(job, now),
            cut(first_line(job.error or ""), TEXT_LENGTH_SHOWN),
        )

    more = f"there may be more: --limit shows more than {limit:,}" if len(jobs) == limit else ""
    return table(jobs, job_document, COLUMNS, row, empty="no jobs", more=more)


def check_state(state: str) -> str:
    """A state that there is, or none; another one is wrong usage: nothing is tried."""
    if state and state not in STATES:
        raise Misuse(f"no such state: {state!r:.40}; there are {', '.join(STATES)}")
    return state


def duration_of(option: str, text: str) -> float:
    """A length of time that was typed for an option."""
    from headwater.errors import InvalidOption
    from headwater.model.durations import parse_duration

    try:
        return parse_duration(text)
    except InvalidOption as error:
        raise Misuse(f"{option}: {error}") from error


def show_state(job: "JobStatus") -> str:
    """The state of a job; one that was cancelled and runs until its worker has ended it is asked to stop."""
    return f"{job.state.value}, asked to stop" if job.cancelling else job.state.value


def show_waiting(job: "JobStatus", now: int) -> str | None:
    """What a job waits for: a worker, and for how long it has; a time, and how far that is; or other jobs."""
    from headwater.clock import SECOND

    if job.state.value == "waiting":
        return f"for {plural(job.waits, 'job')}"
    if job.state.value in ("scheduled", "failed") and job.run_at > now:
        return f"{show_seconds((job.run_at - now) / SECOND)} more"
    if job.state.value in ("pending", "scheduled", "failed"):
        return show_seconds(max(now - job.run_at, 0) / SECOND)
    return None


@command
def show(settings: Settings, job_id: JobId, watching: Watch = False) -> Working:
    """Show what happened to a job: its state, its attempts, its result, and why it failed.

    Examples:
      queuectl show job1
      queuectl show job1 --json
    """
    return watch(settings, lambda hw: look_at_job(hw, job_id), watching=watching)


async def look_at_job(hw: "Database", job_id: str) -> Result:
    """Everything that is known of a job."""
    from headwater.services.job_documents import attempt_document, job_document

    job = await hw.jobs.show(job_id)
    attempts = await hw.jobs.attempts(job_id)
    needs = await hw.jobs.dependencies(job_id)
    about = [attempt_document(attempt) for attempt in attempts]
    output = attempts[-1].output if attempts else None
    depends_on = [{"id": name, "state": state.value} for name, state in needs]
    document = {**job_document(job), "output": output, "attempt_list": about, "depends_on": depends_on}
    return facts(document, _facts(job, attempts, needs))


def _facts(
    job: "JobStatus", attempts: "Sequence[JobAttempt]", needs: "Sequence[tuple[str, JobState]]"
) -> list[tuple[str, object]]:
    from headwater.services.job_documents import describe_work, show_time

    times = (
        ("created", job.created_at),
        ("runs at", job.run_at),
        ("last started" if job.state in NOT_BEGUN else "started", job.started_at),
        ("ended", job.finished_at),
    )
    facts: list[tuple[str, object]] = [
        ("id", job.id),
        ("state", show_state(job)),
        ("job", describe_work(job)),
        *_work(job),
        ("queue", job.queue),
        ("priority", job.priority),
        ("attempts", f"{job.attempts} of {job.attempts_max}"),
        *((name, show_time(time)) for name, time in times if time is not None),
    ]
    optional = (
        ("worker", job.worker),
        ("batch", job.batch),
        ("depends on", [f"{name} ({state.value})" for name, state in needs] or None),
        ("progress", None if job.progress is None else bytes(job.progress).decode()),
        ("result", None if job.result is None else bytes(job.result).decode()),
        ("error", (job.error or "").splitlines() or None),
    )
    facts += [(name, value) for name, value in optional if value is not None]
    facts += [(f"attempt {attempt.attempt}", _attempt(attempt)) for attempt in attempts]
    if attempts and attempts[-1].output:
        facts.append(("output", attempts[-1].output.splitlines()[-10:]))
    return facts


def _work(job: "JobStatus") -> list[tuple[str, object]]:
    """What a function is called with; what a command is given besides its words, of its environment the names."""
    from headwater.model.job import runs_command

    if not runs_command(job.type):
        arguments = bytes(job.work.arguments).decode()
        return [] if arguments == "null" else [("arguments", arguments)]
    facts: list[tuple[str, object]] = [("type", job.type)] if job.type != "shell" else []
    facts += [("folder", job.work.cwd)] if job.work.cwd else []
    return facts + ([("environment", sorted(job.work.env))] if job.work.env else [])


def _attempt(attempt: "JobAttempt") -> str:
    parts = [attempt.outcome]
    if attempt.exit_code is not None:
        parts.append(f"exit code {attempt.exit_code}")
    if attempt.duration_seconds is not None:
        parts.append(show_seconds(attempt.duration_seconds))
    if attempt.memory_bytes:
        parts.append(show_bytes(attempt.memory_bytes))
    if attempt.error:
        parts.append(cut(first_line(attempt.error), TEXT_LENGTH_SHOWN))
    return ", ".join(parts)


@command
async def stats(
    settings: Settings,
    hours: Annotated[float, typer.Option(min=0.01, max=720, help="How far to look back.")] = 1.0,
    minutes: Annotated[bool, typer.Option("--minutes", help="A line for every minute, for graphs.")] = False,
) -> Result:
    """What was done lately: jobs added, completed, failed and dead, and how long they ran.

    Examples:
      queuectl stats
      queuectl stats --hours 24 --minutes --json
    """
    from headwater.services.job_documents import minute_document

    async with reached(settings, or_empty=True) as hw:
        found = [dict(minute_document(minute)) for minute in await hw.jobs.minutes(hours)]
    names = ("enqueued", "completed", "failed", "dead", "run_seconds")
    if not minutes:
        totals: dict[str, dict[str, float]] = {}
        for minute in found:
            row = totals.setdefault(str(minute["queue"]), dict.fromkeys(names, 0.0))
            for name in names:
                row[name] += float(str(minute[name]))
        found = [{"queue": queue, "hours": hours, **row} for queue, row in totals.items()]
    return document_table(found, (*(("queue", "minute") if minutes else ("queue",)), *names))


@command
def wait(
    settings: Settings,
    ids: JobIds,
    timeout: Annotated[str, typer.Option(help="How long at most: 30s, 5m; nothing: as long as it takes.")] = "",
) -> Working:
    """Wait until jobs have ended; exit code 0 when all completed, 1 when not, 4 when the time was over first.

    Examples:
      queuectl wait job1
      queuectl wait job1 job2 --timeout 5m
    """
    return _wait(settings, ids, duration_of("--timeout", timeout) if timeout else None)


async def _wait(settings: Settings, ids: list[str], seconds: float | None) -> Result:
    async with reached(settings) as hw:
        ends = await asyncio.gather(*(_end_of(hw, name, seconds) for name in ids))
    states = dict(zip(ids, ends, strict=True))

    def show_states() -> None:
        for name, state in states.items():
            print_line((name, "cyan"), (f" {state or 'has not ended'}", ""))

    ended = ExitCode.OK if set(states.values()) == {"completed"} else ExitCode.FAILED
    code = ExitCode.NOTHING if None in states.values() else ended
    return Result([{"id": name, "state": state} for name, state in states.items()], show_states, code=code)


async def _end_of(hw: "Database", name: str, seconds: float | None) -> str | None:
    try:
        return (await hw.jobs.wait(name, seconds)).value
    except TimeoutError:
        return None
