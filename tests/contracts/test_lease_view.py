"""What is leased: seen by whoever asks, and given back by whoever may; lag that counts only what waits."""

import pytest

from headwater.clock import SECOND
from headwater.errors import InvalidOption, LeaseLost, QueueMissing
from headwater.log.group_operations import LeasesReleased, ReleaseLeases
from headwater.model.cursor import Outcome
from headwater.stores.questions import ListCursors, ListLeases
from tests.contracts.clock import FakeClock
from tests.contracts.log import QUEUE, Log, payloads


async def release(log: Log, **which: object) -> tuple[int, int]:
    released: LeasesReleased = await log.run(ReleaseLeases(queue=QUEUE, **which))  # type: ignore[arg-type]
    return released.leases, released.records


async def test_a_lease_says_what_is_held_by_whom_and_until_when(log: Log, clock: FakeClock) -> None:
    await log.push(*range(5), partition="p")
    batch = await log.take(4, group="g", holder="host:1", lease_seconds=30)
    await log.ack(batch, [1])
    (lease,) = await log.store.ask(ListLeases("main", QUEUE))
    assert (lease.queue, lease.partition, lease.partition_id, lease.group) == (QUEUE, "p", batch.partition_id, "g")
    assert (lease.holder, lease.token, lease.attempts) == ("host:1", batch.token, 1)
    assert lease.lease_until == clock.now() + 30 * SECOND
    assert lease.records == 3, "one of the four is acked"


async def test_only_live_leases_are_shown(log: Log, clock: FakeClock) -> None:
    await log.push(1, partition="a")
    await log.push(2, partition="b")
    await log.ack(await log.take(partition="a"))
    await log.take(partition="b", lease_seconds=10)
    assert [lease.partition for lease in await log.store.ask(ListLeases("main"))] == ["b"]
    clock.advance(10)
    assert await log.store.ask(ListLeases("main")) == []


async def test_leases_are_shown_of_one_queue_or_group(log: Log) -> None:
    for queue in ("x", "y"):
        await log.push(1, queue=queue)
        for group in ("a", "b"):
            await log.pop(queue=queue, group=group)
    assert len(await log.store.ask(ListLeases("main"))) == 4
    assert {lease.queue for lease in await log.store.ask(ListLeases("main", "x"))} == {"x"}
    assert {lease.group for lease in await log.store.ask(ListLeases("main", group="a"))} == {"a"}
    assert len(await log.store.ask(ListLeases("main", limit=3))) == 3
    assert await log.store.ask(ListLeases("other")) == []


async def test_a_released_lease_lets_others_in_at_once_and_counts_no_attempt(log: Log) -> None:
    await log.push(1, 2, 3)
    held = await log.take(2)
    await log.ack(held, [0])
    assert await release(log) == (1, 1)
    with pytest.raises(LeaseLost):
        await log.ack(held)
    again = await log.take(10)
    assert (payloads(again), again.attempts) == ([2, 3], 1)
    assert again.token > held.token


async def test_only_the_leases_that_are_meant_are_released(log: Log) -> None:
    for partition in ("a", "b"):
        await log.push(1, partition=partition)
    held = {
        (group, partition): await log.take(group=group, partition=partition) for group in "gh" for partition in "ab"
    }
    assert await release(log, group="g", partition="a") == (1, 1)
    assert await release(log, token=held["g", "b"].token, partition="b", group="g") == (1, 1)
    assert await release(log, token=held["h", "a"].token + 1, partition="a", group="h") == (0, 0)
    with pytest.raises(InvalidOption):
        await release(log, token=held["h", "b"].token)
    assert {(lease.group, lease.partition) for lease in await log.store.ask(ListLeases("main"))} == {
        ("h", "a"),
        ("h", "b"),
    }
    assert await release(log, group="h") == (2, 2)


async def test_a_lease_that_ran_out_is_not_released_but_counted(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    await log.take(lease_seconds=1)
    clock.advance(2)
    assert await release(log) == (0, 0)
    assert (await log.take()).attempts == 2


async def test_leases_of_a_queue_that_is_not_there_are_an_error(log: Log) -> None:
    with pytest.raises(QueueMissing):
        await release(log)


# ── lag ──


async def test_lag_does_not_count_what_was_acked_out_of_order(log: Log) -> None:
    await log.push(*range(10))
    batch = await log.take(10)
    await log.ack(batch, [1, 2, 5])
    assert (await log.group()).lag == 7
    (cursor,) = await log.store.ask(ListCursors("main", batch.group, 10))
    assert cursor.lag == 7


async def test_lag_does_not_count_what_was_buried(log: Log) -> None:
    await log.push(*range(4))
    batch = await log.take(4)
    await log.settle(batch, Outcome.DEAD, [2])
    assert (await log.group()).lag == 3


async def test_lag_falls_to_nothing_when_all_is_done_in_any_order(log: Log) -> None:
    await log.push(*range(6))
    batch = await log.take(6)
    for left, offset in zip(range(5, -1, -1), (5, 3, 1, 0, 2, 4), strict=True):
        await log.ack(batch, [offset])
        assert (await log.group()).lag == left
