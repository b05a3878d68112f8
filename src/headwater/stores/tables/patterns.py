"""Patterns of queue names, as statements take them."""

from collections.abc import Sequence

import msgspec

from headwater.model.own_queues import apart


def as_text(names: Sequence[str]) -> str:
    """A list in one value."""
    return msgspec.json.encode(names).decode()


def as_patterns(patterns: Sequence[str]) -> str:
    """Patterns in one value: those for the queues of everybody, and those for Headwater's own. Without `?` and brackets
    GLOB reads them as we do."""
    return msgspec.json.encode(apart(patterns)).decode()
