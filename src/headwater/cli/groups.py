"""`headwater groups`, `leases` and `seek`: who reads a queue, how far behind, what they hold, and from where on."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.commands import Result, Working, command, line, nothing, table
from headwater.cli.exits import Misuse
from headwater.cli.output import confirm, iso_time, note, plural
from headwater.cli.queues import check_options, group_document, options_document, parse_options, print_groups
from headwater.cli.session import reached
from headwater.cli.settings import Settings
from headwater.model.names import GROUP_DEFAULT

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.client.client import Client
    from headwater.stores.questions import LeaseStatus

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


@command
async def list_groups(settings: Settings, queue: OfQueue = "") -> Result:
    """List consumer groups: how far behind each is and what it works on.

    Examples:
      headwater groups list
      headwater groups list --queue orders
    """
    async with reached(settings) as hw:
        await _need_group(hw, queue, "")
        found = await hw.groups(queue or None)
    documents = [group_document(group) for group in found]
    return Result(documents, lambda: print_groups(found) if found else note("there are no consumer groups yet"))


@command
def delete_group(
    settings: Settings,
    group: Annotated[str, typer.Argument(help="The consumer group.", metavar="GROUP", show_default=False)],
    queue: OfQueue = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> Working:
    """Forget a consumer group: where it stood in one queue, or in all.

    Examples:
      headwater groups delete billing --yes
      headwater groups delete billing --queue orders --yes
    """
    confirm(f"Forget where group {group} stood in {queue or 'all queues'}?", yes=yes)
    return _delete(settings, group, queue)


async def _delete(settings: Settings, group: str, queue: str) -> Result:
    from headwater.errors import QueueMissing

    async with reached(settings) as hw:
        count = int(await hw.queue(queue).delete_group(group)) if queue else await hw.delete_group(group)
    if not count:
        raise QueueMissing(f"there is no group {group!r}" + (f" of queue {queue!r}" if queue else ""))
    document = {"group": group, "queues": count}
    return line(document, (group, "cyan"), (f" is forgotten in {plural(count, 'queue')}", ""))


@command
async def configure_group(
    settings: Settings,
    group: Annotated[str, typer.Argument(help="The consumer group.", metavar="GROUP", show_default=False)],
    options: Annotated[list[str], typer.Argument(help="What to set.", metavar="OPTION=VALUE...", show_default=False)],
    queue: Annotated[str, typer.Option("--queue", help="The queue.", metavar="QUEUE", show_default=False)],
) -> Result:
    """Give a consumer group a lease, retries and a back-off of its own.

    The options are lease_seconds, retry_limit, retry_delay_seconds, retry_factor, retry_delay_max_seconds and
    retry_jitter; null takes the queue's value again.

    Examples:
      headwater groups configure billing --queue orders lease_seconds=600 retry_limit=10
      headwater groups configure billing --queue orders lease_seconds=null
    """
    from headwater.model.queue import GROUP_OPTION_NAMES

    wanted = parse_options(options)
    check_options(wanted, "option of a consumer group", GROUP_OPTION_NAMES)
    async with reached(settings) as hw:
        configured = await hw.queue(queue).configure_group(group, **wanted)  # type: ignore[arg-type]
    about = {"queue": configured.queue, "group": configured.group, "own": configured.own}
    own = ", ".join(f"{name}={value}" for name, value in configured.own.items())
    document = {**about, "options": options_document(configured.options)}
    return line(document, (group, "cyan"), (f" of {queue} has of its own: {own or 'nothing'}", ""))


@command
def leases(
    settings: Settings,
    queue: Annotated[str, typer.Argument(help="Of this queue only.", metavar="QUEUE", show_default="all")] = "",
    group: Annotated[str, typer.Option("--group", help="Of this group.", metavar="GROUP", show_default="all")] = "",
    partition: Annotated[str, typer.Option(help="Of this partition.", show_default="all")] = "",
    release: Annotated[
        bool, typer.Option("--release", help="Give them back: others get the messages at once.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> Working:
    """Show what is being worked on: which partition, by which group, who holds it, until when; or give it back.

    A released message counts no attempt. Its holder is told, when it reports, that the lease is lost.

    Examples:
      headwater leases
      headwater leases orders --group billing --json
      headwater leases orders --partition customer-42 --release --yes
    """
    if not release:
        return _list_leases(settings, queue, group, partition)
    if not queue:
        raise Misuse("--release needs the queue: headwater leases QUEUE --release")
    of = "".join((f" of group {group}" if group else "", f" on partition {partition}" if partition else ""))
    confirm(f"Release the leases of {queue}{of}? Others get the messages while their holders may still work.", yes=yes)
    return _release(settings, queue, group, partition)


async def _list_leases(settings: Settings, queue: str, group: str, partition: str) -> Result:
    async with reached(settings) as hw:
        await _need_group(hw, queue, group)
        held = await hw.leases(queue or None, group=group or None, limit=LEASES_MAX)
    found = [one for one in held if partition in ("", one.partition)]
    columns = ("QUEUE", "PARTITION", "GROUP", "HOLDER", "MESSAGES", "ATTEMPT", "UNTIL")
    return table(found, lease_document, columns, _row, empty="nothing is leased")


def _row(one: "LeaseStatus") -> tuple[object, ...]:
    holder, until = one.holder or "-", iso_time(one.lease_until)
    return (one.queue, one.partition, one.group, holder, one.records, one.attempts, until)


async def _need_group(hw: "Headwater | Client", queue: str, group: str) -> None:
    """Raises when there is no such queue, or no such group in it or, without a queue, in any."""
    from headwater.errors import QueueMissing

    if queue and await hw.queue(queue).status() is None:
        raise QueueMissing(f"there is no queue {queue!r}")
    if group:
        known = sorted({status.group for status in await hw.groups(queue or None)})
        if group not in known:
            where = f"queue {queue!r} has" if queue else "there is"
            raise QueueMissing(f"{where} no group {group!r}; there are {', '.join(known) or 'none yet'}")


async def _release(settings: Settings, queue: str, group: str, partition: str) -> Result:
    async with reached(settings) as hw:
        await _need_group(hw, queue, group)
        count = await hw.queue(queue).release_leases(group=group or None, partition=partition or None)
    document = {"queue": queue, "released": count}
    if not count:
        return nothing(document, f"nothing of {queue} is leased")
    return line(document, (f"released {plural(count, 'lease')} of ", ""), (queue, "cyan"))


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


@command
async def seek(
    settings: Settings,
    queue: Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE", show_default=False)],
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="beginning, end, a time with its zone, or an offset.")
    ],
    group: Annotated[str, typer.Option("--group", help="The consumer group.", metavar="GROUP")] = GROUP_DEFAULT,
    partition: Annotated[str, typer.Option(help="In this partition only.", show_default="all")] = "",
    create: Annotated[bool, typer.Option("--create", help="Make the group when it is not there.")] = False,
) -> Result:
    """Move a consumer group in a queue: to the beginning, the end, a time, or an offset of one partition.

    Leases it holds there end, and what it already did may come again.

    Examples:
      headwater seek orders --group billing --to beginning
      headwater seek orders --group billing --to 2026-10-03T12:00:00Z
      headwater seek orders --group billing --to 1500 --partition customer-42
    """
    place = parse_place(to)
    if isinstance(place, int) and not partition:
        raise Misuse("an offset counts within one partition: name it with --partition")
    async with reached(settings) as hw:
        count = await hw.queue(queue).seek(place, group=group, partition=partition or None, create=create)
    document = {"queue": queue, "group": group, "to": to, "partitions": count}
    return line(document, (group, "cyan"), (f" stands at {to} in {plural(count, 'partition')} of {queue}", ""))


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
