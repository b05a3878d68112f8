"""All that a query says about which documents are meant: its conditions and its text, for who asks."""

from collections.abc import Sequence

import msgspec

from headwater.filters.cel import parse
from headwater.filters.claims import bind
from headwater.filters.conditions import parse_conditions
from headwater.filters.tree import And, Expression, join
from headwater.model.document import Condition


def whole_filter(conditions: Sequence[Condition], text: str, claims: str = "") -> Expression:
    """The expression for which all conditions and the text hold. `claims` is what is known of who asks, as JSON: with
    it, what the text says of them is filled in.

    >>> whole_filter([Condition("state", "==", "open")], "owner == auth.sub", '{"sub": "ada"}')
    """
    parts = [parse_conditions(conditions)]
    if text:
        parts.append(parse(text))
    whole = join(And, parts)
    return bind(whole, msgspec.json.decode(claims)) if claims else whole
