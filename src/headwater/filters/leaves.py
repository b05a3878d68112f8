"""From two sides and an operator to a leaf of the tree: the same for both languages."""

from headwater.filters.tree import (
    Claim,
    Comparison,
    Constant,
    Equal,
    Expression,
    Field,
    HasText,
    Holds,
    Not,
    OneOf,
    Operand,
    Order,
    Scalar,
    StartsWith,
    Subject,
    join,
    refuse,
)
from headwater.filters.tree import Or as AnyOf

List = tuple[Scalar, ...]
Side = Subject | Scalar | List

_mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
COMPARISONS = frozenset(_mirrored)


def compare(left: Side, operator: str, right: Side, position: int) -> Expression:
    """`left operator right`, for the operators == != < <= > >=."""
    if not isinstance(left, Field | Claim) or (isinstance(left, Claim) and isinstance(right, Field)):
        left, right, operator = right, left, _mirrored[operator]
    if not isinstance(left, Field | Claim):
        refuse(position, "one side of a comparison is a field, or a claim of who asks")
    if isinstance(right, Field):
        refuse(position, "fields compare with values and claims, not with other fields")
    if isinstance(right, tuple):
        refuse(position, "a list stands on the right of `in`")
    if operator == "==":
        return Equal(left, right)
    if operator == "!=":
        return Not(Equal(left, right))
    if right is None or isinstance(right, bool):
        refuse(position, f"`{operator}` compares numbers or texts")
    return Order(left, Comparison(operator), right)


def is_in(left: Side, right: Side, position: int) -> Expression:
    """`left in right`: a field among the values of a list, or a value in a field that is a list."""
    if isinstance(right, tuple):
        if not isinstance(left, Field | Claim):
            refuse(position, "a field or a claim stands on the left of `in [...]`")
        return OneOf(left, right)
    if isinstance(left, Field):
        if not isinstance(right, Claim):
            refuse(position, "a list or a claim stands on the right of `field in`")
        return OneOf(left, right)
    if not isinstance(right, Field | Claim) or isinstance(left, tuple):
        refuse(position, "`in` has a list, a field or a claim on its right")
    return Holds(right, left)


def contains(subject: Subject, value: Side, position: int) -> Expression:
    """A list that holds the value, or a text of which it is a part."""
    operand = _operand(value, position)
    if isinstance(operand, str | Claim):
        return join(AnyOf, [HasText(subject, operand), Holds(subject, operand)])
    return Holds(subject, operand)


def starts_with(subject: Subject, value: Side, position: int) -> Expression:
    """A text that begins so."""
    operand = _operand(value, position)
    if not isinstance(operand, str | Claim):
        refuse(position, "startsWith takes a text")
    return StartsWith(subject, operand)


def _operand(value: Side, position: int) -> Operand:
    if isinstance(value, Field | tuple):
        refuse(position, "expected a value or a claim")
    return value


def as_side(found: Side | Expression, position: int) -> Side:
    """What can be compared: anything but a condition."""
    if found is not None and not isinstance(found, bool | int | float | str | tuple | Field | Claim):
        refuse(position, "expected a field, a claim or a value here; put conditions in parentheses")
    return found


def as_condition(side: Side | Expression, position: int) -> Expression:
    """What stands alone: a field or a claim that has to be true, or a constant."""
    if isinstance(side, bool):
        return Constant(side)
    if isinstance(side, Field | Claim):
        return Equal(side, True)
    if side is None or isinstance(side, int | float | str | tuple):
        refuse(position, "expected a condition, not a value")
    return side
