"""Replicas where access rules hold: they come to have what may be read and nothing else, and are told of no id that
never was theirs to know."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headwater.config import Durability
from headwater.log.operations import Clear
from headwater.model.document import changes_queue
from headwater.model.document_rules import DocumentRule
from headwater.services import replication
from tests.doors.office import Office, opened_office

PULL = "/replication/v1/pull"


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with opened_office(tmp_path) as found:
        yield found


class Copy:
    """A replica of the notes, as somebody has it."""

    def __init__(self, office: Office, who: str) -> None:
        self._office = office
        self._who = who
        self.checkpoint: dict[str, Any] | None = None
        self.documents: dict[str, dict[str, Any]] = {}
        self.told: set[str] = set()

    async def pull(self, limit: int = 100) -> list[tuple[str, bool]]:
        """One answer: ids, and whether they are deleted."""
        body = {"collection": "notes", "limit": limit, "checkpoint": self.checkpoint}
        status, answer = await self._office.ask(self._who, "POST", PULL, body)
        assert status == 200, answer
        if answer["documents"]:
            # As RxDB has it: of an answer without documents, the checkpoint is not kept.
            self.checkpoint = answer["checkpoint"]
        for one in answer["documents"]:
            self.told.add(one["id"])
            if one["_deleted"]:
                assert one.keys() == {"id", "_deleted"}
                self.documents.pop(one["id"], None)
            else:
                self.documents[one["id"]] = one
        return [(one["id"], one["_deleted"]) for one in answer["documents"]]

    async def pull_all(self, limit: int = 100) -> None:
        """Until there is no more."""
        while len(await self.pull(limit)) == limit:
            pass


async def test_a_replica_learns_what_became_of_its_copies_and_nothing_of_others(office: Office) -> None:
    notes = office.hw.collection("notes")
    await notes.create({"owner": "bob"}, id="gone-before")
    await notes.delete("gone-before")
    ada = Copy(office, "ada")
    assert await ada.pull() == [("a1", False), ("a2", False)]
    await notes.create({"owner": "bob"}, id="b2")
    await notes.delete("b1")
    await notes.delete("b2")
    assert await ada.pull() == []
    # Given away and then deleted by somebody else, shown and hidden again, deleted: all of it was theirs to know.
    await notes.update("a1", {"owner": "bob", "secret": 1})
    await notes.delete("a1")
    await notes.create({"owner": "bob", "shared": True}, id="b3")
    await notes.update("b3", {"shared": False, "secret": 1})
    await notes.delete("a2")
    assert await ada.pull() == [("a1", True), ("b3", True), ("a2", True)]
    assert await ada.pull() == []


async def test_what_left_before_a_page_and_was_written_behind_it_is_told(office: Office) -> None:
    """The change by which it left lies before the checkpoint of the first page, its row behind it."""
    notes = office.hw.collection("notes")
    for number in range(4):
        await notes.create({"owner": "ada"}, id=f"n{number}")
    ada = Copy(office, "ada")
    await ada.pull_all()
    await notes.update("n0", {"owner": "bob"})
    await notes.update("n1", {"m": 1})
    await notes.update("n2", {"m": 1})
    await notes.update("n0", {"m": 1})
    assert await ada.pull(2) == [("n1", False), ("n2", False)]
    assert await ada.pull(2) == [("n0", True)]
    assert "n0" not in ada.documents


@pytest.mark.parametrize("part_bytes", [replication.PART_BYTES, 1])
@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_a_replica_comes_to_have_what_may_be_read(
    office: Office, seed: int, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "PART_BYTES", part_bytes)
    chance = random.Random(seed)
    notes = office.hw.collection("notes")
    ada, could_read = Copy(office, "ada"), {"a1", "a2"}
    for _ in range(80):
        name = f"n{chance.randrange(8)}"
        if chance.random() < 0.25 and await notes.get(name):
            await notes.delete(name)
        else:
            owner, shared = chance.choice(["ada", "bob", "bob"]), chance.random() < 0.2
            await notes.set(name, {"owner": owner, "shared": shared, "n": chance.random()})
            could_read |= {name} if owner == "ada" or shared else set()
        if chance.random() < 0.3:
            await ada.pull(chance.randrange(1, 4))
    await ada.pull_all(3)
    theirs = {one.id: one["n"] for one in await notes.query('owner == "ada" || shared == true') if one.id[0] == "n"}
    assert {name: one["n"] for name, one in ada.documents.items() if name[0] == "n"} == theirs
    assert ada.told <= could_read


async def test_other_rules_give_a_replica_what_it_could_not_read_before(office: Office) -> None:
    ada = Copy(office, "ada")
    await ada.pull_all()
    await office.hw.set_document_rules([DocumentRule(pattern="notes", read="true")])
    await ada.pull_all(2)
    assert sorted(ada.documents) == ["a1", "a2", "b1"]
    await office.hw.set_document_rules([])
    await office.hw.collection("notes").create({"owner": "bob"}, id="b2")
    await ada.pull_all(2)
    assert sorted(ada.documents) == ["a1", "a2", "b1", "b2"]
    assert await ada.pull() == [], "it does not begin anew for ever"


async def test_a_replica_is_told_when_rules_have_taken_something_from_it(office: Office) -> None:
    """By the documents alone it could not know: what it may not read any more has not changed."""
    ada = Copy(office, "ada")
    await ada.pull_all()
    body = {"collection": "notes", "checkpoint": ada.checkpoint}
    assert "rulesChanged" not in (await office.ask("ada", "POST", PULL, body))[1]
    await office.hw.set_document_rules([DocumentRule(pattern="notes", read='owner == auth.sub && id == "a2"')])
    _, answer = await office.ask("ada", "POST", PULL, body)
    assert [one["id"] for one in answer["documents"]] == ["a2"]
    assert answer["rulesChanged"] is True
    _, again = await office.ask("ada", "POST", PULL, {**body, "checkpoint": answer["checkpoint"]})
    assert again["documents"] == []
    assert "rulesChanged" not in again


async def test_a_pair_cannot_be_used_to_ask_when_a_document_was_written(office: Office) -> None:
    """A checkpoint of the pair alone goes on behind a document: only behind one that may be read."""
    hidden = await office.hw.collection("notes").get("b1")
    assert hidden is not None
    for updated_at in (hidden["updatedAt"], 1):
        body = {"collection": "notes", "checkpoint": {"id": "b1", "updatedAt": updated_at}}
        _, answer = await office.ask("ada", "POST", PULL, body)
        assert [one["id"] for one in answer["documents"]] == ["a1", "a2"]


async def test_where_the_log_is_not_kept_any_more_no_id_is_told_by_guess(office: Office) -> None:
    notes, ada = office.hw.collection("notes"), Copy(office, "ada")
    await ada.pull_all()
    await notes.delete("a1")
    await notes.delete("b1")
    await office.hw.committer.submit(Clear(database="main", queue=changes_queue("notes")), Durability.WRITTEN)
    assert await ada.pull() == []
    assert sorted(ada.documents) == ["a1", "a2"]
