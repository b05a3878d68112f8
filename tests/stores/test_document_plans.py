"""Queries of documents go along an index, however many there are: by the plans of SQLite, and by counting its steps."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import headwater
from headwater.clock import SystemClock
from headwater.config import load_config
from headwater.doors.health import health
from headwater.doors.site import Site
from headwater.doors.wire import Request
from headwater.model.document import Condition, OrderBy
from headwater.model.order_key import order_key
from headwater.model.principal import OWNER
from headwater.stores.codec import Codec
from headwater.stores.document_questions import DocumentPage, DocumentQuery, QueryDocuments
from headwater.stores.sqlite.connection import SqliteConnection, connect
from headwater.stores.sqlite.reader_thread import ReaderThread
from headwater.stores.sqlite.store import open_file
from headwater.stores.tables.answers import Answers
from headwater.stores.tables.document_answers import QUICK_BYTES, QUICK_RANGES, QUICK_ROWS, DocumentAnswers

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


# ── what is answered while everybody waits ──

MORE_QUERIES = [
    *QUERIES,
    DocumentQuery(collection="things", filters=[Condition("n", "==", 7)], filter="n < 9", limit=1),
    DocumentQuery(collection="things", filters=[Condition("n", "<", 50)], order_by=[OrderBy("id", "desc")], limit=7),
    DocumentQuery(collection="things", filters=[Condition("n", ">", 990)], order_by=[OrderBy("n", "desc")], limit=4),
]


@pytest.mark.parametrize("query", MORE_QUERIES)
def test_what_is_answered_quickly_is_what_is_answered(connection: SqliteConnection, query: DocumentQuery) -> None:
    fill(connection, 0, 1_000)
    asked, answers = QueryDocuments("main", query), DocumentAnswers(connection)
    quickly, calmly = answers.query_quickly(asked), answers.query(asked)
    assert quickly is not None
    assert quickly.documents == calmly.documents != []
    assert (quickly.position, quickly.is_ordered, quickly.scanned) == ("", calmly.is_ordered, calmly.scanned)


LONG_QUERIES = {
    "a scan": DocumentQuery(collection="things", filters=[Condition("m", "==", 7)]),
    "by id": DocumentQuery(collection="things", limit=1),
    "tombstones": DocumentQuery(collection="things", filters=[Condition("n", "==", 7)], show_deleted=True),
    "many": DocumentQuery(collection="things", filters=[Condition("n", ">", 0)], limit=QUICK_ROWS + 1),
    "few of many": DocumentQuery(collection="things", filters=[Condition("n", ">", 0)], filter="m == 1", limit=1),
    "many keys": DocumentQuery(collection="things", filters=[Condition("n", "in", list(range(QUICK_RANGES + 1)))]),
    "a long text": DocumentQuery(
        collection="things", filters=[Condition("n", "==", 7)], filter=" || ".join(["n < 9"] * 100)
    ),
    "many conditions": DocumentQuery(collection="things", filters=[Condition("n", "==", 7)] * 20),
}


@pytest.mark.parametrize("query", LONG_QUERIES.values(), ids=LONG_QUERIES)
def test_what_may_take_long_is_not_answered_while_everybody_waits(
    connection: SqliteConnection, query: DocumentQuery
) -> None:
    fill(connection, 0, 1_000)
    assert DocumentAnswers(connection).query_quickly(QueryDocuments("main", query)) is None
    assert not reads(connection)


def test_large_documents_are_not_read_while_everybody_waits(connection: SqliteConnection) -> None:
    """No more than one beyond what may be; and nothing keeps the file as it was then."""
    body, count = f'{{"id":"x","n":1,"text":"{"x" * (QUICK_BYTES // 2)}"}}', 200
    with connection:
        connection.execute(connection.sql.put_document_index, ("main", "things", "n", 1, "", ""))
        names = [f"d{number:03}" for number in range(count)]
        rows = [("main", "things", name, 1, 0, body, 1) for name in names]
        connection.executemany(connection.sql.put_document, rows)
        keys = [("main", "things", "n", order_key(1), name) for name in names]
        connection.executemany(connection.sql.add_document_key, keys)
    asked = QueryDocuments("main", DocumentQuery(collection="things", filters=[Condition("n", "==", 1)]))
    read: list[str] = []

    def note(cursor: apsw.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        read.append(str(row[0]))
        return row

    connection.row_trace = note
    assert DocumentAnswers(connection).query_quickly(asked) is None
    connection.row_trace = None
    assert [name for name in read if name.startswith("d")] == ["d000", "d001"]
    assert not reads(connection)


def reads(connection: SqliteConnection) -> bool:
    """Whether a statement of a connection is not read to its end."""
    return connection.txn_state() != apsw.SQLITE_TXN_NONE


async def test_a_small_query_along_an_index_does_not_wait_for_the_thread_that_reads(tmp_path: Path) -> None:
    """A scan does: it may take long."""
    async with headwater.open(str(tmp_path / "log.db"), housekeeping=False) as hw:
        notes = hw.collection("notes")
        await notes.index("n")
        await notes.create({"n": 1, "m": 1}, id="a")
        go_on = threading.Event()
        thread: ReaderThread = hw.queues_service.store._reads._thread  # type: ignore[attr-defined]
        busy = asyncio.ensure_future(thread.run(go_on.wait))
        try:
            async with asyncio.timeout(20):
                scan = asyncio.ensure_future(notes.query("m == 1"))
                assert [one.id for one in await notes.query("n == 1")] == ["a"]
                assert [await notes.get(name) is None for name in ("a", "b")] == [False, True]
                await asyncio.sleep(0)
                assert not scan.done()
        finally:
            go_on.set()
        assert await busy
        assert [one.id for one in await scan] == ["a"]


async def test_one_answer_looks_at_so_much_and_others_come_in_between(tmp_path: Path) -> None:
    """What is bounded is what is searched, not only how many documents: large ones with a dear filter are few."""
    heavy = " || ".join(f'p.contains("q{one}x")' for one in range(62))
    async with headwater.open(str(tmp_path / "log.db"), housekeeping=False) as hw:
        for number in range(12):
            await hw.collection("c").set(f"d{number:02}", {"p": "q" * 100_000, "n": -number})
        for order in ((), (OrderBy("n"),)):
            query = DocumentQuery(collection="c", filter=f'{heavy} || id != ""', order_by=order)
            asked, found, visits = QueryDocuments("main", query), [], 0
            while True:
                page = await hw.queues_service.store.ask(asked)
                visits += 1
                found += [document.id for document in page.documents]
                assert page.scanned <= 2
                if not page.position:
                    break
                asked = msgspec.structs.replace(asked, position=page.position)
            assert sorted(found) == [f"d{number:02}" for number in range(12)]
            assert visits >= 6
        ordered = await hw.collection("c").query(f'{heavy} || id != ""', order_by="n", limit=3)
        assert [document.id for document in ordered] == ["d11", "d10", "d09"]


async def test_whether_a_store_is_well_does_not_depend_on_what_is_read(tmp_path: Path) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait()

    async with headwater.open(str(tmp_path / "log.db"), housekeeping=False) as hw:
        await hw.collection("c").set("a", {})
        store = hw.queues_service.store
        held = asyncio.ensure_future(store._reads._thread.run(hold))  # type: ignore[attr-defined]
        await asyncio.to_thread(begun.wait)
        site = Site(hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer, "test")
        try:
            answer = await health(site, Request(method="GET", path="/health", principal=OWNER))
        finally:
            go_on.set()
        assert answer.status == 200
        assert b'"lsn"' in answer.body
        await held
