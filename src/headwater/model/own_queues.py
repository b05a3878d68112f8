"""Queues under `headwater/` are Headwater's own: what is told there belongs to somebody, and only Headwater tells it.

A pattern of an access token never means one of them by its letters: who may read them is decided by `Principal`, for
every way there is, and nobody may write to them (`check_not_own`). Lists are cut by patterns in the store, so the
patterns that a principal asks with say both: those for the queues of everybody, a mark, and those for Headwater's own.
"""

from collections.abc import Sequence

from headwater.errors import InvalidName
from headwater.model.names import SYSTEM_PREFIX

# No name and no pattern has an exclamation mark.
OWN_APART = f"!{SYSTEM_PREFIX}*"


def is_own(queue: str) -> bool:
    """Whether a queue is Headwater's own."""
    return queue.startswith(SYSTEM_PREFIX)


def check_not_own(queue: str, instead: str) -> None:
    """Raises when a queue is Headwater's own; `instead` says what to do."""
    if is_own(queue):
        raise InvalidName(f"queues under {SYSTEM_PREFIX} are Headwater's own; {instead}")


def apart(patterns: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The patterns for the queues of everybody, and those for Headwater's own: the same where nothing sets them apart.

    >>> apart(("orders.*", OWN_APART, "headwater/documents/*"))
    (('orders.*',), ('headwater/documents/*',))
    """
    if OWN_APART not in patterns:
        return patterns, patterns
    place = patterns.index(OWN_APART)
    return patterns[:place], patterns[place + 1 :]


def patterns_within(pattern: str, prefix: str) -> list[str]:
    """Patterns that begin with a prefix and fit exactly those names behind it that a pattern fits.

    >>> patterns_within("doc*", "documents/")
    ['documents/*']
    """
    places = _closed({0}, pattern)
    for letter in prefix:
        stayed = {place for place in places if pattern[place : place + 1] == "*"}
        moved = {place + 1 for place in places if pattern[place : place + 1] == letter}
        places = _closed(stayed | moved, pattern)
    return [prefix + pattern[place:] for place in sorted(places)]


def _closed(places: set[int], pattern: str) -> set[int]:
    """The places in a pattern that are reached without a letter more: a star may stand for nothing."""
    found: set[int] = set()
    for place in places:
        found.add(place)
        while pattern[place : place + 1] == "*":
            place += 1
            found.add(place)
    return found
