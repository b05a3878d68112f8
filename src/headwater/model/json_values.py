"""JSON values of users: whether two are the same, and where one has a text that no UTF-8 can write.

To Python `True` is `1`; to JSON, to JavaScript and to filters it is not. So they are never compared with `==` alone.
"""

import json
import re

# What may be half of a surrogate pair, as JSON spells it, and what is one once the pairs are put together.
_spelled_half = re.compile(rb"\\u[dD][89a-fA-F]")
_half = re.compile("[\ud800-\udfff]")


def is_same_json(one: object, other: object) -> bool:
    """Whether two values are the same: `1` is `1.0`, `true` is not `1`, and the order of names in an object does not
    matter.

    >>> is_same_json({"done": False}, {"done": 0})
    False
    """
    # What differs to Python differs, and that is found without a step of Python for each value.
    return one == other and _has_same_truths(one, other)


def _has_same_truths(one: object, other: object) -> bool:
    """Of values that are equal to Python: whether the same of them are true or false, and no numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_has_same_truths(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return all(map(_has_same_truths, one, other))
    return isinstance(one, bool) is isinstance(other, bool)


def why_unread(text: bytes, error: Exception) -> str:
    """Why JSON could not be read. Of half a surrogate pair the decoder says that something is missing at the end."""
    place = half_pair_place(text)
    return f"the text at {place:.500} has half a surrogate pair, which no UTF-8 can write" if place else str(error)


def half_pair_place(text: bytes) -> str:
    """Where JSON has a text with half a surrogate pair, as in `$.rows[1].title`; '' where it has none."""
    if _spelled_half.search(text) is None:
        return ""
    try:
        waiting = [("$", json.loads(text))]
    except (ValueError, RecursionError):
        return ""
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, str) and _half.search(value):
            return place
        if isinstance(value, dict):
            if any(map(_half.search, value)):
                return place
            waiting += [(f"{place}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{place}[{number}]", inner) for number, inner in enumerate(value)]
    return ""
