"""Changes of documents without what is nobody's business: sampled by document, declared fields removed or hashed.

    change ─ is_sampled: all changes of a document, or none ─► sanitise: both images, and the id ─► a row of a recording

A hash is keyed, so that nobody can try all addresses there are without the key; equal values have equal hashes, and the
values that filters compare with are hashed alike (`hash_values`), so that they hold for the same documents as before.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import msgspec

from headwater.filters.tree import (
    And,
    Constant,
    Equal,
    Expression,
    Holds,
    Not,
    OneOf,
    Or,
    Present,
    Scalar,
    field_of,
    known,
    known_list,
    walk,
)

HASH_BYTES = 16

_encode = msgspec.json.Encoder(order="deterministic").encode


class Sanitising(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of documents. `share` of them are kept; fields are named with dots, `key` is that of the hashes."""

    share: float = 1.0
    hashed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    key: bytes = b""


def recorded_rules(about: Mapping[str, str], key: bytes) -> Sanitising:
    """The rules of a recording, as its manifest has them."""
    hashed, removed = (msgspec.json.decode(about[name], type=tuple[str, ...]) for name in ("hashed", "removed"))
    return Sanitising(share=float(about["share"]), hashed=hashed, removed=removed, key=key)


def about_rules(rules: Sanitising) -> dict[str, str]:
    """The rules as a manifest keeps them: of the key only a mark by which it is known again."""
    return {
        "share": repr(rules.share),
        "hashed": _encode(sorted(rules.hashed)).decode(),
        "removed": _encode(sorted(rules.removed)).decode(),
        "key": hmac.digest(rules.key, b"headwater recording", "sha256")[:8].hex() if rules.hashed else "",
    }


def is_sampled(collection: str, name: str, share: float) -> bool:
    """Whether a document is one of the sample: the same in every run, and with a greater share still."""
    place = int.from_bytes(hashlib.sha256(f"{collection}/{name}".encode()).digest()[:8])
    return place < share * 2**64


def sanitise(document: Mapping[str, Any], rules: Sanitising) -> tuple[dict[str, Any], set[str]]:
    """A document that may be shown, and which of the declared fields it had."""
    met: set[str] = set()
    shown = dict(document)
    for field in rules.removed:
        shown = _within(shown, field, None, field, met)
    for field in rules.hashed:
        shown = _within(shown, field, rules.key, field, met)
    return shown, met


def _within(value: Any, path: str, key: bytes | None, field: str, met: set[str]) -> Any:
    """A value whose field at `path` is hashed, or gone where there is no key. Objects in lists have it, too, and a name
    may itself have dots: what could be meant by the path is meant."""
    if isinstance(value, list):
        return [_within(each, path, key, field, met) for each in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, inner in value.items():
        if name == path:
            met.add(field)
            if key is not None:
                found[name] = hash_value(inner, key)
        elif path.startswith(f"{name}."):
            found[name] = _within(inner, path[len(name) + 1 :], key, field, met)
        else:
            found[name] = inner
    return found


def hash_value(value: Any, key: bytes) -> Any:
    """A value as a text that does not tell it. Nothing stays nothing, and a list a list: filters look into both."""
    if value is None:
        return None
    if isinstance(value, list):
        return [hash_value(each, key) for each in value]
    if isinstance(value, float) and value.is_integer():
        # To a filter they are one number.
        value = int(value)
    return hmac.digest(key, _encode(value), "sha256")[:HASH_BYTES].hex()


def hash_values(expression: Expression, rules: Sanitising) -> Expression:
    """A filter for sanitised documents: what it compares hashed fields with is hashed, too."""
    if isinstance(expression, And | Or):
        return type(expression)(tuple(hash_values(part, rules) for part in expression.parts))
    if isinstance(expression, Not):
        return Not(hash_values(expression.part, rules))
    if not isinstance(expression, Equal | Holds | OneOf) or str(field_of(expression.subject)) not in rules.hashed:
        return expression
    if isinstance(expression, OneOf):
        values: tuple[Scalar, ...] = tuple(hash_value(value, rules.key) for value in known_list(expression.values))
        return OneOf(expression.subject, values)
    return type(expression)(expression.subject, hash_value(known(expression.value), rules.key))


def is_blind(expression: Expression, rules: Sanitising) -> bool:
    """Whether a filter asks what sanitised documents cannot tell: after removed fields, or for more than equality.

    Without the key what a filter compares with is not hashed, and equals nothing that is.
    """
    equality = (Equal, Holds, OneOf, Present) if rules.key else (Present,)
    for node, _ in walk(expression):
        if isinstance(node, And | Or | Not | Constant):
            continue
        field = str(field_of(node.subject))
        above = [name for name in (*rules.removed, *rules.hashed) if field == name or field.startswith(f"{name}.")]
        if any(name in rules.removed or name != field or not isinstance(node, equality) for name in above):
            return True
    return False
