"""Patterns of queue names, as statements take them."""

from collections.abc import Sequence

import msgspec


def as_text(patterns: Sequence[str]) -> str:
    """A list in one value. Without `?` and brackets GLOB reads them as we do."""
    return msgspec.json.encode(patterns).decode()
