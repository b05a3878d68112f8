"""Streaming queries: registered once, remembering values, and advancing through their source in the same commit."""

import pytest
from msgspec import Raw

from headwater.errors import LeaseLost, QueueMissing, StreamMismatch, UnknownRecord
from headwater.log.operations import Advance, Batch, SetSwitch, Transaction
from headwater.log.stream_operations import ChangeState, RegisterStream
from headwater.model.names import PartitionId
from headwater.stores.questions import FindStream, ListSwitches, StateQuestion
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, payloads, push

GROUP = "streams.totals"


def register(config_hash: str = "a", *, reset: bool = False, database: str = "main") -> RegisterStream:
    return RegisterStream(database=database, name="totals", source_queue="orders", config_hash=config_hash, reset=reset)


def change(query_id: int, partition_id: int, database: str = "main", **values: str | None) -> ChangeState:
    changes = [(key, None if value is None else Raw(value.encode())) for key, value in values.items()]
    return ChangeState(
        database=database, query_id=query_id, partition_id=PartitionId(partition_id), changes=tuple(changes)
    )


def advance(batch: Batch, through: int | str, *, release: bool = True) -> Advance:
    return Advance(
        partition_id=batch.partition_id, group=batch.group, token=batch.token, through=through, release=release
    )


async def state(log: Log, query_id: int, partition_id: int = 1, **about: object) -> dict[str, bytes]:
    question = StateQuestion(query_id, PartitionId(partition_id), **about)  # type: ignore[arg-type]
    return {value.key: bytes(value.value) for value in await log.store.ask(question)}


# ── queries ──


async def test_a_query_is_new_once(log: Log) -> None:
    first = await log.run(register())
    again = await log.run(register())
    assert (first.fresh, again.fresh, first.query_id == again.query_id) == (True, False, True)


async def test_a_query_of_another_shape_is_refused_unless_it_begins_anew(log: Log) -> None:
    known = await log.run(register())
    await log.run(change(known.query_id, 1, total="7"))
    with pytest.raises(StreamMismatch):
        await log.run(register("b"))
    assert await state(log, known.query_id) == {"total": b"7"}
    assert (await log.run(register("b", reset=True))).reset
    assert await state(log, known.query_id) == {}


async def test_queries_of_two_databases_know_nothing_of_each_other(log: Log) -> None:
    ours = await log.run(register())
    theirs = await log.run(register("b", database="other"))
    assert ours.query_id != theirs.query_id
    with pytest.raises(QueueMissing):
        await log.run(change(ours.query_id, 1, "other", total="7"))
    assert await log.store.ask(FindStream("other", ours.query_id)) is None


# ── what they remember ──


async def test_values_are_remembered_by_query_partition_and_key(log: Log) -> None:
    query = (await log.run(register())).query_id
    await log.run(change(query, 1, a="1", b="2"))
    await log.run(change(query, 2, a="3"))
    await log.run(change(query, 1, a="4", b=None))
    assert await state(log, query, 1) == {"a": b"4"}
    assert await state(log, query, 2, keys=["a", "a", "none"]) == {"a": b"3"}


async def test_windows_that_ended_are_found_by_prefix_and_time(log: Log) -> None:
    query = (await log.run(register())).query_id
    await log.run(
        change(query, 1, w_1='{"windowEnd": 10}', w_2='{"windowEnd": 20}', w_3='"text"', x_1='{"windowEnd": 1}')
    )
    assert set(await state(log, query, prefix="w_", ended_by=10)) == {"w_1"}
    assert set(await state(log, query, prefix="w_")) == {"w_1", "w_2", "w_3"}


# ── the source ──


async def test_everything_up_to_a_record_is_done_and_the_rest_comes_at_once(log: Log) -> None:
    await log.push(0, 1, 2, 3)
    await log.run(advance(await log.take(4, group=GROUP), 1))
    batch = await log.take(4, group=GROUP)
    assert (payloads(batch), batch.attempts) == ([2, 3], 1)


async def test_the_rest_stays_away_until_the_lease_would_have_run_out(log: Log, clock: FakeClock) -> None:
    await log.push(0, 1, 2, 3)
    batch = await log.take(4, group=GROUP, lease_seconds=10)
    await log.run(advance(batch, 1, release=False))
    assert await log.pop(4, group=GROUP) == []
    with pytest.raises(LeaseLost):
        await log.run(advance(batch, 2))
    clock.advance(10)
    batch = await log.take(4, group=GROUP)
    assert (payloads(batch), batch.attempts) == ([2, 3], 1)


async def test_a_stream_that_lets_its_lease_run_out_again_and_again_loses_nothing(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_limit=1)
    await log.push(0)
    for _ in range(5):
        batch = await log.take(group=GROUP, lease_seconds=10)
        assert batch.attempts == 1
        clock.advance(10)
    assert await log.dead_letters() == []


async def test_an_id_that_was_pushed_again_is_reached_in_the_lease_that_brought_it(log: Log, clock: FakeClock) -> None:
    await log.push(1, 2, 3, ids=["X", "Y", "Z"])
    clock.advance(10_000_000)
    await log.push(4, ids=["X"])
    batch = await log.take(10)
    assert payloads(batch) == [1, 2, 3]
    await log.run(advance(batch, "Z"))
    last = await log.take(10)
    assert payloads(last) == [4]
    await log.run(advance(last, "X"))
    assert await log.pop() == []


async def test_a_report_through_a_record_that_is_not_leased_is_refused(log: Log) -> None:
    await log.push(0, 1)
    batch = await log.take(group=GROUP)
    await log.run(advance(batch, 0))
    with pytest.raises(LeaseLost):
        await log.run(advance(batch, 0))
    batch = await log.take(group=GROUP)
    with pytest.raises(UnknownRecord):
        await log.run(advance(batch, "unknown"))
    with pytest.raises(UnknownRecord):
        await log.run(advance(batch, 0))


async def test_state_pushes_and_the_report_hold_together_or_not_at_all(log: Log) -> None:
    query = (await log.run(register())).query_id
    await log.push(1)
    batch = await log.take(group=GROUP)
    steps = (advance(batch, 0), push("sum", queue="totals"), change(query, batch.partition_id, total="1"))
    await log.run(Transaction(operations=steps))
    with pytest.raises(LeaseLost):
        await log.run(Transaction(operations=(steps[1], change(query, batch.partition_id, total="2"), steps[0])))
    assert await state(log, query, batch.partition_id) == {"total": b"1"}
    assert await log.drain(queue="totals") == ["sum"]


async def test_a_switch_is_on_for_its_database_until_it_is_turned_off(log: Log) -> None:
    await log.run(SetSwitch(database="a", name="hold pushes", is_on=True))
    await log.run(SetSwitch(database="a", name="hold pushes", is_on=True))
    assert await log.store.ask(ListSwitches()) == [("a", "hold pushes")]
    await log.run(SetSwitch(database="b", name="hold pushes", is_on=False))
    await log.run(SetSwitch(database="a", name="hold pushes", is_on=False))
    assert await log.store.ask(ListSwitches()) == []
