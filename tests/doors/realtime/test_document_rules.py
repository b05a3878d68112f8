"""Access rules while somebody follows: the document decides with every change, and rules that change are noticed."""

import msgspec

import headwater
from headwater.doors.site import Site
from headwater.model.document_rules import DocumentRule
from headwater.model.principal import Principal, Scope
from tests.doors.realtime.pages import Page

OWN = DocumentRule(pattern="notes", read="owner == auth.sub || public == true")
READER = Principal(subject="ann", scopes=frozenset({Scope.READ_DOCUMENTS}), rules=(OWN,))


def held_to(*rules: DocumentRule) -> Principal:
    return msgspec.structs.replace(READER, rules=rules)


async def test_each_event_is_held_to_the_rules_by_the_document_before_and_after(
    hw: headwater.Headwater, site: Site
) -> None:
    """T3-e: a filter is no permission."""
    notes = hw.collection("notes")
    await notes.create({"owner": "ann"}, id="mine")
    await notes.create({"owner": "bob"}, id="his")
    page = Page(site, READER)
    await page.subscribe(collection="notes", sendSnapshot=True)
    assert [one["id"] for one in (await page.hear("snapshot"))[0]["documents"]] == ["mine"]
    await notes.update("his", {"n": 1})
    await notes.update("his", {"public": True, "n": 2})
    await notes.update("his", {"public": False, "secret": "x"})
    await notes.delete("mine")
    events = await page.hear("event", 3)
    told = [(one["delta"]["op"], one["delta"]["doc"]["path"], one["delta"].get("left")) for one in events]
    assert told == [("insert", "notes/his", None), ("delete", "notes/his", True), ("delete", "notes/mine", None)]
    assert "secret" not in str(page.peer.heard)
    page.cut()


async def test_a_replica_loses_what_it_may_not_read_any_more(hw: headwater.Headwater, site: Site) -> None:
    notes = hw.collection("notes")
    await notes.create({"owner": "bob"}, id="his")
    await notes.create({"owner": "ann"}, id="mine")
    page = Page(site, READER)
    await page.say("stream", {"collection": "notes", "checkpoint": {"updatedAt": 0, "id": ""}})
    first = (await page.hear("stream-event"))[0]
    assert [one["id"] for one in first["documents"]] == ["mine"]
    await notes.update("mine", {"owner": "bob", "secret": "x"})
    second = (await page.hear("stream-event", 2))[1]
    assert second["documents"] == [{"id": "mine", "_deleted": True}]
    assert "secret" not in str(page.peer.heard)
    page.cut()


async def test_a_stream_from_a_checkpoint_tells_what_left_meanwhile_and_nothing_of_others(
    hw: headwater.Headwater, site: Site
) -> None:
    notes = hw.collection("notes")
    for name, owner in (("mine", "ann"), ("ours", "ann"), ("his", "bob")):
        await notes.create({"owner": owner}, id=name)
    page = Page(site, READER)
    await page.say("stream", {"collection": "notes", "checkpoint": {"updatedAt": 0, "id": ""}})
    checkpoint = (await page.hear("stream-event"))[0]["checkpoint"]
    page.cut()
    await notes.update("mine", {"owner": "bob", "secret": "x"})
    await notes.delete("mine")
    await notes.delete("his")
    await notes.update("ours", {"n": 2})
    again = Page(site, READER)
    await again.say("stream", {"collection": "notes", "checkpoint": checkpoint})
    told = (await again.hear("stream-event"))[0]["documents"]
    assert told == [{"id": "mine", "_deleted": True}, {"id": "ours", "owner": "ann", "n": 2, "_deleted": False}]
    await notes.delete("ours")
    assert (await again.hear("stream-event", 2))[1]["documents"] == [{"id": "ours", "_deleted": True}]
    assert "his" not in str(again.peer.heard)
    again.cut()


async def test_a_stream_that_is_cut_within_a_commit_tells_what_left_with_it(
    hw: headwater.Headwater, site: Site
) -> None:
    notes = hw.collection("notes")
    for name in ("a", "b"):
        await notes.create({"owner": "ann"}, id=name)
    page = Page(site, READER)
    await page.say("stream", {"collection": "notes", "checkpoint": {"updatedAt": 0, "id": ""}})
    await page.hear("stream-event")
    async with hw.transaction() as together:
        together.collection("notes").update("b", {"owner": "bob", "secret": "x"})
        together.collection("notes").update("a", {"n": 2})
    within = (await page.hear("stream-event", 3))[1]
    assert [one["id"] for one in within["documents"]] == ["a"]
    page.cut()
    again = Page(site, READER)
    await again.say("stream", {"collection": "notes", "checkpoint": within["checkpoint"]})
    assert (await again.hear("stream-event"))[0]["documents"] == [{"id": "b", "_deleted": True}]
    again.cut()


async def test_rules_that_change_end_a_subscription_at_once_and_say_what_to_do(
    hw: headwater.Headwater, site: Site
) -> None:
    page = Page(site, READER)
    await page.subscribe("a", collection="notes")
    await page.subscribe("b", collection="orders")
    # What is known of somebody is looked at again once in a second.
    page.session.know_anew(held_to(DocumentRule(pattern="notes", read="true")))
    assert (await page.hear("resync-required"))[0]["subId"] == "a"
    await page.subscribe("c", collection="notes")
    page.session.know_anew(held_to(DocumentRule(pattern="notes", create="true")))
    assert (await page.hear("error"))[0]["code"] == "not_allowed"
    await page.say("subscribe", {"query": {"collection": "notes"}}, "d")
    assert (await page.hear("error", 2))[1]["code"] == "not_allowed"
    # The rules of other collections are no concern of this one.
    await hw.collection("orders").create({}, id="o1")
    assert (await page.hear("event"))[0]["subId"] == "b"
    page.cut()


async def test_a_resume_under_other_rules_begins_anew(hw: headwater.Headwater, site: Site) -> None:
    page = Page(site, READER)
    began = await page.subscribe(collection="notes")
    page.cut()
    again = Page(site, held_to(DocumentRule(pattern="notes", read="true")))
    await again.say("resume", {"token": began["token"], "lastSeq": began["seq"]})
    assert (await again.hear("resume-ack"))[0]["status"] == "resync-required"
    await again.hear("resync-required")
    again.cut()
    same = Page(site, READER)
    await same.say("resume", {"token": began["token"], "lastSeq": began["seq"]})
    assert (await same.hear("resume-ack"))[0]["status"] == "ok"
    same.cut()
