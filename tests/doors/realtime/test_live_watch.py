"""What is known of live queries by whoever runs the server: numbers (S3-35), the audit in the log (S3-36), a log that
says little (S3-37), and alerts that name numbers which are there (S3-38)."""

import logging
import re
from pathlib import Path

import httpx
import msgspec
import pytest

import headwater
from headwater.config import Durability
from headwater.doors.metrics import report_of
from headwater.doors.site import Site
from headwater.log.operations import Clear
from headwater.model.document import changes_queue
from headwater.model.names import Lsn
from headwater.services import live_watch
from headwater.services.live_watch import AUDIT_QUEUE, SAMPLE_SECONDS, LiveWatch
from tests.doors.realtime.guests import Desk
from tests.doors.realtime.pages import MESSAGES, Found, Page
from tests.tidy.tree import ROOT
from tests.waiting import expect_soon_async

OPERATIONS = ROOT / "docs" / "operations.md"


async def test_what_live_queries_do_is_counted(hw: headwater.Headwater, site: Site) -> None:
    page = Page(site)
    began = await page.subscribe("a", filter="n == 1")
    await page.subscribe("b", filter="n != 2")
    for number in (1, 2, 3):
        await hw.collection(MESSAGES).create({"n": number})
    await page.hear("event", 3)
    numbers = report_of(site).numbers
    assert (numbers["live_subscriptions"], numbers["live_collections"], numbers["live_subscribed"]) == (2, 1, 2)
    assert (numbers["live_changes"], numbers["live_events"]) == (3, 3)
    # One by its index, the other with every change: of four that were tried three held.
    assert (numbers["live_filters_tried"], numbers["live_filters_met"]) == (4, 3)
    page.cut()
    again = Page(site)
    await again.say("resume", {"token": began["token"], "lastSeq": began["seq"]})
    await again.hear("resume-ack")
    assert report_of(site).numbers["live_resumed"] == 1
    again.cut()
    assert report_of(site).numbers["live_subscriptions"] == 0


async def audited(hw: headwater.Headwater, site: Site) -> list[Found]:
    site.subscriptions.watch.write_down()
    found: list[Found] = []

    async def has_come() -> bool:
        found[:] = [
            msgspec.json.decode(record.data)
            for segment in await hw.store.read(Lsn(0), Lsn(2**62), 1_000, ("main", AUDIT_QUEUE))
            for record in segment.records
        ]
        return bool(found)

    await expect_soon_async(has_come)
    return found


async def test_who_follows_what_and_what_went_wrong_is_written_to_the_log(hw: headwater.Headwater, site: Site) -> None:
    site.subscriptions.watch.is_auditing = True
    page = Page(site)
    for _ in range(3):
        await hw.collection(MESSAGES).create({})
    began = await page.subscribe()
    page.cut()
    await hw.committer.submit(Clear(database="main", queue=changes_queue(MESSAGES)), Durability.WRITTEN)
    again = Page(site)
    await again.say("resume", {"token": began["token"], "lastSeq": -1})
    assert (await again.hear("resume-ack"))[0]["status"] == "resync-required"
    await again.say("resume", {"token": "forged", "lastSeq": -1})
    crowd = Page(site)
    crowd.peer.waiting = site.realtime.limits.outboxes_bytes_max
    site.realtime.weigh()
    crowd.cut()
    again.cut()
    records = await audited(hw, site)
    kinds = [one["kind"] for one in records]
    assert {"subscribed", "ended", "resume-failed", "pressure"} <= set(kinds)
    failed = [one.get("reason", "") for one in records if one["kind"] == "resume-failed"]
    assert (failed[0], "no resume token of this store" in failed[1]) == ("", True)
    first = records[kinds.index("subscribed")]
    assert (first["collection"], first["subId"], first["connection"]) == (MESSAGES, "s", page.session.member)
    assert records[kinds.index("pressure")]["now"] == "HARD"


async def audited_of(hw: headwater.Headwater, database: str) -> list[tuple[str, str]]:
    """Kind and subject of what the audit of a database has."""
    found = await hw.store.read(Lsn(0), Lsn(2**62), 1_000, (database, AUDIT_QUEUE))
    records = [msgspec.json.decode(record.data) for segment in found for record in segment.records]
    return [(one["kind"], one.get("subject", "")) for one in records]


async def test_a_subscription_that_ends_with_another_auth_is_of_who_began_it(
    hw: headwater.Headwater, site: Site
) -> None:
    site.subscriptions.watch.is_auditing = True
    desk = Desk("ada", "eve")
    desk.tokens["hw_eve"] = msgspec.structs.replace(desk.tokens["hw_eve"], database="acme")
    page = Page(site, desk=desk)
    await page.say("auth", {"token": "hw_ada"}, "a")
    await page.subscribe()
    await page.say("auth", {"token": "hw_eve"}, "b")
    assert (await page.hear("error"))[0]["code"] == "not_allowed"
    await site.subscriptions.watch.close()
    assert await audited_of(hw, "main") == [("subscribed", "ada"), ("ended", "ada")]
    assert await audited_of(hw, "acme") == [], "nobody else learns what was followed"
    page.cut()


async def test_what_was_not_written_down_yet_is_there_when_the_store_is_closed(
    hw: headwater.Headwater, site: Site, tmp_path: Path
) -> None:
    site.subscriptions.watch.is_auditing = True
    page = Page(site)
    await page.subscribe()
    page.cut()
    await hw.close()
    async with headwater.open(str(tmp_path / "log.db"), housekeeping=False) as again:
        assert [kind for kind, _ in await audited_of(again, "main")] == ["subscribed", "ended"]


async def test_without_the_setting_nothing_is_written_down(hw: headwater.Headwater, site: Site) -> None:
    page = Page(site)
    await page.subscribe()
    page.cut()
    site.subscriptions.watch.write_down()
    assert [one.queue for one in await hw.queues()] == []


def test_what_is_slow_large_or_repeated_is_logged_once_in_a_minute(
    caplog: pytest.LogCaptureFixture, site: Site
) -> None:
    now = [0.0]
    watch = LiveWatch(site.queues, lambda: now[0])
    with caplog.at_level(logging.WARNING, live_watch.__name__):
        for _ in range(100):
            watch.matched("notes", 0.06, 1_000, 1)
            watch.spread("notes", 20_000)
            watch.resumed("main", "ann", "notes", is_kept=True)
        assert len(caplog.records) == 3
        now[0] = SAMPLE_SECONDS
        watch.matched("notes", 0.06, 1_000, 1)
        watch.matched("notes", 0.01, 1_000, 1)
    assert len(caplog.records) == 4
    assert watch.counts["live_matches_slow"] == 101


def test_alerts_name_numbers_that_the_server_tells(client: httpx.Client) -> None:
    rules = re.findall(r"^```yaml.*?^```", OPERATIONS.read_text(), re.M | re.S)
    named = set(re.findall(r"headwater_live_\w+|headwater_realtime_\w+", "".join(rules)))
    assert len(named) >= 5
    told = client.get("/metrics").text
    assert not [name for name in named if f"\n{name}" not in told]


async def test_a_server_looks_only_at_collections_that_somebody_there_follows(
    hw: headwater.Headwater, site: Site
) -> None:
    """S3-4, S3-17, S3-39: changes are led to servers by their collection, and nothing is sent to all. S3-16: whoever
    left is in no index any more."""
    page = Page(site)
    await page.subscribe("a", collection="a", filter="n == 1 || n == 2 || size > 7 || !has(x)")
    for _ in range(5):
        await hw.collection("b").create({"n": 1})
    await hw.collection("a").create({"n": 1})
    await page.hear("event")
    assert report_of(site).numbers["live_changes"] == 1
    assert page.all("event")[0]["subId"] == "a"
    feed = next(iter(site.subscriptions.feeds()))
    await page.say("unsubscribe", {"id": "a"})
    assert (len(feed.matcher), site.subscriptions.count()) == (0, 0)
    assert feed.matcher.match(None, {"id": "m", "n": 1}) == []
    await hw.collection("a").create({"n": 1})
    assert report_of(site).numbers["live_changes"] == 1
    page.cut()
