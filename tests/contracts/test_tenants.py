"""Databases (tenants) in one store: nobody sees or touches what another has."""

import pytest

from headwater.errors import HeadwaterError, QueueMissing
from headwater.log.operations import (
    Ack,
    Configure,
    DeleteGroup,
    DeleteQueue,
    Extend,
    Pop,
    Purge,
    Requeue,
    Seek,
    Trace,
    Transaction,
)
from headwater.model.cursor import Outcome
from headwater.stores.questions import FindLane, ListDeadLetters, ListGroups, ListQueues, ListTraces
from tests.contracts.log import Log, payloads, push


async def test_queues_of_one_name_are_apart(log: Log) -> None:
    await log.push("mine")
    await log.push("theirs", database="tenant")
    assert await log.drain() == ["mine"]
    (batch,) = await log.pop(database="tenant")
    assert payloads(batch) == ["theirs"]


async def test_listings_show_only_their_database(log: Log) -> None:
    await log.push("mine")
    await log.push("theirs", queue="secret", database="tenant")
    await log.pop(database="tenant", queue="secret")
    assert [status.queue for status in await log.store.ask(ListQueues("main"))] == ["orders"]
    assert [status.queue for status in await log.store.ask(ListQueues("tenant"))] == ["secret"]
    assert await log.store.ask(ListGroups("main")) == []
    assert [group.queue for group in await log.store.ask(ListGroups("tenant"))] == ["secret"]
    with pytest.raises(QueueMissing):
        await log.dead_letters("secret")


async def test_a_pop_over_all_queues_stays_in_its_database(log: Log) -> None:
    await log.run(Configure(queue="theirs", namespace="shop", database="tenant"))
    await log.push("theirs", queue="theirs", database="tenant")
    assert await log.pop(queue="") == []
    assert await log.pop(queue="", namespace="shop") == []


async def test_a_lease_of_another_database_is_like_one_that_is_not_there(log: Log) -> None:
    await log.push("theirs", database="tenant")
    (batch,) = await log.pop(database="tenant")
    for operation in (
        Ack(partition_id=batch.partition_id, token=batch.token),
        Extend(partition_id=batch.partition_id, token=batch.token),
        Trace(partition_id=batch.partition_id, transaction_id="t"),
        Transaction(operations=[push("mine")], leases=[(batch.partition_id, batch.group, batch.token)]),
    ):
        (refused,) = await log.results(operation)
        assert isinstance(refused, QueueMissing)
    assert await log.store.ask(ListQueues("main")) == []


async def test_nothing_of_another_database_can_be_changed(log: Log) -> None:
    await log.push("a", "b", database="tenant")
    (batch,) = await log.pop(database="tenant")
    await log.run(
        Ack(
            database="tenant",
            partition_id=batch.partition_id,
            token=batch.token,
            outcomes={0: Outcome.DEAD},
        )
    )
    for operation in (Seek(queue="orders"), Requeue(queue="orders"), Purge(queue="orders")):
        (refused,) = await log.results(operation)
        assert isinstance(refused, HeadwaterError)
    assert (await log.run(DeleteQueue(queue="orders"))).count == 0
    assert (await log.run(DeleteGroup(group=batch.group))).count == 0
    assert len(await log.store.ask(ListDeadLetters("tenant", "orders", 10))) == 1
    popped = await log.run(Pop(queue="orders", database="tenant"))
    assert payloads(popped.batches[0]) == ["b"]


async def test_a_segment_and_a_lane_name_their_database(log: Log) -> None:
    pushed = await log.push("theirs", database="tenant", partition="p")
    (segment,) = await log.read()
    lane = await log.store.ask(FindLane(pushed.partition_id))
    assert segment.lane == lane
    assert lane is not None
    assert (lane.database, lane.queue, lane.partition) == ("tenant", "orders", "p")


async def test_traces_are_asked_for_by_database(log: Log) -> None:
    pushed = await log.push("theirs", database="tenant")
    await log.run(Trace(database="tenant", partition_id=pushed.partition_id, transaction_id="t"))
    assert await log.store.ask(ListTraces("main", pushed.partition_id, "t")) == []
    assert len(await log.store.ask(ListTraces("tenant", pushed.partition_id, "t"))) == 1
