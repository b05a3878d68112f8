"""The wire as the clients of queen-mq 0.15.0 in JavaScript, Go and PHP use it, call by call.

Their packages cannot be installed here as Python's can, so what they send and what they read of the answers is written
down: found by reading them, and by running the test suite of the JavaScript client against a server.
"""

from datetime import datetime
from typing import Any

import httpx
import pytest

# What each call names: made by `filled`.
CALLS: list[tuple[str, str, Any]] = [
    ("GET", "/health", None),
    ("GET", "/metrics", None),
    ("GET", "/metrics/prometheus", None),
    ("GET", "/api/v1/resources/overview", None),
    ("GET", "/api/v1/resources/namespaces", None),
    ("GET", "/api/v1/resources/tasks", None),
    ("GET", "/api/v1/resources/queues?limit=10&offset=0&namespace=shop&task=billing", None),
    ("GET", "/api/v1/resources/queues/{queue}", None),
    ("GET", "/api/v1/resources/partitions?queue={queue}&limit=10&offset=0", None),
    ("GET", "/api/v1/messages?queue={queue}&partition=Default&status=pending&limit=10&offset=0", None),
    ("GET", "/api/v1/messages/{partition}/{message}", None),
    ("GET", "/api/v1/traces/by-name/checkout?limit=10&offset=0&from=2026-01-01T00:00:00Z", None),
    ("GET", "/api/v1/traces/names?limit=10", None),
    ("GET", "/api/v1/traces/{partition}/{message}", None),
    ("GET", "/api/v1/status?from=2026-01-01T00:00:00Z&to=2026-12-31T00:00:00Z", None),
    ("GET", "/api/v1/status/queues?limit=10&offset=0", None),
    ("GET", "/api/v1/status/queues/{queue}?includePartitions=true", None),
    ("GET", "/api/v1/status/queues/{queue}/messages?limit=10", None),
    ("GET", "/api/v1/status/analytics?interval=hour", None),
    ("GET", "/api/v1/consumer-groups", None),
    ("GET", "/api/v1/consumer-groups/{group}", None),
    ("GET", "/api/v1/consumer-groups/lagging?minLagSeconds=60", None),
    ("POST", "/api/v1/consumer-groups/{group}/subscription", {"subscriptionTimestamp": "2026-01-01T00:00:00Z"}),
    ("POST", "/api/v1/consumer-groups/{group}/queues/{queue}/seek", {"toEnd": True}),
    ("POST", "/api/v1/consumer-groups/{group}/queues/{queue}/seek", {"timestamp": "2026-01-01T00:00:00+00:00"}),
    ("POST", "/api/v1/consumer-groups/{group}/queues/{queue}/partitions/Default/seek", {}),
    ("DELETE", "/api/v1/consumer-groups/{group}/queues/{queue}?deleteMetadata=true", None),
    ("DELETE", "/api/v1/consumer-groups/{group}?deleteMetadata=false", None),
    ("GET", "/api/v1/dlq?queue={queue}&consumerGroup={group}&limit=10&offset=0&from=2026-01-01T00:00:00Z", None),
    ("POST", "/api/v1/messages/{partition}/{message}/dlq", {}),
    ("DELETE", "/api/v1/messages/{partition}/{message}", None),
    ("POST", "/api/v1/stats/refresh", {}),
    ("POST", "/api/v1/stats/refresh", None),
    ("GET", "/api/v1/system/maintenance", None),
    ("POST", "/api/v1/system/maintenance", {"enabled": False}),
    ("GET", "/api/v1/system/maintenance/pop", None),
    ("POST", "/api/v1/system/maintenance/pop", {"enabled": False}),
    ("GET", "/api/v1/analytics/system-metrics?from=2026-01-01T00:00:00Z", None),
    ("GET", "/api/v1/analytics/worker-metrics", None),
    ("GET", "/api/v1/analytics/postgres-stats", None),
    ("GET", "/api/v1/analytics/queue-lag?from=2026-01-01T00:00:00Z&to=2026-12-31T00:00:00Z", None),
    ("GET", "/api/v1/analytics/queue-ops", None),
    ("GET", "/api/v1/analytics/queue-parked-replicas", None),
    ("GET", "/api/v1/analytics/retention", None),
    ("DELETE", "/api/v1/queues/{queue}/clear?partition=Default", None),
    ("DELETE", "/api/v1/resources/queues/{queue}", None),
]


def push(client: httpx.Client, *ids: str, queue: str = "orders") -> list[dict[str, Any]]:
    items = [{"queue": queue, "partition": "Default", "payload": {"id": name}, "transactionId": name} for name in ids]
    answer = client.post("/api/v1/push", json={"items": items})
    assert answer.status_code == 201
    results: list[dict[str, Any]] = answer.json()
    return results


def pop(client: httpx.Client, **query: Any) -> dict[str, Any]:
    about = {"batch": 10, "wait": "false", "timeout": 30_000, "consumerGroup": "g", **query}
    answer = client.get("/api/v1/pop/queue/orders", params=about).raise_for_status()
    popped: dict[str, Any] = answer.json()
    return popped


@pytest.fixture
def filled(client: httpx.Client) -> dict[str, str]:
    """A queue, a group that has read a message, and an event in its life."""
    options = {"queue": "orders", "namespace": "shop", "task": "billing", "options": {"leaseTime": 60}}
    assert client.post("/api/v1/configure", json=options).json()["configured"] is True
    push(client, "a", "b")
    (message,) = pop(client, batch=1)["messages"]
    names = {"transactionId": "a", "partitionId": message["partitionId"], "consumerGroup": "g"}
    event = {**names, "traceNames": ["checkout"], "eventType": "info", "data": {"step": 1}}
    assert client.post("/api/v1/traces", json=event).status_code == 201
    client.post("/api/v1/ack", json={**names, "leaseId": message["leaseId"], "status": "completed", "error": None})
    return {"queue": "orders", "group": "g", "partition": message["partitionId"], "message": "b"}


def test_there_is_an_answer_to_every_call_that_a_client_makes(client: httpx.Client, filled: dict[str, str]) -> None:
    """In this order: those that remove something come last."""
    refused: list[str] = []
    for method, path, body in CALLS:
        headers = {"content-type": "application/json"}
        answer = client.request(method, path.format(**filled), headers=headers, json=body)
        if answer.status_code != 200:
            refused.append(f"{method} {path}: {answer.text}")
        elif not path.startswith("/metrics"):
            answer.json()
    assert refused == []


def test_a_dead_letter_is_put_back_by_the_call_that_clients_make(client: httpx.Client, filled: dict[str, str]) -> None:
    place = f"/api/v1/messages/{filled['partition']}/b"
    assert client.post(f"{place}/dlq", json={}).status_code == 200
    assert client.get("/api/v1/dlq", params={"queue": "orders"}).json()["total"] == 1
    assert client.post(f"{place}/retry", json={}).status_code == 200
    assert client.get("/api/v1/dlq", params={"queue": "orders"}).json()["total"] == 0


# ── what they read of the answers ──


def test_a_push_is_told_item_by_item_and_nothing_at_all_is_no_mistake(client: httpx.Client) -> None:
    assert [result["status"] for result in push(client, "a", "b", "a")] == ["queued", "queued", "duplicate"]
    assert push(client) == []


def test_a_popped_message_has_what_the_clients_read_and_in_the_types_that_they_ask_for(client: httpx.Client) -> None:
    push(client, "a")
    popped = pop(client, partitions=3)
    assert popped["success"] is True
    (message,) = popped["messages"]
    texts = ("transactionId", "partitionId", "leaseId", "queue", "partition", "createdAt", "consumerGroup")
    assert [name for name in texts if not isinstance(message[name], str)] == []
    assert message["data"] == {"id": "a"}
    assert message["retryCount"] == 0
    assert datetime.fromisoformat(message["createdAt"]).tzinfo is not None


def test_nothing_to_pop_is_no_content(client: httpx.Client) -> None:
    answer = client.get("/api/v1/pop/queue/orders", params={"wait": "true", "timeout": "10", "batch": "1"})
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("body", [b"{}", b"[]", b""], ids=["an object", "a list, as PHP has it", "nothing"])
def test_a_lease_is_kept_for_longer_and_the_answer_says_until_when(client: httpx.Client, body: bytes) -> None:
    push(client, "a")
    lease = pop(client)["messages"][0]["leaseId"]
    headers = {"content-type": "application/json"}
    answer = client.post(f"/api/v1/lease/{lease}/extend", content=body, headers=headers)
    assert answer.status_code == 200
    # Go reads it as RFC 3339; JavaScript takes it where the answer names the lease.
    assert answer.json()["leaseId"] == lease
    assert datetime.fromisoformat(answer.json()["newExpiresAt"]).tzinfo is not None


def test_acks_alone_and_together_are_told_one_by_one_and_an_error_is_empty_when_there_is_none(
    client: httpx.Client,
) -> None:
    push(client, "a", "b", "c")
    messages = pop(client)["messages"]
    reports = [
        {name: message[name] for name in ("transactionId", "partitionId", "leaseId")} | {"status": "completed"}
        for message in messages
    ]
    (alone,) = client.post("/api/v1/ack", json={**reports[0], "consumerGroup": "g"}).json()
    body = {"acknowledgments": [{**report, "error": None} for report in reports[1:]], "consumerGroup": "g"}
    together = client.post("/api/v1/ack/batch", json=body).json()
    assert [result["success"] for result in (alone, *together)] == [True] * 3
    assert [result["error"] for result in (alone, *together)] == [None] * 3
    late = client.post("/api/v1/ack/batch", json=body).json()
    assert [(result["success"], bool(result["error"])) for result in late] == [(False, True)] * 2


def test_a_transaction_says_success_and_one_that_fails_says_why(client: httpx.Client) -> None:
    push(client, "a")
    (message,) = pop(client)["messages"]
    ack = {"type": "ack", "transactionId": "a", "partitionId": message["partitionId"], "status": "completed"}
    items = [{"queue": "next", "payload": {"id": 1}}]
    body = {
        "operations": [{**ack, "consumerGroup": "g"}, {"type": "push", "items": items}],
        "requiredLeases": [message["leaseId"]],
    }
    first = client.post("/api/v1/transaction", json=body)
    assert (first.status_code, first.json()["success"]) == (200, True)
    assert first.json()["transactionId"]
    second = client.post("/api/v1/transaction", json=body)
    assert second.json().get("success") is not True
    assert second.json()["error"]


def test_the_options_of_a_queue_are_said_back_as_they_are_in_force(client: httpx.Client) -> None:
    options = {
        "leaseTime": 60,
        "retryLimit": 5,
        "priority": 3,
        "delayedProcessing": 2,
        "windowBuffer": 1,
        "maxSize": 100,
        "retentionSeconds": 3_600,
        "completedRetentionSeconds": 60,
        "encryptionEnabled": False,
        "retentionEnabled": True,
        "maxWaitTimeSeconds": 600,
    }
    answer = client.post("/api/v1/configure", json={"queue": "orders", "options": options}).json()
    in_force = {**options, "retentionSeconds": 600}
    assert {name: answer["options"][name] for name in options} == in_force
    # What has waited for longer than it may is dropped, so nothing is kept for longer.
    kept = client.get("/api/v1/resources/queues/orders").json()["options"]
    assert (kept["retentionSeconds"], kept["retention_seconds"]) == (600, 600)
    wrong = client.post("/api/v1/configure", json={"queue": "orders", "options": {"maxWaitTimeSeconds": "soon"}})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_option")


def test_a_dead_letter_has_what_the_clients_read(client: httpx.Client) -> None:
    push(client, "a")
    (message,) = pop(client)["messages"]
    report = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    client.post("/api/v1/ack", json={**report, "status": "dlq", "error": "broken", "consumerGroup": "g"})
    answer = client.get("/api/v1/dlq", params={"queue": "orders", "limit": 10, "offset": 0}).json()
    (letter,) = answer["messages"]
    assert answer["total"] == 1
    assert (letter["errorMessage"], letter["retryCount"], letter["data"]) == ("broken", 0, {"id": "a"})


def test_a_stream_that_was_registered_otherwise_is_told_in_words_that_clients_know(client: httpx.Client) -> None:
    client.post("/api/v1/configure", json={"queue": "orders"})
    query = {"name": "totals", "source_queue": "orders", "sink_queue": "", "config_hash": "one", "reset": False}
    assert client.post("/streams/v1/queries", json=query).status_code == 200
    other = client.post("/streams/v1/queries", json={**query, "config_hash": "two"})
    assert other.status_code == 409
    assert "config_hash mismatch" in other.json()["error"]


def test_an_error_is_where_the_clients_look_for_it(client: httpx.Client) -> None:
    answer = client.post("/api/v1/push", json={"items": [{"queue": "no such name", "payload": 1}]})
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_a_pop_that_is_repeated_with_its_key_is_told_of_no_lease_that_is_over(client: httpx.Client) -> None:
    push(client, "a", "b", "c")
    first = pop(client, batch=2, idempotencyKey="k")["messages"]
    assert pop(client, batch=2, idempotencyKey="k")["messages"] == first
    reports = [
        {name: message[name] for name in ("transactionId", "partitionId", "leaseId")} | {"status": "completed"}
        for message in first
    ]
    for report, left in zip(reports, (["b"], ["c"]), strict=True):
        (acked,) = client.post("/api/v1/ack", json={**report, "consumerGroup": "g"}).json()
        assert acked["success"]
        again = pop(client, batch=2, idempotencyKey="k")["messages"]
        assert [message["transactionId"] for message in again] == left


@pytest.mark.parametrize("path", ["push", "transaction"])
def test_two_idempotency_keys_that_differ_in_one_request_are_refused(client: httpx.Client, path: str) -> None:
    items = [{"queue": "orders", "payload": 1}]
    body = {"items": items} if path == "push" else {"operations": [{"type": "push", "items": items}]}
    url, header = f"/api/v1/{path}", {"Idempotency-Key": "one"}
    refused = client.post(url, json={**body, "idempotencyKey": "other"}, headers=header)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_option")
    taken = client.post(url, json={**body, "idempotencyKey": "one"}, headers=header)
    assert taken.is_success
    assert client.post(url, json=body, headers=header).json() == taken.json(), "one key, wherever it stands"
    assert len(pop(client)["messages"]) == 1
