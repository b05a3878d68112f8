"""Changes as records can hold them.

A database may keep JSON that no record can: a text in it with half a surrogate pair, which no UTF-8 can write, or more
levels than a payload may have. Such a value is told as its text, and all others as they are.
"""

from typing import Any

import msgspec

from headwater.capture.contract import Change, Row
from headwater.model.record import DEPTH_MAX, can_be_held

# The change itself, and the row that the value is in.
LEVELS_AROUND = 2


def held(change: Change) -> Change:
    """The change, with those values as texts that a record cannot hold."""
    rows = {name: _held_row(getattr(change, name)) for name in ("key", "before", "after")}
    return msgspec.structs.replace(change, **rows)


def _held_row(row: Row | None) -> Row | None:
    return None if row is None else {name: _held(value, DEPTH_MAX - LEVELS_AROUND) for name, value in row.items()}


def _held(value: Any, levels: int) -> Any:
    """Of an array each member for itself."""
    if isinstance(value, list) and levels > 0:
        return [_held(member, levels - 1) for member in value]
    text = msgspec.json.encode(value)
    return value if can_be_held(text, levels) else text.decode()
