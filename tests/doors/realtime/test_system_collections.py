"""Live queries over what Headwater itself knows: the same questions and messages as for documents, and the same rights
as where it is asked for otherwise."""

import asyncio
from typing import Any

import pytest

import headwater
from headwater.doors.site import Site
from headwater.errors import InvalidName
from headwater.model.principal import Principal, Scope
from headwater.model.server_status import LEASE_SECONDS, SHOWN_SECONDS
from headwater.services import documents, system_feed
from headwater.services.roster import Roster
from headwater.services.system_collections import SCOPES, WHOLE, find_row
from headwater.stores.questions import ListPartitions
from tests.contracts.clock import FakeClock
from tests.doors.realtime.pages import Page, until
from tests.waiting import expect_soon_async


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (documents, system_feed):
        monkeypatch.setattr(module, "SYSTEM_SECONDS", 0.01)


def looker(*queues: str, scopes: tuple[Scope, ...] = (Scope.READ_DOCUMENTS, Scope.SUBSCRIBE)) -> Principal:
    return Principal(subject="ann", scopes=frozenset(scopes), queues=queues or ("*",))


async def test_jobs_enter_and_leave_a_live_query_by_their_state(hw: headwater.Headwater, site: Site) -> None:
    await hw.jobs.add(command="true", id="j1", queue="mail")
    page = Page(site)
    await page.subscribe(collection="_jobs", filter='state == "pending"', sendSnapshot=True)
    snapshot = (await page.hear("snapshot"))[0]
    assert [(one["id"], one["queue"]) for one in snapshot["documents"]] == [("j1", "mail")]
    await hw.jobs.add(command="true", id="j2", queue="mail")
    assert (await page.hear("event"))[0]["delta"]["doc"]["path"] == "_jobs/j2"
    await hw.jobs.cancel("j1")
    left = (await page.hear("event", 2))[1]["delta"]
    assert (left["op"], left["doc"]["path"], left["left"]) == ("delete", "_jobs/j1", True)
    page.cut()
    assert site.subscriptions.count() == 0


async def test_the_lag_of_groups_and_dead_letters_are_told_as_they_change(hw: headwater.Headwater, site: Site) -> None:
    orders = hw.queue("orders")
    await orders.push(1)
    await orders.pop(group="billing")
    page = Page(site)
    await page.subscribe("g", collection="_groups", filter='queue == "orders" && lag > 1')
    await page.subscribe("d", collection="_dead_letters")
    await page.subscribe("q", collection="_queues", filter="records >= 3")
    await orders.push_many([2, 3])
    told = await page.hear("event", 2)
    assert {one["subId"] for one in told} == {"g", "q"}
    group = next(one for one in told if one["subId"] == "g")
    assert (group["delta"]["op"], group["delta"]["doc"]["data"]["lag"] > 1) == ("insert", True)
    (message,) = await orders.pop(group="other")
    await message.fail(error="no good", retry=False)
    await until(lambda: any(one["subId"] == "d" for one in page.all("event")))
    letter = [one for one in page.all("event") if one["subId"] == "d"]
    assert letter[0]["delta"]["doc"]["data"]["error"] == "no good"
    page.cut()


async def test_for_one_room_the_others_are_not_looked_at(hw: headwater.Headwater) -> None:
    for room in ("a", "b", "c/d"):
        await hw.room(room).send(1)
    asked: list[str] = []

    class Asking:
        async def ask(self, question: Any) -> Any:
            if isinstance(question, ListPartitions):
                asked.append(question.queue)
            return await hw.store.ask(question)

    row = await find_row(Asking(), "main", "_rooms", "c~1d", hw.clock.now())
    assert row is not None
    assert (row["room"], asked) == ("c/d", ["rooms/c/d"])
    assert await find_row(Asking(), "main", "_rooms", "none", hw.clock.now()) is None
    found = await hw.collection("_rooms").get("b")
    assert found is not None
    assert found.data["room"] == "b"


async def test_rooms_and_their_members_are_seen(hw: headwater.Headwater, site: Site) -> None:
    watching, member = Page(site), Page(site)
    await watching.subscribe(collection="_members", filter='room == "r1"')
    await member.say("join", {"room": "r1", "profile": {"name": "Ann"}})
    await member.hear("join_ack")
    came = (await watching.hear("event"))[0]["delta"]
    assert (came["op"], came["doc"]["data"]["profile"]) == ("insert", {"name": "Ann"})
    rooms = await hw.collection("_rooms").query()
    assert [(one["room"], one["members"]) for one in rooms] == [("r1", 1)]
    member.cut()
    watching.cut()


async def test_who_is_in_several_rooms_is_there_in_each(hw: headwater.Headwater, site: Site) -> None:
    member = Page(site)
    for room in ("r/1", "r:1", "r"):
        await member.say("join", {"room": room})
    await member.hear("join_ack", 3)
    rows = await hw.collection("_members").query()
    assert sorted(row["room"] for row in rows) == ["r", "r/1", "r:1"]
    assert len({row["member"] for row in rows}) == 1
    assert len(await hw.collection("_members").query('room == "r:1"')) == 1
    member.cut()


async def test_every_queue_and_group_has_a_row_whatever_their_names_are(hw: headwater.Headwater) -> None:
    """T4-e: two names make no other two."""
    names = {("a/b", "c"), ("a:b", "c"), ("a", "b:c"), ("a:b", "b/c"), ("a", "b/c")}
    for queue, group in names:
        await hw.queue(queue).push(1)
        await hw.queue(queue).pop(group=group)
    assert {row["queue"] for row in await hw.collection("_queues").query()} >= {"a/b", "a:b", "a"}
    rows = await hw.collection("_groups").query()
    assert {(row["queue"], row["group"]) for row in rows} >= names
    found = await hw.collection("_groups").get("a~1b@c")
    assert found is not None
    assert (found["queue"], found["group"]) == ("a/b", "c")


async def test_a_profile_that_changes_from_true_to_1_is_told(hw: headwater.Headwater, site: Site) -> None:
    watching, member = Page(site), Page(site)
    followed = hw.collection("_members").follow('room == "r1"')
    assert (await anext(followed)).op == "snapshot"
    await watching.subscribe(collection="_members", filter='room == "r1"')
    for number, away in enumerate((True, 1)):
        await member.say("join", {"room": "r1", "profile": {"away": away}})
        came = (await watching.hear("event", number + 1))[number]["delta"]
        assert (came["op"], came["doc"]["data"]["profile"]["away"]) == (("insert", "update")[number], away)
        change = await asyncio.wait_for(anext(followed), 10)
        assert change.op == ("insert", "update")[number]
    member.cut()
    watching.cut()


async def test_only_rows_of_queues_that_are_theirs_are_told(hw: headwater.Headwater, site: Site) -> None:
    """What somebody may not read decides nothing that they are told."""
    page = Page(site, looker("mine.*", "documents/_*"))
    await page.subscribe(collection="_queues", sendSnapshot=True)
    assert (await page.hear("snapshot"))[0]["documents"] == []
    await hw.queue("theirs").push(1)
    await hw.queue("mine.a").push(1)
    assert (await page.hear("event"))[0]["delta"]["doc"]["path"] == "_queues/mine.a"
    await asyncio.sleep(0.05)
    assert len(page.all("event")) == 1
    page.cut()


@pytest.mark.parametrize("collection", SCOPES)
async def test_a_system_collection_needs_what_its_list_needs(site: Site, collection: str) -> None:
    page = Page(site, looker(scopes=(Scope.READ_DOCUMENTS, Scope.PUBLISH)))
    await page.say("subscribe", {"query": {"collection": collection}})
    assert (await page.hear("error"))[0]["code"] == "not_allowed"
    # Jobs and workers are those of all queues.
    some = Page(site, looker("mine.*", "documents/_*", scopes=(Scope.READ_DOCUMENTS, Scope.ADMIN)))
    await some.say("subscribe", {"query": {"collection": collection}})
    if collection in WHOLE:
        assert (await some.hear("error"))[0]["code"] == "not_allowed"
    else:
        await some.hear("subscribe_ack")
    some.cut()
    page.cut()


async def test_nobody_writes_to_a_system_collection_or_goes_on_with_one(hw: headwater.Headwater, site: Site) -> None:
    with pytest.raises(InvalidName):
        await hw.collection("_jobs").create({})
    with pytest.raises(InvalidName):
        await hw.collection("_nothing").query()
    page = Page(site)
    began = await page.subscribe(collection="_queues")
    await page.say("stream", {"collection": "_queues"}, "r")
    assert (await page.hear("error"))[0]["code"] == "invalid_option"
    page.cut()
    again = Page(site)
    await again.say("resume", {"token": began["token"], "lastSeq": began["seq"]})
    assert (await again.hear("resume-ack"))[0]["status"] == "resync-required"
    again.cut()


async def test_the_library_asks_and_follows_them_like_documents(hw: headwater.Headwater) -> None:
    for name in "cab":
        await hw.queue(name).push(1)
    queues = hw.collection("_queues")
    page = await queues.query(order_by="-queue", limit=2)
    assert [one["queue"] for one in page] == ["c", "b"]
    rest = await queues.query(order_by="-queue", limit=2, start_after=page.next_cursor)
    assert [one["queue"] for one in rest] == ["a"]
    found = await queues.get("b")
    assert found is not None
    assert found["records"] == 1
    changes = queues.follow("records > 1")
    assert (await anext(changes)).documents == []
    await hw.queue("b").push(2)
    assert (await anext(changes)).op == "insert"
    await hw.queue("b").delete()
    assert (await anext(changes)).op == "delete"
    await changes.aclose()


def beat_anew(site: Site) -> None:
    """As after ten seconds."""
    site.roster = Roster(site.queues, site.roster._figures)
    site.roster.beat()


async def test_servers_with_clients_are_known_until_they_leave_or_fall_silent(
    hw: headwater.Headwater, site: Site, clock: FakeClock
) -> None:
    """S3-15, S3-18: they register, with heartbeats and a lease."""
    other = Site(hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer, "test")
    page, elsewhere = Page(site), Page(other)
    await page.subscribe(collection="_servers", filter="alive == true", sendSnapshot=True)
    await elsewhere.subscribe()
    for place in (site, other):
        place.realtime._tick()
    await until(lambda: len(page.all("event")) == 2)
    rows = {one.id: one for one in await hw.collection("_servers").query()}
    assert {name: row["subscriptions"] for name, row in rows.items()} == {site.roster.id: 1, other.roster.id: 1}
    assert rows[other.roster.id]["connections"] == 1
    clock.advance(LEASE_SECONDS + 1)
    # This one goes on saying that it is there; the other is killed.
    beat_anew(site)
    await until(lambda: any(one["delta"]["op"] == "delete" for one in page.all("event")))
    silent = {one.id for one in await hw.collection("_servers").query("alive == false")}
    assert other.roster.id in silent
    # Who leaves in good order is off the roster at once.
    elsewhere.cut()

    async def is_gone() -> bool:
        return other.roster.id not in {one.id for one in await hw.collection("_servers").query()}

    await expect_soon_async(is_gone)
    clock.advance(SHOWN_SECONDS)
    beat_anew(site)
    await until(lambda: len([one for one in page.all("event") if one["delta"]["op"] == "insert"]) >= 4)
    page.cut()


async def test_servers_are_for_administrators_of_the_first_database(hw: headwater.Headwater, site: Site) -> None:
    page = Page(site)
    await page.subscribe(collection="_servers")
    site.realtime._tick()
    await page.hear("event")
    assert (await hw.database("tenant").collection("_servers").query()).documents == []
    for principal in (looker(), looker("mail", scopes=(Scope.READ_DOCUMENTS, Scope.ADMIN))):
        refused = Page(site, principal)
        await refused.say("subscribe", {"query": {"collection": "_servers"}})
        assert (await refused.hear("error"))[0]["code"] == "not_allowed"
        refused.cut()
    page.cut()
