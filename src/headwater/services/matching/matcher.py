"""The filters of one collection, and which of them a change concerns."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from typing import Any

from headwater.filters import Expression, Predicate, predicate
from headwater.filters.python import value_at
from headwater.services.matching.access import (
    Anything,
    Has,
    HoldsValue,
    Key,
    NumberWithin,
    Path,
    TextWithin,
    Truth,
    Way,
    ways,
)
from headwater.services.matching.intervals import Intervals

Document = Mapping[str, object]
# What an index costs to be asked, in filters that are tried; an id is asked for first, a range last.
VALUE_WEIGHT = 1.0
HELD_WEIGHT = 4.0
RANGE_WEIGHT = 64.0
# Of values that most documents share with many others.
COARSE_WEIGHT = 1_000.0
ANYTHING_WEIGHT = 1e12
ID: Path = ("id",)


class Move(Enum):
    """What a change is to those who watch a set of documents."""

    ENTERED = "insert"
    CHANGED = "update"
    LEFT = "delete"


class Filed:
    """One filter, with all who watch by it."""

    __slots__ = ("name", "places", "predicate", "watchers")

    def __init__(self, name: str, predicate: Predicate) -> None:
        self.name = name
        self.predicate = predicate
        self.watchers: dict[Hashable, None] = {}
        # How it is taken out of each index that it is in.
        self.places: list[Callable[[], None]] = []


# A filter that a change concerns, and how.
Hit = tuple[Filed, Move]
Bucket = dict[Filed, None]
Table = dict[Key, Bucket]


class Matcher:
    """Who watches what in a collection.

    >>> matcher.add(parse('room == "r1"'), "ada")
    >>> matcher.match(None, {"id": "m1", "room": "r1"})
    """

    def __init__(self) -> None:
        self._filed: dict[str, Filed] = {}
        self._has: dict[Path, Table] = {}
        self._holds: dict[Path, Table] = {}
        self._numbers: dict[Path, Intervals[Filed]] = {}
        self._texts: dict[Path, Intervals[Filed]] = {}
        self._always: Bucket = {}
        # How many filters were tried so far: with those that held, how well the indexes lead.
        self.tried = 0

    def __len__(self) -> int:
        return len(self._filed)

    def __iter__(self) -> Iterator[Filed]:
        return iter(self._filed.values())

    def add(self, expression: Expression, watcher: Hashable) -> Filed:
        """From now on somebody watches the documents of a filter."""
        # Not the tree itself: to Python, one with 1 is one with True.
        name = repr(expression)
        filed = self._filed.get(name)
        if filed is None:
            filed = self._filed[name] = Filed(name, predicate(expression))
            for way in ways(expression, self._weigh):
                filed.places.append(self._file(filed, way))
        filed.watchers[watcher] = None
        return filed

    def remove(self, filed: Filed, watcher: Hashable) -> None:
        """They do not any more."""
        filed.watchers.pop(watcher, None)
        if not filed.watchers and self._filed.get(filed.name) is filed:
            del self._filed[filed.name]
            for take_out in filed.places:
                take_out()
            if not self._filed:
                # Nothing is kept for nobody.
                self.tried = 0

    def match(self, before: Document | None, after: Document | None) -> list[Hit]:
        """Whom a change concerns: the document as it was and as it is, None where it was or is not there."""
        buckets = [self._always] if self._always else []
        for image in (after, before):
            if image is not None:
                self._gather(image, buckets)
        if not buckets:
            return []
        found = buckets[0]
        if any(bucket is not found for bucket in buckets):
            found = {filed: None for bucket in buckets for filed in bucket}
        self.tried += len(found)
        if before is None or after is None:
            image, move = (after, Move.ENTERED) if before is None else (before, Move.LEFT)
            return [(filed, move) for filed in found if image is not None and filed.predicate(image)]
        hits: list[Hit] = []
        for filed in found:
            was = filed.predicate(before)
            if filed.predicate(after):
                hits.append((filed, Move.CHANGED if was else Move.ENTERED))
            elif was:
                hits.append((filed, Move.LEFT))
        return hits

    # ── looking up ──

    def _gather(self, document: Document, found: list[Bucket]) -> None:
        """Add those that the values of a document lead to."""
        for path, table in self._has.items():
            value = document.get(path[0]) if len(path) == 1 else value_at(document, path)
            bucket = _looked_up(table, value)
            if bucket:
                found.append(bucket)
        for path, table in self._holds.items():
            values = value_at(document, path)
            if isinstance(values, list):
                found += [bucket for value in values if (bucket := _looked_up(table, value))]
        for path, numbers in self._numbers.items():
            value = value_at(document, path)
            if value.__class__ is int or value.__class__ is float:
                found.append(dict.fromkeys(numbers.at(value)))
        for path, texts in self._texts.items():
            value = value_at(document, path)
            if value.__class__ is str:
                found.append(dict.fromkeys(texts.at(value)))

    # ── filing ──

    def _weigh(self, way: Way) -> float:
        match way:
            case Has():
                if way.path == ID:
                    return 0.0
                coarse = COARSE_WEIGHT if way.key is None or isinstance(way.key, Truth) else VALUE_WEIGHT
                return coarse + len(self._has.get(way.path, {}).get(way.key, ()))
            case HoldsValue():
                return HELD_WEIGHT + len(self._holds.get(way.path, {}).get(way.key, ()))
            case NumberWithin():
                return _range_weight(self._numbers, way)
            case TextWithin():
                return _range_weight(self._texts, way)
            case Anything():
                return ANYTHING_WEIGHT

    def _file(self, filed: Filed, way: Way) -> Callable[[], None]:
        """Put a filter where documents lead to it; returns what takes it out."""
        match way:
            case Has():
                return _into(self._has, way.path, way.key, filed)
            case HoldsValue():
                return _into(self._holds, way.path, way.key, filed)
            case NumberWithin():
                return _between(self._numbers, way, filed)
            case TextWithin():
                return _between(self._texts, way, filed)
            case Anything():
                self._always[filed] = None
                return lambda: self._always.__delitem__(filed)


def _looked_up(table: Table, value: Any) -> Bucket | None:
    kind = value.__class__
    if kind is str or kind is int or kind is float or value is None:
        return table.get(value)
    if kind is bool:
        return table.get(Truth.TRUE if value else Truth.FALSE)
    return None


def _range_weight(ranges: dict[Path, Intervals[Filed]], way: NumberWithin | TextWithin) -> float:
    """A range with one bound finds about half of what is there, and one with two fewer."""
    there = len(ranges.get(way.path, ()))
    if way.low is None or way.high is None:
        return 2 * RANGE_WEIGHT + there / 2
    return RANGE_WEIGHT + there / 16


def _into(tables: dict[Path, Table], path: Path, key: Key, filed: Filed) -> Callable[[], None]:
    table = tables.setdefault(path, {})
    table.setdefault(key, {})[filed] = None

    def take_out() -> None:
        del table[key][filed]
        if not table[key]:
            del table[key]
        if not table and tables.get(path) is table:
            del tables[path]

    return take_out


def _between(ranges: dict[Path, Intervals[Filed]], way: NumberWithin | TextWithin, filed: Filed) -> Callable[[], None]:
    intervals = ranges.setdefault(way.path, Intervals())
    number = intervals.add(way.low, way.high, filed)

    def take_out() -> None:
        intervals.remove(number)
        if not len(intervals) and ranges.get(way.path) is intervals:
            del ranges[way.path]

    return take_out
