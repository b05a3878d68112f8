"""Access rules of documents, over every way to them: what may not be read decides nothing, what may not be written is
not (T3-e)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import FilterTooLarge, InvalidFilter, InvalidName
from headwater.model.document import changes_queue
from headwater.model.document_rules import DocumentRule
from headwater.stores.tables import document_answers
from tests.doors.office import BASE, NOTES, OWN, Office, opened_office


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with opened_office(tmp_path) as found:
        yield found


async def test_what_may_not_be_read_is_not_there(office: Office) -> None:
    assert (await office.ask("ada", "GET", f"{NOTES}/a1"))[0] == 200
    assert (await office.ask("ada", "GET", f"{NOTES}/b1"))[0] == 404
    missing = await office.ask("ada", "GET", f"{NOTES}/nothing")
    assert (await office.ask("ada", "GET", f"{NOTES}/b1"))[1]["code"] == missing[1]["code"]
    assert await office.ask("ada", "POST", "/trigger/v1/databases/main/get", {"path": "notes/b1"}) == (
        200,
        {"docs": [], "nextCursor": ""},
    )
    assert (await office.ask("ada", "POST", "/v1/questions/find-document", {"collection": "notes", "id": "b1"})) == (
        200,
        None,
    )


async def test_a_query_finds_what_may_be_read_and_counts_by_that_alone(office: Office) -> None:
    assert await office.query("ada") == ["a1", "a2"]
    assert await office.query("bob") == ["b1"]
    assert await office.query("auditor") == ["a1", "a2", "b1"]
    _, page = await office.ask("ada", "POST", f"{BASE}/query", {"collection": "notes", "limit": 1})
    assert [one["id"] for one in page["docs"]] == ["a1"]
    assert await office.query("ada", limit=1, startAfter=page["nextCursor"]) == ["a2"]
    # The filter's own part cannot widen it.
    assert await office.query("ada", filter='owner == "bob" || true') == ["a1", "a2"]
    wire = {"query": {"collection": "notes"}}
    _, found = await office.ask("ada", "POST", "/v1/questions/query-documents", wire)
    assert [one["id"] for one in found["documents"]] == ["a1", "a2"]


async def test_no_place_to_go_on_from_is_that_of_a_document_which_may_not_be_read(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store looks at so many documents for one answer, and says where it stopped."""
    monkeypatch.setattr(document_answers, "SCANNED_MAX", 1)
    for wanted in ({}, {"order_by": [{"field": "state", "direction": "desc"}]}):
        wire = {"query": {"collection": "notes", **wanted}}
        _, page = await office.ask("bob", "POST", "/v1/questions/query-documents", wire)
        assert [one["id"] for one in page["documents"]] == ["b1"]
        assert (page.get("position", ""), page["scanned"]) == ("", 1)
        _, page = await office.ask("root", "POST", "/v1/questions/query-documents", wire)
        assert page["position"]


async def test_of_what_is_deleted_only_those_are_told_who_are_held_to_no_rule(office: Office) -> None:
    """What a rule speaks of is gone; `state != "secret"` would hold for every tombstone."""
    await office.hw.set_document_rules([DocumentRule(pattern="notes", read='state != "secret"')])
    await office.hw.collection("notes").create({"state": "secret"}, id="s1")
    await office.hw.collection("notes").delete("s1")
    found = "/v1/questions/find-document"
    assert await office.ask("ada", "POST", found, {"collection": "notes", "id": "s1"}) == (200, None)
    assert await office.query("ada", showDeleted=True) == ["a1", "a2", "b1"]
    assert await office.query("root", showDeleted=True) == ["a1", "a2", "b1", "s1"]
    assert (await office.ask("root", "POST", found, {"collection": "notes", "id": "s1"}))[1]["deleted"] is True


async def test_a_caller_cannot_bring_a_permit(office: Office) -> None:
    permit = {"read": ["true"], "create": ["true"], "update": ["true"], "delete": ["true"], "claims": "{}"}
    body = {"query": {"collection": "notes"}, "permit": permit}
    assert (await office.ask("ada", "POST", "/v1/questions/query-documents", body))[0] == 400


async def test_a_write_needs_what_its_rule_says_of_the_document_before_and_after(office: Office) -> None:
    assert (await office.ask("ada", "POST", NOTES, {"id": "a3", "owner": "ada"}))[0] == 201
    assert (await office.ask("ada", "POST", NOTES, {"id": "b9", "owner": "bob"}))[0] == 403
    # Neither taken from somebody nor given away.
    await office.hw.collection("notes").update("b1", {"shared": True})
    assert (await office.ask("ada", "PATCH", f"{NOTES}/b1", {"doc": {"owner": "ada"}}))[0] == 403
    assert (await office.ask("ada", "PATCH", f"{NOTES}/a1", {"doc": {"owner": "bob"}}))[0] == 403
    assert (await office.ask("ada", "PATCH", f"{NOTES}/a1", {"doc": {"state": "closed"}}))[0] == 200
    assert (await office.ask("ada", "PATCH", f"{NOTES}/a1", {"doc": {"state": "open"}}))[0] == 403
    assert (await office.ask("ada", "DELETE", f"{NOTES}/b1"))[0] == 403
    assert (await office.ask("ada", "DELETE", f"{NOTES}/a2"))[0] == 204
    assert (await office.ask("ada", "PUT", f"{NOTES}/b1", {"doc": {"owner": "ada"}}))[0] == 403
    kept = {one.id: one["owner"] for one in await office.hw.collection("notes").query()}
    assert kept == {"a1": "ada", "a3": "ada", "b1": "bob"}


async def test_a_condition_learns_nothing_of_a_document_that_may_not_be_read(office: Office) -> None:
    """Whether `ifMatch` holds would tell what is in it; nor whether there is one."""
    for value in ("bob", "ada"):
        condition = [{"field": "owner", "op": "==", "value": value}]
        gone = await office.ask("ada", "DELETE", f"{NOTES}/b1", {"ifMatch": condition})
        assert (gone[0], gone[1]["code"]) == (404, "NOT_FOUND")
        for name in ("b1", "none"):
            put = await office.ask("ada", "PUT", f"{NOTES}/{name}", {"doc": {"owner": "ada"}, "ifMatch": condition})
            assert (put[0], put[1]["code"]) == (412, "PRECONDITION_FAILED")
    assert [one["owner"] for one in await office.hw.collection("notes").query('id == "b1"')] == ["bob"]


async def test_a_batch_is_refused_whole_for_one_write_that_is_not_allowed(office: Office) -> None:
    writes = [
        {"type": "create", "path": "notes/a4", "data": {"owner": "ada"}},
        {"type": "create", "path": "notes/b4", "data": {"owner": "bob"}},
    ]
    refused = await office.ask("ada", "POST", "/trigger/v1/databases/main/write", {"writes": writes})
    assert refused[0] == 403
    steps = [
        {"kind": "create-document", "collection": "notes", "id": "b5", "data": {"owner": "bob"}},
    ]
    assert (await office.ask("ada", "POST", "/v1/transaction", {"operations": steps}))[0] == 403
    assert await office.query("auditor") == ["a1", "a2", "b1"]


async def test_a_replica_gets_and_brings_what_it_may(office: Office) -> None:
    pulled = await office.ask("ada", "POST", "/replication/v1/pull", {"collection": "notes", "limit": 2})
    assert [one["id"] for one in pulled[1]["documents"]] == ["a1", "a2"]
    assert pulled[1]["checkpoint"]["id"] == "a2"
    rest = {"collection": "notes", "checkpoint": pulled[1]["checkpoint"]}
    assert (await office.ask("ada", "POST", "/replication/v1/pull", rest))[1]["documents"] == []
    rows = [
        {"newDocumentState": {"id": "a5", "owner": "ada"}},
        {"newDocumentState": {"id": "b5", "owner": "bob"}},
    ]
    status, answer = await office.ask("ada", "POST", "/replication/v1/push", {"collection": "notes", "rows": rows})
    assert (status, answer["document"]) == (403, rows[-1]["newDocumentState"]["id"])
    # All of it or nothing: the first row was allowed.
    assert await office.query("auditor") == ["a1", "a2", "b1"]
    conflict = [{"newDocumentState": {"id": "b1", "owner": "ada"}}]
    seen = await office.ask("ada", "POST", "/replication/v1/push", {"collection": "notes", "rows": conflict})
    assert (seen[0], "bob" in str(seen[1])) == (403, False)
    assert (await office.ask("ada", "POST", "/replication/v1/push", {"collection": "notes", "rows": rows[:1]})) == (
        200,
        [],
    )


async def test_a_push_that_makes_a_document_is_not_told_of_the_tombstone_of_another(office: Office) -> None:
    await office.hw.collection("notes").delete("b1")
    answers = []
    for name in ("b1", "never"):
        rows = [{"newDocumentState": {"id": name, "owner": "ada"}}]
        answers.append(await office.ask("ada", "POST", "/replication/v1/push", {"collection": "notes", "rows": rows}))
    assert answers == [(200, []), (200, [])]
    assert await office.query("ada") == ["a1", "a2", "b1", "never"]
    # Who had it is told that it is gone, as ever.
    await office.hw.collection("notes").delete("b1")
    known: dict[str, Any] = {"id": "b1", "owner": "ada", "_deleted": False}
    edit = [{"assumedMasterState": known, "newDocumentState": {**known, "n": 1}}]
    told = await office.ask("ada", "POST", "/replication/v1/push", {"collection": "notes", "rows": edit})
    assert told == (200, [{"id": "b1", "_deleted": True}])


async def test_the_log_of_a_collection_with_rules_is_for_administrators(office: Office) -> None:
    """It has every document whole."""
    queue = changes_queue("notes")
    segments = f"/v1/segments?queue={queue}&after=0"
    assert (await office.ask("ada", "GET", segments))[0] in (403, 404)
    assert (await office.ask("ada", "POST", "/v1/pop", {"queue": queue}))[0] in (403, 404)
    about = await office.ask("ada", "GET", "/v1/log")
    assert queue not in about[1].get("queues", {})
    listed = {"collection": "notes"}
    assert (await office.ask("ada", "POST", "/v1/questions/list-documents-after", listed))[0] == 403
    assert (await office.ask("root", "POST", "/v1/questions/list-documents-after", listed))[0] == 200
    await office.hw.set_document_rules([])
    assert (await office.ask("ada", "POST", "/v1/questions/list-documents-after", listed))[0] == 200


async def test_collections_without_rules_are_as_open_as_before_and_admin_is_held_to_none(office: Office) -> None:
    assert (await office.ask("ada", "POST", f"{BASE}/documents/orders", {"id": "o1"}))[0] == 201
    assert (await office.ask("bob", "GET", f"{BASE}/documents/orders/o1"))[0] == 200
    assert await office.query("root") == ["a1", "a2", "b1"]
    assert (await office.ask("root", "PATCH", f"{NOTES}/b1", {"doc": {"owner": "ada"}}))[0] == 200


async def test_what_no_rule_speaks_of_is_not_allowed_and_one_rule_that_allows_is_enough(office: Office) -> None:
    some = DocumentRule(pattern="n*", read='state == "open"')
    await office.hw.set_document_rules([some])
    assert await office.query("ada") == ["a1", "a2", "b1"]
    assert (await office.ask("ada", "POST", NOTES, {"id": "x", "owner": "ada"}))[0] == 403
    await office.hw.set_document_rules([some, DocumentRule(pattern="notes", create="true")])
    assert (await office.ask("ada", "POST", NOTES, {"id": "x", "owner": "ada"}))[0] == 201


async def test_rules_are_set_and_listed_over_http_by_administrators_alone(office: Office) -> None:
    rules = [{"pattern": "notes", "read": "true"}]
    assert (await office.ask("ada", "POST", "/v1/operations/set-document-rules", {"rules": rules}))[0] == 403
    assert (await office.ask("ada", "POST", "/v1/questions/list-document-rules", {}))[0] == 403
    assert (await office.ask("root", "POST", "/v1/operations/set-document-rules", {"rules": rules})) == (
        200,
        {"count": 1},
    )
    assert (await office.ask("root", "POST", "/v1/questions/list-document-rules", {})) == (200, rules)
    assert await office.query("ada") == ["a1", "a2", "b1"]


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        (DocumentRule(pattern="notes", read="owner =="), InvalidFilter),
        (DocumentRule(pattern="notes", delete="(" * 500), FilterTooLarge),
        (DocumentRule(pattern="no tes", read="true"), InvalidName),
    ],
)
async def test_rules_that_cannot_be_read_are_refused_and_the_old_ones_hold(
    office: Office, rule: DocumentRule, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await office.hw.set_document_rules([rule])
    assert await office.hw.document_rules() == [OWN]


async def test_rules_of_one_database_are_not_those_of_another(office: Office) -> None:
    assert await office.hw.database("tenant").document_rules() == []
