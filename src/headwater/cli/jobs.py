"""`queuectl`: jobs in, jobs watched, jobs changed. Also there as `headwater jobs`.

Examples:
  queuectl enqueue '{"id": "job1", "command": "sleep 2"}'
  queuectl worker start --count 4
  queuectl status
  queuectl show job1
"""

from typing import Annotated

import typer

from headwater.cli.job_views import JobIds, Queue
from headwater.cli.output import plural, print_json, print_line
from headwater.cli.session import reached, run_async
from headwater.cli.settings import Settings, settings_of

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
        async with reached(settings) as hw:
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
        async with reached(settings) as hw:
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
        async with reached(settings, create=True) as hw:
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
        async with reached(settings, create=True) as hw:
            per_seconds = parse_duration(per)
            return await hw.jobs.limit(
                type_, queue=queue, rate=rate, per=per_seconds, burst=burst, concurrency=concurrency
            )

    count = run_async(change())
    if settings.json:
        print_json({"type": type_, "queue": queue, "rate": rate, "per": per, "concurrency": concurrency, "jobs": count})
    else:
        print_line((type_, "cyan"), (f" is limited in {queue}; it holds for {plural(count, 'job')} now", ""))
