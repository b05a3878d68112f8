"""Filters that Spark hands down, as bounds on what is read: evaluated here exactly, so Spark need not do it again."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from headwater.clock import SECOND

FIRST, LAST = 0, 2**63 - 1

# The columns of which something can be said, in rows that are records and in rows that are segments.
RECORD_COLUMNS = frozenset({"queue", "partition", "offset", "lsn", "timestamp"})
SEGMENT_COLUMNS = frozenset({"queue", "partition", "lsn"})

_NAMES = {"queue": "queues", "partition": "partitions"}


class Bounds(msgspec.Struct, frozen=True):
    """Numbers from `low` to `high`, both included."""

    low: int = FIRST
    high: int = LAST

    def meet(self, other: "Bounds") -> "Bounds":
        """What lies within both."""
        return Bounds(max(self.low, other.low), min(self.high, other.high))

    def holds(self, number: int) -> bool:
        """Whether a number lies within."""
        return self.low <= number <= self.high


class Selection(msgspec.Struct, frozen=True):
    """Which records are wanted; None stands for all names."""

    queues: frozenset[str] | None = None
    partitions: frozenset[str] | None = None
    offset: Bounds = Bounds()
    lsn: Bounds = Bounds()
    timestamp: Bounds = Bounds()

    def wants(self, queue: str, partition: str) -> bool:
        """Whether records of a partition are wanted at all."""
        return (self.queues is None or queue in self.queues) and (
            self.partitions is None or partition in self.partitions
        )


def narrow(selection: Selection, condition: Filter, columns: frozenset[str]) -> Selection | None:
    """The selection under one more condition; None when that cannot be said exactly of these columns."""
    name = ".".join(getattr(condition, "attribute", ()))
    if name not in columns:
        return None
    # None of these columns is ever empty.
    if isinstance(condition, IsNotNull):
        return selection
    return _narrow_names(selection, name, condition) if name in _NAMES else _narrow_numbers(selection, name, condition)


def _narrow_names(selection: Selection, name: str, condition: Filter) -> Selection | None:
    if isinstance(condition, EqualTo | EqualNullSafe):
        wanted: Iterable[Any] = (condition.value,)
    elif isinstance(condition, In):
        wanted = condition.value
    else:
        return None
    field = _NAMES[name]
    before = getattr(selection, field)
    chosen = frozenset(wanted)
    return msgspec.structs.replace(selection, **{field: chosen if before is None else before & chosen})


def _narrow_numbers(selection: Selection, name: str, condition: Filter) -> Selection | None:
    number = _number(getattr(condition, "value", None))
    if number is None:
        return None
    if isinstance(condition, EqualTo | EqualNullSafe):
        bounds = Bounds(number, number)
    elif isinstance(condition, GreaterThan):
        bounds = Bounds(low=number + 1)
    elif isinstance(condition, GreaterThanOrEqual):
        bounds = Bounds(low=number)
    elif isinstance(condition, LessThan):
        bounds = Bounds(high=number - 1)
    elif isinstance(condition, LessThanOrEqual):
        bounds = Bounds(high=number)
    else:
        return None
    return msgspec.structs.replace(selection, **{name: getattr(selection, name).meet(bounds)})


def _number(value: Any) -> int | None:
    """A literal as the log counts: times in microseconds."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        since = value - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds
    return value if type(value) is int else None
