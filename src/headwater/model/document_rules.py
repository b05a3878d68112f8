"""Access rules: who may read, make, change and delete which documents, by what is known of who asks and by what is in
the document.

A rule fits collections by a pattern and says for each thing that can be done the condition under which it may be, in
the language of filters. Where rules fit a collection, one of them must allow what is done; what none of them speaks of
is not allowed. Collections that no rule fits are open to whoever has the scope, and who has `admin` is held to none.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from hashlib import blake2s
from typing import Literal

import msgspec

RULES_MAX = 1_000

Action = Literal["read", "create", "update", "delete"]
ACTIONS: tuple[Action, ...] = ("read", "create", "update", "delete")


class DocumentRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is allowed in collections whose names fit a pattern (`rooms/*/messages`): a condition for each thing that
    can be done. `"true"` allows it to everybody who has the scope; an empty one does not allow it."""

    pattern: str
    read: str = ""
    create: str = ""
    update: str = ""
    delete: str = ""

    def fits(self, collection: str) -> bool:
        """Whether it speaks of a collection."""
        return fnmatchcase(collection, self.pattern)


class Permit(msgspec.Struct, frozen=True):
    """What the rules of one collection allow to one caller: conditions of which one must hold, and the caller's claims
    as JSON."""

    read: tuple[str, ...]
    create: tuple[str, ...]
    update: tuple[str, ...]
    delete: tuple[str, ...]
    claims: str


def permit_of(rules: Sequence[DocumentRule], collection: str, claims: str) -> Permit | None:
    """What rules allow in a collection; None when none of them speaks of it."""
    fitting = [rule for rule in rules if rule.fits(collection)]
    if not fitting:
        return None

    def of(action: Action) -> tuple[str, ...]:
        return tuple(text for rule in fitting if (text := getattr(rule, action)))

    return Permit(of("read"), of("create"), of("update"), of("delete"), claims)


def digest_of(permit: Permit | None) -> str:
    """What rules allow, in short: for who has to know later whether they allow the same; '' where there are none."""
    return "" if permit is None else blake2s(msgspec.json.encode(permit), digest_size=8).hexdigest()
