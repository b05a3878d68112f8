"""JSON web tokens, read strictly: what stands in one, and whether its claims hold. Signatures are checked elsewhere.

Everything that could be read in two ways is refused: base64 with padding, blanks or spare bits, members that come
twice, numbers that are none. So what the signature covers and what is judged here are the same.
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from headwater.errors import InvalidName, Unauthenticated
from headwater.model.names import DATABASE_DEFAULT, check_name
from headwater.model.principal import ALL_QUEUES, PATTERNS_MAX, Principal, check_pattern, scopes_of

TOKEN_BYTES_MAX = 8 * 1_024
TEXT_LENGTH_MAX = 256
# The year 9999: nobody means a later one, and what is computed with it must stay a number.
TIME_MAX = 253_402_300_800
TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})
# Members of the header that change what the rest means. None of them is understood here.
CHANGING = ("crit", "b64", "zip", "enc", "cty")

Kind = TypeVar("Kind", bound=msgspec.Struct)

_segment = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


class Header(msgspec.Struct, frozen=True):
    """What a token says of its signature. `kid` names a key, and is nothing but a name."""

    alg: str
    kid: str | UnsetType = UNSET
    typ: str | UnsetType = UNSET


class Claims(msgspec.Struct, frozen=True):
    """The claims that every token is judged by. Times are seconds since 1970."""

    exp: float
    nbf: float | UnsetType = UNSET
    iat: float | UnsetType = UNSET
    aud: str | list[str] | UnsetType = UNSET
    iss: str | UnsetType = UNSET
    sub: str | UnsetType = UNSET


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What this server expects of claims, and which of them say what somebody may do."""

    audience: tuple[str, ...] = ()
    issuer: str = ""
    leeway_seconds: float = 10.0
    role_claims: tuple[str, ...] = ("role", "roles")
    database_claim: str = "database"
    queues_claim: str = "queues"


class Unverified(msgspec.Struct, frozen=True):
    """A token taken apart. Nothing in it is to be believed before its signature was checked."""

    header: Header
    claims: Claims
    members: dict[str, object]


def parse_token(text: str) -> Unverified:
    """The token, taken apart. Raises Unauthenticated with the reason when it is not exactly as it must be."""
    if len(text) > TOKEN_BYTES_MAX:
        raise Unauthenticated("the token is too long")
    parts = text.split(".")
    if len(parts) != 3:
        raise Unauthenticated("the token does not have three parts")
    header, members, _ = _object(parts[0]), _object(parts[1]), _bytes(parts[2])
    changing = [name for name in CHANGING if name in header]
    if changing:
        raise Unauthenticated(f"the header has {changing[0]}, which is not understood here")
    return Unverified(_header(header), _convert(members, Claims), members)


def _header(members: dict[str, object]) -> Header:
    header = _convert(members, Header)
    if isinstance(header.typ, str) and header.typ.lower() not in TYPES:
        raise Unauthenticated("the token is of another type")
    return header


def _convert(members: dict[str, object], kind: type[Kind]) -> Kind:
    try:
        return msgspec.convert(members, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise Unauthenticated(f"the token's {kind.__name__.lower()}: {error}") from None


def _object(part: str) -> dict[str, object]:
    try:
        value = json.loads(_bytes(part).decode(), object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Unauthenticated(f"the token is not JSON: {type(error).__name__}") from None
    if not isinstance(value, dict):
        raise Unauthenticated("the token is not made of JSON objects")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Unauthenticated("the token says something twice")
    return members


def _no_number(name: str) -> Any:
    raise Unauthenticated(f"the token has {name}, which is no JSON")


def _bytes(part: str) -> bytes:
    """The bytes of a part, which has exactly one spelling."""
    if not _segment.fullmatch(part) or len(part) % 4 == 1:
        raise Unauthenticated("the token is not base64url")
    data = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    if urlsafe_b64encode(data).rstrip(b"=") != part.encode():
        raise Unauthenticated("the token is not base64url")
    return data


def judge_claims(claims: Claims, expected: Expected, now: float) -> str:
    """What speaks against the claims at a time; '' when nothing does."""
    times = [value for value in (claims.exp, claims.nbf, claims.iat) if not isinstance(value, UnsetType)]
    if not all(abs(value) <= TIME_MAX for value in times):
        return "a time is out of range"
    leeway = expected.leeway_seconds
    if now >= claims.exp + leeway:
        return "the token has expired"
    if not isinstance(claims.nbf, UnsetType) and now < claims.nbf - leeway:
        return "the token is not valid yet"
    if not isinstance(claims.iat, UnsetType) and now < claims.iat - leeway:
        return "the token was issued in the future"
    if not _is_for(claims.aud, expected.audience):
        return "the token is for another audience"
    if expected.issuer and claims.iss != expected.issuer:
        return "the token is from another issuer"
    return ""


def _is_for(aud: str | list[str] | UnsetType, audience: tuple[str, ...]) -> bool:
    """A token that names an audience is for nobody else, also where none was configured."""
    if isinstance(aud, UnsetType):
        return not audience
    return bool(set(audience) & set([aud] if isinstance(aud, str) else aud))


def principal_of(token: Unverified, expected: Expected) -> Principal:
    """Who shows the token. Raises Unauthenticated when it says so in a way that cannot be meant."""
    sub = token.claims.sub
    subject = "" if isinstance(sub, UnsetType) else sub
    if len(subject) > TEXT_LENGTH_MAX or not subject.isprintable():
        raise Unauthenticated("the subject is too long or has letters that a subject may not have")
    roles = [role for claim in expected.role_claims for role in _roles(token, claim)]
    database = _member(token.members, expected.database_claim)
    queues = _member(token.members, expected.queues_claim)
    try:
        return Principal(
            # One that is there and null says nothing that could be meant: it must not open more than any other.
            database=DATABASE_DEFAULT if database is UNSET else check_name("database", database),
            subject=subject,
            scopes=scopes_of(roles),
            queues=(ALL_QUEUES,) if queues is UNSET else _patterns(_texts(expected.queues_claim, queues)),
            claims=msgspec.json.encode(token.members).decode(),
        )
    except InvalidName as error:
        raise Unauthenticated(str(error)) from None


def _roles(token: Unverified, claim: str) -> list[str]:
    """The roles of one claim; without any, nothing is allowed."""
    found = _member(token.members, claim)
    return [] if found is UNSET or found is None else _texts(claim, found)


def _patterns(texts: list[str]) -> tuple[str, ...]:
    if len(texts) > PATTERNS_MAX:
        raise Unauthenticated(f"a token has at most {PATTERNS_MAX} queue patterns")
    return tuple(check_pattern(text) for text in texts)


def _member(members: dict[str, object], name: str) -> object:
    """A claim by its name, or by the path to it: `realm_access.roles`. UNSET when it is not there."""
    if name in members:
        return members[name]
    value: object = members
    for step in name.split("."):
        value = value.get(step, UNSET) if isinstance(value, dict) else UNSET
    return value


def _texts(name: str, value: object) -> list[str]:
    """A claim that is a list of texts, or one text with blanks between."""
    texts = value.split() if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise Unauthenticated(f"the claim {name} must be a text or a list of texts")
    return texts
