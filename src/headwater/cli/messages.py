"""`headwater push`, `pop` and `tail`: messages in, messages out, messages watched."""

import os
import stat
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headwater.cli.exits import ExitCode, Misuse
from headwater.cli.output import (
    iso_time,
    note,
    plural,
    print_json,
    print_line,
    progress,
    show_seconds,
)
from headwater.cli.session import reached, run_async
from headwater.cli.settings import Settings, settings_of
from headwater.clock import SECOND
from headwater.model.names import GROUP_DEFAULT, Lsn
from headwater.model.terminal import clean

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.cli.pushing import Aim, Tally
    from headwater.client.client import Client
    from headwater.model.record import Record
    from headwater.services.follow import Step
    from headwater.services.messages import Message
    from headwater.stores.questions import Segment

QueueName = Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE", show_default=False)]
# Servers take bodies of 1 MiB; what is said around the payloads needs room too.
SERVER_BATCH_BYTES_MAX = 512 * 1_024

GroupName = Annotated[str, typer.Option("--group", help="The consumer group.", metavar="GROUP")]


# ── push ──


def push(
    ctx: typer.Context,
    queue: QueueName,
    payloads: Annotated[
        list[str] | None,
        typer.Argument(help="JSON values; none: read lines.", metavar="PAYLOAD...", show_default=False),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Read one JSON value a line from here; - is standard input.")
    ] = None,
    partition: Annotated[
        str, typer.Option(help="The partition: messages in it keep their order.", show_default="any")
    ] = "",
    type_: Annotated[str, typer.Option("--type", help="A type for every message.")] = "",
    transaction_id: Annotated[str, typer.Option(help="An id: a second push with the same one is a duplicate.")] = "",
    durability: Annotated[
        Literal["synced", "written", "memory"] | None, typer.Option(help="When to answer; synced survives power loss.")
    ] = None,
    delay: Annotated[float, typer.Option(min=0, help="Deliver them this many seconds later.")] = 0,
    priority: Annotated[
        int, typer.Option(min=0, max=9, help="Deliver them before those with a lower one; not with a partition.")
    ] = 0,
) -> None:
    """Append messages to a queue, which is made when it is new.

    Payloads are JSON values: as arguments, or one a line from a file or standard input. Lines go in batches, each
    whole or not at all; an error says which line it was and how far everything is safe.

    Examples:
      headwater push orders '{"id": 7}' '{"id": 8}' --partition customer-42
      headwater push orders --file orders.ndjson
      tail -f app.log.json | headwater push logs
    """
    from headwater.cli.pushing import Aim, Tally

    if payloads and file is not None:
        raise Misuse("payloads come as arguments or from --file, not both")
    if priority and partition:
        raise Misuse("--priority is for messages without --partition: those of one partition keep their order")
    if transaction_id and len(payloads or ()) != 1:
        raise Misuse("--transaction-id is the id of one message: give one payload as argument")
    settings = settings_of(ctx)
    tally = Tally(Aim(queue, partition, type_, transaction_id, durability, delay, priority))
    try:
        run_async(_push(settings, tally, payloads or [], file))
    finally:
        _show_tally(settings, tally)
    if not tally.messages and not tally.duplicates:
        note("there was nothing to push")
        raise typer.Exit(ExitCode.NOTHING)


async def _push(settings: Settings, tally: "Tally", payloads: list[str], file: Path | None) -> None:
    from headwater.cli.pushing import open_input, prepare_arguments, push_messages

    if payloads:
        # Before the store is opened, which may make it: what cannot be pushed leaves no trace.
        prepared = prepare_arguments(tally.aim, payloads)
        async with reached(settings, create=True, housekeeping=None) as hw:
            await push_messages(hw, tally, prepared)
        tally.complete = True
        return
    descriptor = open_input(file)
    if os.isatty(descriptor):
        note("one JSON value a line; Ctrl-D ends the input")
    try:
        async with reached(settings, create=True, housekeeping=None) as hw:
            await _push_descriptor(hw, settings, tally, descriptor)
    finally:
        if descriptor:
            os.close(descriptor)


async def _push_descriptor(hw: "Headwater | Client", settings: Settings, tally: "Tally", descriptor: int) -> None:
    from headwater.cli.lines import Lines
    from headwater.cli.pushing import push_lines

    about = os.fstat(descriptor)
    size = about.st_size if stat.S_ISREG(about.st_mode) else None
    bounds = hw.config
    lines = Lines(
        descriptor,
        batch_max=bounds.batch_max,
        line_bytes_max=bounds.record_bytes_max,
        batch_bytes_max=SERVER_BATCH_BYTES_MAX if settings.server else bounds.batch_bytes_max,
    )
    shown = not settings.json and not os.isatty(descriptor)
    with progress(f"pushing to {tally.aim.queue}", size, shown=shown) as tell:
        await push_lines(hw, tally, lines, tell)


def _show_tally(settings: Settings, tally: "Tally") -> None:
    pushed = bool(tally.messages or tally.duplicates)
    if settings.json and (pushed or tally.complete):
        print_json(tally.document())
    elif pushed:
        print_line((f"pushed {plural(tally.messages, 'message')} to ", ""), *_place(tally.aim, tally), _extras(tally))


def _place(aim: "Aim", tally: "Tally") -> list[tuple[str, str]]:
    if len(tally.partitions) > 1:
        return [(aim.queue, "cyan"), (f", over {len(tally.partitions)} lanes", "")]
    where = [(aim.queue, "cyan"), *((f", partition {name}", "") for name in tally.partitions)]
    if tally.first_offset is None:
        return where
    if tally.first_offset == tally.last_offset:
        return [*where, (f", offset {tally.first_offset:,}", "")]
    return [*where, (f", offsets {tally.first_offset:,} to {tally.last_offset:,}", "")]


def _extras(tally: "Tally") -> tuple[str, str]:
    left_out = f", {plural(tally.duplicates, 'duplicate')} left out" if tally.duplicates else ""
    return f" ({tally.durability}{left_out})", "dim"


# ── pop ──


def pop(
    ctx: typer.Context,
    queue: QueueName,
    group: GroupName = GROUP_DEFAULT,
    batch: Annotated[int, typer.Option(min=1, help="The most messages to take.")] = 1,
    wait: Annotated[float, typer.Option(min=0, help="How many seconds to wait for the first message.")] = 0,
    partition: Annotated[str, typer.Option(help="Take from this partition only.", show_default="any")] = "",
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="Report messages as done once they are printed.")] = True,
) -> None:
    """Take the next messages of a queue and print them, one a line.

    They are acked once they are printed. With --no-ack they stay leased and come again when the lease ends. Exit code
    4 says that there was nothing.

    Examples:
      headwater pop orders
      headwater pop orders --group billing --batch 100 --wait 30
      headwater pop orders --json
    """
    settings = settings_of(ctx)
    options = {"group": group, "batch": batch, "wait": wait, "partition": partition or None}
    if run_async(_pop(settings, queue, ack, options)):
        return
    if not settings.json:
        note(f"nothing waits in {queue}")
    raise typer.Exit(ExitCode.NOTHING)


async def _pop(settings: Settings, name: str, ack: bool, options: dict[str, object]) -> int:
    """Take, print, report; how many there were."""
    async with reached(settings) as hw:
        queue = hw.queue(name)
        messages = await queue.pop(**options)  # type: ignore[arg-type]
        try:
            for message in messages:
                _show_popped(settings, message, with_lease=not ack)
        except BaseException:
            # Nobody has read them: the next one who asks gets them, and no attempt is counted.
            await queue.release(messages)
            raise
        if messages and ack:
            await queue.ack(messages)
        elif messages and not settings.json:
            seconds = (messages[0].batch.lease_until - hw.clock.now()) / SECOND
            note(f"not acked: they come again in {show_seconds(seconds)}")
    return len(messages)


def _show_popped(settings: Settings, message: "Message", *, with_lease: bool) -> None:
    if not settings.json:
        if message.index == 0 and message.lost_before:
            note(f"retention dropped {plural(message.lost_before, 'message')} before this one unread")
        _show_record(message.partition, message.offset, message.batch.written_at[message.index], message.record)
        return
    lease: dict[str, object] = {"group": message.group, "attempts": message.attempts}
    if with_lease:
        lease |= {"partition_id": message.partition_id, "token": message.token}
        lease |= {"lease_until": iso_time(message.batch.lease_until)}
    if message.lost_before:
        lease["lost_before"] = message.lost_before
    place = {"queue": message.queue, "partition": message.partition, "offset": message.offset, "lsn": message.lsn}
    print_json(place | lease | record_document(message.record, message.batch.written_at[message.index]))


def record_document(record: "Record", written_at: int) -> dict[str, object]:
    """A record for programs; what its producer did not say is left out."""
    said = {"type": record.type, "transaction_id": record.transaction_id, "trace_id": record.trace_id}
    extras: dict[str, object] = {name: value for name, value in said.items() if value}
    if record.headers:
        extras["headers"] = record.headers
    return {"created_at": iso_time(record.timestamp or written_at), **extras, "payload": record.data}


def _show_record(partition: str, offset: int, written_at: int, record: "Record") -> None:
    """One line: when, where, what. The time is as `seek --to` takes it."""
    import msgspec

    payload = msgspec.json.format(bytes(record.data), indent=0).decode()
    kind = [(f"{clean(record.type)}  ", "yellow")] if record.type else []
    when = iso_time(record.timestamp or written_at) or ""
    print_line((when, "dim"), (f"  {partition}", "cyan"), (f" #{offset}  ", ""), *kind, (payload, ""))


# ── tail ──


def tail(
    ctx: typer.Context,
    queue: QueueName,
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="Where to begin: beginning, end, or an LSN.")
    ] = "end",
    limit: Annotated[int, typer.Option(min=0, help="End after this many messages.", show_default="never")] = 0,
    partition: Annotated[str, typer.Option(help="Show this partition only.", show_default="all")] = "",
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more at the end of the log.")] = True,
) -> None:
    """Show the messages of a queue as they are pushed, like tail -f.

    Nothing is taken: there is no consumer group, and others get every message as before. Ctrl-C ends it.

    Examples:
      headwater tail orders
      headwater tail orders --from beginning --limit 10
      headwater tail orders --from 1500 --no-follow --json
    """
    settings = settings_of(ctx)
    shown = run_async(_tail(settings, queue, parse_start(start), Watch(settings, partition, limit, follow)))
    if not shown:
        _say_why_nothing(settings, queue, start, partition)
        raise typer.Exit(ExitCode.NOTHING)


def _say_why_nothing(settings: Settings, queue: str, start: str, partition: str) -> None:
    if not settings.json:
        where = f"{queue}, partition {partition}" if partition else queue
        note(f"there is nothing of {where} from {start if not start.isdecimal() else f'LSN {int(start):,}'} on")


class Watch:
    """What a tail shows, and how much of it."""

    def __init__(self, settings: Settings, partition: str, limit: int, follow: bool) -> None:
        from headwater.cli.following import Gaps

        self._settings = settings
        self._partition = partition
        self._limit = limit
        self._gaps = Gaps()
        self.follow = follow
        self.shown = 0

    def is_over(self) -> bool:
        """Whether as many were shown as were asked for."""
        return bool(self._limit) and self.shown >= self._limit

    def take(self, step: "Step") -> None:
        """Show what a step brought, and whether anything was missing before it."""
        if step.resync is not None:
            note(f"retention dropped messages unread; this goes on behind LSN {step.resync:,}")
        for segment in step.segments:
            if not self.is_over():
                self.show(segment)

    def show(self, segment: "Segment") -> None:
        """Show what is wanted of a segment."""
        if self._partition and segment.lane.partition != self._partition:
            return
        if missing := self._gaps.before(segment):
            note(f"retention dropped {plural(missing, 'message')} of partition {segment.lane.partition} unread")
        for offset, record in enumerate(segment.records, segment.first_offset):
            if not self.is_over():
                self._show_one(segment, offset, record)

    def _show_one(self, segment: "Segment", offset: int, record: "Record") -> None:
        self.shown += 1
        if not self._settings.json:
            _show_record(segment.lane.partition, offset, segment.written_at, record)
            return
        lane = segment.lane
        place = {"queue": lane.queue, "partition": lane.partition, "offset": offset, "lsn": segment.lsn}
        print_json(place | record_document(record, segment.written_at))


def parse_start(text: str) -> Lsn | None:
    """The LSN to begin after; None is the end of the log."""
    if text == "end":
        return None
    if text == "beginning":
        return Lsn(0)
    if text.isdecimal():
        return Lsn(max(int(text) - 1, 0))
    raise Misuse(f"--from takes beginning, end or an LSN; got {text!r}")


async def _tail(settings: Settings, name: str, start: Lsn | None, watch: Watch) -> int:
    from headwater.cli.following import follow, last_lsn
    from headwater.errors import QueueMissing

    async with reached(settings) as hw:
        end = await last_lsn(hw)
        after = end if start is None else start
        if after > end:
            note(f"the log ends at LSN {end:,}: nothing before {after + 1:,} will be shown")
        if await hw.queue(name).status() is None:
            if not watch.follow:
                raise QueueMissing(f"there is no queue {name!r}")
            note(f"there is no queue {name} yet; its messages will be shown when it is made")
        elif watch.follow and sys.stderr.isatty() and not settings.json:
            note(f"following {name}; Ctrl-C ends it")
        async with (
            await follow(hw, name, after) as following,
            aclosing(aiter(following) if watch.follow else following.until(end)) as steps,
        ):
            async for step in steps:
                watch.take(step)
                if watch.is_over():
                    break
    return watch.shown
