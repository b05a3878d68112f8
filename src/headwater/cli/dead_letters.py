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

from headwater.cli.commands import Result, Working, command, facts, line, nothing, table
from headwater.cli.exits import LetterMissing, Misuse
from headwater.cli.messages import record_document
from headwater.cli.output import confirm, cut, iso_time, plural
from headwater.cli.session import reached
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.services.queue import Queue
    from headwater.stores.questions import DeadLetter

QueueName = Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE", show_default=False)]
Ids = Annotated[
    list[int] | None, typer.Argument(help="Dead letters by id.", metavar="ID...", show_default="all of them")
]
ERROR_LENGTH_SHOWN = 60


@command
async def list_letters(
    settings: Settings,
    queue: QueueName,
    limit: Annotated[int, typer.Option(min=1, help="The most to list.")] = 100,
    after: Annotated[int, typer.Option(min=0, help="Begin after this id.")] = 0,
) -> Result:
    """List the dead letters of a queue, oldest first.

    Examples:
      headwater dlq list orders
      headwater dlq list orders --limit 1000 --json
    """
    letters = await _list(settings, queue, limit, after)
    columns = ("ID", "FAILED", "GROUP", "PARTITION", "OFFSET", "ATTEMPTS", "ERROR")
    more = f"there may be more: --after {letters[-1].id} goes on" if len(letters) == limit else ""
    return table(letters, letter_document, columns, _row, empty=f"{queue} has no dead letters", more=more)


def _row(letter: "DeadLetter") -> tuple[object, ...]:
    failed, error = iso_time(letter.failed_at), cut(letter.error, ERROR_LENGTH_SHOWN)
    return (letter.id, failed, letter.group, letter.partition, letter.offset, letter.attempts, error)


async def _list(settings: Settings, queue: str, limit: int, after: int) -> "list[DeadLetter]":
    async with reached(settings) as hw:
        return await hw.queue(queue).dead_letters(limit=limit, after=after)


@command
async def show_letter(
    settings: Settings,
    queue: QueueName,
    number: Annotated[int, typer.Argument(help="Its id.", metavar="ID", min=1, show_default=False)],
) -> Result:
    """Show one dead letter with its payload and the error.

    Examples:
      headwater dlq show orders 3
      headwater dlq show orders 3 --json
    """
    for letter in await _list(settings, queue, 1, number - 1):
        if letter.id == number:
            return facts(letter_document(letter), _facts(letter))
    raise LetterMissing(f"queue {queue!r} has no dead letter {number}")


@command
async def requeue_letters(
    settings: Settings,
    queue: QueueName,
    ids: Ids = None,
    to: Annotated[str, typer.Option("--to", help="Push them to this queue instead.", metavar="QUEUE")] = "",
    all_groups: Annotated[
        bool, typer.Option("--all-groups", help="Deliver them to all groups, in the partition they came from.")
    ] = False,
) -> Result:
    """Deliver dead letters once more, each to the group that it failed for.

    Examples:
      headwater dlq requeue orders
      headwater dlq requeue orders 3 4
      headwater dlq requeue orders --to orders-by-hand
    """
    if to and all_groups:
        raise Misuse("--to pushes to another queue, --all-groups stays in this one: choose one")

    async def requeue(chosen: "Queue", some: list[int]) -> int:
        return await chosen.requeue(some or None, to=to or None, all_groups=all_groups)

    return await _each(settings, queue, ids or [], requeue, "requeued")


@command
def purge_letters(
    settings: Settings,
    queue: QueueName,
    ids: Ids = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> Working:
    """Drop dead letters for good.

    Examples:
      headwater dlq purge orders --yes
      headwater dlq purge orders 3 4 --yes
    """
    what = plural(len(ids), "dead letter") if ids else "all dead letters"
    confirm(f"Drop {what} of {queue} for good?", yes=yes)
    return _each(settings, queue, ids or [], _purge, "purged")


Deed = Callable[["Queue", list[int]], Awaitable[int]]


async def _purge(queue: "Queue", ids: list[int]) -> int:
    return await queue.purge(ids or None)


async def _each(settings: Settings, name: str, ids: list[int], deed: Deed, done: str) -> Result:
    """Do it to those named, or to all that are there now; `done` says what was done."""
    count = await _do(settings, name, ids, deed)
    if not count:
        return nothing({"queue": name, done: count}, f"{name} has no dead letters")
    return line({"queue": name, done: count}, (f"{done} {plural(count, 'dead letter')} of ", ""), (name, "cyan"))


async def _do(settings: Settings, name: str, ids: list[int], deed: Deed) -> int:
    """How many it was done to."""
    async with reached(settings) as hw:
        queue = hw.queue(name)
        await _need_letters(queue, ids)
        return await deed(queue, ids)


async def _need_letters(queue: "Queue", ids: list[int]) -> None:
    """Raises when one of them is not there."""
    for number in ids:
        if [letter.id for letter in await queue.dead_letters(limit=1, after=number - 1)] != [number]:
            raise LetterMissing(f"queue {queue.name!r} has no dead letter {number}")


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
