"""`queuectl`: jobs in, jobs watched, jobs changed. Also there as `headwater jobs`.

Examples:
  queuectl enqueue '{"id": "job1", "command": "sleep 2"}'
  queuectl worker start --count 4
  queuectl status
  queuectl show job1
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.exits import ExitCode, Misuse
from headwater.cli.output import note, plural, print_facts, print_json, print_line, print_table, show_seconds
from headwater.cli.pushing import open_input
from headwater.cli.session import opened, run_async
from headwater.cli.settings import Settings, settings_of
from headwater.cli.watching import watch
from headwater.errors import HeadwaterError, InvalidInput

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.log.job_operations import NewJob
    from headwater.stores.contract import JobAttempt, JobStatus

JobId = Annotated[str, typer.Argument(help="The job.", metavar="ID", show_default=False)]
JobIds = Annotated[list[str], typer.Argument(help="Jobs by id.", metavar="ID...", show_default=False)]
Queue = Annotated[str, typer.Option("--queue", help="Only this queue.", show_default=False)]
Watch = Annotated[bool, typer.Option("--watch", help="Show it again whenever it changes, until Ctrl-C.")]
INPUT_BYTES_MAX = 256 * 1_048_576
TEXT_LENGTH_SHOWN = 60
STATES = ("pending", "processing", "scheduled", "waiting", "failed", "completed", "dead", "cancelled")


# ── enqueue ──


def enqueue(
    ctx: typer.Context,
    jobs: Annotated[
        list[str] | None, typer.Argument(help="Jobs as JSON; none: read lines.", metavar="JOB...", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Read one job a line from here; - is standard input.")
    ] = None,
) -> None:
    """Add jobs: all of them in one transaction, or none.

    A job is a JSON object with a command for the shell, or argv, or the type of a function with args and kwargs. It may
    have id, queue, priority, delay, run_at, timeout, max_retries, depends_on, unique_key, concurrency_key, env and cwd.

    Examples:
      queuectl enqueue '{"id": "job1", "command": "sleep 2"}'
      queuectl enqueue '{"argv": ["convert", "a.png", "a.jpg"], "priority": 5, "timeout": 60}'
      queuectl enqueue --file jobs.ndjson
    """
    settings = settings_of(ctx)
    if jobs and file is not None:
        raise Misuse("give jobs as arguments or with --file, not both")
    found = [_decode(text, f"job {number}") for number, text in enumerate(jobs or [], 1)]
    if not jobs:
        found = _read(file)
    handles = run_async(_enqueue(settings, found))
    for handle in handles:
        if settings.json:
            print_json({"id": handle.id, "duplicate": handle.duplicate})
        elif len(handles) <= 20:
            verb = "is there already: " if handle.duplicate else "enqueued "
            print_line((verb, ""), (handle.id, "cyan"))
    if not settings.json and len(handles) > 20:
        print_line((f"enqueued {plural(len(handles), 'job')}", ""))


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
    return [_decode(line, f"line {number}") for number, line in numbered]


async def _enqueue(settings: Settings, jobs: "list[NewJob]") -> Any:
    async with opened(settings, create=True) as hw:
        return await hw.jobs.add_many(jobs)


# ── looking ──


def status(ctx: typer.Context, watching: Watch = False) -> None:
    """How many jobs are in which state, by queue, and how many workers there are.

    Examples:
      queuectl status
      queuectl status --watch
    """
    settings = settings_of(ctx)
    run_async(watch(settings, _show_status, watching=watching))


async def _show_status(hw: "Headwater", settings: Settings) -> None:
    from headwater.services.job_documents import queue_document

    queues = [queue_document(queue) for queue in await hw.jobs.queues()]
    workers = len(await hw.jobs.workers())
    totals = {state: sum(int(str(queue[state])) for queue in queues) for state in STATES}
    if settings.json:
        print_json({"queues": queues, "totals": totals, "workers": workers})
        return
    rows = [(q["queue"], *(q[state] for state in STATES), "paused" if q["paused"] else "") for q in queues]
    print_table(("QUEUE", *(state.upper() for state in STATES), ""), rows)
    note(plural(workers, "worker"))


def list_jobs(
    ctx: typer.Context,
    state: Annotated[str, typer.Option(help=f"Only jobs in this state: {', '.join(STATES)}.", show_default=False)] = "",
    queue: Queue = "",
    type_: Annotated[str, typer.Option("--type", help="Only jobs of this type.", show_default=False)] = "",
    batch: Annotated[str, typer.Option(help="Only jobs of this batch.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The most to list.")] = 100,
    watching: Watch = False,
) -> None:
    """List jobs: those that ended last first, others in the order in which they would run.

    Examples:
      queuectl list --state pending
      queuectl list --state dead --json
    """
    settings = settings_of(ctx)

    async def show_list(hw: "Headwater", settings: Settings) -> None:
        jobs = await hw.jobs.list(state=state, queue=queue, type=type_, batch=batch, limit=limit)
        print_jobs(settings, jobs, limit)

    run_async(watch(settings, show_list, watching=watching))


def print_jobs(settings: Settings, jobs: "list[JobStatus]", limit: int) -> None:
    """Jobs as a table, or a line of JSON each."""
    from headwater.services.job_documents import describe_work, job_document, show_time

    if settings.json:
        for job in jobs:
            print_json(job_document(job))
        return
    if not jobs:
        note("no jobs")
        return
    columns = ("ID", "STATE", "QUEUE", "JOB", "ATTEMPTS", "PRIORITY", "CREATED", "ERROR")
    rows = [
        (
            job.id,
            job.state.value,
            job.queue,
            _cut(describe_work(job)),
            f"{job.attempts}/{job.attempts_max}",
            job.priority,
            show_time(job.created_at),
            _cut((job.error or "").strip().rpartition("\n")[2]),
        )
        for job in jobs
    ]
    print_table(columns, rows)
    if len(jobs) == limit:
        note(f"there may be more: --limit shows more than {limit:,}")


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_SHOWN else f"{text[:TEXT_LENGTH_SHOWN]}…"


def show(ctx: typer.Context, job_id: JobId, watching: Watch = False) -> None:
    """Show what happened to a job: its state, its attempts, its result, and why it failed.

    Examples:
      queuectl show job1
      queuectl show job1 --json
    """

    async def show_one(hw: "Headwater", settings: Settings) -> None:
        await show_job(hw, settings, job_id)

    run_async(watch(settings_of(ctx), show_one, watching=watching))


async def show_job(hw: "Headwater", settings: Settings, job_id: str) -> None:
    """Everything that is known of a job."""
    from headwater.services.job_documents import attempt_document, job_document

    job = await hw.jobs.show(job_id)
    attempts = await hw.jobs.attempts(job_id)
    needs = await hw.jobs.dependencies(job_id)
    if settings.json:
        about = [attempt_document(attempt) for attempt in attempts]
        output = attempts[-1].output if attempts else None
        depends_on = [{"id": name, "state": state.value} for name, state in needs]
        print_json({**job_document(job), "output": output, "attempt_list": about, "depends_on": depends_on})
        return
    print_facts(_facts(job, attempts, needs))


def _facts(job: "JobStatus", attempts: "Any", needs: Any) -> list[tuple[str, object]]:
    from headwater.services.job_documents import describe_work, show_time

    times = (
        ("created", job.created_at),
        ("runs at", job.run_at),
        ("started", job.started_at),
        ("ended", job.finished_at),
    )
    facts: list[tuple[str, object]] = [
        ("id", job.id),
        ("state", job.state.value),
        ("job", describe_work(job)),
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


def _attempt(attempt: "JobAttempt") -> str:
    from headwater.cli.output import show_bytes

    parts = [attempt.outcome]
    if attempt.exit_code is not None:
        parts.append(f"exit code {attempt.exit_code}")
    if attempt.duration_seconds is not None:
        parts.append(show_seconds(attempt.duration_seconds))
    if attempt.memory_bytes:
        parts.append(show_bytes(attempt.memory_bytes))
    if attempt.error:
        parts.append(_cut(attempt.error.strip().rpartition("\n")[2]))
    return ", ".join(parts)


def stats(
    ctx: typer.Context,
    hours: Annotated[float, typer.Option(min=0.01, max=720, help="How far to look back.")] = 1.0,
    minutes: Annotated[bool, typer.Option("--minutes", help="A line for every minute, for graphs.")] = False,
) -> None:
    """What was done lately: jobs added, completed, failed and dead, and how long they ran.

    Examples:
      queuectl stats
      queuectl stats --hours 24 --minutes --json
    """
    settings = settings_of(ctx)
    run_async(_stats(settings, hours, minutes))


async def _stats(settings: Settings, hours: float, each: bool) -> None:
    from headwater.services.job_documents import minute_document

    async with opened(settings) as hw:
        found = [minute_document(minute) for minute in await hw.jobs.minutes(hours)]
    names = ("enqueued", "completed", "failed", "dead", "run_seconds")
    if not each:
        totals: dict[str, dict[str, float]] = {}
        for minute in found:
            row = totals.setdefault(str(minute["queue"]), dict.fromkeys(names, 0.0))
            for name in names:
                row[name] += float(str(minute[name]))
        found = [{"queue": queue, "hours": hours, **row} for queue, row in totals.items()]
    if settings.json:
        for row_of in found:
            print_json(row_of)
        return
    first = ("queue", "minute") if each else ("queue",)
    rows = [[row_of[name] for name in (*first, *names)] for row_of in found]
    print_table([name.upper().replace("_", " ") for name in (*first, *names)], rows)


# ── changing ──


def cancel(ctx: typer.Context, ids: JobIds) -> None:
    """Cancel jobs that have not ended; those that run are ended by their worker.

    Examples:
      queuectl cancel job1
    """
    _change(ctx, "cancel", "cancelled", ids)


def retry(ctx: typer.Context, ids: JobIds) -> None:
    """Give jobs that failed, died or were cancelled all their attempts again, from now on.

    Examples:
      queuectl retry job1
    """
    _change(ctx, "retry", "armed again", ids)


def _change(ctx: typer.Context, verb: str, done: str, ids: list[str]) -> None:
    settings = settings_of(ctx)

    async def change() -> list[str]:
        async with opened(settings) as hw:
            return list(await getattr(hw.jobs, verb)(*ids))

    print_changed(settings, run_async(change()), done)


def print_changed(settings: Settings, ids: "list[str]", done: str) -> None:
    """Which jobs were changed, and how."""
    if settings.json:
        print_json({"ids": ids, "count": len(ids)})
    else:
        print_line((f"{done}: ", ""), (", ".join(ids) if len(ids) <= 10 else plural(len(ids), "job"), "cyan"))


def cleanup(
    ctx: typer.Context,
    older_than: Annotated[str, typer.Option(help="Only jobs that ended longer ago: 45s, 10m, 12h, 7d.")] = "7d",
    state: Annotated[str, typer.Option(help="Jobs that ended so: completed, cancelled or dead.")] = "completed",
    queue: Queue = "",
) -> None:
    """Forget jobs that ended long ago.

    Examples:
      queuectl cleanup
      queuectl cleanup --older-than 1h --state cancelled
    """
    from headwater.model.durations import parse_duration

    settings = settings_of(ctx)
    seconds = parse_duration(older_than)

    async def clean() -> int:
        async with opened(settings) as hw:
            return await hw.jobs.cleanup(older_than=seconds, state=state, queue=queue)

    count = run_async(clean())
    if settings.json:
        print_json({"dropped": count})
    else:
        print_line((f"dropped {plural(count, 'job')}", ""))


def pause(
    ctx: typer.Context, queue: Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE")] = "default"
) -> None:
    """Hand out no more jobs of a queue; those that run go on.

    Examples:
      queuectl pause mail
    """
    _pause(ctx, queue, paused=True)


def resume(
    ctx: typer.Context, queue: Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE")] = "default"
) -> None:
    """Hand out the jobs of a queue again.

    Examples:
      queuectl resume mail
    """
    _pause(ctx, queue, paused=False)


def _pause(ctx: typer.Context, queue: str, *, paused: bool) -> None:
    settings = settings_of(ctx)

    async def change() -> None:
        async with opened(settings, create=True) as hw:
            await (hw.jobs.pause(queue) if paused else hw.jobs.resume(queue))

    run_async(change())
    if settings.json:
        print_json({"queue": queue, "paused": paused})
    else:
        print_line((queue, "cyan"), (" is paused" if paused else " goes on", ""))


def limit(
    ctx: typer.Context,
    type_: Annotated[str, typer.Argument(help="The type of job: shell, or a function.", metavar="TYPE")],
    queue: Annotated[str, typer.Option("--queue", help="The queue.")] = "default",
    rate: Annotated[float, typer.Option(min=0, help="How many may start in that time; 0 lifts the limit.")] = 0.0,
    per: Annotated[str, typer.Option(help="The time: 1s, 1m, 1h.")] = "1s",
    burst: Annotated[int, typer.Option(min=1, help="How many of them may start at once.")] = 1,
    concurrency: Annotated[int, typer.Option(min=0, help="How many may run at once; 0 lifts the limit.")] = 0,
) -> None:
    """Limit how often and how many at once jobs of one type run in a queue.

    Examples:
      queuectl limit shell --rate 10 --per 1m
      queuectl limit tasks:send_email --queue mail --concurrency 4
    """
    from headwater.model.durations import parse_duration

    settings = settings_of(ctx)

    async def change() -> int:
        async with opened(settings, create=True) as hw:
            per_seconds = parse_duration(per)
            return await hw.jobs.limit(
                type_, queue=queue, rate=rate, per=per_seconds, burst=burst, concurrency=concurrency
            )

    count = run_async(change())
    if settings.json:
        print_json({"type": type_, "queue": queue, "rate": rate, "per": per, "concurrency": concurrency, "jobs": count})
    else:
        print_line((type_, "cyan"), (f" is limited in {queue}; it holds for {plural(count, 'job')} now", ""))


def wait(
    ctx: typer.Context,
    ids: JobIds,
    timeout: Annotated[str, typer.Option(help="How long at most: 30s, 5m; nothing: as long as it takes.")] = "",
) -> None:
    """Wait until jobs have ended; exit code 0 when all completed, 1 when not, 4 when the time was over first.

    Examples:
      queuectl wait job1
      queuectl wait job1 job2 --timeout 5m
    """
    from headwater.model.durations import parse_duration

    settings = settings_of(ctx)
    seconds = parse_duration(timeout) if timeout else None
    states = run_async(_wait(settings, ids, seconds))
    for name, state in states.items():
        if settings.json:
            print_json({"id": name, "state": state})
        else:
            print_line((name, "cyan"), (f" {state or 'has not ended'}", ""))
    if None in states.values():
        raise typer.Exit(ExitCode.NOTHING)
    if set(states.values()) != {"completed"}:
        raise typer.Exit(ExitCode.FAILED)


async def _wait(settings: Settings, ids: list[str], seconds: float | None) -> dict[str, str | None]:
    import asyncio

    async with opened(settings) as hw:

        async def one(name: str) -> str | None:
            try:
                return (await hw.jobs.wait(name, seconds)).value
            except TimeoutError:
                return None

        return dict(zip(ids, await asyncio.gather(*(one(name) for name in ids)), strict=True))


def logs(
    ctx: typer.Context,
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    attempt: Annotated[int, typer.Option(min=0, help="The attempt; 0 is the last.")] = 0,
) -> None:
    """Print what a job printed.

    Examples:
      queuectl logs job1
      queuectl logs job1 -f
    """
    settings = settings_of(ctx)
    run_async(_logs(settings, job_id, follow, attempt))


async def _logs(settings: Settings, job_id: str, follow: bool, number: int) -> None:
    from headwater.cli.watching import changes
    from headwater.model.job import FINISHED

    shown = 0
    token = 0
    async with opened(settings) as hw:
        async for _ in changes(hw):
            job = await hw.jobs.show(job_id)
            found = [one for one in await hw.jobs.attempts(job_id) if number in (0, one.attempt)]
            last = found[-1] if found else None
            if settings.json and (not follow or job.state in FINISHED):
                from headwater.services.job_documents import attempt_document

                for one in found:
                    print_json(attempt_document(one))
            elif last is not None and not settings.json:
                shown = shown if last.token == token else 0
                token = last.token
                sys.stdout.write(last.output[shown:])
                sys.stdout.flush()
                shown = len(last.output)
            if not follow or job.state in FINISHED:
                return
