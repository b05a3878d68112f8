"""The verbs of a queue, as people use them."""

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.config import Durability
from headwater.errors import (
    HeadwaterError,
    InvalidInput,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    LeaseLost,
    QueueFull,
    QueueMissing,
    StoreReplaced,
    TooLarge,
)
from headwater.log.operations import Operation, Retain
from headwater.services.messages import Outgoing
from tests.contracts.clock import FakeClock


@pytest.fixture
def orders(hw: headwater.Headwater) -> headwater.Queue:
    return hw.queue("orders")


# ── pushing ──


async def test_a_push_gives_a_receipt(orders: headwater.Queue, clock: FakeClock) -> None:
    receipt = await orders.push({"id": 7}, partition="customer-42")
    assert (receipt.queue, receipt.partition, receipt.offset) == ("orders", "customer-42", 0)
    assert (receipt.durability, receipt.duplicate, receipt.written_at) == (Durability.SYNCED, False, clock.now())
    assert (await orders.push({"id": 8}, partition="customer-42")).offset == 1


async def test_a_message_carries_what_its_producer_said(orders: headwater.Queue, clock: FakeClock) -> None:
    await orders.push(
        {"id": 7}, transaction_id="tx-1", trace_id="trace-1", type="order", headers={"source": "web"}, partition="p"
    )
    (message,) = await orders.pop(group="billing", lease_seconds=10)
    assert (message.payload, message.transaction_id, message.type) == ({"id": 7}, "tx-1", "order")
    assert (message.headers, message.record.trace_id) == ({"source": "web"}, "trace-1")
    assert (message.queue, message.partition, message.group, message.offset) == ("orders", "p", "billing", 0)
    assert (message.attempts, message.lost_before) == (1, 0)
    now = datetime.fromtimestamp(clock.now() / 1_000_000, UTC)
    assert message.created_at == now
    assert message.lease_until == now + timedelta(seconds=10)
    assert "orders" in repr(message)


async def test_a_message_keeps_an_older_time(orders: headwater.Queue) -> None:
    await orders.push(1, timestamp=1_000_000)
    (message,) = await orders.pop()
    assert message.created_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


async def test_the_time_of_a_message_may_be_a_datetime_with_its_zone(orders: headwater.Queue) -> None:
    at = datetime(2013, 1, 1, 5, 15, 0, 123_457, tzinfo=timezone(timedelta(hours=-5)))
    await orders.push(1, timestamp=at)
    await orders.push_many([headwater.Outgoing(payload=2, timestamp=at)])
    assert [message.created_at for message in await orders.pop(batch=2)] == [at, at]
    for wrong in (at.replace(tzinfo=None), datetime(1969, 1, 1, tzinfo=UTC), "2013-01-01"):
        with pytest.raises(headwater.errors.InvalidInput):
            await orders.push_many([headwater.Outgoing(payload=2, timestamp=wrong)])  # type: ignore[arg-type]
        with pytest.raises(headwater.errors.InvalidInput):
            await orders.push(2, timestamp=wrong)  # type: ignore[arg-type]


async def test_a_second_push_of_an_id_is_a_duplicate(orders: headwater.Queue) -> None:
    first = await orders.push("a", transaction_id="tx-1")
    second = await orders.push("a", transaction_id="tx-1")
    assert (first.duplicate, second.duplicate, second.offset) == (False, True, 0)


async def test_a_push_with_a_key_counts_once(orders: headwater.Queue) -> None:
    first = await orders.push("a", idempotency_key="k")
    assert await orders.push("a", idempotency_key="k") == first
    assert len(await orders.pop(batch=10)) == 1


@pytest.mark.parametrize("durability", ["synced", "written", "memory"])
async def test_a_receipt_says_how_safe_the_message_is(orders: headwater.Queue, durability: str) -> None:
    receipt = await orders.push(1, durability=durability)
    assert receipt.durability == durability
    assert receipt.offset == (None if durability == "memory" else 0)
    assert [message.payload for message in await orders.pop(wait=5)] == [1]


async def test_many_messages_are_one_commit(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    before = hw.committer.commits
    receipts = await orders.push_many(
        [1, Outgoing(payload=2, partition="b", type="t"), 3, Outgoing(payload=4, partition="b"), Outgoing(payload=5)]
    )
    assert hw.committer.commits == before + 1
    assert [(receipt.partition, receipt.offset) for receipt in receipts] == [
        ("Default", 0),
        ("b", 0),
        ("Default/1", 0),
        ("b", 1),
        ("Default/2", 0),
    ]
    assert [message.payload for message in await orders.pop(batch=10, partition="b")] == [2, 4]


async def test_many_messages_with_a_key_count_once(orders: headwater.Queue) -> None:
    messages = [Outgoing(payload=number, partition=f"p{number % 2}") for number in range(4)]
    first = await orders.push_many(messages, idempotency_key="k")
    second = await orders.push_many(messages, idempotency_key="k")
    assert list(first) == list(second)
    status = await orders.status()
    assert status is not None
    assert status.records == 4


async def test_no_messages_are_no_commit(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    before = hw.committer.commits
    assert list(await orders.push_many([])) == []
    assert hw.committer.commits == before


async def test_an_outgoing_message_names_its_own_partition(orders: headwater.Queue) -> None:
    receipt = await orders.push(Outgoing(payload=1, partition="mine", transaction_id="tx"))
    assert receipt.partition == "mine"
    (message,) = await orders.pop(partition="mine")
    assert (message.payload, message.transaction_id) == (1, "tx")


async def test_a_message_for_another_queue_is_refused(orders: headwater.Queue) -> None:
    """It would silently land in this one."""
    with pytest.raises(InvalidOption):
        await orders.push(Outgoing(payload=1, queue="bills"))
    with pytest.raises(InvalidOption):
        await orders.push_many([Outgoing(payload=1, queue="bills")])
    assert await orders.status() is None


async def test_json_that_is_ready_is_kept_as_it_is(orders: headwater.Queue) -> None:
    await orders.push(headwater.Raw(b'{"a": 1.50}'))
    (message,) = await orders.pop()
    assert bytes(message.record.data) == b'{"a": 1.50}'
    assert message.payload == {"a": 1.5}


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({"payload": object()}, InvalidPayload),
        ({"payload": headwater.Raw(b"{oops")}, InvalidPayload),
        ({"payload": "x" * 300_000}, TooLarge),
        ({"payload": 1, "partition": "a b"}, InvalidName),
        ({"payload": Outgoing(payload=1), "type": "bill"}, InvalidOption),
        ({"payload": 1, "durability": "perhaps"}, InvalidOption),
        ({"payload": 1, "ttl_seconds": 0}, InvalidOption),
        ({"payload": 1, "ttl_seconds": float("nan")}, InvalidOption),
        ({"payload": 1, "transaction_id": "x" * 257}, InvalidOption),
        ({"payload": 1, "transaction_id": 7}, InvalidOption),
        ({"payload": 1, "transaction_id": "\ud800"}, InvalidOption),
        ({"payload": 1, "type": "\ud800"}, InvalidOption),
        ({"payload": 1, "idempotency_key": "\ud800"}, InvalidOption),
        ({"payload": 1, "headers": {"a": 1}}, InvalidOption),
        ({"payload": 1, "headers": {"\ud800": "a"}}, InvalidOption),
        ({"payload": 1, "headers": {"a": "\ud800"}}, InvalidOption),
        ({"payload": 1, "headers": {str(number): "" for number in range(65)}}, InvalidOption),
        ({"payload": 1, "timestamp": -1}, InvalidOption),
    ],
    ids=range(18),
)
async def test_a_wrong_push_is_refused_alone(
    orders: headwater.Queue, call: dict[str, Any], error: type[HeadwaterError]
) -> None:
    """In one turn with a good push, so that they would share a commit."""
    refused: object
    kept: object
    refused, kept = await asyncio.gather(orders.push(**call), orders.push("good"), return_exceptions=True)
    assert isinstance(refused, error)
    assert isinstance(kept, headwater.Receipt)


async def test_too_many_messages_are_refused(orders: headwater.Queue) -> None:
    with pytest.raises(TooLarge, match="1,000"):
        await orders.push_many(range(1_001))


async def test_too_many_bytes_are_refused(path: Path) -> None:
    async with headwater.open(str(path), batch_bytes_max=100, housekeeping=False) as hw:
        with pytest.raises(TooLarge, match="100 bytes"):
            await hw.queue("orders").push_many(["x" * 60, "x" * 60])


async def test_the_queues_of_headwater_itself_are_not_pushed_to(hw: headwater.Headwater) -> None:
    with pytest.raises(InvalidInput):
        await hw.queue("headwater/status").push(1)


@pytest.mark.parametrize("name", ["", "a b", "x" * 257])
async def test_a_queue_needs_a_name(hw: headwater.Headwater, name: str) -> None:
    with pytest.raises(InvalidName):
        hw.queue(name)


async def test_a_full_queue_is_told(orders: headwater.Queue) -> None:
    await orders.configure(size_max=1)
    await orders.push(1)
    with pytest.raises(QueueFull):
        await orders.push(2)


# ── popping and reporting ──


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"batch": 1_001},
        {"batch": True},
        {"partitions": -1},
        {"lease_seconds": 0},
        {"lease_seconds": float("inf")},
        {"subscribe": "old"},
        {"since": datetime(2026, 1, 1)},
        {"wait": 61},
        {"idempotency_key": 7},
    ],
    ids=str,
)
async def test_a_wrong_pop_is_refused(orders: headwater.Queue, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        await orders.pop(**options)


async def test_a_wrong_group_is_refused(orders: headwater.Queue) -> None:
    with pytest.raises(InvalidName):
        await orders.pop(group="a b")


async def test_messages_are_acked_one_or_many(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3])
    first, second, third = await orders.pop(batch=3)
    await orders.ack(second)
    await orders.ack([first, third])
    assert await orders.pop() == []


async def test_messages_of_several_leases_are_acked_together(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await orders.push_many([Outgoing(payload=number, partition=f"p{number}") for number in range(3)])
    messages = await orders.pop(batch=10, partitions=3)
    before = hw.committer.commits
    await orders.ack(messages)
    assert hw.committer.commits == before + 1
    assert (await orders.groups())[0].lag == 0


async def test_a_lost_lease_is_raised_and_the_others_are_acked(orders: headwater.Queue) -> None:
    await orders.push_many([Outgoing(payload=number, partition=f"p{number}") for number in range(2)])
    messages = await orders.pop(batch=10, partitions=2)
    await orders.seek("beginning", partition="p0")
    with pytest.raises(LeaseLost):
        await orders.ack(messages)
    assert [message.partition for message in await orders.pop(batch=10, partitions=2)] == ["p0"]


async def test_a_pop_acks_the_last_batch_in_the_same_commit(hw: headwater.Headwater, orders: headwater.Queue) -> None:
    await orders.push_many([1, 2])
    first = await orders.pop()
    before = hw.committer.commits
    second = await orders.pop(ack=first)
    assert hw.committer.commits == before + 1
    assert [message.payload for message in second] == [2]
    assert await orders.pop(ack=second[0]) == []
    assert (await orders.groups())[0].lag == 0


async def test_a_pop_whose_ack_is_refused_gives_its_messages_back(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2])
    first = await orders.pop()
    await orders.ack(first)
    with pytest.raises(LeaseLost):
        await orders.pop(ack=first)
    (message,) = await orders.pop(wait=5)
    assert (message.payload, message.attempts) == (2, 1)


async def test_a_failed_message_comes_again_and_then_goes_to_the_dead_letters(
    orders: headwater.Queue, clock: FakeClock
) -> None:
    await orders.configure(retry_limit=1, retry_delay_seconds=5)
    await orders.push("bad")
    await orders.fail(await orders.pop(), error="first")
    assert await orders.pop() == []
    clock.advance(5)
    (message,) = await orders.pop()
    assert message.attempts == 2
    await orders.fail(message, error="second")
    (letter,) = await orders.dead_letters()
    assert (letter.error, letter.attempts) == ("second", 2)


async def test_a_message_that_must_not_be_tried_again_is_a_dead_letter_at_once(orders: headwater.Queue) -> None:
    await orders.push("bad")
    await orders.fail(await orders.pop(), error="never", retry=False)
    assert [letter.error for letter in await orders.dead_letters()] == ["never"]


async def test_a_released_message_comes_at_once(orders: headwater.Queue) -> None:
    await orders.push(1)
    await orders.release(await orders.pop())
    (message,) = await orders.pop()
    assert message.attempts == 1


async def test_a_lease_is_extended(orders: headwater.Queue, clock: FakeClock) -> None:
    await orders.push(1)
    messages = await orders.pop(lease_seconds=10)
    clock.advance(9)
    await orders.extend(messages, 10)
    clock.advance(9)
    await orders.ack(messages)
    with pytest.raises(LeaseLost):
        await orders.extend(messages)
    with pytest.raises(InvalidOption):
        await orders.extend(messages, 0)


async def test_messages_that_were_acked_when_popped_cannot_be_reported(orders: headwater.Queue) -> None:
    await orders.push(1)
    messages = await orders.pop(auto_ack=True)
    for report in (orders.ack, orders.fail, orders.release):
        with pytest.raises(InvalidInput):
            await report(messages)


# ── the rest ──


async def test_a_queue_is_configured_and_tells_its_options(orders: headwater.Queue) -> None:
    configured = await orders.configure(namespace="shop", task="bill", retry_limit=5)
    assert (configured.namespace, configured.task, configured.options.retry_limit) == ("shop", "bill", 5)
    status = await orders.status()
    assert status is not None
    assert status.options.retry_limit == 5
    with pytest.raises(InvalidName):
        await orders.configure(namespace="a b")
    with pytest.raises(InvalidOption):
        await orders.configure(retry_limit=-1)


async def test_a_group_is_moved(orders: headwater.Queue, clock: FakeClock) -> None:
    await orders.push(1, partition="p")
    clock.advance(10)
    then = datetime.fromtimestamp(clock.now() / 1_000_000, UTC)
    await orders.push(2, partition="p")
    await orders.push(3, partition="p")
    for to, expected in (("end", []), ("beginning", [1, 2, 3]), (then, [2, 3]), (2, [3])):
        partition = "p" if isinstance(to, int) else None
        assert await orders.seek(to, partition=partition) == 1
        messages = await orders.pop(batch=10)
        assert [message.payload for message in messages] == expected


@pytest.mark.parametrize("to", ["middle", True, 1.5, -1, None, datetime(2026, 1, 1)])
async def test_a_wrong_place_to_move_to_is_refused(orders: headwater.Queue, to: Any) -> None:
    await orders.push(1)
    with pytest.raises(InvalidOption):
        await orders.seek(to, partition="Default")


async def test_a_queue_and_its_groups_are_deleted(orders: headwater.Queue) -> None:
    await orders.push(1)
    await orders.pop(group="g")
    assert await orders.delete_group("g")
    assert not await orders.delete_group("g")
    assert await orders.delete()
    assert not await orders.delete()
    assert await orders.status() is None
    with pytest.raises(QueueMissing):
        await orders.dead_letters()


async def test_dead_letters_are_pushed_back_or_dropped(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3])
    await orders.fail(await orders.pop(batch=3), retry=False)
    letters = await orders.dead_letters()
    assert await orders.requeue([letters[0].id]) == 1
    assert await orders.purge([letters[1].id]) == 1
    assert [letter.id for letter in await orders.dead_letters()] == [letters[2].id]
    assert [message.payload for message in await orders.pop(batch=10)] == [1]


MANY = 1_100  # More than one operation takes.


async def bury_many(orders: headwater.Queue) -> None:
    for count in (1_000, MANY - 1_000):
        await orders.push_many(range(count), partition="p")
        await orders.fail(await orders.pop(batch=count), retry=False)


async def test_all_dead_letters_are_pushed_back_or_dropped_however_many_there_are(orders: headwater.Queue) -> None:
    await bury_many(orders)
    assert await orders.requeue() == MANY
    while messages := await orders.pop(batch=1_000):
        await orders.fail(messages, retry=False)
    assert await orders.purge(limit=1) == 1
    assert await orders.purge() == MANY - 1
    assert await orders.dead_letters() == []


async def test_all_dead_letters_are_no_end_of_them_while_they_die_again(
    orders: headwater.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.services.queue_upkeep.DEAD_LETTERS_AT_ONCE", 2)
    await orders.push_many(range(5), partition="p")
    await orders.fail(await orders.pop(batch=5), retry=False)
    run = orders._queues.run

    async def run_and_die(operation: Operation) -> Any:
        done = await run(operation)
        await orders.fail(await orders.pop(batch=5), retry=False)
        return done

    monkeypatch.setattr(orders._queues, "run", run_and_die)
    assert await orders.requeue() == 7, "two, and the five that are there then"
    assert len(await orders.dead_letters()) == 5


async def test_a_pop_that_is_repeated_with_its_key_is_told_of_no_lease_that_is_over(orders: headwater.Queue) -> None:
    assert await orders.pop(idempotency_key="k") == []
    await orders.push_many([1, 2], partition="p")
    first = await orders.pop(idempotency_key="k")
    again = await orders.pop(idempotency_key="k")
    assert [(message.payload, message.token) for message in again] == [(1, first[0].token)]
    await orders.ack(again)
    assert [message.payload for message in await orders.pop(idempotency_key="k")] == [2]


async def test_events_of_a_message_are_noted(orders: headwater.Queue) -> None:
    await orders.push(1, transaction_id="tx-1")
    await orders.push(2)
    named, unnamed = await orders.pop(batch=2)
    await orders.trace(named, "begun", {"step": 1}, names=["bill"])
    await orders.trace(unnamed, "begun")
    (event,) = await orders.traces(named)
    assert (event.event, event.name, bytes(event.data), event.transaction_id) == (
        "begun",
        "bill",
        b'{"step":1}',
        "tx-1",
    )
    assert len(await orders.traces(unnamed)) == 1


# ── other databases, all partitions, losses ──


async def require(hw: headwater.Headwater, message: headwater.Message) -> None:
    async with hw.transaction() as together:
        together.require(message)


@pytest.mark.parametrize("verb", ["ack", "fail", "release", "extend", "trace", "traces", "pop", "require"])
async def test_messages_of_another_database_are_refused(hw: headwater.Headwater, verb: str) -> None:
    theirs = hw.database("other").queue("orders")
    await theirs.push(1)
    (message,) = await theirs.pop()
    orders = hw.queue("orders")
    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        "pop": lambda: orders.pop(ack=message),
        "trace": lambda: orders.trace(message, "seen"),
        "require": lambda: require(hw, message),
    }
    with pytest.raises(InvalidInput, match="database"):
        await (ways[verb]() if verb in ways else getattr(orders, verb)(message))
    assert [lease.token for lease in await theirs.leases()] == [message.token]
    assert await theirs.traces(message) == []
    await theirs.ack(message)


async def test_a_loss_is_told_with_the_next_message_alone(hw: headwater.Headwater, clock: FakeClock) -> None:
    orders = hw.queue("orders")
    await orders.configure(retention_seconds=60)
    await orders.push(0, partition="p")
    await orders.ack(await orders.pop())
    await orders.push_many([1, 2, 3], partition="p")
    clock.advance(60)
    await hw.committer.submit(Retain())
    await orders.push_many([4, 5], partition="p")
    assert [(one.payload, one.lost_before) for one in await orders.pop(batch=10)] == [(4, 3), (5, 0)]


@pytest.mark.parametrize("cancels", [False, True])
async def test_no_error_is_left_unseen_when_a_pop_that_acks_fails_or_is_left(tmp_path: Path, cancels: bool) -> None:
    """The event loop would tell of it later, with a traceback, as of an error that nobody handled."""
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    async with headwater.open(str(tmp_path / "headwater.db"), housekeeping=False) as hw:
        orders = hw.queue("orders")
        await orders.push_many([1, 2])
        messages = await orders.pop()
        os.rename(tmp_path / "headwater.db", tmp_path / "elsewhere.db")
        popping = asyncio.ensure_future(orders.pop(ack=messages))
        if cancels:
            await asyncio.sleep(0)
            popping.cancel()
        with pytest.raises((StoreReplaced, asyncio.CancelledError)):
            await popping
        del popping
        gc.collect()
        await asyncio.sleep(0)
    gc.collect()
    assert unseen == []
