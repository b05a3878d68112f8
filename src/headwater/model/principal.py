"""Who asks, and what they may do: the rules alone. A door finds out who it is, a route says what it needs."""

import re
from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from hashlib import blake2s

import msgspec

from headwater.errors import InvalidName, NotAllowed, QueueMissing
from headwater.model.document import ACCESS_PREFIX, collection_of
from headwater.model.document_rules import DocumentRule, Permit, permit_of
from headwater.model.names import DATABASE_DEFAULT, NAME_LENGTH_MAX, SYSTEM_PREFIX
from headwater.model.own_queues import OWN_APART, is_own, patterns_within

ALL_QUEUES = "*"
PATTERNS_MAX = 100

_pattern = re.compile(r"[A-Za-z0-9._:/*-]{1,256}")


class Scope(StrEnum):
    """What may be allowed. `consume` includes `subscribe`: who may take messages may look at them.

    `admin` includes all the others but `jobs:submit`, which runs code, and `operator`, which is about the whole server:
    what its processes do for all databases together.
    """

    PUBLISH = "publish"
    CONSUME = "consume"
    SUBSCRIBE = "subscribe"
    METRICS = "metrics"
    SUBMIT_JOBS = "jobs:submit"
    READ_DOCUMENTS = "documents:read"
    CREATE_DOCUMENTS = "documents:create"
    UPDATE_DOCUMENTS = "documents:update"
    DELETE_DOCUMENTS = "documents:delete"
    OPERATOR = "operator"
    ADMIN = "admin"


# What an administrator of one database does not have by that.
NOT_BY_ADMIN = frozenset({Scope.SUBMIT_JOBS, Scope.OPERATOR})


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who is known: the database (tenant) that is theirs, what they may do, and to which queues.

    `queues` are patterns with `*`, as in `orders.*`. `subject` is kept with what they push, '' for nobody. `claims` is
    what else their credential says of them, as JSON, and `rules` are the access rules that they are held to.
    """

    database: str = DATABASE_DEFAULT
    subject: str = ""
    scopes: frozenset[Scope] = frozenset()
    queues: tuple[str, ...] = (ALL_QUEUES,)
    claims: str = ""
    rules: tuple[DocumentRule, ...] = ()

    def may(self, scope: Scope) -> bool:
        """Whether they have a scope, for some queue at least."""
        if scope in self.scopes or (Scope.ADMIN in self.scopes and scope not in NOT_BY_ADMIN):
            return True
        return scope is Scope.SUBSCRIBE and Scope.CONSUME in self.scopes

    def may_use(self, queue: str) -> bool:
        """Whether a queue is among theirs."""
        return self._may_use_own(queue) if is_own(queue) else self._fits(queue)

    def _fits(self, name: str) -> bool:
        return ALL_QUEUES in self.queues or any(fnmatchcase(name, pattern) for pattern in self.queues)

    def _may_use_own(self, queue: str) -> bool:
        """Whether a queue that is Headwater's own is theirs: what is told there they may read elsewhere as well. The
        changes of a collection are for who may read its documents; all else, as the changes of everybody's jobs, is
        for who administers the whole database."""
        if self._is_ruled(queue):
            return False
        collection = collection_of(queue)
        if collection is not None:
            return self.may(Scope.READ_DOCUMENTS) and self.may_use_collection(collection)
        return self._has_all()

    def _has_all(self) -> bool:
        return Scope.ADMIN in self.scopes and self.may_use_all()

    @property
    def reach(self) -> tuple[str, ...]:
        """Patterns of the queues that are theirs, as the store takes them: it leaves out what `may_use` refuses."""
        if self._has_all():
            return self.queues
        own: list[str] = []
        # Which of them rules are for the store does not know.
        if self.may(Scope.READ_DOCUMENTS) and not self.rules:
            own = [one for pattern in self.queues for one in patterns_within(pattern, ACCESS_PREFIX)]
        return (*self.queues, OWN_APART, *(SYSTEM_PREFIX + pattern for pattern in own))

    def _is_ruled(self, queue: str) -> bool:
        """Whether a queue has changes of documents that rules are for: it tells of all of them, with all fields."""
        collection = collection_of(queue)
        return collection is not None and any(rule.fits(collection) for rule in self.rules)

    def may_use_collection(self, collection: str) -> bool:
        """Whether a collection of documents is among theirs: patterns name it `documents/<collection>`."""
        return self.may_use(ACCESS_PREFIX + collection)

    def permit(self, collection: str) -> Permit | None:
        """What the access rules allow them in a collection; None where no rule speaks of it."""
        return permit_of(self.rules, collection, self.claims_text()) if self.rules else None

    def known_claims(self) -> dict[str, object]:
        """What filters and rules may say of them: `auth.sub`, `auth.database`, `auth.scopes`, and each claim of their
        credential under its name."""
        said = msgspec.json.decode(self.claims) if self.claims else {}
        scopes = sorted(scope.value for scope in self.scopes)
        return {**said, "sub": self.subject or None, "database": self.database, "scopes": scopes}

    def claims_text(self) -> str:
        """The same as JSON, as it goes with what they ask."""
        return msgspec.json.encode(self.known_claims()).decode()

    def may_use_all(self) -> bool:
        """Whether every queue of their database is theirs: for requests that name none."""
        return ALL_QUEUES in self.queues

    def as_holder(self, said: str = "") -> str:
        """Who holds what they lease, for whoever looks at the leases: who they are known to be comes first. What they
        say of themselves is said by them, and stands in brackets."""
        return f"{self.subject} ({said})".lstrip() if said else self.subject

    def own_name(self, name: str) -> str:
        """A name that is one for the whole database, as that of a job, as they choose it: whoever may use some queues
        alone chooses among names of their own, which those of other queues cannot meet. Nobody learns of others by it.
        """
        mark = self._mark()
        return name if not name or name.startswith(mark) else f"{mark}{name}"

    def check_own_name(self, kind: str, name: str) -> str:
        """The same for a new one; raises when it is too long to be kept."""
        own = self.own_name(name)
        if len(own) > NAME_LENGTH_MAX:
            bound = NAME_LENGTH_MAX - len(self._mark())
            raise InvalidName(f"with this token a {kind} may have {bound} characters; got {len(name):,}")
        return own

    def is_own_name(self, name: str) -> bool:
        """Whether a name as it is kept is one that they chose among their own."""
        return not self.may_use_all() and name.startswith(self._mark())

    def may_see_name(self, name: str) -> bool:
        """Whether a name as it is kept is none that somebody else chose among theirs. What looks like one is."""
        return self.may_use_all() or name.startswith(self._mark()) or not _marked.match(name)

    def shown(self, text: bytes) -> bytes:
        """What names them as they are kept, with the names as they chose them."""
        return text if self.may_use_all() else text.replace(self._mark().encode(), b"")

    def _mark(self) -> str:
        if self.may_use_all():
            return ""
        return blake2s(",".join(sorted(self.queues)).encode(), digest_size=4).hexdigest() + ":"


_marked = re.compile("[0-9a-f]{8}:")


# On loopback without authentication everybody is this machine's owner.
OWNER = Principal(scopes=frozenset(Scope) - {Scope.SUBMIT_JOBS})
# Whoever asks for what needs no credential.
NOBODY = Principal(queues=())


def require(principal: Principal, scope: Scope, *queues: str) -> None:
    """Raises unless the principal has the scope, and all these queues are theirs.

    >>> require(request.principal, Scope.PUBLISH, "orders")
    """
    if not principal.may(scope):
        raise NotAllowed(f"this needs the scope {scope.value}")
    for queue in queues:
        require_queue(principal, queue)


def require_queue(principal: Principal, queue: str) -> None:
    """Raises when a queue is not theirs, in the words of one that does not exist: nobody learns which it is."""
    if not principal.may_use(queue):
        raise QueueMissing(f"there is no queue {queue!r:.260}")


def require_collection(principal: Principal, collection: str) -> None:
    """Raises when a collection of documents is not theirs. Every collection is there, so nobody learns anything."""
    if not principal.may_use_collection(collection):
        raise NotAllowed(f"this token may not use the collection {collection!r:.260}")


def require_all(principal: Principal, scope: Scope) -> None:
    """Raises unless the principal has the scope for every queue of its database: for requests that name no queue."""
    require(principal, scope)
    if not principal.may_use_all():
        raise NotAllowed(f"this needs the scope {scope.value} for all queues; name a queue")


def check_pattern(pattern: object) -> str:
    """The pattern itself when it is one: a queue's name in which `*` stands for any text, also none."""
    if isinstance(pattern, str) and _pattern.fullmatch(pattern):
        return pattern
    shown = repr(pattern)[:80]
    raise InvalidName(f"a queue pattern has 1 to {NAME_LENGTH_MAX} characters of A-Z a-z 0-9 . _ : / - *; got {shown}")


# What a role of an identity provider brings. The first four are those that queen-mq servers know; the name of a scope
# is a role of its own.
ROLES: dict[str, frozenset[Scope]] = {
    "admin": frozenset({Scope.ADMIN}),
    "read-write": frozenset({Scope.PUBLISH, Scope.CONSUME, Scope.SUBSCRIBE, Scope.METRICS}),
    "read-only": frozenset({Scope.SUBSCRIBE, Scope.METRICS}),
    "write-only": frozenset({Scope.PUBLISH}),
    **{scope.value: frozenset({scope}) for scope in Scope},
}


def scopes_of(roles: Iterable[str]) -> frozenset[Scope]:
    """What roles allow together. A role that means nothing here allows nothing."""
    return frozenset().union(*(ROLES.get(role, frozenset()) for role in roles))
