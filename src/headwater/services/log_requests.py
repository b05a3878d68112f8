"""What a reader of the log elsewhere and a server say to each other: the questions of `stores/log_reader.py`.

Most of it is JSON. Segments travel in our own bytes: a head and the records as they are kept, in one zstd frame.
A look that finds nothing in its time says how far it came (`reached`), and the reader asks on from there.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from headwater.clock import Timestamp
from headwater.log.operations import Push, Reach
from headwater.model.compression import BadCompression, compress_all, expand
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.services.requests import SEVERAL_MAX, RequestBody
from headwater.services.wire_forms import Number, UploadName, form
from headwater.stores.log_reader import Body, Fingerprint, SegmentOutline
from headwater.stores.questions import PartitionStatus

CONTENT_TYPE = "application/vnd.headwater.segments"
QUEUES_MAX = 10_000
STRETCHES_MAX = 10_000
PARTITIONS_MAX = 10_000
# Of an answer, made whole again: what one look may hold, and a segment more.
ANSWER_BYTES_MAX = 512 * 1_048_576

Queues = Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=QUEUES_MAX)]
PartitionNames = Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=QUEUES_MAX)]


class Range(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The segments of some queues after one LSN up to another."""

    after: Number
    through: Annotated[int, Meta(ge=0, le=2**62)]
    queues: Queues


class OutlineRequest(Range, frozen=True, kw_only=True):
    """How many segments at most are to be told of."""

    limit: Annotated[int, Meta(ge=1, le=STRETCHES_MAX)] = STRETCHES_MAX


class SegmentsRequest(Range, frozen=True, kw_only=True):
    """When a look has enough: at so many bytes of records, or at the server's own bound."""

    bytes_max: Annotated[int, Meta(ge=1, lt=2**62)] = 4 * 1_048_576


class PartitionsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first `limit` partitions of a queue after the number `after`."""

    queue: Annotated[str, Meta(max_length=256)]
    after: Number = 0
    limit: Annotated[int, Meta(ge=1, le=PARTITIONS_MAX)] = PARTITIONS_MAX


class DropsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What some queues, or some partitions of them, lost after an LSN in drops after a number."""

    after: Number
    since: Number
    queues: Queues
    # Left out where none are named: servers of before know no such field.
    partitions: PartitionNames = []


class SeenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A place that was seen before."""

    lsn: Number
    mark: Annotated[str, Meta(max_length=256)]


class TimeQuery(Struct, frozen=True):
    """A time, in microseconds since 1970."""

    time: Annotated[int, Meta(ge=-(2**62), lt=2**62)] = 0


class PlaceQuery(Struct, frozen=True):
    """A place in the log; its end when none is named."""

    through: Annotated[int, Meta(ge=0, le=2**62)] = 2**62


class LogAbout(Struct, frozen=True):
    """Which store it is and whose part of it, where its log begins for this reader and where it ends.

    `queues` are those that the reader may use, each with its number.
    """

    identity: str
    database: str
    after: Lsn
    through: Lsn
    queues: dict[str, int]


class LogPlace(Struct, frozen=True):
    """An LSN."""

    lsn: Lsn


class Newest(Struct, frozen=True):
    """The newest segment that was found; if none, none comes after `reached`."""

    lsn: Lsn | None
    reached: Lsn


class Partitions(Struct, frozen=True):
    """Partitions, each with where its records begin and end."""

    partitions: list[PartitionStatus]


class Seen(Struct, frozen=True):
    """A fingerprint, if there is one."""

    fingerprint: Fingerprint | None


class Remembered(Struct, frozen=True):
    """Whether a place is known; null when nothing can be said."""

    remembered: bool | None


class Outline(Struct, frozen=True):
    """Segments without their records; there are no others up to `reached`."""

    stretches: list[SegmentOutline]
    reached: Lsn


# ── commits ──

if TYPE_CHECKING:
    # Forms have the fields of their operations, but for those that a caller may not choose.
    Appended = Push
    Step = Reach
else:
    Appended = form(Push, "key", "ttl_seconds", name="Appended")
    Step = form(Reach, "key", name="Step")


class StageRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a commit that is too large for one request. The client names the upload, at random."""

    upload: UploadName
    part: Annotated[int, Meta(ge=0, lt=1_000_000)]
    pushes: Annotated[list[Appended], Meta(min_length=1)]


class GroupMove(Struct, frozen=True, forbid_unknown_fields=True):
    """A group that goes behind an LSN."""

    queue: str
    group: str
    lsn: Number


class CommitRequest(RequestBody, frozen=True, kw_only=True):
    """What takes effect together: a step, pushes (these, or those of an upload with so many parts), moved groups."""

    step: Step | None = None
    pushes: Sequence[Appended] = ()
    upload: UploadName | None = None
    parts: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    moves: Annotated[Sequence[GroupMove], Meta(max_length=SEVERAL_MAX)] = ()


class StepTaken(Struct, frozen=True):
    """The last step that was taken, and what was noted with it."""

    number: int
    note: str


class CommitResponse(Struct, frozen=True):
    """How many records were pushed; nothing took effect when the step was `taken` before."""

    records: int
    taken: StepTaken | None = None


# ── segments in our own bytes ──


class Segments(Struct, frozen=True):
    """Segments with their records, of the store with this identity; there are no others up to `reached`."""

    identity: str
    reached: Lsn
    bodies: list[Body]


class _Piece(Struct, frozen=True, array_like=True, gc=False):
    """A segment, without its records but with their length."""

    lsn: Lsn
    partition_id: PartitionId
    first_offset: Offset
    count: int
    written_at: Timestamp
    length: Annotated[int, Meta(ge=0)]


class _Head(Struct, frozen=True, array_like=True):
    """What stands before the records of all segments. The lane of a partition is told once."""

    identity: str
    reached: Lsn
    lanes: dict[int, Lane]
    pieces: list[_Piece]


_decoder = msgspec.msgpack.Decoder(_Head)
_encoder = msgspec.msgpack.Encoder()
_LENGTH_BYTES = 8


def pack(identity: str, reached: Lsn, bodies: Sequence[Body]) -> bytes:
    """Segments as they go over the wire: the length of the head, the head, and all records behind each other."""
    lanes: dict[int, Lane] = {body.partition_id: body.lane for body in bodies}
    pieces = [
        _Piece(body.lsn, body.partition_id, body.first_offset, body.count, body.written_at, len(body.records))
        for body in bodies
    ]
    head = _encoder.encode(_Head(identity, reached, lanes, pieces))
    return compress_all([len(head).to_bytes(_LENGTH_BYTES), head, *(body.records for body in bodies)])


class SegmentsDecoder:
    """Reads such an answer. What is none raises as msgspec's own decoders do."""

    def decode(self, data: bytes) -> Segments:
        """The segments, each with its lane."""
        try:
            packed = memoryview(expand(data, ANSWER_BYTES_MAX))
        except BadCompression as error:
            raise msgspec.ValidationError(f"no segments: {error}") from error
        start = _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES])
        head = _decoder.decode(packed[_LENGTH_BYTES:start])
        if start + sum(piece.length for piece in head.pieces) != len(packed):
            raise msgspec.ValidationError("records are missing, or there are more of them")
        if any(piece.partition_id not in head.lanes for piece in head.pieces):
            raise msgspec.ValidationError("segments of a partition without a name")
        return Segments(head.identity, head.reached, list(_bodies(head, packed, start)))


def _bodies(head: _Head, packed: memoryview, start: int) -> Iterator[Body]:
    for piece in head.pieces:
        end = start + piece.length
        yield Body(
            lsn=piece.lsn,
            lane=head.lanes[piece.partition_id],
            first_offset=piece.first_offset,
            count=piece.count,
            written_at=piece.written_at,
            records=bytes(packed[start:end]),
            partition_id=piece.partition_id,
        )
        start = end
