"""Deleting queues and groups: everything of theirs goes, numbers never come back."""

import pytest

from headwater.errors import HeadwaterError, LeaseLost, QueueMissing
from headwater.log.operations import DeleteGroup, DeleteQueue, Trace
from headwater.model.cursor import Outcome
from headwater.model.names import Lsn
from headwater.stores.questions import FindLane, FindLastLsn, ListGroups, ListQueues, ListTraces
from tests.contracts.log import Log, ack, push


async def test_a_deleted_queue_is_gone_with_everything_in_it(log: Log) -> None:
    pushed = await log.push(1, 2, 3)
    await log.settle(await log.take(), Outcome.DEAD)
    await log.run(Trace(partition_id=pushed.partition_id, transaction_id="t"))
    assert (await log.run(DeleteQueue(queue="orders"))).count == 1
    assert await log.store.ask(ListQueues("main")) == []
    assert await log.store.ask(ListGroups("main")) == []
    assert await log.read() == []
    assert await log.store.ask(ListTraces("main", pushed.partition_id, "t")) == []
    assert await log.store.ask(FindLane(pushed.partition_id)) is None
    with pytest.raises(QueueMissing):
        await log.dead_letters()


async def test_a_queue_that_is_not_there_deletes_nothing(log: Log) -> None:
    assert (await log.run(DeleteQueue(queue="missing"))).count == 0


async def test_other_queues_stay(log: Log) -> None:
    await log.push(1)
    await log.push(2, queue="bills")
    batch = await log.take(queue="bills")
    await log.run(DeleteQueue(queue="orders"))
    await log.ack(batch)
    assert [status.queue for status in await log.store.ask(ListQueues("main"))] == ["bills"]


async def test_a_queue_of_the_same_name_begins_anew(log: Log) -> None:
    await log.configure(retry_limit=9)
    first = await log.push("old", ids=["1"])
    await log.drain()
    await log.run(DeleteQueue(queue="orders"))
    second = await log.push("new", ids=["1"])
    assert second.offsets() == [0]
    assert second.partition_id != first.partition_id
    assert (await log.queue()).options.retry_limit == 3
    assert await log.drain() == ["new"]


async def test_the_lease_of_a_deleted_queue_is_lost(log: Log) -> None:
    await log.push(1)
    batch = await log.take()
    await log.run(DeleteQueue(queue="orders"))
    await log.push(2)
    (refused,) = await log.results(ack(batch))
    assert isinstance(refused, QueueMissing)


async def test_lsns_never_come_back_after_a_delete(log: Log) -> None:
    last = (await log.push(1)).lsn
    await log.run(DeleteQueue(queue="orders"))
    assert await log.store.ask(FindLastLsn()) == last
    assert (await log.push(2)).lsn == last + 1


async def test_lsns_never_come_back_in_another_store(log: Log, other: Log) -> None:
    await other.push("keeps last LSN in mind", queue="bills")
    last = (await log.push(1)).lsn
    await log.run(DeleteQueue(queue="orders"))
    assert (await other.push(2, queue="bills")).lsn == last + 1
    assert [touch.lsn for touch in await log.store.touched(last, 10)] == [Lsn(last + 1)]


async def test_a_queue_deleted_and_made_again_elsewhere_is_met_anew(log: Log, other: Log) -> None:
    await log.push("old", "old")
    await other.drain()
    await log.run(DeleteQueue(queue="orders"))
    await log.push("new")
    assert (await other.push("newer")).offsets() == [1]
    assert await other.drain() == ["new", "newer"]


async def test_a_deleted_group_begins_anew(log: Log) -> None:
    await log.push(1)
    assert await log.drain(group="g") == [1]
    assert (await log.run(DeleteGroup(group="g", queue="orders"))).count == 1
    assert await log.drain(group="g") == [1]


async def test_the_lease_of_a_deleted_group_is_lost(log: Log) -> None:
    await log.push(1)
    batch = await log.take(group="g")
    await log.run(DeleteGroup(group="g", queue="orders"))
    with pytest.raises(LeaseLost):
        await log.ack(batch)


async def test_a_group_is_deleted_in_one_queue_or_in_all(log: Log) -> None:
    for queue in ("a", "b", "c"):
        await log.push(1, queue=queue)
        await log.pop(queue=queue, group="g")
        await log.pop(queue=queue, group="other")
    assert (await log.run(DeleteGroup(group="g", queue="a"))).count == 1
    assert (await log.run(DeleteGroup(group="g"))).count == 2
    assert (await log.run(DeleteGroup(group="g"))).count == 0
    assert {status.group for status in await log.store.ask(ListGroups("main"))} == {"other"}


async def test_a_delete_and_a_push_of_one_commit_leave_a_fresh_queue(log: Log) -> None:
    await log.push("old")
    deleted, pushed = await log.results(DeleteQueue(queue="orders"), push("new"))
    assert not isinstance(deleted, HeadwaterError)
    assert pushed.offsets() == [0]
    assert await log.drain() == ["new"]
