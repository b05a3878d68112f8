"""Cursors are passed on in batches and never kept, whichever way they come."""

from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

import headwater
from headwater.errors import ConfigError, InvalidOption, InvalidPayload
from headwater.model.room_settings import load_room_settings
from headwater.services.database import Database
from tests.doors.live_door import SERVINGS, LiveDoor
from tests.doors.realtime.guests import joined

NEVER_KEPT = "never kept"


@pytest.fixture
def door(tmp_path: Path) -> Iterator[LiveDoor]:
    door = LiveDoor(tmp_path / "headwater.db", SERVINGS["edge"])
    door.start()
    yield door
    door.stop()


async def send_together(database: Database) -> None:
    async with database.transaction() as together:
        together.send("a", {"x": 1}, type="cursor")


async def test_a_program_on_an_open_store_sends_cursors_that_only_pass(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "headwater.db"), rooms={"cursor_batch_interval": 10}) as hw:
        async with aclosing(hw.room("a").follow("beginning")) as messages:
            for durability in (None, "memory"):
                assert await hw.room("a").send({"x": 1}, type="cursor", durability=durability) is None
            first = await anext(messages)
        assert (first.type, first.offset) == ("cursor-batch", None)
        for durability in ("written", "synced"):
            with pytest.raises(InvalidOption, match=NEVER_KEPT):
                await hw.room("a").send({"x": 1}, type="cursor", durability=durability)
        with pytest.raises(InvalidPayload):
            await hw.room("a").send(7, type="cursor")
        with pytest.raises(InvalidOption, match=NEVER_KEPT):
            await send_together(hw)


async def test_over_a_server_cursors_are_refused_with_a_reason(tmp_path: Path) -> None:
    async with (
        headwater.open(str(tmp_path / "headwater.db")) as hw,
        SERVINGS["edge"](hw) as url,
        headwater.connect(url) as client,
    ):
        with pytest.raises(InvalidOption, match=NEVER_KEPT):
            await client.room("a").send({"x": 1}, type="cursor")
        with pytest.raises(InvalidOption, match=NEVER_KEPT):
            await send_together(client)
        said = {"room": "a", "type": "cursor", "data": {"x": 1}}
        async with httpx.AsyncClient(base_url=url) as plain:
            for path, body in (
                ("/v1/send", {"messages": [said]}),
                ("/v1/transaction", {"operations": [{"kind": "send", **said}]}),
                ("/api/v1/rooms/a/messages", {"type": "cursor", "data": {"x": 1}}),
            ):
                refused = await plain.post(path, json=body)
                assert (refused.status_code, refused.json()["code"]) == (400, "invalid_option"), path
                assert NEVER_KEPT in refused.json()["detail"]
        assert (await hw.rooms_service.kept.outline("main", "a")).end == 0


def test_a_member_who_asks_for_more_than_passing_is_refused(door: LiveDoor) -> None:
    with joined(door.url) as ann:
        ann.ask("join", room="a")
        refused = ann.ask("send", room="a", type="cursor", data={"x": 1}, durability="synced")
        assert (refused["type"], refused["payload"]["code"]) == ("error", "invalid_option")
        ann.say("send", room="a", type="cursor", data={"x": 1}, durability="memory")
        assert ann.until("room-message")["type"] == "cursor-batch"


@pytest.mark.parametrize("name", ["cursor", "cursor-batch", "presence", "user-connected", "a b", "", "x" * 300])
def test_a_type_that_cannot_be_declared_is_named(name: str) -> None:
    declared: dict[str, Any] = {"types": {name: {"durability": "written"}}}
    with pytest.raises(ConfigError, match="types of rooms"):
        load_room_settings(declared, {})
