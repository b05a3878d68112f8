"""What finds out whose a credential is. Each kind of credential has a verifier; the reception asks the one it fits."""

from typing import Protocol

import msgspec

from headwater.clock import Timestamp
from headwater.model.principal import Principal


class Verified(msgspec.Struct, frozen=True, gc=False):
    """Who it is, and until when that holds at the longest; None is for good."""

    principal: Principal
    until: Timestamp | None


class Verifier(Protocol):
    """Judges credentials of one kind."""

    def fits(self, credential: str) -> bool:
        """Whether a credential looks like one of this kind."""
        ...

    def version(self) -> int:
        """A number that changes when what was verified before may be so no longer. Asked with every request."""
        ...

    async def verify(self, credential: str, now: Timestamp) -> Verified:
        """Whose it is. Raises Unauthenticated, with the reason for our own log, when it is not good."""
        ...
