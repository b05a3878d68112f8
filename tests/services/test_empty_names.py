"""Names that are empty, in every call that takes one and goes without: they are refused, and never mean all."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import headwater
from headwater import InvalidInput

Call = Callable[[headwater.Headwater, str], Awaitable[Any]]


async def _in_transaction(hw: headwater.Headwater, partition: str) -> None:
    async with hw.transaction() as together:
        together.push("orders", 1, partition=partition)


NAMED: dict[str, Call] = {
    "push": lambda hw, name: hw.queue("orders").push(1, partition=name),
    "push many": lambda hw, name: hw.queue("orders").push_many([1], partition=name),
    "push an outgoing": lambda hw, name: hw.queue("orders").push(headwater.Outgoing(payload=1, partition=name)),
    "push to the queue of an outgoing": lambda hw, name: hw.queue("orders").push(
        headwater.Outgoing(payload=1, queue=name)
    ),
    "push all": lambda hw, name: hw.push_all([headwater.Outgoing(payload=1, queue=name)]),
    "push together": _in_transaction,
    "pop": lambda hw, name: hw.queue("orders").pop(partition=name),
    "pop for a group": lambda hw, name: hw.queue("orders").pop(group=name),
    "pop of a namespace": lambda hw, name: hw.pop(namespace=name),
    "pop of a task": lambda hw, name: hw.pop(task=name),
    "consume": lambda hw, name: anext(hw.queue("orders").consume(partition=name, idle_seconds=0.01)),
    "run": lambda hw, name: hw.queue("orders").run(print, partition=name),
    "seek": lambda hw, name: hw.queue("orders").seek("beginning", partition=name),
    "seek of a group": lambda hw, name: hw.queue("orders").seek("beginning", group=name),
    "release leases": lambda hw, name: hw.queue("orders").release_leases(partition=name),
    "release leases of a group": lambda hw, name: hw.queue("orders").release_leases(group=name),
    "leases": lambda hw, name: hw.queue("orders").leases(group=name),
    "leases of a queue": lambda hw, name: hw.leases(name),
    "groups": lambda hw, name: hw.groups(name),
    "delete a group": lambda hw, name: hw.delete_group(name),
    "requeue": lambda hw, name: hw.queue("orders").requeue(to=name),
    "clean up jobs": lambda hw, name: hw.jobs.cleanup(queue=name),
    "retry dead jobs": lambda hw, name: hw.jobs.retry_dead(type=name),
    "list jobs": lambda hw, name: hw.jobs.list(queue=name),
    "configure jobs": lambda hw, name: hw.jobs.configure("max-retries", 1, queue=name),
    "settings of jobs": lambda hw, name: hw.jobs.config(name),
}


@pytest.mark.parametrize("call", NAMED.values(), ids=NAMED)
async def test_a_name_that_is_empty_is_refused_and_means_nothing(hw: headwater.Headwater, call: Call) -> None:
    """A variable that nobody filled must not mean all partitions, all groups or all queues."""
    orders = hw.queue("orders")
    await orders.push("a", partition="a")
    await orders.pop()
    with pytest.raises(InvalidInput):
        await call(hw, "")
    assert [status.records for status in await hw.queues()] == [1]
    assert [lease.partition for lease in await orders.leases()] == ["a"], "what was leased is leased"
