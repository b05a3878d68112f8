"""The filters of one collection, and which of them a change concerns."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from enum import Enum
from typing import Any

from headwater.errors import FilterTooLarge
from headwater.filters import Expression, Predicate, Weight, predicate, weight_of
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
    """One filter, with all who watch by it. `owner` is who came with it first, and pays for it."""

    __slots__ = ("name", "owner", "places", "predicate", "unforeseen", "watchers", "weight")

    def __init__(self, name: str, predicate: Predicate, weight: Weight, owner: Hashable) -> None:
        self.name = name
        self.predicate = predicate
        self.weight = weight
        self.owner = owner
        # What it costs beyond the condition that it is found by.
        self.unforeseen = 0
        self.watchers: dict[Hashable, None] = {}
        # How it is taken out of each index that it is in.
        self.places: list[Callable[[], None]] = []


# A filter that a change concerns, and how.
Hit = tuple[Filed, Move]
Hits = dict[Filed, Move]
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
        # What the filters of each owner cost beyond the conditions that they are found by.
        self._unforeseen: Counter[Hashable] = Counter()
        # How many filters were tried so far: with those that held, how well the indexes lead.
        self.tried = 0
        # Filters that came since somebody began to look for those that a change concerns; None while nobody does.
        self._new: Bucket | None = None

    def __len__(self) -> int:
        return len(self._filed)

    def __iter__(self) -> Iterator[Filed]:
        return iter(self._filed.values())

    def add(
        self, expression: Expression, watcher: Hashable, owner: Hashable = "", unforeseen_max: int | None = None
    ) -> Filed:
        """From now on somebody watches the documents of a filter. Raises when the filters of its owner would cost more
        than this together, beyond the conditions that they are found by."""
        # Not the tree itself: to Python, one with 1 is one with True.
        name = repr(expression)
        filed = self._filed.get(name)
        if filed is None:
            filed = self._filed[name] = self._new_filed(name, expression, owner, unforeseen_max)
            if self._new is not None:
                self._new[filed] = None
        filed.watchers[watcher] = None
        return filed

    def _new_filed(self, name: str, expression: Expression, owner: Hashable, unforeseen_max: int | None) -> Filed:
        found = ways(expression, self._weigh)
        filed = Filed(name, predicate(expression), weight_of(expression), owner)
        filed.unforeseen = max(0, filed.weight.cost - (Anything() not in found))
        together = self._unforeseen[owner] + filed.unforeseen
        if unforeseen_max is not None and filed.unforeseen and together > unforeseen_max:
            raise FilterTooLarge(
                f"the filters of one token on a collection may cost {unforeseen_max:,} together beyond the conditions "
                f"that they are found by, and would cost {together:,}: fewer searches, or fewer subscriptions"
            )
        if filed.unforeseen:
            self._unforeseen[owner] = together
        for way in found:
            filed.places.append(self._file(filed, way))
        return filed

    def remove(self, filed: Filed, watcher: Hashable) -> None:
        """They do not any more."""
        filed.watchers.pop(watcher, None)
        if not filed.watchers and self._filed.get(filed.name) is filed:
            del self._filed[filed.name]
            if self._new is not None:
                self._new.pop(filed, None)
            for take_out in filed.places:
                take_out()
            if filed.unforeseen:
                self._unforeseen[filed.owner] -= filed.unforeseen
                if not self._unforeseen[filed.owner]:
                    del self._unforeseen[filed.owner]
            if not self._filed:
                # Nothing is kept for nobody.
                self.tried = 0

    def match(self, before: Document | None, after: Document | None) -> list[Hit]:
        """Whom a change concerns: the document as it was and as it is, None where it was or is not there."""
        hits: Hits = {}
        self.judge(self.find(before, after), before, after, hits)
        return list(hits.items())

    # ── the same in two steps, for who takes turns with others ──

    def begin(self) -> None:
        """From here on it is known which filters are new, until `end`."""
        self._new = {}

    def take_new(self) -> Collection[Filed]:
        """Filters that came since it was last asked: what was looked at before may concern them."""
        new, self._new = self._new, {}
        return new or ()

    def end(self) -> None:
        """All was looked at."""
        self._new = None

    def find(self, before: Document | None, after: Document | None) -> Collection[Filed]:
        """The filters that a change may concern."""
        buckets = [self._always] if self._always else []
        for image in (after, before):
            if image is not None:
                self._gather(image, buckets)
        if not buckets:
            return ()
        found = buckets[0]
        if any(bucket is not found for bucket in buckets):
            found = {filed: None for bucket in buckets for filed in bucket}
        return found

    def judge(self, found: Collection[Filed], before: Document | None, after: Document | None, hits: Hits) -> None:
        """Add those of some filters that a change concerns."""
        self.tried += len(found)
        if before is None or after is None:
            image, move = (after, Move.ENTERED) if before is None else (before, Move.LEFT)
            if image is not None:
                hits.update((filed, move) for filed in found if filed.predicate(image))
            return
        for filed in found:
            was = filed.predicate(before)
            if filed.predicate(after):
                hits[filed] = Move.CHANGED if was else Move.ENTERED
            elif was:
                hits[filed] = Move.LEFT

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
