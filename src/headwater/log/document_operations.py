"""Documents: what can be done to them. A batch of writes is a `Transaction` of these.

A `permit` is what access rules allow to who asks, which a door says; without one everything is allowed.
"""

from collections.abc import Sequence

import msgspec

from headwater.log.operations import Deleted, Operation
from headwater.model.document import Condition, Document, DocumentRow
from headwater.model.document_rules import DocumentRule, Permit


class CreateDocument(Operation[Document], frozen=True, kw_only=True):
    """Make a document that is not there, or not any more."""

    collection: str
    id: str
    data: msgspec.Raw
    permit: Permit | None = None


class SetDocument(Operation[Document], frozen=True, kw_only=True):
    """Make a document, or replace all of its fields; only if all of `if_match` hold. Of a document that is not there,
    or was deleted, every field is missing: `version >= 1` is to replace it only, `version == null` to make it only."""

    collection: str
    id: str
    data: msgspec.Raw
    if_match: Sequence[Condition] = ()
    permit: Permit | None = None


class UpdateDocument(Operation[Document], frozen=True, kw_only=True):
    """Change fields of a document that is there; those that are not named stay."""

    collection: str
    id: str
    data: msgspec.Raw
    if_match: Sequence[Condition] = ()
    permit: Permit | None = None


class DeleteDocument(Operation[Document], frozen=True, kw_only=True):
    """Delete a document that is there; its tombstone is answered."""

    collection: str
    id: str
    if_match: Sequence[Condition] = ()
    permit: Permit | None = None


class DocumentsMerged(msgspec.Struct, frozen=True):
    """How many were written, and what is here in the place of those that were not: not what was believed."""

    written: int
    conflicts: list[Document]


class MergeDocuments(Operation[DocumentsMerged], frozen=True, kw_only=True):
    """Take in what a replica has written: each row whose document here is still what the replica believes."""

    collection: str
    rows: Sequence[DocumentRow]
    permit: Permit | None = None


class DocumentIndexed(msgspec.Struct, frozen=True):
    """Whether the index is ready; until then it is asked for again."""

    ready: bool


class IndexDocuments(Operation[DocumentIndexed], frozen=True, kw_only=True):
    """Have an index on a field, for collections whose names fit a pattern (`rooms/*/messages`). Documents that are
    there already are taken in `limit` at a time: the same again goes on, until the answer says that it is ready."""

    pattern: str
    field: str
    limit: int = 2_000


class DropDocumentIndex(Operation[Deleted], frozen=True, kw_only=True):
    """Have no index on a field any more, by the pattern that it was made with."""

    pattern: str
    field: str


class DocumentRulesSet(msgspec.Struct, frozen=True):
    """How many rules there are now."""

    count: int


class SetDocumentRules(Operation[DocumentRulesSet], frozen=True, kw_only=True):
    """Have these access rules for the documents of a database, in place of those that it had."""

    rules: Sequence[DocumentRule]
