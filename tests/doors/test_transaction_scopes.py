"""A transaction over a server needs the scopes that its operations need alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.live_door import GUARDED_SERVINGS, LiveDoor
from tests.doors.realtime.test_door import make_token

SEND = {"kind": "send", "room": "a", "type": "test", "data": 1}
PUSH = {"kind": "push", "queue": "q", "records": [{"data": 1}]}
LEASE = {"partition_id": 1, "group": "g", "token": 1}
REPORT = {"kind": "report", **LEASE}


@pytest.fixture
def door(tmp_path: Path) -> Iterator[LiveDoor]:
    door = LiveDoor(tmp_path / "headwater.db", GUARDED_SERVINGS["edge"])
    door.start()
    yield door
    door.stop()


def post(door: LiveDoor, path: str, body: dict[str, Any], scopes: list[str], queues: list[str]) -> tuple[int, str]:
    _, token = make_token(door, scopes=scopes, queues=queues)
    with door.client(headers={"authorization": f"Bearer {token}"}) as client:
        answer = client.post(path, json=body)
    return answer.status_code, answer.text


@pytest.mark.parametrize("operations", [[SEND], [PUSH], [SEND, PUSH]])
def test_who_may_publish_sends_and_pushes_together(door: LiveDoor, operations: list[dict[str, Any]]) -> None:
    body = {"operations": operations}
    status, text = post(door, "/v1/transaction", body, ["publish"], ["rooms/a", "q"])
    assert status == 200, text
    status, _ = post(door, "/v1/transaction", body, ["publish"], ["rooms/b"])
    assert status in (403, 404)


@pytest.mark.parametrize(
    "body", [{"operations": [REPORT]}, {"operations": [SEND, REPORT]}, {"operations": [SEND], "leases": [LEASE]}]
)
def test_who_may_only_publish_neither_reports_nor_holds_leases(door: LiveDoor, body: dict[str, Any]) -> None:
    status, text = post(door, "/v1/transaction", body, ["publish"], ["rooms/a", "q"])
    assert (status, "scope consume" in text) == (403, True), text
    status, text = post(door, "/v1/transaction", {"operations": [SEND]}, ["consume"], ["rooms/a", "q"])
    assert (status, "scope publish" in text) == (403, True), text


WRITES = {
    "documents:create": {"kind": "create-document", "collection": "notes", "id": "new", "data": {"n": 1}},
    "documents:update": {"kind": "update-document", "collection": "notes", "id": "old", "data": {"n": 2}},
    "documents:delete": {"kind": "delete-document", "collection": "notes", "id": "old"},
    "jobs:submit": {"kind": "jobs", "jobs": [{"type": "mail"}]},
}


@pytest.mark.parametrize("scope", WRITES)
def test_each_step_needs_its_own_scope_and_no_other(door: LiveDoor, scope: str) -> None:
    old = {"kind": "create-document", "collection": "notes", "id": "old", "data": {"n": 1}}
    assert post(door, "/v1/transaction", {"operations": [old]}, ["documents:create"], ["*"])[0] == 200
    status, text = post(door, "/v1/transaction", {"operations": [WRITES[scope]]}, [scope], ["*"])
    assert status == 200, text
    for other in WRITES.keys() - {scope}:
        status, text = post(door, "/v1/transaction", {"operations": [WRITES[scope]]}, [other], ["*"])
        assert (status, f"scope {scope}" in text) == (403, True), (other, text)


def test_who_may_only_delete_deletes_several_at_once(door: LiveDoor) -> None:
    old = {"kind": "create-document", "collection": "notes", "id": "old", "data": {"n": 1}}
    assert post(door, "/v1/transaction", {"operations": [old]}, ["documents:create"], ["*"])[0] == 200
    path = "/trigger/v1/databases/main/write"
    status, text = post(door, path, {"writes": [{"type": "delete", "path": "notes/old"}]}, ["documents:delete"], ["*"])
    assert (status, '"deleted":true' in text) == (200, True), text


def test_pushes_alone_need_no_right_to_consume_on_the_queen_wire(door: LiveDoor) -> None:
    push = {"type": "push", "items": [{"queue": "q", "payload": 1}]}
    ack = {"type": "ack", "transactionId": "t", "partitionId": "1", "status": "completed"}
    path = "/api/v1/transaction"
    status, text = post(door, path, {"operations": [push]}, ["publish"], ["q"])
    assert status == 200, text
    for body in ({"operations": [push, ack]}, {"operations": [push], "requiredLeases": ["1:g:1"]}):
        status, text = post(door, path, body, ["publish"], ["q"])
        assert (status, "scope consume" in text) == (403, True), text
