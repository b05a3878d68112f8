"""One message of a batch fails: what becomes of the rest, for clients that leave it alone and for those that go on."""

import asyncio
from typing import Any

import httpx
import pytest
from queen import Queen

from tests.doors.live_door import LiveDoor
from tests.doors.test_queues import pop, push, report
from tests.waiting import expect_soon_async

Message = dict[str, Any]


def ack_one(client: httpx.Client, message: Message, status: str = "completed") -> Message:
    said = {**report(message, status=status), "leaseId": message["leaseId"]}
    [result] = client.post("/api/v1/ack", json=said).json()
    return dict(result)


def lag(client: httpx.Client, group: str) -> tuple[int, int]:
    [status] = [found for found in client.get("/api/v1/consumer-groups").json() if found["name"] == group]
    return status["totalLag"], status["leased"]


def configure(client: httpx.Client, **options: int) -> None:
    client.post("/api/v1/configure", json={"queue": "orders", "options": options}).raise_for_status()


def test_a_message_that_fails_gives_the_rest_of_its_lease_back(client: httpx.Client) -> None:
    configure(client, retryDelay=0)
    push(client, 1, 2, 3)
    first, *_ = pop(client, batch=3, consumerGroup="g")
    failed = ack_one(client, first, "failed")
    assert (failed["success"], failed["leaseReleased"], failed["dlq"]) == (True, True, False)
    [again] = pop(client, batch=3, consumerGroup="g")
    assert (again["data"], again["attempts"]) == (1, 2)
    ack_one(client, again)
    rest = pop(client, batch=3, consumerGroup="g")
    assert [(message["data"], message["attempts"]) for message in rest] == [(2, 1), (3, 1)]


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_lease_over_two_partitions_is_kept_in_the_one_that_is_left(client: httpx.Client, status: str) -> None:
    """As clients extend it while they work: what is reported needs no more time."""
    configure(client, retryDelay=60_000)
    for partition in ("a", "b"):
        push(client, partition, partition=partition)
    first, second = pop(client, batch=2, partitions=2)
    lease = first["leaseId"]
    assert second["leaseId"] == lease
    ack_one(client, first, status)
    extended = client.post(f"/api/v1/lease/{lease}/extend", json={"seconds": 1_000})
    assert extended.status_code == 200, extended.text
    assert extended.json()["newExpiresAt"] > second["leaseExpiresAt"]
    assert ack_one(client, second)["success"] is True
    assert client.post(f"/api/v1/lease/{lease}/extend", json={}).json()["code"] == "lease_lost"


def test_who_waits_for_a_partition_gets_it_when_a_message_there_failed(client: httpx.Client, door: LiveDoor) -> None:
    """Its lease would run out in five minutes; nobody waits that long here."""
    configure(client, retryDelay=50)
    push(client, 1, 2, 3)
    first, *_ = pop(client, batch=3)
    got: list[Message] = []

    async def is_waiting() -> bool:
        return door.waiting() == 1

    async def wait_and_report() -> None:
        async with httpx.AsyncClient(base_url=door.url, timeout=60) as other:
            asked = "/api/v1/pop/queue/orders?batch=3&wait=true&timeout=30000"
            waiting = asyncio.ensure_future(other.get(asked))
            await expect_soon_async(is_waiting)
            await asyncio.to_thread(ack_one, client, first, "failed")
            got.extend((await waiting).json()["messages"])

    asyncio.run(wait_and_report())
    assert [(message["data"], message["attempts"]) for message in got] == [(1, 2)]


def test_a_message_that_failed_in_one_partition_leaves_the_others_of_its_lease(client: httpx.Client) -> None:
    for partition in ("a", "b"):
        push(client, 1, 2, partition=partition)
    messages = pop(client, batch=4, partitions=2)
    assert len(messages) == 4
    assert ack_one(client, messages[0], "failed")["leaseReleased"]
    others = [message for message in messages if message["partition"] != messages[0]["partition"]]
    assert [ack_one(client, message)["leaseReleased"] for message in others] == [False, True]


def test_a_batch_of_reports_settles_what_it_names_and_no_more(client: httpx.Client) -> None:
    push(client, 1, 2, 3)
    messages = pop(client, batch=3)
    said = [report(messages[0], status="failed"), report(messages[1])]
    results = client.post("/api/v1/ack/batch", json={"acknowledgments": said}).json()
    assert [(result["success"], result["leaseReleased"]) for result in results] == [(True, False)] * 2
    assert ack_one(client, messages[2])["leaseReleased"]


def test_a_transaction_settles_what_it_names_and_no_more(client: httpx.Client) -> None:
    push(client, 1, 2)
    messages = pop(client, batch=2)
    said = {"type": "ack", **report(messages[0], status="failed")}
    [result] = client.post("/api/v1/transaction", json={"operations": [said]}).json()["results"]
    assert not result["leaseReleased"]
    assert ack_one(client, messages[1])["leaseReleased"]


def test_the_rest_is_completed_late_by_one_report_or_by_many(client: httpx.Client) -> None:
    push(client, 1, 2, 3, 4)
    messages = pop(client, batch=4, consumerGroup="g")
    ack_one(client, messages[0], "failed")
    assert lag(client, "g") == (4, 0)
    assert ack_one(client, messages[1])["success"]
    said = [{**report(message), "leaseId": message["leaseId"]} for message in messages[1:]]
    said[1]["status"] = "failed"
    results = client.post("/api/v1/ack/batch", json={"acknowledgments": said, "consumerGroup": "g"}).json()
    assert [(result["success"], result.get("code")) for result in results] == [
        (False, "unknown_record"),
        (False, "unknown_record"),
        (True, None),
    ]
    assert lag(client, "g") == (2, 0)


def test_a_late_report_does_not_count_once_another_has_the_partition(client: httpx.Client) -> None:
    configure(client, retryDelay=0)
    push(client, 1, 2)
    first, second = pop(client, batch=2)
    ack_one(client, first, "failed")
    [again] = pop(client, batch=2)
    refused = ack_one(client, second)
    assert (refused["success"], refused["code"]) == (False, "lease_lost")
    ack_one(client, again)
    assert [message["data"] for message in pop(client, batch=2)] == [2]


async def test_the_older_client_handles_each_of_a_batch_once_though_one_of_them_failed(
    queen: Queen, client: httpx.Client
) -> None:
    """It goes on with the rest of the batch after a failure, and acks each."""
    await queen.queue("orders").config({"retry_limit": 3, "retry_delay": 0}).create()
    await queen.queue("orders").push([{"data": number} for number in range(12)])
    handled: list[int] = []
    done = asyncio.Event()

    async def handle(message: Message) -> None:
        handled.append(message["data"])
        if handled == [*range(8)]:
            raise RuntimeError("not yet")
        if len(handled) == 13:
            done.set()

    await queen.queue("orders").group("g").batch(5).each().timeout_millis(200).consume(handle, signal=done)
    assert handled == [*range(10), 7, 10, 11]
    assert lag(client, "g") == (0, 0)
