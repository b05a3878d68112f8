"""Claims: what a filter or an access rule says of who asks, worked out once for each caller.

A claim that is missing is null where it is compared with a value (`auth.role == null`). Compared with a field it must
not meet documents that lack the field: neither the comparison nor its opposite holds then. In the words of logic such
a comparison is unknown, and what is not certain is not allowed.
"""

from collections.abc import Mapping

import msgspec

from headwater.errors import FilterTooLarge, InvalidFilter
from headwater.filters.python import holds_for, present, value_at
from headwater.filters.tree import (
    NEVER,
    And,
    Claim,
    Constant,
    Expression,
    Field,
    HasText,
    Leaf,
    Not,
    OneOf,
    Or,
    Order,
    Present,
    StartsWith,
    check_list,
    check_scalar,
    check_size,
    join,
    opposite,
    walk,
)


def has_claims(expression: Expression) -> bool:
    """Whether it says anything of who asks."""
    leaves = (node for node, _ in walk(expression) if not isinstance(node, And | Or | Not | Constant))
    return any(isinstance(leaf.subject, Claim) or isinstance(_operand(leaf), Claim) for leaf in leaves)


def bind(expression: Expression, claims: Mapping[str, object]) -> Expression:
    """The same filter for one caller: without claims, so that it can be compiled.

    >>> bind(parse('owner == auth.sub'), {"sub": "ada"})
    """
    return check_size(_bound(expression, claims, negated=False))


def _bound(expression: Expression, claims: Mapping[str, object], *, negated: bool) -> Expression:
    if isinstance(expression, Not):
        return _bound(expression.part, claims, negated=not negated)
    if isinstance(expression, And | Or):
        kind = And if isinstance(expression, And) is not negated else Or
        return join(kind, [_bound(part, claims, negated=negated) for part in expression.parts])
    if isinstance(expression, Constant):
        return Constant(expression.value is not negated)
    found = _leaf(expression, claims)
    if found is None:
        return NEVER
    return opposite(found) if negated else found


def _leaf(leaf: Leaf, claims: Mapping[str, object]) -> Expression | None:
    """A leaf with its claims filled in; None when nobody can tell whether it holds."""
    known: Leaf | None = leaf
    if isinstance(_operand(leaf), Claim):
        known = _filled(leaf, claims)
    if known is None or isinstance(known.subject, Field):
        return known
    if isinstance(known, Present):
        return Constant(present(claims, known.subject.path))
    value = value_at(claims, known.subject.path)
    if not _can_be_compared(value):
        return None
    # A claim is looked at as a field of a document would be.
    return Constant(holds_for(msgspec.structs.replace(known, subject=Field(("claim",))), {"claim": value}))


def _can_be_compared(value: object) -> bool:
    """Whether a claim is within the bounds of what filters compare with; lists and objects are looked into alone."""
    if isinstance(value, list | Mapping):
        return True
    try:
        check_scalar(value, 0)
    except (InvalidFilter, FilterTooLarge):
        return False
    return True


def _operand(leaf: Leaf) -> object:
    if isinstance(leaf, Present):
        return None
    return leaf.values if isinstance(leaf, OneOf) else leaf.value


def _filled(leaf: Leaf, claims: Mapping[str, object]) -> Leaf | None:
    """A leaf with the value of the claim that it compares with; None when there is none that would do."""
    operand = _operand(leaf)
    assert isinstance(operand, Claim)
    value = value_at(claims, operand.path)
    if value is None:
        return None
    try:
        if isinstance(leaf, OneOf):
            return msgspec.structs.replace(leaf, values=check_list(value, 0)) if isinstance(value, list) else None
        scalar = check_scalar(value, 0)
    except (InvalidFilter, FilterTooLarge):
        return None
    if isinstance(leaf, Order) and isinstance(scalar, bool):
        return None
    if isinstance(leaf, HasText | StartsWith) and not isinstance(scalar, str):
        return None
    return msgspec.structs.replace(leaf, value=scalar)
