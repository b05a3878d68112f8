"""Every verb, on an open store and over HTTP: one suite, so that nobody has to learn two of anything."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import headwater
from headwater.clock import SECOND
from headwater.config import Durability
from headwater.errors import (
    InvalidInput,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    KeyReused,
    LeaseLost,
    QueueFull,
    QueueMissing,
    TooLarge,
    UnknownRecord,
)
from headwater.log.job_operations import NewJob
from tests.client.conftest import Interface
from tests.contracts.clock import RunningClock
from tests.loop_clock import let_time_jump
from tests.waiting import expect_soon_async

SOON = 60.0


async def payloads(queue: headwater.Queue, **options: object) -> list[object]:
    messages = await queue.pop(batch=100, auto_ack=True, **options)  # type: ignore[arg-type]
    return [message.payload for message in messages]


# ── pushing ──


async def test_a_push_is_answered_with_its_place(orders: headwater.Queue) -> None:
    first = await orders.push({"id": 7}, partition="ada")
    second = await orders.push({"id": 8}, partition="ada")
    assert (first.queue, first.partition, first.offset, second.offset) == ("orders", "ada", 0, 1)
    assert first.durability is Durability.SYNCED
    assert first.partition_id == second.partition_id
    assert first.lsn is not None
    assert first.written_at is not None


@pytest.mark.parametrize("lanes", [1, 2, 16])
async def test_each_receipt_of_a_push_with_and_without_transaction_ids_is_of_its_own_message(
    orders: headwater.Queue, lanes: int
) -> None:
    await orders.configure(lanes=lanes)
    names = [str(number) for number in range(8)]
    first = {name: await orders.push(name, transaction_id=name) for name in names}
    told = {}
    for name in names:
        known = headwater.Outgoing(payload="known", transaction_id=name)
        new, again = await orders.push_many([headwater.Outgoing(payload=f"new {name}"), known])
        assert (new.duplicate, again.duplicate) == (False, True)
        assert (again.partition, again.offset) == (first[name].partition, first[name].offset)
        told[new.partition, new.offset] = f"new {name}"
    found = {(message.partition, message.offset): message.payload for message in await orders.pop(batch=100)}
    assert len(found) == 16
    assert told.items() <= found.items()


async def test_a_push_from_memory_has_no_place_yet(orders: headwater.Queue) -> None:
    receipt = await orders.push(1, durability="memory")
    assert (receipt.offset, receipt.durability) == (None, Durability.MEMORY)
    assert [message.payload for message in await orders.pop(wait=SOON)] == [1]


async def test_everything_said_of_a_message_arrives_with_it(orders: headwater.Queue) -> None:
    about = {"transaction_id": "t", "trace_id": "r", "type": "made", "headers": {"a": "ü"}, "timestamp": 1_000_000}
    await orders.push({"ä": [1, 2.5, None]}, **about)  # type: ignore[arg-type]
    [message] = await orders.pop()
    assert message.payload == {"ä": [1, 2.5, None]}
    assert (message.transaction_id, message.record.trace_id, message.type) == ("t", "r", "made")
    assert message.headers == {"a": "ü"}
    assert message.created_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


async def test_json_that_is_ready_is_kept_byte_for_byte(orders: headwater.Queue) -> None:
    await orders.push(headwater.Raw(b'{"n":1.0, "big":12345678901234567890}'))
    [message] = await orders.pop()
    assert bytes(message.record.data) == b'{"n":1.0, "big":12345678901234567890}'


async def test_a_transaction_id_that_came_before_is_a_duplicate(orders: headwater.Queue) -> None:
    await orders.push(1, transaction_id="t")
    again = await orders.push(2, transaction_id="t")
    assert (again.duplicate, again.offset) == (True, 0)
    assert await payloads(orders) == [1]


@pytest.mark.parametrize("delay", [0, 60])
async def test_a_duplicate_is_not_told_as_written_by_the_push_that_repeats_it(
    orders: headwater.Queue, delay: float
) -> None:
    await orders.push(1, transaction_id="t", delay=delay)
    await orders.push(2)
    known, new = await orders.push_many(
        [headwater.Outgoing(payload=1, transaction_id="t", delay=delay), headwater.Outgoing(payload=3, delay=delay)]
    )
    assert (known.duplicate, known.lsn, known.written_at) == (True, None, None)
    assert (new.duplicate, new.lsn is None, new.written_at is None) == (False, bool(delay), False)


async def test_many_messages_go_to_the_partitions_they_name(orders: headwater.Queue) -> None:
    receipts = await orders.push_many([1, headwater.Outgoing(payload=2, partition="b"), 3])
    assert [(receipt.partition, receipt.offset) for receipt in receipts] == [("Default", 0), ("b", 0), ("Default/1", 0)]
    assert await orders.push_many([]) == []


async def test_the_second_push_with_a_key_has_no_effect(orders: headwater.Queue) -> None:
    messages = [1, headwater.Outgoing(payload=2, partition="b")]
    first = await orders.push_many(messages, idempotency_key="k")
    again = await orders.push_many(messages, idempotency_key="k")
    assert list(first) == list(again)
    status = await orders.status()
    assert status is not None
    assert status.records == 2


async def test_push_all_goes_to_several_queues(interface: Interface) -> None:
    outgoing = [headwater.Outgoing(payload=n, queue=queue) for n, queue in enumerate(("a", "b", "a"))]
    receipts = await interface.push_all(outgoing)
    assert [(receipt.queue, receipt.partition, receipt.offset) for receipt in receipts] == [
        ("a", "Default", 0),
        ("b", "Default", 0),
        ("a", "Default/1", 0),
    ]


async def test_a_message_may_end_by_itself(orders: headwater.Queue, clock: RunningClock) -> None:
    await orders.push(1, ttl_seconds=3_600)
    clock.advance(3_601)
    assert await orders.pop() == []


async def test_a_message_for_later_is_delivered_when_it_is_due(orders: headwater.Queue, clock: RunningClock) -> None:
    receipt = await orders.push("later", delay=timedelta(hours=1))
    assert receipt.offset is None
    assert receipt.due_at is not None
    assert await orders.pop() == []
    status = await orders.status()
    assert status is not None
    assert (status.delayed, status.records) == (1, 0)
    clock.advance(3_600)
    (message,) = await orders.pop(wait=SOON)
    assert message.payload == "later"
    assert message.created_at.timestamp() * 1_000_000 >= receipt.due_at


async def test_whoever_waits_already_gets_a_message_for_later_in_time(orders: headwater.Queue) -> None:
    await orders.push(0)
    await orders.ack(await orders.pop())
    waiting = asyncio.ensure_future(orders.pop(wait=30, batch=10))
    await asyncio.sleep(0.05)
    receipts = await orders.push_many([1, 2], delay=0.2, partition="p")
    assert [receipt.offset for receipt in receipts] == [None, None]
    assert [message.payload for message in await asyncio.wait_for(waiting, 30)] == [1, 2]


async def test_a_push_in_a_transaction_may_be_for_later(interface: Interface, orders: headwater.Queue) -> None:
    async with interface.transaction() as together:
        together.push("orders", "now")
        together.push("orders", "soon", delay=timedelta(seconds=0.01))
        together.push("orders", "late", delay=3_600)
    found = await payloads(orders, wait=SOON)
    while len(found) < 2:
        found += await payloads(orders, wait=SOON)
    assert found == ["now", "soon"]
    status = await orders.status()
    assert status is not None
    assert status.delayed == 1


@pytest.mark.parametrize("delay", [-1, "soon", float("nan"), float("inf"), 10**12, True])
async def test_a_delay_that_makes_no_sense_is_refused(orders: headwater.Queue, delay: Any) -> None:
    with pytest.raises(InvalidOption):
        await orders.push(1, delay=delay)


async def test_a_full_queue_says_so_at_once(orders: headwater.Queue) -> None:
    await orders.configure(size_max=1)
    await orders.push(1)
    with pytest.raises(QueueFull):
        await asyncio.wait_for(orders.push(2), 5)


async def test_what_cannot_be_pushed_is_refused_and_nothing_changes(
    interface: Interface, orders: headwater.Queue
) -> None:
    with pytest.raises(InvalidPayload):
        await orders.push(object())
    with pytest.raises(TooLarge):
        await orders.push("x" * 300_000)
    with pytest.raises(TooLarge):
        await orders.push_many([0] * 1_001)
    with pytest.raises(InvalidName):
        await orders.push(1, partition="no such name")
    with pytest.raises(InvalidOption):
        await orders.push(1, durability="perhaps")
    with pytest.raises(InvalidOption):
        await orders.push(1, ttl_seconds=-1)
    with pytest.raises(InvalidName):
        interface.queue("no such name")
    assert await interface.queues() == []


# ── popping and reporting ──


async def test_a_pop_waits_for_a_push(orders: headwater.Queue) -> None:
    waiting = asyncio.ensure_future(orders.pop(wait=SOON))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await orders.push("late")
    assert [message.payload for message in await waiting] == ["late"]


async def test_a_pop_that_waits_in_vain_gets_nothing(orders: headwater.Queue) -> None:
    assert await orders.pop(wait=0.05) == []
    assert await orders.pop() == []


async def test_a_message_knows_its_place_and_its_lease(orders: headwater.Queue) -> None:
    before = datetime.now(UTC)
    await orders.push_many([1, 2], partition="ada")
    messages = await orders.pop(group="billing", batch=2, partition="ada", lease_seconds=60)
    assert [message.offset for message in messages] == [0, 1]
    first = messages[0]
    assert (first.queue, first.partition, first.group, first.attempts, first.lost_before) == (
        "orders",
        "ada",
        "billing",
        1,
        0,
    )
    assert first.token > 0
    assert timedelta(seconds=55) < first.lease_until - before < timedelta(seconds=90)


async def test_acked_messages_do_not_come_again(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3])
    messages = await orders.pop(batch=2)
    await orders.ack(messages)
    assert await payloads(orders) == [3]
    with pytest.raises(LeaseLost):
        await orders.ack(messages)


async def test_failed_messages_come_again_and_end_in_the_dead_letters(orders: headwater.Queue) -> None:
    await orders.configure(retry_delay_seconds=0, retry_limit=1)
    await orders.push("bad")
    for attempt in (1, 2):
        [message] = await orders.pop(wait=SOON)
        assert message.attempts == attempt
        await orders.fail(message, error=f"attempt {attempt}")
    [letter] = await orders.dead_letters()
    assert (letter.error, letter.attempts, bytes(letter.record.data)) == ("attempt 2", 2, b'"bad"')
    assert await orders.dead_letters(after=letter.id) == []
    assert await orders.requeue([letter.id]) == 1
    assert await payloads(orders) == ["bad"]


async def test_dead_letters_are_dropped_for_good(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2])
    await orders.fail(await orders.pop(batch=2), retry=False)
    assert await orders.purge(limit=1) == 1
    assert len(await orders.dead_letters()) == 1


async def test_all_dead_letters_are_all_of_them_however_many_there_are(orders: headwater.Queue) -> None:
    for count in (1_000, 100):
        await orders.push_many(range(count), partition="p")
        await orders.fail(await orders.pop(batch=count), retry=False)
    assert await orders.purge() == 1_100


async def test_no_dead_letters_at_all_are_not_all_of_them(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2])
    await orders.fail(await orders.pop(batch=2), retry=False)
    assert await orders.purge([]) == 0
    assert await orders.requeue([]) == 0
    assert await orders.requeue([], to="elsewhere") == 0
    assert len(await orders.dead_letters()) == 2
    assert await orders.purge() == 2


async def test_released_messages_come_again_and_no_attempt_is_counted(orders: headwater.Queue) -> None:
    await orders.push(1)
    await orders.release(await orders.pop())
    [message] = await orders.pop(wait=SOON)
    assert message.attempts == 1


async def test_a_lease_is_kept_for_longer(orders: headwater.Queue, clock: RunningClock) -> None:
    await orders.push(1)
    messages = await orders.pop(lease_seconds=3_600)
    await orders.extend(messages, 7_200)
    clock.advance(3_700)
    assert await orders.pop() == []
    await orders.ack(messages)


async def test_messages_are_acked_with_the_next_pop(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2])
    first = await orders.pop()
    second = await orders.pop(ack=first)
    assert [message.payload for message in second] == [2]
    assert await orders.pop(ack=second) == []
    [group] = await orders.groups()
    assert (group.lag, group.leased) == (0, 0)


async def test_a_lost_lease_is_told_with_the_next_pop(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2])
    first = await orders.pop()
    await orders.ack(first)
    with pytest.raises(LeaseLost):
        await orders.pop(ack=first)
    assert [message.payload for message in await orders.pop(wait=SOON)] == [2]


@pytest.mark.parametrize("key", ["", "k"])
async def test_a_lost_lease_is_told_before_an_auto_acked_message_is_taken(orders: headwater.Queue, key: str) -> None:
    """Whoever gets an error gets no messages, and those would come to nobody any more."""
    await orders.push_many([1, 2])
    first = await orders.pop()
    await orders.ack(first)
    with pytest.raises(LeaseLost):
        await orders.pop(ack=first, auto_ack=True, idempotency_key=key)
    assert [message.payload for message in await orders.pop(wait=SOON)] == [2]


async def test_acks_go_with_an_auto_acked_pop(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2], partition="p")
    first = await orders.pop()
    assert [message.payload for message in await orders.pop(ack=first, auto_ack=True)] == [2]
    [group] = await orders.groups()
    assert (group.lag, group.leased) == (0, 0)


async def test_a_pop_hands_out_nothing_that_it_acks(orders: headwater.Queue) -> None:
    """Not with the key either that brought it."""
    await orders.push_many([1, 2, 3], partition="p")
    first = await orders.pop(batch=2, idempotency_key="k")
    second = await orders.pop(batch=2, idempotency_key="k", ack=first)
    assert [message.payload for message in second] == [3]
    assert [lease.records for lease in await orders.leases()] == [1]
    with pytest.raises(KeyReused, match="the idempotency key of this pop was used for another request"):
        await orders.pop(batch=2, idempotency_key="k", ack=second)


async def test_a_pop_that_acks_is_repeated_with_its_key(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3], partition="p")
    first = await orders.pop()
    second = await orders.pop(ack=first, idempotency_key="again")
    repeated = await orders.pop(ack=first, idempotency_key="again")
    assert [(one.payload, one.token) for one in repeated] == [(one.payload, one.token) for one in second]
    await orders.ack(second)
    assert [message.payload for message in await orders.pop()] == [3]


async def test_a_pop_that_is_refused_for_its_key_leaves_the_lease_of_whoever_has_it(
    interface: Interface, orders: headwater.Queue
) -> None:
    await orders.push_many([1, 2, 3], partition="p")
    await interface.queue("bills").push("bill")
    [bill] = await interface.queue("bills").pop()
    first = await orders.pop()
    second = await orders.pop(ack=first, idempotency_key="again")
    with pytest.raises(KeyReused):
        await orders.pop(ack=bill, idempotency_key="again")
    assert [lease.token for lease in await orders.leases()] == [second[0].token]
    assert await orders.pop() == []
    await orders.ack(second)
    await interface.queue("bills").ack(bill)
    assert [message.payload for message in await orders.pop()] == [3]


async def test_acks_are_done_once_with_their_key_and_others_beside_them_are_taken(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3], partition="p")
    first = await orders.pop()
    second = await orders.pop(ack=first, idempotency_key="again")
    without = await orders.pop(idempotency_key="again")
    assert [one.token for one in without] == [one.token for one in second]
    [group] = await orders.groups()
    assert (group.lag, group.leased) == (2, 1)


async def test_leaving_a_repeated_pop_does_not_take_the_lease_from_whoever_has_it(
    interface: Interface, orders: headwater.Queue
) -> None:
    await orders.push_many([1, 2], partition="p")
    held = await orders.pop(idempotency_key="k")
    for turns in range(1_000):
        leaving = asyncio.ensure_future(orders.pop(wait=SOON, idempotency_key="k"))
        for _ in range(turns):
            await asyncio.sleep(0)
        if leaving.done():
            break
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await interface.queue("bills").push(turns)
        assert [lease.token for lease in await orders.leases()] == [held[0].token]
    assert [message.token for message in leaving.result()] == [held[0].token]
    for number in range(3):
        # Each is a commit behind whatever those who left have set going.
        await interface.queue("bills").push(number)
    assert await orders.pop() == []
    assert [lease.token for lease in await orders.leases()] == [held[0].token]
    await orders.ack(held)


async def test_of_two_pops_that_wait_with_one_key_the_first_may_leave_as_its_message_comes(
    interface: Interface, orders: headwater.Queue
) -> None:
    """Whoever was answered works on it, whenever the other one is noticed to have gone."""
    for number in range(24):
        key = f"k{number}"
        leaving = asyncio.ensure_future(orders.pop(wait=20, idempotency_key=key, lease_seconds=60))
        staying = asyncio.ensure_future(orders.pop(wait=20, idempotency_key=key, lease_seconds=60))
        await interface.queue("bills").push("both are on their way")
        pushing = asyncio.ensure_future(orders.push(number, partition="p"))
        for _ in range(number):
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, pushing, return_exceptions=True)
        [held] = await asyncio.wait_for(staying, 20)
        for _ in range(2):
            # Each is a commit behind whatever the one who left has set going.
            await interface.queue("bills").push(number)
        assert [lease.token for lease in await orders.leases()] == [held.token]
        await orders.ack(held)


async def test_who_leaves_a_pop_with_a_key_alone_leaves_its_messages_to_others(
    interface: Interface, orders: headwater.Queue
) -> None:
    for number in range(24):
        leaving = asyncio.ensure_future(orders.pop(wait=20, idempotency_key=f"k{number}", lease_seconds=60))
        await interface.queue("bills").push("it is on its way")
        pushing = asyncio.ensure_future(orders.push(number, partition="p"))
        for _ in range(number):
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, pushing, return_exceptions=True)
        if leaving.cancelled():
            [message] = await asyncio.wait_for(orders.pop(wait=20), 20)
            assert (message.payload, message.attempts) == (number, 1)
            await orders.ack(message)
        else:
            await orders.ack(leaving.result())


async def test_of_two_pops_with_one_key_at_once_the_one_that_fails_leaves_the_other_its_lease(
    interface: Interface, orders: headwater.Queue
) -> None:
    await orders.push_many([1, 2], partition="p")
    await interface.queue("bills").push("bill")
    [bill] = await interface.queue("bills").pop()
    await interface.queue("bills").release(bill)
    getting = asyncio.ensure_future(orders.pop(idempotency_key="k"))
    failing = asyncio.ensure_future(orders.pop(ack=bill, idempotency_key="k"))
    with pytest.raises(LeaseLost):
        await failing
    got = await getting
    assert await orders.pop() == []
    await orders.ack(got)


async def test_a_message_of_another_lease_is_not_acked(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2], partition="p")
    messages = await orders.pop(batch=2)
    await orders.ack(messages[0])
    with pytest.raises(UnknownRecord):
        await orders.ack(messages[0])
    await orders.ack(messages[1])


async def test_groups_read_each_for_itself(orders: headwater.Queue) -> None:
    await orders.push(1)
    assert await payloads(orders, group="a") == [1]
    assert await payloads(orders, group="b") == [1]
    assert await payloads(orders, group="late", subscribe="new") == []
    await orders.push(2)
    assert await payloads(orders, group="late") == [2]


async def test_a_group_begins_at_a_time(orders: headwater.Queue, clock: RunningClock) -> None:
    await orders.push(1)
    clock.advance(1)
    since = datetime.fromtimestamp(clock.now() / SECOND, UTC)
    await orders.push(2)
    assert await payloads(orders, group="g", since=since) == [2]


async def test_queues_are_popped_together_by_namespace(interface: Interface) -> None:
    await interface.queue("low").configure(namespace="shop", priority=1)
    await interface.queue("high").configure(namespace="shop", priority=9)
    await interface.queue("low").push("low")
    await interface.queue("high").push("high")
    messages = await interface.pop(namespace="shop", batch=2, partitions=2)
    assert [message.payload for message in messages] == ["high", "low"]


async def test_a_wrong_pop_is_refused(orders: headwater.Queue) -> None:
    with pytest.raises(InvalidOption):
        await orders.pop(wait=61)
    with pytest.raises(InvalidOption):
        await orders.pop(batch=0)
    with pytest.raises(InvalidOption):
        await orders.pop(lease_seconds=-1)
    with pytest.raises(InvalidName):
        await orders.pop(group="a b")


# ── consuming ──


async def test_a_loop_acks_what_its_body_finished(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3])
    seen = []
    async with orders.consume(group="g", batch=2) as messages:
        async for message in messages:
            seen.append(message.payload)
            if len(seen) == 3:
                break
    assert seen == [1, 2, 3]
    assert await is_done(orders)


async def is_done(queue: headwater.Queue) -> bool:
    [group] = await queue.groups()
    return (group.lag, group.leased) == (0, 0)


async def test_a_body_that_raises_fails_its_message_and_gives_back_the_rest(orders: headwater.Queue) -> None:
    await orders.configure(retry_limit=0)
    await orders.push_many([1, 2])

    async def work() -> None:
        async with orders.consume(batch=2) as messages:
            async for _ in messages:
                _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        await work()
    [letter] = await orders.dead_letters()
    assert letter.error == "ZeroDivisionError: division by zero"
    [message] = await orders.pop(wait=SOON)
    assert (message.payload, message.attempts) == (2, 1)


async def test_a_loop_keeps_its_lease_while_the_body_runs(orders: headwater.Queue, clock: RunningClock) -> None:
    """Of 300 s, over 330 s: the store's time and that of the loop, which its timers go by, pass together."""
    loop_clock = let_time_jump()
    await orders.push(1)

    async def is_extended() -> bool:
        [lease] = await orders.leases()
        return lease.lease_until > clock.now() + 200 * SECOND

    async with orders.consume(lease_seconds=300) as messages:
        message = await anext(messages)
        for _ in range(3):
            clock.advance(110)
            loop_clock.jump(110)
            await expect_soon_async(is_extended)
        assert await orders.pop() == []
    assert message.attempts == 1
    assert await is_done(orders)


async def test_a_cancelled_loop_gives_its_message_back(orders: headwater.Queue) -> None:
    await orders.push(1)
    begun = asyncio.Event()

    async def work() -> None:
        async for _ in orders.consume():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await asyncio.wait_for(begun.wait(), SOON)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    [message] = await orders.pop(wait=SOON)
    assert message.attempts == 1


async def test_a_cancelled_wait_leaves_nothing_behind(orders: headwater.Queue) -> None:
    waiting = asyncio.ensure_future(orders.pop(wait=SOON))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await orders.push(1)
    [message] = await orders.pop(wait=SOON)
    assert message.attempts == 1


# ── together ──


async def test_a_transaction_has_one_block(interface: Interface, orders: headwater.Queue) -> None:
    """The end of an inner block of the same one would hand in what the outer one may yet drop."""
    await orders.push("order")
    messages = await orders.pop(group="n")
    outer = interface.transaction()

    async def help_out() -> None:
        async with outer:
            outer.push("bills", "inner")

    async def work() -> None:
        async with outer:
            outer.ack(messages)
            outer.push("bills", "outer")
            await help_out()

    with pytest.raises(InvalidInput, match="one block"):
        await work()
    with pytest.raises(InvalidInput, match="one block"):
        await help_out()
    assert await payloads(interface.queue("bills")) == []
    await orders.release(messages)
    assert await payloads(orders, group="n") == ["order"]


async def test_a_transaction_takes_effect_as_a_whole(interface: Interface, orders: headwater.Queue) -> None:
    await orders.push("order")
    messages = await orders.pop()
    async with interface.transaction() as together:
        together.ack(messages)
        together.push("bills", {"order": 1}, transaction_id="b")
    assert [type(result).__name__ for result in together.results] == ["Acked", "Pushed"]
    assert await payloads(interface.queue("bills")) == [{"order": 1}]
    assert await is_done(orders)


@pytest.mark.parametrize("error", [None, ZeroDivisionError()], ids=["committed", "undone"])
async def test_a_transaction_takes_nothing_after_its_block(
    interface: Interface, orders: headwater.Queue, error: Exception | None
) -> None:
    await orders.push("order")
    messages = await orders.pop()
    together = interface.transaction()
    with contextlib.suppress(ZeroDivisionError):
        async with together:
            together.push("bills", 1)
            if error is not None:
                raise error
    late: list[Callable[[], None]] = [
        lambda: together.push("bills", 2),
        lambda: together.ack(messages),
        lambda: together.fail(messages),
        lambda: together.release(messages),
        lambda: together.require(messages),
        lambda: together.enqueue(NewJob(type="t")),
    ]
    for add in late:
        with pytest.raises(InvalidInput, match="has ended"):
            add()
    assert await payloads(interface.queue("bills")) == ([1] if error is None else [])
    await orders.ack(messages)


async def test_a_pop_that_waits_with_a_key_gets_what_comes(interface: Interface, orders: headwater.Queue) -> None:
    waiting = asyncio.ensure_future(orders.pop(wait=SOON, idempotency_key="k"))
    await asyncio.sleep(0.05)
    await orders.push(1)
    [message] = await waiting
    assert [again.token for again in await orders.pop(wait=SOON, idempotency_key="k")] == [message.token]


async def test_a_lost_lease_undoes_a_transaction(interface: Interface, orders: headwater.Queue) -> None:
    await orders.push("order")
    messages = await orders.pop()
    await orders.release(messages)
    requiring, failing = interface.transaction(), interface.transaction()
    requiring.push("bills", 1)
    requiring.require(messages)
    failing.push("bills", 1)
    failing.fail(messages, error="late")
    for together in (requiring, failing):
        with pytest.raises(LeaseLost):
            await together.commit()
    assert [status.queue for status in await interface.queues()] == ["orders"]


async def test_a_transaction_with_a_key_counts_once(interface: Interface) -> None:
    for _ in range(2):
        async with interface.transaction(idempotency_key="k") as together:
            together.push("bills", 1)
    assert await payloads(interface.queue("bills")) == [1]


# ── queues and groups ──


async def test_a_queue_is_configured_and_shown(interface: Interface, orders: headwater.Queue) -> None:
    configured = await orders.configure(namespace="shop", task="t", retry_limit=7)
    assert (configured.namespace, configured.task, configured.options.retry_limit) == ("shop", "t", 7)
    assert (await orders.configure(lease_seconds=9)).options.retry_limit == 7
    status = await orders.status()
    assert status is not None
    assert (status.queue, status.database, status.namespace, status.options.lease_seconds) == (
        "orders",
        "main",
        "shop",
        9,
    )
    assert await interface.queues() == [status]
    with pytest.raises(InvalidOption):
        await orders.configure(lease_seconds=-1)


async def test_a_queue_is_deleted_once(orders: headwater.Queue) -> None:
    await orders.push(1)
    assert await orders.delete() is True
    assert await orders.delete() is False
    assert await orders.status() is None


async def test_a_group_is_moved(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3], partition="p")
    assert await payloads(orders, group="g") == [1, 2, 3]
    assert await orders.seek("beginning", group="g") == 1
    assert await payloads(orders, group="g") == [1, 2, 3]
    await orders.seek(2, group="g", partition="p")
    assert await payloads(orders, group="g") == [3]
    await orders.seek(datetime(2020, 1, 1, tzinfo=UTC), group="g")
    assert await payloads(orders, group="g") == [1, 2, 3]
    with pytest.raises(InvalidOption):
        await orders.seek("somewhere", group="g")


async def test_a_group_has_options_of_its_own(orders: headwater.Queue) -> None:
    await orders.push(1, partition="p")
    await orders.release(await orders.pop(group="g"))
    configured = await orders.configure_group("g", retry_limit=0, lease_seconds=1_000)
    assert configured.own == {"retry_limit": 0, "lease_seconds": 1_000}
    (message,) = await orders.pop(group="g")
    assert (message.lease_until - datetime.now(UTC)).total_seconds() > 900
    await orders.fail(message, error="no")
    assert [letter.error for letter in await orders.dead_letters()] == ["no"]
    assert (await orders.configure_group("g", retry_limit=None)).own == {"lease_seconds": 1_000}
    with pytest.raises(QueueMissing):
        await orders.configure_group("typo", retry_limit=1)
    with pytest.raises(InvalidOption):
        await orders.configure_group("g", retry_factor=0)


async def test_leases_are_seen_and_released(interface: Interface, orders: headwater.Queue) -> None:
    await orders.push_many([1, 2], partition="p")
    held = await orders.pop(group="g", batch=2)
    (lease,) = await orders.leases()
    assert (lease.partition, lease.group, lease.records, lease.token) == ("p", "g", 2, held[0].token)
    process = f"{socket.gethostname()[:100]}:{os.getpid()}"
    assert lease.holder == (process if isinstance(interface, headwater.Headwater) else f"({process})")
    assert await interface.leases() == await interface.leases("orders", group="g") == [lease]
    assert await orders.leases(group="other") == []
    assert await orders.release_leases(group="other") == 0
    waiting = asyncio.ensure_future(orders.pop(group="g", batch=2, wait=30))
    assert await orders.release_leases(group="g", partition="p", token=lease.token) == 1
    assert [message.attempts for message in await asyncio.wait_for(waiting, 30)] == [1, 1]
    with pytest.raises(LeaseLost):
        await orders.ack(held)


async def test_groups_are_listed_and_forgotten(interface: Interface, orders: headwater.Queue) -> None:
    await orders.push(1)
    await orders.pop(group="g")
    assert [(group.group, group.leased) for group in await interface.groups()] == [("g", 1)]
    assert await interface.groups("orders") == await orders.groups()
    assert await orders.delete_group("g") is True
    assert await orders.delete_group("g") is False
    assert await interface.delete_group("g") == 0


async def test_events_are_noted_in_the_life_of_a_message(orders: headwater.Queue) -> None:
    await orders.push(1, transaction_id="t")
    [message] = await orders.pop()
    await orders.trace(message, "begun", {"by": "ada"}, names=["n"])
    [event] = await orders.traces(message)
    assert (event.event, event.name, event.transaction_id) == ("begun", "n", "t")
    assert msgspec.json.decode(event.data) == {"by": "ada"}


async def test_what_is_not_there_is_told(orders: headwater.Queue) -> None:
    with pytest.raises(QueueMissing):
        await orders.dead_letters()
    with pytest.raises(QueueMissing):
        await orders.seek("beginning", group="g")


async def test_a_transaction_gives_messages_back(interface: Interface, orders: headwater.Queue) -> None:
    await orders.push_many([1, 2], partition="p")
    messages = await orders.pop(batch=2)
    async with interface.transaction() as together:
        together.ack(messages[:1])
        together.release(messages[1])
        together.push("done", "one")
    [again] = await orders.pop()
    assert (again.payload, again.attempts) == (2, 1)
    assert [message.payload for message in await interface.queue("done").pop()] == ["one"]


async def test_a_release_of_a_transaction_that_does_not_hold_is_none(
    interface: Interface, orders: headwater.Queue
) -> None:
    await orders.push(1, partition="p")
    await orders.push(2, partition="q")
    held = await orders.pop(partition="p")
    lost = await orders.pop(partition="q")
    await orders.release(lost)
    together = interface.transaction()
    together.release(held)
    together.ack(lost)
    with pytest.raises(LeaseLost):
        await together.commit()
    assert [message.payload for message in await orders.pop(batch=2)] == [2]


@pytest.mark.parametrize("partition", [None, "p"])
async def test_a_duplicate_of_a_message_for_later_says_when_that_is_due(
    orders: headwater.Queue, partition: str | None
) -> None:
    first = await orders.push(1, partition=partition, transaction_id="t", delay=3_600)
    assert first.due_at is not None
    for delay in (0, 60, 7_200):
        again = await orders.push(1, partition=partition, transaction_id="t", delay=delay)
        assert (again.duplicate, again.offset, again.due_at) == (True, None, first.due_at)
    # Beside others, in one push and in pushes that share a commit.
    ids = ["t", "u", "t", "v"]
    several = [headwater.Outgoing(payload=n, transaction_id=id, partition=partition) for n, id in enumerate(ids)]
    receipts = await orders.push_many(several)
    assert [receipt.due_at for receipt in receipts] == [first.due_at, None, first.due_at, None]
    assert [receipt.duplicate for receipt in receipts] == [True, False, True, False]
    later = [headwater.Outgoing(payload=n, transaction_id=id, partition=partition) for n, id in enumerate("twwu")]
    receipts = await orders.push_many(later, delay=7_200)
    assert [receipt.duplicate for receipt in receipts] == [True, False, True, True]
    assert receipts[0].due_at == first.due_at
    assert receipts[1].due_at == receipts[2].due_at is not None
    assert (receipts[3].due_at, receipts[3].offset is None) == (None, False)
