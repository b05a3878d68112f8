"""Pushing, popping and consuming with queen-mq 0.15.0 as it comes from PyPI."""

import asyncio
from importlib.metadata import version
from typing import Any

import httpx
import pytest
from queen import Queen

from tests.doors.live_door import LiveDoor
from tests.waiting import expect_soon_async

Message = dict[str, Any]


def test_the_client_is_the_published_one() -> None:
    assert version("queen-mq") == "0.15.0"


async def test_a_queue_is_made_with_the_options_of_the_client(queen: Queen) -> None:
    made = (
        await queen.queue("orders").namespace("shop").task("bill").config({"lease_time": 60, "retry_limit": 2}).create()
    )
    assert (made["configured"], made["queue"], made["namespace"], made["task"]) == (True, "orders", "shop", "bill")
    assert (made["options"]["leaseTime"], made["options"]["retryLimit"]) == (60, 2)
    assert (await queen.queue("orders").delete())["deleted"] is True


async def test_messages_are_pushed_popped_and_acked(queen: Queen) -> None:
    results = await queen.queue("orders").push([{"data": {"id": 1}}, {"data": {"id": 2}}])
    assert [result["status"] for result in results] == ["queued", "queued"]
    messages = await queen.queue("orders").batch(10).wait(False).pop()
    assert [message["data"] for message in messages] == [{"id": 1}, {"id": 2}]
    answer = await queen.ack(messages[0])
    assert (answer["success"], answer["queueName"]) == (True, "orders")
    answers = await queen.ack([messages[1]])
    assert [result["success"] for result in answers["results"]] == [True]
    assert await queen.queue("orders").wait(False).pop() == []


async def test_payloads_of_every_kind_come_back(queen: Queen) -> None:
    payloads: list[Any] = [None, 0, False, "", [], {}, {"ü": "€ 𝄞"}, [1.5, {"deep": [None]}]]
    await queen.queue("orders").push([{"data": payload} for payload in payloads])
    messages = await queen.queue("orders").batch(100).wait(False).pop()
    assert [message["data"] for message in messages] == payloads


async def test_a_duplicate_is_told_to_its_callback(queen: Queen) -> None:
    seen: list[Any] = []

    async def on_duplicate(items: list[Any], error: Exception) -> None:
        seen.extend(item["result"]["status"] for item in items)

    item = {"data": 1, "transactionId": "tx-1"}
    await queen.queue("orders").push([item])
    await queen.queue("orders").push([item]).on_duplicate(on_duplicate)
    assert seen == ["duplicate"]


async def test_a_failed_push_raises_what_the_server_says(queen: Queen) -> None:
    await queen.queue("orders").config({"max_size": 1}).create()
    await queen.queue("orders").push([{"data": 1}])
    errors: list[str] = []

    async def on_error(items: list[Any], error: Exception) -> None:
        errors.append(str(error))

    await queen.queue("orders").push([{"data": 2}]).on_error(on_error)
    assert errors
    assert "of at most 1" in errors[0]


async def test_an_error_of_the_server_reaches_the_user_in_words(queen: Queen) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="queue name must be"):
        await queen.queue("or ders").push([{"data": 1}])


async def test_buffered_messages_arrive_when_the_buffer_is_flushed(queen: Queen) -> None:
    queue = queen.queue("orders").buffer({"message_count": 100, "time_millis": 60_000})
    for number in range(5):
        await queue.push([{"data": number}])
    assert queen.get_buffer_stats()["totalBufferedMessages"] == 5
    await queen.flush_all_buffers()
    messages = await queen.queue("orders").batch(10).wait(False).pop()
    assert [message["data"] for message in messages] == [0, 1, 2, 3, 4]


async def test_a_full_buffer_flushes_itself(queen: Queen) -> None:
    for number in range(10):
        await queen.queue("orders").buffer({"message_count": 10, "time_millis": 60_000}).push([{"data": number}])
    messages = await queen.queue("orders").batch(10).wait(True).timeout_millis(5_000).pop()
    assert [message["data"] for message in messages] == list(range(10))


# ── consuming ──


async def test_the_loop_of_the_client_consumes_and_acks(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": number} for number in range(20)])
    seen: list[int] = []

    async def handle(messages: list[Message]) -> None:
        seen.extend(message["data"] for message in messages)

    await queen.queue("orders").batch(5).limit(20).consume(handle)
    assert seen == list(range(20))
    assert await queen.queue("orders").wait(False).pop() == []


async def test_concurrent_workers_share_the_partitions(queen: Queen) -> None:
    for partition in range(4):
        await queen.queue("orders").partition(f"p{partition}").push([{"data": number} for number in range(10)])
    seen: dict[str, list[int]] = {}
    all_seen = asyncio.Event()

    async def handle(message: Message) -> None:
        seen.setdefault(message["partition"], []).append(message["data"])
        if sum(map(len, seen.values())) == 40:
            all_seen.set()

    consuming = queen.queue("orders").concurrency(4).batch(2).each().timeout_millis(200)
    await consuming.consume(handle, signal=all_seen)
    assert seen == {f"p{partition}": list(range(10)) for partition in range(4)}


async def test_a_waiting_consumer_gets_what_is_pushed_later(queen: Queen, door: LiveDoor) -> None:
    seen: list[int] = []

    async def handle(message: Message) -> None:
        seen.append(message["data"])

    async def is_waiting() -> bool:
        return door.waiting() == 1

    consuming = asyncio.ensure_future(queen.queue("orders").limit(1).consume(handle)._execute())
    await expect_soon_async(is_waiting)
    await queen.queue("orders").push([{"data": 7}])
    await asyncio.wait_for(consuming, 10)
    assert seen == [7]


async def test_a_handler_that_fails_gets_the_message_again(queen: Queen) -> None:
    await queen.queue("orders").config({"retry_limit": 3, "retry_delay": 0}).create()
    await queen.queue("orders").push([{"data": 1}])
    attempts: list[int] = []
    done = asyncio.Event()

    async def handle(message: Message) -> None:
        attempts.append(message["retryCount"])
        if len(attempts) < 3:
            raise RuntimeError("not yet")
        done.set()

    await queen.queue("orders").timeout_millis(200).consume(handle, signal=done)
    assert attempts == [0, 1, 2]
    assert await queen.queue("orders").wait(False).pop() == []


async def test_a_message_whose_id_was_pushed_before_is_not_settled_in_its_place(queen: Queen) -> None:
    await queen.queue("orders").config({"retry_limit": 3, "retry_delay": 0}).create()
    await queen._http_client.post("/api/v1/configure", {"queue": "orders", "options": {"deduplication_seconds": 0}})
    for data in ("first", "second"):
        await queen.queue("orders").push([{"data": data, "transactionId": "X"}])
    seen: list[str] = []
    done = asyncio.Event()

    async def handle(message: Message) -> None:
        seen.append(message["data"])
        if seen == ["first", "second"]:
            raise RuntimeError("not yet")
        if len(seen) == 3:
            done.set()

    await queen.queue("orders").batch(2).each().timeout_millis(200).consume(handle, signal=done)
    assert seen == ["first", "second", "second"]
    assert await queen.queue("orders").wait(False).pop() == []


async def test_a_consumer_that_acks_by_itself(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": number} for number in range(3)])

    async def handle(messages: list[Message]) -> None:
        for message in messages:
            assert (await queen.ack(message, True, {"group": "g"}))["success"]

    await queen.queue("orders").group("g").auto_ack(False).batch(3).limit(3).consume(handle)
    assert await queen.queue("orders").group("g").wait(False).pop() == []


async def test_every_group_gets_every_message(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": number} for number in range(3)])
    for group in ("billing", "mail", None):
        queue = queen.queue("orders").batch(3).wait(False)
        messages = await (queue.group(group) if group else queue).pop()
        assert [message["data"] for message in messages] == [0, 1, 2]


async def test_a_group_can_begin_with_what_is_new(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": "old"}])
    new = queen.queue("orders").group("late").subscription_mode("new").batch(5).wait(False)
    assert await new.pop() == []
    await queen.queue("orders").push([{"data": "new"}])
    assert [message["data"] for message in await new.pop()] == ["new"]
    every = queen.queue("orders").group("early").subscription_from("2020-01-01T00:00:00.000Z").batch(5).wait(False)
    assert [message["data"] for message in await every.pop()] == ["old", "new"]


async def test_a_pop_can_be_acked_by_the_server(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": 1}])
    # The client sends autoAck when it was told something else than its default for consuming.
    assert len(await queen.queue("orders").wait(False).auto_ack(False).pop()) == 1


async def test_leases_are_renewed_while_the_handler_works(queen: Queen) -> None:
    await queen.queue("orders").config({"lease_time": 1}).create()
    await queen.queue("orders").push([{"data": 1}])
    seen: list[int] = []

    async def handle(message: Message) -> None:
        seen.append(message["data"])
        renewed = await queen.renew(message)
        assert renewed["success"]
        assert renewed["newExpiresAt"] > message["leaseExpiresAt"]
        await asyncio.sleep(1.3)

    queue = queen.queue("orders").renew_lease(True, 200).idle_millis(300).timeout_millis(200)
    await queue.consume(handle)
    assert seen == [1]


async def test_several_partitions_are_drained_by_one_pop(queen: Queen) -> None:
    for partition in range(5):
        await queen.queue("orders").partition(f"p{partition}").push([{"data": partition}])
    messages = await queen.queue("orders").batch(10).partitions(5).wait(False).pop()
    assert sorted(message["data"] for message in messages) == [0, 1, 2, 3, 4]
    assert all(result["success"] for result in (await queen.ack(messages))["results"])
    renewals = await queen.renew(messages)
    assert not any(renewal["success"] for renewal in renewals)


async def test_queues_are_consumed_by_namespace_and_task(queen: Queen) -> None:
    await queen.queue("a").namespace("shop").task("mail").create()
    await queen.queue("b").namespace("shop").task("bill").create()
    await queen.queue("a").push([{"data": "a"}])
    await queen.queue("b").push([{"data": "b"}])
    seen: list[str] = []

    async def handle(message: Message) -> None:
        seen.append(message["data"])

    await queen.queue().namespace("shop").limit(2).consume(handle)
    assert sorted(seen) == ["a", "b"]


# ── transactions ──


async def test_a_transaction_acks_and_pushes_in_one(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": 1}])
    (message,) = await queen.queue("orders").wait(False).pop()
    await queen.transaction().ack(message).queue("invoices").partition("eu").push([{"data": "bill"}]).commit()
    assert await queen.queue("orders").wait(False).pop() == []
    assert [m["data"] for m in await queen.queue("invoices").wait(False).pop()] == ["bill"]


async def test_a_transaction_of_a_group_needs_no_word_about_it(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": 1}, {"data": 2}])
    messages = await queen.queue("orders").group("g").batch(2).wait(False).pop()
    await queen.transaction().ack(messages).queue("invoices").push([{"data": "bill"}]).commit()
    assert await queen.queue("orders").group("g").wait(False).pop() == []


async def test_a_transaction_without_its_lease_raises_and_changes_nothing(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": 1}])
    (message,) = await queen.queue("orders").wait(False).pop()
    await queen.ack(message)
    with pytest.raises(httpx.HTTPStatusError, match="pop again"):
        await queen.transaction().ack(message).queue("invoices").push([{"data": "bill"}]).commit()
    assert await queen.queue("invoices").wait(False).pop() == []
