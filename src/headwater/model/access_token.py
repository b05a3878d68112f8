"""An access token: what it looks like, what is kept of it, and whether one that is shown is good. Rules only.

    hw_3f9a2c1d77b0_8f2c…e1        shown once, when it is made
       └ id: names it ┘ └ 256 random bits

The store keeps the id, what it allows, and a SHA-256 of the whole text. A slow hash would protect words that people
choose; 256 random bits cannot be guessed however quick the hash is, and it is computed with every new connection.
"""

import hmac
import re
from hashlib import sha256

import msgspec

from headwater.clock import Timestamp
from headwater.model.principal import Principal, Scope

PREFIX = "hw_"
ID_BYTES = 6
SECRET_BYTES = 32

_form = re.compile(rf"{PREFIX}([0-9a-f]{{{2 * ID_BYTES}}})_[0-9a-f]{{{2 * SECRET_BYTES}}}", re.ASCII)


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a token."""

    id: str
    database: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...]
    created_at: Timestamp
    expires_at: Timestamp | None = None
    revoked_at: Timestamp | None = None

    def __repr__(self) -> str:
        return f"AccessToken({self.id!r}, {self.name!r}, database={self.database!r})"

    def principal(self) -> Principal:
        """Who shows it."""
        return Principal(
            database=self.database, subject=self.name, scopes=frozenset(self.scopes), queues=tuple(self.queues)
        )


def token_text(id_part: bytes, secret: bytes) -> str:
    """The text of a token, from random bytes."""
    return f"{PREFIX}{id_part.hex()}_{secret.hex()}"


def token_id(text: str) -> str | None:
    """The id in the text of a token; None when that is no token of ours."""
    found = _form.fullmatch(text)
    return found[1] if found else None


def digest_of(text: str) -> str:
    """What the store keeps instead of the text."""
    return sha256(text.encode()).hexdigest()


# Compared with where there is no such token, so that it takes as long as where there is one.
_no_digest = digest_of("")


def judge_token(token: AccessToken | None, text: str, now: Timestamp) -> str:
    """Why a token that was shown is not good; '' when it is."""
    is_same = hmac.compare_digest(token.digest if token else _no_digest, digest_of(text))
    if token is None or not is_same:
        return "no such token"
    if token.revoked_at is not None:
        return "the token is revoked"
    if token.expires_at is not None and now >= token.expires_at:
        return "the token has expired"
    return ""
