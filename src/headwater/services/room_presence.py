"""Who is in rooms, as far as servers have said: what was read of it once is not read again.

    what servers said ─► read from where this process has read it up to ─► `Told` ─► who asks, or opens the room

What is said of a room is kept for minutes, with everybody who came and went meanwhile. Whoever opens a room, or asks
who is there, would have to go through all of it each time. What it came to is put by here, of the rooms that were asked
for last; one that is not here any more is read from the oldest that is kept.
"""

from headwater.config import MIB
from headwater.model.names import Offset, PartitionId
from headwater.model.room import Attendance, Watermark, watermarks_of
from headwater.services.queues import Queues
from headwater.stores.questions import PartitionStatus, ReadPartition, Segment

# So many segments are read at once.
PAGE_SEGMENTS = 100
# What is put by has no more than this, and what a room needs beside its members.
PUT_BY_BYTES_MAX = 8 * MIB
ROOM_BYTES = 1_024


class Told:
    """What servers have said of a room, up to before the offset `next` of the partition that it is in."""

    def __init__(self, partition_id: PartitionId | None = None, begin: int = 0) -> None:
        self.partition_id = partition_id
        self.next = Offset(begin)
        self.attendance = Attendance()
        self.watermarks: dict[str, Watermark] = {}
        # What it counted when it was put by.
        self.size = 0

    def take(self, segment: Segment) -> None:
        """Go on with a segment; what is known of it already changes nothing."""
        new = segment.records[max(self.next - segment.first_offset, 0) :]
        for record in new:
            self.attendance.take(record, segment.written_at)
        for mark in watermarks_of([(record, segment.written_at) for record in new]):
            self.watermarks[mark.instance] = mark
        self.next = Offset(max(self.next, segment.first_offset + len(segment.records)))

    def copy(self) -> "Told":
        """The same, for somebody who goes on from here alone."""
        copied = Told(self.partition_id, self.next)
        copied.attendance = self.attendance.copy()
        copied.watermarks = dict(self.watermarks)
        return copied

    def goes_on_in(self, status: PartitionStatus) -> bool:
        """Whether what is kept goes on from here: of the same life of the room, and nothing in between is gone."""
        return self.partition_id == status.partition_id and self.next >= status.start


class RoomPresence:
    """Reads who is in rooms, and puts by what it came to."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        # Those that were asked for last come last.
        self._put_by: dict[tuple[str, str], Told] = {}
        self._size = 0

    async def told(self, database: str, queue: str, status: PartitionStatus | None) -> Told:
        """What is known of a room whose presence is in this partition; without those who were silent for too long."""
        key = (database, queue)
        told = self._put_by.get(key)
        if status is None:
            self._drop(key)
            return Told()
        if told is None or not told.goes_on_in(status):
            told = Told(status.partition_id, status.start)
        # Others may read the same meanwhile, and go on with the same value: what they have read is not read again.
        while told.next < status.end:
            segments = await self._queues.ask(ReadPartition(status.partition_id, told.next, PAGE_SEGMENTS))
            if not segments:
                break
            for segment in segments:
                told.take(segment)
        told.attendance.expire(self._queues.clock.now())
        self._keep(key, told)
        return told.copy()

    def clock_set(self) -> None:
        """The clock was set: when something was said is to be seen anew."""
        self._put_by.clear()
        self._size = 0

    def _keep(self, key: tuple[str, str], told: Told) -> None:
        self._drop(key)
        told.size = ROOM_BYTES + told.attendance.size()
        self._put_by[key] = told
        self._size += told.size
        while self._size > PUT_BY_BYTES_MAX:
            self._drop(next(iter(self._put_by)))

    def _drop(self, key: tuple[str, str]) -> None:
        told = self._put_by.pop(key, None)
        if told is not None:
            self._size -= told.size
