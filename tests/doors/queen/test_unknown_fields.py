"""Fields that nobody knows: passed over and told of; or refused, where without them another thing would be done."""

from typing import Any

import httpx
import pytest

from tests.doors.test_queues import pop, problem_of, push, report

WARNING = "x-headwater-warning"
PUSHING = {"type": "push", "items": [{"queue": "charges", "payload": 7}]}


def commit(client: httpx.Client, *operations: dict[str, Any], **more: Any) -> httpx.Response:
    return client.post("/api/v1/transaction", json={"operations": list(operations), **more})


# ── transactions ──


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("kv", "this server has no key-value store"),
        ("timers", "this server has no timers"),
        ("requiredleases", "there is no such part"),
    ],
)
@pytest.mark.parametrize("operations", [[PUSHING], []], ids=["beside operations", "alone"])
def test_a_transaction_with_a_part_that_is_not_done_here_is_refused_as_a_whole(
    client: httpx.Client, part: str, why: str, operations: list[dict[str, Any]]
) -> None:
    push(client, 1)
    [message] = pop(client)
    acking = [{"type": "ack", **report(message)}] if operations else []
    refused = commit(client, *acking, *operations, **{part: [{"op": "check"}]})
    assert problem_of(refused) == (400, "invalid_input")
    assert f"{part!r}: {why}" in refused.json()["error"]
    assert pop(client, "charges") == []
    assert commit(client, {"type": "ack", **report(message)}).json()["success"], "and it is held still"


def test_a_transaction_with_an_operation_that_is_not_done_here_is_refused_as_a_whole(client: httpx.Client) -> None:
    for kind, why in {"kv": "this server has no key-value store", "burn": "operations are push and ack"}.items():
        refused = commit(client, PUSHING, {"type": kind, "op": "check"})
        assert problem_of(refused) == (400, "invalid_input")
        assert f"{kind!r}: {why}" in refused.json()["error"]
    assert pop(client, "charges") == []


def test_what_is_wrong_with_a_part_that_is_known_is_told_as_such(client: httpx.Client) -> None:
    bodies = (
        b"{",
        b'{"operations": 7}',
        b'{"operations": []}',
        b'{"operations": [{"type": 7}]}',
        b"[1]",
        b'{"kv": "\xff"}',
    )
    for body in bodies:
        refused = client.post("/api/v1/transaction", content=body, headers={"content-type": "application/json"})
        assert problem_of(refused) == (400, "invalid_input")
        assert "not done here" not in refused.json()["error"]


def test_an_unknown_field_of_an_operation_is_told_and_the_transaction_counts(client: httpx.Client) -> None:
    push(client, 1)
    [message] = pop(client)
    item = {"queue": "charges", "payload": 7, "delay_seconds": 5}
    answer = commit(client, {"type": "ack", **report(message), "zip": 1}, {"type": "push", "items": [item]})
    assert answer.json()["success"]
    assert answer.headers[WARNING] == "no such field: 'delay_seconds, zip'"
    assert WARNING not in commit(client, PUSHING, requiredLeases=[], idempotencyKey="k").headers


# ── other routes ──


def test_an_unknown_field_of_a_report_is_told_and_the_report_counts(client: httpx.Client) -> None:
    push(client, 1, 2)
    first, second = pop(client, batch=2)
    answer = client.post("/api/v1/ack", json={**report(first), "zip": 1})
    assert (answer.json()[0]["success"], answer.headers[WARNING]) == (True, "no such field: 'zip'")
    answer = client.post("/api/v1/ack/batch", json={"acknowledgments": [{**report(second), "zip": 1}], "zap": 2})
    assert (answer.json()[0]["success"], answer.headers[WARNING]) == (True, "no such field: 'zap, zip'")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("lease/{lease}/extend", {"seconds": 5}),
        ("traces", {"transactionId": "t", "partitionId": "1", "eventType": "info", "data": {}}),
        ("system/maintenance", {"enabled": False}),
        ("consumer-groups/g/subscription", {"subscriptionTimestamp": "2026-01-01T00:00:00Z"}),
        ("configure", {"queue": "orders", "options": {}}),
    ],
)
def test_each_route_that_does_something_tells_of_a_field_that_nobody_knows(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    push(client, 1)
    [message] = pop(client)
    asked = f"/api/v1/{path.format(lease=message['leaseId'])}"
    assert WARNING not in client.post(asked, json=body).raise_for_status().headers
    assert client.post(asked, json={**body, "zip": 1}).headers[WARNING] == "no such field: 'zip'"


@pytest.mark.parametrize("partition", ["", "/partitions/Default"], ids=["a queue", "a partition"])
def test_a_group_is_not_moved_to_a_place_that_nobody_knows(client: httpx.Client, partition: str) -> None:
    """In one partition it would go to the end, and pass everything there for good."""
    push(client, 1)
    assert len(pop(client, consumerGroup="g", autoAck="true")) == 1
    push(client, 2)
    path = f"/api/v1/consumer-groups/g/queues/orders{partition}/seek"
    for body in ({"toBegining": True}, {"toEnd": True, "toBegining": True}):
        refused = client.post(path, json=body)
        assert problem_of(refused) == (400, "invalid_input")
        assert "toBegining" in refused.json()["error"]
    assert [message["data"] for message in pop(client, consumerGroup="g")] == [2]


def test_a_streaming_cycle_with_a_part_that_nobody_knows_is_refused_as_a_whole(client: httpx.Client) -> None:
    query = {"name": "count", "source_queue": "orders", "sink_queue": "charges", "config_hash": "h"}
    number = client.post("/streams/v1/queries", json=query).json()["query_id"]
    push(client, 1)
    [message] = pop(client, consumerGroup="g")
    pushed = [{"queue": "charges", "payload": 7}]
    cycle = {"query_id": number, "partition_id": message["partitionId"], "consumer_group": "g", "push_items": pushed}
    refused = client.post("/streams/v1/cycle", json={**cycle, "kv": [{"op": "check"}]})
    assert problem_of(refused) == (400, "invalid_input")
    assert "kv" in refused.json()["error"]
    assert pop(client, "charges") == []
    assert client.post("/streams/v1/cycle", json=cycle).json()["success"]
    assert [one["data"] for one in pop(client, "charges")] == [7]


@pytest.mark.parametrize(
    "path",
    [
        "queues/orders/clear?partitions=eu",
        "consumer-groups/g?deletemetadata=false",
        "consumer-groups/g/queues/orders?deletemetadata=false",
        "resources/queues/orders?partition=eu",
    ],
)
def test_what_drops_something_is_refused_with_a_parameter_that_nobody_knows(client: httpx.Client, path: str) -> None:
    push(client, 1, partition="us")
    assert len(pop(client, consumerGroup="g", autoAck="true")) == 1
    push(client, 2, partition="us")
    refused = client.delete(f"/api/v1/{path}")
    assert problem_of(refused) == (400, "invalid_input")
    assert [message["data"] for message in pop(client, consumerGroup="g", batch=5)] == [2]


# ── what clients of queen-mq 2 ask for beside ──


@pytest.mark.parametrize(
    ("method", "path", "why"),
    [
        ("POST", "kv", "key-value"),
        ("POST", "timers", "timers"),
        ("DELETE", "timers/orders/a/b", "timers"),
        ("POST", "locks", "locks"),
        ("POST", "fetch", "offset"),
        ("POST", "partitions/changed", "partitions"),
        ("POST", "ephemeral/push", "ephemeral"),
        ("GET", "resources/queues/orders/depth", "depth"),
        ("GET", "resources/queues/depth", "no queue 'depth'"),
        ("POST", "unheard/of", "nothing here"),
    ],
)
def test_a_service_that_is_not_there_is_named(client: httpx.Client, method: str, path: str, why: str) -> None:
    refused = client.request(method, f"/api/v1/{path}")
    assert problem_of(refused) == (404, "not_found")
    assert why in refused.json()["error"]


@pytest.mark.parametrize("query", ["?partition=", "?partition"])
def test_a_partition_that_is_said_and_empty_does_not_clear_the_queue(client: httpx.Client, query: str) -> None:
    push(client, 1, 2)
    assert client.delete(f"/api/v1/queues/orders/clear{query}").status_code == 400
    assert len(pop(client, batch=5)) == 2
