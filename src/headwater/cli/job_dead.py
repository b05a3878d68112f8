"""Jobs that have no attempt left: list them, look at one, arm them again or drop them.

Examples:
  queuectl dlq list
  queuectl dlq show job1
  queuectl dlq retry job1
  queuectl dlq purge --all --yes
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.exits import ExitCode, Misuse
from headwater.cli.job_views import Queue, print_jobs, show_job
from headwater.cli.jobs import print_changed
from headwater.cli.output import confirm, note, plural, print_json
from headwater.cli.session import reached, run_async
from headwater.cli.settings import Settings, settings_of

if TYPE_CHECKING:
    from headwater.services.database import Database

SomeIds = Annotated[list[str] | None, typer.Argument(help="Jobs by id.", metavar="ID...", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All dead jobs, or all of the queue.")]
BITE = 1_000


def list_dead(
    ctx: typer.Context,
    queue: Queue = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The most to list.")] = 100,
) -> None:
    """List dead jobs, the last first.

    Examples:
      queuectl dlq list
      queuectl dlq list --json
    """
    settings = settings_of(ctx)

    async def found() -> None:
        async with reached(settings) as hw:
            print_jobs(settings, await hw.jobs.list(state="dead", queue=queue, limit=limit), limit)

    run_async(found())


def show_dead(
    ctx: typer.Context, job_id: Annotated[str, typer.Argument(help="The job.", metavar="ID", show_default=False)]
) -> None:
    """Show a dead job with its attempts and errors.

    Examples:
      queuectl dlq show job1
    """
    settings = settings_of(ctx)

    async def found() -> None:
        async with reached(settings) as hw:
            await _need_dead(hw, [job_id])
            await show_job(hw, settings, job_id)

    run_async(found())


def retry_dead(ctx: typer.Context, ids: SomeIds = None, queue: Queue = "", everything: All = False) -> None:
    """Give dead jobs all their attempts again.

    Examples:
      queuectl dlq retry job1
      queuectl dlq retry --all --queue mail
    """

    async def some(hw: "Database", names: list[str]) -> list[str]:
        await _need_dead(hw, names)
        return list(await hw.jobs.retry(*names))

    async def bite(hw: "Database") -> list[str]:
        return list(await hw.jobs.retry_dead(queue=queue, limit=BITE))

    _each(ctx, ids, everything, "armed again", some, bite)


def purge_dead(
    ctx: typer.Context,
    ids: SomeIds = None,
    queue: Queue = "",
    everything: All = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Drop dead jobs for good.

    Examples:
      queuectl dlq purge job1 --yes
      queuectl dlq purge --all --yes
    """
    confirm(f"Drop {plural(len(ids), 'dead job') if ids else 'all dead jobs'} for good?", yes=yes)

    async def some(hw: "Database", names: list[str]) -> list[str]:
        await _need_dead(hw, names)
        return list(await hw.jobs.drop(*names))

    async def bite(hw: "Database") -> list[str]:
        found = await hw.jobs.list(state="dead", queue=queue, limit=BITE)
        return list(await hw.jobs.drop(*(job.id for job in found))) if found else []

    _each(ctx, ids, everything, "dropped", some, bite)


def _each(
    ctx: typer.Context,
    ids: list[str] | None,
    everything: bool,
    done: str,
    some: "Callable[[Database, list[str]], Awaitable[list[str]]]",
    bite: "Callable[[Database], Awaitable[list[str]]]",
) -> None:
    settings = settings_of(ctx)
    if bool(ids) == everything:
        raise Misuse("name the jobs, or say --all")
    _tell(settings, run_async(_collect(settings, ids or [], some, bite)), done)


async def _collect(
    settings: Settings,
    ids: list[str],
    some: "Callable[[Database, list[str]], Awaitable[list[str]]]",
    bite: "Callable[[Database], Awaitable[list[str]]]",
) -> list[str]:
    async with reached(settings) as hw:
        if ids:
            return await some(hw, ids)
        found: list[str] = []
        while part := await bite(hw):
            found += part
        return found


def _tell(settings: Settings, ids: list[str], done: str) -> None:
    if ids:
        print_changed(settings, ids, done)
        return
    if settings.json:
        print_json({"ids": [], "count": 0})
    else:
        note("there are no dead jobs")
    raise typer.Exit(ExitCode.NOTHING)


async def _need_dead(hw: "Database", ids: list[str]) -> None:
    from headwater.errors import JobMissing

    for name in ids:
        if (await hw.jobs.show(name)).state != "dead":
            raise JobMissing(f"job {name} is not dead; queuectl show {name} tells more")
