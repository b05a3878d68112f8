"""A member reads the history while messages of it are dropped: a page goes on where the last ended, or it is told."""

import json
from typing import Any, cast

import msgspec

from headwater.doors.realtime.rooms import PUT_BY_BYTES_MAX, Seat, catch_up
from headwater.doors.realtime.session import RealtimeSession
from headwater.doors.sessions import CloseCode, Frame
from headwater.errors import HeadwaterError
from headwater.model.names import Offset, PartitionId
from headwater.model.room import RoomMessage
from headwater.services.live_room import LiveRoom
from headwater.services.room_history import RoomHistory
from headwater.services.room_outline import Outline

ONE = msgspec.Raw(b"1")
LARGE = msgspec.Raw(b'"' + b"x" * 200_000 + b'"')


class Listener:
    """Remembers what it is sent, and how much of it waited at once."""

    member = "ann"

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []
        self.waiting = self.waiting_most = 0
        self.refused: list[CloseCode] = []

    def send(self, frame: Frame) -> bool:
        for part in frame.parts or (frame,):
            told = json.loads(part.data)
            self.heard.append((told["type"], told["payload"]["offset"]))
            self.waiting += len(part.data)
        self.waiting_most = max(self.waiting, self.waiting_most)
        return True

    def refuse(self, error: HeadwaterError, code: CloseCode) -> None:
        self.refused.append(code)

    async def taken(self, bytes_max: int) -> None:
        """A client that reads."""
        self.waiting = min(self.waiting, bytes_max)


class DroppingHistory:
    """Ten messages, a page at a time; after a page some are dropped."""

    def __init__(self, drops: list[int], page: int = 3, data: msgspec.Raw = ONE) -> None:
        self._start = 0
        self._drops = drops
        self._page = page
        self._data = data

    async def outline(self, database: str, room: str) -> Outline:
        return Outline(Offset(0), Offset(10), PartitionId(1))

    async def history(self, outline: Outline, room: str, after: int, limit: int) -> list[RoomMessage]:
        first = max(after + 1, self._start)
        found = range(first, min(first + self._page, outline.end))
        self._start = self._drops.pop(0) if self._drops else self._start
        return [RoomMessage(room, "test", self._data, "bob", 0, number) for number in found]


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


async def test_a_client_that_reads_is_not_sent_more_than_may_wait_for_it() -> None:
    live = LiveRoom("main", "a", "rooms/a", "here")
    live.next = Offset(10)
    listener = Listener()
    seat = Seat(cast(RealtimeSession, listener), live, quiet=False)
    await catch_up(cast(RoomHistory, DroppingHistory([], page=2, data=LARGE)), seat, "beginning")
    assert listener.heard == messages(*range(10))
    assert listener.waiting_most < 1_048_576


def test_what_comes_meanwhile_waits_for_who_still_reads_up_to_some_bytes() -> None:
    live = LiveRoom("main", "a", "rooms/a", "here")
    listener = Listener()
    seat = Seat(cast(RealtimeSession, listener), live, quiet=False)
    for offset in range(PUT_BY_BYTES_MAX // len(LARGE)):
        seat.told([RoomMessage("a", "test", LARGE, "bob", 0, offset)], None)
    assert listener.refused == []
    seat.told([RoomMessage("a", "test", LARGE, "bob", 0, offset + 1)], None)
    assert listener.refused == [CloseCode.TRY_AGAIN_LATER]
