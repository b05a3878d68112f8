"""Pushing what a person typed or a file holds: one batch after the other, each whole or not at all."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headwater.cli.exits import Misuse
from headwater.cli.lines import Line, Lines
from headwater.errors import HeadwaterError, InvalidInput

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.client.client import Client
    from headwater.services.messages import Outgoing, Receipt


class Aim(NamedTuple):
    """Where messages go and what is said of each."""

    queue: str
    partition: str
    type: str
    transaction_id: str
    durability: str | None
    delay: float = 0
    priority: int = 0


class Tally:
    """What was pushed so far."""

    def __init__(self, aim: Aim) -> None:
        self.aim = aim
        self.messages = 0
        self.duplicates = 0
        self.last_line = 0
        self.partitions: set[str] = {aim.partition} if aim.partition else set()
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self.durability: str | None = None
        self.complete = False

    def add(self, receipts: "Sequence[Receipt]") -> None:
        """Count a batch that was pushed."""
        fresh = [receipt for receipt in receipts if not receipt.duplicate]
        self.messages += len(fresh)
        self.duplicates += len(receipts) - len(fresh)
        self.durability = receipts[-1].durability.value
        self.partitions.update(receipt.partition for receipt in receipts if receipt.partition)
        offsets = [receipt.offset for receipt in receipts if receipt.offset is not None]
        if offsets:
            self.first_offset = offsets[0] if self.first_offset is None else self.first_offset
            self.last_offset = offsets[-1]

    def document(self) -> dict[str, object]:
        """The tally for programs. Offsets count within one partition: over several there are none to tell."""
        is_one = len(self.partitions) == 1
        return {
            "queue": self.aim.queue,
            "partition": next(iter(self.partitions)) if is_one else None,
            "partitions": len(self.partitions),
            "messages": self.messages,
            "duplicates": self.duplicates,
            "first_offset": self.first_offset if is_one else None,
            "last_offset": self.last_offset if is_one else None,
            "durability": self.durability,
            "complete": self.complete,
        }


def prepare_arguments(aim: Aim, payloads: Sequence[str]) -> "list[Outgoing]":
    """The payloads of the command line as messages."""
    # What the shell handed over byte for byte: JSON is UTF-8 whatever the locale is.
    return [_outgoing(aim, os.fsencode(text), f"payload {number}") for number, text in enumerate(payloads, 1)]


async def push_messages(hw: "Headwater | Client", tally: Tally, messages: "Sequence[Outgoing]") -> None:
    """Push messages in one commit, and count them."""
    aim = tally.aim
    queue = hw.queue(aim.queue)
    receipts = await queue.push_many(
        messages, partition=aim.partition or None, durability=aim.durability, delay=aim.delay, priority=aim.priority
    )
    tally.add(receipts)


async def push_lines(hw: "Headwater | Client", tally: Tally, lines: Lines, tell: Callable[[float], None]) -> None:
    """Push NDJSON batch by batch; an error says which line it was and how far everything is safe."""
    try:
        async for batch in lines.batches():
            tell(lines.bytes_read)
            await push_messages(hw, tally, prepare_lines(tally.aim, batch))
            tally.last_line = batch[-1].number
    except HeadwaterError as error:
        raise type(error)(f"{error}; {_safe_so_far(tally)}") from error
    tally.complete = True


def prepare_lines(aim: Aim, batch: "Sequence[Line]") -> "list[Outgoing]":
    """A batch of lines as messages; one bad line and there is no batch."""
    return [_outgoing(aim, line.text, f"line {line.number}") for line in batch]


def _outgoing(aim: Aim, text: bytes, place: str) -> "Outgoing":
    """One message; an error says which one it was."""
    from headwater.model.record import check_json
    from headwater.services.messages import Outgoing

    try:
        payload = check_json(text)
    except InvalidInput as error:
        raise type(error)(f"{place}: {error}") from error
    return Outgoing(payload=payload, type=aim.type, transaction_id=aim.transaction_id)


def _safe_so_far(tally: Tally) -> str:
    if not tally.last_line:
        return "nothing was pushed"
    return f"lines 1 to {tally.last_line:,} are pushed, nothing after them"


def open_input(file: Path | None) -> int:
    """A descriptor of the file, or of standard input for `-` and none."""
    if file is None or str(file) == "-":
        return 0
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Misuse(f"--file: {file} cannot be read: {error.strerror}") from error
