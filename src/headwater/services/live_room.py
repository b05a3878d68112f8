"""A room that somebody on this server is in: what the log brings for it, in order, to whoever listens.

segments of its queue ─► messages by offset: each once, a hole is told
                      ─► what only passes: unless this process handed it out already
                      ─► presence: who came, who left
"""

from collections.abc import Callable, Sequence

import msgspec

from headwater.clock import Timestamp
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.room import (
    KEPT,
    PASSING,
    PRESENCE,
    Attendance,
    Member,
    RoomMessage,
    Watermark,
    message_of,
    origin_of,
    watermarks_of,
)
from headwater.services.room_outline import Outline, epoch_of
from headwater.services.room_presence import Told
from headwater.stores.questions import Segment


class Presence(msgspec.Struct, frozen=True):
    """Somebody has come ("joined") or gone ("left")."""

    state: str
    member: Member


class Missed(msgspec.Struct, frozen=True):
    """Messages up to this offset were dropped before they could be delivered."""

    offset: int


Event = RoomMessage | Presence | Missed
Listener = Callable[[Sequence[Event]], None]


class LiveRoom:
    """One room. Until it is `ready`, what comes is put by."""

    def __init__(self, database: str, name: str, queue: str, origin: str) -> None:
        self.database = database
        self.name = name
        self.queue = queue
        self._origin = origin
        self.attendance = Attendance()
        # Members on this server, by name.
        self.here: dict[str, Member] = {}
        # Of a crowd: whether it is being said how many they are, and whether that has changed meanwhile.
        self.is_count_on_its_way = False
        self.is_count_unsaid = False
        self.listeners: list[Listener] = []
        self.users = 0
        # The offset that comes next, and the LSN up to which everything was delivered.
        self.next = Offset(0)
        self.delivered = Lsn(0)
        # How far each server said that it has delivered; and how often something was since this one said so.
        self.watermarks: dict[str, Watermark] = {}
        self.steps_unsaid = 0
        self.said_at = 0.0
        self._presence_next = Offset(0)
        # Where its messages and who is there were last: a room that is deleted and made again begins anew.
        self._places: dict[str, PartitionId] = {}
        self._identity = ""
        self._put_by: list[Segment] | None = []

    @property
    def epoch(self) -> str:
        """Whose offsets they are: another text once the room was deleted and made again, or its store restored; none
        before its first message."""
        return epoch_of(self._identity, self._places.get(KEPT))

    def make_ready(self, next_offset: Offset, told: Told, places: dict[str, PartitionId], identity: str) -> None:
        """Begin: from this offset on, in a store of this identity, and with what servers have said of who is there."""
        self.next = next_offset
        self._places = places
        self._identity = identity
        self.attendance = told.attendance
        self.watermarks = told.watermarks
        self._presence_next = told.next
        put_by, self._put_by = self._put_by or [], None
        for segment in put_by:
            self.take(segment)

    def take(self, segment: Segment) -> None:
        """A segment of its queue has come."""
        if self._put_by is not None:
            self._put_by.append(segment)
            return
        partition = segment.lane.partition
        if partition == KEPT:
            self.tell(self._kept(segment))
        elif partition == PASSING:
            self.tell(self._passing(segment))
        elif partition == PRESENCE:
            self.tell(self._presence(segment))
        self.delivered = segment.lsn

    def look_at(self, outline: Outline) -> None:
        """Messages of the room, or of others, are gone: say so where they are its own and were not handed out, or where
        the room was deleted."""
        if self._put_by is not None:
            return
        is_another = self._is_deleted(outline)
        if is_another:
            self._places.pop(KEPT)
            if outline.partition_id is not None:
                self._places[KEPT] = outline.partition_id
        if is_another or outline.start > self.next:
            self.next = outline.start
            self.tell([Missed(outline.start - 1)])

    def _is_deleted(self, outline: Outline) -> bool:
        """Whether what was delivered here is of a room that is no more. Later lives have higher numbers: an outline of
        an earlier one was looked at before this one began."""
        known = self._places.get(KEPT)
        return known is not None and (outline.partition_id is None or outline.partition_id > known)

    def tell(self, events: Sequence[Event]) -> None:
        """Hand events to everybody who listens here."""
        if events:
            for listener in list(self.listeners):
                listener(events)

    def tell_presence(self, changes: Sequence[tuple[str, Member]]) -> None:
        """Say who came and who left."""
        self.tell([Presence(state, member) for state, member in changes])

    def expire(self, now: Timestamp) -> None:
        """Members of servers that were silent for too long have left."""
        self.tell_presence(self.attendance.expire(now))

    def clock_set(self, by: int) -> None:
        """The clock was set: who was there a moment ago was there a moment ago."""
        self.attendance.clock_set(by)
        self.watermarks = {
            instance: msgspec.structs.replace(mark, updated_at=Timestamp(mark.updated_at + by))
            for instance, mark in self.watermarks.items()
        }

    def _kept(self, segment: Segment) -> list[Event]:
        events: list[Event] = []
        if self._is_made_again(segment):
            self.next = segment.first_offset
            events.append(Missed(segment.first_offset - 1))
        for place, record in enumerate(segment.records):
            offset = Offset(segment.first_offset + place)
            if offset < self.next:
                continue
            if offset > self.next:
                events.append(Missed(offset - 1))
            self.next = Offset(offset + 1)
            events.append(message_of(self.name, record, segment.written_at, offset))
        return events

    def _passing(self, segment: Segment) -> list[Event]:
        return [
            message_of(self.name, record, segment.written_at, None)
            for record in segment.records
            # What this process handed out itself says so, and is not handed out twice.
            if origin_of(record) != self._origin
        ]

    def _is_made_again(self, segment: Segment) -> bool:
        before = self._places.get(segment.lane.partition)
        self._places[segment.lane.partition] = segment.partition_id
        return before is not None and before != segment.partition_id

    def _note_watermarks(self, segment: Segment) -> None:
        for mark in watermarks_of([(record, segment.written_at) for record in segment.records]):
            self.watermarks[mark.instance] = mark

    def _presence(self, segment: Segment) -> list[Event]:
        events: list[Event] = []
        if self._is_made_again(segment):
            self._presence_next = segment.first_offset
        self._note_watermarks(segment)
        for place, record in enumerate(segment.records):
            if segment.first_offset + place >= self._presence_next:
                changes = self.attendance.take(record, segment.written_at)
                events.extend(Presence(state, member) for state, member in changes)
        return events
