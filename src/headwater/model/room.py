"""What a room is in the log, and what its messages are: names, values and rules, no I/O.

A room is the queue `rooms/{room}`. Its partitions:

    messages   what is kept: offsets without holes, history for who comes later, until its time is over
    memory     what only passes: cursors and the like, for the other servers; it has no offset and no history
    presence   who is there: each server says so of its own members, again and again
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.errors import InvalidOption, InvalidPayload
from headwater.model.cursor import CLOCK_TOLERANCE
from headwater.model.names import NAME_LENGTH_MAX, Lsn, Offset, check_name
from headwater.model.record import Record, decode_payload

PREFIX = "rooms/"
KEPT = "messages"
PASSING = "memory"
PRESENCE = "presence"
ALL_ROOMS = f"{PREFIX}*"
NAME_MAX = NAME_LENGTH_MAX - len(PREFIX)

CURSOR = "cursor"
CURSOR_BATCH = "cursor-batch"
CONNECTED = "user-connected"
DISCONNECTED = "user-disconnected"
SNAPSHOT = "presence"
# Made by servers; what a client sends under these names would be taken for theirs.
OWN_TYPES = frozenset({CURSOR_BATCH, CONNECTED, DISCONNECTED, SNAPSHOT})

# Headers of a record: who sent it, under which key, and which process brought it here.
SENDER = "from"
KEY = "key"
ORIGIN = "origin"

NO_PROFILE = msgspec.Raw(b"null")

# A server says who is there this often, and is taken for gone when it was silent for so long.
PRESENCE_SECONDS = 10.0
GONE_SECONDS = 30.0
# How long what a server said is kept: watermarks are compared over servers that were there in the last five minutes.
ALIVE_SECONDS = 300.0
# Of larger rooms only the number of members is told: who comes and goes would be told to everybody, each time.
MEMBERS_TOLD_MAX = 250
# What a member takes beside its profile.
MEMBER_BYTES = 256


class Coalescing(StrEnum):
    """What becomes of messages of one type that come faster than they are passed on."""

    EVERY = "every"
    LATEST = "latest"
    MERGE = "merge"


class RoomMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as members get it. One that only passes has no offset. `at` is in milliseconds since 1970."""

    room: str
    type: str
    data: msgspec.Raw
    sender: str = msgspec.field(name="from")
    at: int
    offset: int | None = None

    @property
    def payload(self) -> Any:
        """The data, decoded; a Decimal for a number that neither float nor int can hold."""
        return decode_payload(self.data)

    def data_text(self) -> str:
        """The data as JSON."""
        return bytes(self.data).decode()

    def document(self) -> dict[str, Any]:
        """All of it but the data, for people and programs."""
        return {
            "room": self.room,
            "offset": self.offset,
            "type": self.type,
            "from": self.sender,
            "at": self.at,
        }


class Member(msgspec.Struct, frozen=True):
    """Somebody in a room: one connection, and what others see of it."""

    member: str
    # Made by a call, because a schema cannot show such a default.
    profile: msgspec.Raw = msgspec.field(default_factory=lambda: NO_PROFILE)

    def shown(self) -> Any:
        """The profile, decoded."""
        return decode_payload(self.profile)

    def profile_text(self) -> str:
        """The profile as JSON."""
        return bytes(self.profile).decode()


class Roll(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server says of a room: its process, its name, how far it has delivered, who is there, and how many.

    Between two of them it says how far it has delivered alone; of who is there such a one says nothing.
    """

    origin: str
    instance: str = ""
    watermark: int = 0
    count: int = 0
    members: list[Member] = []
    only_watermark: bool = False


class Came(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server says when somebody comes or goes, and how many are there with it, or without."""

    origin: str
    member: str
    profile: msgspec.Raw = NO_PROFILE
    count: int = 0


class Watermark(msgspec.Struct, frozen=True):
    """How far a server has delivered a room, as an LSN, and when it said so."""

    instance: str
    lsn: Lsn
    updated_at: Timestamp


Since = int | str
# A text with more digits is no offset to anybody; Python would not make a number of one that has thousands.
_offset = re.compile(r"-?[0-9]{1,100}")


def check_since(since: object) -> Since:
    """A place in a room, as people and programs say it; raises when it is none."""
    if isinstance(since, str) and _offset.fullmatch(since):
        since = int(since)
    if since in ("now", "beginning") or (type(since) is int and since >= -1):
        return since
    raise InvalidOption(f"since must be an offset, now or beginning; got {since!r:.80}")


_rolls = msgspec.json.Decoder(Roll)
_came = msgspec.json.Decoder(Came)
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


def queue_of(room: str) -> str:
    """The queue of a room; raises when this is no name of one."""
    return PREFIX + check_name("room", room, NAME_MAX)


def is_room(queue: str) -> bool:
    """Whether a queue is one of a room."""
    return queue.startswith(PREFIX)


def room_of(queue: str) -> str:
    """The room of a queue."""
    return queue.removeprefix(PREFIX)


def room_record(type: str, data: msgspec.Raw, sender: str, *, key: str = "", origin: str = "") -> Record:
    """A message as the log keeps it."""
    headers = {name: value for name, value in ((SENDER, sender), (KEY, key), (ORIGIN, origin)) if value}
    return Record(data, type=type, headers=headers or None)


def origin_of(record: Record) -> str:
    """Which process brought a record here, '' when it does not say."""
    return (record.headers or {}).get(ORIGIN, "")


def message_of(room: str, record: Record, written_at: Timestamp, offset: Offset | None) -> RoomMessage:
    """A record as members get it."""
    sender = (record.headers or {}).get(SENDER, "") or record.producer_sub
    return RoomMessage(room, record.type, record.data, sender, written_at * 1_000 // SECOND, offset)


def merged(base: msgspec.Raw, more: msgspec.Raw) -> msgspec.Raw:
    """An object with the fields of another laid over it."""
    return msgspec.Raw(msgspec.json.encode({**_objects.decode(base), **_objects.decode(more)}))


def check_object(data: msgspec.Raw) -> None:
    """Raises when a message of a type that is merged is no object."""
    try:
        _objects.decode(data)
    except msgspec.MsgspecError:
        raise InvalidPayload("messages of a type that is merged are JSON objects") from None


def cursor_batch(cursors: Iterable[tuple[str, msgspec.Raw]]) -> msgspec.Raw:
    """The latest cursor of each member as one message."""
    told = [{**_objects.decode(data), "member": member} for member, data in cursors]
    return msgspec.Raw(msgspec.json.encode({"cursors": told}))


def check_cursor(data: msgspec.Raw) -> None:
    """Raises when a cursor is no object."""
    try:
        _objects.decode(data)
    except msgspec.MsgspecError:
        raise InvalidPayload("a cursor is a JSON object such as {x, y}") from None


class Attendance:
    """Who is in a room, over all servers, as far as they have said: a fold of its presence records.

    Each server answers for its own members. What it says replaces what it said before; one that was silent for too long
    is gone, with its members.
    """

    def __init__(self) -> None:
        self._members: dict[str, dict[str, Member]] = {}
        self._counts: dict[str, int] = {}
        self._seen: dict[str, Timestamp] = {}

    def copy(self) -> "Attendance":
        """The same, for somebody who goes on from here alone."""
        copied = Attendance()
        copied._members = {origin: dict(theirs) for origin, theirs in self._members.items()}
        copied._counts = dict(self._counts)
        copied._seen = dict(self._seen)
        return copied

    def size(self) -> int:
        """About how many bytes it takes."""
        return sum(MEMBER_BYTES + len(member.profile) for member in self.members())

    def members(self) -> list[Member]:
        """Those that are known by name."""
        return [member for theirs in self._members.values() for member in theirs.values()]

    def count(self) -> int:
        """How many there are."""
        return sum(self._count_of(origin) for origin in self._members)

    def roll_call(self, own: str, here: Mapping[str, Member]) -> tuple[list[Member], int]:
        """Some by name, and how many there are, on a server that knows itself who is `here`. Of a crowd not everybody
        is looked at for each who comes."""
        others = [origin for origin in self._members if origin != own]
        known = [member for origin in others for member in self._members[origin].values()]
        known += islice(here.values(), MEMBERS_TOLD_MAX)
        return known[:MEMBERS_TOLD_MAX], sum(self._count_of(origin) for origin in others) + len(here)

    def _count_of(self, origin: str) -> int:
        return max(self._counts.get(origin, 0), len(self._members[origin]))

    def take(self, record: Record, written_at: Timestamp) -> list[tuple[str, Member]]:
        """What changes with a record: "joined" or "left", and who. One that cannot be read changes nothing."""
        try:
            if record.type == SNAPSHOT:
                roll = _rolls.decode(record.data)
                return [] if roll.only_watermark else self._replace(roll, written_at)
            came = _came.decode(record.data)
        except msgspec.MsgspecError:
            return []
        return self._change(came, joined=record.type == CONNECTED, written_at=written_at)

    def expire(self, now: Timestamp) -> list[tuple[str, Member]]:
        """Who left because their server was silent for too long, or spoke last while the clock was ahead."""
        silent = [origin for origin, at in self._seen.items() if not _was_lately(at, now, GONE_SECONDS)]
        left: list[tuple[str, Member]] = []
        for origin in silent:
            left.extend(("left", member) for member in self._members.pop(origin, {}).values())
            self._counts.pop(origin, None)
            del self._seen[origin]
        return left

    def clock_set(self, by: int) -> None:
        """The clock was set forward by this, or back: nobody was silent for longer or shorter by that."""
        self._seen = {origin: Timestamp(at + by) for origin, at in self._seen.items()}

    def _replace(self, roll: Roll, written_at: Timestamp) -> list[tuple[str, Member]]:
        before = self._members.get(roll.origin, {})
        after = {member.member: member for member in roll.members}
        self._note(roll.origin, written_at)
        self._counts[roll.origin] = roll.count
        self._members[roll.origin] = after
        # One whose profile is another now has left as the one, and joined as the other.
        left = [("left", member) for name, member in before.items() if after.get(name) != member]
        return left + [("joined", member) for name, member in after.items() if before.get(name) != member]

    def _change(self, came: Came, *, joined: bool, written_at: Timestamp) -> list[tuple[str, Member]]:
        self._note(came.origin, written_at)
        # What it said before is of before: the last ones to leave are followed by no roll.
        self._counts[came.origin] = came.count
        theirs = self._members.setdefault(came.origin, {})
        member = Member(came.member, came.profile)
        if not joined:
            gone = theirs.pop(came.member, None)
            return [("left", gone)] if gone is not None else []
        before = theirs.get(came.member)
        theirs[came.member] = member
        if before == member:
            return []
        return [("joined", member)] if before is None else [("left", before), ("joined", member)]

    def _note(self, origin: str, written_at: Timestamp) -> None:
        # The newest counts, not the latest: the clock may have been set back in between.
        self._seen[origin] = written_at


def _was_lately(at: Timestamp, now: Timestamp, seconds: float) -> bool:
    """Whether this was said in the last seconds. A time that is far ahead is of a clock that was wrong: whoever is
    there has said so again since."""
    return -CLOCK_TOLERANCE <= now - at <= seconds * SECOND


def watermarks_of(records: Sequence[tuple[Record, Timestamp]]) -> list[Watermark]:
    """The newest watermark that each server has told, of presence records in their order."""
    newest: dict[str, Watermark] = {}
    for record, written_at in records:
        if record.type != SNAPSHOT:
            continue
        try:
            roll = _rolls.decode(record.data)
        except msgspec.MsgspecError:
            continue
        if roll.instance:
            newest[roll.instance] = Watermark(roll.instance, Lsn(roll.watermark), written_at)
    return sorted(newest.values(), key=lambda mark: mark.instance)


def lowest_watermark(marks: Iterable[Watermark], now: Timestamp) -> Lsn | None:
    """The lowest one of servers that were there in the last five minutes; None when there was none."""
    alive = [mark.lsn for mark in marks if _was_lately(mark.updated_at, now, ALIVE_SECONDS)]
    return min(alive, default=None)
