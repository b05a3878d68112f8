"""How often and how many at once jobs of one type run in a queue, for all of them or for each limit key.

Examples:
  queuectl limit set shell --rate 10 --per 1m
  queuectl limit list
  queuectl limit clear shell
"""

from typing import Annotated, Any

import typer

from headwater.cli.exits import ExitCode, Misuse
from headwater.cli.job_views import duration_of
from headwater.cli.output import note, plural, print_json, print_line, print_table
from headwater.cli.session import reached, run_async
from headwater.cli.settings import RemoteGroup, settings_of


class LimitGroup(RemoteGroup):
    """`limit TYPE …` is `limit set TYPE …`, as it was before there was anything else to do with limits."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = next((word for word in args if not word.startswith("-")), "")
        if first and first not in self.commands:
            args = ["set", *args]
        return list(super().parse_args(ctx, args))


Type = Annotated[str, typer.Argument(help="The type of job: shell, or a function.", metavar="TYPE")]
InQueue = Annotated[str, typer.Option("--queue", help="The queue.")]


def set_limit(
    ctx: typer.Context,
    type_: Type,
    queue: InQueue = "default",
    rate: Annotated[float | None, typer.Option(min=0, help="How many may start in that time.")] = None,
    per: Annotated[str, typer.Option(help="The time: 1s, 1m, 1h.")] = "1s",
    burst: Annotated[int, typer.Option(min=1, help="How many of them may start at once.")] = 1,
    concurrency: Annotated[int | None, typer.Option(min=0, help="How many may run at once.")] = None,
    each_key: Annotated[bool, typer.Option("--each-key", help="For each limit key of its own.")] = False,
) -> None:
    """Limit how often and how many at once jobs of one type run in a queue. What is not said stays as it was.

    Examples:
      queuectl limit set shell --rate 10 --per 1m
      queuectl limit set tasks:send_email --queue mail --concurrency 4
      queuectl limit set tasks:call --each-key --rate 5 --per 1s
    """
    settings = settings_of(ctx)
    seconds = duration_of("--per", per)
    if rate is None and concurrency is None:
        raise Misuse("say --rate or --concurrency; `queuectl limit clear` lifts a limit")

    async def change() -> tuple[int, str]:
        async with reached(settings, create=True) as hw:
            declared = (await hw.jobs.types()).get(type_)
            count = await hw.jobs.limit(
                type_,
                queue=queue,
                rate=rate,
                per=seconds,
                burst=burst,
                concurrency=concurrency,
                each_key=each_key,
            )
            return count, declared.queue if declared is not None else ""

    count, declared = run_async(change())
    if settings.json:
        print_json({"type": type_, "queue": queue, "rate": rate, "per": per, "concurrency": concurrency, "jobs": count})
    else:
        print_line((type_, "cyan"), (f" is limited in {queue}; it holds for {plural(count, 'job')} now", ""))
    if declared and declared != queue:
        note(f"a limit holds in one queue, and jobs of {type_} go to {declared} by default: --queue {declared}")


def list_limits(ctx: typer.Context) -> None:
    """List the limits, with how many jobs of each run.

    Examples:
      queuectl limit list
      queuectl limit list --json
    """
    from headwater.services.job_documents import limit_document

    settings = settings_of(ctx)

    async def read() -> list[dict[str, object]]:
        async with reached(settings, or_empty=True) as hw:
            return [dict(limit_document(limit)) for limit in await hw.jobs.limits()]

    found = run_async(read())
    if settings.json:
        for limit in found:
            print_json(limit)
        return
    if not found:
        note("there are no limits")
        return
    columns = ("type", "queue", "each_key", "rate", "per", "burst", "concurrency", "running")
    print_table(
        [name.upper().replace("_", " ") for name in columns], [[one[name] for name in columns] for one in found]
    )


def clear_limit(ctx: typer.Context, type_: Type, queue: InQueue = "default") -> None:
    """Lift the limits of a type in a queue; those that jobs have of their own (concurrency_key) stay.

    Examples:
      queuectl limit clear shell
      queuectl limit clear tasks:send_email --queue mail
    """
    settings = settings_of(ctx)

    async def change() -> bool:
        async with reached(settings) as hw:
            return await hw.jobs.clear_limit(type_, queue=queue)

    lifted = run_async(change())
    if settings.json:
        print_json({"type": type_, "queue": queue, "lifted": lifted})
    elif lifted:
        print_line((type_, "cyan"), (f" is limited no more in {queue}", ""))
    else:
        note(f"{type_} has no limit in {queue}")
    if not lifted:
        raise typer.Exit(ExitCode.NOTHING)
