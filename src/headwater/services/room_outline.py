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
    """Messages from `start` up to before `end`, and the partition that they are in, where there is one. `identity` is
    that of the store, for who tells an epoch."""

    start: Offset = Offset(0)
    end: Offset = Offset(0)
    partition_id: PartitionId | None = None
    identity: str = ""

    @property
    def epoch(self) -> str:
        """Whose offsets they are."""
        return epoch_of(self.identity, self.partition_id)

    def counts_in(self, epoch: str) -> bool:
        """Whether an offset of this epoch is one of these; where none is said it is taken for one."""
        return epoch in ("", self.epoch)

    def why_not_since(self, offset: int) -> str:
        """Why what came after an offset cannot be told without a hole; '' when it can. -1 is before the first."""
        if offset >= 0 and offset >= self.end:
            return UNKNOWN
        return DROPPED if offset + 1 < self.start else ""


def epoch_of(identity: str, partition_id: PartitionId | None) -> str:
    """The name of one life of a room: in which store, and where its messages are there. A store that is put back from a
    backup has another identity, and gives offsets once more that were others' messages before."""
    return "" if partition_id is None else f"{identity}.{partition_id}"


def outline_of(partitions: Iterable[PartitionStatus], identity: str = "") -> Outline:
    """What is kept of a room whose partitions these are."""
    for one in partitions:
        if one.partition == KEPT:
            return Outline(one.start, one.end, one.partition_id, identity)
    return Outline(identity=identity)
