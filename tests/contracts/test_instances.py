"""Two stores at one place: each sees what the other did, and they never give the same number or record twice."""

import pytest

from headwater.errors import LeaseLost
from headwater.log.operations import DeleteGroup, Pop, Retain, Seek
from headwater.model.cursor import Outcome
from tests.contracts.clock import FakeClock
from tests.contracts.conftest import OpenLog
from tests.contracts.log import Log, payloads


async def test_pushes_take_turns_without_gaps(log: Log, other: Log) -> None:
    offsets = []
    for number in range(6):
        writer = (log, other)[number % 2]
        offsets += (await writer.push(number)).offsets()
    assert offsets == [0, 1, 2, 3, 4, 5]
    assert await other.drain() == [0, 1, 2, 3, 4, 5]


async def test_what_was_seen_of_an_empty_log_is_not_believed_later(log: Log, other: Log) -> None:
    await log.push("later", ids=["late"], delay_seconds=3_600)
    await other.push("first", ids=["x"])
    again = await log.push("first", ids=["x"])
    assert again.duplicates == {0: 0}
    assert (await log.push("second")).offsets() == [1]
    assert await other.drain() == ["first", "second"]


async def test_a_lease_taken_here_holds_there(log: Log, other: Log) -> None:
    await log.push(1)
    batch = await log.take()
    assert await other.pop() == []
    await other.ack(batch)
    with pytest.raises(LeaseLost):
        await log.ack(batch)


async def test_a_lease_is_taken_over_when_it_runs_out(log: Log, other: Log, clock: FakeClock) -> None:
    await log.push(1)
    first = await log.take(lease_seconds=10)
    clock.advance(10)
    second = await other.take()
    assert first.token < second.token
    with pytest.raises(LeaseLost):
        await log.ack(first)
    await other.ack(second)


async def test_a_group_caught_up_there_is_woken_from_here(log: Log, other: Log) -> None:
    await log.push(1)
    assert await other.drain() == [1]
    await log.push(2)
    assert await other.drain() == [2]
    await log.push(3)
    assert await log.drain() == [3]
    await other.push(4)
    assert await log.drain() == [4]


async def test_partitions_made_there_are_met_here(log: Log, other: Log) -> None:
    await log.push(1, partition="a")
    assert await other.drain() == [1]
    await log.push(2, partition="b")
    assert await other.drain() == [2]
    await other.push(3, partition="c")
    assert sorted(await log.drain(group="late")) == [1, 2, 3]


async def test_a_group_moved_or_deleted_there_is_moved_here(log: Log, other: Log) -> None:
    await log.push(1, 2)
    assert await log.drain() == [1, 2]
    await other.run(Seek(queue="orders", to="beginning"))
    assert await log.drain() == [1, 2]
    await other.run(DeleteGroup(group="__QUEUE_MODE__"))
    assert await log.drain() == [1, 2]


async def test_options_changed_there_count_here(log: Log, other: Log) -> None:
    await log.push(1)
    await other.configure(retry_limit=0)
    acked = await log.settle(await log.take(), Outcome.FAILED)
    assert acked.buried == (0,)


async def test_what_was_dropped_there_is_lost_here(log: Log, other: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(1, 2)
    await log.pop(group="slow", batch=1, auto_ack=True)
    clock.advance(60)
    await other.run(Retain())
    await other.push(3)
    batch = await log.take(group="slow")
    assert (payloads(batch), batch.lost) == ([3], 1)


async def test_everything_is_there_after_all_stores_were_closed(log: Log, other: Log, open_log: OpenLog) -> None:
    await log.push(1, 2, 3)
    await other.ack(await other.take())
    leased = await log.take(lease_seconds=60)
    await log.store.close()
    await other.store.close()
    again = await open_log()
    assert await again.pop() == []
    await again.ack(leased)
    assert await again.drain() == [3]
    assert (await again.push(4)).offsets() == [3]


async def test_pops_at_both_get_every_record_once(log: Log, other: Log) -> None:
    for number in range(10):
        await log.push(number, partition=f"p{number}")
    found = []
    for turn in range(10):
        popped = await (log, other)[turn % 2].run(Pop(queue="orders"))
        found += [payload for batch in popped.batches for payload in payloads(batch)]
    assert sorted(found) == list(range(10))
