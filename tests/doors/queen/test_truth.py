"""What the wire of queen-mq answers is what is so: options in force, parameters that count, leases, words.

Every parameter that the clients of 0.15.0 send has a test of its effect, here or where the reference says.
"""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.doors.conftest import MakeDoor
from tests.doors.live_door import LiveDoor
from tests.doors.test_queues import ack, pop, problem_of, push, report

CONFIGURE = "/api/v1/configure"


def configure(client: httpx.Client, **options: Any) -> dict[str, Any]:
    answer = client.post(CONFIGURE, json={"queue": "orders", "options": options})
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["options"])


def ask(client: httpx.Client, path: str, **query: Any) -> Any:
    answer = client.get(f"/api/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


# ── options: what is answered is in force ──


@pytest.mark.parametrize("name", ["maxSize", "maxQueueSize"])
def test_a_bound_on_waiting_messages_holds_by_either_name(client: httpx.Client, name: str) -> None:
    options = configure(client, **{name: 2})
    assert (options["maxSize"], options["maxQueueSize"], options["size_max"]) == (2, 2, 2)
    push(client, 1, 2)
    refused = client.post("/api/v1/push", json={"items": [{"queue": "orders", "payload": 3}]})
    assert [(result["status"], result["code"]) for result in refused.json()] == [("failed", "queue_full")]


def test_a_bound_on_partitions_holds(client: httpx.Client) -> None:
    assert configure(client, maxPartitions=2)["maxPartitions"] == 2
    push(client, 1, partition="a")
    push(client, 2, partition="b")
    answer = client.post("/api/v1/push", json={"items": [{"queue": "orders", "payload": 3, "partition": "c"}]})
    assert answer.json()[0]["code"] == "queue_full"
    assert "partitions" in answer.json()[0]["error"]
    push(client, 4, partition="a")
    assert len(ask(client, "resources/partitions", queue="orders")["partitions"]) == 2
    assert configure(client, maxPartitions=0)["partitions_max"] == 0
    push(client, 5, partition="c")


@pytest.mark.parametrize("name", ["ttl", "maxWaitTimeSeconds", "retentionSeconds"])
def test_a_lifetime_is_a_retention_by_each_of_its_names(client: httpx.Client, name: str) -> None:
    options = configure(client, **{name: 60})
    shown = [options[each] for each in ("ttl", "maxWaitTimeSeconds", "retentionSeconds", "retention_seconds")]
    assert shown == [60, 60, 60, 60]
    assert options["retentionEnabled"] is True


def test_the_shortest_of_several_lifetimes_counts(client: httpx.Client) -> None:
    options = configure(client, ttl=30, maxWaitTimeSeconds=90, retentionSeconds=60)
    assert (options["retention_seconds"], options["retentionSeconds"]) == (30, 30)


def test_retention_is_switched_off_as_a_whole(client: httpx.Client) -> None:
    options = configure(client, retentionSeconds=60, completedRetentionSeconds=60, retentionEnabled=False)
    assert (options["retention_seconds"], options["completed_retention_seconds"]) == (0, 0)
    assert options["retentionEnabled"] is False
    assert configure(client, retentionEnabled=True, retentionSeconds=5)["retentionSeconds"] == 5


def test_nothing_is_said_back_that_is_not_kept(client: httpx.Client) -> None:
    """What the configuration answers is what a later look at the queue shows."""
    said = configure(client, ttl=60, maxQueueSize=9, maxPartitions=3, retentionEnabled=True, leaseTime=7)
    assert ask(client, "resources/queues/orders")["options"] == said


@pytest.mark.parametrize(
    "options",
    [
        {"ttl": "soon"},
        {"ttl": True},
        {"ttl": -1},
        {"retentionEnabled": "yes"},
        {"maxPartitions": -1},
        {"maxSize": 1, "maxQueueSize": 2},
        {"noSuchOption": 1},
    ],
)
def test_an_option_that_cannot_be_kept_is_refused_and_changes_nothing(
    client: httpx.Client, options: dict[str, Any]
) -> None:
    before = configure(client, leaseTime=7)
    answer = client.post(CONFIGURE, json={"queue": "orders", "options": {"leaseTime": 8, **options}})
    assert problem_of(answer) == (400, "invalid_option")
    assert ask(client, "resources/queues/orders")["options"] == before


# ── one lease for a pop, however many partitions ──


def test_a_pop_of_several_partitions_has_one_lease(client: httpx.Client) -> None:
    for number in range(3):
        push(client, number, partition=f"p{number}")
    answer = client.get("/api/v1/pop/queue/orders", params={"batch": 10, "partitions": 3}).json()
    assert answer["partitionsClaimed"] == 3
    assert {message["leaseId"] for message in answer["messages"]} == {answer["leaseId"]}
    before = {message["leaseExpiresAt"] for message in answer["messages"]}
    extended = client.post(f"/api/v1/lease/{answer['leaseId']}/extend", json={"seconds": 3_000})
    assert extended.json()["newExpiresAt"] > max(before)
    for message in answer["messages"]:
        assert ack(client, message)["success"]
    assert pop(client, batch=10, partitions=3) == []
    assert client.post(f"/api/v1/lease/{answer['leaseId']}/extend", json={}).status_code == 409


def test_a_lease_over_several_partitions_fences_off_whoever_is_late(client: httpx.Client) -> None:
    for number in range(2):
        push(client, number, partition=f"p{number}")
    late = pop(client, batch=10, partitions=2)
    for message in late:
        assert ack(client, message, status="retry")["success"]
    again = pop(client, batch=10, partitions=2)
    assert [ack(client, message)["code"] for message in late] == ["lease_lost"] * 2
    assert all(ack(client, message)["success"] for message in again)


def test_a_transaction_may_require_a_lease_over_several_partitions(client: httpx.Client) -> None:
    for number in range(2):
        push(client, number, partition=f"p{number}")
    messages = pop(client, batch=10, partitions=2)
    acks = [{"type": "ack", **report(message)} for message in messages]
    operations = [*acks, {"type": "push", "items": [{"queue": "next", "payload": 1}]}]
    body = {"operations": operations, "requiredLeases": [messages[0]["leaseId"]]}
    assert client.post("/api/v1/transaction", json=body).json()["success"]
    assert len(pop(client, "next")) == 1
    assert client.post("/api/v1/transaction", json=body).status_code == 409
    assert pop(client, "next") == []


def test_a_report_must_be_of_a_partition_that_its_lease_holds(client: httpx.Client) -> None:
    push(client, 1, partition="a")
    push(client, 2, partition="b")
    [first] = pop(client)
    [second] = pop(client)
    answer = client.post("/api/v1/ack", json={**report(second), "leaseId": first["leaseId"]})
    assert answer.json()[0]["success"] is False
    assert ack(client, second)["success"]


# ── what is odd is refused before anything is leased, or told ──


@pytest.mark.parametrize(("first", "second"), [("completed", "failed"), ("dlq", "completed"), ("retry", "dlq")])
@pytest.mark.parametrize("by_offset", [False, True], ids=["by the same name", "by id and by offset"])
def test_a_second_report_on_a_message_in_one_request_is_refused(
    client: httpx.Client, first: str, second: str, by_offset: bool
) -> None:
    """And the first counts: which of them is the last word would be chance to whoever reads the answer."""
    push(client, 1, transactionId="m1", partition="p")
    push(client, 2, transactionId="m2", partition="p")
    message, _ = pop(client, batch=2)
    twice = [report(message, status=first), report(message, status=second)]
    if by_offset:
        twice[1] = {**twice[1], "transactionId": "@0"}
    together = client.post("/api/v1/transaction", json={"operations": [{"type": "ack", **said} for said in twice]})
    assert together.json()["code"] == "unknown_record"
    told = client.post("/api/v1/ack/batch", json={"acknowledgments": twice}).json()
    assert [one["success"] for one in told] == [True, False]
    assert told[1]["code"] == "unknown_record"
    assert ask(client, "dlq", queue="orders")["total"] == (first == "dlq")


def test_conflation_is_refused_before_anything_is_leased(client: httpx.Client) -> None:
    push(client, 1)
    answer = client.get("/api/v1/pop/queue/orders", params={"conflation": "true"})
    assert problem_of(answer) == (400, "invalid_option")
    [message] = pop(client)
    assert message["attempts"] == 1


def test_a_mistyped_parameter_is_told_and_the_rest_counts(client: httpx.Client) -> None:
    push(client, 1, 2, 3)
    answer = client.get("/api/v1/pop/queue/orders", params={"batch": 2, "bacth": 3})
    assert len(answer.json()["messages"]) == 2
    assert "bacth" in answer.headers["x-headwater-warning"]
    assert "x-headwater-warning" not in client.get("/api/v1/pop/queue/orders", params={"batch": 2}).headers


def test_a_mistyped_field_of_a_push_is_told_and_the_message_is_kept(client: httpx.Client) -> None:
    one = {"queue": "orders", "payload": {"delay": 1}, "partiton": "eu"}
    other = {"queue": "orders", "payload": 2, "delay_seconds": 5, "partiton": "eu"}
    answer = client.post("/api/v1/push", json={"items": [one, other], "durabillity": "synced"})
    assert (answer.status_code, answer.json()[0]["status"]) == (201, "queued")
    warning = answer.headers["x-headwater-warning"]
    assert warning == "no such field: 'delay_seconds, durabillity, partiton'"
    assert [message["data"] for message in pop(client, batch=2)] == [{"delay": 1}, 2]


def test_a_mistyped_field_of_a_configuration_is_told(client: httpx.Client) -> None:
    answer = client.post("/api/v1/configure", json={"queue": "orders", "options": {"leaseTime": 5}, "optoins": {}})
    assert answer.json()["options"]["leaseTime"] == 5
    assert answer.headers["x-headwater-warning"] == "no such field: 'optoins'"


@pytest.mark.parametrize("field", ["delay_seconds", "transaction_id", "nonsense"])
def test_a_mistyped_field_of_a_record_on_our_own_wire_is_refused_and_nothing_is_pushed(
    client: httpx.Client, field: str
) -> None:
    record = {"data": 1, field: "3600"}
    assert problem_of(client.post("/v1/push", json={"pushes": [{"queue": "orders", "records": [record]}]})) == (
        400,
        "invalid_input",
    )
    assert pop(client) == []


@pytest.mark.parametrize("path", ["/v1/segments?quue=orders", "/v1/bounds?x=1", "/api/v1/jobs?stat=dead"])
def test_a_mistyped_parameter_of_our_own_wire_is_refused(client: httpx.Client, path: str) -> None:
    assert problem_of(client.get(path)) == (400, "invalid_input")


@pytest.mark.parametrize(
    "body",
    [
        '{"items": [{"queue": "a", "queue": "b", "payload": 1}]}',
        '{"items": [{"queue": "a", "payload": 1, "payload": 2}]}',
        '{"items": [], "items": [{"queue": "a", "payload": 1}]}',
        '{"items": [{"queue": "a", "\\u0071ueue": "b", "payload": 1}]}',
    ],
)
def test_a_name_that_stands_twice_is_refused(client: httpx.Client, body: str) -> None:
    answer = client.post("/api/v1/push", content=body, headers={"content-type": "application/json"})
    assert problem_of(answer) == (400, "invalid_input")
    assert "twice" in answer.json()["detail"]
    assert ask(client, "resources/queues")["total"] == 0


def test_the_same_name_in_different_objects_is_no_twin(client: httpx.Client) -> None:
    push(client, {"queue": 1, "payload": {"payload": 2}}, {"queue": "\\"})
    assert [message["data"] for message in pop(client, batch=2)] == [
        {"queue": 1, "payload": {"payload": 2}},
        {"queue": "\\"},
    ]


def test_a_pop_without_a_namespace_takes_no_changes_of_jobs(door: LiveDoor, client: httpx.Client) -> None:
    asyncio.run_coroutine_threadsafe(door.hw.jobs.add(command="true"), door.loop).result()
    assert client.get("/api/v1/pop", params={"batch": 10, "partitions": 10}).status_code == 204
    push(client, 1)
    answer = client.get("/api/v1/pop", params={"batch": 10, "partitions": 10})
    assert {message["queue"] for message in answer.json()["messages"]} == {"orders"}
    assert len(pop(client, "headwater/jobs", batch=10)) == 1, "by its name it can be read"


# ── settings of the server: S4-15 ──


def test_what_a_pop_leaves_out_is_a_setting_of_the_server(make_door: MakeDoor) -> None:
    """S4-15: default batch and timeout."""
    with make_door(pop_batch=3, pop_wait_seconds=0).client() as client:
        push(client, 1, 2, 3, 4)
        assert len(pop(client)) == 3
        assert len(pop(client, consumerGroup="other", batch=1)) == 1
        assert client.get("/api/v1/pop/queue/empty", params={"wait": "true"}).status_code == 204


# ── messages: what has become of them ──


def test_messages_are_listed_by_what_has_become_of_them(client: httpx.Client) -> None:
    configure(client, retryLimit=0)
    push(client, "done", "dead", "held", "waits", partition="p")
    first, second = pop(client, batch=2)
    ack(client, first)
    ack(client, second, status="failed")
    [held] = pop(client)
    assert held["data"] == "held"
    found = {
        status: [message["data"] for message in ask(client, "messages", queue="orders", status=status)["messages"]]
        for status in ("completed", "failed", "dead_letter", "processing", "pending")
    }
    assert found == {
        "completed": ["done"],
        "failed": ["dead"],
        "dead_letter": ["dead"],
        "processing": ["held"],
        "pending": ["waits"],
    }
    assert [message["status"] for message in ask(client, "messages", queue="orders")["messages"]] == [
        "pending",
        "processing",
        "dead_letter",
        "completed",
    ]
    other = ask(client, "messages", queue="orders", status="pending", consumerGroup="other")
    assert len(other["messages"]) == 4
    assert client.get("/api/v1/messages", params={"queue": "orders", "status": "lost"}).status_code == 400


def test_pages_of_messages_follow_each_other(client: httpx.Client) -> None:
    push(client, *range(5), partition="p")
    pages = [ask(client, "messages", queue="orders", limit=2, offset=offset)["messages"] for offset in (0, 2, 4)]
    assert [[message["data"] for message in page] for page in pages] == [[4, 3], [2, 1], [0]]


def test_pages_of_partitions_follow_each_other(client: httpx.Client) -> None:
    for number in range(5):
        push(client, number, partition=f"p{number}")
    pages = [ask(client, "resources/partitions", queue="orders", limit=2, offset=offset) for offset in (0, 2, 4)]
    assert [[one["name"] for one in page["partitions"]] for page in pages] == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    push(client, "other", queue="mail", partition="p0")
    assert [page["total"] for page in pages] == [5, 5, 5]
    assert ask(client, "resources/partitions", limit=1)["total"] == 6


@pytest.mark.parametrize("path", ["resources/queues", "status/queues"])
def test_queues_are_chosen_by_name_namespace_and_task(client: httpx.Client, path: str) -> None:
    for queue, namespace, task in (("a", "shop", "bill"), ("b", "shop", "ship"), ("c", "blog", "bill")):
        client.post(CONFIGURE, json={"queue": queue, "namespace": namespace, "task": task})
    for query, expected in (
        ({"namespace": "shop"}, ["a", "b"]),
        ({"task": "bill"}, ["a", "c"]),
        ({"search": "b"}, ["b"]),
        ({"limit": 1, "offset": 1}, ["b"]),
    ):
        assert [queue["name"] for queue in ask(client, path, **query)["queues"]] == expected


@pytest.mark.parametrize(("method", "end"), [("DELETE", ""), ("POST", "/dlq")])
def test_a_message_that_is_passed_over_says_for_whom(client: httpx.Client, method: str, end: str) -> None:
    [result] = push(client, "unwanted")
    [held] = pop(client, consumerGroup="there")
    ack(client, held, status="retry")
    path = f"/api/v1/messages/{result['partition_id']}/{result['transaction_id']}{end}"
    told = client.request(method, path, json={} if end else None).json()["message"]
    assert "1 " in told
    assert "made later gets it" in told
    assert pop(client, consumerGroup="there") == []
    assert [message["data"] for message in pop(client, consumerGroup="later")] == ["unwanted"]


# ── groups ──


def test_numbers_of_messages_and_groups_are_so(client: httpx.Client) -> None:
    for partition in ("a", "b", "c"):
        push(client, 1, 2, 3, partition=partition)
    [first, second] = client.get(
        "/api/v1/pop/queue/orders/partition/a", params={"batch": 2, "consumerGroup": "g"}
    ).json()["messages"]
    ack(client, second)
    [group] = ask(client, "consumer-groups")
    assert {name: group[name] for name in ("totalLag", "partitionsWithLag", "members", "leased")} == {
        "totalLag": 8,
        "partitionsWithLag": 3,
        "members": 1,
        "leased": 1,
    }
    for path in ("resources/queues/orders", "resources/overview", "status"):
        assert ask(client, path)["messages"] == {"total": 9, "pending": 7, "processing": 1, "deadLetter": 0}, path
    [queue] = ask(client, "status/queues")["queues"]
    assert queue["messages"]["processing"] == 1
    ack(client, first)
    [group] = ask(client, "consumer-groups")
    assert (group["totalLag"], group["partitionsWithLag"], group["members"]) == (7, 3, 0)
    while messages := pop(client, batch=100, partitions=9, consumerGroup="g", autoAck="true"):
        assert messages
    [group] = ask(client, "consumer-groups")
    assert (group["totalLag"], group["partitionsWithLag"]) == (0, 0)
    assert ask(client, "resources/queues/orders")["messages"]["pending"] == 0


def test_a_subscription_of_a_group_that_is_not_there_yet_counts_when_it_comes(client: httpx.Client) -> None:
    push(client, "old")
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    answer = client.post("/api/v1/consumer-groups/late/subscription", json={"subscriptionTimestamp": later})
    assert answer.json()["success"]
    assert pop(client, consumerGroup="late") == []
    assert len(pop(client, consumerGroup="other")) == 1
    push(client, "new")
    assert [message["data"] for message in pop(client, consumerGroup="late")] == ["new"]


def test_a_group_that_is_there_is_moved_to_no_time_that_has_not_come(client: httpx.Client) -> None:
    push(client, "old")
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    refused = client.get("/api/v1/pop/queue/orders", params={"consumerGroup": "late", "subscriptionFrom": later})
    assert (refused.status_code, "future" in refused.text) == (400, True)
    assert len(pop(client, consumerGroup="here", autoAck="true")) == 1
    refused = client.post("/api/v1/consumer-groups/here/subscription", json={"subscriptionTimestamp": later})
    assert (refused.status_code, "future" in refused.text) == (400, True)
    push(client, "other", queue="letters")
    assert len(pop(client, "letters", consumerGroup="here")) == 1, "nor does it begin there elsewhere"


@pytest.mark.parametrize(("delete_metadata", "again"), [("false", ["new"]), ("true", ["old", "new"])])
@pytest.mark.parametrize("path", ["/api/v1/consumer-groups/g", "/api/v1/consumer-groups/g/queues/orders"])
def test_a_group_that_is_forgotten_without_its_metadata_begins_where_it_began(
    client: httpx.Client, path: str, delete_metadata: str, again: list[str]
) -> None:
    push(client, "old")
    assert pop(client, consumerGroup="g", subscriptionMode="new") == []
    push(client, "new")
    assert [message["data"] for message in pop(client, consumerGroup="g", autoAck="true")] == ["new"]
    assert client.delete(path, params={"deleteMetadata": delete_metadata}).json()["deleted"] == 1
    assert [message["data"] for message in pop(client, consumerGroup="g", batch=10)] == again


def test_every_parameter_that_is_sent_is_known(client: httpx.Client) -> None:
    """None of the clients' own parameters is warned of, so that each means something here."""
    push(client, 1)
    for path in (
        "pop/queue/empty?batch=1&wait=false&timeout=1&consumerGroup=g&subscriptionMode=new&partitions=2&autoAck=true",
        "pop?namespace=n&task=t&batch=1&wait=false&timeout=1&subscriptionFrom=now",
        "dlq?queue=orders&limit=1&offset=0&consumerGroup=g&partition=p&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z",
        "messages?queue=orders&partition=Default&status=pending&limit=10&offset=0",
        "resources/queues?limit=10&offset=0&search=o&namespace=n&task=t",
        "resources/partitions?queue=orders&limit=10&offset=0",
        "status/queues?limit=10&offset=0",
        "consumer-groups/lagging?minLagSeconds=60",
    ):
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code in (200, 204), (path, answer.text)
        assert "x-headwater-warning" not in answer.headers, (path, json.dumps(dict(answer.headers)))


def test_a_delay_before_retries_is_the_same_before_each(client: httpx.Client) -> None:
    options = configure(client, retryDelay=5_000)
    assert (options["retryDelay"], options["retry_delay_seconds"]) == (5_000, 5)
    assert (options["retry_factor"], options["retry_jitter"]) == (1, 0)
    assert configure(client, retryDelay=5_000, retry_factor=3)["retry_factor"] == 3
