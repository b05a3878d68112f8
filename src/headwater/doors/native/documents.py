"""Documents: who may write them, and who may read them.

A token says it by scopes (`documents:read`, `:create`, `:update`, `:delete`) and by its patterns, in which a collection
stands as `documents/<collection>`.
"""

from typing import Any

from headwater.doors.native.rules import Rule
from headwater.doors.site import Site, check_scope
from headwater.doors.wire import Request
from headwater.log.document_operations import (
    CreateDocument,
    DeleteDocument,
    DropDocumentIndex,
    IndexDocuments,
    MergeDocuments,
    SetDocument,
    UpdateDocument,
)
from headwater.log.operations import Operation
from headwater.model.document import DocumentRow, check_collection, check_document_id
from headwater.model.principal import Scope, require_collection
from headwater.services.document_checks import check_query
from headwater.stores.document_questions import (
    FindDocument,
    ListDocumentIndexes,
    ListDocumentsAfter,
    QueryDocuments,
)
from headwater.stores.questions import Question


async def _check_theirs(site: Site, request: Request, asked: Any) -> Any:
    """A collection that is theirs."""
    require_collection(request.principal, check_collection(asked.collection))
    return asked


async def _check_set(site: Site, request: Request, asked: SetDocument) -> SetDocument:
    """Whether it makes a document or replaces one, only the store can tell: it needs both rights."""
    check_scope(request, Scope.CREATE_DOCUMENTS)
    require_collection(request.principal, check_collection(asked.collection))
    return asked


async def _check_merge(site: Site, request: Request, asked: MergeDocuments) -> MergeDocuments:
    """Conflicts show what is there; each row needs the right to do what it does."""
    require_collection(request.principal, check_collection(asked.collection))
    for scope in dict.fromkeys(map(_scope_of, asked.rows)):
        check_scope(request, scope)
    return asked


def _scope_of(row: DocumentRow) -> Scope:
    if row.new_document_state.get("_deleted"):
        return Scope.DELETE_DOCUMENTS
    return Scope.CREATE_DOCUMENTS if row.assumed_master_state is None else Scope.UPDATE_DOCUMENTS


async def _check_find(site: Site, request: Request, asked: FindDocument) -> FindDocument:
    require_collection(request.principal, check_collection(asked.collection))
    check_document_id(asked.id)
    return asked


async def _check_query(site: Site, request: Request, asked: QueryDocuments) -> QueryDocuments:
    require_collection(request.principal, check_collection(asked.query.collection))
    return QueryDocuments(asked.database, check_query(asked.query, one_more=True), asked.position)


OPERATIONS: dict[type[Operation], Rule] = {
    CreateDocument: Rule(scope=Scope.CREATE_DOCUMENTS, check=_check_theirs),
    SetDocument: Rule(scope=Scope.UPDATE_DOCUMENTS, check=_check_set),
    UpdateDocument: Rule(scope=Scope.UPDATE_DOCUMENTS, check=_check_theirs),
    DeleteDocument: Rule(scope=Scope.DELETE_DOCUMENTS, check=_check_theirs),
    MergeDocuments: Rule(scope=Scope.READ_DOCUMENTS, check=_check_merge),
    IndexDocuments: Rule(scope=Scope.ADMIN, whole=True),
    DropDocumentIndex: Rule(scope=Scope.ADMIN, whole=True),
}

QUESTIONS: dict[type[Question[Any]], Rule] = {
    FindDocument: Rule(scope=Scope.READ_DOCUMENTS, check=_check_find),
    QueryDocuments: Rule(scope=Scope.READ_DOCUMENTS, check=_check_query),
    ListDocumentsAfter: Rule(scope=Scope.READ_DOCUMENTS, check=_check_theirs),
    ListDocumentIndexes: Rule(scope=Scope.ADMIN, whole=True),
}
