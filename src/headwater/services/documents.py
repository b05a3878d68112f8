"""Documents as people use them: `hw.collection("rooms/r1/messages")`, over an open store or a server.

A query is asked in bounded bites and put together here. A live query (`follow`) is a snapshot, and then what the log
says after it: each document of the snapshot knows the commit that wrote it, so that nothing comes twice or is missed.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal

import msgspec

from headwater import filters
from headwater.clock import Clock, Timestamp
from headwater.errors import Closed, ResyncRequired
from headwater.filters import Predicate
from headwater.log.document_operations import (
    CreateDocument,
    DeleteDocument,
    DropDocumentIndex,
    IndexDocuments,
    SetDocument,
    UpdateDocument,
)
from headwater.log.operations import Operation
from headwater.model.document import (
    Condition,
    Document,
    DocumentChange,
    Fields,
    OrderBy,
    changes_queue,
    check_collection,
    check_document_id,
    new_document_id,
    write_fields,
)
from headwater.model.document_order import Foremost, count_within, cursor_mark, cursor_of, place_of, write_cursor
from headwater.model.json_values import is_same_json
from headwater.model.names import Lsn, Offset
from headwater.outage import through_outages
from headwater.services.document_checks import QUERY_LIMIT_MAX, as_conditions, check_conditions, check_query, orders_of
from headwater.services.follow import Step, Steps
from headwater.services.life import Life, verb
from headwater.services.own_records import document_changes
from headwater.services.streams import Stream
from headwater.services.system_collections import Rows, Sees, document_of, find_row, find_system, is_system, list_rows
from headwater.services.verbs import Verbs
from headwater.stores.contract import Answerer
from headwater.stores.document_questions import (
    PAGE_BYTES_MAX,
    DocumentPage,
    DocumentQuery,
    FindDocument,
    QueryDocuments,
)

# How often a system collection is looked at for who follows it.
SYSTEM_SECONDS = 1.0

Add = Callable[[Operation], None]
Conditions = Sequence[Condition | tuple[str, str, Any] | Mapping[str, Any]]


class DocumentList(msgspec.Struct, frozen=True):
    """Documents that a query found. `next_cursor` goes on behind them; it is empty when there are no more."""

    documents: list[Document]
    next_cursor: str
    lsn: Lsn

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, place: int) -> Document:
        return self.documents[place]


class LiveChange(msgspec.Struct, frozen=True):
    """What happened to the documents that a live query means.

    A `snapshot` has all of them, and comes first; once more when changes were dropped from the log before they were
    told. `insert` is a document that is new among them, `delete` one that is not among them any more: with `left` it is
    still there. `seq` counts the changes of the collection, `lsn` is the commit.
    """

    op: Literal["snapshot", "insert", "update", "delete"]
    document: Document | None = None
    documents: Sequence[Document] = ()
    left: bool = False
    seq: Offset | None = None
    lsn: Lsn = Lsn(0)


# ── queries ──


async def find_all(store: Answerer, asked: QueryDocuments, bytes_max: int = PAGE_BYTES_MAX) -> DocumentList:
    """What is asked for, as much of it as one answer may have, with the cursor to go on."""
    query = asked.query
    one_more = msgspec.structs.replace(query, limit=query.limit + 1)
    asked = msgspec.structs.replace(asked, query=one_more, bytes_max=bytes_max)
    page = await store.ask(asked)
    found = await gather_rest(store, asked, page) if page.position else page.documents
    documents = found[: min(query.limit, count_within(found, bytes_max))]
    cursor = ""
    if len(found) > len(documents):
        place = cursor_of(documents[-1].flat(), query.order_by)
        cursor = write_cursor(place, cursor_mark(query.collection, query.order_by))
    return DocumentList(documents, cursor, page.lsn)


async def find_rows(
    store: Answerer, asked: QueryDocuments, now: Timestamp, sees: Sees = lambda row: True
) -> DocumentList:
    """The same of a system collection: of the rows that somebody sees."""
    expression = expression_of(asked.query, asked.claims)
    return DocumentList(*await find_system(store, asked.database, asked.query, now, sees, expression))


async def gather_rest(store: Answerer, asked: QueryDocuments, page: DocumentPage) -> list[Document]:
    """The first `limit` documents of a query, put together from as many answers as it takes, of which one is known;
    none behind the one that makes them too large for one answer."""
    if not page.is_ordered:
        return await _gather_sorted(store, asked, page)
    query, found = asked.query, page.documents
    while page.position and len(found) < query.limit and count_within(found, asked.bytes_max) >= len(found):
        rest = msgspec.structs.replace(query, limit=query.limit - len(found))
        page = await store.ask(msgspec.structs.replace(asked, query=rest, position=page.position))
        found = found + page.documents
    return found


async def _gather_sorted(store: Answerer, asked: QueryDocuments, page: DocumentPage) -> list[Document]:
    """The same, where each answer has the first ones of those that were looked at for it."""
    if not page.position:
        return page.documents
    order = asked.query.order_by
    found = Foremost(asked.query.limit, asked.bytes_max)
    while True:
        for document in page.documents:
            found.add(place_of(cursor_of(document.flat(), order), order), document)
        if not page.position:
            return found.documents()
        page = await store.ask(msgspec.structs.replace(asked, position=page.position))


# ── live queries ──


async def _next_step(steps: Steps) -> Step | None:
    """The next step; None when a server has another log by now, of which nothing was told."""
    try:
        return await steps.step()
    except ResyncRequired:
        return None


class LiveQuery:
    """The documents that a live query means, as far as it was told."""

    def __init__(self, verbs: Verbs, database: str, query: DocumentQuery) -> None:
        self._verbs = verbs
        self._database = database
        self._query = query
        self._predicate: Predicate = filters.predicate(expression_of(query))
        # Those that are meant, each with the commit up to which it was told.
        self._members: dict[str, Lsn] = {}

    async def changes(self) -> AsyncGenerator[list[LiveChange], None]:
        """A snapshot, then every change, for as long as it is followed."""
        snapshot = await self._snapshot()
        while True:
            yield [snapshot]
            follow = partial(self._verbs.follow, self._database, changes_queue(self._query.collection), snapshot.lsn)
            async with await through_outages(follow) as steps:
                is_lost = False
                while not is_lost and not steps.is_over:
                    step = await _next_step(steps)
                    if step is None or step.resync is not None:
                        is_lost = True
                        break
                    judged = (
                        self.judge(written, now, segment.lsn, seq)
                        for segment in step.segments
                        for seq, _, (written, (_, now)) in document_changes.read(segment)
                    )
                    yield [change for change in judged if change is not None]
                if not is_lost:
                    # It ends with the store alone: whoever follows would take a quiet end for the last change.
                    raise Closed(f"Headwater was closed while {self._query.collection} was followed")
            snapshot = await through_outages(self._snapshot)

    async def _snapshot(self) -> LiveChange:
        """All documents that are meant now; `lsn` is the commit from which on the log has to be followed."""
        documents: list[Document] = []
        lsn: Lsn | None = None
        query = msgspec.structs.replace(self._query, limit=QUERY_LIMIT_MAX, start_after="")
        while True:
            page = await find_all(self._verbs.store, QueryDocuments(self._database, query))
            lsn = page.lsn if lsn is None else lsn
            documents += page
            if not page.next_cursor:
                break
            query = msgspec.structs.replace(query, start_after=page.next_cursor)
        self._members = {document.id: document.lsn for document in documents}
        return LiveChange("snapshot", documents=documents, lsn=lsn)

    def judge(self, change: DocumentChange, now: Fields | None, lsn: Lsn, seq: Offset) -> LiveChange | None:
        """What a change of the collection is to this query; None when it is nothing, or was in the snapshot. `now` is
        the document after it."""
        told = self._members.get(change.id)
        if told is not None and lsn <= told:
            return None
        deleted = now is None
        document = Document(self._query.collection, change.id, change.version, deleted, change.after, lsn)
        if now is not None and self._predicate(now):
            self._members[change.id] = Lsn(0)
            return LiveChange("insert" if told is None else "update", document, seq=seq, lsn=lsn)
        if told is None:
            return None
        del self._members[change.id]
        return LiveChange("delete", document, left=not deleted, seq=seq, lsn=lsn)


def expression_of(query: DocumentQuery, claims: str = "") -> filters.Expression:
    """What a query filters by, for who has these claims."""
    return filters.whole_filter(query.filters, query.filter, claims)


async def _all_rows(verbs: Verbs, database: str, collection: str) -> Rows:
    """All rows of a system collection that may be seen."""
    if not verbs.is_remote:
        return await list_rows(verbs.store, database, collection, verbs.clock.now())
    rows: Rows = {}
    query = DocumentQuery(collection=collection, limit=QUERY_LIMIT_MAX)
    while True:
        page = await find_all(verbs.store, QueryDocuments(database, query))
        rows |= {document.id: document.flat() for document in page}
        if not page.next_cursor:
            return rows
        query = msgspec.structs.replace(query, start_after=page.next_cursor)


async def follow_system(verbs: Verbs, database: str, query: DocumentQuery) -> AsyncGenerator[list[LiveChange], None]:
    """A live query over a system collection: a snapshot, then what differs from one look to the next."""
    predicate: Predicate = filters.predicate(expression_of(query))

    async def look() -> Rows:
        rows = await _all_rows(verbs, database, query.collection)
        return {name: row for name, row in rows.items() if predicate(row)}

    known = await look()
    yield [LiveChange("snapshot", documents=[document_of(row) for row in known.values()])]
    while True:
        await asyncio.sleep(SYSTEM_SECONDS)
        before, known = known, await through_outages(look)
        changes = [LiveChange("delete", document_of(before[name])) for name in before.keys() - known.keys()]
        for name, row in known.items():
            if name not in before:
                changes.append(LiveChange("insert", document_of(row)))
            elif not is_same_json(row, before[name]):
                changes.append(LiveChange("update", document_of(row)))
        yield changes


# ── the face ──


class Collection:
    """A collection of documents. Made by `hw.collection(name)`.

    >>> messages = hw.collection("rooms/r1/messages")
    >>> await messages.create({"text": "Hello"})
    """

    def __init__(self, verbs: Verbs, database: str, name: str) -> None:
        self._verbs = verbs
        self._database = database
        self.name = check_collection(name)

    @property
    def life(self) -> Life:
        """Whether it may be used now."""
        return self._verbs.life

    @verb
    async def get(self, id: str) -> Document | None:
        """The document; None when there is none, or not any more."""
        is_own = is_system(self.name)
        if is_own and not self._verbs.is_remote:
            row = await find_row(self._verbs.store, self._database, self.name, id, self._verbs.clock.now())
            return None if row is None else document_of(row)
        name = id if is_own else check_document_id(id)
        found = await self._verbs.store.ask(FindDocument(self._database, self.name, name))
        return None if found is None or found.deleted else found

    @verb
    async def create(self, data: Mapping[str, Any], *, id: str = "") -> Document:
        """Make a document, under an id that nobody has when none is given."""
        return await self._verbs.run(self.writes.create(data, id=id))

    @verb
    async def set(self, id: str, data: Mapping[str, Any], *, if_match: Conditions = ()) -> Document:
        """Make a document, or replace all of its fields, if the conditions hold."""
        return await self._verbs.run(self.writes.set(id, data, if_match=if_match))

    @verb
    async def update(self, id: str, data: Mapping[str, Any], *, if_match: Conditions = ()) -> Document:
        """Change fields of a document; those that are not named stay."""
        return await self._verbs.run(self.writes.update(id, data, if_match=if_match))

    @verb
    async def delete(self, id: str, *, if_match: Conditions = ()) -> Document:
        """Delete a document; its tombstone."""
        return await self._verbs.run(self.writes.delete(id, if_match=if_match))

    @verb
    async def query(
        self,
        where: str = "",
        *,
        filters: Conditions = (),
        order_by: Sequence[OrderBy | str] | str = (),
        limit: int = 100,
        start_after: str = "",
        show_deleted: bool = False,
    ) -> DocumentList:
        """Documents for which `where` (CEL text) and all `filters` hold, in order: `order_by="-n"` is by n, downwards.

        >>> await messages.query('author == "ada"', order_by="createdAt", limit=20)
        """
        query = DocumentQuery(
            collection=self.name,
            filters=as_conditions(filters),
            filter=where,
            order_by=orders_of(order_by),
            limit=limit,
            start_after=start_after,
            show_deleted=show_deleted,
        )
        asked = QueryDocuments(self._database, check_query(query))
        if is_system(self.name) and not self._verbs.is_remote:
            return await find_rows(self._verbs.store, asked, self._verbs.clock.now())
        return await find_all(self._verbs.store, asked)

    def follow(self, where: str = "", *, filters: Conditions = ()) -> Stream[LiveChange]:
        """A live query: a snapshot of the documents, then each that enters, changes or leaves, with no gap between.
        Raises Closed when Headwater is closed meanwhile.

        >>> async for change in messages.follow('author == "ada"'):
        ...     print(change.op, change.document)
        """
        self.life.check()
        query = check_query(DocumentQuery(collection=self.name, filters=as_conditions(filters), filter=where))
        if is_system(self.name):
            return Stream(follow_system(self._verbs, self._database, query))
        return Stream(LiveQuery(self._verbs, self._database, query).changes())

    @verb
    async def index(self, field: str) -> None:
        """Have an index on a field, so that queries by it do not look at every document. Documents that are there are
        taken in some at a time, and this is over when all are. Its values take 1,024 bytes at most: where a document
        has a longer one there is no index, and where there is an index no write may bring one."""
        while not (
            await self._verbs.run(IndexDocuments(database=self._database, pattern=self.name, field=field))
        ).ready:
            pass

    @verb
    async def drop_index(self, field: str) -> bool:
        """Have no index on a field any more; whether there was one."""
        operation = DropDocumentIndex(database=self._database, pattern=self.name, field=field)
        return bool((await self._verbs.run(operation)).count)

    @cached_property
    def writes(self) -> "Writes":
        """The writes as operations, for transactions."""
        return Writes(self._database, self.name, self._verbs.clock)


class Writes:
    """Writes to a collection, as operations, which are checked where they are handed in."""

    def __init__(self, database: str, collection: str, clock: Clock) -> None:
        self._place: dict[str, Any] = {"database": database, "collection": check_collection(collection)}
        self._clock = clock

    def create(self, data: Mapping[str, Any], *, id: str = "") -> CreateDocument:
        """Make a document."""
        return CreateDocument(**self._place, id=id or new_document_id(self._clock.now()), data=write_fields(data))

    def set(self, id: str, data: Mapping[str, Any], *, if_match: Conditions = ()) -> SetDocument:
        """Make or replace one."""
        conditions = check_conditions(if_match)
        return SetDocument(**self._place, id=id, data=write_fields(data), if_match=conditions)

    def update(self, id: str, data: Mapping[str, Any], *, if_match: Conditions = ()) -> UpdateDocument:
        """Change fields of one."""
        conditions = check_conditions(if_match)
        return UpdateDocument(**self._place, id=id, data=write_fields(data), if_match=conditions)

    def delete(self, id: str, *, if_match: Conditions = ()) -> DeleteDocument:
        """Delete one."""
        return DeleteDocument(**self._place, id=id, if_match=check_conditions(if_match))


class CollectionTogether:
    """A collection within a transaction: what is written here takes effect with everything else."""

    def __init__(self, writes: Writes, add: Add) -> None:
        self._writes = writes
        self._add = add

    def create(self, data: Mapping[str, Any], *, id: str = "") -> str:
        """Make a document when the block ends; its id."""
        operation = self._writes.create(data, id=id)
        self._add(operation)
        return operation.id

    def set(self, id: str, data: Mapping[str, Any], *, if_match: Conditions = ()) -> None:
        """Make or replace a document when the block ends."""
        self._add(self._writes.set(id, data, if_match=if_match))

    def update(self, id: str, data: Mapping[str, Any], *, if_match: Conditions = ()) -> None:
        """Change fields of a document when the block ends."""
        self._add(self._writes.update(id, data, if_match=if_match))

    def delete(self, id: str, *, if_match: Conditions = ()) -> None:
        """Delete a document when the block ends."""
        self._add(self._writes.delete(id, if_match=if_match))
