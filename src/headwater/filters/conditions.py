"""The JSON form of filters: a list of conditions `{field, op, value}`, all of which have to hold."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from headwater.filters.leaves import COMPARISONS, compare
from headwater.filters.tree import (
    NAME_LENGTH_MAX,
    NODES_MAX,
    PATH_LENGTH_MAX,
    And,
    Expression,
    Field,
    Holds,
    OneOf,
    check_list,
    check_path,
    check_scalar,
    check_size,
    join,
    refuse,
    refuse_size,
)
from headwater.model.document import Condition

OPERATORS = ("==", "!=", ">", ">=", "<", "<=", "in", "contains")
FIELDS_KNOWN_MAX = 1_024
_keys = frozenset({"field", "op", "value"})


def parse_conditions(conditions: Sequence[object]) -> Expression:
    """The expression that a list of conditions means; an empty list holds for every document.

    >>> parse_conditions([{"field": "timestamp", "op": ">", "value": 1678888888000}])

    Dots in `field` lead into objects. Raises InvalidFilter or FilterTooLarge, with the number of the condition.
    """
    if len(conditions) > NODES_MAX:
        refuse_size(NODES_MAX, f"a filter may have {NODES_MAX} conditions; got {len(conditions):,}")
    parts = [_condition(one, number) for number, one in enumerate(conditions)]
    # One is never too large.
    return parts[0] if len(parts) == 1 else check_size(join(And, parts))


def _condition(condition: object, number: int) -> Expression:
    operator: object
    if type(condition) is Condition:
        field, operator, value = _field(condition.field, number), condition.op, condition.value
    elif not isinstance(condition, Mapping) or condition.keys() - _keys or "value" not in condition:
        refuse(number, 'a condition is {"field": …, "op": …, "value": …}')
    else:
        field, operator, value = _field(condition.get("field"), number), condition.get("op"), condition["value"]
    if operator == "in":
        if not isinstance(value, list | tuple):
            refuse(number, "`in` takes a list of values")
        return OneOf(field, check_list(list(value), number))
    if operator == "contains":
        return Holds(field, check_scalar(value, number))
    if not isinstance(operator, str) or operator not in COMPARISONS:
        refuse(number, f"`op` is one of {' '.join(OPERATORS)}; got {str(operator)[:20]!r}")
    return compare(field, operator, check_scalar(value, number), number)


def _field(name: object, number: int) -> Field:
    if not isinstance(name, str) or len(name) > PATH_LENGTH_MAX * (NAME_LENGTH_MAX + 1):
        refuse(number, "`field` is the name of a field, with dots into objects")
    return _named(name, number)


@lru_cache(FIELDS_KNOWN_MAX)
def _named(name: str, number: int) -> Field:
    """A name is looked at once: the same few are asked for again and again."""
    return Field(check_path(tuple(name.split(".")), number))
