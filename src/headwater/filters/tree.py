"""The tree of a filter: what both languages are parsed into, and what every form is made of.

    And  Or  Not  Constant
    Equal  Order  OneOf  Holds  HasText  StartsWith  Present        leaves: one subject, a field or a claim

Two trees that differ in `1` and `True` alone are equal to Python: nothing may be found again by a tree as its key.
Nothing in a tree leads back to it, so the collector of cycles need not look at the filters of all who follow.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple, NoReturn

import msgspec

from headwater.errors import FilterTooLarge, InvalidFilter

TEXT_LENGTH_MAX = 8_192  # characters of a filter
DEPTH_MAX = 24
NODES_MAX = 256
LIST_LENGTH_MAX = 1_000
LITERAL_LENGTH_MAX = 2_048  # characters of one text in a filter
PATH_LENGTH_MAX = 12  # names from the document down to a field
NAME_LENGTH_MAX = 128
NUMBER_MAX = 2**127
# What a filter may cost for one document, in comparisons.
COST_MAX = 2_000
SEARCH_COST = 16  # looking through a text or a list
LISTED_PER_COST = 8  # a list is looked up, not gone through; in SQL it is longer
SEARCHED_PER_COST = 64  # bytes of a document, for each search of it

# Neither quotes nor backslashes nor what steers a terminal: a name stands in the text of a statement.
NAME_SIGNS = frozenset("_-$@: ")

Scalar = bool | int | float | str | None


class Field(msgspec.Struct, frozen=True, gc=False):
    """A field of the document, by the names that lead to it."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.path)


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Something that is known of who asks: `auth.sub`."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(("auth", *self.path))


Subject = Field | Claim
Operand = Scalar | Claim


class Comparison(StrEnum):
    """How two values of one kind lie to each other."""

    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


class Constant(msgspec.Struct, frozen=True, gc=False):
    """Always, or never."""

    value: bool


class Equal(msgspec.Struct, frozen=True, gc=False):
    """The subject has this value; null is also what a missing field has."""

    subject: Subject
    value: Operand


class Order(msgspec.Struct, frozen=True, gc=False):
    """The subject is of the kind of the value, a number or a text, and lies so to it."""

    subject: Subject
    comparison: Comparison
    value: Operand


class OneOf(msgspec.Struct, frozen=True, gc=False):
    """The subject has one of these values."""

    subject: Subject
    values: tuple[Scalar, ...] | Claim


class Holds(msgspec.Struct, frozen=True, gc=False):
    """The subject is a list, and the value is in it."""

    subject: Subject
    value: Operand


class HasText(msgspec.Struct, frozen=True, gc=False):
    """The subject is a text, and this is a part of it."""

    subject: Subject
    value: Operand


class StartsWith(msgspec.Struct, frozen=True, gc=False):
    """The subject is a text that begins so."""

    subject: Subject
    value: Operand


class Present(msgspec.Struct, frozen=True, gc=False):
    """The subject is there, with any value, null too."""

    subject: Subject


class And(msgspec.Struct, frozen=True, gc=False):
    """All of these."""

    parts: tuple["Expression", ...]


class Or(msgspec.Struct, frozen=True, gc=False):
    """One of these at least."""

    parts: tuple["Expression", ...]


class Not(msgspec.Struct, frozen=True, gc=False):
    """The opposite."""

    part: "Expression"


Leaf = Equal | Order | OneOf | Holds | HasText | StartsWith | Present
Expression = And | Or | Not | Constant | Leaf

ALWAYS = Constant(True)
NEVER = Constant(False)


def walk(expression: Expression, depth: int = 1) -> Iterator[tuple[Expression, int]]:
    """Every node with its depth."""
    yield expression, depth
    if isinstance(expression, And | Or):
        for part in expression.parts:
            yield from walk(part, depth + 1)
    elif isinstance(expression, Not):
        yield from walk(expression.part, depth + 1)


def fields_of(expression: Expression) -> frozenset[tuple[str, ...]]:
    """The paths of all fields that it looks at."""
    nodes = (node for node, _ in walk(expression) if not isinstance(node, And | Or | Not | Constant))
    return frozenset(node.subject.path for node in nodes if isinstance(node.subject, Field))


def join(kind: type[And] | type[Or], parts: list[Expression]) -> Expression:
    """All of them, or one of them; constants are worked out, and what is of the same kind is drawn in."""
    deciding = kind is Or
    kept: list[Expression] = []
    for part in parts:
        if isinstance(part, Constant):
            if part.value is deciding:
                return part
        elif isinstance(part, kind):
            kept.extend(part.parts)
        else:
            kept.append(part)
    if not kept:
        return NEVER if deciding else ALWAYS
    return kept[0] if len(kept) == 1 else kind(tuple(kept))


def opposite(expression: Expression) -> Expression:
    """Its opposite."""
    if isinstance(expression, Constant):
        return Constant(not expression.value)
    return expression.part if isinstance(expression, Not) else Not(expression)


# ── trees without claims, which can be compiled ──


def field_of(subject: Subject) -> Field:
    """The field that it is about."""
    return subject if isinstance(subject, Field) else _refuse_claim(subject)


def known(value: Operand) -> Scalar:
    """The value that it compares with."""
    return _refuse_claim(value) if isinstance(value, Claim) else value


def known_list(values: tuple[Scalar, ...] | Claim) -> tuple[Scalar, ...]:
    """The values that it compares with."""
    return _refuse_claim(values) if isinstance(values, Claim) else values


def _refuse_claim(claim: Claim) -> NoReturn:
    raise InvalidFilter(
        f"{claim} is a claim of who asks, and nobody is known here: servers that ask for a token know who it is"
    )


# ── what is refused ──


def refuse(position: int, what: str) -> NoReturn:
    """It is no filter; `position` is a character of the text, or the number of a condition."""
    raise InvalidFilter(f"{what} (at {position})", position)


def refuse_size(position: int, what: str) -> NoReturn:
    """It is a filter, and too large."""
    raise FilterTooLarge(f"{what} (at {position})", position)


def check_size(expression: Expression) -> Expression:
    """The expression itself when evaluating it stays within bounds."""
    cost = 0
    for number, (node, depth) in enumerate(walk(expression), 1):
        cost += cost_of(node)
        if depth > DEPTH_MAX:
            refuse_size(0, f"a filter may be {DEPTH_MAX} deep")
        if number > NODES_MAX:
            refuse_size(0, f"a filter may have {NODES_MAX} parts")
    if cost > COST_MAX:
        refuse_size(0, f"this filter costs {cost:,}, and {COST_MAX:,} are allowed: shorter lists, fewer searches")
    return expression


def cost_of(node: Expression) -> int:
    """What one node costs for one document, without the nodes below it."""
    if isinstance(node, Holds | HasText):
        return SEARCH_COST
    if isinstance(node, OneOf):
        return 1 + (LIST_LENGTH_MAX if isinstance(node.values, Claim) else len(node.values)) // LISTED_PER_COST
    return 0 if isinstance(node, And | Or | Not | Constant) else 1


class Weight(NamedTuple):
    """What a filter costs for any document, in comparisons, and how often it looks through the texts and lists of one:
    that takes the longer the larger the document is."""

    cost: int
    searches: int

    def of(self, size: int) -> int:
        """What it costs for a document of so many bytes."""
        return self.cost + self.searches * size // SEARCHED_PER_COST


def weight_of(expression: Expression) -> Weight:
    """What a filter costs."""
    nodes = [node for node, _ in walk(expression)]
    return Weight(sum(map(cost_of, nodes)), sum(isinstance(node, Holds | HasText) for node in nodes))


def check_path(path: tuple[str, ...], position: int) -> tuple[str, ...]:
    """The path itself when it can be one."""
    if not path or len(path) > PATH_LENGTH_MAX:
        refuse(position, f"a field has 1 to {PATH_LENGTH_MAX} names, with dots between them")
    for name in path:
        if not 0 < len(name) <= NAME_LENGTH_MAX or not all(one.isalnum() or one in NAME_SIGNS for one in name):
            allowed = "".join(sorted(NAME_SIGNS))
            refuse(position, f"the name of a field has 1 to {NAME_LENGTH_MAX} letters, digits or {allowed!r}")
    return path


def check_scalar(value: object, position: int) -> Scalar:
    """The value itself when a filter can compare with it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _check_text(value, position)
    if isinstance(value, int | float):
        # Not math.isfinite of both: a whole number may be too large to be made a float of.
        if value != value or abs(value) > NUMBER_MAX:
            refuse(position, "a number lies between -2^127 and 2^127")
        return value
    refuse(position, f"expected null, a boolean, a number or a text; got {type(value).__name__}")


def check_list(values: list[object], position: int) -> tuple[Scalar, ...]:
    """The values of a list when it can stand in a filter."""
    if len(values) > LIST_LENGTH_MAX:
        refuse_size(position, f"a list in a filter has up to {LIST_LENGTH_MAX:,} values; got {len(values):,}")
    return tuple(check_scalar(value, position) for value in values)


def _check_text(value: str, position: int) -> str:
    if len(value) > LITERAL_LENGTH_MAX:
        refuse_size(position, f"a text in a filter has up to {LITERAL_LENGTH_MAX:,} characters; got {len(value):,}")
    if "\0" in value or any("\ud800" <= one <= "\udfff" for one in value):
        refuse(position, "a text in a filter has no NUL and no half of a surrogate pair")
    return value
