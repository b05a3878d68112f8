"""Short calls for documents, for the suite."""

from typing import Any

import msgspec

from headwater.log.document_operations import CreateDocument, DeleteDocument, SetDocument, UpdateDocument
from headwater.model.document import Condition, DocumentChange, changes_queue
from headwater.stores.document_questions import DocumentPage, DocumentQuery, QueryDocuments
from tests.contracts.log import LSN_MAX, Log

COLLECTION = "rooms/r1/messages"


def raw(fields: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(fields))


def create(name: str, collection: str = COLLECTION, **fields: Any) -> CreateDocument:
    return CreateDocument(collection=collection, id=name, data=raw(fields))


def put(name: str, *if_match: Condition, collection: str = COLLECTION, **fields: Any) -> SetDocument:
    return SetDocument(collection=collection, id=name, data=raw(fields), if_match=if_match)


def update(name: str, *if_match: Condition, collection: str = COLLECTION, **fields: Any) -> UpdateDocument:
    return UpdateDocument(collection=collection, id=name, data=raw(fields), if_match=if_match)


def delete(name: str, *if_match: Condition, collection: str = COLLECTION) -> DeleteDocument:
    return DeleteDocument(collection=collection, id=name, if_match=if_match)


async def ask_page(log: Log, position: str = "", collection: str = COLLECTION, **query: Any) -> DocumentPage:
    """One answer to a query."""
    return await log.store.ask(QueryDocuments("main", DocumentQuery(collection=collection, **query), position))


async def ids(log: Log, **query: Any) -> list[str]:
    """The ids that a query finds."""
    return [document.id for document in (await ask_page(log, **query)).documents]


async def changes(log: Log, collection: str = COLLECTION) -> list[DocumentChange]:
    """What the log tells of a collection."""
    segments = await log.store.read(0, LSN_MAX, 10_000, ("main", changes_queue(collection)))  # type: ignore[arg-type]
    return [msgspec.json.decode(record.data, type=DocumentChange) for segment in segments for record in segment.records]
