"""Idempotency keys: whose they are, and whether a repeated one comes with the same request. Rules only.

A key that somebody gives has no NUL, so what is added to it here cannot be mistaken for what they chose:

    NUL scope NUL key             over HTTP, for who has a name or is held to some queues
                  key NUL place   for the second and later partitions of one push
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec

from headwater.model.principal import ALL_QUEUES, Principal

_NUL = "\x00"
SCOPE_LENGTH = 32
_scope = re.compile(rf"\x00[0-9a-f]{{{SCOPE_LENGTH}}}\x00")


def scoped_key(principal: Principal, key: str) -> str:
    """A key as its own principal's: by who it is and by what it may touch, so that nobody meets another's.

    This machine's owner, who is whoever opens the file, has the plain keys.
    """
    if not key or (not principal.subject and principal.queues == (ALL_QUEUES,)):
        return key
    return _scoped((principal.subject, sorted(principal.queues)), key)


def scoped_name(principal: Principal, name: str) -> str:
    """A name that is one for a whole database (a stream's, a step's) as that of those who may touch the same queues.

    Who may use all queues has the plain names; who may use some can neither meet those nor learn of them.
    """
    if principal.may_use_all():
        return name
    return _scoped(sorted(principal.queues), name)


def _scoped(about: object, name: str) -> str:
    """A name as that of those whom this is about: always the same, of a length that does not depend on them."""
    return f"{_NUL}{sha256(msgspec.json.encode(about)).hexdigest()[:SCOPE_LENGTH]}{_NUL}{name}"


def plain_key(key: str) -> str:
    """The key as it was given, and with the place of its partition: without its scope."""
    scope = _scope.match(key)
    return key[scope.end() :] if scope else key


def given_key(key: str) -> str:
    """The key as it was given, to show it."""
    return plain_key(key).partition(_NUL)[0]


def whole_key(key: str) -> str:
    """The key of a whole push, for each of its partitions."""
    return key[: len(key) - len(plain_key(key))] + given_key(key)


def lane_key(key: str, place: int) -> str:
    """A key of its own for each partition of a push."""
    return f"{key}{_NUL}{place}" if key and place else key


def report_key(key: str, place: int) -> str:
    """A key for each report that goes with a pop. It crosses the wire like one that was given, so it has no NUL."""
    return sha256(f"{key}{_NUL}report{_NUL}{place}".encode()).hexdigest() if key else ""


def fingerprint(request: msgspec.Struct | Sequence[msgspec.Struct] | Mapping[str, object]) -> str:
    """What tells a request from any other: all of it."""
    return sha256(msgspec.json.encode(request)).hexdigest()
