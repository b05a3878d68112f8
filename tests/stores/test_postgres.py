"""What only a store on a server has: its address, its round trips, its lock."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headwater.config import load_config
from headwater.errors import ConfigError, StoreBusy, StoreFailed, StoreForeign, StoreMissing, StoreNewer, StoreReplaced
from headwater.log.job_operations import Claim, ClaimedJob, Enqueue, JobReport, NewJob, Settle
from headwater.log.operations import Operation, Pop, Seek
from headwater.model.job import JobOutcome
from headwater.model.names import Lsn
from headwater.stores.open import open_reader, open_store
from headwater.stores.postgres.address import parse_address
from headwater.stores.postgres.connection import PostgresConnection
from headwater.stores.postgres.foreseen import Foreseen
from headwater.stores.postgres.store import PostgresStore
from tests.contracts.clock import FakeClock
from tests.contracts.jobs import Board
from tests.contracts.log import Log, ack, payloads, push
from tests.postgres_server import Server
from tests.postgres_server import server as server_of_process

PUSHES = 40
WAIT_SECONDS = 120.0


@pytest.fixture(scope="module")
def server() -> Server:
    return server_of_process()


@pytest.fixture
def address(server: Server) -> str:
    return server.address(server.new_schema())


async def opened(address: str, **settings: float) -> Log:
    clock = FakeClock()
    store = open_store(address, load_config({}, **settings), clock)
    await store.open()
    return Log(store, clock)


@pytest.fixture
async def log(address: str) -> AsyncIterator[Log]:
    made = await opened(address)
    yield made
    await made.store.close()


@pytest.fixture
async def other(log: Log, address: str) -> AsyncIterator[Log]:
    made = await opened(address)
    yield made
    await made.store.close()


# ── the address ──


def test_an_address_is_shown_without_its_password_and_opened_again_with_it() -> None:
    given = parse_address("postgresql://app:s3cret%21@db:5433/shop?sslmode=require&schema=orders")
    assert "s3cret" not in given.shown
    assert given.shown == "postgresql://app@db:5433/shop?sslmode=require&schema=orders"
    assert given.schema == "orders"
    assert "password=s3cret%21" in given.conninfo
    assert "schema" not in given.conninfo
    assert parse_address(given.shown) == given


def test_a_schema_has_a_name_unless_another_is_given() -> None:
    assert parse_address("postgresql:///shop").schema == "headwater"
    with pytest.raises(ConfigError, match="schema must be"):
        parse_address("postgresql:///shop?schema=")
    with pytest.raises(ConfigError, match="schema must be"):
        parse_address(f"postgresql:///shop?schema={'x' * 64}")


@pytest.mark.parametrize("schema", ["Mixed Case", 'with"quote', "ünïcode", "-two"])
async def test_a_schema_can_have_any_name(server: Server, schema: str) -> None:
    log = await opened(server.address(server.new_schema() + schema.replace('"', "%22")))
    await log.push(1)
    assert await log.drain() == [1]
    await log.store.close()


async def test_a_database_that_is_not_there_is_told(server: Server) -> None:
    store = open_store(server.address("t").replace("/postgres?", "/nowhere?"), load_config({}), FakeClock())
    with pytest.raises(StoreFailed, match="nowhere"):
        await store.open()


async def test_a_store_that_must_be_there_is_not_made(server: Server, address: str) -> None:
    with pytest.raises(StoreMissing, match="there is no store"):
        await open_store(address, load_config({}), FakeClock(), create=False).open()
    with pytest.raises(StoreMissing, match="there is no store"):
        await open_reader(address, load_config({})).open()
    with server.connect() as look:
        schema = parse_address(address).schema
        assert look.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone() is None


async def test_tables_of_another_program_are_left_alone_unless_they_are_adopted(server: Server, address: str) -> None:
    schema = parse_address(address).schema
    with server.connect() as theirs:
        theirs.execute(f"CREATE SCHEMA {schema}".encode())
        theirs.execute(f"CREATE TABLE {schema}.customers (id int)".encode())
    with pytest.raises(StoreForeign, match="customers"):
        await open_store(address, load_config({}), FakeClock()).open()
    store = open_store(address, load_config({}), FakeClock(), adopt=True)
    await store.open()
    await store.close()


async def test_a_store_of_a_newer_version_is_refused(server: Server, log: Log, address: str) -> None:
    schema = parse_address(address).schema
    with server.connect() as newer:
        newer.execute(f"UPDATE {schema}.hw_meta SET value = '9999' WHERE key = 'schema_version'".encode())
    with pytest.raises(StoreNewer, match="9999"):
        await open_store(address, load_config({}), FakeClock()).open()
    with pytest.raises(StoreNewer, match="9999"):
        await open_reader(address, load_config({})).open()


async def test_a_store_whose_schema_was_dropped_says_so(server: Server, log: Log, address: str) -> None:
    await log.push(1)
    with server.connect() as drop:
        drop.execute(f"DROP SCHEMA {parse_address(address).schema} CASCADE".encode())
    with pytest.raises(StoreReplaced, match="gone"):
        await log.push(2)


# ── the append lock ──


async def test_a_lock_that_is_held_for_too_long_is_an_error_and_then_is_not(server: Server, address: str) -> None:
    log = await opened(address, lock_wait_seconds=0.05)
    with server.connect() as holder, holder.transaction():
        holder.execute(f"SET LOCAL search_path = {parse_address(address).schema}".encode())
        holder.execute("SELECT pg_advisory_xact_lock(1213678932, hashtext(current_schema()))")
        with pytest.raises(StoreBusy, match="append lock"):
            await log.push("while it is held")
    await log.push("after")
    assert await log.drain() == ["after"]
    await log.store.close()


async def test_whoever_follows_by_lsn_misses_nothing_while_several_processes_push(address: str) -> None:
    writers = [await opened(address) for _ in range(3)]
    follower = await opened(address)
    seen: list[int] = []

    async def push_many(log: Log, name: str) -> None:
        for number in range(PUSHES):
            await log.push(number, partition=name)

    async def follow() -> None:
        while len(seen) < PUSHES * len(writers):
            touched = await follower.store.touched(Lsn(seen[-1] if seen else 0), 1_000)
            seen.extend(touch.lsn for touch in touched)

    pushing = [push_many(log, f"p{place}") for place, log in enumerate(writers)]
    await asyncio.wait_for(asyncio.gather(follow(), *pushing), WAIT_SECONDS)
    assert seen == list(range(1, PUSHES * len(writers) + 1))
    for log in (*writers, follower):
        await log.store.close()


# ── what was read ahead ──


def test_a_segment_that_is_appended_may_hold_what_none_held_before() -> None:
    sql = PostgresConnection.sql
    foreseen = Foreseen(sql)
    foreseen.expect_segments((sql.segments_ahead, ()))
    held, behind = (7, 0, 2, 0, 1, 9, None, 0, 0, b"[]"), (7, 1, 2, 0, 1, 9, None, 0, 0, b"[]")
    foreseen.take([[held, behind]])
    assert foreseen.find(sql.segments_from, (7, 0)) == ([(2, 0, 1, 9, None)], True)
    assert foreseen.find(sql.segments_from, (7, 1)) == ([(2, 0, 1, 9, None)], True)
    foreseen.wrote(sql.add_segment, "hw_segments")
    assert foreseen.find(sql.segments_from, (7, 0)) == ([(2, 0, 1, 9, None)], False)
    assert foreseen.find(sql.segments_from, (7, 1)) is None
    foreseen.wrote(sql.drop_segments_before, "hw_segments")
    assert foreseen.find(sql.segments_from, (7, 0)) is None


# ── round trips ──


async def trips(log: Log, *operations: Operation) -> int:
    """How often the server was waited for in a commit; the barrier behind it is not counted."""
    store = log.store
    assert isinstance(store, PostgresStore)
    before = store.round_trips
    await log.commit(*operations)
    return store.round_trips - before


async def test_a_push_is_two_round_trips(log: Log) -> None:
    await log.push(0, partition="p")
    assert await trips(log, push(1, partition="p")) == 2


async def test_a_push_behind_those_of_another_process_is_two_round_trips(log: Log, other: Log) -> None:
    await log.push(0, partition="p", ids=["a"])
    await other.push(1, partition="p", ids=["b"])
    await other.push(2, partition="p", ids=["c"])
    assert await trips(log, push(1, partition="p", ids=["d"])) == 2


async def test_a_pop_and_an_ack_are_two_round_trips_each(log: Log) -> None:
    for value in range(3):
        await log.push(value, partition="p")
    await log.ack(await log.take())
    assert await trips(log, Pop(queue="orders")) == 2
    log.clock.advance(1_000)
    batch = await log.take()
    assert await trips(log, ack(batch)) == 2


async def test_an_ack_and_the_next_pop_share_two_round_trips(log: Log) -> None:
    for value in range(3):
        await log.push(value, partition="p")
    batch = await log.take()
    assert await trips(log, ack(batch), Pop(queue="orders")) == 2


async def test_a_pop_goes_on_behind_what_was_read_ahead(log: Log) -> None:
    """A lease that ran out is followed by records whose own time is over: those that count come after them."""
    await log.configure(retry_limit=0)
    await log.push("a", "b", "c", "d", partition="p", ttl_seconds=30)
    await log.push("e", "f", partition="p")
    await log.take(partition="p", lease_seconds=10)
    log.clock.advance(100)
    assert payloads(await log.take(2, partition="p")) == ["e", "f"]


async def test_groups_that_stand_at_one_place_get_each_record_once(log: Log, other: Log) -> None:
    """Several want the same segment, and have waited for it since different times: it is read ahead once."""
    await log.push("a", "b", partition="p")
    for group in ("g", "h"):
        await log.ack(await log.take(2, group=group))
        log.clock.advance(1)
        await log.run(Seek(queue="orders", group=group, to="beginning"))
    await other.push("so that nothing is remembered", queue="elsewhere")
    popped = await log.results(*[Pop(queue="orders", group=group, batch=5) for group in ("g", "h")])
    assert [payloads(pop.batches[0]) for pop in popped] == [["a", "b"], ["a", "b"]]


async def test_a_pop_of_what_another_process_pushed_is_two_round_trips(log: Log, other: Log) -> None:
    await other.push(0, partition="p")
    await log.ack(await log.take())
    await other.push(1, partition="p")
    assert await trips(log, Pop(queue="orders")) == 2


async def test_a_claim_is_three_round_trips_and_a_report_two(log: Log) -> None:
    board = Board(log)
    await board.add("a", "b", "c")
    await board.settle(*await board.claim(worker="w"), worker="w")
    assert await trips(log, Claim(worker="w", limit=1)) == 3
    (job,) = await board.claim(worker="w")
    assert await trips(log, settlement(job)) == 2


async def test_jobs_are_added_in_two_round_trips(log: Log) -> None:
    board = Board(log)
    await board.add("a")
    assert await trips(log, Enqueue(jobs=[NewJob(id="b", command="true")])) == 2


async def test_reporting_and_claiming_together_are_four_round_trips(log: Log) -> None:
    board = Board(log)
    await board.add("a", "b", "c")
    (job,) = await board.claim(worker="w")
    assert await trips(log, settlement(job), Claim(worker="w", limit=1)) == 4


def settlement(job: ClaimedJob) -> Settle:
    """The report that a job is done."""
    return Settle(worker="w", reports=[JobReport(number=job.number, token=job.token, outcome=JobOutcome.COMPLETED)])
