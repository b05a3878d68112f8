"""Access tokens at the door: looked up by their id, compared by their digest."""

from headwater.clock import Timestamp
from headwater.doors.access.verifiers import Verified
from headwater.errors import Unauthenticated
from headwater.model.access_token import PREFIX, judge_token, token_id
from headwater.stores.contract import Store


class TokenVerifier:
    """Judges tokens that `headwater token create` made."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.version = store.access_version

    def fits(self, credential: str) -> bool:
        """Ours begin with a prefix of ours."""
        return credential.startswith(PREFIX)

    async def verify(self, credential: str, now: Timestamp) -> Verified:
        """Whose token it is."""
        named = token_id(credential)
        token = None if named is None else await self._store.access_token(named)
        reason = judge_token(token, credential, now)
        if reason or token is None:
            raise Unauthenticated(reason)
        return Verified(token.principal(), token.expires_at)
