"""Collections of documents, on an open store and over HTTP: reading, writing, queries, live queries, transactions."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import headwater
import headwater.sync
from headwater.errors import (
    DocumentExists,
    DocumentMissing,
    InvalidFilter,
    InvalidInput,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    PreconditionFailed,
    TooLarge,
)
from headwater.log.operations import Retain
from headwater.model.names import Lsn
from headwater.services import documents as service
from headwater.services.documents import Collection, LiveChange
from headwater.stores.tables import document_answers
from tests.client.conftest import Interface
from tests.contracts.clock import RunningClock

SOON = 60.0


@pytest.fixture
def notes(interface: Interface) -> Collection:
    return interface.collection("rooms/r1/notes")


async def test_a_document_is_written_and_read(notes: Collection) -> None:
    made = await notes.create({"text": "Hello", "id": "passed over", "version": 9})
    assert (made.data, made.version, len(made.id)) == ({"text": "Hello"}, 1, 32)
    assert (await notes.update(made.id, {"read": True})).data == {"text": "Hello", "read": True}
    assert (await notes.set(made.id, {"n": 1}, if_match=[("version", "==", 2)])).version == 3
    found = await notes.get(made.id)
    assert found is not None
    assert (found.data, found["n"], found.created_at, found.path) == (
        {"n": 1},
        1,
        made.created_at,
        f"rooms/r1/notes/{made.id}",
    )
    assert (await notes.delete(made.id)).deleted
    assert await notes.get(made.id) is None
    assert await notes.get("never") is None


async def test_what_speaks_against_a_write_is_told_by_its_error(notes: Collection) -> None:
    await notes.create({"n": 1}, id="m1")
    with pytest.raises(DocumentExists):
        await notes.create({}, id="m1")
    with pytest.raises(PreconditionFailed):
        await notes.update("m1", {"n": 2}, if_match=[{"field": "n", "op": ">", "value": 1}])
    with pytest.raises(DocumentMissing):
        await notes.update("m2", {"n": 2})
    with pytest.raises(DocumentMissing):
        await notes.delete("m2")


@pytest.mark.parametrize("name", ["", "a/b", "a//b", "a/b/c/", "ä", "x" * 201, "a b"])
def test_a_collection_has_an_odd_number_of_names(interface: Interface, name: str) -> None:
    with pytest.raises(InvalidName):
        interface.collection(name)


@pytest.mark.parametrize("name", ["", "a/b", "\x00", "x" * 257, "a\nb"])
async def test_an_id_is_printable_and_has_no_slash(notes: Collection, name: str) -> None:
    with pytest.raises(InvalidName):
        await notes.set(name, {"n": 1})


@pytest.mark.parametrize("fields", [{"x": "\x00"}, {"x": object()}, {"x": float("nan") - 1j}, {"x": ["a\x00"]}])
async def test_what_is_no_json_is_no_document(notes: Collection, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload):
        await notes.create(fields)


async def test_a_document_does_not_grow_beyond_its_bound_by_changes(notes: Collection) -> None:
    """Nobody could write it back as a whole, and every small change would carry all of it."""
    await notes.create({"a": "x" * 200_000}, id="m1")
    with pytest.raises(TooLarge, match="with this change"):
        await notes.update("m1", {"b": "x" * 200_000})
    kept = await notes.get("m1")
    assert kept is not None
    assert kept.version == 1
    await notes.update("m1", {"a": "y", "b": "x" * 200_000})


async def test_what_is_too_large_or_changes_nothing_is_refused(notes: Collection) -> None:
    with pytest.raises(TooLarge):
        await notes.create({"x": "y" * 20_000_000})
    await notes.create({"n": 1}, id="m1")
    with pytest.raises(InvalidInput, match="nothing to change"):
        await notes.update("m1", {"version": 7})


# ── queries ──


async def test_a_query_has_a_cursor_for_what_comes_after(notes: Collection) -> None:
    for number in range(5):
        await notes.create({"n": number % 2}, id=f"m{number}")
    first = await notes.query(order_by="-n", limit=3)
    rest = await notes.query(order_by="-n", limit=3, start_after=first.next_cursor)
    assert [document.id for document in (*first, *rest)] == ["m3", "m1", "m4", "m2", "m0"]
    assert (len(first), rest.next_cursor, first[0].id) == (3, "", "m3")
    assert len(await notes.query("n == 1", filters=[("id", "!=", "m1")])) == 1


@pytest.mark.parametrize("order_by", ["", "-n", "id"])
async def test_a_query_over_more_than_one_answer_is_put_together(
    notes: Collection, order_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        await notes.create({"n": number % 5, "even": number % 2 == 0}, id=f"m{number:02}")
    order: Any = order_by or ()
    whole = [one.id for one in await notes.query("even", order_by=order, limit=4)]
    monkeypatch.setattr(document_answers, "SCANNED_MAX", 3)
    assert [one.id for one in await notes.query("even", order_by=order, limit=4)] == whole
    assert len(whole) == 4


async def test_a_query_that_cannot_be_is_refused(notes: Collection) -> None:
    with pytest.raises(InvalidFilter):
        await notes.query("n ==")
    with pytest.raises(InvalidOption):
        await notes.query(limit=0)
    with pytest.raises(InvalidOption):
        await notes.query(start_after="x")
    with pytest.raises(InvalidOption):
        await notes.query(filters=[("n", "==")])  # type: ignore[list-item]


async def test_an_index_is_made_of_what_is_there(notes: Collection) -> None:
    for number in range(3):
        await notes.create({"n": number})
    await notes.index("n")
    assert [document["n"] for document in await notes.query("n >= 1", order_by="n")] == [1, 2]


async def test_an_index_that_cannot_be_is_refused_and_one_that_is_can_be_dropped(
    interface: Interface, notes: Collection
) -> None:
    await notes.set("long", {"n": "x" * 1_024})
    with pytest.raises(InvalidPayload, match="rooms/r1/notes/long takes 1,025"):
        await notes.index("n")
    assert not await notes.drop_index("n")
    await notes.update("long", {"n": "x" * 1_023})
    await notes.index("n")
    with pytest.raises(InvalidPayload, match="1,024 bytes"):
        await notes.update("long", {"n": "x" * 1_024})
    assert await notes.drop_index("n")
    await notes.update("long", {"n": "x" * 1_024})
    with pytest.raises(InvalidName):
        await interface.collection("_queues").index("records")


# ── access rules ──


async def test_access_rules_are_values_or_mappings(interface: Interface) -> None:
    rule = headwater.DocumentRule(pattern="notes", read="owner == auth.sub")
    assert await interface.set_document_rules([rule, {"pattern": "others", "create": "true"}]) == 2
    assert await interface.document_rules() == [rule, headwater.DocumentRule(pattern="others", create="true")]
    for wrong in ({"pattern": "notes", "reads": "true"}, {"read": "true"}, {"pattern": "notes", "read": True}, "notes"):
        with pytest.raises(InvalidOption, match="access rule"):
            await interface.set_document_rules([wrong])  # type: ignore[list-item]
    with pytest.raises(InvalidFilter):
        await interface.set_document_rules([{"pattern": "notes", "read": "owner =="}])


# ── transactions ──


async def test_documents_pushes_acks_and_jobs_are_one_commit(interface: Interface, notes: Collection) -> None:
    await interface.queue("orders").push({"order": 7})
    messages = await interface.queue("orders").pop()
    async with interface.transaction() as together:
        together.ack(messages)
        together.push("bills", {"order": 7})
        together.collection("orders").set("7", {"state": "paid"})
        name = together.collection("rooms/r1/notes").create({"text": "paid"})
    assert await notes.get(name) is not None
    assert [type(result).__name__ for result in together.results] == ["Acked", "Pushed", "Document", "Document"]
    assert len(await interface.queue("bills").pop()) == 1


async def test_a_condition_that_fails_undoes_the_whole_transaction(interface: Interface, notes: Collection) -> None:
    await notes.create({"n": 1}, id="m1")
    together = interface.transaction()
    together.push("bills", {"order": 7})
    together.collection("rooms/r1/notes").update("m1", {"n": 2}, if_match=[("version", "==", 9)])
    with pytest.raises(PreconditionFailed):
        await together.commit()
    assert await interface.queue("bills").pop() == []


# ── live queries ──


async def next_of(changes: Any) -> LiveChange:
    async with asyncio.timeout(SOON):
        found: LiveChange = await anext(changes)
        return found


async def test_a_live_query_has_a_snapshot_and_then_what_enters_changes_and_leaves(notes: Collection) -> None:
    await notes.create({"n": 1}, id="in")
    await notes.create({"n": 5}, id="out")
    changes = notes.follow("n < 3")
    snapshot = await next_of(changes)
    assert (snapshot.op, [document.id for document in snapshot.documents]) == ("snapshot", ["in"])
    await notes.update("out", {"x": 1})
    await notes.update("out", {"n": 2})
    await notes.update("in", {"n": 0})
    await notes.update("in", {"n": 9})
    await notes.delete("out")
    told = [await next_of(changes) for _ in range(4)]
    assert [(one.op, one.document and one.document.id, one.left) for one in told] == [
        ("insert", "out", False),
        ("update", "in", False),
        ("delete", "in", True),
        ("delete", "out", False),
    ]
    assert [one.seq for one in told] == [3, 4, 5, 6]
    await changes.aclose()


async def test_nothing_is_missed_or_told_twice_between_snapshot_and_changes(
    interface: Interface, notes: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written to while the snapshot is read in small bites: put together, it is what a query finds in the end."""
    monkeypatch.setattr(document_answers, "SCANNED_MAX", 5)
    monkeypatch.setattr(service, "QUERY_LIMIT_MAX", 7)
    random = Random(7)
    for number in range(30):
        await notes.set(f"m{number:02}", {"n": random.randrange(10)})

    async def write() -> None:
        for _ in range(60):
            name = f"m{random.randrange(40):02}"
            if random.randrange(4) == 0 and await notes.get(name) is not None:
                await notes.delete(name)
            else:
                await notes.set(name, {"n": random.randrange(10)})
        await notes.set("the end", {"n": 0})

    writing = asyncio.create_task(write())
    held: dict[str, int] = {}
    changes = notes.follow("n < 5")
    while True:
        change = await next_of(changes)
        if change.op == "snapshot":
            held = {document.id: document.version for document in change.documents}
            continue
        assert change.document is not None
        name, version = change.document.id, change.document.version
        assert (name in held) is (change.op != "insert"), change
        assert held.get(name, 0) < version, "it was told before"
        if change.op == "delete":
            del held[name]
        else:
            held[name] = version
        if name == "the end":
            break
    await writing
    await changes.aclose()
    assert held == {document.id: document.version for document in await notes.query("n < 5", limit=100)}


async def test_changes_that_were_dropped_make_a_new_snapshot(hw: headwater.Headwater, clock: RunningClock) -> None:
    """A follower whose place is gone from the log is given everything anew."""
    notes = hw.collection("notes")
    await notes.create({"n": 1}, id="m1")
    changes = notes.follow()
    await next_of(changes)
    await notes.create({"n": 1}, id="m2")
    await hw.queue("headwater/documents/notes").configure(retention_seconds=1)
    clock.advance(10)
    await notes.create({"n": 1}, id="m3")
    assert (await hw.queues_service.run(Retain())).records == 2
    found = await next_of(changes)
    assert [document.id for document in found.documents] == ["m1", "m2", "m3"]
    assert found.lsn > Lsn(0)
    await changes.aclose()


@pytest.fixture
async def hw(tmp_path: Path, clock: RunningClock) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "own.db"), clock=clock, housekeeping=False) as opened:
        yield opened


def test_documents_without_async(tmp_path: Path) -> None:
    with headwater.sync.open(str(tmp_path / "plain.db")) as plain:
        notes = plain.collection("notes")
        notes.create({"n": 1}, id="m1")
        changes = notes.follow("n == 1")
        assert [document.id for document in next(changes).documents] == ["m1"]
        with plain.transaction() as together:
            together.collection("notes").update("m1", {"n": 2})
        change = next(changes)
        assert (change.op, change.left) == ("delete", True)
        changes.close()
        assert [document.data for document in notes.query()] == [{"n": 2}]
