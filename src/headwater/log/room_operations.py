"""What a room alone may ask of the log."""

from headwater.log.operations import Deleted, Operation, Push
from headwater.model.names import Lsn


class RoomPush(Push, frozen=True, kw_only=True):
    """Append to a room: what somebody says there, or what a server says of who is there.

    Nothing else writes to a room. Whoever could push a record there as to any queue could say that it came from
    somebody else, or that somebody is there who is not.
    """


class TrimRoom(Operation[Deleted], frozen=True, kw_only=True):
    """Drop the kept messages of a room up to an LSN, whole segments, from the oldest on: everybody has got them."""

    queue: str
    through: Lsn
