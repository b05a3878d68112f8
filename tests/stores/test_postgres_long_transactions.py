"""While somebody has a transaction open nothing that died can be cleared away: what a commit looks at must not grow.

Counted are the pages that the server looks at, which no busy machine changes. The places where a look begins (floors)
are wrong only if something ready lies before them, so whatever can come early is tried against them.
"""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from headwater.config import load_config
from headwater.log.job_operations import RetryJobs, SetJobLimit
from headwater.model.cursor import Outcome
from headwater.model.job import JobOutcome, JobState
from headwater.stores.open import open_store
from headwater.stores.postgres import migrate
from headwater.stores.postgres.connection import PostgresConnection, quoted
from headwater.stores.postgres.floors import LOOKS_MAX
from headwater.stores.tables.job_books import MINUTE
from tests.contracts.clock import FakeClock
from tests.contracts.jobs import WORKER, Board, shell
from tests.contracts.log import Log, payloads
from tests.postgres_server import Server
from tests.postgres_server import server as server_of_this_process

FEW, MANY = 2 * LOOKS_MAX, 12 * LOOKS_MAX
# A tree that is one level higher, a page that is half full: not what grows with every turn.
SPARE_PAGES = 8
TURN_SECONDS = 0.001

sql = PostgresConnection.sql


@pytest.fixture(scope="module")
def server() -> Server:
    return server_of_this_process()


@pytest.fixture
def schema(server: Server) -> str:
    return server.new_schema()


@pytest.fixture
async def log(server: Server, schema: str) -> AsyncIterator[Log]:
    clock = FakeClock()
    store = open_store(server.address(schema), load_config({}), clock)
    await store.open()
    yield Log(store, clock)
    await store.close()


@pytest.fixture
async def behind(server: Server, schema: str, log: Log) -> AsyncIterator[Log]:
    """Another machine, whose clock is some seconds behind."""
    clock = FakeClock()
    clock.set_by(-20)
    store = open_store(server.address(schema), load_config({}), clock)
    await store.open()
    yield Log(store, clock)
    await store.close()


@pytest.fixture
def look(server: Server, schema: str) -> Iterator[psycopg.Connection]:
    with server.connect() as connection:
        connection.execute(f"SET search_path = {quoted(schema)}".encode())
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute("SET enable_seqscan = off")
        yield connection


@pytest.fixture
def held(server: Server, log: Log) -> Iterator[None]:
    """Somebody reads, and does not end it."""
    with server.connect() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1 FROM pg_class LIMIT 1")
        yield


def pages(look: psycopg.Connection, statement: str, *bindings: Any) -> int:
    """How many pages the server looks at for a statement, which is undone."""
    look.execute("BEGIN")
    try:
        asked = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {statement}".encode()
        plan = "\n".join(row[0] for row in psycopg.RawCursor(look).execute(asked, bindings))
    finally:
        look.execute("ROLLBACK")
    assert re.search(r"Seq Scan on hw_(cursors|jobs|segments)", plan) is None, plan
    return sum(map(int, re.findall(r"^ *Buffers: shared hit=(\d+)", plan, re.MULTILINE)[:1]))


# ── what grows ──


async def turn(log: Log, number: int) -> None:
    """Push, pop, ack, and a pop that finds nothing."""
    log.clock.advance(TURN_SECONDS)
    await log.push(number)
    batch = await log.take(10)
    assert payloads(batch) == [number]
    await log.ack(batch)
    assert await log.pop(10) == []


async def test_pops_and_pushes_look_at_no_more_pages_after_many_turns(
    log: Log, look: psycopg.Connection, held: None
) -> None:
    def looked_at() -> dict[str, int]:
        now = log.clock.now()
        position = (1, None, None, 1, None, 1, 0, 0, 0, now, "", 1, 1)
        return {
            "get_cursor": pages(look, sql.get_cursor, 1, 1),
            "set_cursor": pages(look, sql.set_cursor, *position),
            "ready_cursors": pages(look, sql.ready_cursors, 1, now, 10),
            "ready_ahead": pages(look, sql.ready_ahead, "{1}", "{10}", now),
            "segments_ahead": pages(look, sql.segments_ahead, "{1}", "{10}", now, 4, "{1}", "{1}", 10, "{}"),
            "next_ready": pages(look, sql.next_ready, 1),
            "wake_idle_cursors": pages(look, sql.wake_idle_cursors, now, 1),
            "slowest_position": pages(look, sql.slowest_position, 1),
            "open_commit": pages(look, sql.open_commit, 0),
        }

    for number in range(FEW):
        await turn(log, number)
    few = looked_at()
    for number in range(MANY):
        await turn(log, number)
    many = looked_at()
    assert {name: (few[name], found) for name, found in many.items() if found > few[name] + SPARE_PAGES} == {}


async def test_claims_and_counts_look_at_no_more_pages_after_many_jobs(
    log: Log, look: psycopg.Connection, held: None
) -> None:
    board = Board(log)

    async def work() -> None:
        log.clock.advance(TURN_SECONDS)
        await board.add(shell())
        await board.settle(await board.take(), outcome=JobOutcome.COMPLETED)

    def looked_at() -> dict[str, int]:
        newest = "ORDER BY version DESC LIMIT 1"
        minute = log.clock.now() // MINUTE
        return {
            "ready_heads": pages(look, sql.ready_heads, 1, 0, 10),
            "queue_outlook": pages(look, sql.queue_outlook, 1, None),
            "jobs_outlook": pages(look, sql.jobs_outlook),
            "jobs_held_of": pages(look, sql.jobs_held_of, "[1,2,3]", WORKER),
            "count_jobs": pages(
                look, f"SELECT count FROM hw_job_tallies WHERE queue_id = 1 AND state = 'pending' {newest}"
            ),
            "count_minute": pages(
                look, f"SELECT dead FROM hw_job_minute_tallies WHERE queue_id = 1 AND minute = {minute} {newest}"
            ),
        }

    for _ in range(FEW):
        await work()
    few = looked_at()
    for _ in range(MANY):
        await work()
    many = looked_at()
    assert {name: (few[name], found) for name, found in many.items() if found > few[name] + SPARE_PAGES} == {}
    assert await board.counts() == {"completed": FEW + MANY}


# ── what comes before a floor ──


async def raise_floors(log: Log) -> None:
    """As many turns as it takes, each of which writes."""
    for number in range(2 * LOOKS_MAX):
        await turn(log, number)


async def test_a_message_of_a_machine_whose_clock_is_behind_is_found(log: Log, behind: Log) -> None:
    await raise_floors(log)
    await behind.push("early")
    assert payloads(await log.take()) == ["early"]


async def test_a_lease_that_ends_early_is_the_next_that_is_ready(log: Log) -> None:
    """Its end lies where the ends of longer leases, given back long before, lay."""
    await raise_floors(log)
    await log.push(1, partition="short")
    await log.take(lease_seconds=5)
    assert await log.free_at() == log.clock.now() + 5_000_000
    log.clock.advance(6)
    assert payloads(await log.take()) == [1]


async def test_a_message_that_failed_comes_back_among_the_ends_of_leases(log: Log) -> None:
    await raise_floors(log)
    await log.push(1)
    await log.settle(await log.take(), Outcome.FAILED)
    due = await log.free_at()
    assert due is not None
    log.clock.advance((due - log.clock.now()) / 1_000_000)
    assert payloads(await log.take()) == [1]


async def test_a_position_that_a_server_of_before_writes_is_found(log: Log, look: psycopg.Connection) -> None:
    """It changes the row in place, and knows of no floor."""
    await raise_floors(log)
    await log.push("waits")
    look.execute("UPDATE hw_cursors SET ready_at = 1 WHERE group_id = 1 AND partition_id = 1")
    look.execute("SELECT nextval('hw_version')")
    assert payloads(await log.take()) == ["waits"]


async def test_the_floors_of_a_group_go_with_it(log: Log, look: psycopg.Connection) -> None:
    await raise_floors(log)
    look.execute("DELETE FROM hw_groups")
    assert look.execute("SELECT count(*) FROM hw_ready_floors").fetchone() == (0,)


async def work_off(board: Board, count: int) -> None:
    for _ in range(count):
        await board.add(shell())
        await board.settle(await board.take(), outcome=JobOutcome.COMPLETED)


async def test_a_job_that_comes_back_is_claimed_before_newer_ones(log: Log) -> None:
    board = Board(log)
    await board.add(shell("old", retries=1))
    failed = await board.take()
    await board.fail(failed)
    await work_off(board, 2 * LOOKS_MAX)
    await board.add(shell("new"))
    log.clock.advance(3_600)
    assert await board.names() == ["old", "new"]


async def test_a_job_that_is_retried_by_hand_is_claimed_again(log: Log) -> None:
    board = Board(log)
    await board.add(shell("old"))
    await board.settle(await board.take(), outcome=JobOutcome.BURIED)
    await work_off(board, 2 * LOOKS_MAX)
    await board.change(RetryJobs(ids=["old"]))
    assert await board.names() == ["old"]


async def test_a_job_of_a_higher_priority_is_claimed_first(log: Log) -> None:
    board = Board(log)
    await work_off(board, 2 * LOOKS_MAX)
    await board.add(shell("plain"), shell("urgent", priority=5), shell("low", priority=-5))
    assert await board.names() == ["urgent", "plain", "low"]


async def test_jobs_that_come_under_a_limit_are_claimed_in_their_lane(log: Log) -> None:
    board = Board(log)
    await work_off(board, 2 * LOOKS_MAX)
    await board.add(shell("a"), shell("b"))
    await log.run(SetJobLimit(queue="default", type=shell().type, concurrency=1))
    assert await board.names() == ["a"]


# ── from tables of before ──


async def test_counts_of_before_are_kept_and_servers_of_before_go_on_counting(
    server: Server, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrate.migrations()
    with server.connect() as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(f"SET search_path = {schema}".encode())
        for number, _, text in known:
            if number <= 4:
                connection.execute(text.encode())
        connection.execute("INSERT INTO hw_meta VALUES ('schema_version', '4')")
        connection.execute("INSERT INTO hw_job_queues (database, name) VALUES ('main', 'default')")
        connection.execute("INSERT INTO hw_job_counts VALUES (1, 'completed', 7)")
        connection.execute("INSERT INTO hw_queues (database, name, created_at) VALUES ('main', 'orders', 1)")
        store = open_store(server.address(schema), load_config({}), FakeClock())
        await store.open()
        board = Board(Log(store, FakeClock()))
        before = (
            "INSERT INTO hw_job_counts VALUES (1, %s, %s) "
            "ON CONFLICT (queue_id, state) DO UPDATE SET count = hw_job_counts.count + excluded.count"
        )
        for state, count in [("completed", 2), ("dead", 1), ("dead", 1)]:
            connection.execute(before.encode(), (state, count))
        assert await board.counts() == {JobState.COMPLETED: 9, JobState.DEAD: 2}
        await store.close()
