"""Who reads what: stretches of the log for tasks, and how far one micro-batch goes. Rules only, no I/O."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from headwater.errors import InvalidOption
from headwater.model.names import Lsn
from headwater.stores.log_reader import Stretch

TASK_LSNS = 4_096
TASKS_MAX = 200


class Offset(msgspec.Struct, frozen=True):
    """How far a query has read: everything up to `lsn`. `drops` is how often retention had dropped anything by then:
    what went earlier was gone before the query could have read it, what goes later is a loss if it lies behind."""

    lsn: Lsn
    drops: int = 0

    def as_json(self) -> dict[str, int]:
        """As Spark keeps it in its checkpoint."""
        return {"lsn": self.lsn, "drops": self.drops}


def offset_of(kept: Any) -> Offset:
    """An offset from Spark's checkpoint."""
    try:
        return msgspec.convert(kept, Offset)
    except msgspec.ValidationError as error:
        raise InvalidOption(f"the checkpoint holds no offset of a Headwater source: {kept!r:.80} ({error})") from error


class Snapshot(msgspec.Struct, frozen=True):
    """A table: what these queues held after `start` up to `end` when it was taken, and how often anything had been
    dropped by then. Whoever reads it reads this and nothing else, however often and however late."""

    queues: tuple[str, ...]
    start: Offset
    end: Lsn
    drops: int


@dataclass(frozen=True)
class Range:
    """The segments after one LSN up to another."""

    after: Lsn
    through: Lsn


def split(after: Lsn, through: Lsn, tasks_min: int) -> list[Range]:
    """A stretch of the log in even parts: at least `tasks_min` if it is long enough, more when they would be long."""
    length = through - after
    if length <= 0:
        return []
    count = min(max(-(-length // TASK_LSNS), 1), max(TASKS_MAX, tasks_min))
    count = min(max(count, tasks_min), length)
    marks = [after + length * part // count for part in range(count + 1)]
    return [Range(Lsn(low), Lsn(high)) for low, high in pairwise(marks)]


def admit(stretches: Iterable[Stretch], records_max: int) -> Lsn | None:
    """How far a micro-batch may go: whole segments, `records_max` records at most, one segment at least."""
    admitted: Lsn | None = None
    records = 0
    for stretch in stretches:
        records += stretch.count
        if admitted is not None and records > records_max:
            break
        admitted = stretch.lsn
    return admitted
