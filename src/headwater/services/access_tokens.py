"""Access tokens of a database: made, listed, revoked. Showing one at a door is the door's business."""

import secrets
from collections.abc import Iterable

from headwater.clock import SECOND, Clock, Timestamp
from headwater.errors import AccessTokenMissing, InvalidOption
from headwater.log.committer import Committer
from headwater.log.operations import AddAccessToken, RevokeAccessToken
from headwater.model.access_token import ID_BYTES, SECRET_BYTES, AccessToken, digest_of, token_id, token_text
from headwater.model.names import check_name
from headwater.model.principal import ALL_QUEUES, PATTERNS_MAX, Scope, check_pattern
from headwater.stores.contract import Store
from headwater.stores.questions import ListAccessTokens

LIFETIME_SECONDS_MAX = 100 * 366 * 86_400


class AccessTokens:
    """The access tokens of one database.

    >>> token, text = await hw.access_tokens().create("billing", ["consume"], queues=["orders.*"])
    >>> await hw.access_tokens().revoke(token.id)
    """

    def __init__(self, store: Store, committer: Committer, clock: Clock, database: str) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._database = check_name("database", database)

    async def create(
        self,
        name: str,
        scopes: Iterable[Scope | str],
        *,
        queues: Iterable[str] = (ALL_QUEUES,),
        lifetime_seconds: float | None = None,
    ) -> tuple[AccessToken, str]:
        """A new token, and its text: kept nowhere, so this is the only time that it can be had."""
        text = token_text(secrets.token_bytes(ID_BYTES), secrets.token_bytes(SECRET_BYTES))
        operation = AddAccessToken(
            database=self._database,
            id=token_id(text) or "",
            digest=digest_of(text),
            name=check_name("token", name),
            scopes=check_scopes(scopes),
            queues=check_patterns(queues),
            expires_at=self._expiry(lifetime_seconds),
        )
        added = (await self._committer.submit(operation)).result
        token = AccessToken(
            id=operation.id,
            database=operation.database,
            name=operation.name,
            digest=operation.digest,
            scopes=operation.scopes,
            queues=operation.queues,
            created_at=added.created_at,
            expires_at=operation.expires_at,
        )
        return token, text

    async def list(self) -> list[AccessToken]:
        """All tokens, also those that are worth nothing any more, oldest first."""
        return await self._store.ask(ListAccessTokens(self._database))

    async def revoke(self, token: str) -> None:
        """Make the token with this id worthless, in every process. Raises when there is none to revoke."""
        operation = RevokeAccessToken(database=self._database, id=token)
        if not (await self._committer.submit(operation)).result.count:
            raise AccessTokenMissing(f"there is no access token {token[:80]!r} in {self._database} to revoke")

    def _expiry(self, lifetime_seconds: float | None) -> Timestamp | None:
        if lifetime_seconds is None:
            return None
        if not 0 < lifetime_seconds <= LIFETIME_SECONDS_MAX:
            raise InvalidOption(f"a token's lifetime is above 0 and at most 100 years; got {lifetime_seconds:g} s")
        return Timestamp(self._clock.now() + round(lifetime_seconds * SECOND))


def check_scopes(scopes: Iterable[Scope | str]) -> tuple[Scope, ...]:
    """The scopes in their own order, each once."""
    chosen = set()
    for scope in scopes:
        try:
            chosen.add(Scope(scope))
        except ValueError:
            known = ", ".join(known.value for known in Scope)
            raise InvalidOption(f"there is no scope {str(scope)[:80]!r}; there are {known}") from None
    if not chosen:
        raise InvalidOption("a token needs a scope at least")
    return tuple(scope for scope in Scope if scope in chosen)


def check_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """The queue patterns, each once."""
    checked = tuple(dict.fromkeys(check_pattern(pattern) for pattern in patterns))
    if not 1 <= len(checked) <= PATTERNS_MAX:
        raise InvalidOption(f"a token has 1 to {PATTERNS_MAX} queue patterns; got {len(checked)}")
    return checked
