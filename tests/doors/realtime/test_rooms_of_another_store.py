"""Places in a room that are of another log: its store was put back from a backup, and gave their offsets once more."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import headwater
from headwater.errors import ResyncRequired
from tests.client.server import Server
from tests.doors.realtime.guests import PATIENCE_SECONDS
from tests.doors.realtime.pages import Page
from tests.doors.realtime.test_places_of_another_log import site_of

ROOM = "/api/v1/rooms/a/messages"
# What is kept in the end: the first was in the backup, the others were said after it was put back.
KEPT = ["in the backup", "new 1", "new 2", "new 3"]


class Place(msgspec.Struct):
    """Where a client was in room a, and what it gets from there on in the store of then."""

    path: Path
    port: int
    offset: int = -1
    epoch: str = ""


async def say(hw: headwater.Headwater, *texts: str) -> None:
    for text in texts:
        await hw.room("a").send(text, ttl_seconds=3_600)


async def heard_on(page: Page, count: int) -> list[Any]:
    return [one["data"] for one in await page.hear("room-message", count)]


def put_back(path: Path, backup: Path) -> None:
    for left in path.parent.glob(f"{path.name}*"):
        left.unlink()
    shutil.copy(backup, path)


@asynccontextmanager
async def serving(place: Place) -> AsyncIterator[Server]:
    async with Server(place.path, place.port, housekeeping=False) as server:
        place.port = server.port
        yield server


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    """Of a client that has got three messages, the first of which is in the backup that was put back since."""
    place, backup = Place(tmp_path / "log.db", 0), tmp_path / "backup.db"
    async with serving(place) as server:
        await say(server.hw, KEPT[0])
        await server.hw.store.backup(str(backup))  # type: ignore[attr-defined]
        await say(server.hw, "lost 1", "lost 2")
        page = Page(site_of(server.hw))
        await page.say("join", {"room": "a", "since": "beginning"})
        assert await heard_on(page, 3) == [KEPT[0], "lost 1", "lost 2"]
        place.offset, place.epoch = page.all("room-message")[-1]["offset"], page.all("join_ack")[0]["epoch"]
        page.cut()
    put_back(place.path, backup)
    async with headwater.open(str(place.path)) as hw:
        await say(hw, *KEPT[1:])
    return place


async def test_who_joins_again_is_told_to_begin_anew_and_gets_everything(place: Place) -> None:
    async with serving(place) as server:
        page = Page(site_of(server.hw))
        await page.say("join", {"room": "a", "since": place.offset, "epoch": place.epoch})
        assert await heard_on(page, 4) == KEPT
        [told] = page.all("resync-required")
        assert (told["reason"], told["offset"]) == ("dropped", -1)
        assert page.all("join_ack")[0]["epoch"] not in ("", place.epoch)
        page.cut()


async def test_who_reads_on_over_http_is_told(place: Place) -> None:
    async with serving(place) as server, httpx.AsyncClient(base_url=server.url) as client:
        refused = await client.get(ROOM, params={"since": place.offset, "epoch": place.epoch})
        assert (refused.status_code, refused.json()["code"]) == (409, "resync-required")
        anew = (await client.get(ROOM)).json()
        assert [one["data"] for one in anew["messages"]] == KEPT
        # By the epoch of the answer one goes on.
        further = {"since": anew["messages"][1]["offset"], "epoch": anew["epoch"]}
        assert [one["data"] for one in (await client.get(ROOM, params=further)).json()["messages"]] == KEPT[2:]


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_listener_that_comes_back_is_told(place: Place, by_id: bool) -> None:
    """An EventSource says the last id that it saw, and can say nothing else."""
    asked = {"room": "a"} if by_id else {"room": "a", "since": str(place.offset), "epoch": place.epoch}
    headers = {"last-event-id": f"{place.offset}@{place.epoch}"} if by_id else {}
    async with serving(place) as server, httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
        names: list[str] = []
        async with client.stream("GET", "/realtime/sse", params=asked, headers=headers) as stream:
            async for line in stream.aiter_lines():
                names += [line.removeprefix("event: ")] if line.startswith("event: ") else []
                if len(names) == 6:
                    break
        assert names == ["join_ack", "resync-required", *["room-message"] * 4]


async def test_whoever_follows_over_a_server_whose_store_is_restored_is_told(tmp_path: Path) -> None:
    place, backup = Place(tmp_path / "log.db", 0), tmp_path / "backup.db"
    async with serving(place) as server:
        await say(server.hw, KEPT[0])
        await server.hw.store.backup(str(backup))  # type: ignore[attr-defined]
        await say(server.hw, "lost 1", "lost 2")
        client = headwater.connect(server.url)
        async with client:
            messages = client.room("a").follow("beginning")
            assert [(await anext(messages)).payload for _ in range(3)] == [KEPT[0], "lost 1", "lost 2"]
            follows = asyncio.ensure_future(anext(messages))
            await server.__aexit__(None, None, None)
            put_back(place.path, backup)
            async with serving(place) as restored:
                await say(restored.hw, *KEPT[1:])
                with pytest.raises(ResyncRequired, match="restored"):
                    await follows
                anew = client.room("a").follow("beginning")
                assert [(await anext(anew)).payload for _ in range(4)] == KEPT
                await anew.aclose()


async def test_a_live_query_over_a_server_whose_store_is_restored_begins_anew(tmp_path: Path) -> None:
    place, backup = Place(tmp_path / "log.db", 0), tmp_path / "backup.db"
    async with serving(place) as server:
        await server.hw.collection("notes").set("kept", {"n": 1})
        await server.hw.store.backup(str(backup))  # type: ignore[attr-defined]
        async with headwater.connect(server.url) as client:
            changes = client.collection("notes").follow()
            assert [one.id for one in (await anext(changes)).documents] == ["kept"]
            for name in ("lost-1", "lost-2", "lost-3"):
                await server.hw.collection("notes").set(name, {"n": 2})
                assert (await anext(changes)).op == "insert"
            follows = asyncio.ensure_future(anext(changes))
            await server.__aexit__(None, None, None)
            put_back(place.path, backup)
            async with serving(place) as restored:
                new = [f"new-{number}" for number in range(8)]
                for name in new:
                    await restored.hw.collection("notes").set(name, {"n": 3})
                anew = await follows
                assert anew.op == "snapshot"
                assert {"kept", "new-0"} <= {one.id for one in anew.documents} <= {"kept", *new}
                await changes.aclose()


async def test_a_store_that_is_moved_keeps_the_places_of_its_rooms(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    async with headwater.open(str(old), housekeeping=False) as hw:
        await say(hw, "1", "2")
        before = await hw.rooms_service.kept.outline("main", "a")
    moved = await asyncio.to_thread(subprocess.run, [sys.executable, "-m", "headwater", "copy", str(old), str(new)])
    assert moved.returncode == 0
    async with headwater.open(str(new), housekeeping=False) as hw:
        page = Page(site_of(hw))
        await say(hw, "3")
        await page.say("join", {"room": "a", "since": 1, "epoch": before.epoch})
        assert await heard_on(page, 1) == ["3"]
        assert page.all("resync-required") == []
        page.cut()
