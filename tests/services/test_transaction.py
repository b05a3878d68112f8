"""The transaction block: everything in it takes effect when it ends, together or not at all."""

import pytest

import headwater
from headwater.errors import InvalidInput, InvalidName, LeaseLost
from headwater.log.operations import Acked, Pushed
from headwater.services.transaction import Together


@pytest.fixture
def orders(hw: headwater.Headwater) -> headwater.Queue:
    return hw.queue("orders")


async def test_acks_and_pushes_take_effect_together(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await orders.push("order")
    messages = await orders.pop()
    before = hw.committer.commits
    async with hw.transaction() as together:
        together.ack(messages)
        together.push("bills", {"order": 7}, partition="p", transaction_id="tx")
        together.push("mails", "hello")
        assert hw.committer.commits == before
    assert hw.committer.commits == before + 1
    assert [type(result) for result in together.results] == [Acked, Pushed, Pushed]
    assert (await orders.groups())[0].lag == 0
    (bill,) = await hw.queue("bills").pop()
    assert (bill.payload, bill.partition, bill.transaction_id) == ({"order": 7}, "p", "tx")


async def act_and_raise(together: Together, error: Exception) -> None:
    async with together:
        together.push("bills", "bill")
        raise error


async def test_an_error_in_the_block_drops_everything(hw: headwater.Headwater) -> None:
    with pytest.raises(ValueError, match="boom"):
        await act_and_raise(hw.transaction(), ValueError("boom"))
    assert await hw.queues() == []


async def test_a_lost_lease_undoes_everything(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await orders.push("order")
    messages = await orders.pop()
    await orders.seek("beginning")
    together = hw.transaction()
    together.push("bills", "bill")
    together.ack(messages)
    with pytest.raises(LeaseLost):
        await together.commit()
    assert [status.queue for status in await hw.queues()] == ["orders"]


async def test_a_required_lease_must_be_alive(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await orders.push("order")
    messages = await orders.pop()
    async with hw.transaction() as together:
        together.require(messages)
        together.push("bills", "first")
    await orders.ack(messages)
    late = hw.transaction()
    late.require(messages)
    late.push("bills", "second")
    with pytest.raises(LeaseLost):
        await late.commit()
    assert [message.payload for message in await hw.queue("bills").pop(batch=10)] == ["first"]


async def test_messages_fail_inside_a_transaction(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await orders.configure(retry_limit=0)
    await orders.push_many([1, 2])
    first, second = await orders.pop(batch=2)
    async with hw.transaction() as together:
        together.ack([first])
        together.fail([second], error="no good")
    assert [letter.error for letter in await orders.dead_letters()] == ["no good"]


async def test_one_message_is_as_good_as_a_list(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await orders.push_many([1, 2])
    first, second = await orders.pop(batch=2)
    async with hw.transaction() as together:
        together.require(first)
        together.ack(first)
        together.fail(second)
    assert len(together.results) == 2


async def test_a_key_makes_a_transaction_count_once(hw: headwater.Headwater) -> None:
    for _ in range(2):
        async with hw.transaction(idempotency_key="k") as together:
            together.push("bills", "bill")
        assert together.results[0].offsets() == [0]
    assert len(await hw.queue("bills").pop(batch=10)) == 1


async def test_an_empty_transaction_is_no_commit(hw: headwater.Headwater) -> None:
    before = hw.committer.commits
    async with hw.transaction():
        pass
    assert hw.committer.commits == before


async def test_wrong_steps_are_refused_when_they_are_added(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await hw.database("tenant").queue("orders").push("theirs")
    theirs = await hw.database("tenant").queue("orders").pop()
    together = hw.transaction()
    with pytest.raises(InvalidName):
        together.push("a b", 1)
    with pytest.raises(InvalidInput):
        together.ack(theirs)
    await orders.push(1)
    with pytest.raises(InvalidInput):
        together.ack(await orders.pop(auto_ack=True))
