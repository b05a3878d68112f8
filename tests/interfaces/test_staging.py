"""Messages that wait in the users' own database, through `sqlite3`, SQLAlchemy and Django: with their rows or not."""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import headwater
import headwater.sync
from headwater import outbox
from headwater.errors import InvalidInput, InvalidName, InvalidOption, StoreForeign, StoreReplaced, TooLarge
from headwater.log.job_operations import NewJob
from headwater.log.operations import Clear
from headwater.stores.outbox import table
from tests.cli.program import Program

FOLDER = Path(__file__).parent
Shop = Callable[[], AbstractContextManager[Any]]


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")
    with closing(sqlite3.connect(path)) as connection:
        outbox.create_table(connection)
        outbox.create_table(connection)
        connection.execute("CREATE TABLE shop_orders (id INTEGER)")
        connection.commit()
    return path


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "headwater.db")) as opened:
        yield opened


@contextmanager
def plain_transaction(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection


@contextmanager
def sqlalchemy_session(path: str) -> Iterator[Any]:
    orm = pytest.importorskip("sqlalchemy.orm")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        with orm.Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_connection(path: str) -> Iterator[Any]:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def django_transaction(path: str) -> Iterator[Any]:
    from django.db import transaction

    wrapper = django_connection(path)
    try:
        with transaction.atomic(using=wrapper.alias):
            yield wrapper
    finally:
        wrapper.close()


def django_connection(path: str) -> Any:
    """A connection as Django's settings would make it."""
    import django
    from django.apps import apps
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(DATABASES={})
    if not apps.ready:
        django.setup()
    engine = {"ENGINE": "django.db.backends.sqlite3", "NAME": path}
    connections.databases["shop"] = {**connections.databases["default"], **engine}
    if hasattr(connections._connections, "shop"):
        delattr(connections._connections, "shop")
    return connections["shop"]


def insert(connection: Any, number: int) -> None:
    """A row of the user's own, each in the user's own way."""
    if hasattr(connection, "in_atomic_block"):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO shop_orders VALUES (%s)", [number])
    elif hasattr(connection, "exec_driver_sql") or hasattr(connection, "scalars"):
        text = pytest.importorskip("sqlalchemy").text
        connection.execute(text("INSERT INTO shop_orders VALUES (:id)"), {"id": number})
    else:
        connection.execute("INSERT INTO shop_orders VALUES (?)", (number,))


WAYS: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "sqlite3": plain_transaction,
    "SQLAlchemy session": sqlalchemy_session,
    "SQLAlchemy connection": sqlalchemy_connection,
    "Django": django_transaction,
}


def rows(path: str, table: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


async def drained(hw: headwater.Headwater, path: str) -> int:
    """How many rows a drain moved that had no trouble."""
    done = await outbox.drain(hw, lambda: sqlite3.connect(path))
    assert done == outbox.Drained(moved=done.moved)
    return done.moved


@pytest.mark.parametrize("way", WAYS)
async def test_rows_and_messages_commit_together(hw: headwater.Headwater, path: str, way: str) -> None:
    # In a thread, because Django refuses to work on an event loop.
    name = await asyncio.to_thread(insert_and_stage, WAYS[way], path)
    assert rows(path, "shop_orders") == [(7,)]
    assert await drained(hw, path) == 2
    (message,) = await hw.queue("orders").pop()
    about = (message.payload, message.partition, message.transaction_id, message.type)
    assert about == ({"id": 7}, "p", "t", "made")
    assert (await hw.jobs.show(name)).work.command == "true"
    assert rows(path, "headwater_outbox") == []
    assert await drained(hw, path) == 0


@pytest.mark.parametrize("way", WAYS)
async def test_rows_and_messages_roll_back_together(hw: headwater.Headwater, path: str, way: str) -> None:
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(insert_and_fail, WAYS[way], path)
    assert (rows(path, "shop_orders"), rows(path, "headwater_outbox")) == ([], [])
    assert await drained(hw, path) == 0
    assert await hw.queues() == []


def insert_and_stage(way: Callable[[str], AbstractContextManager[Any]], path: str) -> str:
    """The id of the job that was staged."""
    with way(path) as connection:
        insert(connection, 7)
        outbox.stage(connection, "orders", {"id": 7}, partition="p", transaction_id="t", type="made")
        (name,) = outbox.stage_jobs(connection, NewJob(command="true"))
    return name


def insert_and_fail(way: Callable[[str], AbstractContextManager[Any]], path: str) -> None:
    with way(path) as connection:
        insert(connection, 7)
        outbox.stage(connection, "orders", {"id": 7})
        raise ZeroDivisionError


async def test_messages_come_in_the_order_in_which_they_were_staged(hw: headwater.Headwater, path: str) -> None:
    with plain_transaction(path) as connection:
        for number in range(500):
            outbox.stage(connection, "orders", number, partition="p")
    assert await drained(hw, path) == 500
    messages = await hw.queue("orders").pop(batch=1_000)
    assert [message.payload for message in messages] == list(range(500))


async def test_one_that_was_moved_and_not_dropped_is_one_message(hw: headwater.Headwater, path: str) -> None:
    with plain_transaction(path) as connection:
        outbox.stage(connection, "orders", 1)
    copy = rows(path, "headwater_outbox")
    assert await drained(hw, path) == 1
    with plain_transaction(path) as connection:
        connection.executemany("INSERT INTO headwater_outbox VALUES (?, ?, ?, ?)", copy)
    assert await drained(hw, path) == 1
    assert len(await hw.queue("orders").pop(batch=10)) == 1


def test_a_staged_message_without_a_transaction_is_refused(path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(InvalidInput, match="begin your transaction first"):
            outbox.stage(connection, "orders", 1)
        connection.execute("BEGIN")
        outbox.stage(connection, "orders", 1)
        connection.execute("COMMIT")
    django = django_connection(path)
    with pytest.raises(InvalidInput, match="begin your transaction first"):
        outbox.stage(django, "orders", 1)
    django.close()
    assert len(rows(path, "headwater_outbox")) == 1


@pytest.mark.parametrize("as_session", [False, True], ids=["connection", "session"])
@pytest.mark.parametrize("of_the_engine", [False, True], ids=["of the connection", "of the engine"])
def test_a_staged_message_in_sqlalchemys_autocommit_is_refused(
    path: str, as_session: bool, of_the_engine: bool
) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    orm = pytest.importorskip("sqlalchemy.orm")
    engine = sqlalchemy.create_engine(
        f"sqlite:///{path}", **({"isolation_level": "AUTOCOMMIT"} if of_the_engine else {})
    )
    chosen = engine if of_the_engine else engine.execution_options(isolation_level="AUTOCOMMIT")
    with orm.Session(chosen) if as_session else chosen.connect() as connection:
        with pytest.raises(InvalidInput, match="begin your transaction first"):
            outbox.stage(connection, "orders", 1)
        connection.rollback()
    engine.dispose()
    assert rows(path, "headwater_outbox") == []


def test_transactions_that_sqlalchemy_is_taught_to_begin_by_hand_are_taken(path: str) -> None:
    """The recipe of its documentation for SQLite: the driver is told to begin none, and an event begins them."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")

    def leave_alone(connection: Any, _: object) -> None:
        connection.isolation_level = None

    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    sqlalchemy.event.listen(engine, "connect", leave_alone)
    sqlalchemy.event.listen(engine, "begin", begin)
    with engine.begin() as connection:
        outbox.stage(connection, "orders", 1)
    with engine.connect() as connection:
        outbox.stage(connection, "orders", 2)
        connection.rollback()
    engine.dispose()
    assert len(rows(path, "headwater_outbox")) == 1


def as_dictionary(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    """The recipe of Python's documentation."""
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


async def test_rows_that_the_users_connection_makes_its_own_way_are_staged_and_drained(
    hw: headwater.Headwater, path: str
) -> None:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path)
        connection.row_factory = as_dictionary
        return connection

    with closing(connect()) as connection, connection:
        outbox.stage(connection, "orders", {"id": 7})
        assert outbox.list_set_aside(connection) == []
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
    assert (await outbox.drain(hw, connect)).moved == 1


async def test_a_raw_connection_of_sqlalchemy_is_staged_through_and_drained(hw: headwater.Headwater, path: str) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with closing(engine.raw_connection()) as connection:
        outbox.stage(connection, "orders", {"id": 7})
        connection.commit()
    assert (await outbox.drain(hw, engine.raw_connection)).moved == 1
    engine.dispose()


def test_a_database_without_the_table_is_told_how_to_make_it(tmp_path: Path) -> None:
    with plain_transaction(str(tmp_path / "empty.db")) as connection:
        connection.execute("CREATE TABLE shop_orders (id INTEGER)")
        with pytest.raises(StoreForeign, match=r"outbox\.create_table\(connection\)"):
            outbox.stage(connection, "orders", 1)


@pytest.mark.skipif(sqlite3.sqlite_version_info >= (3, 51, 3), reason="this interpreter's SQLite is sound")
def test_a_file_that_the_interpreters_sqlite_could_damage_is_refused_with_the_line_to_write(path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        with pytest.raises(InvalidInput, match=r"PRAGMA journal_mode = DELETE"):
            outbox.stage(connection, "orders", 1)
        connection.execute("ROLLBACK")
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN")
        outbox.stage(connection, "orders", 1)
        connection.execute("COMMIT")


@pytest.mark.parametrize(
    ("queue", "payload", "options", "error"),
    [
        ("", 1, {}, InvalidName),
        ("headwater/jobs", 1, {}, InvalidInput),
        ("orders", 1, {"partition": "a b"}, InvalidName),
        ("orders", 1, {"database": ""}, InvalidName),
        ("orders", "x" * 300_000, {}, TooLarge),
        ("orders", object(), {}, InvalidInput),
        ("orders", 1, {"transaction_id": "x" * 10_000}, InvalidInput),
    ],
)
def test_bad_input_is_refused_before_it_is_staged(
    path: str, queue: str, payload: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    with plain_transaction(path) as connection, pytest.raises(error):
        outbox.stage(connection, queue, payload, **options)
    assert rows(path, "headwater_outbox") == []


async def test_a_row_that_is_refused_for_good_is_set_aside_and_holds_nobody_up(
    hw: headwater.Headwater, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with plain_transaction(path) as connection:
        connection.execute("INSERT INTO headwater_outbox (kind, body) VALUES ('shrug', '{}')")
        connection.execute("INSERT INTO headwater_outbox (kind, body) VALUES ('push', '{\"queue\": 7}')")
        outbox.stage(connection, "orders", "good")
    assert await outbox.drain(hw, lambda: sqlite3.connect(path)) == outbox.Drained(moved=1, set_aside=2)
    assert [(row[1], row[3][:10]) for row in rows(path, "headwater_outbox")] == [
        ("shrug", "no such ki"),
        ("push", "it cannot "),
    ]
    assert [record.getMessage().split(" was")[0] for record in caplog.records] == [
        "row 1 of headwater_outbox",
        "row 2 of headwater_outbox",
    ]
    assert [message.payload for message in await hw.queue("orders").pop(batch=9)] == ["good"]


async def test_trouble_that_may_pass_leaves_everything_where_it_is(hw: headwater.Headwater, path: str) -> None:
    await hw.queue("orders").configure(size_max=1)
    await hw.queue("orders").push("first")
    with plain_transaction(path) as connection:
        outbox.stage(connection, "orders", "second")
    left = outbox.Left("main", "orders", 1, "queue_full: queue 'orders' holds 1 waiting records of at most 1")
    assert await outbox.drain(hw, lambda: sqlite3.connect(path)) == outbox.Drained(left=(left,))
    assert len(rows(path, "headwater_outbox")) == 1
    await hw.committer.submit(Clear(queue="orders"))
    assert await drained(hw, path) == 1
    with plain_transaction(path) as connection:
        outbox.stage(connection, "others", "third")
    Path(hw.store.traits.location).unlink()
    with pytest.raises(StoreReplaced):
        await drained(hw, path)
    assert len(rows(path, "headwater_outbox")) == 1


def test_the_command_drains(tmp_path: Path, path: str) -> None:
    program = Program(tmp_path)
    program.expect(0, "push", "others", "1")
    with plain_transaction(path) as connection:
        outbox.stage(connection, "orders", {"id": 7})
    assert program.expect(0, "outbox", "drain", "shop.db").out == "moved 1 row to the log\n"
    assert program.expect(0, "outbox", "drain", "shop.db", "--json").document() == {
        "moved": 0,
        "duplicates": 0,
        "set_aside": 0,
        "left": [],
    }
    assert program.expect(0, "pop", "orders", "--json").document()["payload"] == {"id": 7}
    assert "there is no file" in program.expect(2, "outbox", "drain", "missing.db").err


def test_the_command_makes_no_store_that_is_missing(tmp_path: Path, path: str) -> None:
    """A name that is misspelt would take the rows from the user's database to where nobody looks."""
    program = Program(tmp_path)
    with plain_transaction(path) as connection:
        outbox.stage(connection, "orders", {"id": 7})
    program.expect(3, "outbox", "drain", "shop.db", "--store", "misspelt.db")
    assert not (tmp_path / "misspelt.db").exists()
    assert len(rows(path, "headwater_outbox")) == 1


def start(program: str, *arguments: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, str(FOLDER / program), *arguments], stdout=subprocess.PIPE, text=True, cwd=FOLDER.parent.parent
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


async def test_kills_of_the_shop_and_of_the_drain_lose_and_double_nothing(tmp_path: Path, path: str) -> None:
    """Both are killed again and again; in the end every order that was committed has one message, in order."""
    chance = random.Random(20261116)
    store = str(tmp_path / "headwater.db")
    for round in range(8):
        processes = [start("staging_process.py", path, str(round)), start("draining_process.py", path, store)]
        try:
            await asyncio.sleep(chance.uniform(0.05, 0.3))
        finally:
            for process in chance.sample(processes, 2):
                process.send_signal(signal.SIGKILL)
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
    async with headwater.open(store) as hw:
        await drained(hw, path)
        orders = [row[0] for row in rows(path, "shop_orders")]
        found: list[int] = []
        while messages := await hw.queue("orders").pop(batch=1_000, auto_ack=True):
            found += [message.payload["id"] for message in messages]
    assert orders
    assert found == orders


@pytest.mark.parametrize("wrong", [None, "shop.db", object()], ids=["nothing", "a path", "something else"])
def test_what_is_no_connection_is_told_so(wrong: object) -> None:
    with pytest.raises(InvalidOption, match="sqlite3, a connection or session of SQLAlchemy"):
        outbox.stage(wrong, "orders", 1)


async def test_a_drain_needs_a_store_that_is_opened_with_async(tmp_path: Path) -> None:
    with (
        headwater.sync.open(str(tmp_path / "headwater.db")) as hw,
        pytest.raises(InvalidOption, match="async"),
    ):
        await outbox.drain(hw, lambda: sqlite3.connect(tmp_path / "shop.db"))  # type: ignore[arg-type]


async def test_whatever_the_user_s_connect_raises_ends_the_drain(hw: headwater.Headwater) -> None:
    """A future takes no `StopIteration`: the drain would wait for ever."""

    def connect() -> sqlite3.Connection:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(outbox.drain(hw, connect), 10)


async def test_the_file_of_a_store_is_no_place_to_wait_in_and_nobody_is_told_to_change_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "is_sound", lambda: False)
    async with headwater.open(str(tmp_path / "log.db")) as hw:
        await hw.queue("orders").push(1)
    with (
        closing(sqlite3.connect(tmp_path / "log.db")) as connection,
        pytest.raises(InvalidInput, match="file of a store") as refused,
    ):
        outbox.create_table(connection)
    assert "journal_mode" not in str(refused.value)
