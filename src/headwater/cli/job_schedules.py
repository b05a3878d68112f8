"""Jobs that come again and again, by a cron line or every so often.

Examples:
  queuectl schedule add nightly '{"command": "backup"}' --cron '0 3 * * *'
  queuectl schedule list
  queuectl schedule pause nightly
"""

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.commands import Result, Working, cells_of, command, line, table
from headwater.cli.exits import Misuse
from headwater.cli.job_types import find_unregistered, warnings_of
from headwater.cli.job_views import duration_of
from headwater.cli.output import iso_time
from headwater.cli.session import reached
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.stores.job_questions import ScheduleStatus

Name = Annotated[str, typer.Argument(help="The schedule.", metavar="NAME", show_default=False)]


@command
async def add_schedule(
    settings: Settings,
    name: Name,
    job: Annotated[str, typer.Argument(help="The job as JSON, without id.", metavar="JOB", show_default=False)],
    cron: Annotated[str, typer.Option(help="minute hour day month weekday, or @daily.", show_default=False)] = "",
    every: Annotated[str, typer.Option(help="A length of time: 30s, 10m, 1d.", show_default=False)] = "",
    timezone: Annotated[str, typer.Option(help="The time zone of the cron line.")] = "UTC",
) -> Result:
    """Add a schedule, or change the one of this name.

    Examples:
      queuectl schedule add nightly '{"command": "backup"}' --cron '0 3 * * *' --timezone Europe/Berlin
      queuectl schedule add poll '{"command": "poll", "unique_key": "poll"}' --every 30s
    """
    from headwater.services.job_documents import decode_job

    if bool(cron) == bool(every):
        raise Misuse("say either --cron or --every")
    template = decode_job(job)
    seconds = duration_of("--every", every) if every else 0.0
    if every and not seconds:
        raise Misuse(f"--every has to be above 0, and is {every}: the shortest is 0.1 s")

    async with reached(settings, create=True) as hw:
        found = await hw.jobs.schedule(name, template, cron=cron, every=seconds, timezone=timezone)
        unregistered = await find_unregistered(hw.jobs, [template])
    next_at = None if found is None else iso_time(found)
    said = f" comes next at {next_at}" if next_at else " rests as before; schedule resume lets it go on"
    return line({"name": name, "next_at": next_at}, (name, "cyan"), (said, ""), notes=warnings_of(unregistered))


@command
async def list_schedules(settings: Settings) -> Result:
    """List schedules with their next and last time.

    Examples:
      queuectl schedule list
    """
    from headwater.services.job_documents import schedule_document

    async with reached(settings, or_empty=True) as hw:
        found = await hw.jobs.schedules()
    names = ("name", "cron", "every_seconds", "timezone", "next_at", "last_at", "last_id")

    def row(schedule: "ScheduleStatus") -> list[object]:
        return [*cells_of(schedule_document(schedule), names), "paused" if schedule.paused else ""]

    columns = ("NAME", "CRON", "EVERY", "TIME ZONE", "NEXT", "LAST", "LAST JOB", "")
    return table(found, schedule_document, columns, row, empty="there are no schedules")


@command
def pause_schedule(settings: Settings, name: Name) -> Working:
    """Let a schedule rest.

    Examples:
      queuectl schedule pause nightly
    """
    return _change(settings, "pause_schedule", name, "rests")


@command
def resume_schedule(settings: Settings, name: Name) -> Working:
    """Let a schedule go on.

    Examples:
      queuectl schedule resume nightly
    """
    return _change(settings, "resume_schedule", name, "goes on")


@command
async def run_schedule(settings: Settings, name: Name) -> Result:
    """Enqueue the job of a schedule now; its times stay what they are.

    Examples:
      queuectl schedule run nightly
    """
    async with reached(settings) as hw:
        job_id = (await hw.jobs.run_schedule(name)).id
    return line({"name": name, "id": job_id}, ("enqueued ", ""), (job_id, "cyan"))


@command
def remove_schedule(settings: Settings, name: Name) -> Working:
    """Remove a schedule; jobs that it has enqueued stay.

    Examples:
      queuectl schedule remove nightly
    """
    return _change(settings, "unschedule", name, "is gone")


async def _change(settings: Settings, verb: str, name: str, done: str) -> Result:
    async with reached(settings) as hw:
        await getattr(hw.jobs, verb)(name)
    return line({"name": name, "done": verb}, (name, "cyan"), (f" {done}", ""))
