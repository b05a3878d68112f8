"""`headwater groups` and `headwater seek`: who reads a queue, how far behind, and from where on."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.exits import Misuse
from headwater.cli.output import confirm, note, plural, print_json, print_line
from headwater.cli.queues import group_document, print_groups
from headwater.cli.session import reached, run_async
from headwater.cli.settings import Settings, settings_of
from headwater.model.names import GROUP_DEFAULT

if TYPE_CHECKING:
    from headwater.stores.contract import GroupStatus

OfQueue = Annotated[str, typer.Option("--queue", help="Of this queue only.", metavar="QUEUE", show_default="all")]


def groups(ctx: typer.Context, queue: OfQueue = "") -> None:
    """List consumer groups with their lag, or delete one.

    Examples:
      headwater groups
      headwater groups --queue orders --json
      headwater groups delete billing --queue orders --yes
    """
    if ctx.invoked_subcommand is None:
        list_groups(ctx, queue)


def list_groups(ctx: typer.Context, queue: OfQueue = "") -> None:
    """List consumer groups: how far behind each is and what it works on.

    Examples:
      headwater groups list
      headwater groups list --queue orders
    """
    settings = settings_of(ctx)
    found = run_async(_list(settings, queue))
    if settings.json:
        for group in found:
            print_json(group_document(group))
    elif found:
        print_groups(found)
    else:
        note("there are no consumer groups yet")


async def _list(settings: Settings, queue: str) -> "list[GroupStatus]":
    from headwater.errors import QueueMissing

    async with reached(settings) as hw:
        if queue and await hw.queue(queue).status() is None:
            raise QueueMissing(f"there is no queue {queue!r}")
        return await hw.groups(queue)


def delete_group(
    ctx: typer.Context,
    group: Annotated[str, typer.Argument(help="The consumer group.", metavar="GROUP", show_default=False)],
    queue: OfQueue = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget a consumer group: where it stood in one queue, or in all.

    Examples:
      headwater groups delete billing --yes
      headwater groups delete billing --queue orders --yes
    """
    settings = settings_of(ctx)
    confirm(f"Forget where group {group} stood in {queue or 'all queues'}?", yes=yes)
    count = run_async(_delete(settings, group, queue))
    if settings.json:
        print_json({"group": group, "queues": count})
    else:
        print_line((group, "cyan"), (f" is forgotten in {plural(count, 'queue')}", ""))


async def _delete(settings: Settings, group: str, queue: str) -> int:
    from headwater.errors import QueueMissing

    async with reached(settings) as hw:
        count = int(await hw.queue(queue).delete_group(group)) if queue else await hw.delete_group(group)
    if not count:
        raise QueueMissing(f"there is no group {group!r}" + (f" of queue {queue!r}" if queue else ""))
    return count


def seek(
    ctx: typer.Context,
    queue: Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE", show_default=False)],
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="beginning, end, a time with its zone, or an offset.")
    ],
    group: Annotated[str, typer.Option("--group", help="The consumer group.", metavar="GROUP")] = GROUP_DEFAULT,
    partition: Annotated[str, typer.Option(help="In this partition only.", show_default="all")] = "",
) -> None:
    """Move a consumer group in a queue: to the beginning, the end, a time, or an offset of one partition.

    Leases it holds there end, and what it already did may come again.

    Examples:
      headwater seek orders --group billing --to beginning
      headwater seek orders --group billing --to 2026-10-03T12:00:00Z
      headwater seek orders --group billing --to 1500 --partition customer-42
    """
    settings = settings_of(ctx)
    place = parse_place(to)
    if isinstance(place, int) and not partition:
        raise Misuse("an offset counts within one partition: name it with --partition")
    count = run_async(_seek(settings, queue, place, group, partition))
    if settings.json:
        print_json({"queue": queue, "group": group, "to": to, "partitions": count})
    else:
        print_line((group, "cyan"), (f" stands at {to} in {plural(count, 'partition')} of {queue}", ""))


async def _seek(settings: Settings, queue: str, place: str | datetime | int, group: str, partition: str) -> int:
    async with reached(settings) as hw:
        return await hw.queue(queue).seek(place, group=group, partition=partition)


def parse_place(text: str) -> str | datetime | int:
    """`beginning`, `end`, an offset, or a time, which must say its zone."""
    if text in ("beginning", "end"):
        return text
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        wanted = "beginning, end, an offset, or a time like 2026-10-03T12:00:00Z"
        raise Misuse(f"--to takes {wanted}; got {text!r}") from None
    if time.tzinfo is None:
        raise Misuse(f"--to needs a time zone: write {time.isoformat()}Z for UTC; got {text!r}")
    return time
