"""A filter that speaks of who asks means other documents when something else is known of them: that is told."""

from typing import Any

import msgspec
import pytest

import headwater
from headwater.doors.realtime.document_messages import mark_of
from headwater.doors.realtime.document_routes import LiveListenQuery, listen
from headwater.doors.site import Site
from headwater.doors.wire import Request
from headwater.model.principal import Principal, Scope
from headwater.services.subscriptions import OTHER_DOCUMENTS, Wanted
from tests.doors.realtime.guests import Desk, MemoryPeer
from tests.doors.realtime.pages import MESSAGES, Found, Page, until

THEIRS = "team == auth.team"
ANY = 'team != "none"'


def of_team(team: str) -> Principal:
    claims = msgspec.json.encode({"team": team}).decode()
    return Principal(subject="ada", scopes=frozenset(Scope), claims=claims)


@pytest.fixture
def desk() -> Desk:
    found = Desk()
    found.tokens = {f"{team}{number}": of_team(team) for team in ("red", "blue") for number in (1, 2)}
    return found


async def signed_in(site: Site, desk: Desk, credential: str) -> Page:
    page = Page(site, desk=desk)
    await page.say("auth", {"token": credential}, "auth")
    return page


async def resumed(page: Page, token: str) -> str:
    await page.say("resume", {"token": token, "lastSeq": -1}, "r")
    status: str = (await page.hear("resume-ack"))[0]["status"]
    return status


@pytest.mark.parametrize(
    ("query", "credential", "status"),
    [(THEIRS, "red2", "ok"), (THEIRS, "blue1", "resync-required"), (ANY, "blue1", "ok")],
)
async def test_a_resume_with_other_claims_begins_anew(
    hw: headwater.Headwater, site: Site, desk: Desk, query: str, credential: str, status: str
) -> None:
    page = await signed_in(site, desk, "red1")
    acked = await page.subscribe(filter=query)
    page.cut()
    await hw.collection(MESSAGES).set("m", {"team": "red"})
    again = await signed_in(site, desk, credential)
    assert await resumed(again, acked["token"]) == status
    if status == "ok":
        assert (await again.hear("event"))[0]["delta"]["doc"]["path"] == f"{MESSAGES}/m"
    else:
        [gap] = await again.hear("resync-required")
        assert gap["reason"] == OTHER_DOCUMENTS
        assert not again.all("event")
    again.cut()


async def test_another_auth_on_the_same_connection_ends_what_was_followed_by_other_claims(
    hw: headwater.Headwater, site: Site, desk: Desk
) -> None:
    page = await signed_in(site, desk, "red1")
    await page.subscribe("theirs", filter=THEIRS)
    await page.subscribe("any", filter=ANY)
    await page.say("auth", {"token": "red2"}, "again")
    assert not page.all("resync-required")
    await page.say("auth", {"token": "blue1"}, "other")
    [gap] = await page.hear("resync-required")
    assert (gap["subId"], gap["reason"]) == ("theirs", OTHER_DOCUMENTS)
    await hw.collection(MESSAGES).set("m", {"team": "red"})
    assert [event["subId"] for event in await page.hear("event")] == ["any"]
    page.cut()


async def heard_by_listener(site: Site, principal: Principal, query: Found, seen: str) -> MemoryPeer:
    headers = {"last-event-id": seen} if seen else {}
    asked = Request(method="GET", path="/realtime/sse", principal=principal, headers=headers)
    response = await listen(site, asked, LiveListenQuery(collection=MESSAGES, **query))
    peer = MemoryPeer()
    assert response.session is not None
    session: Any = response.session(peer)
    await until(lambda: session._working is None)
    session.closed(1006)
    return peer


async def test_a_listener_who_comes_back_with_other_claims_begins_anew(hw: headwater.Headwater, site: Site) -> None:
    await hw.collection(MESSAGES).set("m", {"team": "red"})
    query = {"filter": THEIRS}
    wanted = Wanted(database="main", collection=MESSAGES, filter=THEIRS)
    red = mark_of(wanted.reading(of_team("red")), await hw.queues_service.identity())
    types = {}
    for name, team, seen in (("same", "red", f"-1{red}"), ("other", "blue", f"-1{red}"), ("unknown", "red", "-1")):
        peer = await heard_by_listener(site, of_team(team), query, seen)
        types[name] = [message["type"] for message in peer.heard][1:]
    assert types == {"same": ["event"], "other": ["resync-required"], "unknown": ["resync-required"]}
    plain = await heard_by_listener(site, of_team("blue"), {"filter": ANY}, "-1")
    assert [message["type"] for message in plain.heard][1:] == ["event"]


def test_ids_of_events_say_by_what_they_were_told() -> None:
    wanted = Wanted(database="main", collection=MESSAGES, filter=ANY)
    assert mark_of(wanted.reading(of_team("red")), "store") == "@store"
