"""`headwater groups`, `leases` and `seek`: who reads a queue, how far behind, what they hold, and from where on."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.exits import ExitCode, Misuse
from headwater.cli.output import confirm, iso_time, note, plural, print_json, print_line, print_table
from headwater.cli.queues import check_options, group_document, options_document, parse_options, print_groups
from headwater.cli.session import reached, run_async
from headwater.cli.settings import Settings, settings_of
from headwater.model.names import GROUP_DEFAULT

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.client.client import Client
    from headwater.log.group_operations import GroupConfigured
    from headwater.stores.questions import GroupStatus, LeaseStatus

LEASES_MAX = 10_000
OfQueue = Annotated[str, typer.Option("--queue", help="Of this queue only.", metavar="QUEUE", show_default="all")]


def groups(ctx: typer.Context, queue: OfQueue = "") -> None:
    """List consumer groups with their lag; give one options of its own, or delete it.

    Examples:
      headwater groups
      headwater groups --queue orders --json
      headwater groups configure billing --queue orders lease_seconds=600
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


def configure_group(
    ctx: typer.Context,
    group: Annotated[str, typer.Argument(help="The consumer group.", metavar="GROUP", show_default=False)],
    options: Annotated[list[str], typer.Argument(help="What to set.", metavar="OPTION=VALUE...", show_default=False)],
    queue: Annotated[str, typer.Option("--queue", help="The queue.", metavar="QUEUE", show_default=False)],
) -> None:
    """Give a consumer group a lease, retries and a back-off of its own.

    The options are lease_seconds, retry_limit, retry_delay_seconds, retry_factor, retry_delay_max_seconds and
    retry_jitter; null takes the queue's value again.

    Examples:
      headwater groups configure billing --queue orders lease_seconds=600 retry_limit=10
      headwater groups configure billing --queue orders lease_seconds=null
    """
    settings = settings_of(ctx)
    configured = run_async(_configure(settings, queue, group, parse_options(options)))
    if settings.json:
        about = {"queue": configured.queue, "group": configured.group, "own": configured.own}
        print_json({**about, "options": options_document(configured.options)})
        return
    own = ", ".join(f"{name}={value}" for name, value in configured.own.items())
    print_line((group, "cyan"), (f" of {queue} has of its own: {own or 'nothing'}", ""))


async def _configure(settings: Settings, queue: str, group: str, options: dict[str, object]) -> "GroupConfigured":
    from headwater.model.queue import GROUP_OPTION_NAMES

    check_options(options, "option of a consumer group", GROUP_OPTION_NAMES)
    async with reached(settings) as hw:
        return await hw.queue(queue).configure_group(group, **options)  # type: ignore[arg-type]


def leases(
    ctx: typer.Context,
    queue: Annotated[str, typer.Argument(help="Of this queue only.", metavar="QUEUE", show_default="all")] = "",
    group: Annotated[str, typer.Option("--group", help="Of this group.", metavar="GROUP", show_default="all")] = "",
    partition: Annotated[str, typer.Option(help="Of this partition.", show_default="all")] = "",
    release: Annotated[
        bool, typer.Option("--release", help="Give them back: others get the messages at once.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Show what is being worked on: which partition, by which group, who holds it, until when; or give it back.

    A released message counts no attempt. Its holder is told, when it reports, that the lease is lost.

    Examples:
      headwater leases
      headwater leases orders --group billing --json
      headwater leases orders --partition customer-42 --release --yes
    """
    settings = settings_of(ctx)
    if release:
        _release(settings, queue, group, partition, yes=yes)
        return
    found = [one for one in run_async(_leases(settings, queue, group)) if partition in ("", one.partition)]
    if settings.json:
        for one in found:
            print_json(lease_document(one))
    elif found:
        columns = ("QUEUE", "PARTITION", "GROUP", "HOLDER", "MESSAGES", "ATTEMPT", "UNTIL")
        rows = [
            (
                one.queue,
                one.partition,
                one.group,
                one.holder or "-",
                one.records,
                one.attempts,
                iso_time(one.lease_until),
            )
            for one in found
        ]
        print_table(columns, rows)
    else:
        note("nothing is leased")


def _release(settings: Settings, queue: str, group: str, partition: str, *, yes: bool) -> None:
    if not queue:
        raise Misuse("--release needs the queue: headwater leases QUEUE --release")
    of = "".join((f" of group {group}" if group else "", f" on partition {partition}" if partition else ""))
    confirm(f"Release the leases of {queue}{of}? Others get the messages while their holders may still work.", yes=yes)
    count = run_async(_release_leases(settings, queue, group, partition))
    if settings.json:
        print_json({"queue": queue, "released": count})
    elif count:
        print_line((f"released {plural(count, 'lease')} of ", ""), (queue, "cyan"))
    else:
        note(f"nothing of {queue} is leased")
    if not count:
        raise typer.Exit(ExitCode.NOTHING)


async def _leases(settings: Settings, queue: str, group: str) -> "list[LeaseStatus]":
    async with reached(settings) as hw:
        await _need_group(hw, queue, group)
        return await hw.leases(queue, group=group, limit=LEASES_MAX)


async def _need_group(hw: "Headwater | Client", queue: str, group: str) -> None:
    """Raises when there is no such queue, or no such group in it or, without a queue, in any."""
    from headwater.errors import QueueMissing

    if queue and await hw.queue(queue).status() is None:
        raise QueueMissing(f"there is no queue {queue!r}")
    if group:
        known = sorted({status.group for status in await hw.groups(queue)})
        if group not in known:
            where = f"queue {queue!r} has" if queue else "there is"
            raise QueueMissing(f"{where} no group {group!r}; there are {', '.join(known) or 'none yet'}")


async def _release_leases(settings: Settings, queue: str, group: str, partition: str) -> int:
    async with reached(settings) as hw:
        await _need_group(hw, queue, group)
        return await hw.queue(queue).release_leases(group=group, partition=partition)


def lease_document(status: "LeaseStatus") -> dict[str, object]:
    """A lease for programs."""
    return {
        "queue": status.queue,
        "partition": status.partition,
        "partition_id": status.partition_id,
        "group": status.group,
        "holder": status.holder,
        "token": status.token,
        "messages": status.records,
        "attempts": status.attempts,
        "lease_until": iso_time(status.lease_until),
    }


def seek(
    ctx: typer.Context,
    queue: Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE", show_default=False)],
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="beginning, end, a time with its zone, or an offset.")
    ],
    group: Annotated[str, typer.Option("--group", help="The consumer group.", metavar="GROUP")] = GROUP_DEFAULT,
    partition: Annotated[str, typer.Option(help="In this partition only.", show_default="all")] = "",
    create: Annotated[bool, typer.Option("--create", help="Make the group when it is not there.")] = False,
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
    count = run_async(_seek(settings, queue, place, group=group, partition=partition, create=create))
    if settings.json:
        print_json({"queue": queue, "group": group, "to": to, "partitions": count})
    else:
        print_line((group, "cyan"), (f" stands at {to} in {plural(count, 'partition')} of {queue}", ""))


async def _seek(
    settings: Settings, queue: str, place: str | datetime | int, *, group: str, partition: str, create: bool
) -> int:
    async with reached(settings) as hw:
        return await hw.queue(queue).seek(place, group=group, partition=partition, create=create)


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
