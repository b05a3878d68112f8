"""What is kept of a room: which messages there are, and those behind an offset."""

from collections.abc import Sequence

from headwater.config import KIB, MIB
from headwater.errors import ResyncRequired
from headwater.model.names import Offset
from headwater.model.room import RoomMessage, message_of, queue_of
from headwater.services.queues import Queues
from headwater.services.room_outline import Outline, outline_of
from headwater.stores.questions import ListPartitions, PartitionStatus, ReadPartition

# So many segments are read at once, and no more than are so large together, but for the last of them.
PAGE_SEGMENTS = 100
PAGE_BYTES = 512 * KIB
# An answer of several pages has no more than this, but for the last of them.
ANSWER_BYTES_MAX = 8 * MIB


def begins_behind_hole(outline: Outline, after: int, found: Sequence[RoomMessage]) -> int | None:
    """Where what was read behind an offset begins, when that is behind a hole: messages in between were dropped since
    the outline was looked at. None when there is none."""
    begin = (found[0].offset or 0) if found else outline.end
    return begin if begin > after + 1 else None


def _resync_required(start: int, end: int) -> ResyncRequired:
    return ResyncRequired(f"messages of this room are kept from offset {start} up to {end - 1}")


class RoomHistory:
    """Reads rooms from the store. Nobody has to be in one."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    async def outline(self, database: str, room: str) -> Outline:
        """Which messages of a room are kept."""
        identity = await self._queues.identity()
        return outline_of(await self._queues.ask(ListPartitions(database, queue_of(room))), identity)

    async def history(self, outline: Outline, room: str, after: int, limit: int) -> list[RoomMessage]:
        """Messages behind an offset, up to the end of the outline: some of them, none when there are no more."""
        if outline.partition_id is None or after + 1 >= outline.end:
            return []
        first = Offset(max(after + 1, outline.start))
        asked = ReadPartition(outline.partition_id, first, min(limit, PAGE_SEGMENTS), PAGE_BYTES)
        segments = await self._queues.ask(asked)
        found = [
            message_of(room, record, segment.written_at, Offset(segment.first_offset + place))
            for segment in segments
            for place, record in enumerate(segment.records)
            if first <= segment.first_offset + place < outline.end
        ]
        return found[:limit]

    async def history_of(
        self, database: str, room: str, since: int | None, limit: int, epoch: str = ""
    ) -> tuple[list[RoomMessage], Outline]:
        """As many as that behind an offset of an epoch, unless they are too large for one answer, and what there is;
        from the oldest that is kept with None. Raises ResyncRequired where there would be a hole."""
        outline = await self.outline(database, room)
        if since is not None and (outline.why_not_since(since) or not outline.counts_in(epoch)):
            raise _resync_required(outline.start, outline.end)
        after = outline.start - 1 if since is None else since
        found: list[RoomMessage] = []
        room_left = ANSWER_BYTES_MAX
        while len(found) < limit and room_left > 0 and after + 1 < outline.end:
            some = await self.history(outline, room, after, limit - len(found))
            if (begin := begins_behind_hole(outline, after, some)) is not None:
                if since is not None:
                    raise _resync_required(begin, outline.end)
                # Whoever asks for what is kept has asked for nothing of what is gone by now.
                found.clear()
            if not some:
                break
            found += some
            room_left -= sum(len(message.data) for message in some)
            after = some[-1].offset or 0
        return found, outline

    async def partitions(self, database: str, queue: str) -> dict[str, PartitionStatus]:
        """The partitions of a room's queue, by name."""
        found = await self._queues.ask(ListPartitions(database, queue))
        return {status.partition: status for status in found}
