"""`headwater queues`: what queues there are, how they are set, and the end of one."""

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.commands import Result, Working, command, line, table
from headwater.cli.exits import Misuse
from headwater.cli.output import confirm, iso_time, print_facts, print_line, print_table, show_seconds
from headwater.cli.session import reached
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.model.queue import QueueOptions
    from headwater.stores.questions import GroupStatus, QueueStatus

QueueName = Annotated[str, typer.Argument(help="The queue.", metavar="NAME", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def queues(ctx: typer.Context) -> None:
    """List queues with their sizes; show, configure or delete one.

    Examples:
      headwater queues
      headwater queues show orders
      headwater queues configure orders lease_seconds=60 retry_limit=5
      headwater queues delete orders --yes
    """
    if ctx.invoked_subcommand is None:
        list_queues(ctx)


@command
async def list_queues(settings: Settings) -> Result:
    """List all queues with their sizes.

    Examples:
      headwater queues list
      headwater queues list --json
    """
    async with reached(settings) as hw:
        found = await hw.queues()
    columns = ("QUEUE", "PARTITIONS", "RECORDS", "WAITING", "DEAD LETTERS", "CREATED")
    return table(found, queue_document, columns, _row, empty="there are no queues yet")


def _row(status: "QueueStatus") -> tuple[object, ...]:
    counts = (status.partitions, status.records, status.waiting, status.dead_letters)
    return (status.queue, *counts, iso_time(status.created_at))


@command
async def show_queue(settings: Settings, name: QueueName) -> Result:
    """Show one queue: its size, its options and its consumer groups.

    Examples:
      headwater queues show orders
      headwater queues show orders --json
    """
    from headwater.errors import QueueMissing

    async with reached(settings) as hw:
        queue = hw.queue(name)
        status = await queue.status()
        if status is None:
            raise QueueMissing(f"there is no queue {name!r}")
        groups = await queue.groups()
    document = {**queue_document(status), "groups": [group_document(group) for group in groups]}
    return Result([document], lambda: _print_queue(status, groups))


def _print_queue(status: "QueueStatus", groups: "list[GroupStatus]") -> None:
    print_facts(_facts(status))
    print_line(("", ""))
    print_facts(options_document(status.options).items())
    if groups:
        print_line(("", ""))
        print_groups(groups)


@command
async def configure_queue(
    settings: Settings,
    name: QueueName,
    options: Annotated[list[str], typer.Argument(help="What to set.", metavar="OPTION=VALUE...", show_default=False)],
) -> Result:
    """Change options of a queue, or make one; what is not named stays as it is.

    The options are those that queues show lists, and namespace and task. Times are in seconds, 0 is no limit.

    Examples:
      headwater queues configure orders lease_seconds=60 retry_limit=5
      headwater queues configure orders retention_seconds=86400 namespace=shop
    """
    from headwater.model.queue import OPTION_NAMES

    wanted = parse_options(options)
    check_options(wanted, "queue option", ("namespace", "task", *OPTION_NAMES))
    async with reached(settings) as hw:
        configured = await hw.queue(name).configure(**wanted)  # type: ignore[arg-type]
    about = {"queue": configured.queue, "namespace": configured.namespace, "task": configured.task}
    document = {**about, "options": options_document(configured.options)}
    return line(document, (configured.queue, "cyan"), (" is configured: " + ", ".join(options), ""))


def check_options(options: dict[str, object], kind: str, known: "Sequence[str]") -> None:
    """Raises when there is no option of a name that was given."""
    from headwater.errors import InvalidOption

    if unknown := sorted(set(options) - set(known)):
        raise InvalidOption(f"no such {kind}: {', '.join(unknown)}; there are {', '.join(known)}")


def parse_options(texts: list[str]) -> dict[str, object]:
    """`["retry_limit=5"]` as `{"retry_limit": 5}`. A value is JSON where it reads as JSON, else text."""
    options: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise Misuse(f"an option is written option=value; got {text!r}")
        options[name] = value if name in ("namespace", "task") else _parse_value(value)
    return options


def _parse_value(text: str) -> object:
    import msgspec

    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return value


@command
def delete_queue(settings: Settings, name: QueueName, yes: Yes = False) -> Working:
    """Delete a queue with its records, groups and dead letters, for good.

    Examples:
      headwater queues delete orders --yes
    """
    confirm(f"Delete the queue {name} with everything in it?", yes=yes)
    return _delete(settings, name)


async def _delete(settings: Settings, name: str) -> Result:
    from headwater.errors import QueueMissing

    async with reached(settings) as hw:
        if not await hw.queue(name).delete():
            raise QueueMissing(f"there is no queue {name!r}")
    return line({"queue": name, "deleted": True}, (name, "cyan"), (" is deleted", ""))


# ── how queues and groups are shown ──


def queue_document(status: "QueueStatus") -> dict[str, object]:
    """A queue for programs."""
    return {
        "database": status.database,
        "queue": status.queue,
        "namespace": status.namespace,
        "task": status.task,
        "partitions": status.partitions,
        "records": status.records,
        "waiting": status.waiting,
        "dead_letters": status.dead_letters,
        "delayed": status.delayed,
        "created_at": iso_time(status.created_at),
        "options": options_document(status.options),
    }


def options_document(options: "QueueOptions") -> dict[str, object]:
    """All options of a queue, defaults too."""
    import msgspec

    return msgspec.structs.asdict(options)


def group_document(status: "GroupStatus") -> dict[str, object]:
    """A consumer group for programs."""
    return {
        "database": status.database,
        "queue": status.queue,
        "group": status.group,
        "partitions": status.partitions,
        "lag": status.lag,
        "leased": status.leased,
        "lost": status.lost,
        "oldest_waiting_at": iso_time(status.oldest_waiting_at),
    }


def print_groups(groups: "list[GroupStatus]") -> None:
    """Consumer groups for people; how old the oldest waiting record is says more than when it came."""
    from headwater.clock import SECOND, SystemClock

    now = SystemClock().now()
    columns = ("QUEUE", "GROUP", "LAG", "OLDEST WAITS", "LEASES", "LOST", "PARTITIONS")
    rows = []
    for group in groups:
        oldest = group.oldest_waiting_at
        waits = "-" if oldest is None else show_seconds(max(now - oldest, 0) / SECOND)
        rows.append((group.queue, group.group, group.lag, waits, group.leased, group.lost, group.partitions))
    print_table(columns, rows)


def _facts(status: "QueueStatus") -> list[tuple[str, object]]:
    named = [("namespace", status.namespace), ("task", status.task)]
    return [
        ("queue", status.queue),
        ("database", status.database),
        *((name, value) for name, value in named if value),
        ("created", iso_time(status.created_at)),
        ("partitions", status.partitions),
        ("records", status.records),
        ("waiting", status.waiting),
        ("dead letters", status.dead_letters),
        *([("delayed", status.delayed)] if status.delayed else []),
    ]
