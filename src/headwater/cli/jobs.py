"""`queuectl`: jobs in, jobs watched, jobs changed. Also there as `headwater jobs`.

Examples:
  queuectl enqueue '{"id": "job1", "command": "sleep 2"}'
  queuectl worker start --count 4
  queuectl status
  queuectl show job1
"""

from typing import Annotated

import typer

from headwater.cli.commands import Result, Working, command, line
from headwater.cli.exits import Misuse
from headwater.cli.job_choice import (
    Choice,
    Deed,
    InState,
    OfQueue,
    OfType,
    SomeIds,
    WithError,
    Yes,
    change_chosen,
    changes,
)
from headwater.cli.job_views import Queue, check_state, duration_of
from headwater.cli.output import plural
from headwater.cli.session import reached
from headwater.cli.settings import Settings

ENDS = ("completed", "cancelled", "dead")
ThisQueue = Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE")]

# ── changing ──


@command
def cancel(
    settings: Settings,
    ids: SomeIds = None,
    state: InState = "",
    queue: OfQueue = "",
    type_: OfType = "",
    error: WithError = "",
    everything: Annotated[bool, typer.Option("--all", help="All jobs that have not ended.")] = False,
    yes: Yes = False,
) -> Working:
    """Cancel jobs that have not ended. Those that run are asked to stop, and their worker ends them.

    By --queue, --type, --error or --state, how many are meant is shown and asked first.

    Examples:
      queuectl cancel job1
      queuectl cancel --type tasks:send_email --queue mail
    """
    from headwater.log.job_operations import CancelJobs

    states = [check_state(state)] if state else ["pending", "scheduled", "waiting", "failed", "processing"]
    choice = Choice(ids or (), states, queue, type_, error)
    deed = Deed("Cancel", "cancelled", changes(CancelJobs, skip_unfit=not ids))
    return change_chosen(settings, choice, deed, everything=everything or bool(state), yes=yes)


@command
def retry(
    settings: Settings,
    ids: SomeIds = None,
    state: InState = "",
    queue: OfQueue = "",
    type_: OfType = "",
    error: WithError = "",
    everything: Annotated[bool, typer.Option("--all", help="All jobs that failed or are dead.")] = False,
    yes: Yes = False,
) -> Working:
    """Give jobs that failed, died or were cancelled all their attempts again, from now on.

    By --all, --queue, --type or --error, those that failed or are dead are meant: a job that somebody cancelled comes
    back only when it is named, by its id or by --state cancelled. A job whose unique key another one has by now, or
    that depends on one which was dropped, is refused, and among many passed over.

    Examples:
      queuectl retry job1
      queuectl retry --type tasks:send_email --error 'connection refused'
    """
    from headwater.log.job_operations import RetryJobs

    states = [check_state(state)] if state else ["failed", "dead"]
    choice = Choice(ids or (), states, queue, type_, error)
    deed = Deed("Retry", "armed again", changes(RetryJobs, skip_unfit=not ids))
    return change_chosen(settings, choice, deed, everything=everything or bool(state), yes=yes)


@command
async def cleanup(
    settings: Settings,
    older_than: Annotated[str, typer.Option(help="Only jobs that ended longer ago: 45s, 10m, 12h, 7d.")] = "7d",
    state: Annotated[str, typer.Option(help="Jobs that ended so: completed, cancelled or dead.")] = "completed",
    queue: Queue = "",
) -> Result:
    """Forget jobs that completed long ago, or ended so as --state says.

    Jobs whose end others go by that may still run are kept. What waits for a dead job that is dropped is cancelled.

    Examples:
      queuectl cleanup
      queuectl cleanup --older-than 1h --state cancelled
    """
    if check_state(state) not in ENDS:
        raise Misuse(f"--state: only jobs that ended are forgotten, {' or '.join(ENDS)}; got {state!r:.40}")
    seconds = duration_of("--older-than", older_than)
    async with reached(settings) as hw:
        found = await hw.jobs.drop_old(older_than=seconds, state=state, queue=queue or None)
    document, notes = {"dropped": found.dropped}, []
    if found.kept:
        document["kept"] = found.kept
        notes.append(f"kept {plural(found.kept, 'job')}: others depend on them that may still run")
    if found.cancelled:
        document["cancelled"] = found.cancelled
        notes.append(f"cancelled {plural(found.cancelled, 'job')} with them, which waited for one that was dropped")
    return line(document, (f"dropped {plural(found.dropped, 'job')}", ""), notes=notes)


@command
def pause(settings: Settings, queue: ThisQueue = "default") -> Working:
    """Hand out no more jobs of a queue; those that run go on.

    Examples:
      queuectl pause mail
    """
    return _pause(settings, queue, paused=True)


@command
def resume(settings: Settings, queue: ThisQueue = "default") -> Working:
    """Hand out the jobs of a queue again.

    Examples:
      queuectl resume mail
    """
    return _pause(settings, queue, paused=False)


async def _pause(settings: Settings, queue: str, *, paused: bool) -> Result:
    async with reached(settings, create=True) as hw:
        known = sorted(one.queue for one in await hw.jobs.queues())
        await (hw.jobs.pause(queue) if paused else hw.jobs.resume(queue))
    # It is no error: whoever pauses a queue before its first job comes means it.
    there = ", ".join(known[:10]) or "none yet"
    hint = f"there is no job queue {queue} so far: this holds for jobs that are added to it; there is {there}"
    parts = ((queue, "cyan"), (" is paused" if paused else " goes on", ""))
    return line({"queue": queue, "paused": paused}, *parts, notes=() if queue in known else [hint])
