"""What is said about documents over the realtime door, both ways."""

from typing import Annotated, Any, Literal
from zlib import crc32

import msgspec

from headwater.doors.realtime.envelope import MessageId, answer, tell
from headwater.doors.sessions import Frame
from headwater.model.document import Condition, Document, decode_flat, own_fields
from headwater.services.feed import Event
from headwater.services.matching import Move
from headwater.services.replication import Checkpoint
from headwater.services.resume_tokens import IncludeData
from headwater.services.subscriptions import MATCHER_VERSION

MICROSECONDS_PER_MILLISECOND = 1_000
# Of what an event looks like: rises when clients of before could not read it any more.
EVENT_VERSION = 1
# As `type` says it, which the TypeScript client reads.
_types = {Move.ENTERED: "create", Move.CHANGED: "update", Move.LEFT: "delete"}
_encode = msgspec.json.Encoder().encode


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which documents. What it does not know is refused: passed over, a filter that is misspelt would mean all."""

    collection: str
    filters: list[Condition] = []
    filter: str = ""


class Subscribe(msgspec.Struct, frozen=True, rename="camel"):
    """The payload of `subscribe`."""

    query: Query
    include_data: IncludeData = None
    send_snapshot: bool = False
    priority: Literal["", "normal", "low"] = ""
    """`low` waits while more is to be sent than the server has room for."""
    last_seq: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    """Go on behind this, instead of from now: for who knows where they were."""
    checksum: bool = False
    """Whether events carry one."""
    reading: str | None = None
    """With `last_seq`: what rules and claims came to when that was told, for listeners; see `mark_of`."""
    identity: str = ""
    """With `last_seq`: in which store that was."""


class Stream(msgspec.Struct, frozen=True):
    """The payload of `stream`."""

    collection: str
    checkpoint: Checkpoint | None = None


class Unsubscribe(msgspec.Struct, frozen=True):
    """The payload of `unsubscribe`."""

    id: MessageId


class Resume(msgspec.Struct, frozen=True, rename="camel"):
    """The payload of `resume`."""

    token: str
    last_seq: int = -1


class Ack(msgspec.Struct, frozen=True, rename="camel"):
    """The payload of `ack`: the client has dealt with everything up to here."""

    seq: int
    sub_id: MessageId = ""


class Unsubscribed(msgspec.Struct, frozen=True):
    """Whether there was anything to end."""

    status: str


class SubscribeAck(msgspec.Struct, frozen=True, rename="camel"):
    """Behind `seq` everything is told; `token` resumes it on another connection."""

    sub_id: MessageId
    matcher_version: int
    seq: int
    token: str
    status: str = "ok"


class Snapshot(msgspec.Struct, frozen=True, rename="camel"):
    """Documents as they are now; `more` says that others follow. The last one has `seq`, behind which all is told."""

    sub_id: MessageId
    documents: list[msgspec.Raw]
    more: bool
    seq: int | None = None


class ResumeAck(msgspec.Struct, frozen=True, rename="camel"):
    """From where on events follow."""

    sub_id: MessageId
    status: str
    from_seq: int
    matcher_version: int = MATCHER_VERSION


class ResyncSubscription(msgspec.Struct, frozen=True, rename="camel"):
    """There is a gap: read anew, and subscribe anew."""

    sub_id: MessageId
    reason: str


class ResyncStream(msgspec.Struct, frozen=True, rename="camel"):
    """There is a gap: pull from the last checkpoint, and ask for the stream anew."""

    stream_id: MessageId
    reason: str


class StreamEvent(msgspec.Struct, frozen=True, rename="camel"):
    """Documents that were written, and the checkpoint behind them."""

    stream_id: MessageId
    documents: list[dict[str, object]]
    checkpoint: Checkpoint


class EventForm(msgspec.Struct, frozen=True, gc=False):
    """How one subscription is told of changes; `sub_id` and `database` are JSON already."""

    sub_id: str
    database: str
    include_data: IncludeData
    checksum: bool
    mark: str = ""


def mark_of(reading: str, identity: str) -> str:
    """What ids of events end with, so that a listener who comes back says by which rules and claims they were told
    (`Wanted.reading`; nothing where that does not depend on who asks), and in which store: one that is put back from a
    backup counts once more from where the backup was."""
    return f"-{reading}@{identity}" if reading else f"@{identity}"


def ack_frame(id: MessageId, seq: int, token: str, mark: str | None) -> Frame:
    """The answer to `subscribe`. With a mark, a listener who is cut before anything else was told goes on from here:
    there is no more to the beginning."""
    place = None if mark is None else f"{seq}{mark}"
    return answer("subscribe_ack", SubscribeAck(id, MATCHER_VERSION, seq, token), id, event_id=place)


def snapshot_frame(id: MessageId, documents: list[Document], seq: int | None, mark: str = "") -> Frame:
    """A page of a snapshot."""
    page = Snapshot(id, [one.body for one in documents], seq is None, seq)
    return tell("snapshot", page, event_id=None if seq is None else f"{seq}{mark}")


def event_frame(event: Event, about: EventForm) -> Frame:
    """A change, for one subscription. What all who want it in one form share is made once."""
    shared = event.encoded.get(about.include_data)
    if shared is None:
        delta = _encode(delta_of(event, about.include_data)).decode()
        place = f'"seq":{event.seq},"partition":"{event.partition_id}","lsn":{event.lsn}'
        whose = f'"version":{EVENT_VERSION},"database":{about.database}'
        shared = event.encoded[about.include_data] = f'"delta":{delta},{place},{whose}'
    text = f'{{"type":"event","payload":{{"subId":{about.sub_id},{shared}'
    if about.checksum:
        text += f',"checksum":"{crc32(text.encode()):08x}"'
    return Frame(f"{text}}}}}", event="event", id=f"{event.seq}{about.mark}")


def delta_of(event: Event, include_data: IncludeData) -> dict[str, Any]:
    """What happened to the set of documents. Of one that is not in it any more, only the name is told."""
    change, is_gone = event.change, event.move is Move.LEFT
    doc: dict[str, Any] = {"path": f"{event.collection}/{change.id}", "version": change.version}
    delta: dict[str, Any] = {"op": event.move.value, "doc": doc}
    if event.has_left:
        delta["left"] = True
    if include_data in (None, "both") and not is_gone:
        doc["data"] = own_fields(decode_flat(change.after))
    if include_data is None:
        return delta
    delta |= {"type": _types[event.move], "id": change.id}
    delta["timestamp"] = event.written_at // MICROSECONDS_PER_MILLISECOND
    if include_data and not is_gone:
        delta["document"] = change.after
    return delta
