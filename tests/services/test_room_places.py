"""Places in a room: an offset that never was, messages that are gone, a room that was made again. Whoever follows from
there is told, at once, on every interface; nobody waits in silence for what cannot come."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.errors import InvalidOption, ResyncRequired
from headwater.log.operations import Retain
from headwater.model.names import Offset, PartitionId
from headwater.model.room import RoomMessage
from headwater.services.live_room import Event, LiveRoom, Missed
from headwater.services.room import Room
from headwater.services.room_followers import RoomFollowers
from headwater.services.room_outline import Outline
from headwater.services.room_presence import Told
from tests.contracts.clock import FakeClock
from tests.doors.live_door import SERVINGS
from tests.waiting import expect_soon_async

WAIT_SECONDS = 30.0
INTERFACES = ("an open store", "a server")


class Scene:
    """A store whose time is the test's, and its rooms as one interface has them."""

    def __init__(self, hw: headwater.Headwater, clock: FakeClock, room: Callable[[str], Room]) -> None:
        self.hw, self.clock, self.room = hw, clock, room

    async def drop_all(self) -> None:
        """What is kept by now is over its time."""
        self.clock.advance(61)
        await self.hw.committer.submit(Retain())


@pytest.fixture(params=INTERFACES)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        path = str(tmp_path / "headwater.db")
        hw = await stack.enter_async_context(headwater.open(path, clock=clock, housekeeping=False))
        if request.param == "an open store":
            yield Scene(hw, clock, hw.room)
        else:
            url = await stack.enter_async_context(SERVINGS["edge"](hw))
            client = await stack.enter_async_context(headwater.connect(url))
            yield Scene(hw, clock, client.room)


async def take(messages: AsyncIterator[RoomMessage], count: int = 1) -> list[Any]:
    return [(await asyncio.wait_for(anext(messages), WAIT_SECONDS)).payload for _ in range(count)]


async def test_an_offset_that_never_was_is_told_at_once(scene: Scene) -> None:
    for number in range(3):
        await scene.hw.room("a").send(number)
    for since in (3, 700, 2**53, 2**63, 2**64 + 1):
        async with aclosing(scene.room("a").follow(since)) as messages:
            with pytest.raises(ResyncRequired, match=f"0 to 2 are kept; {since} never was"):
                await take(messages)
    async with aclosing(scene.room("nobody-was-here").follow(0)) as messages:
        with pytest.raises(ResyncRequired, match="nothing is kept; 0 never was"):
            await take(messages)
    async with aclosing(scene.room("a").follow(2)) as messages:
        await scene.hw.room("a").send("next")
        assert await take(messages) == ["next"]


async def test_messages_that_are_gone_are_told_at_once(scene: Scene) -> None:
    """Not when somebody says something next: that may be never."""
    for number in range(3):
        await scene.hw.room("a").send(number)
    await scene.drop_all()
    for since in (-1, 0, 1):
        async with aclosing(scene.room("a").follow(since)) as messages:
            with pytest.raises(ResyncRequired, match="were dropped"):
                await take(messages)
    async with aclosing(scene.room("a").follow(2)) as messages:
        await scene.hw.room("a").send("next")
        assert await take(messages) == ["next"]


@pytest.mark.parametrize("since", ["now", "beginning", -1])
async def test_one_who_follows_a_room_that_is_deleted_and_made_again_is_told(scene: Scene, since: int | str) -> None:
    for number in range(3):
        await scene.hw.room("a").send(number)
    async with aclosing(scene.room("a").follow(since)) as messages:
        following = asyncio.ensure_future(take(messages, 1 if since == "now" else 4))
        await is_parked(scene)
        await scene.hw.room("a").send("before")
        assert (await following)[-1] == "before"
        await scene.hw.queue("rooms/a").delete()
        await scene.hw.room("a").send("anew")
        with pytest.raises(ResyncRequired, match="made again"):
            await take(messages)
    async with aclosing(scene.room("a").follow("beginning")) as messages:
        assert await take(messages) == ["anew"]


async def test_what_was_dropped_before_it_was_read_is_told(scene: Scene) -> None:
    """Also to those who had not got a message yet, and could not tell by its offset."""
    await scene.hw.room("a").send("long ago")
    async with aclosing(scene.room("a").follow("now")) as messages:
        following = asyncio.ensure_future(take(messages))
        await is_parked(scene)
        await scene.hw.room("a").send(1)
        assert await following == [1]
        # It is not asked meanwhile, so that these are gone when it is.
        await scene.hw.room("a").send(2)
        await scene.drop_all()
        await scene.hw.room("a").send(3)
        with pytest.raises(ResyncRequired, match="messages 2 to 2 of room a were dropped"):
            await take(messages)


async def test_members_on_a_server_that_fell_behind_are_told_of_what_is_gone_before_anybody_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process wrote and dropped what this server has not read: only the store can tell, and nobody speaks."""
    clock, path = FakeClock(), str(tmp_path / "headwater.db")
    goes_on = asyncio.Event()
    heard: list[Event] = []

    async def rest(self: RoomFollowers) -> None:
        if heard:
            await goes_on.wait()

    async with (
        headwater.open(path, clock=clock, housekeeping=False) as writer,
        headwater.open(path, clock=clock, housekeeping=False) as server,
    ):
        monkeypatch.setattr(RoomFollowers, "_rest", rest)
        for name in ("a", "b"):
            live = await server.rooms_service.enter("main", name)
            live.listeners.append(heard.extend)
        await writer.room("a").send("first")
        await expect_soon_async(lambda: is_so(len(heard) == 1))
        for number in range(2):
            await writer.room("a").send(number)
        clock.advance(61)
        await writer.committer.submit(Retain())
        goes_on.set()
        await expect_soon_async(lambda: is_so(len(heard) > 1))
        assert heard[1:] == [Missed(2)]
        await writer.room("a").send("after")
        await expect_soon_async(lambda: is_so(len(heard) > 2))
        [after] = heard[2:]
        assert isinstance(after, RoomMessage)
        assert after.offset == 3


async def is_so(found: bool) -> bool:
    return found


async def is_parked(scene: Scene) -> None:
    """Whoever follows has looked, and waits."""
    followers = scene.hw.queues_service.followers
    await expect_soon_async(lambda: is_so(any(one._is_caught_up for one in followers.under_way)))


@pytest.mark.parametrize(
    "since", ["then", "", "-2", "1.5", "1e3", "٣", "9" * 5_000, -2, 1.0, 1.5, True, None, float("nan")]
)
async def test_what_is_no_place_is_refused(scene: Scene, since: Any) -> None:
    with pytest.raises(InvalidOption, match="since must be an offset, now or beginning"):
        await anext(scene.room("a").follow(since))


def test_whether_one_can_go_on_from_an_offset() -> None:
    kept = Outline(Offset(3), Offset(6), PartitionId(1))
    found = {offset: kept.why_not_since(offset) for offset in (-1, 1, 2, 5, 6, 2**63)}
    assert found == {
        -1: "dropped",
        1: "dropped",
        2: "",
        5: "",
        6: "unknown offset",
        2**63: "unknown offset",
    }
    # Of an empty room only that it has no first message can be known.
    assert (Outline().why_not_since(-1), Outline().why_not_since(0)) == ("", "unknown offset")


def test_members_are_told_of_messages_that_are_gone_without_waiting_for_the_next() -> None:
    live = LiveRoom("main", "a", "rooms/a", "here")
    heard: list[Event] = []
    live.listeners.append(heard.extend)
    live.make_ready(Offset(2), Told(), {}, "store")
    live.look_at(Outline(Offset(2), Offset(9), PartitionId(1)))
    assert heard == []
    live.look_at(Outline(Offset(5), Offset(9), PartitionId(1)))
    live.look_at(Outline(Offset(5), Offset(9), PartitionId(1)))
    assert heard == [Missed(4)]
    assert live.next == 5
