"""A member reads the history while messages of it are dropped: a page goes on where the last ended, or it is told."""

import json
from typing import Any, cast

import msgspec

from headwater.doors.realtime.rooms import Seat, catch_up
from headwater.doors.realtime.session import RealtimeSession
from headwater.doors.sessions import Frame
from headwater.model.names import Offset, PartitionId
from headwater.model.room import RoomMessage
from headwater.services.live_room import LiveRoom
from headwater.services.room_history import RoomHistory
from headwater.services.room_outline import Outline


class Listener:
    """Remembers what it is sent."""

    member = "ann"

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def send(self, frame: Frame) -> bool:
        for part in frame.parts or (frame,):
            told = json.loads(part.data)
            self.heard.append((told["type"], told["payload"]["offset"]))
        return True


class DroppingHistory:
    """Ten messages, a page at a time; after a page some are dropped."""

    def __init__(self, drops: list[int], page: int = 3) -> None:
        self._start = 0
        self._drops = drops
        self._page = page

    async def outline(self, database: str, room: str) -> Outline:
        return Outline(Offset(0), Offset(10), PartitionId(1))

    async def history(self, outline: Outline, room: str, after: int, limit: int) -> list[RoomMessage]:
        first = max(after + 1, self._start)
        found = range(first, min(first + self._page, outline.end))
        self._start = self._drops.pop(0) if self._drops else self._start
        return [RoomMessage(room, "test", msgspec.Raw(b"1"), "bob", 0, number) for number in found]


async def heard(drops: list[int], since: Any = "beginning") -> list[tuple[str, int]]:
    live = LiveRoom("main", "a", "rooms/a", "here")
    live.next = Offset(10)
    listener = Listener()
    seat = Seat(cast(RealtimeSession, listener), live, quiet=False)
    await catch_up(cast(RoomHistory, DroppingHistory(drops)), seat, since)
    return listener.heard


def messages(*offsets: int) -> list[tuple[str, int]]:
    return [("room-message", offset) for offset in offsets]


async def test_what_is_kept_comes_whole() -> None:
    assert await heard([]) == messages(*range(10))
    assert await heard([], since=4) == messages(*range(5, 10))


async def test_a_hole_between_two_pages_is_told_before_what_is_behind_it() -> None:
    assert await heard([7]) == [*messages(0, 1, 2), ("resync-required", 6), *messages(7, 8, 9)]


async def test_the_rest_of_a_history_that_is_dropped_is_told() -> None:
    assert await heard([10]) == [*messages(0, 1, 2), ("resync-required", 9)]


async def test_what_was_dropped_and_had_been_sent_is_no_hole() -> None:
    assert await heard([3, 6]) == messages(*range(10))
