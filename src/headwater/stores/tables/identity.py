"""Which store this is: a UUID in the file, and what a place in the log looks like in no other history.

A backup that is put back has the old identity until somebody renews it, and LSNs that may come to mean other segments.
So a checkpoint keeps the identity and the mark of the segment it stands at: who wrote it, when, where, its checksum.
"""

from hashlib import sha256
from typing import NoReturn, Protocol
from uuid import uuid4

from headwater.clock import Timestamp
from headwater.errors import StoreDamaged, StoreMoved, StoreReplaced
from headwater.log.store_operations import Identified, RenewIdentity
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.stores.log_reader import Fingerprint
from headwater.stores.tables.connection import Connection, Meta
from headwater.stores.tables.subject import Handlers, Seen, Subject

IDENTITY_KEY = "identity"
# Where a store is that was moved as a whole.
MOVED_KEY = "moved_to"
MARK_LENGTH = 32
# LSN, partition, first offset, count, time of writing, origin, checksum.
MarkRow = tuple[Lsn, PartitionId, Offset, int, Timestamp, int, int]


class Lose(Protocol):
    """Says now, and whenever somebody asks later, that a store is no more, and what became of it."""

    def __call__(self, what: str, kind: type[StoreReplaced] = ..., /) -> NoReturn: ...


class Identity(Subject):
    """The identity of an open file, as its writer knows it."""

    def __init__(self, connection: Connection, lose: Lose) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._lose = lose
        # The one that was met first, and those that were given through this handle.
        self._known: set[str] = set()

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {RenewIdentity: self.renew}

    @property
    def known(self) -> list[str]:
        """The identities that this store may have."""
        return sorted(self._known)

    def inherit(self, other: "Identity") -> None:
        """Know what another has known: the handle goes on with another connection."""
        self._known |= other._known

    def catch_up(self, seen: Seen) -> None:
        """Raises when another program has given the store a new identity."""
        self.meet(seen.identity)

    def meet(self, found: str) -> None:
        """Raises when another program has given the store a new identity: it is not the one that was opened."""
        if not self._known:
            self._known.add(found)
        elif found not in self._known:
            moved = self._connection.row(self._sql.get_meta, (MOVED_KEY,), Meta)
            if moved is not None:
                self._lose(f"the store was moved to {moved[0]}: use that one", StoreMoved)
            self._lose(f"the store was restored, and its identity is {found} now")

    def renew(self, operation: RenewIdentity, now: Timestamp) -> Identified:
        """Give the store another identity."""
        before, identity = read_identity(self._connection), str(uuid4())
        self._known.add(identity)
        self._connection.run(self._sql.set_meta, (IDENTITY_KEY, identity))
        return Identified(before, identity)


def read_identity(connection: Connection) -> str:
    """The identity that the file has now."""
    row = connection.row(connection.sql.get_meta, (IDENTITY_KEY,), Meta)
    if row is None:
        raise StoreDamaged("the store has no identity: a row of hw_meta is missing")
    return str(row[0])


def read_fingerprint(connection: Connection, through: Lsn) -> Fingerprint | None:
    """The newest segment at or before `through` that is kept, with what tells it from any other."""
    row = connection.row(connection.sql.segment_at_or_before, (through,), MarkRow)
    return None if row is None else Fingerprint(row[0], _mark(*row))


def remembers(connection: Connection, seen: Fingerprint, newest: Lsn) -> bool | None:
    """Whether the log has this very segment; None when its place is empty, as retention leaves it."""
    if seen.lsn > newest:
        return False
    found = read_fingerprint(connection, seen.lsn)
    return found == seen if found is not None and found.lsn == seen.lsn else None


def _mark(*facts: object) -> str:
    return sha256(repr(facts).encode()).hexdigest()[:MARK_LENGTH]
