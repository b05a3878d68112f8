"""Jobs that come again and again, by a cron line or every so often.

Examples:
  queuectl schedule add nightly '{"command": "backup"}' --cron '0 3 * * *'
  queuectl schedule list
  queuectl schedule pause nightly
"""

from typing import Annotated

import typer

from headwater.cli.exits import Misuse
from headwater.cli.job_types import find_unregistered, warn_of
from headwater.cli.job_views import duration_of
from headwater.cli.output import iso_time, note, print_json, print_line, print_table
from headwater.cli.session import reached, run_async
from headwater.cli.settings import settings_of

Name = Annotated[str, typer.Argument(help="The schedule.", metavar="NAME", show_default=False)]


def add_schedule(
    ctx: typer.Context,
    name: Name,
    job: Annotated[str, typer.Argument(help="The job as JSON, without id.", metavar="JOB", show_default=False)],
    cron: Annotated[str, typer.Option(help="minute hour day month weekday, or @daily.", show_default=False)] = "",
    every: Annotated[str, typer.Option(help="A length of time: 30s, 10m, 1d.", show_default=False)] = "",
    timezone: Annotated[str, typer.Option(help="The time zone of the cron line.")] = "UTC",
) -> None:
    """Add a schedule, or change the one of this name.

    Examples:
      queuectl schedule add nightly '{"command": "backup"}' --cron '0 3 * * *' --timezone Europe/Berlin
      queuectl schedule add poll '{"command": "poll", "unique_key": "poll"}' --every 30s
    """
    from headwater.services.job_documents import decode_job

    settings = settings_of(ctx)
    if bool(cron) == bool(every):
        raise Misuse("say either --cron or --every")
    template = decode_job(job)
    seconds = duration_of("--every", every) if every else 0.0
    if every and not seconds:
        raise Misuse(f"--every has to be above 0, and is {every}: the shortest is 0.1 s")

    async def add() -> tuple[int, dict[str, str]]:
        async with reached(settings, create=True) as hw:
            next_at = await hw.jobs.schedule(name, template, cron=cron, every=seconds, timezone=timezone)
            return next_at, await find_unregistered(hw.jobs, [template])

    next_at, unregistered = run_async(add())
    if settings.json:
        print_json({"name": name, "next_at": iso_time(next_at)})
    else:
        print_line((name, "cyan"), (f" comes next at {iso_time(next_at)}", ""))
    warn_of(unregistered)


def list_schedules(ctx: typer.Context) -> None:
    """List schedules with their next and last time.

    Examples:
      queuectl schedule list
    """
    from headwater.services.job_documents import schedule_document

    settings = settings_of(ctx)

    async def read() -> list[dict[str, object]]:
        async with reached(settings, or_empty=True) as hw:
            return [dict(schedule_document(schedule)) for schedule in await hw.jobs.schedules()]

    found = run_async(read())
    if settings.json:
        for schedule in found:
            print_json(schedule)
        return
    if not found:
        note("there are no schedules")
        return
    names = ("name", "cron", "every_seconds", "timezone", "next_at", "last_at", "last_id")
    rows = [[schedule[name] for name in names] + ["paused" if schedule["paused"] else ""] for schedule in found]
    print_table(("NAME", "CRON", "EVERY", "TIME ZONE", "NEXT", "LAST", "LAST JOB", ""), rows)


def pause_schedule(ctx: typer.Context, name: Name) -> None:
    """Let a schedule rest.

    Examples:
      queuectl schedule pause nightly
    """
    _change(ctx, "pause_schedule", name, "rests")


def resume_schedule(ctx: typer.Context, name: Name) -> None:
    """Let a schedule go on.

    Examples:
      queuectl schedule resume nightly
    """
    _change(ctx, "resume_schedule", name, "goes on")


def run_schedule(ctx: typer.Context, name: Name) -> None:
    """Enqueue the job of a schedule now; its times stay what they are.

    Examples:
      queuectl schedule run nightly
    """
    settings = settings_of(ctx)

    async def run() -> str:
        async with reached(settings) as hw:
            return (await hw.jobs.run_schedule(name)).id

    job_id = run_async(run())
    if settings.json:
        print_json({"name": name, "id": job_id})
    else:
        print_line(("enqueued ", ""), (job_id, "cyan"))


def remove_schedule(ctx: typer.Context, name: Name) -> None:
    """Remove a schedule; jobs that it has enqueued stay.

    Examples:
      queuectl schedule remove nightly
    """
    _change(ctx, "unschedule", name, "is gone")


def _change(ctx: typer.Context, verb: str, name: str, done: str) -> None:
    settings = settings_of(ctx)

    async def change() -> None:
        async with reached(settings) as hw:
            await getattr(hw.jobs, verb)(name)

    run_async(change())
    if settings.json:
        print_json({"name": name, "done": verb})
    else:
        print_line((name, "cyan"), (f" {done}", ""))
