"""Access rules of documents at the door: they go with what is known of who asks.

Whoever has `admin` is held to none, and gets none.
"""

import msgspec

from headwater.log.tail import Tail
from headwater.model.principal import Principal, Scope
from headwater.stores.contract import Store
from headwater.stores.document_questions import ListDocumentRules


class RuleBook:
    """The rules of every database, as the store has them."""

    def __init__(self, store: Store, tail: Tail) -> None:
        self._store = store
        self._tail = tail
        self._is_following = False

    def version(self) -> int:
        """Another number whenever rules or tokens may have changed."""
        return self._store.access_version()

    async def held(self, principal: Principal) -> Principal:
        """Somebody with the rules that they are held to."""
        if Scope.ADMIN in principal.scopes:
            return principal
        if not self._is_following:
            # The store's version tells of changes elsewhere only while this process follows the log.
            await self._tail.listen()
            self._is_following = True
        rules = await self._store.ask(ListDocumentRules(principal.database))
        return msgspec.structs.replace(principal, rules=tuple(rules)) if rules else principal
