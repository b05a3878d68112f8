"""Queries of documents go along an index, however many there are: by the plans of SQLite, and by counting its steps."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.clock import SystemClock
from headwater.config import load_config
from headwater.model.document import Condition, OrderBy
from headwater.model.order_key import order_key
from headwater.stores.codec import Codec
from headwater.stores.document_questions import DocumentPage, DocumentQuery, QueryDocuments
from headwater.stores.sqlite.connection import SqliteConnection, connect
from headwater.stores.sqlite.store import open_file
from headwater.stores.tables.answers import Answers

READING = [
    "find_document",
    "documents_by_id",
    "documents_by_id_back",
    "documents_after_commit",
    "documents_with_key",
    "documents_with_key_back",
    "documents_from_key",
    "documents_from_key_back",
    "documents_to_index",
    "next_keyed_collection",
]
STEPS = 10


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[SqliteConnection]:
    async def make() -> None:
        store = open_file(str(tmp_path / "log.db"), load_config({}))
        await store.open()
        await store.close()

    asyncio.run(make())
    opened = connect(str(tmp_path / "log.db"), cache_bytes=10_000_000)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", READING)
def test_a_statement_searches_and_neither_scans_nor_sorts(connection: SqliteConnection, name: str) -> None:
    statement = getattr(connection.sql, name)
    rows = connection.execute("EXPLAIN QUERY PLAN " + statement, ("",) * statement.count("?"))
    plan = [str(row[3]) for row in rows]
    assert plan
    assert all(step.startswith("SEARCH") for step in plan), plan


def fill(connection: SqliteConnection, first: int, last: int) -> None:
    """Documents with a field `n` that few share, and its index."""
    rows, keys = [], []
    for number in range(first, last):
        name, n = f"d{number:07}", number % 1_000 if number < 1_000 else number
        rows.append(("main", "things", name, 1, 0, f'{{"id":"{name}","n":{n}}}', 1))
        keys.append(("main", "things", "n", order_key(n), name))
    with connection:
        connection.executemany(connection.sql.put_document, rows)
        connection.executemany(connection.sql.add_document_key, keys)
        connection.execute(connection.sql.put_document_index, ("main", "things", "n", 1, "", ""))


def steps_of(connection: SqliteConnection, query: DocumentQuery) -> tuple[int, DocumentPage]:
    """How many steps SQLite's machine takes for a query, in tens."""
    taken = 0

    def count() -> bool:
        nonlocal taken
        taken += 1
        return False

    answers = Answers(connection, Codec(), SystemClock())
    connection.set_progress_handler(count, STEPS)
    page = answers.answer(QueryDocuments("main", query))
    connection.set_progress_handler(None)
    return taken, page


QUERIES = [
    DocumentQuery(collection="things", filters=[Condition("n", "==", 7)]),
    DocumentQuery(collection="things", filters=[Condition("n", "in", [7, 8])]),
    DocumentQuery(collection="things", filters=[Condition("n", ">=", 3), Condition("n", "<", 6)]),
    DocumentQuery(collection="things", order_by=[OrderBy("n")], limit=3),
]


@pytest.mark.parametrize("query", QUERIES, ids=["equal", "one of", "between", "in order"])
def test_a_query_by_an_indexed_field_takes_as_many_steps_among_many_as_among_few(
    connection: SqliteConnection, query: DocumentQuery
) -> None:
    fill(connection, 0, 1_000)
    among_few, page = steps_of(connection, query)
    fill(connection, 1_000, 50_000)
    among_many, same = steps_of(connection, query)
    assert [one.id for one in page.documents] == [one.id for one in same.documents]
    assert (len(same.documents), same.scanned) == (len(page.documents), page.scanned)
    assert 1 <= same.scanned <= 3
    assert among_many <= among_few + 1
