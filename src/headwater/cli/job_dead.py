"""Jobs that have no attempt left: list them, look at one, arm them again or drop them.

Examples:
  queuectl dlq list
  queuectl dlq show job1
  queuectl dlq retry job1
  queuectl dlq purge --all --yes
"""

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.commands import Result, Working, command
from headwater.cli.job_choice import Choice, Deed, OfQueue, OfType, SomeIds, WithError, Yes, change_chosen, changes
from headwater.cli.job_views import JobId, Queue, job_table, look_at_job
from headwater.cli.output import confirm, plural
from headwater.cli.session import reached
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.log.job_operations import Changed
    from headwater.services.database import Database

WAITING_LOST = " What waits for one of them is cancelled with it."
All = Annotated[bool, typer.Option("--all", help="All dead jobs, or all of the queue.")]


@command
async def list_dead(
    settings: Settings,
    queue: Queue = "",
    type_: Annotated[str, typer.Option("--type", help="Only jobs of this type.", show_default=False)] = "",
    error: Annotated[str, typer.Option("--error", help="Only with this in their error.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The most to list.")] = 100,
) -> Result:
    """List dead jobs, the last first.

    Examples:
      queuectl dlq list
      queuectl dlq list --json
    """
    async with reached(settings, or_empty=True) as hw:
        dead = await hw.jobs.list(state="dead", queue=queue or None, type=type_ or None, error=error, limit=limit)
    return job_table(dead, limit)


@command
async def show_dead(settings: Settings, job_id: JobId) -> Result:
    """Show a dead job with its attempts and errors.

    Examples:
      queuectl dlq show job1
    """
    async with reached(settings) as hw:
        await _need_dead(hw, [job_id])
        return await look_at_job(hw, job_id)


@command
def retry_dead(
    settings: Settings,
    ids: SomeIds = None,
    queue: OfQueue = "",
    type_: OfType = "",
    error: WithError = "",
    everything: All = False,
    yes: Yes = False,
) -> Working:
    """Give dead jobs all their attempts again.

    Examples:
      queuectl dlq retry job1
      queuectl dlq retry --type tasks:send_email --error 'connection refused'
      queuectl dlq retry --all --queue mail --yes
    """
    from headwater.log.job_operations import RetryJobs

    async def act(hw: "Database", names: list[str]) -> "Changed":
        if ids:
            await _need_dead(hw, names)
        return await changes(RetryJobs, skip_unfit=not ids)(hw, names)

    choice = Choice(ids or (), ["dead"], queue, type_, error)
    return change_chosen(settings, choice, Deed("Retry", "armed again", act), everything=everything, yes=yes)


@command
def purge_dead(
    settings: Settings,
    ids: SomeIds = None,
    queue: OfQueue = "",
    type_: OfType = "",
    error: WithError = "",
    everything: All = False,
    yes: Yes = False,
) -> Working:
    """Drop dead jobs for good. What waits for one is cancelled; one whose end another job goes by is kept.

    Examples:
      queuectl dlq purge job1 --yes
      queuectl dlq purge --all --yes
    """
    from headwater.log.job_operations import DropJobs

    if ids:
        confirm(f"Drop {plural(len(ids), 'dead job')} for good?{WAITING_LOST}", yes=yes)

    async def act(hw: "Database", names: list[str]) -> "Changed":
        if ids:
            await _need_dead(hw, names)
        return await changes(DropJobs, skip_unfit=not ids)(hw, names)

    choice = Choice(ids or (), ["dead"], queue, type_, error)
    deed = Deed("Drop for good", "dropped", act, WAITING_LOST)
    return change_chosen(settings, choice, deed, everything=everything, yes=yes)


async def _need_dead(hw: "Database", ids: list[str]) -> None:
    from headwater.errors import JobMissing

    for name in ids:
        if (await hw.jobs.show(name)).state != "dead":
            raise JobMissing(f"job {name} is not dead; queuectl show {name} tells more")
