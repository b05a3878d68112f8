"""What can be asked about documents, and what is answered."""

from collections.abc import Sequence

import msgspec

from headwater.config import MIB
from headwater.model.document import Condition, Document, OrderBy
from headwater.model.document_rules import DocumentRule, Permit
from headwater.model.names import Lsn
from headwater.stores.questions import Question


class DocumentQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Documents of a collection: those for which all `filters` hold, and `filter`, which is CEL text. They come in
    the order of `order_by`, then by id; after the cursor `start_after`; `limit` of them."""

    collection: str
    filters: Sequence[Condition] = ()
    filter: str = ""
    order_by: Sequence[OrderBy] = ()
    limit: int = 100
    start_after: str = ""
    show_deleted: bool = False


# With the document that passes it an answer is full, however many were asked for.
PAGE_BYTES_MAX = 16 * MIB


class DocumentPage(msgspec.Struct, frozen=True):
    """Documents of a query. A store looks at a bounded number of them for one answer, and one in order has a bounded
    number of bytes: where `position` is not empty, the same is asked from there on, and what all answers have together
    is the result: one behind the other where they are `is_ordered`, else the first of all in the order of the query.

    Of each document it has at least what commits up to `lsn` wrote; its own `lsn` says whether it has more.
    `scanned` says how many were looked at.
    """

    documents: list[Document]
    lsn: Lsn
    position: str = ""
    is_ordered: bool = False
    scanned: int = 0


class DocumentIndexStatus(msgspec.Struct, frozen=True):
    """An index on documents."""

    pattern: str
    field: str
    ready: bool


class FindDocument(Question[Document | None], frozen=True):
    """One document, or its tombstone; None when there never was one."""

    database: str
    collection: str
    id: str


class QueryDocuments(Question[DocumentPage], frozen=True):
    """What a query finds, from a position on: of that, what a permit lets read. `claims` is what is known of who asks,
    as JSON, where the filter speaks of them; a filter that does, asked by nobody, is refused. What is found in order
    ends with the document that makes it as large as `bytes_max`, and the position says where it goes on; what is sorted
    has none behind the one that makes it larger."""

    database: str
    query: DocumentQuery
    position: str = ""
    permit: Permit | None = None
    claims: str = ""
    bytes_max: int = PAGE_BYTES_MAX


class ListDocumentsAfter(Question[list[Document]], frozen=True):
    """Documents of a collection, and tombstones, in the order of the commits that wrote them last, after a place;
    none behind the one that makes them as large as `bytes_max`."""

    database: str
    collection: str
    after: Lsn = Lsn(0)
    after_id: str = ""
    limit: int = 1_000
    bytes_max: int = PAGE_BYTES_MAX


class ListDocumentIndexes(Question[list[DocumentIndexStatus]], frozen=True):
    """The indexes on documents of a database."""

    database: str


class ListUnfinishedIndexes(Question[list[tuple[str, str, str]]], frozen=True):
    """The indexes of all databases that not all documents are in yet: database, pattern and field."""


class ListDocumentRules(Question[list[DocumentRule]], frozen=True):
    """The access rules of a database, in the order in which they were given."""

    database: str
