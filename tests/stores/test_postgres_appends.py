"""Pushes of which nothing has to be decided, on PostgreSQL: one round trip, behind whatever others have pushed, and by
the same rules as all others."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headwater.doors.work import effects_of
from headwater.errors import QueueFull, StoreReplaced
from headwater.log.operations import Clear, DeleteQueue
from headwater.log.store_operations import RenewIdentity
from headwater.stores.postgres.store import PostgresStore
from tests.contracts.log import Log, payloads, push, until_durable
from tests.postgres_server import Server
from tests.postgres_server import server as server_of_process
from tests.stores.test_postgres import opened, trips
from tests.waiting import expect_soon


@pytest.fixture(scope="module")
def server() -> Server:
    return server_of_process()


@pytest.fixture
def address(server: Server) -> str:
    return server.address(server.new_schema())


@pytest.fixture
async def log(address: str) -> AsyncIterator[Log]:
    """One that knows the partition."""
    made = await opened(address)
    await made.push("first", partition="p")
    yield made
    await made.store.close()


@pytest.fixture
async def other(log: Log, address: str) -> AsyncIterator[Log]:
    """Another process, which has just pushed."""
    made = await opened(address)
    await made.push("theirs", partition="p")
    yield made
    await made.store.close()


async def test_a_push_goes_behind_those_of_another_process_in_one_round_trip(log: Log, other: Log) -> None:
    theirs = await other.push("also theirs", partition="p")
    assert await trips(log, push("ours", "and more", partition="p")) == 1
    [last] = await log.results(push("last", partition="p"))
    assert (last.first_offset, last.count, last.lsn) == (theirs.first_offset + 3, 1, theirs.lsn + 2)
    found = payloads(await other.take(10, partition="p"))
    assert found == ["first", "theirs", "also theirs", "ours", "and more", "last"]


async def test_pushes_of_one_commit_share_a_segment_for_each_partition(log: Log, other: Log) -> None:
    await log.push("q", partition="q")
    await other.push("theirs", partition="q")
    commit = await log.commit(*(push(name, partition=name[0]) for name in ("p1", "q1", "p2", "q2")))
    assert [(touch.lane.partition, touch.first_offset, touch.count) for touch in commit.touched] == [
        ("p", 2, 2),
        ("q", 2, 2),
    ]
    assert [(told.partition, told.first_offset) for told in commit.results] == [("p", 2), ("q", 2), ("p", 3), ("q", 3)]
    assert payloads(await other.take(10, partition="q")) == ["q", "theirs", "q1", "q2"]
    assert [segment.lsn for segment in await other.read()] == list(range(1, 7))


async def test_what_is_appended_counts_as_pushed(log: Log, other: Log) -> None:
    commit = await log.commit(push("a", "b", partition="p"), push("c", partition="p"))
    assert sum(count for _, name, count in effects_of(commit) if name == "pushed_records") == 3


async def test_pushes_without_a_partition_are_spread_over_the_lanes(log: Log, other: Log) -> None:
    values = [f"v{value}" for value in range(64)]
    await log.push(*values, partition="", lanes=8)
    await other.push("theirs", partition="")
    assert await trips(log, push(*(f"w{value}" for value in range(16)), partition="")) == 1
    found = await other.drain(queue="orders")
    assert sorted(found) == sorted(["first", "theirs", "theirs", *values, *(f"w{value}" for value in range(16))])


async def test_what_is_too_large_for_one_segment_becomes_several(log: Log, other: Log) -> None:
    large = [f"{value}" * 400_000 for value in range(5)]
    pushed = await log.push(*large, partition="p")
    assert (pushed.first_offset, pushed.count) == (2, 5)
    segments = [segment for segment in await other.read() if segment.lsn > 2]
    assert len(segments) > 1
    assert pushed.lsn == segments[-1].lsn
    assert [payload for segment in segments for payload in payloads(segment)] == large


async def test_a_group_that_had_caught_up_is_woken(log: Log, other: Log) -> None:
    await other.ack(await other.take(10))
    assert await other.pop() == []
    assert await trips(log, push("ours", partition="p")) == 1
    assert payloads(await other.take()) == ["ours"]


async def test_what_has_a_time_to_live_expires(log: Log, other: Log) -> None:
    assert await trips(log, push("short", partition="p", ttl_seconds=5)) == 1
    other.clock.advance(10)
    assert payloads(await other.take(10, partition="p")) == ["first", "theirs"]


async def test_options_that_another_process_has_changed_hold(log: Log, other: Log) -> None:
    await other.configure(size_max=2)
    with pytest.raises(QueueFull):
        await log.push("too many", partition="p")
    assert payloads(await other.take(10, partition="p")) == ["first", "theirs"]


async def test_a_queue_that_another_process_has_deleted_is_made_anew(log: Log, other: Log) -> None:
    await other.run(DeleteQueue(queue="orders"))
    pushed = await log.push("ours", partition="p")
    assert (pushed.first_offset, pushed.lsn) == (0, 3)
    assert payloads(await other.take(10, partition="p")) == ["ours"]


async def test_neither_offsets_nor_lsns_are_given_again_when_records_were_dropped(log: Log, other: Log) -> None:
    await other.run(Clear(queue="orders"))
    pushed = await log.push("ours", partition="p")
    assert (pushed.first_offset, pushed.lsn) == (2, 3)


async def test_messages_that_are_due_come_first(log: Log, other: Log) -> None:
    await other.run(push("due", partition="p", delay_seconds=5))
    log.clock.advance(10)
    await log.push("ours", partition="p")
    assert payloads(await log.take(10, partition="p")) == ["first", "theirs", "due", "ours"]


async def test_a_clock_that_was_set_back_takes_leases_with_it(log: Log, other: Log) -> None:
    other.clock.advance(10_000)
    await other.push("later", partition="p")
    await other.take(10, partition="p", lease_seconds=60)
    await log.push("ours", partition="p")
    log.clock.advance(61)
    assert payloads(await log.take(1, partition="p")) == ["first"]


async def test_a_store_that_was_given_another_identity_is_written_no_more(log: Log, other: Log) -> None:
    await other.run(RenewIdentity())
    with pytest.raises(StoreReplaced):
        await log.push("ours", partition="p")
    assert payloads(await other.take(10, partition="p")) == ["first", "theirs"]


async def test_what_has_a_key_or_an_id_is_compared(log: Log, other: Log) -> None:
    assert await trips(log, push("once", partition="p", key="k")) == 2
    await other.push("theirs again", partition="p")
    [again] = await log.results(push("once", partition="p", key="k"))
    assert again.first_offset == 2
    theirs = await other.push("id", partition="p", ids=["a"])
    [duplicate] = await log.results(push("id", partition="p", ids=["a"]))
    assert duplicate.duplicates == {0: theirs.first_offset}


async def test_who_is_alone_for_long_remembers_where_the_end_is(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows then need not be told what this process has appended itself."""
    monkeypatch.setattr("headwater.stores.postgres.commits.ALONE_AFTER", 3)
    assert [await trips(log, push(value, partition="p")) for value in range(5)] == [1, 1, 1, 2, 1]
    assert payloads(await log.take(10, partition="p")) == ["first", 0, 1, 2, 3, 4]


async def test_several_processes_at_once_get_each_offset_once(log: Log, other: Log) -> None:
    async def produce(who: Log, name: str) -> list[int]:
        return [(await who.push(f"{name}{value}", partition="p")).first_offset for value in range(60)]

    ours, theirs = await asyncio.gather(produce(log, "a"), produce(other, "b"))
    assert sorted(ours + theirs) == list(range(2, 122))
    assert (ours, theirs) == (sorted(ours), sorted(theirs))
    found = payloads(await log.take(1_000, partition="p"))
    assert [found[offset] for offset in ours] == [f"a{value}" for value in range(60)]


def _until_cut(log: Log) -> None:
    store = log.store
    assert isinstance(store, PostgresStore)
    expect_soon(lambda: not store._commits._connection.is_there(), seconds=30)


async def test_a_connection_that_was_cut_before_is_opened_again(log: Log, other: Log, server: Server) -> None:
    await until_durable(log.store, 1)
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_logical_emit_message%'"
    with server.connect() as connection:
        assert connection.execute(f"{others} AND pid <> pg_backend_pid()").fetchall()
    await asyncio.to_thread(_until_cut, log)
    assert (await log.push("ours", partition="p")).first_offset == 2
    assert payloads(await other.take(10, partition="p")) == ["first", "theirs", "ours"]


async def test_a_push_that_the_server_refuses_leaves_the_connection_as_it_was(
    log: Log, other: Log, address: str, server: Server
) -> None:
    schema = address.rpartition("schema=")[2]
    with server.connect() as connection:
        connection.execute(
            f"CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no more'; END$$"
        )
        connection.execute(
            f"CREATE TRIGGER refusing BEFORE INSERT ON {schema}.hw_segments EXECUTE FUNCTION {schema}.refuse()"
        )
    with pytest.raises(Exception, match="no more"):
        await log.push("refused", partition="p")
    with server.connect() as connection:
        connection.execute(f"DROP TRIGGER refusing ON {schema}.hw_segments")
    assert (await log.push("ours", partition="p")).first_offset == 2
    assert payloads(await other.take(10, partition="p")) == ["first", "theirs", "ours"]
