"""Whether access rules allow something: their conditions, bound to who asks, over the document before and after.

In the condition of a write, plain fields are those of the document as it was and as it becomes, and must hold for each
of the two that there is; `before` and `after` name one of them alone: `before.state == "open" && after.by == auth.sub`.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from headwater.filters.cel import parse
from headwater.filters.claims import bind
from headwater.filters.python import Predicate, predicate
from headwater.filters.tree import NEVER, And, Expression, Or, check_size, join
from headwater.model.document_rules import Action, Permit

PERMITS_KNOWN_MAX = 4_096

Image = Mapping[str, Any] | None


def readable(permit: Permit | None, expression: Expression) -> Expression:
    """A filter, and that its documents may be read."""
    return expression if permit is None else check_size(join(And, [_allowed(permit.read, permit.claims), expression]))


def may_read(permit: Permit | None, document: Mapping[str, Any]) -> bool:
    """Whether a document may be read."""
    return permit is None or _predicate(permit.read, permit.claims)(document)


def reads_nothing(permit: Permit | None) -> bool:
    """Whether no document at all may be read."""
    return permit is not None and _allowed(permit.read, permit.claims) == NEVER


def may_write(permit: Permit | None, action: Action, before: Image, after: Image) -> bool:
    """Whether a write is allowed: `before` is the document as it was, `after` as it becomes."""
    if permit is None:
        return True
    holds = _predicate(getattr(permit, action), permit.claims)
    both = {"before": before, "after": after}
    return all(holds({**image, **both}) for image in (before, after) if image is not None)


@lru_cache(PERMITS_KNOWN_MAX)
def _allowed(conditions: tuple[str, ...], claims: str) -> Expression:
    known = msgspec.json.decode(claims) if claims else {}
    return check_size(join(Or, [bind(parse(text), known) for text in conditions]))


@lru_cache(PERMITS_KNOWN_MAX)
def _predicate(conditions: tuple[str, ...], claims: str) -> Predicate:
    return predicate(_allowed(conditions, claims))
