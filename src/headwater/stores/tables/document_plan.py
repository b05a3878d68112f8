"""How a query of documents is answered: in which order they are gone through, from where to where.

    by id                the collection itself
    by an index          the keys of a field, in ranges that the filter says

A plan only says where to look; whether a document is meant, the filter's predicate decides, unless the filter asks for
no more than values of the index. Where the documents come in the order that was asked for, the first ones that are
meant are the answer; else all have to be looked at.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headwater import filters
from headwater.errors import InvalidOption
from headwater.filters.tree import And, Comparison, Equal, Expression, Field, OneOf, Order, known
from headwater.model.document import OrderBy
from headwater.model.document_order import QueryCursor, cursor_mark, read_cursor
from headwater.model.document_rules import Permit
from headwater.model.order_key import END, NULL, kind_end, next_key, order_key
from headwater.stores.document_questions import DocumentQuery

ORDER_FIELDS_MAX = 8
# Above all ids: it cannot be printed, so no document is called so.
LAST_ID = "\U0010ffff"


class Range(NamedTuple):
    """Keys from `low` on, before `high`."""

    low: bytes
    high: bytes

    def holds(self, key: bytes) -> bool:
        """Whether a key is among them."""
        return self.low <= key < self.high

    def is_passed(self, key: bytes, *, back: bool) -> bool:
        """Whether all of them lie before a key on the way, which may lead back."""
        return key < self.low if back else key >= self.high


ALL_KEYS = Range(NULL, END)


class Plan(NamedTuple):
    """Where to look: along the ids when `field` is empty, else along the keys of an index on it, in these ranges.

    `back` is against the order. `is_ordered` says that documents come in the order of the query, `is_exact` that all of
    them are meant: equal values have equal keys, and other values have others.
    """

    field: str
    ranges: tuple[Range, ...]
    back: bool
    is_ordered: bool
    is_exact: bool = False


class Asked(NamedTuple):
    """A query, understood."""

    expression: Expression
    order: tuple[OrderBy, ...]
    after: QueryCursor | None


def understand(query: DocumentQuery, permit: Permit | None = None, claims: str = "") -> Asked:
    """What a query asks for, by who has these claims, of what may be read; raises when it cannot be."""
    if len(query.order_by) > ORDER_FIELDS_MAX:
        raise InvalidOption(f"a query orders by {ORDER_FIELDS_MAX} fields at most; got {len(query.order_by)}")
    expression = filters.readable(permit, filters.whole_filter(query.filters, query.filter, claims))
    order = tuple(query.order_by)
    after = read_cursor(query.start_after, len(order), cursor_mark(query.collection, order))
    return Asked(expression, order, after)


# ── plans ──


def choose_plan(asked: Asked, indexed: Sequence[str]) -> Plan:
    """The way with the least to look at."""
    order = asked.order
    back = bool(order) and order[-1].direction == "desc"
    bounds = _bounds(asked.expression, frozenset(indexed))
    first = order[0].field if order else ""
    is_by_id = not order or (len(order) == 1 and first == "id")
    equal = next((field for field, ranges in bounds.items() if _are_points(ranges)), None)
    if equal is not None:
        # Of one key, documents come by id; of several, one key after the other.
        ordered = len(bounds[equal]) == 1 and (is_by_id or (len(order) == 1 and first == equal))
        return Plan(equal, bounds[equal], back, ordered, is_exact=not isinstance(asked.expression, And))
    if len(order) == 1 and first in indexed and (first in bounds or not bounds):
        ranges = bounds.get(first, (ALL_KEYS,))
        return Plan(first, ranges[::-1] if back else ranges, back, is_ordered=True)
    if bounds:
        field = next(iter(bounds))
        return Plan(field, bounds[field], back=False, is_ordered=False)
    return Plan("", (), back and is_by_id, is_by_id)


def _bounds(expression: Expression, indexed: frozenset[str]) -> dict[str, tuple[Range, ...]]:
    """What a filter says of indexed fields: the ranges of keys outside of which nothing is meant."""
    found: dict[str, tuple[Range, ...]] = {}
    for part in expression.parts if isinstance(expression, And) else (expression,):
        if not isinstance(part, Equal | Order | OneOf) or not isinstance(part.subject, Field):
            continue
        field = str(part.subject)
        ranges = _ranges(part) if field in indexed else None
        if ranges is not None:
            found[field] = _both(found.get(field, (ALL_KEYS,)), ranges)
    return found


def _ranges(part: Equal | Order | OneOf) -> tuple[Range, ...] | None:
    if isinstance(part, Equal):
        return (_point(known(part.value)),)
    if isinstance(part, OneOf):
        # By their keys: to Python, `1` and `True` are one value.
        keys = sorted({order_key(value) for value in part.values}) if isinstance(part.values, tuple) else None
        return None if keys is None else tuple(Range(key, next_key(key)) for key in keys)
    key = order_key(known(part.value))
    start = bytes([key[0]])
    if part.comparison in (Comparison.LESS, Comparison.LESS_OR_EQUAL):
        return (Range(start, key if part.comparison is Comparison.LESS else next_key(key)),)
    return (Range(next_key(key) if part.comparison is Comparison.GREATER else key, kind_end(key)),)


def _point(value: object) -> Range:
    key = order_key(value)
    return Range(key, next_key(key))


def _both(one: tuple[Range, ...], other: tuple[Range, ...]) -> tuple[Range, ...]:
    """What lies in both."""
    found = {Range(max(a.low, b.low), min(a.high, b.high)) for a in one for b in other}
    return tuple(sorted(both for both in found if both.low < both.high))


def _are_points(ranges: tuple[Range, ...]) -> bool:
    return all(one.high == next_key(one.low) for one in ranges)
