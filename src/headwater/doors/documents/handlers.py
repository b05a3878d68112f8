"""Documents by path: reading, writing, queries, and batches that are all or nothing."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from headwater.doors.documents.shapes import BatchRequest, DeleteRequest, GetRequest, QueryRequest, Write, WriteRequest
from headwater.doors.native.documents import OPERATIONS, QUESTIONS, find_seen, readable, require_system, told_of
from headwater.doors.native.rules import allowed
from headwater.doors.site import Site, check_scope
from headwater.doors.wire import NOTHING, Refused, Request, Response, json_response
from headwater.errors import DocumentMissing, InvalidOption, InvalidPayload
from headwater.log.document_operations import CreateDocument, DeleteDocument, SetDocument, UpdateDocument
from headwater.log.operations import Operation, Transaction
from headwater.model.document import Document, Fields, check_document_id, encode_fields, new_document_id, split_path
from headwater.model.names import DATABASE_DEFAULT
from headwater.model.principal import require_collection
from headwater.services.admission import admit
from headwater.services.documents import find_all, find_rows
from headwater.services.system_collections import is_system, seen_by
from headwater.stores.document_questions import DocumentQuery, FindDocument, QueryDocuments

CONDITIONAL_HEADERS = frozenset({"if-match", "if-none-match", "if-modified-since", "if-unmodified-since"})
NO_HEADERS = "conditions of a write go into `ifMatch` of the body, not into headers like If-Match"
# What clients call the database of a server that has one.
ANOTHER_NAME = "default"

Wanted = TypeVar("Wanted", bound=Operation)


def check_database(request: Request, name: str) -> str:
    """The database of who asks; raises when the path names another."""
    own = request.principal.database
    if name == own or (name == ANOTHER_NAME and own == DATABASE_DEFAULT):
        return own
    raise Refused(404, "database_not_found", f"there is no database {name!r:.260} for this token")


async def permitted(site: Site, request: Request, operation: Wanted) -> Wanted:
    """A write as it may be handed in by who asks. Conditions in its headers would be passed over: they are refused."""
    if not CONDITIONAL_HEADERS.isdisjoint(request.headers):
        raise InvalidOption(NO_HEADERS)
    rule = OPERATIONS[type(operation)]
    check_scope(request, rule.scope)
    return admit(await allowed(site, request, rule, operation), site.config)


def shown(document: Document, status: int = 200) -> Response:
    """A document as the answer: it is kept as it is sent."""
    return Response(status=status, body=bytes(document.body))


# ── one document ──


async def get(site: Site, request: Request, database: str, path: str) -> Response:
    """The document at a path."""
    found = await _find(site, request, check_database(request, database), path)
    if found is None:
        raise DocumentMissing(f"there is no document {path:.500}")
    return shown(found)


async def _find(site: Site, request: Request, database: str, path: str) -> Document | None:
    collection, name = split_path(path)
    if is_system(collection):
        require_collection(request.principal, collection)
        require_system(request.principal, collection)
        return await find_seen(site, request, FindDocument(database, collection, name))
    question = await allowed(site, request, QUESTIONS[FindDocument], FindDocument(database, collection, name))
    found = readable(request, await site.queues.ask(question))
    return None if found is None or found.deleted else found


async def create(site: Site, request: Request, body: Fields, database: str, path: str) -> Response:
    """Make a document in a collection. Elsewhere nothing, and [], is an empty object; a document has to say so."""
    if not request.body.lstrip().startswith(b"{"):
        raise InvalidPayload("a document is a JSON object; for one without fields send {}")
    operation = CreateDocument(
        database=check_database(request, database),
        collection=path,
        id=check_document_id(body["id"]) if body.get("id") is not None else new_document_id(site.clock.now()),
        data=_fields(site, body),
    )
    return shown(await site.queues.run(await permitted(site, request, operation)), 201)


async def put(site: Site, request: Request, body: WriteRequest, database: str, path: str) -> Response:
    """Make or replace a document."""
    return await _write(site, request, SetDocument, body, database, path)


async def patch(site: Site, request: Request, body: WriteRequest, database: str, path: str) -> Response:
    """Change fields of a document."""
    return await _write(site, request, UpdateDocument, body, database, path)


async def _write(
    site: Site,
    request: Request,
    kind: type[SetDocument] | type[UpdateDocument],
    body: WriteRequest,
    database: str,
    path: str,
) -> Response:
    own = check_database(request, database)
    collection, name = split_path(path)
    operation = kind(database=own, collection=collection, id=name, data=_fields(site, body.doc), if_match=body.if_match)
    return shown(told_of(request, operation, await site.queues.run(await permitted(site, request, operation))))


async def delete(site: Site, request: Request, body: DeleteRequest, database: str, path: str) -> Response:
    """Delete a document."""
    own = check_database(request, database)
    collection, name = split_path(path)
    operation = DeleteDocument(database=own, collection=collection, id=name, if_match=body.if_match)
    await site.queues.run(await permitted(site, request, operation))
    return NOTHING


def _fields(site: Site, fields: Fields) -> msgspec.Raw:
    return encode_fields(fields, site.config.record_bytes_max)


# ── several ──


async def query(site: Site, request: Request, body: QueryRequest, database: str) -> Response:
    """Documents of a collection."""
    asked = DocumentQuery(
        collection=body.collection,
        filters=body.filters,
        filter=body.filter,
        order_by=body.order_by,
        limit=body.limit,
        start_after=body.start_after or "",
        show_deleted=body.show_deleted,
    )
    own = check_database(request, database)
    question = await allowed(site, request, QUESTIONS[QueryDocuments], QueryDocuments(own, asked))
    if is_system(body.collection):
        sees = seen_by(lambda: request.principal, body.collection)
        found = await find_rows(site.queues, question, site.clock.now(), sees)
    else:
        found = await find_all(site.queues, question)
    return _documents(found.documents, found.next_cursor)


async def get_by_path(site: Site, request: Request, body: GetRequest, database: str) -> Response:
    """One document, or none, as a list."""
    found = await _find(site, request, check_database(request, database), body.path)
    return _documents([] if found is None else [found])


async def write(site: Site, request: Request, body: BatchRequest, database: str) -> Response:
    """All writes, or none of them."""
    own = check_database(request, database)
    steps = [await permitted(site, request, _step(site, own, one)) for one in body.writes]
    whole = Transaction(database=own, operations=steps)
    results = (await site.queues.run(whole)).results
    return _documents([told_of(request, step, written) for step, written in zip(steps, results, strict=True)])


def _step(site: Site, database: str, write: Write) -> Operation:
    collection, name = split_path(write.path)
    place: dict[str, Any] = {"database": database, "collection": collection, "id": name}
    if write.type == "delete":
        return DeleteDocument(**place, if_match=write.if_match)
    data = _fields(site, write.data)
    if write.type == "create":
        return CreateDocument(**place, data=data)
    kind = SetDocument if write.type == "set" else UpdateDocument
    return kind(**place, data=data, if_match=write.if_match)


class _Documents(msgspec.Struct, frozen=True, rename="camel"):
    """The answer, with documents as they are kept."""

    docs: list[msgspec.Raw]
    next_cursor: str


def _documents(found: Sequence[Document], cursor: str = "") -> Response:
    return json_response(_Documents([document.body for document in found], cursor))
