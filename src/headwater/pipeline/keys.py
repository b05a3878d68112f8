"""Keys of table writes: one that comes again with its key is known by its rows, in any order, and pushes nothing.

    probe the milestone ─► known, and the same rows: done · other rows: refused
                        └► not known: the next step of the milestone + the pushes, together

A task that is tried again seldom has its rows in the same order: a shuffle brings them as they come. Keys belong to a
queue, or to all writes whose queues are in a column, and go when a queue of the write goes. Each has one of `SLOTS`
milestones of the queue by its hash, whose note has the newest keys that fell to it; so what a queue remembers is
bounded, and two writes at once cannot both take the same step.
"""

from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from headwater.errors import AlreadyReached, KeyReused, PipelineError
from headwater.log.operations import Push, Reach, Transaction
from headwater.pipeline.destination import look_at
from headwater.pipeline.options import WriteOptions
from headwater.pipeline.writing import run_once

SLOTS = 1_024
KEY_BYTES, ROWS_BYTES, QUEUES_BYTES = 8, 16, 6
# What a server takes as the note of a step.
NOTE_LENGTH_MAX = 1_000
ATTEMPTS_MAX = 100


class Kept(NamedTuple):
    """A write that was pushed: its key, its rows, and the number of its queues, 0 while not all of them were there."""

    key: str
    rows: str
    queue_number: int


def push_once(options: WriteOptions, pushes: Sequence[Push]) -> None:
    """Push the rows of a table, unless its queues have had them under this key; raises when they had others."""
    key = options.idempotency_key
    name = f"spark/table/{options.queue}/{_slot_of(key):03x}"
    queues = {options.queue} if options.queue else {push.queue for push in pushes}
    for _ in range(ATTEMPTS_MAX):
        number = _look_for(options, queues)
        mine = Kept(_short(key.encode(), KEY_BYTES), rows_of(pushes), number or 0)
        step, note = _standing(options, name)
        known = was_pushed(mine, parse_note(note), may_look=number is not None, one_queue=bool(options.queue))
        try:
            if not known:
                _take(options, name, step, add_to_note(note, mine), pushes)
                step, note = step + 1, add_to_note(note, mine)
            _note_queues(options, name, step, note, mine, queues)
            return
        except AlreadyReached:
            # Another write took this step in between; it may be the very same one.
            continue
    raise PipelineError(
        f"other writes with a key were quicker {ATTEMPTS_MAX} times: try again, nothing is pushed twice"
    )


def _look_for(options: WriteOptions, queues: Collection[str]) -> int | None:
    """The number of these queues; None where who may push may not look."""
    found = look_at(options, None)
    return None if found is None else number_of(queues, found.numbers)


def number_of(queues: Collection[str], numbers: Mapping[str, int]) -> int:
    """One number for some queues, another one when one of them was made anew; 0 when one is not there."""
    found = [(queue, numbers.get(queue, 0)) for queue in sorted(queues)]
    if not all(number for _, number in found):
        return 0
    if len(found) == 1:
        return found[0][1]
    return int.from_bytes(sha256(msgspec.json.encode(found)).digest()[:QUEUES_BYTES], "big") if found else 0


def _take(options: WriteOptions, name: str, step: int, note: str, pushes: Sequence[Push] = ()) -> None:
    """Take the next step of a milestone, with what is pushed."""
    reach = Reach(database=options.database, name=name, number=step + 1, note=note)
    whole = Transaction(database=options.database, operations=[reach, *pushes])
    run_once(options.store, whole, options.access)


def _note_queues(options: WriteOptions, name: str, step: int, note: str, mine: Kept, queues: Collection[str]) -> None:
    """Note the queues that the write itself made, whose numbers are known only now, to know them again.

    Who dies before it has them noted by the next attempt.
    """
    noted = [one.queue_number for one in parse_note(note) if one.key == mine.key]
    number = 0 if noted[-1] or mine.rows == NO_ROWS else _look_for(options, queues)
    if number:
        _take(options, name, step, add_to_note(note, mine._replace(queue_number=number)))


def _standing(options: WriteOptions, name: str) -> tuple[int, str]:
    """How far a milestone is, and its note. A milestone that there is not yet begins."""
    try:
        run_once(options.store, Reach(database=options.database, name=name, number=0), options.access)
    except AlreadyReached as reached:
        return reached.number, reached.note
    return 0, ""


def was_pushed(mine: Kept, kept: Sequence[Kept], *, may_look: bool, one_queue: bool) -> bool:
    """Whether these rows were pushed under this key to the queues that are there now; raises when others were.

    What was pushed to a queue that was deleted since is gone with it, and is pushed anew. Of other rows, whose queues
    are in a column, nobody can tell whether the queues of the first ones are still there.
    """
    same = [one for one in kept if one.key == mine.key]
    if not same:
        return False
    gone = may_look and _is_gone(same[-1], mine.queue_number)
    if same[-1].rows == mine.rows:
        return not gone
    if gone and one_queue:
        return False
    raise KeyReused(
        "the idempotencyKey of this write was used for a write of other rows to the same "
        f"{'queue' if one_queue else 'store, with the queue in a column'}. Nothing was "
        "pushed. A task that is tried again must make the same rows, in any order: leave out what is another each "
        "time, such as current_timestamp() or uuid(). For other rows take another key"
    )


def _is_gone(before: Kept, number: int) -> bool:
    """Whether a queue of a write was deleted since. A write of no rows made none that could be."""
    if before.queue_number:
        return before.queue_number != number
    return not number and before.rows != NO_ROWS


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


NO_ROWS = rows_of([])


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
