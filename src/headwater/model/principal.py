"""Who asks, and what they may do: the rules alone. A door finds out who it is, a route says what it needs."""

from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from headwater.model.names import DATABASE_DEFAULT


class Scope(StrEnum):
    """What may be allowed; `admin` includes all the others but `jobs:submit`, which runs code."""

    PUBLISH = "publish"
    CONSUME = "consume"
    SUBSCRIBE = "subscribe"
    METRICS = "metrics"
    SUBMIT_JOBS = "jobs:submit"
    ADMIN = "admin"


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who is known: the database (tenant) that is theirs, what they may do, and to which queues.

    `queues` are patterns with `*`, as in `orders.*`. `subject` is kept with what they push, '' for nobody.
    """

    database: str = DATABASE_DEFAULT
    subject: str = ""
    scopes: frozenset[Scope] = frozenset()
    queues: tuple[str, ...] = ("*",)

    def may(self, scope: Scope) -> bool:
        """Whether they have a scope, for some queue at least."""
        return scope in self.scopes or (Scope.ADMIN in self.scopes and scope is not Scope.SUBMIT_JOBS)

    def may_use(self, queue: str) -> bool:
        """Whether a queue is among theirs."""
        return any(fnmatchcase(queue, pattern) for pattern in self.queues)


# On loopback without authentication everybody is this machine's owner.
OWNER = Principal(scopes=frozenset(Scope) - {Scope.SUBMIT_JOBS})
