"""Access tokens in their table, and the number by which every process learns that one was added or revoked.

The number stands in the file; `version` is this process's own count of the changes it has met. Counting up and never
back, it cannot come to a value that it had before, not even after a commit that was undone.
"""

import msgspec

from headwater.clock import Timestamp
from headwater.errors import InvalidOption, StoreDamaged
from headwater.log.operations import AccessTokenAdded, AddAccessToken, Deleted, RevokeAccessToken
from headwater.model.access_token import AccessToken
from headwater.model.principal import Scope
from headwater.stores.questions import FindAccessToken, ListAccessTokens
from headwater.stores.tables.connection import Connection, Meta, Text
from headwater.stores.tables.subject import Answering, Handlers, Seen, Subject, SubjectAnswers

VERSION_KEY = "access_version"
# Id, database, name, digest, scopes, queues, when it was made, when it expires, when it was revoked.
TokenRow = tuple[str, str, str, str, str, str, int, int | None, int | None]


class AccessTokens(Subject):
    """Writes tokens through a connection that holds the write lock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._number = -1
        self.version = 0

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {AddAccessToken: self.add, RevokeAccessToken: self.revoke}

    def catch_up(self, seen: Seen) -> None:
        """Others may have added or revoked some."""
        self._meet(seen.access_version)

    def _meet(self, number: int) -> None:
        """The file's number, as it is now."""
        if number != self._number:
            self._number = number
            self.version += 1

    def add(self, operation: AddAccessToken, now: Timestamp) -> AccessTokenAdded:
        """Keep a new token."""
        if self._connection.row(self._sql.find_access_token, (operation.id,), TokenRow) is not None:
            raise InvalidOption(f"there is an access token {operation.id!r} already")
        scopes, queues = (msgspec.json.encode(value).decode() for value in (operation.scopes, operation.queues))
        about = (operation.id, operation.database, operation.name, operation.digest, scopes, queues)
        self._connection.run(self._sql.add_access_token, (*about, now, operation.expires_at))
        self.changed()
        return AccessTokenAdded(operation.id, now)

    def revoke(self, operation: RevokeAccessToken, now: Timestamp) -> Deleted:
        """Make a token worthless."""
        which = (now, operation.id, operation.database)
        revoked = self._connection.rows(self._sql.revoke_access_token, which, Text)
        if revoked:
            self.changed()
        return Deleted(len(revoked))

    def changed(self) -> None:
        """What is known of somebody may be so no longer."""
        row = self._connection.row(self._sql.get_meta, (VERSION_KEY,), Meta)
        number = (int(row[0]) if row else 0) + 1
        self._connection.run(self._sql.set_meta, (VERSION_KEY, number))
        self._meet(number)


def access_token_of(row: TokenRow) -> AccessToken:
    """A row as the value that it was."""
    token_id, database, name, digest, scopes, queues, created_at, expires_at, revoked_at = row
    try:
        return AccessToken(
            id=token_id,
            database=database,
            name=name,
            digest=digest,
            scopes=msgspec.json.decode(scopes, type=tuple[Scope, ...]),
            queues=msgspec.json.decode(queues, type=tuple[str, ...]),
            created_at=Timestamp(created_at),
            expires_at=None if expires_at is None else Timestamp(expires_at),
            revoked_at=None if revoked_at is None else Timestamp(revoked_at),
        )
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"access token {token_id!r} cannot be read: {error}") from error


class AccessTokenAnswers(SubjectAnswers):
    """Reads access tokens."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Answering:
        """What answers which question."""
        return {FindAccessToken: self.access_token, ListAccessTokens: self.access_tokens}

    def access_token(self, asked: FindAccessToken) -> AccessToken | None:
        """The access token with this id."""
        row = self._connection.row(self._sql.find_access_token, (asked.token_id,), TokenRow)
        return None if row is None else access_token_of(row)

    def access_tokens(self, asked: ListAccessTokens) -> list[AccessToken]:
        """The access tokens of a database, or of all."""
        rows = self._connection.rows(self._sql.access_tokens, (asked.database,), TokenRow)
        return [access_token_of(row) for row in rows]
