"""A standby of the server: what is read there, and what becomes of a store whose server is gone for good."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from urllib.parse import quote

import psycopg
import pytest

import headwater
from headwater.config import load_config
from headwater.errors import ConfigError, StoreError
from headwater.model.names import Lsn
from headwater.stores.job_questions import ListJobQueues
from headwater.stores.open import open_reader, open_store
from headwater.stores.postgres.address import parse_address
from tests.contracts.clock import FakeClock
from tests.contracts.jobs import Board
from tests.contracts.log import Log, payloads, push, until_durable
from tests.postgres_server import USER, Server
from tests.waiting import expect_soon, expect_soon_async

PUSHES = 40


@pytest.fixture(scope="module")
def primary() -> Iterator[Server]:
    """It waits for its standby once there is one: nothing that was answered is on one machine only."""
    made = Server(wal_level="replica", max_wal_senders="4", wal_keep_size="64MB")
    yield made
    made.stop()


@pytest.fixture
def standby(primary: Server) -> Iterator[Server]:
    made = Server(standby_of=primary, hot_standby="on")
    yield made
    made.stop()


def pause_replay(standby: Server, *, on: bool) -> None:
    """From now on it is sent everything and shows nothing of it; or shows it all."""
    with standby.connect() as connection:
        connection.execute(f"SELECT pg_wal_replay_{'pause' if on else 'resume'}()".encode())
        if on:
            state = "SELECT pg_get_wal_replay_pause_state() = 'paused'"
            while connection.execute(state.encode()).fetchone() != (True,):
                connection.execute("SELECT pg_sleep(0.01)")


async def caught_up(primary: Server, standby: Server) -> None:
    """Wait until the standby shows what its server has."""
    with primary.connect() as here, standby.connect() as there:
        row = here.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        shows = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        await asyncio.to_thread(expect_soon, lambda: there.execute(shows.encode(), row).fetchone() == (True,))


def with_replica(primary: Server, standby: Server, schema: str) -> str:
    return f"{primary.address(schema)}&replica={quote(str(standby.folder), safe='')}"


@pytest.fixture
async def log(primary: Server, standby: Server) -> AsyncIterator[Log]:
    store = open_store(with_replica(primary, standby, primary.new_schema()), load_config({}), FakeClock())
    await store.open()
    yield Log(store, FakeClock())
    await store.close()


async def test_the_log_is_read_from_the_replica_without_a_hole(primary: Server, standby: Server, log: Log) -> None:
    await log.push(1)
    await caught_up(primary, standby)
    pause_replay(standby, on=True)
    await log.push(2)
    reader = open_reader(log.store.traits.location, load_config({}))
    await reader.open()
    assert await reader.span() == (0, 1)
    pause_replay(standby, on=False)
    await caught_up(primary, standby)
    assert await reader.span() == (0, 2)
    assert [body.lsn for body in await reader.bodies(Lsn(0), Lsn(9), 10_000, "main", ["orders"])] == [1, 2]
    await reader.close()


async def test_lists_come_from_the_replica_and_all_else_from_the_server(
    primary: Server, standby: Server, log: Log
) -> None:
    board = Board(log)
    await board.add("a")
    await caught_up(primary, standby)
    pause_replay(standby, on=True)
    await board.add("b")
    (queue,) = await log.store.ask(ListJobQueues("main"))
    assert sum(queue.counts.values()) == 1
    assert (await board.job("b")).id == "b"
    assert await board.names() == ["a", "b"]
    pause_replay(standby, on=False)


async def test_the_doctor_is_told_how_far_a_replica_is_behind(primary: Server, standby: Server, log: Log) -> None:
    await log.push(1)
    await caught_up(primary, standby)
    found = await log.store.examine()
    assert found.named("replica_lag_seconds") == 0
    assert (found.problems, found.cautions) == ([], [])


async def test_the_doctor_tells_that_a_standby_takes_no_writes(primary: Server, standby: Server) -> None:
    schema = primary.new_schema()
    async with headwater.open(primary.address(schema), housekeeping=False) as hw:
        await hw.queue("orders").push(1)
    await caught_up(primary, standby)
    async with headwater.open(standby.address(schema), housekeeping=False, wakeup="data_version") as hw:
        assert "takes no writes" in (await hw.store.examine()).cautions[0]


async def test_a_replica_that_is_away_is_done_without_and_told_of(standby: Server, log: Log) -> None:
    board = Board(log)
    await board.add("a")
    standby.crash()
    assert await board.counts() == {"pending": 1}
    found = await log.store.examine()
    assert "no standby, or is away" in found.cautions[0]


async def test_what_is_named_as_a_replica_and_is_another_server_is_refused(primary: Server) -> None:
    """It has a store of the same name: its jobs and messages would be taken for ours."""
    schema, another = primary.new_schema(), Server()
    try:
        for address in (primary.address(schema), another.address(schema)):
            async with headwater.open(address, housekeeping=False) as hw:
                await hw.queue("orders").push(1)
        await expect_refused(with_replica(primary, another, schema))
    finally:
        another.stop()


async def test_a_standby_that_has_taken_over_is_no_replica_any_more(primary: Server, standby: Server) -> None:
    schema = primary.new_schema()
    async with headwater.open(primary.address(schema), housekeeping=False) as hw:
        await hw.queue("orders").push(1)
    await caught_up(primary, standby)
    with standby.connect() as connection:
        connection.execute("SELECT pg_promote()")
    await expect_refused(with_replica(primary, standby, schema))


async def expect_refused(address: str) -> None:
    reader = open_reader(address, load_config({}))
    with pytest.raises(ConfigError, match="no standby of its server"):
        await reader.open()
    async with headwater.open(address, housekeeping=False) as hw:
        assert [message.payload for message in await hw.queue("orders").pop()] == [1]
        with pytest.raises(ConfigError, match="no standby of its server"):
            await hw.store.ask(ListJobQueues("main"))
        assert "no standby of its server" in (await hw.store.examine()).cautions[0]


def test_a_replica_is_no_matter_of_the_servers_own_address() -> None:
    parsed = parse_address("postgresql://app@a.example:5433/shop?replica=b.example:5434,c.example&sslmode=require")
    assert "replica" not in parsed.conninfo
    assert "b.example" not in parsed.conninfo
    there = psycopg.conninfo.conninfo_to_dict(parsed.for_reading().conninfo)
    assert there["host"] == "b.example,c.example,a.example"
    assert there["port"] == "5434,,5433"
    assert (there["target_session_attrs"], there["sslmode"], there["user"]) == ("prefer-standby", "require", "app")


# ── the server is gone ──


async def test_what_was_answered_is_there_once_after_a_standby_took_over() -> None:
    """The server waits for its standby, as its operator has set it. Pushes that nobody can say anything of are repeated
    with their keys."""
    primary = Server(wal_level="replica", max_wal_senders="4", wal_keep_size="64MB")
    standby = Server(standby_of=primary, hot_standby="on")
    try:
        with primary.connect() as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
        hosts = quote(f"{primary.folder},{standby.folder}", safe="")
        address = f"postgresql://{USER}@/postgres?host={hosts}&target_session_attrs=read-write"
        store = open_store(address, load_config({}), FakeClock())
        await store.open()
        log = Log(store, FakeClock())
        answered = 0
        unknown: list[int] = []

        async def work() -> None:
            nonlocal answered
            for number in range(PUSHES):
                try:
                    await push_once(log, number)
                    answered += 1
                except StoreError:
                    unknown.append(number)
                    with suppress(StoreError):
                        await store.recover()

        async def enough() -> bool:
            return answered >= PUSHES // 4

        async def switch() -> None:
            await expect_soon_async(enough)
            primary.crash()
            await asyncio.to_thread(standby.promote)

        await asyncio.gather(work(), switch())
        for number in unknown:
            await push_once(log, number)
        found = [payload for segment in await log.read() for payload in payloads(segment)]
        assert sorted(found) == list(range(PUSHES))
        assert len(await log.drain()) == PUSHES
        await store.close()
    finally:
        standby.stop()
        primary.stop()


async def push_once(log: Log, number: int) -> None:
    """It is answered when the disks of both servers have it."""
    await log.run(push(number, key=f"push-{number}"))
    await until_durable(log.store, 1)
