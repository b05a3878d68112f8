"""Several operations as one: all of them take effect, or none leaves a trace."""

import pytest

from headwater.errors import HeadwaterError, InvalidOption, LeaseLost, QueueFull, UnknownRecord
from headwater.log.operations import Acked, Batch, Configure, DeleteQueue, Pop, Popped, Pushed, Transaction
from headwater.model.cursor import Outcome
from headwater.model.names import PartitionId
from headwater.stores.questions import ListQueues
from tests.contracts.clock import FakeClock
from tests.contracts.log import QUEUE, Log, ack, payloads, push, report


def lease_of(batch: Batch) -> tuple[PartitionId, str, int]:
    return (batch.partition_id, batch.group, batch.token)


async def test_an_ack_and_pushes_take_effect_together(log: Log) -> None:
    await log.push("order")
    batch = await log.take()
    done = await log.run(Transaction(operations=[ack(batch), push("bill", queue="bills"), push("mail", queue="mails")]))
    assert [type(result) for result in done.results] == [Acked, Pushed, Pushed]
    assert await log.drain() == []
    assert await log.drain(queue="bills") + await log.drain(queue="mails") == ["bill", "mail"]


async def test_a_lost_lease_undoes_everything(log: Log, clock: FakeClock) -> None:
    await log.push("order")
    batch = await log.take(lease_seconds=10)
    clock.advance(10)
    commit = await log.commit(Transaction(operations=[push("bill", queue="bills"), ack(batch)]))
    assert isinstance(commit.results[0], LeaseLost)
    assert commit.touched == []
    assert [status.queue for status in await log.store.ask(ListQueues("main"))] == ["orders"]
    assert payloads(await log.take()) == ["order"]


@pytest.mark.parametrize("broken", [0, 1, 2])
async def test_wherever_it_breaks_nothing_is_left(log: Log, broken: int) -> None:
    await log.push(1, 2, ids=["a", "b"])
    batch = await log.take(2)
    steps = [
        Configure(queue="orders", options={"retry_limit": 9}),
        push(3, ids=["c"]),
        ack(batch),
    ]
    steps.insert(broken, report(batch, {99: Outcome.COMPLETED}))
    (refused,) = await log.results(Transaction(operations=steps))
    assert isinstance(refused, UnknownRecord)
    assert (await log.queue()).options.retry_limit == 3
    assert (await log.push(3, ids=["c"])).offsets() == [2]
    await log.ack(batch)
    assert await log.drain() == [3]


async def test_required_leases_must_be_alive(log: Log, clock: FakeClock) -> None:
    await log.push("order")
    batch = await log.take(lease_seconds=10)
    transaction = Transaction(operations=[push("bill", queue="bills")], leases=[lease_of(batch)])
    assert isinstance((await log.run(transaction)).results[0], Pushed)
    clock.advance(10)
    (refused,) = await log.results(transaction)
    assert isinstance(refused, LeaseLost)
    assert await log.drain(queue="bills") == ["bill"]


async def test_a_required_lease_of_somebody_else_is_refused(log: Log) -> None:
    await log.push("order")
    batch = await log.take()
    foreign = (batch.partition_id, batch.group, batch.token + 1)
    (refused,) = await log.results(Transaction(operations=[push("bill", queue="bills")], leases=[foreign]))
    assert isinstance(refused, LeaseLost)


async def test_later_steps_see_earlier_ones(log: Log) -> None:
    done = await log.run(
        Transaction(operations=[Configure(queue="orders", options={"size_max": 1}), push("a"), Pop(queue="orders")])
    )
    assert payloads(done.results[2].batches[0]) == ["a"]
    (refused,) = await log.results(Transaction(operations=[push("b")]))
    assert isinstance(refused, QueueFull)


async def test_a_refused_step_undoes_a_pop(log: Log) -> None:
    await log.push("a")
    (refused,) = await log.results(
        Transaction(operations=[Pop(queue="orders"), Configure(queue="orders", options={"retry_limit": -1})])
    )
    assert isinstance(refused, InvalidOption)
    batch = await log.take()
    assert (payloads(batch), batch.attempts) == (["a"], 1)


async def test_a_refused_transaction_leaves_its_neighbours_alone(log: Log) -> None:
    await log.push("old")
    batch = await log.take()
    broken = Transaction(operations=[push("undone"), push("undone", queue="bills"), report(batch, {9: Outcome.DEAD})])
    commit = await log.commit(push("before"), broken, push("after"), Pop(queue="orders", group="g", batch=10))
    before, refused, after, popped = commit.results
    assert isinstance(refused, UnknownRecord)
    assert (before.offsets(), after.offsets()) == ([1], [2])
    assert payloads(popped.batches[0]) == ["old", "before", "after"]
    assert [(touch.first_offset, touch.count) for touch in commit.touched] == [(1, 2)]


async def test_a_refused_transaction_does_not_show_its_records_later(log: Log) -> None:
    """The LSN of an undone push is given to the next one, whose records are others."""
    await log.push("lease me", queue="other")
    batch = await log.take(queue="other")
    steps = [push("undone"), Pop(queue="orders", group="reads it"), report(batch, {9: Outcome.DEAD})]
    (refused,) = await log.results(Transaction(operations=steps))
    assert isinstance(refused, UnknownRecord)
    await log.push("kept")
    assert payloads(await log.take(group="reads it")) == ["kept"]


async def test_transactions_follow_one_another_in_a_commit(log: Log) -> None:
    await log.push("a")
    batch = await log.take()
    first, second = await log.results(
        Transaction(operations=[ack(batch), push("b")]), Transaction(operations=[ack(batch), push("c")])
    )
    assert not isinstance(first, HeadwaterError)
    assert isinstance(second, LeaseLost)
    assert await log.drain() == ["b"]


async def test_a_transaction_cannot_hold_another(log: Log) -> None:
    (refused,) = await log.results(Transaction(operations=[push("a"), Transaction(operations=[push("b")])]))
    assert isinstance(refused, InvalidOption)
    assert await log.store.ask(ListQueues("main")) == []


async def test_a_duplicate_inside_a_transaction_is_told(log: Log) -> None:
    await log.push("a", ids=["1"])
    commit = await log.commit(Transaction(operations=[push("a", ids=["1"])]))
    assert commit.results[0].results[0].duplicates == {0: 0}
    assert commit.wrote


async def test_a_deletion_is_undone_too(log: Log) -> None:
    await log.push("a")
    batch = await log.take()
    steps = [DeleteQueue(queue="orders"), push("new"), ack(batch)]
    (refused,) = await log.results(Transaction(operations=steps))
    assert isinstance(refused, HeadwaterError)
    await log.ack(batch)
    popped: Popped = await log.run(Pop(queue="orders", group="fresh"))
    assert payloads(popped.batches[0]) == ["a"]


async def test_a_pop_in_a_transaction_finds_what_a_step_before_it_pushed(log: Log) -> None:
    steps = (Pop(queue=QUEUE), push(1), Pop(queue=QUEUE))
    before, _, after = (await log.run(Transaction(operations=steps))).results
    assert before.batches == []
    assert payloads(after.batches[0]) == [1]


async def test_a_pop_after_a_transaction_looks_again(log: Log) -> None:
    assert await log.pop() == []
    (transacted, popped) = await log.results(Transaction(operations=(Pop(queue=QUEUE), push(1))), Pop(queue=QUEUE))
    assert transacted.results[0].batches == []
    assert payloads(popped.batches[0]) == [1]
