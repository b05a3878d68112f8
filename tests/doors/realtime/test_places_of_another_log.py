"""Checkpoints and resume tokens that are of another log: of another store, of this one before it was restored, or of
one that was put back from a copy and written to since. Nobody goes on from there as if nothing had happened."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headwater
from headwater.app import open_door
from headwater.config import MIB
from headwater.doors.realtime.document_routes import LiveListenQuery, listen
from headwater.doors.site import Site
from headwater.doors.wire import Request
from headwater.log.store_operations import RenewIdentity
from headwater.model.document_rules import DocumentRule, Permit
from headwater.model.principal import Principal, Scope
from headwater.services.replication import Checkpoint, Replica
from headwater.stores.questions import FindLastLsn
from tests.contracts.clock import FakeClock
from tests.doors.realtime.guests import MemoryPeer
from tests.doors.realtime.pages import Page, until

THEIRS = Permit(('owner != "eve"',), (), (), (), "{}")


@asynccontextmanager
async def opened(place: Path, clock: FakeClock) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(place), clock=clock, housekeeping=False) as hw:
        yield hw


def site_of(hw: headwater.Headwater) -> Site:
    return Site(hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer, "test")


@asynccontextmanager
async def page_of(hw: headwater.Headwater) -> AsyncIterator[Page]:
    page = Page(site_of(hw))
    yield page
    page.cut()


async def pull(hw: headwater.Headwater, checkpoint: Checkpoint | None, permit: Permit | None = None) -> Any:
    return await Replica(hw.queues_service, "main", "notes", permit).pull(checkpoint, 100, MIB)


async def write(hw: headwater.Headwater, clock: FakeClock, *names: str) -> None:
    for name in names:
        clock.advance(1)
        await hw.collection("notes").set(name, {"owner": "ann"})


class Story(msgspec.Struct):
    """What a replica and a page kept of a store before it was put back from an older copy."""

    place: Path
    clock: FakeClock
    checkpoint: Checkpoint
    ruled: Checkpoint
    token: str


@pytest.fixture
async def story(tmp_path: Path) -> Story:
    place, copy, clock = tmp_path / "log.db", tmp_path / "copy.db", FakeClock()
    async with opened(place, clock) as hw, page_of(hw) as page:
        # The key that signs tokens is made for the first who subscribes.
        await page.subscribe(collection="notes")
        await write(hw, clock, "a", "b")
    shutil.copy(place, copy)
    async with opened(place, clock) as hw, page_of(hw) as page:
        token = (await page.subscribe(collection="notes"))["token"]
        await write(hw, clock, "lost", "a")
        kept = (await pull(hw, None)).checkpoint
        ruled = (await pull(hw, None, THEIRS)).checkpoint
    for rest in tmp_path.glob("log.db*"):
        rest.unlink()
    shutil.copy(copy, place)
    return Story(place, clock, kept, ruled, token)


def ids(pulled: Any) -> list[str]:
    return [one.id for one in pulled.documents]


async def test_a_checkpoint_ahead_of_the_log_begins_anew_and_says_so(story: Story) -> None:
    async with opened(story.place, story.clock) as hw:
        for checkpoint, permit in ((story.checkpoint, None), (story.ruled, THEIRS)):
            pulled = await pull(hw, checkpoint, permit)
            assert ids(pulled) == ["a", "b"]
            assert "put back from a copy" in pulled.resync
            again = await pull(hw, pulled.checkpoint, permit)
            assert (ids(again), again.resync) == ([], "")


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_checkpoint_is_told_apart_when_the_log_has_passed_it(story: Story, elsewhere: bool) -> None:
    """By documents, or by what has nothing to do with them: a place of before comes to mean another."""
    async with opened(story.place, story.clock) as hw:
        await write(hw, story.clock, "c")
        for number in range(10):
            if elsewhere:
                await hw.queue("orders").push(number)
            else:
                await write(hw, story.clock, f"d{number}")
        assert await hw.queues_service.ask(FindLastLsn()) > (story.checkpoint.lsn or 0)
        pulled = await pull(hw, story.checkpoint)
        assert {"a", "b", "c"} <= set(ids(pulled))
        assert pulled.resync


async def test_an_empty_collection_leaves_nothing_of_a_checkpoint_of_another_log(tmp_path: Path, story: Story) -> None:
    async with opened(tmp_path / "other.db", story.clock) as hw:
        for permit in (None, THEIRS):
            pulled = await pull(hw, story.checkpoint, permit)
            assert (ids(pulled), pulled.checkpoint.id, bool(pulled.resync)) == ([], "", True)


async def test_a_checkpoint_of_before_a_restore_begins_anew_and_says_so(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "log.db", clock) as hw:
        await write(hw, clock, "a", "b")
        kept = (await pull(hw, None)).checkpoint
        await hw.committer.submit(RenewIdentity())
        pulled = await pull(hw, kept)
        assert (ids(pulled), "restored" in pulled.resync) == (["a", "b"], True)


async def test_of_documents_that_may_not_be_read_a_made_up_checkpoint_learns_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "log.db", clock) as hw:
        await hw.collection("notes").set("secret", {"owner": "eve"})
        await write(hw, clock, "a")
        kept = (await pull(hw, None, THEIRS)).checkpoint
        told = [
            await pull(hw, msgspec.structs.replace(kept, id=name, lsn=lsn, updated_at=at), THEIRS)
            for name in ("secret", "nothing")
            for lsn in (1, kept.lsn)
            for at in (0, kept.updated_at)
        ]
        assert {one.resync for one in told} == {""}
        assert [ids(one) for one in told[:4]] == [ids(one) for one in told[4:]]


async def test_a_stream_from_a_place_of_another_log_is_told_of_the_gap_and_ends(story: Story) -> None:
    async with opened(story.place, story.clock) as hw, page_of(hw) as page:
        checkpoint = msgspec.to_builtins(story.checkpoint)
        await page.say("stream", {"collection": "notes", "checkpoint": checkpoint}, "live")
        [gap] = await page.hear("resync-required")
        assert (gap["streamId"], "put back" in gap["reason"]) == ("live", True)
        await write(hw, story.clock, "c")
        await page.say("stream", {"collection": "notes", "checkpoint": {"updatedAt": 0, "id": ""}}, "anew")
        events = await page.hear("stream-event")
        assert (events[0]["streamId"], [one["id"] for one in events[0]["documents"]]) == ("anew", ["a", "b", "c"])


async def test_a_resume_behind_the_end_of_the_log_begins_anew(story: Story) -> None:
    async with opened(story.place, story.clock) as hw, page_of(hw) as page:
        await page.say("resume", {"token": story.token, "lastSeq": 3}, "r")
        assert (await page.hear("resume-ack"))[0]["status"] == "resync-required"
        assert (await page.hear("resync-required"))[0]["subId"] == "s"


async def listened(hw: headwater.Headwater, seen: str) -> list[str]:
    """What kinds of messages somebody hears who only listens, and comes back with the id of an event."""
    headers = {"last-event-id": seen} if seen else {}
    asked = Request(method="GET", path="/realtime/sse", principal=Principal(scopes=frozenset(Scope)), headers=headers)
    response = await listen(site_of(hw), asked, LiveListenQuery(collection="notes"))
    peer = MemoryPeer()
    assert response.session is not None
    session: Any = response.session(peer)
    await until(lambda: session._working is None)
    session.closed(1006)
    return [message["type"] for message in peer.heard][1:]


async def test_a_listener_who_comes_back_to_a_store_that_was_restored_begins_anew(story: Story) -> None:
    """Although the log has passed the place: it is of other documents there."""
    async with opened(story.place, story.clock) as hw:
        before = await hw.queues_service.identity()
        await hw.committer.submit(RenewIdentity())
    async with opened(story.place, story.clock) as hw:
        await write(hw, story.clock, "c", "d", "e")
        ours = await hw.queues_service.identity()
        assert await listened(hw, f"3@{before}") == ["resync-required"]
        assert await listened(hw, f"3@{ours}") == ["event"]
        # One that does not say of which store is taken for one of this.
        assert await listened(hw, "3") == ["event"]


async def test_a_resume_in_a_store_that_was_restored_begins_anew(story: Story) -> None:
    """Although the key that signs tokens came back with it, and the log has passed the place."""
    async with opened(story.place, story.clock) as hw:
        await hw.committer.submit(RenewIdentity())
        await write(hw, story.clock, "c", "d", "e")
        async with page_of(hw) as page:
            await page.say("resume", {"token": story.token, "lastSeq": 3}, "r")
            assert (await page.hear("resume-ack"))[0]["status"] == "resync-required"
            await page.hear("resync-required")
            assert not page.all("event")


async def test_a_resume_in_a_copy_of_before_the_first_subscription_begins_anew(tmp_path: Path) -> None:
    """The key that signs tokens is in a store as soon as it is served: else the token would pass for a forged one."""
    place, copy, clock = tmp_path / "log.db", tmp_path / "copy.db", FakeClock()
    async with opened(place, clock) as hw, open_door(hw):
        await write(hw, clock, "a")
    shutil.copy(place, copy)
    async with opened(place, clock) as hw, page_of(hw) as page:
        token = (await page.subscribe(collection="notes"))["token"]
        await write(hw, clock, "b")
    for rest in tmp_path.glob("log.db*"):
        rest.unlink()
    shutil.copy(copy, place)
    async with opened(place, clock) as hw, page_of(hw) as page:
        await page.say("resume", {"token": token, "lastSeq": 1}, "r")
        assert (await page.hear("resume-ack"))[0]["status"] == "resync-required"
        await page.say("resume", {"token": token[:-3] + "abc", "lastSeq": 1}, "forged")
        assert (await page.hear("error"))[0]["code"] == "invalid_option"


async def test_what_was_kept_of_an_older_version_is_still_read(tmp_path: Path) -> None:
    """A checkpoint of the pair, and a token that does not say which log it is of."""
    clock = FakeClock()
    async with opened(tmp_path / "log.db", clock) as hw, page_of(hw) as page:
        await write(hw, clock, "a", "b")
        kept = (await pull(hw, None)).checkpoint
        pair = await pull(hw, Checkpoint(updated_at=kept.updated_at, id=kept.id))
        assert (ids(pair), pair.resync) == ([], "")
        tokens = page.session.site.subscriptions.tokens
        about = await tokens.read((await page.subscribe(collection="notes"))["token"])
        older = await tokens.make(msgspec.structs.replace(about, identity=""))
        await page.say("resume", {"token": older, "lastSeq": 0}, "r")
        assert (await page.hear("resume-ack"))[0]["status"] == "ok"


async def test_other_rules_are_no_other_log(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "log.db", clock) as hw:
        await hw.set_document_rules([DocumentRule(pattern="notes", read="true")])
        await write(hw, clock, "a")
        kept = (await pull(hw, None)).checkpoint
        pulled = await pull(hw, kept, THEIRS)
        assert (ids(pulled), pulled.resync) == (["a"], "")
