"""A database: several queues at once, and tenants that do not see each other."""

from typing import Any

import pytest

import headwater
from headwater.errors import InvalidName, InvalidOption
from headwater.model.queue import LANES_DEFAULT
from headwater.model.spreading import lane_name, lane_of_id
from headwater.services.messages import Outgoing


async def test_messages_for_several_queues_are_one_commit(hw: headwater.Headwater) -> None:
    before = hw.committer.commits
    receipts = await hw.push_all(
        [
            Outgoing(payload=1, queue="orders"),
            Outgoing(payload=2, queue="bills", partition="p"),
            Outgoing(payload=3, queue="orders", transaction_id="tx"),
            Outgoing(payload=4, queue="orders", partition="p"),
            Outgoing(payload=3, queue="orders", transaction_id="tx"),
        ]
    )
    assert hw.committer.commits == before + 1
    lane = lane_name(lane_of_id("tx", LANES_DEFAULT))
    assert [(receipt.queue, receipt.partition, receipt.offset, receipt.duplicate) for receipt in receipts] == [
        ("orders", "Default", 0, False),
        ("bills", "p", 0, False),
        ("orders", lane, 0, False),
        ("orders", "p", 0, False),
        ("orders", lane, 0, True),
    ]


async def test_messages_for_no_queue_are_refused_before_anything_is_pushed(hw: headwater.Headwater) -> None:
    wrong: list[Any] = [1, Outgoing(payload=1), {"payload": 1, "queue": "orders"}]
    for message in wrong:
        with pytest.raises(InvalidOption):
            await hw.push_all([Outgoing(payload=1, queue="orders"), message])
    with pytest.raises(InvalidName):
        await hw.push_all([Outgoing(payload=1, queue="orders"), Outgoing(payload=1, queue="a b")])
    assert await hw.queues() == []
    assert list(await hw.push_all([])) == []


async def test_queues_are_popped_together_by_priority(hw: headwater.Headwater) -> None:
    await hw.queue("low").configure(namespace="shop", priority=1)
    await hw.queue("high").configure(namespace="shop", priority=2)
    await hw.push_all([Outgoing(payload=name, queue=name) for name in ("low", "high", "other")])
    messages = await hw.pop(namespace="shop", batch=10, partitions=10)
    assert [message.payload for message in messages] == ["high", "low"]


async def test_queues_and_groups_are_listed(hw: headwater.Headwater) -> None:
    await hw.push_all([Outgoing(payload=1, queue=name) for name in ("b", "a")])
    await hw.queue("a").pop(group="g")
    await hw.queue("b").pop(group="g")
    assert [status.queue for status in await hw.queues()] == ["a", "b"]
    assert [(group.queue, group.group) for group in await hw.groups()] == [("a", "g"), ("b", "g")]
    assert [group.queue for group in await hw.groups("a")] == ["a"]
    assert await hw.delete_group("g") == 2
    assert await hw.groups() == []


async def test_tenants_do_not_see_each_other(hw: headwater.Headwater) -> None:
    tenant = hw.database("tenant")
    await hw.queue("orders").push("ours")
    await tenant.queue("orders").push("theirs")
    (message,) = await tenant.queue("orders").pop()
    assert message.payload == "theirs"
    await tenant.queue("orders").ack(message)
    assert [status.queue for status in await tenant.queues()] == ["orders"]
    assert [message.payload for message in await hw.pop(batch=10)] == ["ours"]


async def test_a_tenant_needs_a_name(hw: headwater.Headwater) -> None:
    with pytest.raises(InvalidName):
        hw.database("a b")
