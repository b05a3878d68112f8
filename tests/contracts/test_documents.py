"""Documents: versions, conditions, tombstones, and the change that the log tells with each write."""

from typing import Any

import msgspec
import pytest

from headwater.errors import DocumentExists, DocumentMissing, InvalidPayload, NotAllowed, PreconditionFailed
from headwater.log.document_operations import DropDocumentIndex, IndexDocuments, MergeDocuments, SetDocumentRules
from headwater.log.operations import Transaction
from headwater.model.document import NULL, Condition, DocumentRow, Fields, OrderBy, changes_queue
from headwater.model.document_order import cursor_mark, cursor_of, write_cursor
from headwater.model.document_rules import DocumentRule, Permit
from headwater.model.names import Lsn
from headwater.stores.document_questions import (
    PAGE_BYTES_MAX,
    DocumentQuery,
    FindDocument,
    ListDocumentIndexes,
    ListDocumentRules,
    ListDocumentsAfter,
    QueryDocuments,
)
from headwater.stores.questions import ListQueues
from headwater.stores.tables import document_answers
from tests.contracts.clock import FakeClock
from tests.contracts.conftest import OpenLog
from tests.contracts.documents import COLLECTION, ask_page, changes, create, delete, ids, put, update
from tests.contracts.log import Log, push


async def test_a_new_document_is_found_as_it_was_written(log: Log, clock: FakeClock) -> None:
    written = await log.run(create("m1", text="Grüße", n=1.0))
    found = await log.store.ask(FindDocument("main", COLLECTION, "m1"))
    assert found is not None
    assert found.body == written.body
    milliseconds = clock.now() // 1_000
    assert found.flat() == {
        "id": "m1",
        "text": "Grüße",
        "n": 1.0,
        "collection": COLLECTION,
        "version": 1,
        "createdAt": milliseconds,
        "updatedAt": milliseconds,
    }
    assert found.lsn == 1


async def test_a_document_is_made_once(log: Log) -> None:
    await log.run(create("m1", n=1))
    with pytest.raises(DocumentExists):
        await log.run(create("m1", n=2))
    assert [change.op for change in await changes(log)] == ["insert"]


async def test_every_write_raises_the_version_and_keeps_when_it_was_made(log: Log, clock: FakeClock) -> None:
    first = (await log.run(put("m1", a=1, b=2))).flat()
    clock.advance(5)
    second = (await log.run(update("m1", b=3))).flat()
    clock.advance(5)
    third = (await log.run(put("m1", c=4))).flat()
    assert [one["version"] for one in (first, second, third)] == [1, 2, 3]
    assert {one["createdAt"] for one in (first, second, third)} == {first["createdAt"]}
    assert third["updatedAt"] == first["updatedAt"] + 10_000
    assert (second["a"], second["b"]) == (1, 3)
    assert "a" not in third
    assert third["c"] == 4


async def test_what_is_deleted_leaves_a_tombstone_without_its_fields(log: Log) -> None:
    await log.run(create("m1", secret="x"))
    tombstone = await log.run(delete("m1"))
    assert (tombstone.version, tombstone.deleted, tombstone.data) == (2, True, {})
    found = await log.store.ask(FindDocument("main", COLLECTION, "m1"))
    assert found is not None
    assert found.flat()["deleted"] is True
    assert "secret" not in found.flat()
    for write in (update("m1", n=1), delete("m1")):
        with pytest.raises(DocumentMissing):
            await log.run(write)
    again = await log.run(create("m1", n=2))
    assert (again.version, again.deleted) == (3, False)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (Condition("version", "==", 1), True),
        (Condition("version", "==", 2), False),
        (Condition("state", "in", ["open", "new"]), True),
        (Condition("tags", "contains", "red"), True),
        (Condition("missing", "==", None), True),
        (Condition("n", ">", 7), False),
    ],
)
async def test_a_write_holds_only_if_its_conditions_do(log: Log, condition: Condition, holds: bool) -> None:
    names = ("set", "updated", "deleted")
    await log.commit(*(create(name, state="open", tags=["red"], n=7) for name in names))
    results = await log.results(
        put("set", condition, n=8), update("updated", condition, n=8), delete("deleted", condition)
    )
    assert [isinstance(result, PreconditionFailed) for result in results] == [not holds] * 3
    versions = [document.version for document in (await ask_page(log, show_deleted=True)).documents]
    assert versions == ([2, 2, 2] if holds else [1, 1, 1])


async def test_conditions_of_a_document_that_is_not_there_see_no_fields(log: Log) -> None:
    with pytest.raises(PreconditionFailed):
        await log.run(put("m1", Condition("version", "==", 1), n=1))
    assert (await log.run(put("m1", Condition("version", "==", None), n=1))).version == 1


async def test_the_log_tells_each_change_with_what_was_before_and_after(log: Log) -> None:
    """S3-5: one stream for a collection."""
    one = await log.run(create("m1", n=1))
    two = await log.run(update("m1", n=2))
    three = await log.run(delete("m1"))
    told = await changes(log)
    assert [(change.op, change.id, change.version) for change in told] == [
        ("insert", "m1", 1),
        ("update", "m1", 2),
        ("delete", "m1", 3),
    ]
    assert [change.after for change in told] == [one.body, two.body, three.body]
    assert [change.before for change in told] == [NULL, one.body, two.body]


async def test_writes_of_one_commit_see_each_other_and_are_one_segment(log: Log) -> None:
    commit = await log.commit(create("m1", n=1), update("m1", n=2), create("m1"), create("m2"), delete("m2"))
    assert [getattr(result, "version", type(result)) for result in commit.results] == [1, 2, DocumentExists, 1, 2]
    assert [touch.count for touch in commit.touched] == [4]
    found = await log.store.ask(FindDocument("main", COLLECTION, "m1"))
    assert found is not None
    assert (found.version, found.lsn) == (2, commit.touched[0].lsn)


async def test_a_batch_is_all_or_nothing(log: Log) -> None:
    await log.run(create("taken"))
    commit = await log.commit(
        create("before"), Transaction(operations=[create("m1"), push("x"), create("taken")]), create("after")
    )
    assert isinstance(commit.results[1], DocumentExists)
    assert await ids(log) == ["after", "before", "taken"]
    assert [change.id for change in await changes(log)] == ["taken", "before", "after"]
    assert [status.queue for status in await log.store.ask(ListQueues("main"))] == [changes_queue(COLLECTION)]


async def test_another_process_sees_documents_and_goes_on_from_them(log: Log, other: Log) -> None:
    await log.run(create("m1", n=1))
    assert (await other.run(update("m1", n=2))).version == 2
    assert (await log.run(update("m1", n=3))).version == 3
    assert [change.version for change in await changes(other)] == [1, 2, 3]


# ── queries ──


async def test_a_query_finds_by_filters_in_order_with_a_limit(log: Log) -> None:
    await log.commit(*(create(f"m{n}", n=n, even=n % 2 == 0) for n in range(6)))
    await log.run(delete("m4"))
    assert await ids(log, filters=[Condition("even", "==", True)]) == ["m0", "m2"]
    assert await ids(log, filter="n >= 2 && n < 5") == ["m2", "m3"]
    assert await ids(log, order_by=[OrderBy("n", "desc")], limit=2) == ["m5", "m3"]
    assert await ids(log, order_by=[OrderBy("id", "desc")], limit=2) == ["m5", "m3"]
    assert await ids(log, order_by=[OrderBy("even"), OrderBy("n", "desc")]) == ["m5", "m3", "m1", "m2", "m0"]
    assert await ids(log, filters=[Condition("id", ">", "m3")], show_deleted=True) == ["m4", "m5"]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("order", [(), ("n",), ("-n",), ("id",), ("-id",), ("-n", "even"), ("even", "-n")])
async def test_pages_by_cursor_have_everything_once(log: Log, order: tuple[str, ...], indexed: bool) -> None:
    await log.commit(*(create(f"m{n:02}", n=n // 3, even=n % 2 == 0) for n in range(20)))
    if indexed:
        await log.run(IndexDocuments(pattern=COLLECTION, field="n"))
    order_by = [OrderBy(name.removeprefix("-"), "desc" if name.startswith("-") else "asc") for name in order]
    whole = (await ask_page(log, order_by=order_by)).documents
    assert len(whole) == 20
    found: list[str] = []
    cursor = ""
    while page := (await ask_page(log, order_by=order_by, limit=3, start_after=cursor)).documents:
        found += [document.id for document in page]
        cursor = write_cursor(cursor_of(page[-1].flat(), order_by), cursor_mark(COLLECTION, order_by))
    assert found == [document.id for document in whole]


async def test_an_answer_looks_at_a_bounded_number_of_documents(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_answers, "SCANNED_MAX", 4)
    monkeypatch.setattr(document_answers, "READ_AT_ONCE", 3)
    await log.commit(*(create(f"m{n}", n=n % 3) for n in range(10)))
    found: list[str] = []
    positions = [""]
    while len(positions) < 10:
        page = await ask_page(log, positions[-1], filters=[Condition("n", "==", 0)])
        assert page.scanned <= 4
        found += [document.id for document in page.documents]
        if not page.position:
            break
        positions.append(page.position)
    assert found == ["m0", "m3", "m6", "m9"]
    assert len(positions) == 3


async def test_a_query_by_an_indexed_field_looks_at_nothing_else(log: Log) -> None:
    await log.commit(*(create(f"m{n:03}", n=n % 100, wide=n) for n in range(300)))
    assert (await ask_page(log, filters=[Condition("n", "==", 7)])).scanned == 300
    while not (await log.run(IndexDocuments(pattern="rooms/*/messages", field="n", limit=100))).ready:
        pass
    equal = await ask_page(log, filters=[Condition("n", "==", 7), Condition("wide", ">", 50)])
    assert ([document.id for document in equal.documents], equal.scanned) == (["m107", "m207"], 3)
    ordered = await ask_page(log, filters=[Condition("n", ">=", 98)], order_by=[OrderBy("n", "desc")], limit=4)
    assert ([document["n"] for document in ordered.documents], ordered.scanned) == ([99, 99, 99, 98], 4)
    one_of = await ask_page(log, filters=[Condition("n", "in", [1, 2])])
    assert (len(one_of.documents), one_of.scanned) == (6, 6)


async def test_an_index_follows_every_write(log: Log, other: Log) -> None:
    await log.run(create("before", n=1))
    assert (await log.run(IndexDocuments(pattern=COLLECTION, field="n"))).ready
    # Another process, which wrote before the index was there, keeps it too.
    await other.run(create("m1", n=1))
    await other.commit(create("m2", n=1), update("before", n=2))
    await log.run(delete("m2"))
    for number, expected in ((1, ["m1"]), (2, ["before"]), (3, [])):
        page = await ask_page(log, filters=[Condition("n", "==", number)])
        assert ([document.id for document in page.documents], page.scanned) == (expected, len(expected))


async def test_an_index_that_is_dropped_is_not_used_and_can_come_back(log: Log) -> None:
    await log.commit(create("m1", n=1), create("m2", n=2))
    await log.run(IndexDocuments(pattern=COLLECTION, field="n"))
    assert (await log.run(DropDocumentIndex(pattern=COLLECTION, field="n"))).count == 1
    await log.run(update("m1", n=2))
    assert (await ask_page(log, filters=[Condition("n", "==", 2)])).scanned == 2
    await log.run(IndexDocuments(pattern=COLLECTION, field="n"))
    assert await ids(log, filters=[Condition("n", "==", 1)]) == []
    assert await ids(log, filters=[Condition("n", "==", 2)]) == ["m1", "m2"]
    (status,) = await log.store.ask(ListDocumentIndexes("main"))
    assert (status.pattern, status.field, status.ready) == (COLLECTION, "n", True)


async def test_an_index_that_another_process_drops_is_not_used_here(log: Log, other: Log) -> None:
    await log.commit(create("m1", n=1), create("m2", n=2))
    assert (await ask_page(log, filters=[Condition("n", "==", 2)])).scanned == 2
    await other.run(IndexDocuments(pattern=COLLECTION, field="n"))
    assert (await ask_page(log, filters=[Condition("n", "==", 2)])).scanned == 1
    await other.run(DropDocumentIndex(pattern=COLLECTION, field="n"))
    page = await ask_page(log, filters=[Condition("n", "==", 2)])
    assert ([document.id for document in page.documents], page.scanned) == (["m2"], 2)


async def test_an_index_leads_to_equal_values_and_to_no_others(log: Log) -> None:
    values: dict[str, Any] = {
        "one": 1,
        "fraction": 1.0,
        "true": True,
        "text": "1",
        "zero": 0,
        "minus": -0.0,
        "false": False,
        "null": None,
        "list": [1],
        "large": 2**63 + 1,
        "larger": 2**63 + 2,
    }
    await log.commit(create("missing"), *(create(name, n=value) for name, value in values.items()))
    await log.run(IndexDocuments(pattern=COLLECTION, field="n"))
    for value, expected in (
        (1, ["fraction", "one"]),
        (True, ["true"]),
        ("1", ["text"]),
        (0.0, ["minus", "zero"]),
        (False, ["false"]),
        (None, ["missing", "null"]),
        (2**63 + 1, ["large"]),
    ):
        page = await ask_page(log, filters=[Condition("n", "==", value)])
        assert ([document.id for document in page.documents], page.scanned) == (expected, len(expected))
        assert await ids(log, filters=[Condition("n", "==", value), Condition("id", "!=", "")]) == expected
    assert await ids(log, filters=[Condition("n", "in", [True, "1"])], order_by=[OrderBy("id")]) == ["text", "true"]


LONG = "x" * 1_024


async def declared(log: Log) -> list[tuple[str, str, bool]]:
    """The indexes that there are."""
    return [(one.pattern, one.field, one.ready) for one in await log.store.ask(ListDocumentIndexes("main"))]


async def build(log: Log, field: str, limit: int) -> None:
    """Have an index, and wait until it is ready."""
    while not (await log.run(IndexDocuments(pattern=COLLECTION, field=field, limit=limit))).ready:
        pass


@pytest.mark.parametrize("limit", [1, 100])
async def test_an_index_that_a_value_is_too_long_for_is_taken_back(log: Log, other: Log, limit: int) -> None:
    await log.commit(create("m1", n="short"), create("m2", n=LONG), create("m3", n=1))
    with pytest.raises(InvalidPayload, match=rf"{COLLECTION}/m2 takes 1,025"):
        await build(log, "n", limit)
    assert await declared(log) == []
    for writer, operation in ((log, update("m2", read=True)), (other, update("m2", n=LONG + "y")), (log, delete("m2"))):
        await writer.run(operation)
    assert await ids(log, filters=[Condition("n", "==", 1)]) == ["m3"]
    # Nothing of the first attempt is left.
    await log.run(update("m1", n=2))
    assert (await log.run(IndexDocuments(pattern=COLLECTION, field="n"))).ready
    assert await ids(log, order_by=[OrderBy("n")]) == ["m3", "m1"]


async def test_a_value_that_was_too_long_before_its_index_stops_no_write(log: Log) -> None:
    """As it is while an index is built anew, or in a store where an earlier version left one half made."""
    await log.commit(*(create(f"m{number}", n=LONG, other=0) for number in range(4)), create("a", n=0))
    assert not (await log.run(IndexDocuments(pattern=COLLECTION, field="n", limit=1))).ready
    await log.run(update("m0", other=1))
    await log.run(update("m1", n="short"))
    await log.run(put("m2", n=3))
    await log.run(delete("m3"))
    with pytest.raises(InvalidPayload, match="1,024 bytes"):
        await log.run(update("m1", n=LONG))
    with pytest.raises(InvalidPayload, match="1,024 bytes"):
        await log.run(create("m4", n=LONG))
    assert await ids(log, order_by=[OrderBy("n")]) == ["a", "m2", "m1", "m0"]
    state = (await log.store.ask(FindDocument("main", COLLECTION, "m0"))).flat()  # type: ignore[union-attr]
    await log.run(
        MergeDocuments(collection=COLLECTION, rows=[DocumentRow({"id": "m0", "n": 1, "_deleted": False}, state)])
    )
    await build(log, "n", 1)
    page = await ask_page(log, order_by=[OrderBy("n")], filters=[Condition("n", ">", 0)])
    assert ([document.id for document in page.documents], page.scanned) == (["m0", "m2"], 2)


ORDERS = [("n",), ("-n",), ("w",), ("-w",), ("id",), ("-id",), ("createdAt",)]
FILTERS: list[list[Condition]] = [
    [],
    [Condition("n", ">", 1)],
    [Condition("n", "<=", 3)],
    [Condition("n", "==", 4)],
    [Condition("n", "in", [1, 3, 5])],
    [Condition("n", ">", 1), Condition("n", "<", 5), Condition("w", "!=", 2)],
    [Condition("w", "<", 2)],
    [Condition("n", "==", 2), Condition("w", ">=", 1)],
]


def by(order: tuple[str, ...]) -> list[OrderBy]:
    return [OrderBy(name.removeprefix("-"), "desc" if name.startswith("-") else "asc") for name in order]


async def test_a_cursor_of_any_filter_means_the_same_with_an_index(log: Log) -> None:
    await log.commit(*(create(f"m{n:02}", n=n // 3, w=n % 4) for n in range(21)), create("missing", w="text"))
    whole = [document.flat() for document in (await ask_page(log)).documents]

    def cursor(flat: Fields, order: list[OrderBy]) -> str:
        return write_cursor(cursor_of(flat, order), cursor_mark(COLLECTION, order))

    async def all_answers() -> list[list[str]]:
        return [
            await ids(log, filters=conditions, order_by=order, start_after=cursor(flat, order), limit=1_000)
            for conditions in FILTERS
            for order in map(by, ORDERS)
            for flat in whole[4::6]
        ]

    without = await all_answers()
    for field in ("n", "w", "id"):
        await log.run(IndexDocuments(pattern=COLLECTION, field=field))
        assert await all_answers() == without, field


async def test_a_snapshot_says_up_to_which_commit_it_has_everything(log: Log) -> None:
    await log.run(create("m1"))
    await log.push("between")
    page = await ask_page(log)
    assert (page.lsn, [document.lsn for document in page.documents]) == (2, [1])


async def test_an_answer_may_end_with_what_makes_it_large_enough(log: Log) -> None:
    for number in range(6):
        await log.run(create(f"m{number}", text="ä" * 1_000, n=number))
    found: list[str] = []
    position, query = "", DocumentQuery(collection=COLLECTION)
    for _ in range(6):
        page = await log.store.ask(QueryDocuments("main", query, position, bytes_max=3_000))
        assert len(page.documents) <= 3
        found += [document.id for document in page.documents]
        position = page.position
        if not position:
            break
    assert found == [f"m{number}" for number in range(6)]
    assert len((await log.store.ask(QueryDocuments("main", query, bytes_max=1))).documents) == 1
    assert len((await log.store.ask(QueryDocuments("main", query))).documents) == 6


async def test_what_is_sorted_ends_with_the_first_document_that_is_too_much(log: Log) -> None:
    for number in range(6):
        await log.run(create(f"m{number}", text="ä" * 1_000, n=-number))
    by_number = DocumentQuery(collection=COLLECTION, order_by=[OrderBy("n")])
    page = await log.store.ask(QueryDocuments("main", by_number, bytes_max=5_000))
    assert not page.is_ordered
    assert [document.id for document in page.documents] == ["m5", "m4", "m3"], "two that fit, and one that says more"
    assert len((await log.store.ask(QueryDocuments("main", by_number))).documents) == 6


# ── replicas ──


async def test_replicas_may_read_no_more_than_is_large_enough(log: Log) -> None:
    for number in range(6):
        await log.run(create(f"m{number}", text="ä" * 1_000))
    first = await log.store.ask(ListDocumentsAfter("main", COLLECTION, bytes_max=3_000))
    assert 1 < len(first) <= 3
    last = first[-1]
    rest = await log.store.ask(ListDocumentsAfter("main", COLLECTION, last.lsn, last.id))
    assert [one.id for one in (*first, *rest)] == [f"m{number}" for number in range(6)]
    assert len(await log.store.ask(ListDocumentsAfter("main", COLLECTION, bytes_max=1))) == 1


async def test_replicas_read_in_the_order_of_commits(log: Log, clock: FakeClock) -> None:
    """T3-c."""
    await log.commit(create("b"), create("a"))
    await log.run(create("c"))
    # Times may stand still or go back; commits do not.
    clock.set_by(-10)
    await log.run(update("b", n=1))
    first = await log.store.ask(ListDocumentsAfter("main", COLLECTION, limit=2))
    assert [(one.id, one.lsn) for one in first] == [("a", 1), ("c", 2)]
    rest = await log.store.ask(ListDocumentsAfter("main", COLLECTION, Lsn(2), "c"))
    assert [(one.id, one.version) for one in rest] == [("b", 2)]


def row(name: str, assumed: dict[str, object] | None, **fields: object) -> DocumentRow:
    return DocumentRow({"id": name, **fields}, assumed)


async def test_a_replica_writes_where_it_knows_what_is_here(log: Log) -> None:
    await log.commit(create("known", n=1), create("other", n=1), create("gone", n=1))
    known = {"id": "known", "n": 1, "_deleted": False, "_rev": "1-x"}
    merged = await log.run(
        MergeDocuments(
            collection=COLLECTION,
            rows=[
                row("new", None, n=5),
                row("known", known, n=2),
                row("other", {"id": "other", "n": 0}, n=3),
                row("gone", {"id": "gone", "n": 1}, _deleted=True),
            ],
        )
    )
    assert merged.written == 3
    assert [(one.id, one.data) for one in merged.conflicts] == [("other", {"n": 1})]
    assert await ids(log) == ["known", "new", "other"]


async def test_what_a_replica_sends_twice_is_written_once(log: Log) -> None:
    rows = [row("m1", None, n=1), row("m2", None, _deleted=True)]
    first = await log.run(MergeDocuments(collection=COLLECTION, rows=rows))
    again = await log.run(MergeDocuments(collection=COLLECTION, rows=rows))
    assert (first.written, again.written, again.conflicts) == (2, 0, [])
    assert [change.version for change in await changes(log)] == [1, 1]


async def test_documents_of_databases_do_not_meet(log: Log) -> None:
    await log.run(create("m1", n=1))
    elsewhere = msgspec.structs.replace(create("m1", n=2), database="second")
    assert (await log.run(elsewhere)).version == 1
    assert await ids(log, filters=[Condition("n", "==", 2)]) == []


async def test_documents_are_there_when_the_store_is_opened_again(open_log: OpenLog) -> None:
    log = await open_log()
    await log.run(create("m1", n=1))
    await log.store.close()
    again = await open_log()
    assert await ids(again) == ["m1"]


# ── access rules ──


async def test_access_rules_are_kept_for_each_database_and_every_process_learns_of_them(log: Log) -> None:
    rules = [DocumentRule(pattern="notes", read="owner == auth.sub"), DocumentRule(pattern="*", create="true")]
    version = log.store.access_version()
    await log.run(SetDocumentRules(rules=rules))
    assert await log.store.ask(ListDocumentRules("main")) == rules
    assert await log.store.ask(ListDocumentRules("other")) == []
    assert log.store.access_version() != version
    await log.run(SetDocumentRules(rules=[]))
    assert await log.store.ask(ListDocumentRules("main")) == []


async def test_a_write_is_held_to_its_permit_by_the_document_as_it_is_in_that_commit(log: Log) -> None:
    own = ("owner == auth.sub",)
    permit = Permit(own, own, own, own, '{"sub": "ann"}')

    def held(operation: Any) -> Any:
        return msgspec.structs.replace(operation, permit=permit)

    await log.run(held(create("m1", owner="ann")))
    given_away = Transaction(operations=[update("m1", owner="bob"), held(update("m1", n=1))])
    with pytest.raises(DocumentMissing):
        await log.run(given_away)
    for refused in (create("m2", owner="bob"), put("m1", owner="bob"), update("m1", owner="bob")):
        with pytest.raises(NotAllowed):
            await log.run(held(refused))
    await log.run(put("m1", owner="bob"))
    with pytest.raises(DocumentMissing):
        await log.run(held(delete("m1")))
    with pytest.raises(NotAllowed):
        await log.run(held(put("m1", owner="ann")))
    rows = [DocumentRow({"id": "m3", "owner": "ann"}), DocumentRow({"id": "m4", "owner": "bob"})]
    with pytest.raises(NotAllowed):
        await log.run(held(MergeDocuments(collection=COLLECTION, rows=rows)))
    # A row that was allowed is not there either.
    assert await log.store.ask(FindDocument("main", COLLECTION, "m3")) is None
    assert [change.op for change in await changes(log)] == ["insert", "update"]


async def test_an_answer_ends_with_the_document_that_fills_it_and_goes_on_from_there(log: Log) -> None:
    large = "x" * 250_000
    for first in range(0, 100, 50):
        await log.results(*(put(f"n{number:03}", n=number, text=large) for number in range(first, first + 50)))
    page = await ask_page(log, limit=1_000)
    found = [document.id for document in page.documents]
    assert page.position
    assert PAGE_BYTES_MAX <= sum(len(document.body) for document in page.documents) < PAGE_BYTES_MAX + 260_000
    while page.position:
        page = await ask_page(log, page.position, limit=1_000)
        found += [document.id for document in page.documents]
    assert found == [f"n{number:03}" for number in range(100)]
