"""Messages that wait in a PostgreSQL database of the users', through psycopg, SQLAlchemy and Django: with their rows,
in the order of their commits, and without holding up anybody else who appends."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import headwater
from headwater import outbox
from headwater.errors import InvalidInput, InvalidOption, StoreForeign
from headwater.log.job_operations import NewJob
from headwater.model.outbox import Verdicts
from headwater.stores.outbox.table import Table
from tests.cli.program import Program
from tests.postgres_server import USER, Server
from tests.postgres_server import server as server_of_this_process
from tests.waiting import expect_soon


@pytest.fixture(scope="module")
def server() -> Server:
    return server_of_this_process()


class Shop:
    """A database of the users': its own place on the server that the store is on, too."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.schema = f"shop_{server.new_schema()}"
        with server.connect() as connection:
            connection.execute(f"CREATE SCHEMA {self.schema}".encode())
        with self.connect() as connection:
            outbox.create_table(connection)
            outbox.create_table(connection)
            connection.execute("CREATE TABLE shop_orders (id INTEGER)")

    @property
    def about(self) -> dict[str, str]:
        """Where it is, as libpq is told."""
        options = f"-csearch_path={self.schema}"
        return {"host": str(self.server.folder), "user": USER, "dbname": "postgres", "options": options}

    @property
    def conninfo(self) -> str:
        return psycopg.conninfo.make_conninfo("", **self.about)

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self.server.folder}&options=-csearch_path%3D{self.schema}"

    def connect(self, **settings: Any) -> psycopg.Connection:
        """A connection of the users' own."""
        return psycopg.Connection.connect(self.conninfo, **settings)

    def rows(self, table: str) -> list[Any]:
        with self.connect() as connection:
            return connection.execute(f"SELECT * FROM {table} ORDER BY 1".encode()).fetchall()


@pytest.fixture
def shop(server: Server) -> Shop:
    return Shop(server)


@pytest.fixture
async def hw(server: Server) -> AsyncIterator[headwater.Headwater]:
    """A store in the same database."""
    async with headwater.open(server.address(server.new_schema()), housekeeping=False) as opened:
        yield opened


@contextmanager
def plain_transaction(shop: Shop) -> Iterator[Any]:
    with shop.connect() as connection:
        yield connection


@contextmanager
def own_rows(shop: Shop) -> Iterator[Any]:
    """Transactions begun by hand, rows as dictionaries."""
    with shop.connect(autocommit=True, row_factory=dict_row) as connection, connection.transaction():
        yield connection


@contextmanager
def own_cursors(shop: Shop) -> Iterator[Any]:
    """Statements that write their places for values in another way."""
    with shop.connect(cursor_factory=psycopg.RawCursor) as connection:
        yield connection


@contextmanager
def sqlalchemy_engine(shop: Shop) -> Iterator[Any]:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine("postgresql+psycopg://", connect_args=shop.about)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_session(shop: Shop) -> Iterator[Any]:
    orm = pytest.importorskip("sqlalchemy.orm")
    with sqlalchemy_engine(shop) as engine, orm.Session(engine) as session, session.begin():
        yield session


@contextmanager
def sqlalchemy_connection(shop: Shop) -> Iterator[Any]:
    with sqlalchemy_engine(shop) as engine, engine.begin() as connection:
        yield connection


@contextmanager
def django_transaction(shop: Shop) -> Iterator[Any]:
    from django.db import transaction

    wrapper = django_connection(shop)
    try:
        with transaction.atomic(using=wrapper.alias):
            yield wrapper
    finally:
        wrapper.close()


def django_connection(shop: Shop) -> Any:
    """A connection as Django's settings would make it."""
    import django
    from django.apps import apps
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(DATABASES={})
    if not apps.ready:
        django.setup()
    about = shop.about
    engine = {"ENGINE": "django.db.backends.postgresql", "NAME": about["dbname"], "USER": USER, "HOST": about["host"]}
    options = {"OPTIONS": {"options": about["options"]}}
    connections.databases["shop"] = {**connections.databases["default"], **engine, **options}
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
        connection.execute(f"INSERT INTO shop_orders VALUES ({number})".encode())


Way = Callable[[Shop], AbstractContextManager[Any]]
WAYS: dict[str, Way] = {
    "psycopg": plain_transaction,
    "psycopg, rows as dictionaries": own_rows,
    "psycopg, raw cursors": own_cursors,
    "SQLAlchemy session": sqlalchemy_session,
    "SQLAlchemy connection": sqlalchemy_connection,
    "Django": django_transaction,
}


async def drained(hw: headwater.Headwater, shop: Shop) -> int:
    """How many rows a drain moved that had no trouble."""
    done = await outbox.drain(hw, shop.connect)
    assert done == outbox.Drained(moved=done.moved)
    return done.moved


def insert_and_stage(way: Way, shop: Shop) -> str:
    """The id of the job that was staged."""
    with way(shop) as connection:
        insert(connection, 7)
        outbox.stage(connection, "orders", {"id": 7}, partition="p", transaction_id="t", type="made")
        (name,) = outbox.stage_jobs(connection, NewJob(command="true"))
    return name


def insert_and_fail(way: Way, shop: Shop) -> None:
    with way(shop) as connection:
        insert(connection, 7)
        outbox.stage(connection, "orders", {"id": 7})
        raise ZeroDivisionError


@pytest.mark.parametrize("way", WAYS)
async def test_rows_and_messages_commit_together(hw: headwater.Headwater, shop: Shop, way: str) -> None:
    # In a thread, because Django refuses to work on an event loop.
    name = await asyncio.to_thread(insert_and_stage, WAYS[way], shop)
    assert shop.rows("shop_orders") == [(7,)]
    assert await drained(hw, shop) == 2
    (message,) = await hw.queue("orders").pop()
    about = (message.payload, message.partition, message.transaction_id, message.type)
    assert about == ({"id": 7}, "p", "t", "made")
    assert (await hw.jobs.show(name)).work.command == "true"
    assert shop.rows("headwater_outbox") == []
    assert await drained(hw, shop) == 0


@pytest.mark.parametrize("way", WAYS)
async def test_rows_and_messages_roll_back_together(hw: headwater.Headwater, shop: Shop, way: str) -> None:
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(insert_and_fail, WAYS[way], shop)
    assert (shop.rows("shop_orders"), shop.rows("headwater_outbox")) == ([], [])
    assert await drained(hw, shop) == 0
    assert await hw.queues() == []


async def payloads(hw: headwater.Headwater) -> list[Any]:
    return [message.payload for message in await hw.queue("orders").pop(batch=1_000, auto_ack=True)]


async def test_a_long_transaction_of_the_users_holds_up_nobody_who_appends(hw: headwater.Headwater, shop: Shop) -> None:
    with shop.connect() as long, shop.connect() as short:
        outbox.stage(long, "orders", "long", partition="p")
        await hw.queue("orders").push("pushed", partition="p")
        outbox.stage(short, "orders", "short", partition="p")
        short.commit()
        assert await drained(hw, shop) == 1
        assert await payloads(hw) == ["pushed", "short"]
        long.commit()
    assert await drained(hw, shop) == 1
    assert await payloads(hw) == ["long"]


async def test_messages_that_were_committed_meanwhile_come_in_the_order_in_which_they_were_staged(
    hw: headwater.Headwater, shop: Shop
) -> None:
    with shop.connect() as first, shop.connect() as second:
        outbox.stage(first, "orders", 1, partition="p")
        for number in range(2, 500):
            outbox.stage(second, "orders", number, partition="p")
        second.commit()
        first.commit()
    assert await drained(hw, shop) == 499
    assert await payloads(hw) == list(range(1, 500))


async def test_one_that_was_moved_and_not_dropped_is_one_message(hw: headwater.Headwater, shop: Shop) -> None:
    with shop.connect() as connection:
        outbox.stage(connection, "orders", 1)
    (copy,) = shop.rows("headwater_outbox")
    assert await drained(hw, shop) == 1
    with shop.connect() as connection:
        connection.execute("INSERT INTO headwater_outbox VALUES (%s, %s, %s, %s)", copy)
    assert await drained(hw, shop) == 1
    assert await payloads(hw) == [1]


async def test_two_drains_at_once_move_each_row_once_and_count_it_once(hw: headwater.Headwater, shop: Shop) -> None:
    with shop.connect() as connection:
        for number in range(300):
            outbox.stage(connection, "orders", number, partition="p")
    done = await asyncio.gather(outbox.drain(hw, shop.connect), outbox.drain(hw, shop.connect))
    assert sum(one.moved for one in done) == 300
    assert await payloads(hw) == list(range(300))


@pytest.mark.parametrize("of", ["psycopg", "SQLAlchemy", "Django"])
def test_a_message_without_a_transaction_is_refused(shop: Shop, of: str) -> None:
    with without_transaction(shop, of) as connection, pytest.raises(InvalidInput, match="begin your transaction first"):
        outbox.stage(connection, "orders", 1)
    assert shop.rows("headwater_outbox") == []


@contextmanager
def without_transaction(shop: Shop, of: str) -> Iterator[Any]:
    if of == "psycopg":
        with shop.connect(autocommit=True) as connection:
            yield connection
    elif of == "Django":
        with closing(django_connection(shop)) as connection:
            yield connection
    else:
        with (
            sqlalchemy_engine(shop) as engine,
            engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection,
        ):
            yield connection


async def test_an_async_connection_is_refused_with_what_is_wanted(shop: Shop) -> None:
    async with await psycopg.AsyncConnection.connect(shop.conninfo) as connection:
        with pytest.raises(InvalidOption, match="not async and"):
            outbox.stage(connection, "orders", 1)


def test_a_database_without_the_table_is_told_how_to_make_it(server: Server, shop: Shop) -> None:
    with shop.connect() as connection:
        connection.execute("DROP TABLE headwater_outbox")
        connection.commit()
        with pytest.raises(StoreForeign, match=r"outbox\.create_table\(connection\)"):
            outbox.stage(connection, "orders", 1)


async def test_a_row_that_is_refused_for_good_is_set_aside_and_can_wait_again(
    hw: headwater.Headwater, shop: Shop
) -> None:
    with shop.connect() as connection:
        connection.execute("INSERT INTO headwater_outbox (kind, body) VALUES ('shrug', '{}')")
        outbox.stage(connection, "orders", "good")
    assert await outbox.drain(hw, shop.connect) == outbox.Drained(moved=1, set_aside=1)
    with shop.connect() as connection:
        (aside,) = outbox.list_set_aside(connection)
        assert aside.error.startswith("no such kind")
        assert outbox.requeue(connection, aside.number) == 1
    assert await outbox.drain(hw, shop.connect) == outbox.Drained(set_aside=1)


async def test_a_drain_that_goes_on_outlasts_a_lost_connection(hw: headwater.Headwater, shop: Shop) -> None:
    made: list[psycopg.Connection] = []

    def connect() -> psycopg.Connection:
        made.append(shop.connect())
        return made[-1]

    draining = asyncio.ensure_future(outbox.drain(hw, connect, every_seconds=0.01))
    with shop.connect() as connection:
        outbox.stage(connection, "orders", 1)
    assert [message.payload for message in await hw.queue("orders").pop(wait=30, auto_ack=True)] == [1]
    with shop.server.connect() as other:
        assert other.execute("SELECT pg_terminate_backend(%s)", (made[0].info.backend_pid,)).fetchone() == (True,)
    with shop.connect() as connection:
        outbox.stage(connection, "orders", 2)
    assert [message.payload for message in await hw.queue("orders").pop(wait=30, auto_ack=True)] == [2]
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert len(made) > 1


async def test_a_drain_that_loses_its_connection_behind_a_push_drops_what_is_pushed_later(
    hw: headwater.Headwater, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it owed was asked of the lost connection for ever, and nothing was moved any more."""
    settle, cut = Table.settle, list[int]()

    def settle_when_cut(self: Table, verdicts: Verdicts) -> Verdicts:
        if verdicts.taken and not cut:
            cut.append(self._connection.info.backend_pid)  # type: ignore[attr-defined]
            with shop.server.connect() as other:
                assert other.execute("SELECT pg_terminate_backend(%s)", (cut[0],)).fetchone() == (True,)
        return settle(self, verdicts)

    monkeypatch.setattr(Table, "settle", settle_when_cut)
    draining = asyncio.ensure_future(outbox.drain(hw, shop.connect, every_seconds=0.01))
    for number in (1, 2):
        with shop.connect() as connection:
            outbox.stage(connection, "orders", number)
        [message] = await hw.queue("orders").pop(wait=30, auto_ack=True)
        assert message.payload == number
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert cut
    assert await outbox.drain(hw, shop.connect) == outbox.Drained()


async def test_a_drain_that_goes_on_begins_when_the_server_is_there(
    hw: headwater.Headwater, shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = [str(tmp_path), str(tmp_path), str(shop.server.folder)]

    def connect() -> psycopg.Connection:
        return psycopg.Connection.connect(psycopg.conninfo.make_conninfo(shop.conninfo, host=hosts.pop(0)))

    with shop.connect() as connection:
        outbox.stage(connection, "orders", 1)
    draining = asyncio.ensure_future(outbox.drain(hw, connect, every_seconds=0.01))
    assert [message.payload for message in await hw.queue("orders").pop(wait=30, auto_ack=True)] == [1]
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert caplog.text.count("is away, and is waited for") == 2


async def test_what_does_not_pass_is_told_to_one_who_would_go_on(hw: headwater.Headwater, shop: Shop) -> None:
    with shop.connect() as connection:
        connection.execute("DROP TABLE headwater_outbox")
    with pytest.raises(StoreForeign, match="create_table"):
        await outbox.drain(hw, shop.connect, every_seconds=0.01)


def test_the_command_waits_for_a_server_that_is_away_where_it_goes_on(tmp_path: Path) -> None:
    server = Server()
    try:
        shop = Shop(server)
        with shop.connect() as connection:
            outbox.stage(connection, "orders", {"id": 7})
        server.crash()
        program = Program(tmp_path)
        program.expect(0, "push", "others", "1")
        assert "store_failed" in program.expect(1, "outbox", "drain", shop.url).err
        with program.start("outbox", "drain", shop.url, "--every", "0.01") as process:
            assert process.stderr is not None
            assert "is away, and is waited for" in str(process.stderr.readline())
            server.start()
            expect_soon(lambda: shop.rows("headwater_outbox") == [])
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        server.stop()


def test_the_command_drains_a_database_of_a_server(tmp_path: Path, shop: Shop) -> None:
    with shop.connect() as connection:
        outbox.stage(connection, "orders", {"id": 7})
    program = Program(tmp_path)
    program.expect(0, "push", "others", "1")
    assert program.expect(0, "outbox", "drain", shop.url, "--json").document()["moved"] == 1
    assert shop.rows("headwater_outbox") == []


def test_the_command_goes_on_until_it_is_told_to_end(tmp_path: Path, server: Server, shop: Shop) -> None:
    store = server.address(server.new_schema())
    Program(tmp_path).expect(0, "push", "others", "1", "--store", store)
    command = [sys.executable, "-m", "headwater.cli", "--store", store, "outbox", "drain", shop.url, "--every", "0.01"]
    process = subprocess.Popen(command)
    try:
        with shop.connect() as connection:
            outbox.stage(connection, "orders", {"id": 7})
        expect_soon(lambda: shop.rows("headwater_outbox") == [])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


# ── async connections ──


@asynccontextmanager
async def async_psycopg(shop: Shop) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(shop.conninfo) as connection:
        yield connection


@asynccontextmanager
async def async_psycopg_by_hand(shop: Shop) -> AsyncIterator[Any]:
    made = await psycopg.AsyncConnection.connect(shop.conninfo, autocommit=True, row_factory=dict_row)
    async with made as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def asyncpg_connection(shop: Shop) -> AsyncIterator[Any]:
    asyncpg = pytest.importorskip("asyncpg")
    place = {"host": str(shop.server.folder), "user": USER, "database": "postgres"}
    connection = await asyncpg.connect(**place, server_settings={"search_path": shop.schema})
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool(shop: Shop) -> AsyncIterator[Any]:
    asyncpg = pytest.importorskip("asyncpg")
    place = {"host": str(shop.server.folder), "user": USER, "database": "postgres"}
    about = {"min_size": 1, "max_size": 1, "server_settings": {"search_path": shop.schema}}
    async with asyncpg.create_pool(**place, **about) as pool, pool.acquire() as connection, connection.transaction():
        yield connection


ASYNC_WAYS = [async_psycopg, async_psycopg_by_hand, asyncpg_connection, asyncpg_pool]


@pytest.mark.parametrize("way", ASYNC_WAYS, ids=lambda way: way.__name__)
async def test_rows_and_messages_of_async_connections_commit_together(
    hw: headwater.Headwater, shop: Shop, way: Any
) -> None:
    async with way(shop) as connection:
        await outbox.create_table_async(connection)
        await connection.execute("INSERT INTO shop_orders VALUES (7)")
        await outbox.stage_async(connection, "orders", {"id": 7}, partition="customer-42")
        (id,) = await outbox.stage_jobs_async(connection, NewJob(command="true"))
    assert await drained(hw, shop) == 2
    (message,) = await hw.queue("orders").pop()
    assert (message.payload, message.partition) == ({"id": 7}, "customer-42")
    assert [job.id for job in await hw.jobs.list()] == [id]
    assert shop.rows("shop_orders") == [(7,)]


@pytest.mark.parametrize("way", ASYNC_WAYS, ids=lambda way: way.__name__)
async def test_messages_of_async_connections_roll_back_with_the_rows(
    hw: headwater.Headwater, shop: Shop, way: Any
) -> None:
    async def stage_and_fail() -> None:
        async with way(shop) as connection:
            await outbox.stage_async(connection, "orders", {"id": 7})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await stage_and_fail()
    assert await drained(hw, shop) == 0


async def test_an_async_connection_without_a_transaction_or_a_table_is_told_so(shop: Shop) -> None:
    async with await psycopg.AsyncConnection.connect(shop.conninfo, autocommit=True) as connection:
        with pytest.raises(InvalidInput, match="begin your transaction first"):
            await outbox.stage_async(connection, "orders", 1)
        await connection.execute("DROP TABLE headwater_outbox")
        with pytest.raises(StoreForeign, match="create_table"):
            async with connection.transaction():
                await outbox.stage_async(connection, "orders", 1)
    with shop.connect() as plain, pytest.raises(InvalidOption, match="an async connection"):
        await outbox.stage_async(plain, "orders", 1)
