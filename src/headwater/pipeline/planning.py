"""Who reads what: how far a query is, stretches of the log for tasks, and which part of a segment is whose.

Rules only, no I/O. What changed in a store since an offset was made is judged in `standing.py`, how far a micro-batch
with a limit goes in `admission.py`.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.errors import InvalidOption
from headwater.model.names import Lsn, PartitionId
from headwater.stores.log_reader import Body, Fingerprint, SegmentOutline

TASK_LSNS = 4_096
TASKS_MAX = 200
# Segments so near to each other are read together, with what lies between them: one look costs more than that.
NEAR_LSNS = 16

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_records = msgspec.json.Decoder(list[msgspec.Raw])


class StreamOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a query has read: everything up to `lsn`, and of some partitions more.

    `drops` is how often retention had dropped anything by then: what went earlier was gone before the query could have
    read it, what goes later is a loss if it lies behind. `store` is the store's identity, `queues` has the numbers of
    the queues, `seen` the newest segment of the log that this offset counts in; offsets of the first version have none
    of these. `positions` has the next offset of each partition that was read beyond `lsn`, `through` the newest LSN of
    that. `partitions` are the names of those that are read; none stand for all, in offsets of earlier versions as well.
    """

    lsn: Annotated[Lsn, msgspec.Meta(ge=0, le=2**63 - 1)]
    drops: _Count = 0
    store: str = ""
    queues: dict[str, int] = {}
    seen: Fingerprint | None = None
    positions: dict[PartitionId, _Count] = {}
    through: Annotated[Lsn, msgspec.Meta(ge=0, le=2**63 - 1)] = Lsn(0)
    partitions: list[str] = []

    @property
    def last(self) -> Lsn:
        """The newest LSN of which anything was read."""
        return max(self.lsn, self.through)

    def new_queues(self, queues: Iterable[str]) -> list[str]:
        """Those of some queues of which this offset says nothing; none where it does not say which it is about."""
        return [name for name in queues if name not in self.queues] if self.store or self.queues else []

    def wants(self, partition: str) -> bool:
        """Whether a partition is read at all."""
        return not self.partitions or partition in self.partitions

    def wants_all_of(self, partitions: Collection[str]) -> bool:
        """Whether all of some partitions are read, where none stand for all."""
        return not self.partitions or (bool(partitions) and all(map(self.wants, partitions)))

    def as_json(self) -> dict[str, Any]:
        """As Spark keeps it in its checkpoint."""
        kept: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return kept


def offset_of(kept: Any) -> StreamOffset:
    """An offset from Spark's checkpoint."""
    try:
        return msgspec.convert(kept, StreamOffset, str_keys=True)
    except msgspec.ValidationError as error:
        raise InvalidOption(f"the checkpoint holds no offset of a Headwater source: {kept!r:.80} ({error})") from error


class Snapshot(msgspec.Struct, frozen=True):
    """A table: what its queues held after `start` up to `end` when it was taken.

    Whoever reads it reads this and nothing else, however often and however late."""

    start: StreamOffset
    end: StreamOffset

    def as_text(self) -> str:
        """As an option has it, of letters, digits, `-`, `_` and `=`."""
        return urlsafe_b64encode(msgspec.json.encode(self)).decode()


def snapshot_of(text: str) -> Snapshot:
    """A snapshot from such a text."""
    try:
        return msgspec.json.decode(urlsafe_b64decode(text.encode()), type=Snapshot)
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidOption(f"option snapshot must be one that read(…) has taken; got {text!r:.80}") from error


@dataclass(frozen=True)
class Range:
    """The segments after one LSN up to another."""

    after: Lsn
    through: Lsn


class Cut(msgspec.Struct, frozen=True):
    """The two offsets between which records are read, where it is not whole segments that lie between them."""

    start: StreamOffset
    end: StreamOffset


class Piece(NamedTuple):
    """The records of one segment from the offset `begin` up to `stop`; the segment begins with `first`."""

    lsn: Lsn
    partition_id: PartitionId
    first: int
    begin: int
    stop: int


class Share(NamedTuple):
    """What one task reads."""

    spans: tuple[Range, ...]
    cut: Cut | None


def split(after: Lsn, through: Lsn, tasks_min: int) -> list[Range]:
    """A stretch of the log in even parts: at least `tasks_min` if it is long enough, more when they would be long."""
    length = through - after
    if length <= 0:
        return []
    count = _task_count(length, tasks_min)
    marks = [after + length * part // count for part in range(count + 1)]
    return [Range(Lsn(low), Lsn(high)) for low, high in pairwise(marks)]


def _task_count(length: int, tasks_min: int) -> int:
    count = min(max(-(-length // TASK_LSNS), 1), max(TASKS_MAX, tasks_min))
    return min(max(count, tasks_min), length)


def is_whole(start: StreamOffset, end: StreamOffset) -> bool:
    """Whether nothing but whole segments, all of a stretch of the log, lies between two offsets."""
    return not start.positions and not end.positions


def share_out(
    outlines: Iterable[SegmentOutline], start: StreamOffset, end: StreamOffset, tasks_min: int
) -> list[Share]:
    """The records between two offsets, for tasks: each a few ranges of LSNs, and what to cut from them."""
    pieces = [piece for segment in outlines if (piece := piece_of(segment, start, end))]
    if not pieces:
        return []
    count = _task_count(len(pieces), tasks_min)
    marks = [len(pieces) * part // count for part in range(count + 1)]
    cut = Cut(start, end)
    return [Share(gather([piece.lsn for piece in pieces[low:high]]), cut) for low, high in pairwise(marks)]


def piece_of(segment: "SegmentOutline | Body", start: StreamOffset, end: StreamOffset | None = None) -> Piece | None:
    """The records of a segment that lie behind `start` and not behind `end`; None when there are none."""
    first, after_last = segment.first_offset, segment.first_offset + segment.count
    begin = after_last if segment.lsn <= start.lsn else max(first, start.positions.get(segment.partition_id, 0))
    stop = after_last
    if end is not None and segment.lsn > end.lsn:
        stop = min(after_last, end.positions.get(segment.partition_id, 0))
    return Piece(segment.lsn, segment.partition_id, first, begin, stop) if begin < stop else None


def cut_body(body: Body, cut: Cut) -> Body | None:
    """What lies between two offsets of a segment, as a segment."""
    piece = piece_of(body, cut.start, cut.end)
    if piece is None or piece.stop - piece.begin == body.count:
        return body if piece is not None else None
    return part_of(body, split_body(body), piece.begin - piece.first, piece.stop - piece.first)


def split_body(body: Body) -> list[msgspec.Raw]:
    """The records of a segment, each as its JSON."""
    return _records.decode(body.records)


def part_of(body: Body, records: Sequence[msgspec.Raw], begin: int, stop: int) -> Body:
    """Those of a segment's records from one place up to another, as a segment."""
    chosen = records[begin:stop]
    return msgspec.structs.replace(
        body,
        first_offset=body.first_offset + begin,
        count=len(chosen),
        records=b"[" + b",".join(map(bytes, chosen)) + b"]",
    )


class Lag(msgspec.Struct, frozen=True):
    """How far a query is behind a queue: messages that it has not read, and since when the first of them waits."""

    messages: int
    seconds: float


def lag_of(begin: StreamOffset, outlines: Iterable[SegmentOutline], now: int) -> Lag:
    """How much lies behind an offset."""
    waiting = [(segment, piece) for segment in outlines if (piece := piece_of(segment, begin))]
    since = min((segment.written_at for segment, _ in waiting), default=Timestamp(now))
    return Lag(sum(piece.stop - piece.begin for _, piece in waiting), max(now - since, 0) / SECOND)


def gather(lsns: Sequence[int]) -> tuple[Range, ...]:
    """Rising LSNs as a few ranges that hold them all, with little else."""
    ends = [index for index, (low, high) in enumerate(pairwise(lsns), 1) if high - low > NEAR_LSNS]
    return tuple(Range(Lsn(lsns[low] - 1), Lsn(lsns[high - 1])) for low, high in pairwise([0, *ends, len(lsns)]))


def advance(
    outlines: Sequence[SegmentOutline], begin: StreamOffset, stops: Mapping[PartitionId, int], whole: bool
) -> StreamOffset:
    """The offset after `begin` when these partitions were read up to `stops`.

    `outlines` are the segments behind `begin` that were looked at; `whole` says that there are no more.
    """
    reached = {**begin.positions, **{number: stop for number, stop in stops.items() if stop}}
    base, ahead, through = begin.lsn, dict[PartitionId, int](), Lsn(0)
    complete = True
    for segment in outlines:
        stop = reached.get(segment.partition_id, 0)
        complete = complete and stop >= segment.first_offset + segment.count
        if complete:
            base = segment.lsn
        elif stop > segment.first_offset:
            ahead[segment.partition_id], through = stop, segment.lsn
    if not whole:
        # Of what was not looked at nothing was read now, but it may have been before.
        ahead = {**begin.positions, **ahead}
        through = max(through, begin.through)
    return StreamOffset(base, positions=ahead, through=through if ahead else Lsn(0))
