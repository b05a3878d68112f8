"""`headwater room queue off`: nothing of the log is used, whatever way a message comes in."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

import headwater
from headwater.errors import Closed, InvalidOption
from headwater.log.operations import SetSwitch
from headwater.model.room import Member, RoomMessage
from headwater.services import rooms as rooms_service
from headwater.services.database import Database
from headwater.services.live_room import Event, Presence
from headwater.services.rooms import MEMORY_SWITCH
from tests.cli.program import Program
from tests.doors.live_door import SERVINGS

PATIENCE_SECONDS = 30.0


async def switch(hw: headwater.Headwater, *, off: bool) -> None:
    await hw.queues_service.run(SetSwitch(name=MEMORY_SWITCH, is_on=off))


async def newest(hw: headwater.Headwater) -> int:
    return (await hw.rooms_service.kept.outline("main", "a")).end - 1


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def hw(stack: AsyncExitStack, tmp_path: Path) -> headwater.Headwater:
    """A store that is off the log, and one message in it from before."""
    opened = await stack.enter_async_context(headwater.open(str(tmp_path / "headwater.db")))
    await opened.room("a").send("before")
    await switch(opened, off=True)
    return opened


@pytest.mark.parametrize("durability", [None, "memory", "written", "synced"])
async def test_a_program_with_nobody_to_pass_a_message_on_to_is_refused(
    hw: headwater.Headwater, tmp_path: Path, durability: str | None
) -> None:
    async with headwater.open(str(tmp_path / "headwater.db")) as other:
        with pytest.raises(InvalidOption, match=r"headwater room queue off.*through the server"):
            await other.room("a").send(1, durability=durability)
        await switch(other, off=False)
        async with headwater.open(str(tmp_path / "headwater.db")) as third:
            await third.room("a").send(1, durability=durability)


async def push_and_send(database: Database) -> None:
    async with database.transaction() as together:
        together.push("invoices", 1)
        together.send("a", 1)


async def test_a_transaction_is_refused_whole(hw: headwater.Headwater, stack: AsyncExitStack, tmp_path: Path) -> None:
    other = await stack.enter_async_context(headwater.open(str(tmp_path / "headwater.db")))
    url = await stack.enter_async_context(SERVINGS["edge"](hw))
    client = await stack.enter_async_context(headwater.connect(url))
    for database in (other, client):
        with pytest.raises(InvalidOption, match="headwater room queue off"):
            await push_and_send(database)
    assert await hw.queue("invoices").pop() == []
    assert await newest(hw) == 0


async def test_a_server_passes_on_what_clients_and_its_own_program_say(
    hw: headwater.Headwater, stack: AsyncExitStack
) -> None:
    url = await stack.enter_async_context(SERVINGS["edge"](hw))
    client = await stack.enter_async_context(headwater.connect(url))
    heard: list[object] = []

    def listen(events: "list[Event] | tuple[Event, ...]") -> None:
        heard.extend(getattr(event, "payload", None) for event in events)

    live = await hw.rooms_service.enter("main", "a")
    live.listeners.append(listen)  # type: ignore[arg-type]
    assert await client.room("a").send("over the wire") is None
    assert await client.room("a").send("that passes", durability="memory") is None
    assert await hw.room("a").send("inside") is None
    for room in (client.room("a"), hw.room("a")):
        for durability in ("written", "synced"):
            with pytest.raises(InvalidOption, match=f"{durability} was asked for"):
                await room.send(1, durability=durability)
    assert heard == ["over the wire", "that passes", "inside"]
    assert await newest(hw) == 0
    hw.rooms_service.leave(live)


async def test_a_server_in_whose_rooms_nobody_is_goes_by_the_switch(
    hw: headwater.Headwater, stack: AsyncExitStack, tmp_path: Path
) -> None:
    server = await stack.enter_async_context(headwater.open(str(tmp_path / "headwater.db")))
    url = await stack.enter_async_context(SERVINGS["edge"](server))
    async with httpx.AsyncClient(base_url=url) as client:
        said = await client.post("/api/v1/rooms/a/messages", json={"type": "test", "data": 1})
        assert said.json() == {"offset": None, "durability": "memory"}
    assert await newest(hw) == 0


async def test_a_program_that_runs_learns_of_the_switch(
    hw: headwater.Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms_service, "LOOK_SECONDS", 0.0)
    await switch(hw, off=False)
    assert await hw.room("a").send(1) == 1
    await switch(hw, off=True)
    with pytest.raises(InvalidOption):
        await hw.room("a").send(2)


async def test_who_sends_while_headwater_is_closed_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        monkeypatch.setattr(hw.rooms_service, "look_at_switches", asyncio.Event().wait)
        sending = asyncio.ensure_future(hw.room("a").send(1))
        await asyncio.sleep(0)
    with pytest.raises(Closed):
        await sending


async def test_a_profile_that_was_changed_meanwhile_is_told_on_other_servers_once_the_log_is_used_again(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    here, there = [
        await stack.enter_async_context(headwater.open(str(tmp_path / "headwater.db"), housekeeping=False))
        for _ in range(2)
    ]
    red, blue = [Member("ann", headwater.Raw(f'"{color}"'.encode())) for color in ("red", "blue")]
    at_ann = await here.rooms_service.enter("main", "a")
    await here.rooms_service.connect(at_ann, red)
    at_bob = await there.rooms_service.enter("main", "a")
    assert at_bob.attendance.members() == [red]
    heard: asyncio.Queue[Event] = asyncio.Queue()

    def listen(events: Sequence[Event]) -> None:
        for event in events:
            heard.put_nowait(event)

    at_bob.listeners.append(listen)
    await switch(here, off=True)
    await here.rooms_service.look_at_switches()
    here.rooms_service.disconnect(at_ann, "ann")
    await here.rooms_service.connect(at_ann, blue)
    await switch(here, off=False)
    await here.rooms_service.look_at_switches()
    await here.room("a").send("behind it")
    told: list[Event] = []
    while not told or not isinstance(told[-1], RoomMessage):
        told.append(await asyncio.wait_for(heard.get(), PATIENCE_SECONDS))
    assert told[:-1] == [Presence("left", red), Presence("joined", blue)]


def test_the_command_line_is_refused_or_goes_through_the_server(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.expect(0, "room", "send", "a", "1")
    program.expect(0, "room", "queue", "off")
    assert "headwater room queue off" in program.expect(2, "room", "send", "a", "1").err

    async def send_through_server() -> None:
        async with headwater.open(str(program.store)) as hw, SERVINGS["edge"](hw) as url:
            words = ("room", "send", "a", "1", "--server", url)
            said = await asyncio.to_thread(program.run_process, *words, "--json")
            assert said.document() == {"room": "a", "offset": None, "durability": "memory"}
            refused = await asyncio.to_thread(program.run_process, *words, "--durability", "written")
            assert (refused.code, "written was asked for" in refused.err) == (2, True)
            assert await newest(hw) == 0

    asyncio.run(send_through_server())
