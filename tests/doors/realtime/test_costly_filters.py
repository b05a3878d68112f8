"""Filters that take long: the loop turns meanwhile, databases take turns, and what is too much is refused."""

import asyncio
from typing import Any

import msgspec
import pytest

import headwater
from headwater import filters
from headwater.doors.realtime.limits import RealtimeLimits
from headwater.doors.site import Site
from headwater.errors import FilterTooLarge
from headwater.filters import parse, predicate, weight_of
from headwater.model.principal import OWNER
from headwater.services.feed import SEARCHED_BYTES_MAX
from headwater.services.matching import Matcher
from headwater.services.subscriptions import Wanted
from headwater.services.turns import QUICK_COST, SLICE_COST, Spending, Turns
from tests.doors.realtime.pages import MESSAGES, Found, Page, until

HEAVY = 8


def searching(number: int, count: int = HEAVY) -> str:
    """A filter that looks through a text so many times, and finds nothing."""
    return " || ".join(f'p.contains("q{number}x{one}")' for one in range(count))


async def turns_until(done: "asyncio.Future[Any]") -> int:
    turns = 0
    while not done.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_the_loop_turns_while_a_change_is_matched(hw: headwater.Headwater, site: Site) -> None:
    page = Page(site)
    for number in range(20):
        await page.subscribe(f"s{number}", filter=searching(number))
    await page.subscribe("all")
    [feed] = site.subscriptions.feeds()
    text = "q" * 200_000
    await hw.collection(MESSAGES).set("m", {"p": text})
    await page.hear("event")
    weight = weight_of(parse(searching(0)))
    whole = 20 * weight.of(len(text))
    assert site.subscriptions.turns.given >= whole // SLICE_COST, "each slice is a turn of the loop"
    assert feed.matcher.tried >= 20
    assert [one["subId"] for one in page.all("event")] == ["all"]
    page.cut()


async def test_turns_go_around_between_databases() -> None:
    turns, order = Turns(), []

    async def work(database: str, slices: int) -> None:
        for _ in range(slices):
            await turns.take(database)
            order.append(database)

    await asyncio.gather(work("busy", 4), work("busy", 4), work("other", 2))
    assert order[:4] == ["busy", "other", "busy", "other"]
    assert order.count("busy") == 8


async def test_one_slice_is_given_in_each_turn_of_the_loop() -> None:
    turns = Turns()

    async def work() -> None:
        await turns.take("main")

    everybody = asyncio.gather(*(work() for _ in range(10)))
    assert await turns_until(everybody) >= 10


async def test_little_work_takes_no_turn_and_much_of_it_does() -> None:
    turns = Turns()
    spending = Spending(turns, "main")
    for _ in range(QUICK_COST // 100):
        await spending.wait_for(100)
    assert turns.given == 0
    await spending.wait_for(100)
    assert turns.given == 1
    spending.rest()
    await spending.wait_for(QUICK_COST + 1)
    assert turns.given == 2, "what is left of a slice is not kept"


async def test_who_joins_while_a_commit_is_matched_is_told_of_it(hw: headwater.Headwater, site: Site) -> None:
    """T3-b: behind the `seq` of a subscribe_ack everything is told."""
    busy, page = Page(site), Page(site)
    for number in range(12):
        await busy.subscribe(f"s{number}", filter=searching(number))
    [feed] = site.subscriptions.feeds()
    given = site.subscriptions.turns.given
    writing = asyncio.ensure_future(hw.collection(MESSAGES).set("m", {"p": "q" * 200_000, "n": 1}))
    await until(lambda: site.subscriptions.turns.given > given)
    before = feed.seq
    joined = await page.subscribe("late", filter="n == 1")
    assert feed.seq == before == joined["seq"], "the commit is still being looked at"
    await writing
    [event] = await page.hear("event")
    assert event["seq"] == joined["seq"] + 1
    for one in (busy, page):
        one.cut()


async def test_changes_of_a_commit_are_told_in_order_and_together(hw: headwater.Headwater, site: Site) -> None:
    page = Page(site)
    for number in range(4):
        await page.subscribe(f"s{number}", filter=searching(number))
    await page.subscribe("all")
    async with hw.transaction() as together:
        for number in range(20):
            together.collection(MESSAGES).set(f"m{number}", {"p": "q" * 20_000})
    await page.hear("event", 20)
    assert [event["seq"] for event in page.all("event")] == list(range(20))
    page.cut()


async def test_a_filter_that_would_search_too_much_of_a_document_ends(hw: headwater.Headwater, site: Site) -> None:
    page = Page(site)
    await page.subscribe("heavy", filter=searching(1, 60))
    await page.subscribe("light", filter=searching(2, 2) + " || has(p)")
    size = SEARCHED_BYTES_MAX // 120 + 1_000
    await hw.collection(MESSAGES).set("large", {"p": "q" * size})
    assert (await page.hear("event"))[0]["subId"] == "light"
    [refused] = [message for message in page.peer.heard if message["type"] == "error"]
    assert (refused["id"], refused["payload"]["code"]) == ("heavy", "filter_too_large")
    assert "'large'" in refused["payload"]["message"]
    await hw.collection(MESSAGES).set("small", {"p": "q1x1"})
    assert [event["subId"] for event in await page.hear("event", 2)] == ["light", "light"]
    page.cut()


async def test_a_resume_takes_turns_and_says_when_it_would_search_too_much(hw: headwater.Headwater, site: Site) -> None:
    page, again = Page(site), Page(site)
    tokens = [(await page.subscribe(f"s{one}", filter=searching(one, 2 + 58 * one)))["token"] for one in range(2)]
    page.cut()
    for number in range(30):
        await hw.collection(MESSAGES).set(f"m{number}", {"p": "q" * 100_000})
    given = site.subscriptions.turns.given
    await again.say("resume", {"token": tokens[0], "lastSeq": -1}, "r0")
    await until(lambda: "s0" in again.session.kept["documents"].by_id)
    await until(
        lambda: (
            site.subscriptions.turns.given >= given + 30 * weight_of(parse(searching(0, 2))).of(100_000) // SLICE_COST
        )
    )
    await again.say("resume", {"token": tokens[1], "lastSeq": -1}, "r1")
    await until(lambda: any(one.get("id") == "r1" and one["type"] == "error" for one in again.peer.heard))
    assert again.all("error")[0]["code"] == "filter_too_large"
    again.cut()


# ── what the filters of one token may cost together ──


def limited(site: Site, cost_max: int) -> None:
    site.realtime.limits = msgspec.structs.replace(RealtimeLimits(), filters_cost_per_token_max=cost_max)


def named(name: str) -> Any:
    return msgspec.structs.replace(OWNER, subject=name)


async def refused(page: Page, id: str, **query: str) -> Found | None:
    await page.say("subscribe", {"query": {"collection": MESSAGES, **query}}, id)
    await until(lambda: any(message.get("id") == id for message in page.peer.heard))
    answer = next(message for message in page.peer.heard if message.get("id") == id)
    return None if answer["type"] == "subscribe_ack" else answer["payload"]


async def test_filters_of_one_token_cost_so_much_together_on_a_collection(site: Site) -> None:
    cost = weight_of(parse(searching(1))).cost
    limited(site, 2 * cost)
    ann, also_ann, bob = Page(site, named("ann")), Page(site, named("ann")), Page(site, named("bob"))
    assert not await refused(ann, "1", filter=searching(1))
    assert not await refused(also_ann, "2", filter=searching(2))
    error = await refused(ann, "3", filter=searching(3))
    assert error is not None
    assert error["code"] == "filter_too_large"
    # The same filter is tried once, whoever follows by it; what an index leads to costs nothing; others have their own.
    assert not await refused(ann, "4", filter=searching(2))
    assert not await refused(ann, "5", filter='room == "r1"')
    assert not await refused(bob, "6", filter=searching(3))
    # A condition that many share is no way around it.
    assert await refused(ann, "7", filter=f"x == 1 && ({searching(4)})")
    also_ann.cut()
    await ann.say("unsubscribe", {"id": "4"})
    assert not await refused(ann, "8", filter=searching(5))
    for page in (ann, bob):
        page.cut()
    assert site.subscriptions.count() == 0


def test_what_is_refused_leaves_nothing_behind() -> None:
    matcher = Matcher()
    with pytest.raises(FilterTooLarge):
        matcher.add(parse(searching(1)), "ann", "ann", 5)
    assert vars(matcher) == vars(Matcher())


def test_searching_a_list_tells_numbers_from_booleans() -> None:
    for text, held in (
        ("1 in l", [1]),
        ("1 in l", [1.0]),
        ("0 in l", [0]),
        ("true in l", [True]),
        ("false in l", [0, False]),
    ):
        assert predicate(parse(text))({"l": held}), text
    for text, held in (("1 in l", [True]), ("0 in l", [False]), ("true in l", [1]), ("false in l", [0, 0.0])):
        assert not predicate(parse(text))({"l": held}), text
    assert filters.weight_of(parse('p.contains("x") && a == 1')) == (33, 2)


# ── what the subscriptions of one token may hold together ──


async def test_subscriptions_of_one_token_hold_so_much_together(site: Site) -> None:
    long = f"n == 1 && ({searching(1)})"
    size = Wanted(database="main", collection=MESSAGES, filter=long).size()
    site.realtime.limits = msgspec.structs.replace(RealtimeLimits(), subscriptions_bytes_per_token_max=2 * size)
    ann, also_ann, bob = Page(site, named("ann")), Page(site, named("ann")), Page(site, named("bob"))
    assert not await refused(ann, "1", filter=long)
    # In the place of the one before, and one that is refused takes nothing.
    assert not await refused(ann, "1", filter=long)
    assert (await refused(ann, "2", filter="n ==")) is not None
    assert not await refused(also_ann, "3", filter=long)
    error = await refused(ann, "4")
    assert error is not None
    assert error["code"] == "overloaded"
    assert not await refused(bob, "5", filter=long)
    also_ann.cut()
    assert not await refused(ann, "6", filter=long)
    for page in (ann, bob):
        page.cut()
    assert not site.realtime._subscribed
