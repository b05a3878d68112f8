"""Keys of table writes: one that comes again with its key is known by its rows, in any order, and pushes nothing.

    probe the milestone ─► known, and the same rows: done · other rows: refused
                        └► not known: the next step of the milestone + the pushes, together

A task that is tried again seldom has its rows in the same order: a shuffle brings them as they come. Keys belong to a
queue. Each has one of `SLOTS` milestones of the queue by its hash, whose note has the newest keys that fell to it; so
what a queue remembers is bounded, and two writes at once cannot both take the same step.
"""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from headwater.errors import AlreadyReached, KeyReused, PipelineError
from headwater.log.operations import Push, Reach, Transaction
from headwater.pipeline.destination import look_at
from headwater.pipeline.options import WriteOptions
from headwater.pipeline.writing import run_once

SLOTS = 1_024
KEY_BYTES, ROWS_BYTES = 8, 16
# What a server takes as the note of a step.
NOTE_LENGTH_MAX = 1_000
ATTEMPTS_MAX = 100


class Kept(NamedTuple):
    """A write that was pushed: its key, its rows, and the number that its queue had before, 0 when it was not there."""

    key: str
    rows: str
    queue_number: int


def push_once(options: WriteOptions, pushes: Sequence[Push]) -> None:
    """Push the rows of a table, unless the queue has had them under this key; raises when it had others."""
    key = options.idempotency_key
    name = f"spark/table/{options.queue}/{_slot_of(key):03x}"
    for _ in range(ATTEMPTS_MAX):
        found = look_at(options, None)
        number = 0 if found is None else found.numbers.get(options.queue, 0)
        mine = Kept(_short(key.encode(), KEY_BYTES), rows_of(pushes), number)
        step, note = _standing(options, name)
        if was_pushed(mine, parse_note(note), is_there=bool(number) or found is None or not options.queue):
            return
        reach = Reach(database=options.database, name=name, number=step + 1, note=add_to_note(note, mine))
        try:
            whole = Transaction(database=options.database, operations=[reach, *pushes])
            run_once(options.store, whole, options.access)
            return
        except AlreadyReached:
            # Another write took this step in between; it may be the very same one.
            continue
    raise PipelineError(f"other writes with a key were quicker {ATTEMPTS_MAX} times; nothing was pushed: try again")


def _standing(options: WriteOptions, name: str) -> tuple[int, str]:
    """How far a milestone is, and its note. A milestone that there is not yet begins."""
    try:
        run_once(options.store, Reach(database=options.database, name=name, number=0), options.access)
    except AlreadyReached as reached:
        return reached.number, reached.note
    return 0, ""


def was_pushed(mine: Kept, kept: Sequence[Kept], *, is_there: bool) -> bool:
    """Whether these rows were pushed under this key to the queue that is there now; raises when others were.

    What was pushed to a queue that was deleted since is gone with it, and is pushed anew.
    """
    same = [one for one in kept if one.key == mine.key]
    if not same or not is_there or (same[-1].queue_number and same[-1].queue_number != mine.queue_number):
        return False
    if same[-1].rows != mine.rows:
        raise KeyReused(
            "the idempotencyKey of this write was used for a write of other rows to the same queue. Nothing was "
            "pushed. A task that is tried again must make the same rows, in any order: leave out what is another each "
            "time, such as current_timestamp() or uuid(). For other rows take another key"
        )
    return True


def rows_of(pushes: Sequence[Push]) -> str:
    """What rows are known by in whatever order: the sum of their hashes."""
    total = count = 0
    for push in pushes:
        place = msgspec.json.encode((push.queue, push.partition))
        for record in push.records:
            digest = sha256(place + msgspec.json.encode(record)).digest()
            total += int.from_bytes(digest[:ROWS_BYTES], "big")
            count += 1
    return _short(f"{count} {total}".encode(), ROWS_BYTES)


def _short(text: bytes, length: int) -> str:
    return urlsafe_b64encode(sha256(text).digest()[:length]).decode().rstrip("=")


def _slot_of(key: str) -> int:
    return int.from_bytes(sha256(key.encode()).digest()[-4:], "big") % SLOTS


def parse_note(note: str) -> list[Kept]:
    """The writes that a note has, the newest last."""
    parts = [entry.split(":") for entry in note.split()]
    return [Kept(key, rows, int(number)) for key, rows, number in parts]


def add_to_note(note: str, mine: Kept) -> str:
    """The note with one more write, less the oldest ones for which there is no room."""
    entries = [f"{one.key}:{one.rows}:{one.queue_number}" for one in parse_note(note) if one.key != mine.key]
    entries.append(f"{mine.key}:{mine.rows}:{mine.queue_number}")
    while len(" ".join(entries)) > NOTE_LENGTH_MAX:
        del entries[0]
    return " ".join(entries)
