"""Documents: who may write them, and who may read them.

A token says it by scopes (`documents:read`, `:create`, `:update`, `:delete`) and by its patterns, in which a collection
stands as `documents/<collection>`. Access rules narrow that down by what is in the documents: what they allow to who
asks goes with a write as its permit, which the store checks against the document as it is then.
"""

from typing import Any

import msgspec

from headwater import filters
from headwater.doors.native.rules import Rule
from headwater.doors.site import Site, check_scope
from headwater.doors.wire import Request
from headwater.errors import NotAllowed
from headwater.log.document_operations import (
    CreateDocument,
    DeleteDocument,
    DropDocumentIndex,
    IndexDocuments,
    MergeDocuments,
    SetDocument,
    SetDocumentRules,
    UpdateDocument,
)
from headwater.log.operations import Operation
from headwater.model.document import Document, DocumentRow, check_collection, check_document_id
from headwater.model.principal import Principal, Scope, require_collection
from headwater.services.document_checks import check_query
from headwater.services.documents import find_rows, gather_rest
from headwater.services.system_collections import (
    SCOPES,
    WHOLE,
    check_system,
    document_of,
    find_row,
    is_system,
    may_see,
    seen_by,
)
from headwater.stores.document_questions import (
    PAGE_BYTES_MAX,
    DocumentPage,
    DocumentQuery,
    FindDocument,
    ListDocumentIndexes,
    ListDocumentRules,
    ListDocumentsAfter,
    QueryDocuments,
)
from headwater.stores.questions import Question


async def _check_theirs(site: Site, request: Request, asked: Any) -> Any:
    """A collection that is theirs."""
    require_collection(request.principal, check_collection(asked.collection))
    return asked


async def _check_listed(site: Site, request: Request, asked: ListDocumentsAfter) -> ListDocumentsAfter:
    found: ListDocumentsAfter = await _check_theirs(site, request, asked)
    return msgspec.structs.replace(found, bytes_max=min(asked.bytes_max, PAGE_BYTES_MAX))


async def _check_write(site: Site, request: Request, asked: Any) -> Any:
    """A write to a collection that is theirs, with what the access rules allow them."""
    return _permitted(request, await _check_theirs(site, request, asked))


def _permitted(request: Request, asked: Any) -> Any:
    permit = request.principal.permit(asked.collection)
    return asked if permit is None else msgspec.structs.replace(asked, permit=permit)


async def _check_set(site: Site, request: Request, asked: SetDocument) -> SetDocument:
    """Whether it makes a document or replaces one, only the store can tell: it needs both rights."""
    check_scope(request, Scope.CREATE_DOCUMENTS)
    permitted: SetDocument = await _check_write(site, request, asked)
    return permitted


async def _check_merge(site: Site, request: Request, asked: MergeDocuments) -> MergeDocuments:
    """Conflicts show what is there; each row needs the right to do what it does."""
    require_collection(request.principal, check_collection(asked.collection))
    for scope in dict.fromkeys(map(_scope_of, asked.rows)):
        check_scope(request, scope)
    permitted: MergeDocuments = _permitted(request, asked)
    return permitted


def _scope_of(row: DocumentRow) -> Scope:
    if row.new_document_state.get("_deleted"):
        return Scope.DELETE_DOCUMENTS
    return Scope.CREATE_DOCUMENTS if row.assumed_master_state is None else Scope.UPDATE_DOCUMENTS


async def _check_find(site: Site, request: Request, asked: FindDocument) -> FindDocument:
    require_collection(request.principal, check_collection(asked.collection))
    if is_system(asked.collection):
        require_system(request.principal, asked.collection)
    else:
        check_document_id(asked.id)
    return asked


def require_system(principal: Principal, collection: str) -> None:
    """Raises when a system collection is not theirs to look at."""
    if not may_see(principal, check_system(collection)):
        needed = " or ".join(scope.value for scope in SCOPES[collection])
        raise NotAllowed(f"{collection} needs the scope {needed}" + (", for all queues" if collection in WHOLE else ""))


async def _check_query(site: Site, request: Request, asked: QueryDocuments) -> QueryDocuments:
    require_collection(request.principal, check_collection(asked.query.collection))
    if is_system(asked.query.collection):
        require_system(request.principal, asked.query.collection)
    permit = request.principal.permit(asked.query.collection)
    query = check_query(asked.query, one_more=True)
    # Who asks is told apart only where it says something: other questions are the same for all.
    claims = request.principal.claims_text() if speaks_of_who_asks(query) else ""
    bytes_max = min(asked.bytes_max, PAGE_BYTES_MAX)
    return QueryDocuments(asked.database, query, asked.position, permit, claims, bytes_max)


def speaks_of_who_asks(query: DocumentQuery) -> bool:
    """Whether the filter of a query has claims."""
    return "auth" in query.filter and filters.has_claims(filters.parse(query.filter))


async def _show_query(site: Site, request: Request, asked: QueryDocuments, found: DocumentPage) -> DocumentPage:
    """Where access rules hold, all of it at once: the position to go on from may be a document that is not theirs. Rows
    of a system collection are kept nowhere: they are found here."""
    if is_system(asked.query.collection):
        sees = seen_by(lambda: request.principal, asked.query.collection)
        rows = await find_rows(site.queues, asked, site.clock.now(), sees)
        return DocumentPage(rows.documents, rows.lsn, is_ordered=True, scanned=len(rows))
    if asked.permit is None:
        return found
    documents = await gather_rest(site.queues, asked, found)
    return DocumentPage(documents, found.lsn, is_ordered=True, scanned=len(documents))


async def _show_find(site: Site, request: Request, asked: FindDocument, found: Document | None) -> Document | None:
    if is_system(asked.collection):
        return await find_seen(site, request, asked)
    return readable(request, found)


async def find_seen(site: Site, request: Request, asked: FindDocument) -> Document | None:
    """A row of a system collection, if they see it."""
    row = await find_row(site.queues, asked.database, asked.collection, asked.id, site.clock.now())
    sees = seen_by(lambda: request.principal, asked.collection)
    return document_of(row) if row is not None and sees(row) else None


def readable(request: Request, found: Document | None) -> Document | None:
    """A document, if the access rules let it be read. Of a tombstone nobody can say: what they speak of is gone."""
    permit = None if found is None else request.principal.permit(found.collection)
    if found is None or permit is None:
        return found
    return found if not found.deleted and filters.may_read(permit, found.flat()) else None


async def _show_listed(
    site: Site, request: Request, asked: ListDocumentsAfter, found: list[Document]
) -> list[Document]:
    """Whoever is held to rules has `/replication/v1/pull`: here the last of a list says where to go on."""
    if request.principal.permit(asked.collection) is not None:
        raise NotAllowed("access rules hold in this collection; pull from it, or subscribe")
    return found


def told_of(request: Request, operation: Operation, written: Document) -> Document:
    """What a write is answered. An update leaves fields that somebody else wrote: they are for who may read."""
    if isinstance(operation, UpdateDocument) and not request.principal.may(Scope.READ_DOCUMENTS):
        return written.receipt()
    return written


async def _show_written(site: Site, request: Request, asked: UpdateDocument, written: Document) -> Document:
    return told_of(request, asked, written)


OPERATIONS: dict[type[Operation], Rule] = {
    CreateDocument: Rule(scope=Scope.CREATE_DOCUMENTS, check=_check_write),
    SetDocument: Rule(scope=Scope.UPDATE_DOCUMENTS, check=_check_set),
    UpdateDocument: Rule(scope=Scope.UPDATE_DOCUMENTS, check=_check_write, show=_show_written),
    DeleteDocument: Rule(scope=Scope.DELETE_DOCUMENTS, check=_check_write),
    MergeDocuments: Rule(scope=Scope.READ_DOCUMENTS, check=_check_merge),
    IndexDocuments: Rule(scope=Scope.ADMIN, whole=True),
    DropDocumentIndex: Rule(scope=Scope.ADMIN, whole=True),
    SetDocumentRules: Rule(scope=Scope.ADMIN, whole=True),
}

QUESTIONS: dict[type[Question[Any]], Rule] = {
    FindDocument: Rule(scope=Scope.READ_DOCUMENTS, check=_check_find, show=_show_find),
    QueryDocuments: Rule(scope=Scope.READ_DOCUMENTS, check=_check_query, show=_show_query),
    ListDocumentsAfter: Rule(scope=Scope.READ_DOCUMENTS, check=_check_listed, show=_show_listed),
    ListDocumentIndexes: Rule(scope=Scope.ADMIN, whole=True),
    ListDocumentRules: Rule(scope=Scope.ADMIN, whole=True),
}
