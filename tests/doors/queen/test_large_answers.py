"""However large messages are and however many are asked for, an answer stays small, and the next one has the others."""

import httpx

from tests.doors.test_queues import push

SIZE = 240_000
COUNT = 40
ANSWER_BYTES_MAX = 9_000_000
QUEUE = {"queue": "orders"}


def push_large(client: httpx.Client) -> None:
    for first in range(0, COUNT, 10):
        push(client, *(f"{number:04}".ljust(SIZE, ".") for number in range(first, first + 10)))


def numbers(messages: list[dict[str, str]]) -> list[int]:
    return [int(message["data"][:4]) for message in messages]


def test_a_pop_that_acks_takes_what_it_answers(client: httpx.Client) -> None:
    push_large(client)
    found: list[int] = []
    while (answer := client.get("/api/v1/pop/queue/orders?batch=1000&autoAck=true")).status_code == 200:
        assert len(answer.content) < ANSWER_BYTES_MAX
        found += numbers(answer.json()["messages"])
    assert found == list(range(COUNT))


def test_messages_are_shown_page_by_page(client: httpx.Client) -> None:
    push_large(client)
    found: list[int] = []
    while True:
        answer = client.get("/api/v1/messages", params={**QUEUE, "limit": 1_000, "offset": len(found)})
        assert len(answer.content) < ANSWER_BYTES_MAX
        shown = answer.json()["messages"]
        if not shown:
            break
        assert {message["data"] == message["payload"] for message in shown} == {True}
        found += numbers(shown)
    assert found == list(reversed(range(COUNT)))


def test_dead_letters_are_shown_page_by_page(client: httpx.Client) -> None:
    push_large(client)
    while (answer := client.get("/api/v1/pop/queue/orders?batch=1000")).status_code == 200:
        for message in answer.json()["messages"]:
            told = {"transactionId": message["transactionId"], "partitionId": message["partitionId"], "status": "dead"}
            client.post("/api/v1/ack", json={**told, "leaseId": message["leaseId"]})
    found: list[int] = []
    while True:
        answer = client.get("/api/v1/dlq", params={**QUEUE, "limit": 1_000, "offset": len(found)})
        assert len(answer.content) < ANSWER_BYTES_MAX
        assert answer.json()["total"] == COUNT
        shown = answer.json()["messages"]
        if not shown:
            break
        found += numbers(shown)
    assert found == list(reversed(range(COUNT)))
