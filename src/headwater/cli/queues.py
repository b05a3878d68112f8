"""`headwater queues`: what queues there are, how they are set, and the end of one."""

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.exits import Misuse
from headwater.cli.output import confirm, iso_time, note, print_facts, print_json, print_line, print_table, show_seconds
from headwater.cli.session import reached, run_async
from headwater.cli.settings import Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headwater.log.operations import Configured
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


def list_queues(ctx: typer.Context) -> None:
    """List all queues with their sizes.

    Examples:
      headwater queues list
      headwater queues list --json
    """
    settings = settings_of(ctx)
    found = run_async(_list(settings))
    if settings.json:
        for status in found:
            print_json(queue_document(status))
        return
    if not found:
        note("there are no queues yet")
        return
    columns = ("QUEUE", "PARTITIONS", "RECORDS", "WAITING", "DEAD LETTERS", "CREATED")
    rows = [(s.queue, s.partitions, s.records, s.waiting, s.dead_letters, iso_time(s.created_at)) for s in found]
    print_table(columns, rows)


async def _list(settings: Settings) -> "list[QueueStatus]":
    async with reached(settings) as hw:
        return await hw.queues()


def show_queue(ctx: typer.Context, name: QueueName) -> None:
    """Show one queue: its size, its options and its consumer groups.

    Examples:
      headwater queues show orders
      headwater queues show orders --json
    """
    settings = settings_of(ctx)
    status, groups = run_async(_show(settings, name))
    if settings.json:
        print_json({**queue_document(status), "groups": [group_document(group) for group in groups]})
        return
    print_facts(_facts(status))
    print_line(("", ""))
    print_facts((f"{option}", value) for option, value in options_document(status.options).items())
    if groups:
        print_line(("", ""))
        print_groups(groups)


async def _show(settings: Settings, name: str) -> "tuple[QueueStatus, list[GroupStatus]]":
    from headwater.errors import QueueMissing

    async with reached(settings) as hw:
        queue = hw.queue(name)
        status = await queue.status()
        if status is None:
            raise QueueMissing(f"there is no queue {name!r}")
        return status, await queue.groups()


def configure_queue(
    ctx: typer.Context,
    name: QueueName,
    options: Annotated[list[str], typer.Argument(help="What to set.", metavar="OPTION=VALUE...", show_default=False)],
) -> None:
    """Change options of a queue, or make one; what is not named stays as it is.

    The options are those that queues show lists, and namespace and task. Times are in seconds, 0 is no limit.

    Examples:
      headwater queues configure orders lease_seconds=60 retry_limit=5
      headwater queues configure orders retention_seconds=86400 namespace=shop
    """
    settings = settings_of(ctx)
    configured = run_async(_configure(settings, name, parse_options(options)))
    if settings.json:
        about = {"queue": configured.queue, "namespace": configured.namespace, "task": configured.task}
        print_json({**about, "options": options_document(configured.options)})
        return
    print_line((configured.queue, "cyan"), (" is configured: " + ", ".join(options), ""))


async def _configure(settings: Settings, name: str, options: dict[str, object]) -> "Configured":
    from headwater.model.queue import OPTION_NAMES

    check_options(options, "queue option", ("namespace", "task", *OPTION_NAMES))
    async with reached(settings) as hw:
        return await hw.queue(name).configure(**options)  # type: ignore[arg-type]


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


def delete_queue(ctx: typer.Context, name: QueueName, yes: Yes = False) -> None:
    """Delete a queue with its records, groups and dead letters, for good.

    Examples:
      headwater queues delete orders --yes
    """
    settings = settings_of(ctx)
    confirm(f"Delete the queue {name} with everything in it?", yes=yes)
    run_async(_delete(settings, name))
    if settings.json:
        print_json({"queue": name, "deleted": True})
    else:
        print_line((name, "cyan"), (" is deleted", ""))


async def _delete(settings: Settings, name: str) -> None:
    from headwater.errors import QueueMissing

    async with reached(settings) as hw:
        if not await hw.queue(name).delete():
            raise QueueMissing(f"there is no queue {name!r}")


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
