"""Access tokens at the door: looked up by their id, compared by their digest.

The store's version tells of changes elsewhere only while this process follows the log, so the first look at a token
makes it do so.
"""

from headwater.clock import Timestamp
from headwater.doors.access.verifiers import Verified
from headwater.errors import Unauthenticated
from headwater.log.tail import Tail
from headwater.model.access_token import PREFIX, judge_token, token_id
from headwater.stores.contract import Store
from headwater.stores.questions import FindAccessToken


class TokenVerifier:
    """Judges tokens that `headwater token create` made."""

    def __init__(self, store: Store, tail: Tail) -> None:
        self._store = store
        self._tail = tail
        self._is_following = False
        self.version = store.access_version

    def fits(self, credential: str) -> bool:
        """Ours begin with a prefix of ours."""
        return credential.startswith(PREFIX)

    async def verify(self, credential: str, now: Timestamp) -> Verified:
        """Whose token it is."""
        if not self._is_following:
            await self._tail.listen()
            self._is_following = True
        named = token_id(credential)
        token = None if named is None else await self._store.ask(FindAccessToken(named))
        reason = judge_token(token, credential, now)
        if reason or token is None:
            raise Unauthenticated(reason)
        return Verified(token.principal(), token.expires_at)
