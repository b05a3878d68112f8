"""What is kept of a room, and whether somebody who has its messages up to an offset can go on from there."""

from collections.abc import Iterable

import msgspec

from headwater.model.names import Offset, PartitionId
from headwater.model.room import KEPT
from headwater.stores.questions import PartitionStatus

# Why somebody has to begin anew: the offset never was, or messages behind it are gone.
UNKNOWN = "unknown offset"
DROPPED = "dropped"


class Outline(msgspec.Struct, frozen=True):
    """Messages from `start` up to before `end`, and the partition that they are in, where there is one."""

    start: Offset = Offset(0)
    end: Offset = Offset(0)
    partition_id: PartitionId | None = None

    def why_not_since(self, offset: int) -> str:
        """Why what came after an offset cannot be told without a hole; '' when it can. -1 is before the first."""
        if offset >= 0 and offset >= self.end:
            return UNKNOWN
        return DROPPED if offset + 1 < self.start else ""


def epoch_of(partition_id: PartitionId | None) -> str:
    """The name of one life of a room, by where its messages are."""
    return "" if partition_id is None else str(partition_id)


def outline_of(partitions: Iterable[PartitionStatus]) -> Outline:
    """What is kept of a room whose partitions these are."""
    for one in partitions:
        if one.partition == KEPT:
            return Outline(one.start, one.end, one.partition_id)
    return Outline()
