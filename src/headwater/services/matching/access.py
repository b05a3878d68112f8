"""What a document must have for a filter to hold, in a form that can be looked up.

`ways` gives conditions of which one at least is met by every document for which the filter holds. They may be met by
others, too; the filter decides.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from headwater.filters.sql import end_of_prefix
from headwater.filters.tree import (
    And,
    Comparison,
    Constant,
    Equal,
    Expression,
    Holds,
    OneOf,
    Or,
    Order,
    Scalar,
    StartsWith,
    field_of,
    known,
    known_list,
)

Path = tuple[str, ...]
Number = int | float


class Truth(Enum):
    """Booleans as keys, which would be found as 0 and 1."""

    TRUE = 1
    FALSE = 0


Key = str | Number | Truth | None


class Has(NamedTuple):
    """A field has a value."""

    path: Path
    key: Key


class HoldsValue(NamedTuple):
    """A list holds a value."""

    path: Path
    key: Key


class NumberWithin(NamedTuple):
    """A number lies between two others, of which one may be missing."""

    path: Path
    low: Number | None
    high: Number | None


class TextWithin(NamedTuple):
    """A text lies between two others, of which one may be missing."""

    path: Path
    low: str | None
    high: str | None


class Anything(NamedTuple):
    """Nothing is known beforehand."""


Way = Has | HoldsValue | NumberWithin | TextWithin | Anything
ANYTHING = [Anything()]
# How many filters lie where a document would find them by this way, about.
Weigh = Callable[[Way], float]


def key_of(value: Scalar) -> Key:
    """A value as indexes know it: numbers of one value are one key, booleans are no numbers."""
    if value is True:
        return Truth.TRUE
    return Truth.FALSE if value is False else value


def ways(expression: Expression, weigh: Weigh) -> list[Way]:
    """The lightest ways to a filter; none when it never holds."""
    match expression:
        case And():
            choices = [ways(part, weigh) for part in expression.parts]
            choices += _ranges(expression)
            return min(choices, key=lambda choice: sum(map(weigh, choice)))
        case Or():
            found = list(dict.fromkeys(way for part in expression.parts for way in ways(part, weigh)))
            return list(ANYTHING) if Anything() in found else found
        case Equal():
            return [Has(field_of(expression.subject).path, key_of(known(expression.value)))]
        case OneOf():
            path = field_of(expression.subject).path
            return list(dict.fromkeys(Has(path, key_of(value)) for value in known_list(expression.values)))
        case Holds():
            return [HoldsValue(field_of(expression.subject).path, key_of(known(expression.value)))]
        case Order() | StartsWith():
            return [_range(expression)]
        case Constant():
            return list(ANYTHING) if expression.value else []
        case _:
            return list(ANYTHING)


def _range(leaf: Order | StartsWith) -> NumberWithin | TextWithin:
    """Bounds count as inside: the filter knows better."""
    path, value = field_of(leaf.subject).path, known(leaf.value)
    if isinstance(leaf, StartsWith):
        begin = str(value)
        return TextWithin(path, begin, end_of_prefix(begin))
    is_above = leaf.comparison in (Comparison.GREATER, Comparison.GREATER_OR_EQUAL)
    if isinstance(value, str):
        return TextWithin(path, value, None) if is_above else TextWithin(path, None, value)
    assert value is not None
    return NumberWithin(path, value, None) if is_above else NumberWithin(path, None, value)


def _ranges(expression: And) -> list[list[Way]]:
    """Ranges that several conditions on one field make together; no way where nothing lies in them."""
    together: dict[tuple[type, Path], list[NumberWithin | TextWithin]] = {}
    for part in expression.parts:
        if isinstance(part, Order | StartsWith):
            found = _range(part)
            together.setdefault((type(found), found.path), []).append(found)
    return [_narrowed(kind, path, ranges) for (kind, path), ranges in together.items() if len(ranges) > 1]


def _narrowed(kind: type, path: Path, ranges: list[NumberWithin | TextWithin]) -> list[Way]:
    lows: list[Any] = [one.low for one in ranges if one.low is not None]
    highs: list[Any] = [one.high for one in ranges if one.high is not None]
    low, high = max(lows, default=None), min(highs, default=None)
    if low is not None and high is not None and low > high:
        return []
    way: Way = kind(path, low, high)
    return [way]
