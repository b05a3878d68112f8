"""Groups, dead letters, traces and the admin calls with queen-mq 0.15.0."""

from typing import Any

import httpx
import pytest
from queen import Queen

Message = dict[str, Any]


async def pop(queen: Queen, queue: str = "orders", group: str | None = None, batch: int = 10) -> list[Message]:
    builder = queen.queue(queue).batch(batch).partitions(10).wait(False)
    messages: list[Message] = await (builder.group(group) if group else builder).pop()
    return messages


async def bury(queen: Queen, *payloads: Any) -> list[Message]:
    """Messages that failed for good."""
    await queen.queue("orders").config({"retry_limit": 0}).create()
    await queen.queue("orders").push([{"data": payload} for payload in payloads])
    messages = await pop(queen)
    answer = await queen.ack(messages, False, {"error": "broken"})
    assert all(result["dlq"] for result in answer["results"])
    return messages


# ── dead letters ──


async def test_dead_letters_are_listed_with_their_reason(queen: Queen) -> None:
    await bury(queen, 1, 2, 3)
    found = await queen.queue("orders").dlq().limit(2).get()
    assert found["total"] == 3
    assert [letter["data"] for letter in found["messages"]] == [3, 2]
    assert {letter["errorMessage"] for letter in found["messages"]} == {"broken"}
    rest = await queen.queue("orders").dlq().limit(2).offset(2).get()
    assert [letter["data"] for letter in rest["messages"]] == [1]


async def test_dead_letters_are_found_by_group_partition_and_time(queen: Queen) -> None:
    await bury(queen, 1)
    assert (await queen.queue("orders").dlq("__QUEUE_MODE__").get())["total"] == 1
    assert (await queen.queue("orders").dlq("another").get())["total"] == 0
    assert (await queen.queue("orders").partition("p").dlq().get())["total"] == 0
    assert (await queen.queue("orders").dlq().from_("2020-01-01").to("2020-12-31").get())["total"] == 0
    assert (await queen.queue("orders").dlq().from_("2020-01-01").get())["total"] == 1
    assert (await queen.queue("nothing").dlq().get())["total"] == 0


async def test_a_dead_letter_is_shown_retried_and_deleted(queen: Queen) -> None:
    first, second = await bury(queen, 1, 2)
    admin = queen.admin
    shown = await admin.get_message(first["partitionId"], first["transactionId"])
    assert (shown["data"], shown["status"], shown["errorMessage"]) == (1, "dead_letter", "broken")
    assert (await admin.retry_message(first["partitionId"], first["transactionId"]))["success"]
    assert [message["data"] for message in await pop(queen)] == [1]
    assert (await admin.delete_message(second["partitionId"], second["transactionId"]))["success"]
    assert (await queen.queue("orders").dlq().get())["total"] == 0


# ── messages ──


async def test_messages_are_listed_newest_first_and_shown_one_by_one(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": number} for number in range(5)])
    await queen.queue("orders").partition("eu").push([{"data": "eu"}])
    listed = await queen.admin.list_messages(queue="orders", limit=3)
    assert [message["data"] for message in listed["messages"]] == ["eu", 4, 3]
    only = await queen.admin.list_messages(queue="orders", partition="eu")
    assert [message["data"] for message in only["messages"]] == ["eu"]
    message = listed["messages"][1]
    assert (await queen.admin.get_message(message["partitionId"], message["transactionId"]))["offset"] == 4
    with pytest.raises(httpx.HTTPStatusError, match="no message"):
        await queen.admin.get_message(message["partitionId"], "unknown")


async def test_a_message_is_deleted_before_anybody_gets_it(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": 1}, {"data": 2}, {"data": 3}])
    (first,) = await pop(queen, batch=1)
    await queen.ack(first)
    listed = (await queen.admin.list_messages(queue="orders"))["messages"]
    second = next(message for message in listed if message["data"] == 2)
    await queen.admin.delete_message(second["partitionId"], second["transactionId"])
    assert [message["data"] for message in await pop(queen)] == [3]


async def test_a_message_is_moved_to_the_dead_letters(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": 1}])
    await pop(queen, group="g", batch=1)
    (message,) = (await queen.admin.list_messages(queue="orders"))["messages"]
    with pytest.raises(httpx.HTTPStatusError, match="works on"):
        await queen.admin.move_message_to_dlq(message["partitionId"], message["transactionId"])
    await queen.delete_consumer_group("g")
    assert await pop(queen, group="h", batch=1)
    await queen.admin.seek_consumer_group("h", "orders", {"timestamp": "2020-01-01T00:00:00Z"})
    await queen.admin.move_message_to_dlq(message["partitionId"], message["transactionId"])
    assert (await queen.queue("orders").dlq("h").get())["total"] == 1


async def test_a_queue_is_cleared(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": 1}])
    await queen.queue("orders").partition("eu").push([{"data": 2}])
    assert (await queen.admin.clear_queue("orders", "eu"))["count"] == 1
    assert [message["data"] for message in await pop(queen)] == [1]
    assert (await queen.admin.clear_queue("orders"))["count"] == 1


# ── groups ──


async def test_groups_are_listed_with_their_lag(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": number} for number in range(3)])
    await pop(queen, group="mail", batch=1)
    (group,) = await queen.admin.list_consumer_groups()
    assert (group["name"], group["queueName"], group["totalLag"], group["leased"]) == ("mail", "orders", 3, 1)
    detail = await queen.admin.get_consumer_group("mail")
    assert detail["orders"]["partitions"][0]["leaseActive"] is True
    assert await queen.admin.get_lagging_consumers(3_600) == []
    assert len(await queen.admin.get_lagging_consumers(0)) == 1
    with pytest.raises(httpx.HTTPStatusError, match="no group"):
        await queen.admin.get_consumer_group("nobody")


async def test_a_group_is_moved_to_the_end_and_back(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": 1}, {"data": 2}])
    await pop(queen, group="g", batch=1)
    assert (await queen.admin.seek_consumer_group("g", "orders", {"toEnd": True}))["partitionsUpdated"] == 1
    assert await pop(queen, group="g") == []
    await queen.update_consumer_group_timestamp("g", "2020-01-01T00:00:00Z")
    assert [message["data"] for message in await pop(queen, group="g")] == [1, 2]
    with pytest.raises(httpx.HTTPStatusError, match="toEnd"):
        await queen.admin.seek_consumer_group("g", "orders", {})


async def test_a_group_that_was_deleted_begins_anew(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": 1}])
    for forget in (
        queen.delete_consumer_group("g"),
        queen.admin.delete_consumer_group_for_queue("g", "orders"),
    ):
        assert [message["data"] for message in await pop(queen, group="g")] == [1]
        assert (await forget)["deleted"] == 1


# ── traces ──


async def test_a_consumer_notes_events_and_finds_them_again(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": 1}])

    async def handle(message: Message) -> None:
        noted = await message["trace"]({"traceName": ["order-1", "mail"], "eventType": "step", "data": {"at": "start"}})
        assert noted["success"]
        assert (await message["trace"]({"data": {"at": "end"}}))["success"]
        found = (await queen.admin.get_traces_for_message(message["partitionId"], message["transactionId"]))["traces"]
        assert [event["data"]["at"] for event in found] == ["start", "start", "end"]

    await queen.queue("orders").limit(1).consume(handle)
    (event,) = (await queen.admin.get_traces_by_name("order-1"))["traces"]
    assert (event["eventType"], event["consumerGroup"]) == ("step", "__QUEUE_MODE__")
    assert sorted((await queen.admin.get_trace_names())["names"]) == ["mail", "order-1"]


# ── the rest ──


async def test_what_there_is_can_be_looked_at(queen: Queen) -> None:
    await queen.queue("orders").namespace("shop").task("bill").create()
    await queen.queue("orders").push([{"data": 1}])
    await pop(queen, group="g")
    admin = queen.admin
    overview = await admin.get_overview()
    assert (overview["queues"], overview["messages"]["total"], overview["messages"]["processing"]) == (1, 1, 1)
    assert [space["namespace"] for space in (await admin.get_namespaces())["namespaces"]] == ["shop"]
    assert [task["task"] for task in (await admin.get_tasks())["tasks"]] == ["bill"]
    assert [queue["name"] for queue in (await admin.list_queues(search="ord"))["queues"]] == ["orders"]
    assert (await admin.list_queues(search="x"))["queues"] == []
    queue = await admin.get_queue("orders")
    assert (queue["namespace"], queue["partitions"][0]["messages"]) == ("shop", 1)
    assert queue["consumerGroups"][0]["name"] == "g"
    assert len((await admin.get_partitions(queue="orders"))["partitions"]) == 1
    assert (await admin.get_status())["counters"]["pushed_records"] == 1
    assert (await admin.get_queue_stats())["queues"][0]["consumerGroups"][0]["lag"] == 1
    assert (await admin.get_queue_detail("orders"))["name"] == "orders"
    with pytest.raises(httpx.HTTPStatusError, match="no queue"):
        await admin.get_queue("nothing")


@pytest.mark.parametrize(
    "call",
    [
        "get_analytics",
        "refresh_consumer_stats",
        "health",
        "get_system_metrics",
        "get_worker_metrics",
        "get_postgres_stats",
        "get_maintenance_mode",
        "get_pop_maintenance_mode",
    ],
)
async def test_every_question_of_the_client_is_answered(queen: Queen, call: str) -> None:
    assert isinstance(await getattr(queen.admin, call)(), dict)


async def test_maintenance_holds_pushes_and_pops_off(queen: Queen) -> None:
    await queen.queue("orders").push([{"data": 1}])
    assert (await queen.admin.set_maintenance_mode(True))["maintenanceMode"] is True
    with pytest.raises(httpx.HTTPStatusError, match="maintenance"):
        await queen.queue("orders").push([{"data": 2}])
    assert (await queen.admin.set_pop_maintenance_mode(True))["popMaintenanceMode"] is True
    assert await pop(queen) == []
    await queen.admin.set_maintenance_mode(False)
    assert (await queen.admin.set_pop_maintenance_mode(False))["message"] == "everything is served"
    await queen.queue("orders").push([{"data": 2}])
    assert [message["data"] for message in await pop(queen)] == [1, 2]
