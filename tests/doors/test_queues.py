"""The queue routes over HTTP, the same over every transport: push, pop, ack, transaction, configure, lease."""

import json
import threading
from typing import Any

import httpx
import pytest

from tests.doors.conftest import MakeDoor
from tests.doors.live_door import LiveDoor
from tests.waiting import expect_soon

PUSH = "/api/v1/push"
ACK = "/api/v1/ack"


def push(client: httpx.Client, *payloads: Any, queue: str = "orders", **about: Any) -> list[dict[str, Any]]:
    """Push payloads; what became of each."""
    items = [{"queue": queue, "payload": payload, **about} for payload in payloads]
    answer = client.post(PUSH, json={"items": items})
    assert answer.status_code == 201, answer.text
    results: list[dict[str, Any]] = answer.json()
    return results


def pop(client: httpx.Client, queue: str = "orders", **query: Any) -> list[dict[str, Any]]:
    """The messages of a pop."""
    answer = client.get(f"/api/v1/pop/queue/{queue}", params=query)
    assert answer.status_code in (200, 204), answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"] if answer.status_code == 200 else []
    return messages


def report(message: dict[str, Any], **said: Any) -> dict[str, Any]:
    """What is said of a message."""
    names = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    return {**names, "status": "completed", **said}


def ack(client: httpx.Client, message: dict[str, Any], **said: Any) -> dict[str, Any]:
    """Report on one message."""
    answer = client.post(ACK, json=report(message, **said))
    assert answer.status_code == 200, answer.text
    (result,) = answer.json()
    return dict(result)


def problem_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an error, which is told as every error is."""
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == answer.status_code
    assert problem["error"] == problem["detail"]
    assert problem["request_id"]
    return answer.status_code, problem["code"]


# ── pushing ──


def test_a_push_says_where_each_message_is(client: httpx.Client) -> None:
    first, second = push(client, {"id": 1}, {"id": 2}, partition="eu", transactionId=None)
    assert first == {
        "index": 0,
        "transaction_id": "@0",
        "status": "queued",
        "message_id": f"{first['partition_id']}-0000000000000000",
        "partition_id": first["partition_id"],
        "trace_id": None,
        "queueName": "orders",
        "partition": "eu",
        "offset": 0,
        "lsn": first["lsn"],
        "durability": "synced",
    }
    assert (second["index"], second["offset"], second["partition_id"]) == (1, 1, first["partition_id"])


def test_messages_for_several_queues_are_answered_in_the_order_they_came(client: httpx.Client) -> None:
    items = [{"queue": f"q{index % 3}", "partition": f"p{index % 2}", "payload": index} for index in range(12)]
    results = client.post(PUSH, json={"items": items}).json()
    assert [result["index"] for result in results] == list(range(12))
    assert [(result["queueName"], result["partition"]) for result in results] == [
        (item["queue"], item["partition"]) for item in items
    ]


def test_a_transaction_id_that_comes_again_is_a_duplicate_of_the_first(client: httpx.Client) -> None:
    (first,) = push(client, 1, transactionId="tx-1")
    (again,) = push(client, 2, transactionId="tx-1")
    assert (first["status"], again["status"]) == ("queued", "duplicate")
    assert again["message_id"] == first["message_id"]
    assert [message["data"] for message in pop(client, batch=10)] == [1]


def test_a_payload_comes_back_byte_for_byte(client: httpx.Client) -> None:
    payload = '{"b": 1.50, "a": [1e3, "\\u00e9\\/", "é"], "a": null, "n": 12345678901234567890}'
    body = '{"items": [{"queue": "orders", "payload": ' + payload + "}]}"
    assert client.post(PUSH, content=body.encode(), headers={"content-type": "application/json"}).status_code == 201
    text = client.get("/api/v1/pop/queue/orders").text
    assert f'"data":{payload},' in text


def test_what_a_producer_says_about_a_message_is_delivered_with_it(client: httpx.Client) -> None:
    about: dict[str, Any] = {"type": "created", "headers": {"shop": "7"}, "traceId": "t-1", "transactionId": "tx-9"}
    push(client, None, timestamp=1_700_000_000_000_000, **about)
    (message,) = pop(client)
    assert {name: message[name] for name in about} == about
    assert message["createdAt"] == "2023-11-14T22:13:20.000Z"
    assert message["data"] is None


def test_the_same_idempotency_key_pushes_once(client: httpx.Client) -> None:
    body = {"items": [{"queue": "a", "payload": 1}, {"queue": "b", "payload": 2}]}
    first = client.post(PUSH, json=body, headers={"idempotency-key": "key-1"})
    again = client.post(PUSH, json=body, headers={"idempotency-key": "key-1"})
    assert first.json() == again.json()
    assert [len(pop(client, queue, batch=10)) for queue in ("a", "b")] == [1, 1]


def test_every_answer_says_how_durable_it_is(client: httpx.Client) -> None:
    for durability in ("synced", "written", "memory"):
        items = [{"queue": "orders", "payload": 1}]
        (result,) = client.post(PUSH, json={"items": items, "durability": durability}).json()
        assert (result["status"], result["durability"]) == ("queued", durability)


def test_a_full_queue_refuses_its_messages_and_no_others(client: httpx.Client) -> None:
    client.post("/api/v1/configure", json={"queue": "small", "options": {"maxSize": 1}})
    push(client, 1, queue="small")
    items = [{"queue": "small", "payload": 2}, {"queue": "large", "payload": 3}]
    full, fine = client.post(PUSH, json={"items": items}).json()
    assert (full["status"], full["code"], full["message_id"]) == ("failed", "queue_full", None)
    assert "at most 1" in full["error"]
    assert fine["status"] == "queued"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid_input"),
        (b"{", 400, "invalid_input"),
        (b"[]", 400, "invalid_input"),
        (b'{"items": [{"payload": 1}]}', 400, "invalid_input"),
        (b'{"items": [{"queue": "q"}]}', 400, "invalid_input"),
        (b'{"items": [{"queue": 7, "payload": 1}]}', 400, "invalid_input"),
        (b'{"items": [{"queue": "q", "payload": NaN}]}', 400, "invalid_input"),
        (b'{"items": [{"queue": "q", "payload": "\xff"}]}', 400, "invalid_input"),
        (b'{"items": [{"queue": "q\\u0000", "payload": 1}]}', 400, "invalid_name"),
        (b'{"items": [{"queue": "../q?", "payload": 1}]}', 400, "invalid_name"),
        (b'{"items": [{"queue": "q", "partition": "p p", "payload": 1}]}', 400, "invalid_name"),
        (b'{"items": [{"queue": "headwater/own", "payload": 1}]}', 400, "invalid_name"),
        (b'{"items": [{"queue": "q", "payload": 1, "transactionId": "@5"}]}', 400, "invalid_option"),
        (b'{"items": [{"queue": "q", "payload": 1, "transactionId": "\\u0000"}]}', 400, "invalid_option"),
        (b'{"items": [{"queue": "q", "payload": 1, "transactionId": "\\ud800"}]}', 400, "invalid_input"),
        (b'{"items": [{"queue": "q", "payload": 1, "headers": {"a": "\\ud800"}}]}', 400, "invalid_input"),
        (b'{"items": [{"queue": "q", "payload": 1, "timestamp": -1}]}', 400, "invalid_option"),
        (b'{"items": [{"queue": "q", "payload": 1}], "durability": "maybe"}', 400, "invalid_option"),
        (b'{"items": [{"queue": "q", "payload": 1}], "ttlSeconds": -1}', 400, "invalid_option"),
        (b'{"items": [{"queue": "q", "payload": ' + b"[" * 150 + b"]" * 150 + b"}]}", 400, "invalid_payload"),
        (b'{"items": [{"queue": "q", "payload": ' + b"[" * 99_999 + b"]" * 99_999 + b"}]}", 400, "invalid_input"),
        (b'{"items": [{"queue": "q", "payload": "' + b"x" * 300_000 + b'"}]}', 413, "too_large"),
        (b'{"items": [' + b'{"queue":"q","payload":1},' * 1_000 + b'{"queue":"q","payload":1}]}', 413, "too_large"),
    ],
)
def test_a_bad_push_is_refused_whole(shared: httpx.Client, body: bytes, status: int, code: str) -> None:
    answer = shared.post(PUSH, content=body, headers={"content-type": "application/json"})
    assert problem_of(answer) == (status, code)
    assert pop(shared, "q") == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
def test_a_body_that_does_not_say_it_is_json_is_refused(shared: httpx.Client, kind: str) -> None:
    body = json.dumps({"items": [{"queue": "q", "payload": 1}]}).encode()
    answer = shared.post(PUSH, content=body, headers={"content-type": kind})
    assert problem_of(answer) == (415, "unsupported_media_type")


# ── popping ──


def test_a_pop_leases_messages_with_all_there_is_to_know_of_them(client: httpx.Client) -> None:
    (pushed,) = push(client, {"id": 7}, transactionId="tx-1", partition="eu")
    answer = client.get("/api/v1/pop/queue/orders", params={"consumerGroup": "billing"}).json()
    (message,) = answer.pop("messages")
    lease = f"{pushed['partition_id']}."
    assert answer.pop("leaseId") == message["leaseId"]
    assert message["leaseId"].startswith(lease)
    assert answer == {
        "success": True,
        "queue": "orders",
        "partition": "eu",
        "partitionId": pushed["partition_id"],
        "consumerGroup": "billing",
        "partitionsClaimed": 1,
    }
    expected = {
        "id": pushed["message_id"],
        "transactionId": "tx-1",
        "traceId": None,
        "data": {"id": 7},
        "producerSub": None,
        "partitionId": pushed["partition_id"],
        "partition": "eu",
        "consumerGroup": "billing",
        "queue": "orders",
        "retryCount": 0,
        "attempts": 1,
        "offset": 0,
        "lsn": pushed["lsn"],
    }
    assert {name: message[name] for name in expected} == expected
    assert message["createdAt"].endswith("Z")
    assert message["leaseExpiresAt"] > message["createdAt"]


def test_nothing_to_pop_is_204(client: httpx.Client) -> None:
    answer = client.get("/api/v1/pop/queue/orders")
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-length" not in answer.headers


def test_a_pop_can_name_its_partition(client: httpx.Client) -> None:
    push(client, "a", partition="a")
    push(client, "b", partition="b/c")
    assert [m["data"] for m in pop(client, "orders/partition/b%2Fc", batch=10)] == ["b"]
    assert [m["data"] for m in pop(client, "orders/partition/a", batch=10)] == ["a"]


def test_names_with_slashes_are_found_as_they_are(client: httpx.Client) -> None:
    push(client, 1, queue="shop/orders", partition="eu/1")
    assert [m["data"] for m in pop(client, "shop/orders/partition/eu/1")] == [1]
    assert [m["data"] for m in pop(client, "shop%2Forders", consumerGroup="g")] == [1]


def test_a_pop_by_namespace_and_task_finds_the_queues_of_both(client: httpx.Client) -> None:
    for queue, namespace, task in (("a", "shop", "mail"), ("b", "shop", "bill"), ("c", "other", "mail")):
        client.post("/api/v1/configure", json={"queue": queue, "namespace": namespace, "task": task})
        push(client, queue, queue=queue)

    def together(**query: str) -> list[str]:
        answer = client.get("/api/v1/pop", params={"batch": 10, "partitions": 10, **query}).json()
        return sorted(message["data"] for message in answer["messages"])

    assert together(namespace="shop", consumerGroup="1") == ["a", "b"]
    assert together(task="mail", consumerGroup="2") == ["a", "c"]
    assert together(namespace="shop", task="mail", consumerGroup="3") == ["a"]


def test_a_pop_drains_several_partitions_under_one_lease(client: httpx.Client) -> None:
    for name in "abc":
        push(client, name, partition=name)
    messages = pop(client, batch=10, partitions=2)
    assert len(messages) == 2
    assert len({message["partitionId"] for message in messages}) == 2
    assert len({message["leaseId"] for message in messages}) == 1


def test_messages_that_are_acked_on_the_way_have_no_lease(client: httpx.Client) -> None:
    push(client, 1, 2)
    assert [m["leaseId"] for m in pop(client, batch=2, autoAck="true")] == [None, None]
    assert pop(client, batch=2) == []


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ({}, [1, 2]),
        ({"subscriptionMode": "all"}, [1, 2]),
        ({"subscriptionMode": "from_beginning"}, [1, 2]),
        ({"subscriptionMode": "new"}, [2]),
        ({"subscriptionMode": "new-only"}, [2]),
        ({"subscriptionFrom": "now"}, [2]),
        ({"subscriptionFrom": "2020-01-01T00:00:00Z"}, [1, 2]),
        ({"subscriptionFrom": "2020-01-01"}, [1, 2]),
    ],
)
def test_a_new_group_begins_where_it_says(client: httpx.Client, mode: dict[str, str], expected: list[int]) -> None:
    push(client, 1)
    early = pop(client, batch=10, autoAck="true", consumerGroup="g", **mode)
    push(client, 2)
    late = pop(client, batch=10, autoAck="true", consumerGroup="g", **mode)
    assert [message["data"] for message in early + late] == expected


@pytest.mark.parametrize(
    "query",
    [
        {"batch": "0"},
        {"batch": "-1"},
        {"batch": "1000000000"},
        {"batch": "x"},
        {"timeout": "-1", "wait": "true"},
        {"timeout": "NaN", "wait": "true"},
        {"timeout": "inf", "wait": "true"},
        {"wait": "perhaps"},
        {"partitions": "0"},
        {"leaseSeconds": "-5"},
        {"leaseSeconds": "nan"},
        {"subscriptionMode": "sometimes"},
        {"subscriptionFrom": "yesterday"},
        {"subscriptionFrom": "9999-99-99"},
        {"consumerGroup": ""},
        {"consumerGroup": "a b"},
        {"consumerGroup": "a\x00b"},
        {"consumerGroup": "x" * 257},
    ],
)
def test_a_bad_query_is_refused(shared: httpx.Client, query: dict[str, str]) -> None:
    push(shared, 1, queue="asked")
    answer = shared.get("/api/v1/pop/queue/asked", params=query)
    assert problem_of(answer)[0] == 400
    assert [message["attempts"] for message in pop(shared, "asked", autoAck="true", batch=9)] == [1]


@pytest.mark.parametrize("query", ["batch=1&batch=2", "batch=%ff", "consumerGroup=%ff", "%ff=1"])
def test_a_query_that_cannot_be_read_is_refused(shared: httpx.Client, query: str) -> None:
    assert problem_of(shared.get(f"/api/v1/pop/queue/orders?{query}"))[0] == 400


@pytest.mark.parametrize("queue", ["a b", "a%00b", "%ff", "a%3Fb", "x" * 300])
def test_a_queue_with_a_hostile_name_is_refused(shared: httpx.Client, queue: str) -> None:
    assert problem_of(shared.get(f"/api/v1/pop/queue/{queue}")) == (400, "invalid_name")


# ── waiting ──


def test_a_pop_that_waits_gets_what_is_pushed_meanwhile(door: LiveDoor, client: httpx.Client) -> None:
    got: list[dict[str, Any]] = []

    def wait() -> None:
        with door.client() as waiting:
            got.extend(pop(waiting, wait="true", timeout=15_000))

    thread = threading.Thread(target=wait)
    thread.start()
    expect_soon(lambda: door.waiting() == 1)
    push(client, 7)
    thread.join(10)
    assert [message["data"] for message in got] == [7]


def test_a_wait_that_is_over_is_204(client: httpx.Client) -> None:
    assert client.get("/api/v1/pop/queue/orders", params={"wait": "true", "timeout": 20}).status_code == 204


def test_a_client_that_leaves_costs_no_message_and_no_attempt(door: LiveDoor, client: httpx.Client) -> None:
    with door.client() as leaving, pytest.raises(httpx.TimeoutException):
        leaving.get("/api/v1/pop/queue/orders", params={"wait": "true", "timeout": 30_000}, timeout=0.2)
    expect_soon(lambda: door.waiting() == 0)
    push(client, 1)
    assert [(message["data"], message["attempts"]) for message in pop(client)] == [(1, 1)]


def test_too_many_waiting_pops_are_told_to_come_back(make_door: MakeDoor) -> None:
    door = make_door(waiters_max=1)
    with door.client() as client, door.client() as waiting:
        thread = threading.Thread(target=pop, args=(waiting,), kwargs={"wait": "true", "timeout": 60_000})
        thread.start()
        expect_soon(lambda: door.waiting() == 1)
        answer = client.get("/api/v1/pop/queue/orders", params={"wait": "true", "timeout": 1_000})
        assert problem_of(answer) == (429, "overloaded")
        assert answer.headers["retry-after"] == "1"
        push(client, 1)
        thread.join(10)


# ── reporting ──


def test_what_was_acked_does_not_come_again(client: httpx.Client) -> None:
    push(client, 1, 2)
    first, second = pop(client, batch=2)
    assert ack(client, first) == {
        "index": 0,
        "transactionId": first["transactionId"],
        "success": True,
        "error": None,
        "queueName": "orders",
        "partitionName": "Default",
        "leaseReleased": False,
        "dlq": False,
    }
    assert ack(client, second)["leaseReleased"] is True
    assert pop(client) == []


def test_what_failed_comes_again_and_ends_in_the_dead_letters(client: httpx.Client) -> None:
    client.post("/api/v1/configure", json={"queue": "orders", "options": {"retryLimit": 1, "retryDelay": 0}})
    push(client, 1)
    (first,) = pop(client)
    assert ack(client, first, status="failed", error="once")["dlq"] is False
    (again,) = pop(client)
    assert (again["retryCount"], again["attempts"]) == (1, 2)
    assert ack(client, again, status="failed", error="twice")["dlq"] is True
    assert pop(client) == []


def test_a_message_can_be_sent_to_the_dead_letters_or_given_back(client: httpx.Client) -> None:
    push(client, 1, 2)
    first, second = pop(client, batch=2)
    assert ack(client, first, status="dlq")["dlq"] is True
    assert ack(client, second, status="retry")["success"] is True
    assert [(message["data"], message["attempts"]) for message in pop(client, batch=2)] == [(2, 1)]


def test_a_batch_of_reports_is_answered_one_by_one(client: httpx.Client) -> None:
    push(client, 1, 2, partition="a")
    push(client, 3, partition="b")
    messages = pop(client, batch=3, partitions=2, consumerGroup="g")
    unknown = report(messages[0], transactionId="nobody's")
    foreign = report(messages[0], partitionId="999", leaseId=None)
    said = [*(report(message) for message in messages), unknown, foreign]
    results = client.post(f"{ACK}/batch", json={"acknowledgments": said, "consumerGroup": "g"}).json()
    assert [result["index"] for result in results] == [0, 1, 2, 3, 4]
    assert [result["success"] for result in results] == [True, True, True, False, False]
    assert [result["code"] for result in results[3:]] == ["lease_lost", "not_found"]
    assert pop(client, batch=10, partitions=10, consumerGroup="g") == []


def test_a_report_can_name_an_offset_and_no_lease(client: httpx.Client) -> None:
    push(client, 1, transactionId="tx-1")
    (message,) = pop(client)
    said = {"partitionId": message["partitionId"], "offset": message["offset"], "status": "completed"}
    assert client.post(ACK, json=said).json()[0]["success"] is True
    assert client.post(ACK, json=said).json()[0]["success"] is False


def test_a_report_that_names_two_messages_settles_neither(client: httpx.Client) -> None:
    push(client, 1, transactionId="tx-1")
    push(client, 2, transactionId="tx-2")
    messages = pop(client, batch=2)
    first = next(message for message in messages if message["transactionId"] == "tx-1")
    refused = ack(client, first, offset=first["offset"] + 1)
    assert (refused["success"], refused["code"]) == (False, "invalid_option")
    assert all(ack(client, message)["success"] for message in messages)


def test_a_late_report_is_refused(client: httpx.Client) -> None:
    push(client, 1)
    (message,) = pop(client, leaseSeconds="0.01")
    expect_soon(lambda: len(pop(client)) == 1)
    late = ack(client, message)
    assert (late["success"], late["code"]) == (False, "lease_lost")


@pytest.mark.parametrize(
    "said",
    [
        {"status": "perhaps"},
        {"leaseId": "nonsense"},
        {"leaseId": "1.2"},
        {"leaseId": "9.1.g"},
        {"partitionId": "x"},
        {"partitionId": "9" * 40},
        {"transactionId": None},
        {"transactionId": "@99"},
        {"transactionId": "@-1"},
        {"transactionId": "\x00"},
        {"consumerGroup": "another"},
    ],
)
def test_a_wrong_report_changes_nothing(client: httpx.Client, said: dict[str, Any]) -> None:
    push(client, 1)
    (message,) = pop(client)
    assert ack(client, message, **said)["success"] is False
    assert ack(client, message)["success"] is True


def test_a_lease_is_kept_for_longer(client: httpx.Client) -> None:
    push(client, 1)
    (message,) = pop(client, leaseSeconds="5", consumerGroup="a/b")
    answer = client.post(f"/api/v1/lease/{message['leaseId']}/extend", json={"seconds": 600}).json()
    assert answer["newExpiresAt"] == answer["lease_expires_at"] > message["leaseExpiresAt"]
    assert client.post(f"/api/v1/lease/{message['leaseId']}/extend").status_code == 200
    ack(client, message)
    assert problem_of(client.post(f"/api/v1/lease/{message['leaseId']}/extend")) == (409, "lease_lost")
    assert problem_of(client.post("/api/v1/lease/nonsense/extend"))[0] == 409


# ── transactions ──


def test_a_transaction_acks_and_pushes_together(client: httpx.Client) -> None:
    push(client, {"id": 1}, {"id": 2})
    messages = pop(client, batch=2)
    operations = [
        *({"type": "ack", "transactionId": m["transactionId"], "partitionId": m["partitionId"]} for m in messages),
        {"type": "push", "items": [{"queue": "invoices", "payload": 1}, {"queue": "mails", "payload": 2}]},
    ]
    leases = [messages[0]["leaseId"]]
    answer = client.post("/api/v1/transaction", json={"operations": operations, "requiredLeases": leases}).json()
    assert answer["success"] is True
    assert [result["type"] for result in answer["results"]] == ["ack", "ack", "push"]
    assert [item["queueName"] for item in answer["results"][2]["items"]] == ["invoices", "mails"]
    assert [len(pop(client, queue)) for queue in ("orders", "invoices", "mails")] == [0, 1, 1]


def test_a_transaction_whose_lease_is_lost_does_nothing(client: httpx.Client) -> None:
    push(client, 1)
    (message,) = pop(client)
    ack(client, message)
    operations = [{"type": "push", "items": [{"queue": "invoices", "payload": 1}]}]
    body = {"operations": operations, "requiredLeases": [message["leaseId"]]}
    assert problem_of(client.post("/api/v1/transaction", json=body)) == (409, "lease_lost")
    assert pop(client, "invoices") == []


def test_a_transaction_whose_report_is_wrong_does_nothing(client: httpx.Client) -> None:
    push(client, 1)
    (message,) = pop(client)
    operations = [
        {"type": "push", "items": [{"queue": "invoices", "payload": 1}]},
        {"type": "ack", "transactionId": "unknown", "partitionId": message["partitionId"]},
    ]
    assert problem_of(client.post("/api/v1/transaction", json={"operations": operations}))[0] == 409
    assert pop(client, "invoices") == []
    assert ack(client, message)["success"] is True


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"operations": []},
        {"operations": [{"type": "drop"}]},
        {"operations": [{"type": "push"}]},
        {"operations": [{"type": "push", "items": []}]},
        {"operations": [{"type": "ack"}]},
        {"operations": [{"type": "push", "items": [{"queue": "a b", "payload": 1}]}]},
        {"operations": [{"type": "push", "items": [{"queue": "q", "payload": 1}]}], "requiredLeases": [7]},
    ],
)
def test_a_bad_transaction_is_refused(shared: httpx.Client, body: dict[str, Any]) -> None:
    assert problem_of(shared.post("/api/v1/transaction", json=body))[0] == 400


# ── queues ──


def test_a_queue_is_configured_by_the_names_of_queen_mq_or_by_ours(client: httpx.Client) -> None:
    options = {"leaseTime": 30, "retryLimit": 5, "retryDelay": 250, "maxSize": 9, "deduplication_seconds": 60}
    body = {"queue": "orders", "namespace": "shop", "task": "bill", "options": options}
    answer = client.post("/api/v1/configure", json=body).json()
    assert {name: answer[name] for name in ("configured", "queue", "namespace", "task")} == {
        "configured": True,
        "queue": "orders",
        "namespace": "shop",
        "task": "bill",
    }
    assert options.items() <= answer["options"].items()
    assert answer["options"]["lease_seconds"] == 30
    again = client.post("/api/v1/configure", json={"queue": "orders", "options": {"priority": 2}}).json()
    assert (again["namespace"], again["options"]["leaseTime"], again["options"]["priority"]) == ("shop", 30, 2)


@pytest.mark.parametrize(
    "options",
    [
        {"leaseTime": -1},
        {"leaseTime": "x"},
        {"retryDelay": "x"},
        {"retryLimit": 1.5},
        {"nonsense": 1},
        {"maxSize": True},
    ],
)
def test_a_bad_option_is_refused(shared: httpx.Client, options: dict[str, Any]) -> None:
    answer = shared.post("/api/v1/configure", json={"queue": "orders", "options": options})
    assert problem_of(answer) == (400, "invalid_option")


def test_a_queue_is_deleted_with_everything_in_it(client: httpx.Client) -> None:
    push(client, 1)
    assert client.delete("/api/v1/resources/queues/orders").json() == {
        "deleted": True,
        "queue": "orders",
        "existed": True,
    }
    assert pop(client) == []
    again = client.delete("/api/v1/resources/queues/orders").json()
    assert again == {"deleted": False, "queue": "orders", "existed": False}, "nothing was there to delete"


# ── paths ──


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/push", (405, "method_not_allowed")),
        ("DELETE", "/api/v1/pop/queue/orders", (405, "method_not_allowed")),
        ("GET", "/api/v1/nothing", (404, "not_found")),
        ("GET", "/api/v1/pop/queue/", (404, "not_found")),
        ("GET", "/api/v1/pop/queue/" + "a/" * 60, (404, "not_found")),
        ("POST", "/api/v1/lease//extend", (404, "not_found")),
    ],
)
def test_a_path_or_method_that_is_not_there_is_told(
    client: httpx.Client, method: str, path: str, expected: tuple[int, str]
) -> None:
    assert problem_of(client.request(method, path)) == expected


def test_what_would_change_something_is_not_answered_to_head(client: httpx.Client) -> None:
    push(client, 1)
    assert client.head("/api/v1/pop/queue/orders").status_code == 405
    assert client.head("/health").status_code == 200
    assert len(pop(client)) == 1
