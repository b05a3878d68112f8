"""What is told when a client, or all of them together, do not keep up: acks and their window (S3-31, S3-32), priorities
and watermarks (S3-20, S3-21). Nothing is lost by waiting: the log has it."""

from functools import partial

import pytest

import headwater
from headwater.doors.event_stream import EventStream
from headwater.doors.realtime import flow
from headwater.doors.realtime.flow import Window
from headwater.doors.realtime.hall import STALLED_LOOKS_MAX, most_first
from headwater.doors.sessions import Frame, OpenSessions
from headwater.doors.site import Site
from headwater.model.watermarks import Pressure, next_pressure
from tests.contracts.clock import FakeClock
from tests.doors.realtime.pages import MESSAGES, Page, until
from tests.waiting import expect_soon_async


def seqs(page: Page, id: str = "s") -> list[int]:
    return [one["seq"] for one in page.all("event") if one["subId"] == id]


async def _has_told(page: Page, count: int) -> bool:
    return len(seqs(page)) == count


async def test_a_client_that_acks_is_told_no_more_than_its_window_until_it_acks(
    hw: headwater.Headwater, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "EVENTS_MAX", 3)
    page, other = Page(site), Page(site)
    await page.subscribe()
    await other.subscribe()
    await page.say("ack", {"subId": "s", "seq": -1})
    for number in range(10):
        await hw.collection(MESSAGES).create({"n": number})
    await other.hear("event", 10)
    assert seqs(page) == [0, 1, 2]
    await page.say("ack", {"subId": "s", "seq": 0})
    await until(lambda: len(seqs(page)) == 4)
    for acked in (3, 6, 9):
        await page.say("ack", {"seq": acked})
        count = min(10, acked + 4)
        await expect_soon_async(partial(_has_told, page, count))
    assert seqs(page) == list(range(10))
    # It is live again.
    await hw.collection(MESSAGES).create({})
    await until(lambda: seqs(page)[-1] == 10)
    page.cut()
    other.cut()


async def test_what_waits_in_a_window_counts_when_it_is_told(
    hw: headwater.Headwater, site: Site, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = 3
    monkeypatch.setattr(flow, "EVENTS_MAX", window)
    page = Page(site)
    await page.subscribe()
    await page.say("ack", {"subId": "s", "seq": -1})
    for number in range(window + 2):
        await hw.collection(MESSAGES).create({"n": number})
    await page.hear("event", window)
    counts = site.subscriptions.watch.counts
    assert (counts["live_events"], counts["live_events_late"]) == (window, 0)
    clock.advance(5)
    await page.say("ack", {"subId": "s", "seq": 1})
    await page.hear("event", window + 2)
    assert (counts["live_events"], counts["live_events_late"]) == (window + 2, 2)
    page.cut()


async def test_who_never_acks_is_told_everything(
    hw: headwater.Headwater, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "EVENTS_MAX", 3)
    page = Page(site)
    await page.subscribe()
    for _ in range(10):
        await hw.collection(MESSAGES).create({})
    assert len(await page.hear("event", 10)) == 10
    page.cut()


def test_a_window_is_full_by_events_bytes_or_time_and_an_ack_trims_it() -> None:
    window = Window()
    window.ack(0)
    for seq in range(flow.EVENTS_MAX):
        assert not window.is_full(1.0)
        window.note(seq, 1, 1.0)
    assert window.is_full(1.0)
    window.ack(flow.EVENTS_MAX - 2)
    assert len(window) == 1
    assert not window.is_full(flow.SECONDS_MAX)
    assert window.is_full(1.0 + flow.SECONDS_MAX)
    window.ack(flow.EVENTS_MAX)
    window.note(1, flow.BYTES_MAX, 2.0)
    assert window.is_full(2.0)
    assert (flow.EVENTS_MAX, flow.BYTES_MAX, flow.SECONDS_MAX) == (10_000, 32 * 1_048_576, 180)


def test_pressure_rises_at_its_marks_and_falls_well_below_them() -> None:
    calm, soft, hard = Pressure
    assert [next_pressure(calm, filled) for filled in (0.0, 0.69, 0.7, 0.89, 0.9, 2.0)] == [
        calm,
        calm,
        soft,
        soft,
        hard,
        hard,
    ]
    assert [next_pressure(hard, filled) for filled in (0.89, 0.65, 0.6, 0.59)] == [hard, hard, hard, calm]
    assert [next_pressure(soft, filled) for filled in (0.65, 0.6, 0.59)] == [soft, soft, calm]


async def test_under_pressure_low_priority_waits_first_and_loses_nothing(hw: headwater.Headwater, site: Site) -> None:
    page, crowd = Page(site), Page(site)
    await page.subscribe("low", priority="low")
    await page.subscribe("plain")
    crowd.peer.waiting = int(0.75 * site.realtime.limits.outboxes_bytes_max)
    site.realtime.weigh()
    for _ in range(5):
        await hw.collection(MESSAGES).create({})
    await until(lambda: len(seqs(page, "plain")) == 5)
    assert seqs(page, "low") == []
    crowd.peer.waiting = int(0.65 * site.realtime.limits.outboxes_bytes_max)
    site.realtime.weigh()
    assert site.realtime.pressure is Pressure.SOFT
    crowd.peer.waiting = 0
    site.realtime.weigh()
    await until(lambda: seqs(page, "low") == [0, 1, 2, 3, 4])
    page.cut()
    crowd.cut()


async def test_at_the_hard_mark_the_slowest_are_told_to_begin_anew_and_others_go_on(
    hw: headwater.Headwater, site: Site
) -> None:
    slow, quick, new = Page(site), Page(site), Page(site)
    await slow.subscribe()
    await quick.subscribe()
    slow.peer.waiting = int(0.95 * site.realtime.limits.outboxes_bytes_max)
    quick.peer.waiting = 1_000
    site.realtime.weigh()
    assert (await slow.hear("resync-required"))[0]["subId"] == "s"
    assert quick.all("resync-required") == []
    await new.say("subscribe", {"query": {"collection": MESSAGES}})
    assert (await new.hear("error"))[0]["code"] == "overloaded"
    await hw.collection(MESSAGES).create({})
    await quick.hear("event")
    assert slow.all("event") == []
    slow.peer.waiting = 0
    site.realtime.weigh()
    await slow.subscribe("again")
    for page in (slow, quick, new):
        page.cut()


def pressure(site: Site) -> Pressure:
    return site.realtime.pressure


async def test_at_the_hard_mark_who_takes_nothing_is_let_go_whatever_they_say(site: Site) -> None:
    """A heartbeat that is sent is no sign of reading: held for as long as they like, it kept all others out."""
    room = site.realtime.limits.outboxes_bytes_max
    crowd, reader, other = [Page(site) for _ in range(10)], Page(site), Page(site)
    for page in crowd:
        page.peer.waiting = room // 10
        await page.subscribe()
    await reader.subscribe()
    reader.peer.waiting = room // 5
    site.realtime.weigh()
    assert pressure(site) is Pressure.HARD
    assert not any(page.peer.was_cut for page in (*crowd, reader))
    reader.peer.waiting = 1_000
    for page in crowd:
        await page.say("heartbeat", {})
    site.realtime.weigh()
    assert not reader.peer.was_cut
    assert sum(page.peer.was_cut for page in crowd) == 4, "no more than it takes to be below 60 %"
    site.realtime.weigh()
    assert pressure(site) is Pressure.HARD
    for page in crowd[:5]:
        page.peer.waiting = 0
    site.realtime.weigh()
    assert pressure(site) is Pressure.CALM
    await other.subscribe()
    for page in (*crowd, reader, other):
        page.cut()


async def test_short_of_the_hard_mark_who_takes_nothing_for_long_is_let_go(site: Site) -> None:
    """Else they could have everybody's subscriptions of low priority wait for good."""
    room = site.realtime.limits.outboxes_bytes_max
    silent, reader = Page(site), Page(site)
    silent.peer.waiting = int(0.8 * room)
    for look in range(STALLED_LOOKS_MAX):
        reader.peer.waiting = 2_000 - look
        site.realtime.weigh()
    assert pressure(site) is Pressure.SOFT
    assert not silent.peer.was_cut
    reader.peer.waiting = 10
    site.realtime.weigh()
    assert (silent.peer.was_cut, reader.peer.was_cut) == (True, False)
    site.realtime.weigh()
    assert pressure(site) is Pressure.CALM
    for page in (silent, reader):
        page.cut()


async def test_what_waited_for_those_who_have_left_keeps_nobody_out(site: Site) -> None:
    """Whoever is refused leaves at once, and so nobody stayed for the next look."""
    silent = Page(site)
    silent.peer.waiting = site.realtime.limits.outboxes_bytes_max
    await silent.subscribe()
    site.realtime.weigh()
    assert pressure(site) is Pressure.HARD
    silent.cut()
    assert pressure(site) is Pressure.CALM
    other = Page(site)
    await other.subscribe()
    other.cut()


def test_who_holds_most_pays_first() -> None:
    held = {"a1": ("ann", 50), "b1": ("bob", 60), "a2": ("ann", 40), "a3": ("ann", 5), "c1": ("cyd", 58)}
    assert list(most_first(held)) == ["a1", "b1", "c1", "a2", "a3"]


async def test_a_snapshot_that_was_given_up_is_not_gone_on_with(hw: headwater.Headwater, site: Site) -> None:
    for number in range(12):
        await hw.collection(MESSAGES).set(f"m{number:02}", {"p": "x" * 200_000})
    page = Page(site)
    page.peer.waiting = site.realtime.limits.outboxes_bytes_max
    await page.say("subscribe", {"query": {"collection": MESSAGES}, "sendSnapshot": True})
    await page.hear("subscribe_ack")
    site.realtime.weigh()
    await page.hear("resync-required")
    page.peer.waiting = 0
    await until(lambda: page.session._working is None)
    assert page.all("snapshot") == []
    page.cut()


async def test_what_is_on_its_way_to_a_listener_still_waits() -> None:
    """It was counted as taken when the transport got it, and a listener that takes nothing held it uncounted."""

    class Silent:
        def received(self, data: str | bytes) -> None: ...

        def closed(self, code: int) -> None: ...

    stream = EventStream(OpenSessions(), 1_000, let_go=lambda: None)
    chunks = stream.chunks(lambda peer: Silent())
    assert await anext(chunks) == b": open\n\n"
    stream.send(Frame("x" * 100))
    assert b"xxx" in await anext(chunks)
    assert stream.waiting_bytes() > 100
    stream.send(Frame("y" * 100))
    assert b"yyy" in await anext(chunks)
    assert 100 < stream.waiting_bytes() < 200
    await chunks.aclose()
