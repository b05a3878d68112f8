"""Live queries over the realtime door: what is told, when, to whom, and what becomes of it when a connection is cut."""

import asyncio
import gc
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any, cast
from zlib import crc32

import msgspec
import pytest

import headwater
from headwater.config import Durability
from headwater.doors.realtime.documents import Follower, followed_by
from headwater.doors.realtime.session import RealtimeSession
from headwater.doors.sessions import Frame
from headwater.doors.site import Site
from headwater.log.operations import Clear
from headwater.model.document import changes_queue
from headwater.model.names import Lsn
from headwater.model.principal import Principal, Scope
from headwater.services import feed, subscriptions
from headwater.services.documents import DocumentList, find_all
from headwater.services.feed import Subscription
from headwater.services.follow import Following, Step
from headwater.services.replication import Checkpoint
from headwater.services.subscriptions import PAGE_DOCUMENTS, Wanted
from headwater.stores.contract import Answerer
from headwater.stores.questions import Question
from headwater.stores.tables import document_answers
from tests.contracts.clock import FakeClock
from tests.doors.conftest import MakeDoor
from tests.doors.live_door import LiveDoor
from tests.doors.realtime.guests import PATIENCE_SECONDS, Desk, joined
from tests.doors.realtime.pages import MESSAGES, Found, Page, until

# Some of these are more than may wait for a client.
LARGE = 200_000
OUTBOX_BYTES = 1_048_576
LOUD = [{"field": "loud", "op": "==", "value": True}]


def ops(events: list[Found]) -> list[tuple[str, str, bool]]:
    return [
        (event["delta"]["op"], event["delta"]["doc"]["path"].rsplit("/")[-1], event["delta"].get("left", False))
        for event in events
    ]


async def test_what_enters_changes_and_leaves_a_set_is_told(hw: headwater.Headwater, page: Page) -> None:
    """S3-25, S3-26, T3-b: what stops to fit is told as well."""
    messages = hw.collection(MESSAGES)
    acked = await page.subscribe(filters=LOUD)
    assert acked["subId"] == "s"
    assert acked["matcherVersion"] == 1
    await messages.create({"loud": False}, id="quiet")
    await messages.create({"loud": True}, id="a")
    await messages.update("a", {"n": 2})
    await messages.update("a", {"loud": False})
    await messages.update("quiet", {"loud": True})
    await messages.delete("quiet")
    events = await page.hear("event", 5)
    assert ops(events) == [
        ("insert", "a", False),
        ("update", "a", False),
        ("delete", "a", True),
        ("insert", "quiet", False),
        ("delete", "quiet", False),
    ]
    assert events[1]["delta"]["doc"] == {"path": f"{MESSAGES}/a", "version": 2, "data": {"loud": True, "n": 2}}
    assert "data" not in events[2]["delta"]["doc"]
    assert [event["seq"] for event in events] == [1, 2, 3, 4, 5]
    assert len({event["partition"] for event in events}) == 1
    assert [event["lsn"] for event in events] == sorted(event["lsn"] for event in events)


@pytest.mark.parametrize(
    ("payload", "named"),
    [
        ({"query": {"collection": MESSAGES, "fliter": "loud"}}, "fliter"),
        ({"query": {"collection": MESSAGES, "limit": 10}}, "limit"),
        ({"query": {"collection": MESSAGES, "orderBy": []}}, "orderBy"),
        ({"query": {"collection": MESSAGES}, "priority": "urgent"}, "priority"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_would_mean_other_documents_is_refused_and_named(
    door: LiveDoor, payload: dict[str, Any], named: str
) -> None:
    with joined(door.url) as ann:
        refused = ann.ask("subscribe", **payload)
        assert (refused["type"], refused["payload"]["code"]) == ("error", "invalid_input")
        assert named in refused["payload"]["message"]


def test_other_fields_that_a_client_adds_are_passed_over(door: LiveDoor) -> None:
    with joined(door.url) as ann:
        known = {"query": {"collection": MESSAGES, "filters": []}, "includeData": True, "priority": "normal"}
        assert ann.ask("subscribe", **known, extensions={"trace": 7})["type"] == "subscribe_ack"


async def test_a_filter_is_cel_text_or_conditions_or_both(hw: headwater.Headwater, page: Page) -> None:
    """S3-2: the language of queries."""
    await page.subscribe(filters=LOUD, filter='by.startsWith("a") && n > 3')
    for by, n in (("ann", 3), ("bob", 5), ("ann", 5)):
        await hw.collection(MESSAGES).create({"loud": True, "by": by, "n": n}, id=f"{by}{n}")
    assert ops(await page.hear("event")) == [("insert", "ann5", False)]


@pytest.mark.parametrize(("include", "has_document"), [(True, True), (False, False)])
async def test_whoever_says_whether_to_include_data_gets_it_as_they_say(
    hw: headwater.Headwater, page: Page, include: bool, has_document: bool
) -> None:
    await page.subscribe(includeData=include)
    await hw.collection(MESSAGES).create({"n": 1}, id="a")
    [event] = await page.hear("event")
    delta = event["delta"]
    assert (delta["op"], delta["type"], delta["id"]) == ("insert", "create", "a")
    assert delta["timestamp"] > 0
    assert delta["doc"] == {"path": f"{MESSAGES}/a", "version": 1}
    assert ("document" in delta) is has_document
    if has_document:
        assert delta["document"]["n"] == 1
        assert delta["document"]["collection"] == MESSAGES


def texts_of(page: Page) -> list[str]:
    """Messages as they go over the wire, from now on."""
    texts: list[str] = []
    send = page.peer.send

    def keep(frame: Frame) -> bool:
        texts.append(str(frame.data))
        return send(frame)

    page.peer.send = keep  # type: ignore[method-assign]
    return texts


async def test_an_event_says_its_version_and_database(hw: headwater.Headwater, page: Page) -> None:
    """S3-30."""
    await page.subscribe()
    await hw.collection(MESSAGES).create({"n": 1}, id="a")
    [event] = await page.hear("event")
    assert (event["version"], event["database"]) == (1, "main")
    assert {"subId", "delta", "seq", "partition", "lsn"} <= event.keys()
    assert "checksum" not in event


async def test_an_event_has_a_checksum_of_its_text_for_who_asks_for_one(
    hw: headwater.Headwater, site: Site, page: Page
) -> None:
    """S3-30: also after a resume, and not for others who hear of the same change."""
    other, again = Page(site), Page(site)
    await other.subscribe()
    token = (await page.subscribe(checksum=True))["token"]
    texts = texts_of(page)
    await hw.collection(MESSAGES).create({"text": "Füße"}, id="a")
    [event] = await page.hear("event")
    text = next(text for text in texts if '"event"' in text)
    covered = text[: text.rindex(',"checksum"')]
    assert event["checksum"] == f"{crc32(covered.encode()):08x}"
    assert "checksum" not in (await other.hear("event"))[0]
    await again.say("resume", {"token": token, "lastSeq": event["seq"] - 1}, "r")
    assert (await again.hear("event"))[0]["checksum"] == event["checksum"]
    other.cut()
    again.cut()


async def test_a_snapshot_comes_first_in_pages(hw: headwater.Headwater, page: Page) -> None:
    messages = hw.collection(MESSAGES)
    for number in range(1_203):
        await messages.create({"loud": number % 2 == 0}, id=f"m{number}")
    await page.subscribe(filters=LOUD, sendSnapshot=True)
    await until(lambda: page.all("snapshot") and not page.all("snapshot")[-1]["more"])
    pages = page.all("snapshot")
    assert len(pages) > 1
    documents = [document for one in pages for document in one["documents"]]
    assert {one["id"] for one in documents} == {f"m{number}" for number in range(0, 1_203, 2)}
    assert documents[0]["version"] == 1
    await messages.update("m1", {"loud": True})
    assert ops(await page.hear("event")) == [("insert", "m1", False)]


async def test_a_client_that_takes_a_snapshot_slowly_gets_it_page_by_page(hw: headwater.Headwater, page: Page) -> None:
    for number in range(PAGE_DOCUMENTS + 1):
        await hw.collection(MESSAGES).create({"loud": True}, id=f"m{number}")
    page.peer.waiting = 1
    await page.subscribe(sendSnapshot=True)
    await asyncio.sleep(0.1)
    assert not page.all("snapshot")
    page.peer.waiting = 0
    pages = await page.hear("snapshot", 2)
    assert [one["more"] for one in pages] == [True, False]


@pytest.mark.parametrize("is_indexed", [False, True])
async def test_a_snapshot_of_large_documents_comes_in_small_parts(
    hw: headwater.Headwater, page: Page, is_indexed: bool
) -> None:
    """What waits for a client that does not read is in memory: one message with all of them would be, too."""
    messages = hw.collection(MESSAGES)
    if is_indexed:
        # Found along an index, they come in another order than that of the snapshot.
        await messages.index("loud")
    for number in range(12):
        await messages.create({"loud": True, "text": "x" * LARGE}, id=f"m{number:02}")
    texts = texts_of(page)
    await page.subscribe(filters=LOUD, sendSnapshot=True)
    await until(lambda: any(not one["more"] for one in page.all("snapshot")))
    assert max(map(len, texts)) < OUTBOX_BYTES
    pages = page.all("snapshot")
    assert [document["id"] for one in pages for document in one["documents"]] == [
        f"m{number:02}" for number in range(12)
    ]
    assert [one["more"] for one in pages] == [True] * (len(pages) - 1) + [False]
    await messages.update("m03", {"n": 1})
    assert ops(await page.hear("event")) == [("update", "m03", False)]


async def test_what_waits_for_a_client_that_does_not_take_its_snapshot_is_bounded(
    hw: headwater.Headwater, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "WAITING_BYTES_MAX", 10_000)
    page.peer.waiting = 1
    await page.subscribe(sendSnapshot=True)
    for number in range(4):
        await hw.collection(MESSAGES).create({"text": "x" * 4_000}, id=f"m{number}")
    [told] = await page.hear("resync-required")
    assert told["reason"] == feed.BEHIND


async def test_what_is_gone_before_its_page_of_a_snapshot_is_read_is_not_told(
    hw: headwater.Headwater, site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = hw.collection(MESSAGES)
    for name in "abcdef":
        await messages.create({"n": 1}, id=name)
    monkeypatch.setattr(subscriptions, "PAGE_DOCUMENTS", 2)
    read = 0

    async def slow(*asked: Any) -> DocumentList:
        nonlocal read
        found = await find_all(*asked)
        read += 1
        if read == 1:
            await messages.delete("a")
            await messages.delete("c")
            await messages.update("e", {"n": 2})
            await messages.create({"n": 1}, id="dd")
            await messages.create({"n": 1}, id="g")
            await messages.delete("g")
        return found

    monkeypatch.setattr(subscriptions, "find_all", slow)
    await page.subscribe(sendSnapshot=True)
    await until(lambda: page.all("snapshot") and not page.all("snapshot")[-1]["more"])
    documents = [(one["id"], one["version"]) for part in page.all("snapshot") for one in part["documents"]]
    assert documents == [("a", 1), ("b", 1), ("d", 1), ("dd", 1), ("e", 2), ("f", 1)]
    await messages.delete("e")
    await messages.create({"n": 1}, id="c")
    assert ops(await page.hear("event", 3)) == [("delete", "a", False), ("delete", "e", False), ("insert", "c", False)]
    assert len(page.all("event")) == 3


class Interrupted:
    """A store in which something happens between two answers to one question."""

    def __init__(self, store: Answerer, happening: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._happening = happening

    async def ask(self, question: Question[Any]) -> Any:
        found = await self._store.ask(question)
        await self._happening()
        return found


async def test_what_is_gone_between_the_answers_of_one_page_is_not_told(
    hw: headwater.Headwater, site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = hw.collection(MESSAGES)
    for name in "abcdef":
        await messages.create({"n": 1}, id=name)
    monkeypatch.setattr(document_answers, "SCANNED_MAX", 2)
    answers = 0

    async def happen() -> None:
        nonlocal answers
        answers += 1
        if answers == 1:
            await messages.delete("a")
            await messages.delete("d")
            await messages.update("e", {"m": 1})
            await messages.update("e", {"n": 2})
            await messages.create({"n": 1}, id="dd")
            await messages.delete("dd")

    async def asked_in_bites(store: Answerer, *rest: Any) -> DocumentList:
        return await find_all(cast(Answerer, Interrupted(store, happen)), *rest)

    monkeypatch.setattr(subscriptions, "find_all", asked_in_bites)
    await page.subscribe(sendSnapshot=True, filter="n == 1")
    await until(lambda: page.all("snapshot") and not page.all("snapshot")[-1]["more"])
    assert [one["id"] for part in page.all("snapshot") for one in part["documents"]] == ["a", "b", "c", "f"]
    await messages.create({"n": 1}, id="d")
    await messages.delete("d")
    told = ops(await page.hear("event", 7))
    assert told == [
        ("delete", "a", False),
        # As it is to who was not shown it, although it was among them before.
        ("insert", "e", False),
        ("delete", "e", True),
        ("insert", "dd", False),
        ("delete", "dd", False),
        ("insert", "d", False),
        ("delete", "d", False),
    ]
    assert answers > 1


async def test_what_is_written_while_a_snapshot_is_read_comes_behind_it(
    hw: headwater.Headwater, site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3-d: neither in the gap between the two, nor in both."""
    messages = hw.collection(MESSAGES)
    await messages.create({"n": 1}, id="a")

    async def slow(*asked: Any) -> DocumentList:
        found = await find_all(*asked)
        await messages.update("a", {"n": 2})
        await messages.create({"n": 1}, id="b")
        await until(lambda: site.subscriptions.feeds()[0].seq == 2)
        return found

    monkeypatch.setattr(subscriptions, "find_all", slow)
    await page.subscribe(sendSnapshot=True)
    [snapshot] = await page.hear("snapshot")
    assert ({one["id"]: one["version"] for one in snapshot["documents"]}, snapshot["seq"]) == ({"a": 1}, 0)
    assert ops(await page.hear("event", 2)) == [("update", "a", False), ("insert", "b", False)]
    await messages.delete("b")
    assert ops(await page.hear("event", 3))[2:] == [("delete", "b", False)]


class Mirror:
    """What a client knows of a set of documents, by what it is told."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.last_seq = -1
        self.seen: set[int] = set()
        self.was_cut = False

    def take(self, message: Found) -> None:
        payload = message["payload"]
        if message["type"] == "subscribe_ack":
            self.last_seq = max(self.last_seq, payload["seq"])
        if message["type"] == "snapshot":
            self.versions.update({one["id"]: one["version"] for one in payload["documents"]})
            self.last_seq = max(self.last_seq, -1 if payload["more"] else payload["seq"])
        if message["type"] == "event":
            assert payload["seq"] not in self.seen, "told twice"
            assert payload["seq"] > self.last_seq, "out of order"
            self.seen.add(payload["seq"])
            self.last_seq = payload["seq"]
            doc = payload["delta"]["doc"]
            name = doc["path"].rsplit("/")[-1]
            if payload["delta"]["op"] == "delete":
                self.versions.pop(name, None)
            else:
                # Once more what is known is what a cut may bring, something older never.
                assert doc["version"] >= self.versions.get(name, 0) + (not self.was_cut), "went back"
                self.versions[name] = doc["version"]


def known_to(page: Page) -> dict[str, int]:
    mirror = Mirror()
    for message in page.peer.heard:
        mirror.take(message)
    return mirror.versions


async def write_at_random(hw: headwater.Headwater, chance: random.Random, count: int) -> None:
    messages = hw.collection(MESSAGES)
    for _ in range(count):
        name, loud = f"m{chance.randrange(12)}", chance.random() < 0.5
        if chance.random() < 0.2 and await messages.get(name):
            await messages.delete(name)
        else:
            await messages.set(name, {"loud": loud, "n": chance.random()})
        if chance.random() < 0.5:
            await asyncio.sleep(0)


async def meant(hw: headwater.Headwater) -> dict[str, int]:
    return {one.id: one.version for one in await hw.collection(MESSAGES).query("loud", limit=1_000)}


@pytest.mark.parametrize("seed", range(8))
async def test_between_snapshot_and_changes_nothing_is_missed_and_nothing_comes_twice(
    hw: headwater.Headwater, site: Site, seed: int
) -> None:
    """S3-9, S3-10, T3-d: in the order of the partition, each once."""
    chance = random.Random(seed)
    await write_at_random(hw, chance, 30)
    writing = asyncio.ensure_future(write_at_random(hw, chance, 120))
    pages: list[Page] = []
    for number in range(6):
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        pages.append(Page(site))
        await pages[-1].subscribe(filters=LOUD, sendSnapshot=True, id=f"s{number}")
    await writing
    expected = await meant(hw)
    await until(lambda: all(known_to(page) == expected for page in pages))
    assert [known_to(page) for page in pages] == [expected] * len(pages)
    for page in pages:
        page.cut()


@pytest.mark.parametrize("seed", range(8))
async def test_a_client_whose_connection_is_cut_again_and_again_misses_nothing(
    hw: headwater.Headwater, site: Site, seed: int
) -> None:
    """S3-7, S3-29, S3-34: at least once, with a place to go on from."""
    chance = random.Random(seed)
    await write_at_random(hw, chance, 10)
    mirror, page = Mirror(), Page(site)
    acked = await page.subscribe(filters=LOUD, sendSnapshot=True)
    heard = 0
    writing = asyncio.ensure_future(write_at_random(hw, chance, 200))
    while not writing.done():
        for _ in range(chance.randrange(40)):
            await asyncio.sleep(0)
        # Of what was sent when the connection was cut, some is lost.
        await page.hear("resume-ack" if heard else "snapshot")
        arrived = page.peer.heard[: chance.randrange(1, len(page.peer.heard) + 1)] if heard else list(page.peer.heard)
        page.cut()
        for message in arrived:
            mirror.take(message)
        mirror.was_cut = True
        heard += len(arrived)
        page = Page(site)
        await page.say("resume", {"token": acked["token"], "lastSeq": mirror.last_seq}, "r")
    await writing
    expected = await meant(hw)

    def after_all() -> dict[str, int]:
        last = Mirror()
        last.versions, last.last_seq, last.seen = dict(mirror.versions), mirror.last_seq, set(mirror.seen)
        last.was_cut = True
        for message in page.peer.heard:
            last.take(message)
        return last.versions

    await until(lambda: after_all() == expected)
    assert (await page.hear("resume-ack"))[0] == {
        "subId": "s",
        "status": "ok",
        "fromSeq": mirror.last_seq + 1,
        "matcherVersion": 1,
    }
    page.cut()


async def test_a_resume_tells_each_change_once_however_far_others_took_the_log_on(
    hw: headwater.Headwater, site: Site
) -> None:
    """The end of the collection's log is not the end of the log."""
    first = Page(site)
    began = await first.subscribe()
    first.cut()
    for name in ("a", "b"):
        await hw.collection(MESSAGES).create({}, id=name)
        await hw.queue("others").push({})
    for last_seq, expected in ((-1, [0, 1]), (0, [1]), (1, [])):
        page = Page(site)
        await page.say("resume", {"token": began["token"], "lastSeq": last_seq}, "r")
        assert (await page.hear("resume-ack"))[0]["status"] == "ok"
        await hw.queue("others").push({})
        marker = await hw.collection("others").create({})
        await page.subscribe("o", collection="others", sendSnapshot=True)
        await page.hear("snapshot")
        assert [one["seq"] for one in page.all("event")] == expected
        await hw.collection("others").update(marker.id, {"n": 1})
        await until(lambda page=page: any(one["subId"] == "o" for one in page.all("event")))  # type: ignore[misc]
        assert [one["seq"] for one in page.all("event") if one["subId"] == "s"] == expected
        page.cut()


async def test_what_is_not_kept_any_more_is_said_and_not_skipped(hw: headwater.Headwater, site: Site) -> None:
    """S3-8, S3-11."""
    page = Page(site)
    acked = await page.subscribe()
    page.cut()
    messages = hw.collection(MESSAGES)
    for number in range(5):
        await messages.create({"n": number}, id=f"m{number}")
    await hw.committer.submit(Clear(database="main", queue=changes_queue(MESSAGES)), Durability.WRITTEN)
    again = Page(site)
    await again.say("resume", {"token": acked["token"], "lastSeq": acked["seq"]}, "r")
    [resync] = await again.hear("resync-required")
    assert resync["subId"] == "s"
    assert again.all("resume-ack")[0]["status"] == "resync-required"
    await messages.create({}, id="later")
    await asyncio.sleep(0.05)
    assert not again.all("event")
    again.cut()


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("meanwhile", [1, 250])
async def test_the_first_to_follow_a_collection_misses_nothing_that_is_written_while_they_begin(
    hw: headwater.Headwater, page: Page, site: Site, monkeypatch: pytest.MonkeyPatch, before: int, meanwhile: int
) -> None:
    """T3-d: changes follow the `seq` of the answer without a gap."""
    messages, follow = hw.collection(MESSAGES), site.queues.followers.follow

    async def follow_while_others_write(*arguments: Any, **options: Any) -> Following:
        for _ in range(meanwhile):
            await messages.create({})
        return await follow(*arguments, **options)

    for _ in range(before):
        await messages.create({})
    monkeypatch.setattr(site.queues.followers, "follow", follow_while_others_write)
    acked = await page.subscribe()
    await messages.create({})
    [event] = await page.hear("event")
    assert (acked["seq"], event["seq"]) == (before + meanwhile - 1, before + meanwhile)


async def test_changes_that_were_dropped_before_they_were_told_are_not_passed_over(page: Page, site: Site) -> None:
    """S3-11: a gap is told, nothing is delivered over it."""
    await page.subscribe(id="one")
    await page.subscribe(id="two", filters=LOUD)
    feed = page.session.kept["documents"].by_id["one"].feed
    await feed.take(Step([], Lsn(9), resync=Lsn(9)))
    assert sorted(told["subId"] for told in await page.hear("resync-required", 2)) == ["one", "two"]
    assert site.subscriptions.count() == 0


async def test_a_place_that_the_log_never_reached_is_answered_with_resync(site: Site) -> None:
    page = Page(site)
    acked = await page.subscribe()
    page.cut()
    again = Page(site)
    await again.say("resume", {"token": acked["token"], "lastSeq": 500}, "r")
    assert (await again.hear("resync-required"))[0]["subId"] == "s"
    again.cut()


async def test_a_forged_a_foreign_and_an_old_token_are_refused(
    hw: headwater.Headwater, site: Site, clock: FakeClock
) -> None:
    desk = Desk("ann", "bob")
    ann, bob = Page(site, desk=desk), Page(site, desk=desk)
    await ann.say("auth", {"token": "hw_ann"}, "1")
    await bob.say("auth", {"token": "hw_bob"}, "1")
    token = (await ann.subscribe())["token"]
    await ann.say("unsubscribe", {"id": "s"}, "u")
    unsigned = ("AAAA" if token[:4] != "AAAA" else "BBBB") + token[4:]
    forged = ["", "x", "äöü", unsigned, token[:-4], token[4:], "A" * 100_000]
    for page, tokens in ((ann, forged), (bob, [*forged, token])):
        for number, wrong in enumerate(tokens):
            await page.say("resume", {"token": wrong, "lastSeq": -1}, f"r{number}")
            assert (await page.hear("error", number + 1))[-1]["code"] == "invalid_option"
    clock.advance(25 * 3_600)
    await ann.say("resume", {"token": token, "lastSeq": -1}, "late")
    assert (await ann.hear("error", len(forged) + 1))[-1]["code"] == "invalid_option"
    ann.cut()
    bob.cut()


async def test_a_right_that_is_withdrawn_ends_the_subscription_before_the_next_change(
    hw: headwater.Headwater, site: Site
) -> None:
    reader = Principal(subject="ann", scopes=frozenset({Scope.READ_DOCUMENTS}))
    page = Page(site, reader)
    await page.subscribe()
    await hw.collection(MESSAGES).create({}, id="a")
    await page.hear("event")
    page.session.principal = Principal(subject="ann", scopes=frozenset({Scope.PUBLISH}))
    await hw.collection(MESSAGES).create({}, id="b")
    assert (await page.hear("error"))[0]["code"] == "not_allowed"
    await hw.collection(MESSAGES).create({}, id="c")
    await asyncio.sleep(0.05)
    assert len(page.all("event")) == 1
    assert site.subscriptions.count() == 0
    page.cut()


@pytest.mark.parametrize(
    "principal",
    [
        Principal(scopes=frozenset({Scope.PUBLISH})),
        Principal(scopes=frozenset({Scope.READ_DOCUMENTS}), queues=("documents/other",)),
    ],
)
async def test_who_may_not_read_a_collection_may_not_follow_it(site: Site, principal: Principal) -> None:
    page = Page(site, principal)
    await page.say("subscribe", {"query": {"collection": MESSAGES}})
    assert (await page.hear("error"))[0]["code"] == "not_allowed"
    await page.say("stream", {"collection": MESSAGES})
    assert (await page.hear("error", 2))[1]["code"] == "not_allowed"
    page.cut()


async def test_a_filter_may_speak_of_who_asks(hw: headwater.Headwater, site: Site) -> None:
    pages = {}
    for name in ("ann", "bob", ""):
        pages[name] = Page(site, Principal(subject=name, scopes=frozenset({Scope.READ_DOCUMENTS})))
        await pages[name].subscribe(filter="to == auth.sub", sendSnapshot=True)
        # What is made from here on is an event, not part of what was there.
        await pages[name].hear("snapshot")
    await hw.collection(MESSAGES).create({"to": "ann"}, id="for-ann")
    await hw.collection(MESSAGES).create({"to": None}, id="for-nobody")
    await hw.collection(MESSAGES).create({"to": "bob"}, id="for-bob")
    assert ops(await pages["ann"].hear("event")) == [("insert", "for-ann", False)]
    assert ops(await pages["bob"].hear("event")) == [("insert", "for-bob", False)]
    assert not pages[""].all("event")
    for page in pages.values():
        page.cut()


async def test_a_snapshot_of_a_filter_that_speaks_of_who_asks_has_theirs_alone(
    hw: headwater.Headwater, site: Site
) -> None:
    for to in ("ann", "bob"):
        await hw.collection(MESSAGES).create({"to": to}, id=f"for-{to}")
    page = Page(site, Principal(subject="ann", scopes=frozenset({Scope.READ_DOCUMENTS})))
    await page.subscribe(filter="to == auth.sub", sendSnapshot=True)
    [snapshot] = await page.hear("snapshot")
    assert [one["id"] for one in snapshot["documents"]] == ["for-ann"]
    page.cut()


async def test_what_is_unsubscribed_is_told_no_more(hw: headwater.Headwater, page: Page, site: Site) -> None:
    """S3-28."""
    await page.subscribe(id="one")
    await page.subscribe(id="two")
    await page.say("unsubscribe", {"id": "one"}, "u")
    assert (await page.hear("unsubscribe_ack"))[0] == {"status": "ok"}
    await hw.collection(MESSAGES).create({}, id="a")
    assert [event["subId"] for event in await page.hear("event")] == ["two"]
    await page.say("unsubscribe", {"id": "two"}, "u")
    await page.say("unsubscribe", {"id": "never"}, "u")
    assert (await page.hear("unsubscribe_ack", 3))[2] == {"status": "not_found"}
    assert site.subscriptions.count() == 0


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"collection": "rooms/r1"}, "invalid_name"),
        ({"collection": MESSAGES, "filter": "a =="}, "invalid_filter"),
        ({"collection": MESSAGES, "filter": "(" * 9_000}, "filter_too_large"),
        ({"collection": MESSAGES, "filters": [{"field": "a", "op": "~", "value": 1}]}, "invalid_filter"),
        ({"collection": MESSAGES, "filters": [{"field": "a"}]}, "invalid_input"),
        ({}, "invalid_input"),
    ],
)
async def test_a_subscription_that_makes_no_sense_is_refused(page: Page, query: Found, code: str) -> None:
    await page.say("subscribe", {"query": query})
    assert (await page.hear("error"))[0]["code"] == code


async def test_one_id_is_one_subscription_and_the_last_that_was_asked_for_counts(
    hw: headwater.Headwater, page: Page
) -> None:
    await page.subscribe(filters=LOUD)
    await page.say("subscribe", {"query": {"collection": MESSAGES, "filter": "n > 3"}})
    await page.hear("subscribe_ack", 2)
    await hw.collection(MESSAGES).create({"loud": True, "n": 1}, id="a")
    await hw.collection(MESSAGES).create({"loud": True, "n": 5}, id="b")
    await page.hear("event")
    # It is told once: nothing is left of the first.
    await page.say("unsubscribe", {"id": "s"}, "u")
    await page.hear("unsubscribe_ack")
    assert ops(page.all("event")) == [("insert", "b", False)]
    assert not page.all("error")


async def test_an_ack_of_what_is_not_followed_changes_nothing(page: Page) -> None:
    await page.subscribe()
    await page.say("ack", {"subId": "other", "seq": 4}, "a")
    assert not page.all("error")
    assert page.session.kept["documents"].followers["s"].window is None
    await page.say("ack", {"seq": 2}, "a")
    assert page.session.kept["documents"].followers["s"].window is not None


async def test_one_change_is_encoded_once_for_all_who_follow(hw: headwater.Headwater, site: Site) -> None:
    """S3-12."""
    pages = [Page(site) for _ in range(20)]
    for page in pages:
        await page.subscribe(filters=LOUD)
    assert site.subscriptions.count() == 1
    await hw.collection(MESSAGES).create({"loud": True}, id="a")
    for page in pages:
        assert ops(await page.hear("event")) == [("insert", "a", False)]
        page.cut()
    assert site.subscriptions.count() == 0


# ── streams ──


async def test_a_stream_of_large_documents_comes_in_small_parts(hw: headwater.Headwater, page: Page) -> None:
    for number in range(12):
        await hw.collection(MESSAGES).create({"text": "x" * LARGE}, id=f"m{number:02}")
    texts = texts_of(page)
    await page.say("stream", {"collection": MESSAGES, "checkpoint": {"updatedAt": 0, "id": ""}})
    await until(lambda: sum(len(one["documents"]) for one in page.all("stream-event")) == 12)
    assert max(map(len, texts)) < OUTBOX_BYTES
    events = page.all("stream-event")
    assert [one["id"] for event in events for one in event["documents"]] == [f"m{number:02}" for number in range(12)]
    await hw.collection(MESSAGES).delete("m05")
    [last] = (await page.hear("stream-event", len(events) + 1))[-1]["documents"]
    assert (last["id"], last["_deleted"]) == ("m05", True)


async def test_a_stream_tells_replicas_of_all_that_is_written_after_a_checkpoint(
    hw: headwater.Headwater, page: Page
) -> None:
    """S3-27, T3-c."""
    messages = hw.collection(MESSAGES)
    await messages.create({"n": 1}, id="a")
    await messages.create({"n": 1}, id="b")
    await page.say("stream", {"collection": MESSAGES, "checkpoint": {"updatedAt": 0, "id": ""}}, "live")
    first = (await page.hear("stream-event"))[0]
    assert first["streamId"] == "live"
    assert [one["id"] for one in first["documents"]] == ["a", "b"]
    await messages.update("a", {"n": 2})
    await messages.delete("b")
    events = await page.hear("stream-event", 3)
    assert events[1]["documents"] == [{"id": "a", "n": 2, "_deleted": False}]
    assert events[2]["documents"][0]["_deleted"] is True
    behind = events[1]["checkpoint"]
    await page.say("unsubscribe", {"id": "live"}, "u")
    await page.say("stream", {"collection": MESSAGES, "checkpoint": behind}, "again")
    last = (await page.hear("stream-event", 4))[3]
    assert [(one["id"], one["_deleted"]) for one in last["documents"]] == [("b", True)]


async def test_a_stream_that_is_cut_within_a_commit_goes_on_with_the_rest_of_it(
    hw: headwater.Headwater, page: Page, site: Site
) -> None:
    """T3-c: independent writers share a commit, in any order of ids; one document may be written twice in it."""
    messages = hw.collection(MESSAGES)
    await messages.create({"n": 0}, id="c")
    await page.say("stream", {"collection": MESSAGES}, "live")
    await until(lambda: "live" in followed_by(page.session).by_id)
    async with hw.transaction() as together:
        for name in ("z", "a", "m", "a", "c"):
            together.collection(MESSAGES).set(name, {"n": name})
        together.collection(MESSAGES).delete("m")
    events = await page.hear("stream-event", 4)
    told = [(one["id"], one["_deleted"]) for event in events for one in event["documents"]]
    assert told == [("a", False), ("c", False), ("m", True), ("z", False)]
    replica = site.subscriptions.replica(Wanted(database="main", collection=MESSAGES), None)
    for count, event in enumerate(events, 1):
        reached = msgspec.convert(event["checkpoint"], Checkpoint)
        pulled = await replica.pull(reached, 100, bytes_max=1_000_000)
        assert [(one.id, one.deleted) for one in pulled.documents] == told[count:]


# ── over a real connection ──


def write(door: LiveDoor, name: str, data: Found) -> None:
    writing = door.hw.collection(MESSAGES).set(name, data)
    asyncio.run_coroutine_threadsafe(writing, door.loop).result(PATIENCE_SECONDS)


def test_a_page_follows_what_is_written(door: LiveDoor) -> None:
    """S3-1, S3-23: one port, one envelope."""
    with joined(door.url) as reader:
        acked = reader.ask("subscribe", query={"collection": MESSAGES, "filters": LOUD}, sendSnapshot=True)
        assert acked["type"] == "subscribe_ack"
        assert reader.until("snapshot")["documents"] == []
        write(door, "a", {"loud": True})
        write(door, "b", {"loud": False})
        write(door, "a", {"loud": False})
        events = [reader.until("event") for _ in range(2)]
    assert ops(events) == [("insert", "a", False), ("delete", "a", True)]


def test_a_page_resumes_at_another_server_of_the_store(make_door: MakeDoor) -> None:
    """S3-18, S3-19: what moves between servers is the place in the log, without a gap."""
    first, second = make_door(), make_door()
    with joined(first.url) as reader:
        token = reader.ask("subscribe", query={"collection": MESSAGES})["payload"]["token"]
    write(first, "a", {"n": 1})
    with joined(second.url) as again:
        assert again.ask("resume", token=token, lastSeq=-1)["payload"]["status"] == "ok"
        assert ops([again.until("event")]) == [("insert", "a", False)]
        write(first, "a", {"n": 2})
        assert ops([again.until("event")]) == [("update", "a", False)]


def test_who_only_listens_follows_by_server_sent_events_and_comes_back(door: LiveDoor) -> None:
    """S3-33."""
    address = f"/realtime/v1/databases/default/sse?collection={MESSAGES}&filter=loud"
    with door.client() as client:
        with client.stream("GET", address) as heard:
            lines = heard.iter_lines()
            assert next(line for line in lines if line.startswith("event:")) == "event: subscribe_ack"
            write(door, "a", {"loud": True})
            write(door, "b", {"loud": False})
            seen = next(line for line in lines if line.startswith("id:")).removeprefix("id: ")
            data = next(line for line in lines if line.startswith("data:")).removeprefix("data: ")
            delta = json.loads(data)["payload"]["delta"]
            assert (delta["op"], delta["doc"]["data"]) == ("insert", {"loud": True})
            # As other clients read it, who have no way to ask for it.
            assert (delta["type"], delta["id"], delta["document"]["loud"]) == ("create", "a", True)
        write(door, "a", {"loud": False})
        with client.stream("GET", address, headers={"last-event-id": seen}) as again:
            lines = again.iter_lines()
            place, _, identity = seen.partition("@")
            assert next(line for line in lines if line.startswith("id:")) == f"id: {int(place) + 2}@{identity}"
            assert '"left":true' in next(line for line in lines if line.startswith("data:"))
        for wrong, status in ((f"{address}&colour=red", 400), (address.replace("default", "foreign"), 403)):
            assert client.get(wrong).status_code == status


async def test_what_a_client_followed_is_gone_with_it_and_waits_for_no_collector(
    hw: headwater.Headwater, site: Site
) -> None:
    """A server with many clients looks for cycles seldom, and stands still for all of them when it does."""

    def held() -> int:
        return sum(isinstance(one, Follower | Subscription | RealtimeSession) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = held()
        page = Page(site)
        await page.subscribe("plain")
        await page.subscribe("ended", filter="loud == true")
        await hw.collection(MESSAGES).create({"loud": True})
        await page.hear("event", 2)
        await page.say("unsubscribe", {"id": "ended"}, "u")
        await page.hear("unsubscribe_ack")
        assert held() == before + 3
        page.cut()
        del page
        await until(lambda: held() == before)
    finally:
        gc.enable()


async def test_a_number_that_no_filter_compares_with_ends_nothing_else(hw: headwater.Headwater, site: Site) -> None:
    page = Page(site)
    await page.subscribe("first")
    large = {"field": "n", "op": "==", "value": 10**400}
    await page.say("subscribe", {"query": {"collection": MESSAGES, "filters": [large]}}, "large")
    assert (await page.hear("error"))[0]["code"] == "invalid_filter"
    await hw.collection(MESSAGES).create({"n": 10**400}, id="m1")
    assert (await page.hear("event"))[0]["delta"]["doc"]["path"] == f"{MESSAGES}/m1"
    page.cut()
