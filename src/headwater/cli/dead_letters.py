"""Records that failed for good: list them, look at one, push them back or drop them.

Examples:
  headwater dlq list orders
  headwater dlq show orders 3
  headwater dlq requeue orders
  headwater dlq purge orders 3 --yes
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.exits import ExitCode, LetterMissing, Misuse
from headwater.cli.messages import record_document
from headwater.cli.output import confirm, iso_time, note, plural, print_facts, print_json, print_line, print_table
from headwater.cli.session import reached, run_async
from headwater.cli.settings import Settings, settings_of

if TYPE_CHECKING:
    from headwater.services.queue import Queue
    from headwater.stores.questions import DeadLetter

QueueName = Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE", show_default=False)]
Ids = Annotated[
    list[int] | None, typer.Argument(help="Dead letters by id.", metavar="ID...", show_default="all of them")
]
BITE = 1_000
ERROR_LENGTH_SHOWN = 60


def list_letters(
    ctx: typer.Context,
    queue: QueueName,
    limit: Annotated[int, typer.Option(min=1, help="The most to list.")] = 100,
    after: Annotated[int, typer.Option(min=0, help="Begin after this id.")] = 0,
) -> None:
    """List the dead letters of a queue, oldest first.

    Examples:
      headwater dlq list orders
      headwater dlq list orders --limit 1000 --json
    """
    settings = settings_of(ctx)
    letters = run_async(_list(settings, queue, limit, after))
    if settings.json:
        for letter in letters:
            print_json(letter_document(letter))
        return
    if not letters:
        note(f"{queue} has no dead letters")
        return
    columns = ("ID", "FAILED", "GROUP", "PARTITION", "OFFSET", "ATTEMPTS", "ERROR")
    print_table(columns, [_row(letter) for letter in letters])
    if len(letters) == limit:
        note(f"there may be more: --after {letters[-1].id} goes on")


def _row(letter: "DeadLetter") -> tuple[object, ...]:
    error = letter.error if len(letter.error) <= ERROR_LENGTH_SHOWN else f"{letter.error[:ERROR_LENGTH_SHOWN]}…"
    failed = iso_time(letter.failed_at)
    return (letter.id, failed, letter.group, letter.partition, letter.offset, letter.attempts, error)


async def _list(settings: Settings, queue: str, limit: int, after: int) -> "list[DeadLetter]":
    async with reached(settings) as hw:
        return await hw.queue(queue).dead_letters(limit=limit, after=after)


def show_letter(
    ctx: typer.Context,
    queue: QueueName,
    number: Annotated[int, typer.Argument(help="Its id.", metavar="ID", min=1, show_default=False)],
) -> None:
    """Show one dead letter with its payload and the error.

    Examples:
      headwater dlq show orders 3
      headwater dlq show orders 3 --json
    """
    settings = settings_of(ctx)
    letter = run_async(_show(settings, queue, number))
    if settings.json:
        print_json(letter_document(letter))
    else:
        print_facts(_facts(letter))


async def _show(settings: Settings, queue: str, number: int) -> "DeadLetter":
    for letter in await _list(settings, queue, 1, number - 1):
        if letter.id == number:
            return letter
    raise LetterMissing(f"queue {queue!r} has no dead letter {number}")


def requeue_letters(
    ctx: typer.Context,
    queue: QueueName,
    ids: Ids = None,
    to: Annotated[str, typer.Option("--to", help="Push them to this queue instead.", metavar="QUEUE")] = "",
    all_groups: Annotated[
        bool, typer.Option("--all-groups", help="Deliver them to all groups, in the partition they came from.")
    ] = False,
) -> None:
    """Deliver dead letters once more, each to the group that it failed for.

    Examples:
      headwater dlq requeue orders
      headwater dlq requeue orders 3 4
      headwater dlq requeue orders --to orders-by-hand
    """
    settings = settings_of(ctx)
    if to and all_groups:
        raise Misuse("--to pushes to another queue, --all-groups stays in this one: choose one")

    async def requeue(chosen: "Queue", some: list[int], limit: int) -> int:
        return await chosen.requeue(some or None, limit=limit, to=to, all_groups=all_groups)

    count = run_async(_each(settings, queue, ids or [], requeue))
    _show_count(settings, queue, count, "requeued")


def purge_letters(
    ctx: typer.Context,
    queue: QueueName,
    ids: Ids = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Drop dead letters for good.

    Examples:
      headwater dlq purge orders --yes
      headwater dlq purge orders 3 4 --yes
    """
    settings = settings_of(ctx)
    what = plural(len(ids), "dead letter") if ids else "all dead letters"
    confirm(f"Drop {what} of {queue} for good?", yes=yes)
    count = run_async(_each(settings, queue, ids or [], _purge))
    _show_count(settings, queue, count, "purged")


Deed = Callable[["Queue", list[int], int], Awaitable[int]]


async def _purge(queue: "Queue", ids: list[int], limit: int) -> int:
    return await queue.purge(ids or None, limit=limit)


async def _each(settings: Settings, name: str, ids: list[int], deed: Deed) -> int:
    """Do it to those named, or to all that are there now, in bites: a requeued letter may die again meanwhile."""
    from headwater.errors import QueueMissing

    async with reached(settings) as hw:
        queue = hw.queue(name)
        status = await queue.status()
        if status is None:
            raise QueueMissing(f"there is no queue {name!r}")
        if ids:
            await _need_letters(queue, ids)
            return await deed(queue, ids, BITE)
        done = 0
        while done < status.dead_letters:
            count = await deed(queue, [], min(BITE, status.dead_letters - done))
            if not count:
                break
            done += count
        return done


async def _need_letters(queue: "Queue", ids: list[int]) -> None:
    """Raises when one of them is not there."""
    for number in ids:
        if [letter.id for letter in await queue.dead_letters(limit=1, after=number - 1)] != [number]:
            raise LetterMissing(f"queue {queue.name!r} has no dead letter {number}")


def _show_count(settings: Settings, queue: str, count: int, verb: str) -> None:
    if settings.json:
        print_json({"queue": queue, verb: count})
    elif count:
        print_line((f"{verb} {plural(count, 'dead letter')} of ", ""), (queue, "cyan"))
    else:
        note(f"{queue} has no dead letters")
    if not count:
        raise typer.Exit(ExitCode.NOTHING)


def letter_document(letter: "DeadLetter") -> dict[str, object]:
    """A dead letter for programs."""
    return {
        "id": letter.id,
        "queue": letter.queue,
        "partition": letter.partition,
        "offset": letter.offset,
        "group": letter.group,
        "attempts": letter.attempts,
        "error": letter.error,
        "failed_at": iso_time(letter.failed_at),
        **record_document(letter.record, letter.written_at),
    }


def _facts(letter: "DeadLetter") -> list[tuple[str, object]]:
    import msgspec

    record = letter.record
    named = [("type", record.type), ("transaction id", record.transaction_id), ("trace id", record.trace_id)]
    return [
        ("id", letter.id),
        ("place", f"{letter.queue}, partition {letter.partition}, offset {letter.offset:,}"),
        ("group", letter.group),
        ("pushed", iso_time(record.timestamp or letter.written_at)),
        ("failed", f"{iso_time(letter.failed_at)}, after {plural(letter.attempts, 'attempt')}"),
        ("error", letter.error),
        *((name, value) for name, value in named if value),
        *((f"header {name}", value) for name, value in (record.headers or {}).items()),
        ("payload", msgspec.json.format(bytes(record.data), indent=0).decode()),
    ]
