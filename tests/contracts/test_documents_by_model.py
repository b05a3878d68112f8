"""Random commits of documents over every store and over a dictionary: answers, rows, the log and queries agree."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.config import load_config
from headwater.errors import HeadwaterError
from headwater.log.document_operations import (
    CreateDocument,
    DeleteDocument,
    DropDocumentIndex,
    IndexDocuments,
    SetDocument,
    UpdateDocument,
)
from headwater.log.operations import Operation, Transaction
from headwater.model.document import NULL, Condition, OrderBy, own_fields
from headwater.stores.document_questions import DocumentQuery
from headwater.stores.open import open_store
from tests.contracts.clock import FakeClock
from tests.contracts.documents import ask_page, changes, raw
from tests.contracts.factories import FACTORIES
from tests.contracts.log import Log

COLLECTIONS = ["a", "a/x/b"]
VALUES = [None, False, True, 0, 1, 1.5, -2, 2**60, 2**60 + 1, "", "text", "z"]
FIELDS = ["n", "m"]


@dataclass
class Row:
    version: int
    deleted: bool
    fields: dict[str, Any]


@dataclass
class Model:
    """What documents are, as slowly and plainly as can be."""

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    told: dict[str, list[tuple[str, str, int, Any, Any]]] = field(default_factory=dict)

    def apply(self, operation: Operation) -> str | int:
        """The version that a write makes, or the code of its error."""
        if isinstance(operation, Transaction):
            return self._together(operation)
        if not isinstance(operation, CreateDocument | SetDocument | UpdateDocument | DeleteDocument):
            return ""
        row = self.rows.get((operation.collection, operation.id))
        there = row if row is not None and not row.deleted else None
        if isinstance(operation, CreateDocument) and there:
            return "document_exists"
        if isinstance(operation, UpdateDocument | DeleteDocument) and there is None:
            return "document_missing"
        if not isinstance(operation, CreateDocument) and not all(_holds(one, there) for one in operation.if_match):
            return "precondition_failed"
        return self._write(operation, row, there)

    def _write(
        self,
        operation: CreateDocument | SetDocument | UpdateDocument | DeleteDocument,
        row: Row | None,
        there: Row | None,
    ) -> int:
        deleted = isinstance(operation, DeleteDocument)
        fields = {} if isinstance(operation, DeleteDocument) else msgspec.json.decode(operation.data)
        if isinstance(operation, UpdateDocument) and there:
            fields = there.fields | fields
        version = row.version + 1 if row else 1
        self.rows[operation.collection, operation.id] = Row(version, deleted, fields)
        op = "delete" if deleted else "update" if there else "insert"
        before = there.fields if there else None
        self.told.setdefault(operation.collection, []).append((op, operation.id, version, before, fields))
        return version

    def _together(self, transaction: Transaction) -> str | int:
        rows, told = dict(self.rows), {name: list(entries) for name, entries in self.told.items()}
        for step in transaction.operations:
            answer = self.apply(step)
            if isinstance(answer, str) and answer:
                self.rows, self.told = rows, told
                return answer
        return ""

    def find(self, query: DocumentQuery) -> list[str]:
        """The ids that a query finds."""
        found = []
        for (collection, name), row in self.rows.items():
            shown = query.show_deleted or not row.deleted
            if collection == query.collection and shown and all(_holds(one, row) for one in query.filters):
                found.append((name, row))
        last = query.order_by[-1].direction if query.order_by else "asc"
        found.sort(key=lambda one: one[0], reverse=last == "desc")
        for by in reversed(query.order_by):
            found.sort(key=lambda one: _rank(one[1].fields.get(by.field)), reverse=by.direction == "desc")
        return [name for name, _ in found][: query.limit]


def _rank(value: Any) -> tuple[int, Any]:
    """Null, false, true, numbers, texts."""
    if value is None or isinstance(value, bool):
        return (0 if value is None else 1 + value, 0)
    return (3, value) if isinstance(value, int | float) else (4, value)


def _holds(condition: Condition, row: Row | None) -> bool:
    fields: dict[str, Any] = {} if row is None else {**row.fields, "version": row.version}
    mine, other = _rank(fields.get(condition.field)), _rank(condition.value)
    if condition.op == "==":
        return mine == other
    return mine[0] == other[0] and (mine > other if condition.op == ">" else mine <= other)


# ── what is drawn ──

values = st.sampled_from(VALUES)
fields = st.dictionaries(st.sampled_from(FIELDS), values, min_size=1, max_size=2)
orderable = st.sampled_from([value for value in VALUES if value is not None and not isinstance(value, bool)])
conditions = st.one_of(
    st.builds(Condition, st.sampled_from(FIELDS), st.just("=="), values),
    st.builds(Condition, st.sampled_from(FIELDS), st.sampled_from([">", "<="]), orderable),
)
if_matches = st.lists(
    st.one_of(st.builds(Condition, st.just("version"), st.just("=="), st.integers(1, 3)), conditions), max_size=1
)
places = {"collection": st.sampled_from(COLLECTIONS), "id": st.sampled_from(["1", "2", "3", "ü", "z|z"])}
writes = st.one_of(
    st.builds(CreateDocument, **places, data=fields.map(raw)),
    st.builds(SetDocument, **places, data=fields.map(raw), if_match=if_matches),
    st.builds(UpdateDocument, **places, data=fields.map(raw), if_match=if_matches),
    st.builds(DeleteDocument, **places, if_match=if_matches),
)
indexing = st.one_of(
    st.builds(IndexDocuments, pattern=st.sampled_from(["*", "a"]), field=st.sampled_from(FIELDS), limit=st.just(2)),
    st.builds(DropDocumentIndex, pattern=st.sampled_from(["*", "a"]), field=st.sampled_from(FIELDS)),
)
operations = st.one_of(
    writes, writes, writes, indexing, st.builds(Transaction, operations=st.lists(writes, min_size=1, max_size=3))
)
commits = st.lists(st.tuples(st.integers(0, 1), st.lists(operations, min_size=1, max_size=4)), min_size=1, max_size=12)
orders = st.lists(st.builds(OrderBy, st.sampled_from(FIELDS), st.sampled_from(["asc", "desc"])), max_size=2)
queries = st.lists(
    st.builds(
        DocumentQuery,
        collection=st.sampled_from(COLLECTIONS),
        filters=st.lists(conditions, max_size=2),
        order_by=orders,
        limit=st.sampled_from([1, 2, 100]),
        show_deleted=st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


def answer_of(result: Any) -> Any:
    if isinstance(result, HeadwaterError):
        return result.code
    return getattr(result, "version", "")


async def compare(factory: Any, taken: Any, asked: list[DocumentQuery]) -> None:
    clock, model = FakeClock(), Model()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        address = await stack.enter_async_context(factory(Path(folder)))
        logs = []
        for _ in range(2):
            store = open_store(address, load_config({}), clock)
            await store.open()
            stack.push_async_callback(store.close)
            logs.append(Log(store, clock))
        for which, steps in taken:
            clock.advance(1)
            # A commit applies transactions after everything else.
            order = [*(one for one in steps if not isinstance(one, Transaction))]
            order += [one for one in steps if isinstance(one, Transaction)]
            results = await logs[which].results(*order)
            assert list(map(answer_of, results)) == list(map(model.apply, order))
        await check(logs[0], model, asked)
        # Now with all indexes, to the end.
        for name in FIELDS:
            while not (await logs[1].run(IndexDocuments(pattern="*", field=name))).ready:
                pass
        await check(logs[0], model, asked)


async def check(log: Log, model: Model, asked: list[DocumentQuery]) -> None:
    for collection in COLLECTIONS:
        page = await ask_page(log, collection=collection, show_deleted=True)
        shown = {one.id: Row(one.version, one.deleted, one.data) for one in page.documents}
        assert shown == {name: row for (place, name), row in model.rows.items() if place == collection}
        assert list(told(await changes(log, collection))) == model.told.get(collection, [])
    for query in asked:
        found = await ask_page(log, **msgspec.structs.asdict(query))
        assert [one.id for one in found.documents] == model.find(query), query


def told(found: list[Any]) -> Iterator[tuple[str, str, int, Any, Any]]:
    for change in found:
        before = None if change.before == NULL else own_fields(msgspec.json.decode(change.before))
        yield change.op, change.id, change.version, before, own_fields(msgspec.json.decode(change.after))


@pytest.mark.timeout(600 if settings.get_current_profile_name() == "ci" else 0)
@pytest.mark.parametrize("name", FACTORIES)
def test_documents_are_what_the_model_says(name: str) -> None:
    @settings(max_examples=max(settings().max_examples // 4, 1))
    @given(taken=commits, asked=queries)
    def run(taken: Any, asked: list[DocumentQuery]) -> None:
        asyncio.run(compare(FACTORIES[name], taken, asked))

    run()
    assert name in FACTORIES
