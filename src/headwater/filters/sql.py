"""Filters as WHERE clauses, for documents that are kept as JSON: in SQLite as text, in PostgreSQL as jsonb.

A clause is exact wherever the engine can be. It selects more, never less, where a number is compared with one so large
that the engine rounds what is kept: SQLite reads integers beyond 64 bits as floats, and PostgreSQL reads floats
beyond 2^53 as the decimals that they are written with. `is_exact` tells; the predicate decides then.

Opposites are pushed down to the leaves first. There, what is unknown to SQL (a missing field) counts as false, and
where a leaf is not exact, its opposite is widened the other way.

Documents are kept as they are written from values: floats in their shortest form, no name twice in an object.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeGuard

from headwater.filters.dialects import Column, Dialect, Number, Place, Writing, writing_for
from headwater.filters.tree import (
    And,
    Comparison,
    Constant,
    Equal,
    Expression,
    HasText,
    Holds,
    Leaf,
    Not,
    OneOf,
    Or,
    Order,
    Present,
    Scalar,
    StartsWith,
    field_of,
    known,
    known_list,
    walk,
)

# Up to here numbers as they are kept compare exactly.
EXACT_MAX = {Dialect.SQLITE: 2**63 - 1, Dialect.POSTGRESQL: 2**53}
# What is rounded to a float is off by 2^-53 of itself at most; that much and more is looked through on both sides.
ROUNDING_BITS = 50
NO = "FALSE"


def to_sql(
    expression: Expression,
    dialect: Dialect,
    *,
    document: str = "data",
    columns: Mapping[str, Column] | None = None,
    first: int = 1,
) -> tuple[str, list[object]]:
    """A clause and what is bound to it. `document` is the column with the JSON, `columns` the fields that are columns,
    `first` the number of the first parameter where they have numbers.

    >>> to_sql(parse('size > 10'), Dialect.SQLITE)
    """
    writing = writing_for(dialect)(document, columns or {}, first)
    return _Clauses(writing, EXACT_MAX[dialect]).of(expression), writing.values


def is_exact(expression: Expression, dialect: Dialect) -> bool:
    """Whether the clause selects exactly what is meant, so that a limit may stand behind it."""
    bound = EXACT_MAX[dialect]
    return not any(_is_beyond(value, bound) for node, _ in walk(expression) for value in _values(node))


def _values(node: Expression) -> tuple[Scalar, ...]:
    if isinstance(node, OneOf):
        return known_list(node.values)
    return (known(node.value),) if isinstance(node, Equal | Order | Holds) else ()


def _is_number(value: object) -> TypeGuard[Number]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_beyond(value: Scalar, bound: int) -> TypeGuard[Number]:
    return _is_number(value) and abs(value) > bound


class _Clauses:
    """Writes clauses; how an engine says it is in `dialects.py`."""

    def __init__(self, writing: Writing, exact_max: int) -> None:
        self._sql = writing
        self._exact_max = exact_max

    def of(self, expression: Expression, *, negated: bool = False) -> str:
        """The clause of a part, or of its opposite."""
        if isinstance(expression, Not):
            return self.of(expression.part, negated=not negated)
        if isinstance(expression, And | Or):
            word = " AND " if isinstance(expression, And) is not negated else " OR "
            return "(" + word.join(self.of(part, negated=negated) for part in expression.parts) + ")"
        if isinstance(expression, Constant):
            return "TRUE" if expression.value is not negated else NO
        clause = self._leaf(expression, negated)
        return f"({clause}) IS NOT TRUE" if negated else f"({clause})"

    def _leaf(self, leaf: Leaf, negated: bool) -> str:
        """A leaf as SQL. Where that is not exact, it is what surely holds if the opposite is asked for, or else what
        may hold."""
        place = self._sql.place(field_of(leaf.subject))
        match leaf:
            case Present():
                return place.is_present
            case Equal():
                return self._equal(place, known(leaf.value), negated)
            case Order():
                return self._order(place, leaf.comparison, known(leaf.value), negated)
            case OneOf():
                return self._one_of(place, known_list(leaf.values), negated)
            case StartsWith():
                return self._begins(place, str(known(leaf.value)))
            case HasText():
                return self._guarded(place.is_text, lambda: self._sql.has_text(place, str(known(leaf.value))))
            case Holds():
                return self._holds(place, known(leaf.value), negated)

    @staticmethod
    def _guarded(guard: str, clause: Callable[[], str]) -> str:
        """A clause that only holds for values of one kind; nothing is bound for one that there cannot be."""
        if guard == NO:
            return NO
        return f"{clause()} AND {guard}" if guard else clause()

    def _compared(self, place: Place, sign: str, value: Scalar) -> str:
        if isinstance(value, str):
            return self._guarded(place.is_text, lambda: f"{place.text} {sign} {self._sql.text(value)}")
        assert _is_number(value)
        return self._guarded(place.is_number, lambda: f"{place.number} {sign} {self._sql.number(place, value)}")

    def _equal(self, place: Place, value: Scalar, negated: bool) -> str:
        if value is None:
            return place.is_null
        if isinstance(value, bool):
            return place.is_true if value else place.is_false
        if place.is_column or not _is_beyond(value, self._exact_max):
            return self._compared(place, "=", value)
        if negated:
            return NO
        low, high = _around(value)
        return f"{self._compared(place, '>=', low)} AND {self._compared(place, '<=', high)}"

    def _order(self, place: Place, comparison: Comparison, value: Scalar, negated: bool) -> str:
        if place.is_column or not _is_beyond(value, self._exact_max):
            return self._compared(place, comparison, value)
        low, high = _around(value)
        return self._compared(place, comparison, low if comparison.startswith(">") is not negated else high)

    def _one_of(self, place: Place, values: Sequence[Scalar], negated: bool) -> str:
        texts = [value for value in values if isinstance(value, str)]
        numbers = [value for value in values if _is_number(value) and not _is_beyond(value, self._exact_max)]
        others = [value for value in values if value is None or isinstance(value, bool)]
        beyond = [value for value in values if _is_beyond(value, self._exact_max)]
        clauses = [self._equal(place, value, negated) for value in (*others, *beyond)]
        if texts:
            clauses.append(self._guarded(place.is_text, lambda: _among(place.text, map(self._sql.text, texts))))
        if numbers:
            bound = (self._sql.number(place, one) for one in numbers)
            clauses.append(self._guarded(place.is_number, lambda: _among(place.number, bound)))
        return " OR ".join(f"({clause})" for clause in clauses) or NO

    def _begins(self, place: Place, begin: str) -> str:
        """As a range, which an index can answer."""
        clause, end = self._compared(place, ">=", begin), end_of_prefix(begin)
        return clause if end is None else f"{clause} AND {self._compared(place, '<', end)}"

    def _holds(self, place: Place, value: Scalar, negated: bool) -> str:
        if not _is_beyond(value, self._exact_max):
            return self._guarded(place.is_list, lambda: self._sql.holds(place, value))
        return NO if negated else place.is_list


def _among(value: str, bound: Iterable[str]) -> str:
    return f"{value} IN ({', '.join(bound)})"


def _around(value: Number) -> tuple[int, int]:
    """Between what all values lie that may be this one as they are kept."""
    whole = int(value)
    slack = (abs(whole) >> ROUNDING_BITS) + 1
    return whole - slack, whole + slack


def end_of_prefix(begin: str) -> str | None:
    """The first text, by code point, behind all that begin so; None when there is none."""
    kept = begin.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    # Halves of surrogate pairs are no characters.
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)
