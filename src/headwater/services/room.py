"""One room as people hold it: `hw.room("canvas-1")`. It says things and follows what is said; it is no member."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from headwater.config import Durability
from headwater.errors import InvalidOption, ResyncRequired
from headwater.log.operations import Push
from headwater.model.names import Lsn, Offset, check_name
from headwater.model.record import encode_payload
from headwater.model.room import (
    KEPT,
    OWN_TYPES,
    PASSING,
    PRESENCE,
    Attendance,
    Member,
    RoomMessage,
    Watermark,
    lowest_watermark,
    message_of,
    queue_of,
    room_record,
    watermarks_of,
)
from headwater.services.checks import check_durability, check_seconds, check_text
from headwater.services.life import Life, verb
from headwater.services.verbs import Verbs

if TYPE_CHECKING:
    from headwater.stores.questions import Segment

MESSAGE_TTL_SECONDS = 60.0


class Room:
    """One room of a database, on an open store or on a server."""

    def __init__(self, queues: Verbs, database: str, name: str) -> None:
        self._queues = queues
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
        ttl_seconds: float = MESSAGE_TTL_SECONDS,
    ) -> int | None:
        """Say something to everybody in the room; its offset, None for what only passes (durability `memory`).

        >>> await hw.room("canvas-1").send({"id": "o1", "x": 10}, type="object-create")
        """
        level = check_durability(durability) or Durability.WRITTEN
        push = self.push_of(
            data,
            type=type,
            key=key,
            sender=sender,
            ttl_seconds=ttl_seconds,
            partition=PASSING if level is Durability.MEMORY else KEPT,
        )
        answer = await self._queues.push(push, level)
        return None if level is Durability.MEMORY or answer.result is None else int(answer.result.first_offset)

    def push_of(
        self, data: Any, *, type: str, key: str, sender: str, ttl_seconds: float, partition: str = KEPT
    ) -> Push:
        """A message of this room as an operation, checked."""
        if check_name("message type", type) in OWN_TYPES:
            raise InvalidOption(f"messages of type {type} are made by the server; send another type")
        encoded = encode_payload(data, self._queues.config.record_bytes_max)
        record = room_record(type, encoded, check_text("sender", sender), key=check_text("key", key))
        check_seconds("ttl_seconds", ttl_seconds)
        return Push(
            database=self.database, queue=self.queue, partition=partition, records=(record,), ttl_seconds=ttl_seconds
        )

    async def follow(self, since: int | str = "now") -> AsyncGenerator[RoomMessage, None]:
        """Messages as they come: those behind an offset first, all that are kept with "beginning".

        Raises ResyncRequired when messages behind the offset, or while it follows, were dropped.

        >>> async for message in hw.room("canvas-1").follow():
        ...     print(message.type, message.payload)
        """
        self.life.check()
        if since not in ("now", "beginning") and (type(since) is not int or since < -1):
            raise InvalidOption(f"since must be an offset, now or beginning; got {since!r:.80}")
        end = await self._queues.last_lsn()
        reader = _Reader(self.name, since if isinstance(since, int) else None, end)
        async with await self._queues.follow(self.database, self.queue, end if since == "now" else Lsn(0)) as steps:
            while not steps.is_over:
                step = await steps.step()
                for segment in step.segments:
                    for message in reader.read(segment):
                        yield message

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

    async def _presence(self) -> "list[Segment]":
        found: list[Segment] = []
        end = await self._queues.last_lsn()
        async with await self._queues.follow(self.database, self.queue, Lsn(0)) as steps:
            async for step in steps.until(end):
                found += [segment for segment in step.segments if segment.lane.partition == PRESENCE]
        return found


class _Reader:
    """Takes messages out of segments: each once, a hole is told."""

    def __init__(self, room: str, since: int | None, begun_at: Lsn) -> None:
        self._room = room
        self._begun_at = begun_at
        self._next = None if since is None else since + 1

    def read(self, segment: "Segment") -> list[RoomMessage]:
        """What a segment has for whoever follows."""
        if segment.lane.partition == PASSING and segment.lsn > self._begun_at:
            return [message_of(self._room, record, segment.written_at, None) for record in segment.records]
        if segment.lane.partition != KEPT:
            return []
        found = []
        for place, record in enumerate(segment.records):
            offset = Offset(segment.first_offset + place)
            if self._next is not None and offset < self._next:
                continue
            if self._next is not None and offset > self._next:
                raise ResyncRequired(f"messages {self._next} to {offset - 1} of this room were dropped")
            self._next = offset + 1
            found.append(message_of(self._room, record, segment.written_at, offset))
        return found
