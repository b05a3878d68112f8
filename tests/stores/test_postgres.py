"""What only a store on a server has: its address, its round trips, its lock."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

import headwater
from headwater.config import load_config
from headwater.errors import (
    ConfigError,
    QueueFull,
    StoreBusy,
    StoreFailed,
    StoreForeign,
    StoreFull,
    StoreMissing,
    StoreNewer,
    StoreReplaced,
)
from headwater.log.job_operations import Claim, ClaimedJob, Enqueue, JobReport, NewJob, Settle
from headwater.log.operations import Operation, Pop, Seek
from headwater.model.job import JobOutcome, JobState
from headwater.model.names import Lsn
from headwater.stores.open import open_reader, open_store
from headwater.stores.postgres import store as postgres_store
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
    assert psycopg.conninfo.conninfo_to_dict(parse_address("postgresql:///shop").conninfo)["dbname"] == "shop"
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
    """T0-e: no number is given out before the one below it is committed."""
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


async def test_records_are_kept_as_they_are_beside_their_rows(log: Log) -> None:
    """What is compressed by the client already would be tried again by the server, for each segment."""
    assert isinstance(log.store, PostgresStore)
    found = """SELECT c.relname || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
               WHERE c.relnamespace = %s::regnamespace AND a.attstorage = 'e' ORDER BY 1"""
    address = parse_address(log.store.traits.location)
    with psycopg.connect(address.conninfo) as connection:
        rows = connection.execute(found, (address.schema,)).fetchall()
    assert [row[0] for row in rows] == [
        "hw_dead_letters.records",
        "hw_delayed.records",
        "hw_segments.records",
        "hw_staged.body",
    ]


# ── round trips ──


async def trips(log: Log, *operations: Operation) -> int:
    """How often the server was waited for in a commit; the barrier behind it is not counted."""
    store = log.store
    assert isinstance(store, PostgresStore)
    before = store.round_trips
    await log.commit(*operations)
    return store.round_trips - before


async def test_a_push_with_a_transaction_id_is_two_round_trips(log: Log) -> None:
    await log.push(0, partition="p", ids=["0"])
    assert await trips(log, push(1, partition="p", ids=["1"])) == 2


@pytest.fixture
def soon_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.stores.postgres.commits.ALONE_AFTER", 1)


@pytest.mark.usefixtures("soon_alone")
async def test_pushes_are_one_round_trip_each_while_nobody_else_commits(log: Log, other: Log) -> None:
    for value in range(2):
        await log.push(value, partition="p", ids=[f"{value}"])
    assert await trips(log, push(2, partition="p", ids=["2"])) == 1
    await log.results(push(3, partition="p", ids=["2"]), push(4, partition="q"))
    assert await trips(log, push(5, partition="q", ids=["5"]), push(6, partition="p")) == 1
    assert payloads(await other.take(10, partition="p")) == [0, 1, 2, 6]
    assert payloads(await other.take(10, partition="q")) == [4, 5]


async def test_who_is_seldom_alone_takes_two_round_trips_for_what_is_to_be_decided(log: Log, other: Log) -> None:
    for turn in range(3):
        for value in range(20):
            await log.push(value, partition="p")
        await other.push("theirs", partition="p")
        assert await trips(log, push("ours", partition="p", key=f"{turn}")) == 2


@pytest.mark.usefixtures("soon_alone")
async def test_a_push_that_was_overtaken_is_decided_anew(log: Log, other: Log) -> None:
    """By what another has done since: offsets, LSNs, transaction ids and options."""
    for value in range(3):
        await log.push(value, partition="p", ids=[f"{value}"])
    theirs = await other.push("theirs", partition="p", ids=["theirs"])
    ours = await log.push("ours", partition="p", ids=["ours"])
    assert (ours.first_offset, ours.lsn) == (theirs.first_offset + 1, theirs.lsn + 1)
    again = await log.push("theirs again", partition="p", ids=["theirs"])
    assert again.duplicates == {0: theirs.first_offset}
    assert (await log.push("next", partition="p")).first_offset == theirs.first_offset + 2
    await log.push("once more alone", partition="p")
    await other.configure(size_max=1)
    with pytest.raises(QueueFull):
        await log.push("too many", partition="p")
    assert payloads(await other.take(10, partition="p"))[3:] == ["theirs", "ours", "next", "once more alone"]


@pytest.mark.usefixtures("soon_alone")
async def test_a_read_that_finds_the_store_overtaken_decides_anew(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not foreseen is read once the writer has decided something already."""
    for value in range(3):
        await log.push(value, partition="p")
    await other.push("theirs", partition="p")
    monkeypatch.setattr(Foreseen, "needs_reads", False)
    (ours, elsewhere) = await log.results(push("ours", partition="p"), push("new", partition="q"))
    assert (ours.first_offset, elsewhere.first_offset) == (4, 0)
    assert payloads(await other.take(10, partition="p")) == [0, 1, 2, "theirs", "ours"]


@pytest.mark.usefixtures("soon_alone")
async def test_processes_in_turns_and_all_at_once_give_each_offset_once(log: Log, other: Log) -> None:
    async def produce(who: Log, name: str) -> list[int]:
        found: list[int] = []
        for value in range(40):
            found.append((await who.push(f"{name}-{value}", partition="p")).first_offset)
            if value % 10 == 0:
                await asyncio.sleep(0.01)
        return found

    ours, theirs = await asyncio.gather(produce(log, "a"), produce(other, "b"))
    assert sorted(ours + theirs) == list(range(80))
    assert ours == sorted(ours)
    popped = payloads(await log.take(100, partition="p"))
    assert [popped[offset] for offset in ours] == [f"a-{value}" for value in range(40)]


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


async def test_a_claim_and_a_report_are_two_round_trips_each(log: Log) -> None:
    board = Board(log)
    await board.add("a", "b", "c")
    await board.settle(*await board.claim(worker="w"), worker="w")
    assert await trips(log, Claim(worker="w", limit=1)) == 2
    (job,) = await board.claim(worker="w")
    assert await trips(log, settlement(job)) == 2


async def test_a_job_that_changes_hands_within_a_commit_has_the_token_of_its_last_lease(log: Log) -> None:
    """What was read ahead of it is of before the first lease."""
    board = Board(log)
    await board.add("a")
    job = await board.take()
    await board.settle(job, outcome=JobOutcome.RELEASED)
    given_back = JobReport(number=job.number, token=job.token + 1, outcome=JobOutcome.RELEASED)
    claims = [Claim(worker="first", limit=1), Settle(worker="first", reports=[given_back])]
    *_, claimed = await log.results(*claims, Claim(worker="second", limit=1))
    assert [found.id for found in claimed.jobs] == ["a"]
    assert await board.settle(*claimed.jobs, worker="second") == [JobState.COMPLETED]


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


# ── rooms as tables ──


async def test_rooms_are_shown_as_the_tables_people_know(address: str) -> None:
    """S0-1, S0-5, S0-18: with any client of the server; `id > last_processed_id` is what was not delivered."""
    async with headwater.open(address, rooms={"server_instance_id": "server-a"}) as hw:
        live = await hw.rooms_service.enter("main", "canvas-1")
        delivered = asyncio.Event()
        live.listeners.append(lambda events: delivered.set())
        await hw.room("canvas-1").send({"x": 1}, type="object-create")
        await asyncio.wait_for(delivered.wait(), WAIT_SECONDS)
        await asyncio.sleep(0)
        hw.rooms_service.say_who_is_here()
        await hw.room("canvas-1").send({"x": 2, "nul": "a\0b\\u0000"}, type="object-update")
        # A number that no type of the server holds is shown as it was written, and breaks the view for nobody.
        await hw.room("canvas-2").send(headwater.Raw(b"1e999999999"))
        await hw.queue("orders").push(7)
        assert [mark.instance for mark in await hw.room("canvas-1").watermarks()] == ["server-a"]
        hw.rooms_service.leave(live)
    query = (
        "SELECT message_type, payload FROM message_queue WHERE canvas_id = 'canvas-1' AND id > %s ORDER BY id LIMIT 100"
    )
    target = parse_address(address)
    with psycopg.connect(target.conninfo) as connection:
        connection.execute(f'SET search_path = "{target.schema}"'.encode())
        assert connection.execute(query.encode(), (0,)).fetchall() == [
            ("object-create", '{"x":1}'),
            ("object-update", '{"x":2,"nul":"a\\u2400b\\\\u0000"}'),
        ]
        [(instance, position)] = connection.execute(
            b"SELECT server_instance_id, last_processed_id FROM canvas_watermarks WHERE canvas_id = 'canvas-1'"
        ).fetchall()
        assert instance == "server-a"
        assert [kind for kind, _ in connection.execute(query.encode(), (position,)).fetchall()] == ["object-update"]
        shown = connection.execute(b"SELECT payload FROM message_queue WHERE canvas_id = 'canvas-2'").fetchall()
        assert shown == [("1e999999999",)]
        [(count, in_order)] = connection.execute(
            b"SELECT count(*), bool_and(created_at < expires_at) FROM message_queue"
        ).fetchall()
        assert (count, in_order) == (3, True)


async def test_tables_of_the_user_with_those_names_are_left_alone(server: Server, address: str) -> None:
    target = parse_address(address)
    with psycopg.connect(target.conninfo, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{target.schema}"'.encode())
        connection.execute(f'CREATE TABLE "{target.schema}".message_queue (mine int)'.encode())
        async with headwater.open(address, adopt=True) as hw:
            await hw.room("a").send(1)
        assert connection.execute(f'SELECT * FROM "{target.schema}".message_queue'.encode()).fetchall() == []


# ── room ──

FULL = """
CREATE FUNCTION {0}.refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER no_room BEFORE INSERT ON {0}.hw_segments FOR EACH ROW EXECUTE FUNCTION {0}.refuse();
"""


async def test_a_server_whose_disk_is_full_is_taken_to_be_so_for_a_while(
    server: Server, log: Log, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is not ready gets no requests, and nobody but a request could find that there is room again."""
    schema = parse_address(address).schema
    await log.push(1)
    assert await log.store.has_room()
    with server.connect() as owner:
        owner.execute(FULL.format(schema).encode())
        with pytest.raises(StoreFull, match="no space"):
            await log.push(2)
        assert not await log.store.has_room()
        monkeypatch.setattr(postgres_store, "FULL_SECONDS", 0.0)
        with pytest.raises(StoreFull):
            await log.push(2)
        assert await log.store.has_room(), "it is tried again"
        owner.execute(f"DROP TRIGGER no_room ON {schema}.hw_segments".encode())
    await log.push(3)
    assert payloads(await log.take(10)) == [1, 3]
