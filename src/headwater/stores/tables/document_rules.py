"""The access rules of documents, as one fact about each database.

They are part of what is known of who asks: a change raises the number by which every process learns that access tokens
changed, and whoever was verified before is looked at again.
"""

import msgspec

from headwater.clock import Timestamp
from headwater.errors import StoreDamaged
from headwater.log.document_operations import DocumentRulesSet, SetDocumentRules
from headwater.model.document_rules import DocumentRule
from headwater.stores.document_questions import ListDocumentRules
from headwater.stores.tables.access_tokens import AccessTokens
from headwater.stores.tables.connection import Connection, Text
from headwater.stores.tables.subject import Answering, Handlers, Subject, SubjectAnswers

PREFIX = "document_rules/"


class DocumentRules(Subject):
    """Writes rules through a connection that holds the write lock."""

    def __init__(self, connection: Connection, access_tokens: AccessTokens) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._access_tokens = access_tokens

    def handlers(self) -> Handlers:
        """What applies its operation."""
        return {SetDocumentRules: self.set}

    def set(self, operation: SetDocumentRules, now: Timestamp) -> DocumentRulesSet:
        """Have these rules, and no others."""
        text = msgspec.json.encode(operation.rules).decode()
        self._connection.run(self._sql.set_meta, (PREFIX + operation.database, text))
        self._access_tokens.changed()
        return DocumentRulesSet(len(operation.rules))


class DocumentRuleAnswers(SubjectAnswers):
    """Reads rules."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Answering:
        """What answers its question."""
        return {ListDocumentRules: self.list}

    def list(self, asked: ListDocumentRules) -> list[DocumentRule]:
        """The rules of a database."""
        row = self._connection.row(self._sql.get_meta, (PREFIX + asked.database,), Text)
        try:
            return [] if row is None else msgspec.json.decode(row[0], type=list[DocumentRule])
        except msgspec.MsgspecError as error:
            # Nobody is let in by rules that cannot be read.
            raise StoreDamaged(f"the access rules of {asked.database!r} cannot be read: {error}") from error
