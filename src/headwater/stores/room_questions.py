"""What can be asked about rooms as tables: whether everything is there that people expect of them."""

import msgspec

from headwater.stores.questions import Question


class RoomPart(msgspec.Struct, frozen=True):
    """A table or an index that people know by its name: what does its work here, and whether that is there.

    `plan` is how the store would find what the index is for.
    """

    name: str
    kind: str
    by: str
    is_there: bool
    plan: str = ""


class CheckRooms(Question[list[RoomPart]], frozen=True):
    """Whether rooms have all the tables and indexes that people know them by, and what does their work."""
