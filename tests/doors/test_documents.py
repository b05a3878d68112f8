"""Documents over HTTP, as the clients of others speak: paths, bodies, answers and errors, over every transport."""

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.app import make_guarded_door
from headwater.doors.access.settings import load_access
from headwater.doors.wire import Request
from headwater.model.principal import Scope
from tests.contracts.clock import FakeClock
from tests.doors.access.visits import opened
from tests.doors.office import opened_office

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
BASE = "/api/v1/databases/main"
NOTES = f"{BASE}/documents/rooms/r1/notes"
TRIGGER = "/trigger/v1/databases/main"


def error_of(response: httpx.Response) -> tuple[int, str]:
    told = response.json()
    assert told["message"]
    return response.status_code, told["code"]


def test_a_document_goes_round(client: httpx.Client) -> None:
    made = client.post(NOTES, json={"text": "Hello", "version": 9}).raise_for_status()
    assert made.status_code == 201
    document = made.json()
    assert document["version"] == 1
    assert document.keys() == {"id", "text", "collection", "version", "createdAt", "updatedAt"}
    assert document["collection"] == "rooms/r1/notes"
    place = f"{NOTES}/{document['id']}"
    assert client.get(place).json() == document
    patched = client.patch(place, json={"doc": {"read": True}}).json()
    assert (patched["text"], patched["read"], patched["version"]) == ("Hello", True, 2)
    condition = [{"field": "version", "op": "==", "value": 2}]
    put = client.put(place, json={"doc": {"n": 1}, "ifMatch": condition}).json()
    assert (put["n"], put["version"], "text" in put) == (1, 3, False)
    gone = client.delete(place)
    assert (gone.status_code, gone.content) == (204, b"")
    assert error_of(client.get(place)) == (404, "NOT_FOUND")


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"7"])
def test_what_is_no_object_makes_no_document(client: httpx.Client, body: bytes) -> None:
    refused = client.post(NOTES, content=body, headers={"content-type": "application/json"})
    assert error_of(refused) == (400, "BAD_REQUEST")
    assert client.post(NOTES, json={}).status_code == 201


def test_what_speaks_against_a_write_has_its_code(client: httpx.Client) -> None:
    client.post(NOTES, json={"id": "m1", "n": 1}).raise_for_status()
    wrong = [{"field": "n", "op": ">", "value": 1}]
    place = f"{NOTES}/m1"
    assert error_of(client.post(NOTES, json={"id": "m1"})) == (409, "CONFLICT")
    for method, body in (("PUT", {"doc": {"n": 2}}), ("PATCH", {"doc": {"n": 2}}), ("DELETE", {})):
        refused = client.request(method, place, json={**body, "ifMatch": wrong})
        assert error_of(refused) == (412, "PRECONDITION_FAILED")
    assert client.get(place).json()["version"] == 1
    assert error_of(client.patch(f"{NOTES}/m2", json={"doc": {"n": 1}})) == (404, "NOT_FOUND")
    assert error_of(client.delete(f"{NOTES}/m2")) == (404, "NOT_FOUND")
    assert error_of(client.patch(place, json={"doc": {"version": 3}})) == (400, "BAD_REQUEST")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", NOTES, None),
        ("POST", f"{NOTES}/m1", {}),
        ("PUT", NOTES, {"doc": {}}),
        ("PUT", f"{NOTES}/m1", {"n": 1}),
        ("POST", NOTES, {"id": "a/b"}),
        ("POST", NOTES, {"x": "\x00"}),
        ("POST", f"{BASE}/query", {"collection": "notes", "filters": [{"field": "n", "op": "~", "value": 1}]}),
        ("POST", f"{BASE}/query", {"collection": "notes", "filter": "n =="}),
        ("POST", f"{BASE}/query", {"collection": "notes", "limit": 0}),
        ("POST", f"{BASE}/query", {"collection": "notes", "startAfter": "?"}),
        ("POST", f"{TRIGGER}/write", {"writes": [{"type": "drop", "path": "a/b"}]}),
        ("POST", f"{TRIGGER}/write", {"writes": []}),
        ("PATCH", f"{TRIGGER}/write", {}),
    ],
)
def test_what_cannot_be_understood_is_a_bad_request(client: httpx.Client, method: str, path: str, body: Any) -> None:
    refused = client.request(method, path, json=body)
    assert refused.json()["code"] == "BAD_REQUEST"
    assert refused.status_code in (400, 405)


def test_a_database_that_is_not_theirs_is_not_there(client: httpx.Client) -> None:
    assert error_of(client.get("/api/v1/databases/other/documents/a/b")) == (404, "DATABASE_NOT_FOUND")
    client.post(NOTES, json={"id": "m1"}).raise_for_status()
    assert client.get(NOTES.replace("/main/", "/default/") + "/m1").status_code == 200


def test_a_query_has_filters_order_limit_and_a_cursor(client: httpx.Client) -> None:
    for number in range(5):
        client.post(NOTES, json={"id": f"m{number}", "n": number % 2}).raise_for_status()
    client.delete(f"{NOTES}/m4")
    asked = {"collection": "rooms/r1/notes", "orderBy": [{"field": "n", "direction": "desc"}], "limit": 3}
    first = client.post(f"{BASE}/query", json=asked).json()
    rest = client.post(f"{BASE}/query", json={**asked, "startAfter": first["nextCursor"]}).json()
    assert [document["id"] for document in first["docs"] + rest["docs"]] == ["m3", "m1", "m2", "m0"]
    assert rest["nextCursor"] == ""
    asked = {"collection": "rooms/r1/notes", "filters": [{"field": "id", "op": "in", "value": ["m0", "m4"]}]}
    assert [one["id"] for one in client.post(f"{BASE}/query", json=asked).json()["docs"]] == ["m0"]
    shown = client.post(f"{BASE}/query", json={**asked, "showDeleted": True}).json()["docs"]
    assert [(one["id"], one.get("deleted")) for one in shown] == [("m0", None), ("m4", True)]


def test_a_batch_is_all_or_nothing(client: httpx.Client) -> None:
    client.post(NOTES, json={"id": "there"}).raise_for_status()
    writes = [
        {"type": "create", "path": "rooms/r1/notes/new", "data": {"n": 1}},
        {"type": "set", "path": "rooms/r1/notes/set", "data": {"n": 2}},
        {"type": "update", "path": "rooms/r1/notes/there", "data": {"n": 3}},
        {"type": "delete", "path": "rooms/r1/notes/there"},
    ]
    refused = client.post(f"{TRIGGER}/write", json={"writes": [*writes, writes[0]]})
    assert error_of(refused) == (409, "CONFLICT")
    asked = {"collection": "rooms/r1/notes"}
    assert len(client.post(f"{TRIGGER}/query", json=asked).json()["docs"]) == 1
    done = client.post(f"{TRIGGER}/write", json={"writes": writes}).raise_for_status().json()["docs"]
    assert [one["version"] for one in done] == [1, 1, 2, 3]
    found = client.post(f"{TRIGGER}/get", json={"path": "rooms/r1/notes/new"}).json()["docs"]
    assert [one["n"] for one in found] == [1]
    assert client.post(f"{TRIGGER}/get", json={"path": "rooms/r1/notes/there"}).json()["docs"] == []


# ── replication ──


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "If-Unmodified-Since"])
def test_conditions_in_headers_are_refused_and_not_passed_over(client: httpx.Client, header: str) -> None:
    place, headers = f"{BASE}/documents/notes/a", {header: "*"}
    client.put(place, json={"doc": {"n": 1}}).raise_for_status()
    batch = {"writes": [{"type": "set", "path": "notes/a", "data": {"n": 2}}]}
    for refused in (
        client.put(place, json={"doc": {"n": 2}}, headers=headers),
        client.patch(place, json={"doc": {"n": 2}}, headers=headers),
        client.delete(place, headers=headers),
        client.post(f"{BASE}/documents/notes", json={"id": "b"}, headers=headers),
        client.post(f"{TRIGGER}/write", json=batch, headers=headers),
    ):
        assert error_of(refused) == (400, "BAD_REQUEST")
        assert "ifMatch" in refused.json()["message"]
    assert client.get(place).json()["n"] == 1
    assert client.get(f"{BASE}/documents/notes/b").status_code == 404


@pytest.mark.parametrize("collection", ["notes", "_queues"])
def test_a_cursor_is_good_for_its_collection_and_order_alone(client: httpx.Client, collection: str) -> None:
    """Elsewhere it would begin somewhere, and what comes before would be missed."""
    for number in range(4):
        client.put(f"{BASE}/documents/notes/d{number}", json={"doc": {"n": number}}).raise_for_status()
        client.post("/api/v1/push", json={"items": [{"queue": f"q{number}", "payload": 1}]}).raise_for_status()

    def ask(field: str, direction: str = "asc", of: str = collection, **more: Any) -> httpx.Response:
        order = [{"field": field, "direction": direction}]
        return client.post(f"{BASE}/query", json={"collection": of, "orderBy": order, "limit": 2, **more})

    cursor = ask("id").json()["nextCursor"]
    assert len(ask("id", startAfter=cursor, filter="id != 'd3'").json()["docs"]) >= 1, "with another filter it is good"
    for refused in (
        ask("id", "desc", startAfter=cursor),
        ask("n", startAfter=cursor),
        ask("id", of="others" if collection == "notes" else "_groups", startAfter=cursor),
        client.post(f"{BASE}/query", json={"collection": collection, "startAfter": cursor}),
        # As they were before they had a mark.
        ask("id", startAfter=base64.urlsafe_b64encode(b'["0564","d1"]').decode()),
    ):
        assert error_of(refused) == (400, "BAD_REQUEST")
        assert "another order" in refused.json()["message"]


def pull(client: httpx.Client, checkpoint: Any = None, limit: int = 100) -> Any:
    body = {"collection": "notes", "checkpoint": checkpoint, "limit": limit}
    return client.post("/replication/v1/pull", json=body).raise_for_status().json()


def push(client: httpx.Client, *rows: Any) -> Any:
    return client.post("/replication/v1/push", json={"collection": "notes", "rows": rows}).raise_for_status().json()


def test_a_pull_of_large_documents_is_one_answer(client: httpx.Client) -> None:
    names = [f"m{number:02}" for number in range(30)]
    for name in names:
        client.post(f"{BASE}/documents/notes", json={"id": name, "text": "x" * 200_000}).raise_for_status()
    found = pull(client, limit=25)
    assert [one["id"] for one in found["documents"]] == names[:25]
    assert {len(one["text"]) for one in found["documents"]} == {200_000}
    assert [one["id"] for one in pull(client, found["checkpoint"])["documents"]] == names[25:]


def test_a_replica_pulls_what_it_has_not_read(client: httpx.Client) -> None:
    place = f"{BASE}/documents/notes"
    for name in ("a", "b", "c"):
        client.post(place, json={"id": name, "n": 1}).raise_for_status()
    first = pull(client, limit=2)
    assert first["documents"] == [{"id": name, "n": 1, "_deleted": False} for name in ("a", "b")]
    assert first["checkpoint"]["id"] == "b"
    client.delete(f"{place}/a")
    rest = pull(client, first["checkpoint"])
    assert [(one["id"], one["_deleted"]) for one in rest["documents"]] == [("c", False), ("a", True)]
    again = pull(client, rest["checkpoint"])
    assert (again["documents"], again["checkpoint"]) == ([], rest["checkpoint"])


@pytest.mark.parametrize("name", ["_deleted", "_score"])
def test_a_field_that_is_called_like_those_of_replicas_is_in_nobodys_way(client: httpx.Client, name: str) -> None:
    """Replicas cannot write such fields, so they do not conflict for them either, and leave them as they are."""
    place = f"{BASE}/documents/notes/a"
    client.put(place, json={"doc": {"n": 1, name: True}}).raise_for_status()
    [known] = pull(client)["documents"]
    assert known["_deleted"] is False
    assert push(client, {"assumedMasterState": known, "newDocumentState": {**known, "n": 2}}) == []
    found = client.get(place).json()
    assert (found["n"], found[name]) == (2, True)
    assert push(client, {"assumedMasterState": known, "newDocumentState": {**known, "n": 3}}) != []


@pytest.mark.parametrize("deleted", ["false", "yes", 0, 1, [], {}])
def test_a_replica_deletes_by_true_and_by_nothing_else(client: httpx.Client, deleted: object) -> None:
    place = f"{BASE}/documents/notes/a"
    client.put(place, json={"doc": {"n": 1}}).raise_for_status()
    [known] = pull(client)["documents"]
    rows = [{"assumedMasterState": known, "newDocumentState": {**known, "_deleted": deleted}}]
    refused = client.post("/replication/v1/push", json={"collection": "notes", "rows": rows})
    assert (refused.status_code, refused.json()["reason"]) == (400, "invalid_payload")
    assert client.get(place).json()["version"] == 1


def test_attachments_of_a_replica_are_refused_and_not_dropped(client: httpx.Client) -> None:
    """Answered with a success, the next pull would take them from the replica that has them."""
    kept = {"photo.png": {"content_type": "image/png", "data": "aGVsbG8=", "length": 5}}
    rows = [{"newDocumentState": {"id": "a", "_attachments": {}}}]
    assert push(client, *rows) == []
    rows.append({"newDocumentState": {"id": "b", "_attachments": kept}})
    refused = client.post("/replication/v1/push", json={"collection": "notes", "rows": rows})
    answer = refused.json()
    assert (refused.status_code, answer["reason"], answer["document"]) == (400, "invalid_payload", "b")
    assert "'b'" in answer["message"]
    assert "attachments" in answer["message"]
    assert client.get(f"{BASE}/documents/notes/b").status_code == 404


@pytest.mark.parametrize(("known", "here"), [(False, 0), (True, 1), (1, True), ([{"x": False}], [{"x": 0}])])
def test_true_and_1_are_two_states(client: httpx.Client, known: Any, here: Any) -> None:
    """To Python they are one: the write of another client would be lost, and nobody told."""
    place = f"{BASE}/documents/notes/a"
    assert push(client, {"newDocumentState": {"id": "a", "v": known, "_deleted": False}}) == []
    client.put(place, json={"doc": {"v": here}}).raise_for_status()
    assumed = {"id": "a", "v": known, "_deleted": False}
    [conflict] = push(client, {"assumedMasterState": assumed, "newDocumentState": {"id": "a", "v": "mine"}})
    assert repr(conflict["v"]) == repr(here)
    assert repr(client.get(place).json()["v"]) == repr(here)
    assert push(client, {"assumedMasterState": conflict, "newDocumentState": assumed}) == []
    assert repr(client.get(place).json()["v"]) == repr(known), "a change from the one to the other is written"


def test_numbers_of_one_value_are_one_state(client: httpx.Client) -> None:
    """JavaScript writes 1 for 1.0."""
    client.put(f"{BASE}/documents/notes/a", json={"doc": {"v": 1.0}}).raise_for_status()
    row = {"assumedMasterState": {"id": "a", "v": 1}, "newDocumentState": {"id": "a", "v": 2}}
    assert push(client, row) == []
    assert client.get(f"{BASE}/documents/notes/a").json()["v"] == 2


def test_a_push_says_which_document_it_cannot_take(client: httpx.Client) -> None:
    rows = [{"newDocumentState": {"id": id, "t": "x" * size}} for id, size in (("a", 1), ("large", 300_000), ("c", 1))]
    refused = client.post("/replication/v1/push", json={"collection": "notes", "rows": rows})
    answer = refused.json()
    assert (refused.status_code, answer["reason"], answer["document"]) == (413, "too_large", "large")
    assert "'large'" in answer["message"]
    del rows[1]
    assert push(client, *rows) == []


@pytest.mark.parametrize("text", [r"\ud800", r"a \ud800 b", r"\udc00"])
def test_half_a_surrogate_pair_is_called_that_and_its_document_named(client: httpx.Client, text: str) -> None:
    """The decoder says of most of them that the end of the body is missing."""
    texts = {"fine": "ok", "sur": text}
    rows = [f'{{"newDocumentState": {{"id": "{id}", "t": ["{told}"]}}}}' for id, told in texts.items()]
    headers = {"content-type": "application/json"}
    body = f'{{"collection": "notes", "rows": [{", ".join(rows)}]}}'
    refused = client.post("/replication/v1/push", content=body, headers=headers)
    answer = refused.json()
    assert (refused.status_code, answer["document"]) == (400, "sur")
    assert "'sur'" in answer["message"]
    assert "$.rows[1].newDocumentState.t[0] has half a surrogate pair" in answer["message"]
    assert client.get(f"{BASE}/documents/notes/fine").status_code == 404, "all of a push or nothing"
    for method, path in (("PUT", f"{BASE}/documents/notes/a"), ("POST", "/api/v1/push")):
        refused = client.request(method, path, content=f'{{"doc": {{"v": "{text}"}}}}', headers=headers)
        assert refused.status_code == 400
        assert "$.doc.v has half a surrogate pair" in refused.json()["detail"]


def test_a_row_that_is_not_what_was_expected_is_named(client: httpx.Client) -> None:
    rows: list[dict[str, Any]] = [{"newDocumentState": {"id": id}} for id in ("a", "b")]
    rows[1]["assumedMasterState"] = "x"
    refused = client.post("/replication/v1/push", json={"collection": "notes", "rows": rows})
    assert (refused.status_code, refused.json()["document"]) == (400, "b")
    del rows[1]["newDocumentState"]["id"]
    refused = client.post("/replication/v1/push", json={"collection": "notes", "rows": rows})
    assert (refused.status_code, "document" in refused.json()) == (400, False)


def test_system_collections_have_no_replicas(client: httpx.Client) -> None:
    refused = client.post("/replication/v1/pull", json={"collection": "_queues"})
    assert (refused.status_code, refused.json()["reason"]) == (400, "invalid_option")


def test_a_checkpoint_of_the_pair_alone_or_of_another_store_misses_nothing(client: httpx.Client) -> None:
    place = f"{BASE}/documents/notes"
    for name in ("a", "b"):
        client.post(place, json={"id": name}).raise_for_status()
    checkpoint = pull(client, limit=1)["checkpoint"]
    pair = {name: checkpoint[name] for name in ("updatedAt", "id")}
    assert [one["id"] for one in pull(client, pair)["documents"]] == ["b"]
    client.patch(f"{place}/a", json={"doc": {"n": 1}}).raise_for_status()
    # What the pair named was written since (a clock may stand still): all of it, or what is behind it.
    assert {one["id"] for one in pull(client, {**pair, "updatedAt": 1})["documents"]} == {"a", "b"}
    assert len(pull(client, {**checkpoint, "store": "another", "lsn": 99})["documents"]) == 2
    other = client.post("/replication/v1/pull", json={"collection": "others", "checkpoint": checkpoint}).json()
    assert (other["documents"], "of another collection" in other["resync"]) == ([], True)


def test_a_replica_pushes_and_is_told_of_conflicts(client: httpx.Client) -> None:
    assert push(client, {"newDocumentState": {"id": "a", "n": 1}}) == []
    known = {"id": "a", "n": 1, "_deleted": False}
    assert push(client, {"assumedMasterState": known, "newDocumentState": {"id": "a", "n": 2}}) == []
    conflict = push(client, {"assumedMasterState": known, "newDocumentState": {"id": "a", "n": 3}})
    assert conflict == [{"id": "a", "n": 2, "_deleted": False}]
    gone = {"id": "a", "n": 2, "_deleted": True}
    assert push(client, {"assumedMasterState": conflict[0], "newDocumentState": gone}) == []
    assert [one["_deleted"] for one in pull(client)["documents"]] == [True]
    assert push(client) == []


# ── access ──


async def test_a_token_has_rights_by_scope_and_by_pattern(tmp_path: Path) -> None:
    async with opened(tmp_path, FakeClock()) as hw:
        door = make_guarded_door(hw, load_access(auth="token"))
        tokens = {}
        for scope in (Scope.READ_DOCUMENTS, Scope.CREATE_DOCUMENTS, Scope.UPDATE_DOCUMENTS, Scope.DELETE_DOCUMENTS):
            _, tokens[scope] = await hw.access_tokens().create("t", [scope], queues=["documents/rooms/*"])

        async def ask(scope: Scope | None, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
            headers = {"content-type": "application/json"}
            if scope is not None:
                headers["authorization"] = f"Bearer {tokens[scope]}"
            response = await door(
                Request(method=method, path=path, headers=headers, body=body, client="192.0.2.1", id="r")
            )
            return response.status, "" if response.status < 400 else response.body.decode()

        for collection, is_theirs in (("rooms/r1/notes", True), ("orders", False)):
            place = f"{BASE}/documents/{collection}"
            asked = [
                (Scope.CREATE_DOCUMENTS, "POST", place, b'{"id":"m1"}', 201),
                (Scope.READ_DOCUMENTS, "GET", f"{place}/m1", b"", 200),
                (Scope.UPDATE_DOCUMENTS, "PATCH", f"{place}/m1", b'{"doc":{"n":1}}', 200),
                (Scope.DELETE_DOCUMENTS, "DELETE", f"{place}/m1", b"", 204),
            ]
            for scope, method, path, body, expected in asked:
                status, told = await ask(scope, method, path, body)
                assert status == (expected if is_theirs else 403), (scope, path, told)
                assert is_theirs or '"code":"FORBIDDEN"' in told
                others = [other for other in tokens if other is not scope]
                assert [(await ask(other, method, path, body))[0] for other in others] == [403] * 3
        # To set may make a document: it needs both rights.
        status, _ = await ask(Scope.UPDATE_DOCUMENTS, "PUT", f"{BASE}/documents/rooms/r1/notes/x", b'{"doc":{}}')
        assert status == 403
        status, told = await ask(None, "GET", f"{BASE}/documents/rooms/r1/notes/x")
        assert (status, '"code":"UNAUTHORIZED"' in told) == (401, True)
        rows = b'{"collection":"rooms/r1/notes","rows":[{"newDocumentState":{"id":"a"}}]}'
        assert (await ask(Scope.READ_DOCUMENTS, "POST", "/replication/v1/push", rows))[0] == 403
        assert (await ask(Scope.READ_DOCUMENTS, "POST", "/replication/v1/pull", b'{"collection":"orders"}'))[0] == 403


async def test_an_update_tells_what_others_wrote_only_to_who_may_read(tmp_path: Path) -> None:
    async with opened_office(tmp_path) as office:
        await office.hw.set_document_rules([])
        await office.employ("writer", scopes=["documents:update", "documents:create", "consume"])
        await office.employ("reader", scopes=["documents:update", "documents:read", "consume"])
        change = {"doc": {"n": 1}}
        step = {"collection": "notes", "id": "a1", "data": {"n": 1}}
        batch = {"writes": [{"type": "update", "path": "notes/a1", "data": {"n": 1}}]}
        ways = [
            ("PATCH", f"{BASE}/documents/notes/a1", change),
            ("POST", "/v1/operations/update-document", step),
            ("POST", "/trigger/v1/databases/main/write", batch),
            ("POST", "/v1/transaction", {"operations": [{"kind": "update-document", **step}]}),
        ]
        for version, (method, path, body) in enumerate(ways, 1):
            status, answer = await office.ask("writer", method, path, body)
            assert (status, "owner" in str(answer), "open" in str(answer)) == (200, False, False), path
            assert f"'version': {2 * version}" in str(answer)
            status, answer = await office.ask("reader", method, path, body)
            assert (status, "'owner': 'ada'" in str(answer)) == (200, True), path
        assert (await office.hw.collection("notes").query('id == "a1"'))[0].data == {
            "owner": "ada",
            "state": "open",
            "n": 1,
        }
        # All of what is set is their own.
        put = await office.ask("writer", "PUT", f"{BASE}/documents/notes/b1", {"doc": {"n": 2}})
        assert (put[0], put[1]["n"]) == (200, 2)


def test_what_headwater_knows_of_itself_is_asked_for_like_documents(client: httpx.Client) -> None:
    client.post("/api/v1/push", json={"items": [{"queue": "orders", "payload": 1}]}).raise_for_status()
    asked = {"collection": "_queues", "filter": "records > 0", "orderBy": [{"field": "queue"}]}
    found = client.post(f"{BASE}/query", json=asked).raise_for_status().json()["docs"]
    assert [(one["id"], one["records"]) for one in found] == [("orders", 1)]
    assert client.get(f"{BASE}/documents/_queues/orders").json()["collection"] == "_queues"
    assert client.get(f"{BASE}/documents/_queues/none").status_code == 404
    assert client.post(f"{BASE}/documents/_queues", json={"id": "x"}).status_code == 400
    assert client.post(f"{BASE}/query", json={"collection": "_nothing"}).status_code == 400


def test_a_number_that_no_condition_compares_with_is_a_bad_request(client: httpx.Client) -> None:
    client.put(f"{NOTES}/large", json={"doc": {"n": 10**400}}).raise_for_status()
    conditions = [{"field": "n", "op": "==", "value": 10**400}]
    query = {"collection": "rooms/r1/notes", "filters": conditions}
    for path in (f"{BASE}/query", f"{TRIGGER}/query"):
        assert error_of(client.post(path, json=query)) == (400, "BAD_REQUEST")
    changed = {"doc": {"n": 1}, "ifMatch": conditions}
    assert error_of(client.patch(f"{NOTES}/large", json=changed)) == (400, "BAD_REQUEST")
    found = client.post(f"{BASE}/query", json={"collection": "rooms/r1/notes", "filter": "n > 5"}).json()
    assert [one["id"] for one in found["docs"]] == ["large"]
