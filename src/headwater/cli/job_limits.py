"""How often and how many at once jobs of one type run in a queue, for all of them or for each limit key.

Examples:
  queuectl limit set shell --rate 10 --per 1m
  queuectl limit list
  queuectl limit clear shell
"""

from typing import Annotated, Any

import typer

from headwater.cli.commands import Result, command, document_table, line, nothing
from headwater.cli.exits import Misuse
from headwater.cli.job_views import duration_of
from headwater.cli.output import plural
from headwater.cli.session import reached
from headwater.cli.settings import RemoteGroup, Settings


class LimitGroup(RemoteGroup):
    """`limit TYPE …` is `limit set TYPE …`, as it was before there was anything else to do with limits."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = next((word for word in args if not word.startswith("-")), "")
        if first and first not in self.commands:
            args = ["set", *args]
        return list(super().parse_args(ctx, args))


Type = Annotated[str, typer.Argument(help="The type of job: shell, or a function.", metavar="TYPE")]
InQueue = Annotated[str, typer.Option("--queue", help="The queue.")]


@command
async def set_limit(
    settings: Settings,
    type_: Type,
    queue: InQueue = "default",
    rate: Annotated[float | None, typer.Option(min=0, help="How many may start in that time.")] = None,
    per: Annotated[str, typer.Option(help="The time: 1s, 1m, 1h.")] = "1s",
    burst: Annotated[int, typer.Option(min=1, help="How many of them may start at once.")] = 1,
    concurrency: Annotated[int | None, typer.Option(min=0, help="How many may run at once.")] = None,
    each_key: Annotated[bool, typer.Option("--each-key", help="For each limit key of its own.")] = False,
) -> Result:
    """Limit how often and how many at once jobs of one type run in a queue. What is not said stays as it was.

    Examples:
      queuectl limit set shell --rate 10 --per 1m
      queuectl limit set tasks:send_email --queue mail --concurrency 4
      queuectl limit set tasks:call --each-key --rate 5 --per 1s
    """
    seconds = duration_of("--per", per)
    if rate is None and concurrency is None:
        raise Misuse("say --rate or --concurrency; `queuectl limit clear` lifts a limit")

    limits: dict[str, Any] = {"rate": rate, "per": seconds, "burst": burst, "concurrency": concurrency}
    async with reached(settings, create=True) as hw:
        policy = (await hw.jobs.types()).get(type_)
        count = await hw.jobs.limit(type_, queue=queue, **limits, each_key=each_key)
    document = {"type": type_, "queue": queue, "rate": rate, "per": per, "concurrency": concurrency, "jobs": count}
    words = f" is limited in {queue}; it holds for {plural(count, 'job')} now"
    declared = policy.queue if policy is not None else ""
    hint = f"a limit holds in one queue, and jobs of {type_} go to {declared} by default: --queue {declared}"
    return line(document, (type_, "cyan"), (words, ""), notes=[hint] if declared and declared != queue else ())


@command
async def list_limits(settings: Settings) -> Result:
    """List the limits, with how many jobs of each run.

    Examples:
      queuectl limit list
      queuectl limit list --json
    """
    from headwater.services.job_documents import limit_document

    async with reached(settings, or_empty=True) as hw:
        found = [limit_document(limit) for limit in await hw.jobs.limits()]
    names = ("type", "queue", "each_key", "rate", "per", "burst", "concurrency", "running")
    return document_table(found, names, empty="there are no limits")


@command
async def clear_limit(settings: Settings, type_: Type, queue: InQueue = "default") -> Result:
    """Lift the limits of a type in a queue; those that jobs have of their own (concurrency_key) stay.

    Examples:
      queuectl limit clear shell
      queuectl limit clear tasks:send_email --queue mail
    """
    async with reached(settings) as hw:
        lifted = await hw.jobs.clear_limit(type_, queue=queue)
    document = {"type": type_, "queue": queue, "lifted": lifted}
    if not lifted:
        return nothing(document, f"{type_} has no limit in {queue}")
    return line(document, (type_, "cyan"), (f" is limited no more in {queue}", ""))
