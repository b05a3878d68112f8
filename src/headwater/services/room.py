"""One room as people hold it: `hw.room("canvas-1")`. It says things and follows what is said; it is no member."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from headwater.config import Durability
from headwater.errors import Closed, ResyncRequired
from headwater.log.room_operations import RoomPush
from headwater.model.names import Lsn, Offset
from headwater.model.record import encode_payload
from headwater.model.room import (
    KEPT,
    PASSING,
    PRESENCE,
    Attendance,
    Member,
    RoomMessage,
    Since,
    Watermark,
    check_since,
    lowest_watermark,
    message_of,
    queue_of,
    room_record,
    watermarks_of,
)
from headwater.outage import through_outages
from headwater.services.checks import check_durability, check_seconds, check_text
from headwater.services.life import Life, verb
from headwater.services.room_outline import UNKNOWN, Outline, outline_of
from headwater.services.room_requests import check_kept_type, check_type
from headwater.services.streams import Stream
from headwater.services.verbs import Verbs
from headwater.stores.questions import ListPartitions

if TYPE_CHECKING:
    from headwater.services.rooms import Rooms
    from headwater.stores.questions import Segment


class Room:
    """One room of a database, on an open store or on a server."""

    def __init__(self, queues: Verbs, database: str, name: str, rooms: "Rooms | None" = None) -> None:
        self._queues = queues
        self._rooms = rooms
        self.database = database
        self.queue = queue_of(name)
        self.name = name

    @property
    def life(self) -> Life:
        """Whether it may be used now."""
        return self._queues.life

    @verb
    async def send(
        self,
        data: Any,
        *,
        type: str = "message",
        key: str = "",
        sender: str = "",
        durability: Durability | str | None = None,
        ttl_seconds: float | None = None,
    ) -> int | None:
        """Say something to everybody in the room; its offset, None for what only passes (durability `memory`).

        It is kept for `ttl_seconds`; as long as the setting `message_ttl` says, over a server that one's, without.

        >>> await hw.room("canvas-1").send({"id": "o1", "x": 10}, type="object-create")
        """
        asked = check_durability(durability)
        if self._rooms is None:
            check_kept_type(type)
        level = asked or (None if self._rooms is None else self._rooms.settings.of(type).durability)
        push = self.push_of(
            data,
            type=type,
            key=key,
            sender=sender,
            ttl_seconds=ttl_seconds,
            partition=PASSING if level is Durability.MEMORY else KEPT,
        )
        if self._rooms is not None and level is not None:
            return (await self._rooms.say(push, level, asked or Durability.MEMORY)).offset
        answer = await self._queues.push(push, asked)
        if answer.durability is Durability.MEMORY or answer.result is None:
            return None
        return int(answer.result.first_offset)

    def push_of(
        self, data: object, *, type: str, key: str, sender: str, ttl_seconds: float | None, partition: str = KEPT
    ) -> RoomPush:
        """A message of this room as an operation, checked. For a server, what is not said is left to it."""
        check_type(type)
        encoded = encode_payload(data, self._queues.config.record_bytes_max)
        record = room_record(type, encoded, check_text("sender", sender), key=check_text("key", key))
        if ttl_seconds is not None:
            check_seconds("ttl_seconds", ttl_seconds)
        elif self._rooms is not None:
            ttl_seconds = self._rooms.settings.message_ttl
        return RoomPush(
            database=self.database, queue=self.queue, partition=partition, records=(record,), ttl_seconds=ttl_seconds
        )

    def follow(self, since: Since = "now") -> Stream[RoomMessage]:
        """Messages as they come: those behind an offset first, all that are kept with "beginning".

        Raises ResyncRequired when there never was such an offset, when messages behind it, or while it follows, were
        dropped, and when the room was deleted and made again, or the store of the server that is asked was restored
        meanwhile: its offsets begin anew then. Raises Closed when Headwater is closed meanwhile.

        >>> async for message in hw.room("canvas-1").follow():
        ...     print(message.type, message.payload)
        """
        self.life.check()
        return Stream(self._follow(check_since(since)))

    async def _follow(self, since: Since) -> AsyncGenerator[list[RoomMessage], None]:
        end = await self._queues.last_lsn()
        async with await self._queues.follow(self.database, self.queue, end if since == "now" else Lsn(0)) as steps:
            # Asked behind both: what lies before the end of the outline may come, and is passed over; a hole cannot.
            # What was dropped up to here is in the outline, what is dropped from here on is told with a step.
            reader = _Reader(self.name, await self._outline(), since, end)
            while not steps.is_over:
                step = await steps.step()
                for segment in step.segments:
                    yield reader.read(segment)
                if step.resync is not None:
                    reader.look_at(await through_outages(self._outline))
        # It ends with the store alone: whoever follows would take a quiet end for the last message.
        raise Closed(f"Headwater was closed while room {self.name} was followed")

    @verb
    async def members(self) -> list[Member]:
        """Who is in the room, on all servers."""
        attendance = Attendance()
        for segment in await self._presence():
            for record in segment.records:
                attendance.take(record, segment.written_at)
        attendance.expire(self._queues.clock.now())
        return attendance.members()

    @verb
    async def watermarks(self) -> list[Watermark]:
        """How far each server that was there in the last five minutes has delivered the room."""
        said = [(record, segment.written_at) for segment in await self._presence() for record in segment.records]
        return watermarks_of(said)

    async def lowest_watermark(self) -> Lsn | None:
        """The lowest of them: everybody has what lies before it."""
        return lowest_watermark(await self.watermarks(), self._queues.clock.now())

    async def _outline(self) -> Outline:
        return outline_of(await self._queues.store.ask(ListPartitions(self.database, self.queue)))

    async def _presence(self) -> "list[Segment]":
        found: list[Segment] = []
        end = await self._queues.last_lsn()
        async with await self._queues.follow(self.database, self.queue, Lsn(0)) as steps:
            async for step in steps.until(end):
                found += [segment for segment in step.segments if segment.lane.partition == PRESENCE]
        return found


class _Reader:
    """Takes messages out of segments: each once, a hole is told."""

    def __init__(self, room: str, outline: Outline, since: Since, begun_at: Lsn) -> None:
        self._room = room
        self._begun_at = begun_at
        self._partition_id = outline.partition_id
        # Whoever begins with what is kept begins with what still is when it is read.
        self._is_open = since == "beginning"
        self._next: int = outline.end if isinstance(since, str) else since + 1
        if isinstance(since, int) and (reason := outline.why_not_since(since)):
            there = "nothing is" if outline.end == outline.start else f"{outline.start} to {outline.end - 1} are"
            what = f"{since} never was" if reason == UNKNOWN else f"messages behind {since} were dropped"
            raise ResyncRequired(f"of room {room} {there} kept; {what}")

    def read(self, segment: "Segment") -> list[RoomMessage]:
        """What a segment has for whoever follows."""
        if segment.lane.partition == PASSING and segment.lsn > self._begun_at:
            return [message_of(self._room, record, segment.written_at, None) for record in segment.records]
        if segment.lane.partition != KEPT:
            return []
        if self._partition_id not in (None, segment.partition_id):
            raise ResyncRequired(f"room {self._room} was deleted and made again; its offsets begin anew")
        self._partition_id = segment.partition_id
        found = []
        for place, record in enumerate(segment.records):
            offset = Offset(segment.first_offset + place)
            if self._is_open:
                self._next, self._is_open = min(self._next, offset), False
            if offset < self._next:
                continue
            self._need(offset)
            self._next = offset + 1
            found.append(message_of(self._room, record, segment.written_at, offset))
        return found

    def look_at(self, outline: Outline) -> None:
        """Messages of the room are gone; raises when some of them were not read yet."""
        if not self._is_open:
            self._need(outline.start)

    def _need(self, offset: int) -> None:
        if offset > self._next:
            raise ResyncRequired(f"messages {self._next} to {offset - 1} of room {self._room} were dropped")
