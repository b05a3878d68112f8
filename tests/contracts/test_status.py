"""What is asked about queues and groups: sizes, lag, the oldest that waits."""

import pytest

from headwater.errors import QueueFull
from headwater.log.operations import Configure, Retain, Seek
from headwater.model.cursor import Outcome
from headwater.stores.questions import ListGroups, ListQueues
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, push


async def test_a_queue_tells_its_size(log: Log, clock: FakeClock) -> None:
    await log.run(Configure(queue="orders", namespace="shop", task="bill"))
    created_at = clock.now()
    clock.advance(5)
    await log.commit(push(1, 2, 3), push(4, partition="b"))
    await log.settle(await log.take(), Outcome.DEAD)
    status = await log.queue()
    assert (status.database, status.namespace, status.task) == ("main", "shop", "bill")
    assert (status.partitions, status.records, status.dead_letters) == (2, 4, 1)
    assert status.created_at == created_at


async def test_queues_are_listed_by_name(log: Log) -> None:
    for name in ("b", "c", "a"):
        await log.push(1, queue=name)
    assert [status.queue for status in await log.store.ask(ListQueues("main"))] == ["a", "b", "c"]


async def test_what_waits_is_counted_for_the_slowest_group(log: Log) -> None:
    await log.push(*range(10))
    assert (await log.queue()).waiting == 10
    await log.ack(await log.take(7, group="fast"))
    assert (await log.queue()).waiting == 3
    await log.ack(await log.take(2, group="slow"))
    assert (await log.queue()).waiting == 8


async def test_what_waits_is_counted_for_a_group_that_has_not_been_in_a_partition(log: Log) -> None:
    await log.configure(lanes=1)
    await log.pop(group="slow")
    await log.push(1, 2, partition="a")
    await log.push(3, partition="", priority=5)
    assert sorted(await log.drain(group="fast")) == [1, 2, 3]
    assert ((await log.group("slow")).lag, (await log.queue()).waiting) == (3, 3)
    assert sorted(await log.drain(group="slow")) == [1, 2, 3]
    assert (await log.queue()).waiting == 0


async def test_what_was_acked_out_of_order_does_not_wait_any_more(log: Log) -> None:
    """Each group has one left of six, and neither has passed it."""
    await log.push(*range(6))
    for group, left in (("one", 2), ("two", 0)):
        batch = await log.take(6, group=group)
        await log.ack(batch, [offset for offset in batch.offsets if offset != left])
        assert (await log.group(group)).lag == 1
    assert (await log.queue()).waiting == 1


async def test_what_was_acked_out_of_order_takes_no_room(log: Log) -> None:
    await log.configure(size_max=3)
    await log.push(0, 1, 2)
    batch = await log.take(3)
    with pytest.raises(QueueFull, match="holds 3 waiting records of at most 3"):
        await log.push(3)
    await log.ack(batch, batch.offsets[1:])
    await log.push(3, 4)
    with pytest.raises(QueueFull, match="holds 3 waiting records of at most 3"):
        await log.push(5)


async def test_what_was_acked_out_of_order_and_dropped_is_not_counted_twice(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(0, 1, 2)
    batch = await log.take(3)
    await log.ack(batch, batch.offsets[1:])
    clock.advance(60)
    await log.push(3)
    await log.run(Retain())
    assert ((await log.group()).lag, (await log.queue()).waiting) == (1, 1)


async def test_what_came_before_the_beginning_of_a_group_does_not_wait_for_it(log: Log, clock: FakeClock) -> None:
    """More partitions than a group meets at once, so that it has not been in the last ones."""
    partitions = [f"p{number}" for number in range(30)]
    await log.commit(*[push("before", "before", partition=partition) for partition in partitions])
    clock.advance(10)
    began_at = clock.now()
    await log.commit(*[push("after", partition=partition) for partition in partitions])
    held = await log.take(group="since", since=began_at)
    assert (await log.group("since")).partitions < len(partitions)
    assert len(await log.drain(group="fast")) == 90
    assert ((await log.group("since")).lag, (await log.queue()).waiting) == (30, 30)
    await log.ack(held)
    assert len(await log.drain(group="since")) == 29
    assert (await log.queue()).waiting == 0


async def test_a_queue_is_full_for_a_group_that_has_not_been_in_a_partition(log: Log) -> None:
    await log.configure(size_max=3)
    await log.pop(group="slow")
    for number in range(3):
        await log.push(number)
        assert await log.drain(group="fast") == [number]
    with pytest.raises(QueueFull, match="holds 3 waiting records of at most 3"):
        await log.push(3)
    assert await log.drain(group="slow") == [0, 1, 2]
    await log.push(3)


async def test_a_queue_is_full_for_a_group_that_is_made_or_moved_back_meanwhile(log: Log) -> None:
    """What waited was counted by an earlier push, and left room for this one."""
    await log.configure(size_max=3)
    await log.push(1, 2)
    await log.drain(group="fast")
    await log.push(3, 4, 5)
    await log.drain(group="fast")
    await log.push(6)
    await log.pop(group="slow", partition="elsewhere")
    with pytest.raises(QueueFull, match="holds 6 waiting"):
        await log.push(7)
    await log.run(Seek(queue="orders", group="slow", to="end"))
    await log.push(7)
    await log.run(Seek(queue="orders", group="slow", to="beginning"))
    with pytest.raises(QueueFull, match="holds 7 waiting"):
        await log.push(8)


async def test_a_group_tells_how_far_behind_it_is(log: Log, clock: FakeClock) -> None:
    await log.commit(push(1, 2, 3), push(4, partition="b"))
    await log.ack(await log.take(1, partition="Default"))
    await log.take(1, partition="b", lease_seconds=10)
    status = await log.group()
    assert (status.queue, status.partitions, status.lag, status.leased, status.lost) == ("orders", 2, 3, 1, 0)
    clock.advance(10)
    assert (await log.group()).leased == 0


async def test_a_group_that_has_caught_up_has_no_lag(log: Log) -> None:
    await log.push(1, 2)
    await log.drain()
    status = await log.group()
    assert (status.lag, status.oldest_waiting_at, status.leased) == (0, None, 0)


async def test_records_in_partitions_that_a_group_has_not_met_wait_too(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    await log.drain()
    written_at = clock.advance(5)
    await log.push(2, 3, partition="new")
    clock.advance(5)
    status = await log.group()
    assert (status.lag, status.oldest_waiting_at) == (2, written_at)


async def test_a_group_that_wants_what_is_new_does_not_count_what_is_old(log: Log) -> None:
    await log.push(1)
    await log.push(2, partition="b")
    await log.pop(group="late", subscribe="new")
    assert (await log.group("late")).lag == 0
    await log.push(3)
    assert (await log.group("late")).lag == 1


async def test_the_oldest_that_waits_is_told(log: Log, clock: FakeClock) -> None:
    first = clock.now()
    await log.push(1)
    await log.push(9, partition="b")
    second = clock.advance(5)
    await log.push(2)
    await log.pop(group="g", partition="missing")
    assert (await log.group("g")).oldest_waiting_at == first
    await log.drain(group="g", partition="b")
    await log.ack(await log.take(group="g", partition="Default"))
    assert (await log.group("g")).oldest_waiting_at == second


async def test_leased_records_count_as_lag_until_they_are_done(log: Log) -> None:
    await log.push(1, 2)
    batch = await log.take(2)
    assert (await log.group()).lag == 2
    await log.ack(batch)
    assert (await log.group()).lag == 0


async def test_records_that_were_dropped_do_not_wait(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(1, 2)
    await log.pop(auto_ack=True)
    clock.advance(60)
    await log.push(3)
    await log.run(Retain())
    assert (await log.queue()).waiting == 1
    assert (await log.group()).lag == 1


async def test_groups_are_listed_for_one_queue_or_all(log: Log) -> None:
    for queue in ("a", "b"):
        await log.push(1, queue=queue)
        for group in ("two", "one"):
            await log.pop(queue=queue, group=group)
    assert [group.group for group in await log.store.ask(ListGroups("main", "a"))] == ["one", "two"]
    assert [(group.queue, group.group) for group in await log.store.ask(ListGroups("main"))] == [
        ("a", "one"),
        ("a", "two"),
        ("b", "one"),
        ("b", "two"),
    ]
    assert await log.store.ask(ListGroups("main", "missing")) == []
