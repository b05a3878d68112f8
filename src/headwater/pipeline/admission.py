"""How far a micro-batch with a limit goes: messages of all partitions in the order of their times.

Whoever writes much at once writes one partition after the other, each over the whole of the time. Taken in that order,
the first partition's last times move a watermark behind all that the others have, and they are dropped as late. So a
limit admits by time over all partitions, the earliest first, and each partition in its own order.

The time of a message is a field of its payload where the options name one, else its own timestamp, else that of its
push. Messages of the same time are taken in proportion to what waits in their partitions.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from headwater.model.names import Lsn, PartitionId
from headwater.pipeline.planning import Piece, Range, StreamOffset, advance, piece_of
from headwater.pipeline.times import Times
from headwater.stores.log_reader import Body, SegmentOutline

# How far ahead is looked for partitions whose turn it is: their outlines are kept in memory.
AHEAD_SEGMENTS = 200_000
# How many messages are looked at together: of a partition, and of a stretch of the log, which has as many LSNs at most.
LOAD_RECORDS = 1_000
# How much more must be known before it is tried again whether it is enough.
GROWTH = 1.5

Read = Callable[[Range], Iterable[Sequence[Body]]]


class Admission:
    """Knows the times of messages that wait, from one micro-batch to the next."""

    def __init__(self, times: Times) -> None:
        self._times = times
        # None stands for a segment that was looked for and is not there.
        self._known: dict[Lsn, NDArray[np.int64] | None] = {}

    def admit(self, outlines: Iterable[SegmentOutline], begin: StreamOffset, limit: int, read: Read) -> StreamOffset:
        """Where a micro-batch ends that begins behind `begin` and takes `limit` messages at most.

        `outlines` are the segments behind `begin`, `read` gives those of a range with their records.
        """
        window = list(islice(iterator := iter(outlines), AHEAD_SEGMENTS))
        whole = next(iterator, None) is None
        pieces = [piece for segment in window if (piece := piece_of(segment, begin))]
        stops = self._choose(pieces, limit, read)
        self._known = {
            piece.lsn: self._known[piece.lsn]
            for piece in pieces
            if piece.lsn in self._known and piece.stop > stops.get(piece.partition_id, 0)
        }
        return advance(window, begin, stops, whole)

    def _choose(self, pieces: Sequence[Piece], limit: int, read: Read) -> dict[PartitionId, int]:
        """Up to which offset each partition is read."""
        lanes = [Backlog(mine) for mine in _by_partition(pieces).values()]
        if sum(lane.waiting for lane in lanes) <= limit:
            return {lane.partition_id: lane.stop_after(lane.waiting) for lane in lanes}
        if len(lanes) == 1:
            return {lanes[0].partition_id: lanes[0].stop_after(limit)}
        counts = earliest(lanes, limit, lambda lane: self._load(lane, pieces, read, max(limit // len(lanes), 1)))
        return {lane.partition_id: lane.stop_after(count) for lane, count in zip(lanes, counts, strict=True)}

    def _load(self, lane: "Backlog", waiting: Sequence[Piece], read: Read, records: int) -> None:
        """Learn the times of a partition's next messages."""
        for piece in list(lane.next_pieces(min(records, LOAD_RECORDS))):
            if piece.lsn not in self._known:
                self._look(list(self._together(waiting, piece)), read)
            lane.learn(piece, self._known[piece.lsn])

    def _look(self, lsns: Sequence[Lsn], read: Read) -> None:
        """Learn the times of a stretch of the log."""
        self._known.update(dict.fromkeys(lsns))
        for bodies in read(Range(Lsn(lsns[0] - 1), lsns[-1])):
            self._known.update((body.lsn, self._times.of(body)) for body in bodies)

    def _together(self, waiting: Sequence[Piece], piece: Piece) -> Iterator[Lsn]:
        """A segment and those behind it whose times are not known, of whichever partition.

        Their turn comes soon, and a look costs more than they do: it grows with the number of partitions, too.
        """
        records = 0
        for index in range(bisect_left(waiting, piece), len(waiting)):
            lsn, _, _, begin, stop = waiting[index]
            records += stop - begin
            if lsn > piece.lsn and (max(records, lsn - piece.lsn) > LOAD_RECORDS or lsn in self._known):
                return
            yield lsn


class Backlog:
    """What waits in one partition, and as much of its times as is known: rising, because order within it is kept."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._loaded = 0
        self._parts: list[NDArray[np.int64]] = []
        self.partition_id = pieces[0].partition_id
        self.waiting = sum(piece.stop - piece.begin for piece in pieces)
        self.known = 0
        self.latest = np.iinfo(np.int64).min

    @property
    def is_known(self) -> bool:
        """Whether all its times are known."""
        return self._loaded == len(self._pieces)

    def next_pieces(self, records: int) -> Iterator[Piece]:
        """Those whose times come next, one at least."""
        count = 0
        for index in range(self._loaded, len(self._pieces)):
            if count >= records:
                return
            piece = self._pieces[index]
            yield piece
            count += piece.stop - piece.begin

    def learn(self, piece: Piece, times: NDArray[np.int64] | None) -> None:
        """Take the times of a piece in. One that is gone meanwhile is told by who reads it, and has the time before."""
        count = piece.stop - piece.begin
        mine = np.full(count, self.latest) if times is None else times[piece.begin - piece.first :][:count]
        rising = np.maximum(np.maximum.accumulate(mine), self.latest)
        self._parts.append(rising)
        self._loaded += 1
        self.known += count
        self.latest = int(rising[-1])

    def keys(self) -> "tuple[NDArray[np.int64], NDArray[np.float64]]":
        """What orders its messages: their times, and among the same times how much of the partition is before them."""
        return np.concatenate(self._parts), np.arange(self.known) / self.waiting

    def last_key(self) -> tuple[int, float]:
        """The key of the last message whose time is known."""
        return self.latest, (self.known - 1) / self.waiting

    def stop_after(self, count: int) -> int:
        """The offset behind its first `count` messages; 0 when that is none."""
        stop = 0
        for piece in self._pieces:
            if count <= 0:
                break
            stop = min(piece.stop, piece.begin + count)
            count -= piece.stop - piece.begin
        return stop


def earliest(lanes: Sequence[Backlog], limit: int, load: Callable[[Backlog], None]) -> list[int]:
    """How many messages of each lane are among the `limit` earliest. Times are loaded as far as they matter."""
    for lane in lanes:
        load(lane)
    # Nothing that is not loaded comes before the last loaded message of its lane.
    heap = [(lane.last_key(), number) for number, lane in enumerate(lanes) if not lane.is_known]
    heapify(heap)
    known = sum(lane.known for lane in lanes)
    enough = float(limit)
    while heap:
        bound, number = heap[0]
        lane = lanes[number]
        if known >= enough:
            counts, last = _first(lanes, limit)
            if last <= bound:
                return counts
            enough *= GROWTH
        known -= lane.known
        load(lane)
        known += lane.known
        if lane.is_known:
            heappop(heap)
        else:
            heapreplace(heap, (lane.last_key(), number))
    return _first(lanes, limit)[0]


def _first(lanes: Sequence[Backlog], limit: int) -> tuple[list[int], tuple[int, float]]:
    """The `limit` earliest of all that is known: how many of each lane, and the key of the last one."""
    keys = [lane.keys() for lane in lanes]
    times = np.concatenate([each[0] for each in keys])
    shares = np.concatenate([each[1] for each in keys])
    owner = np.repeat(np.arange(len(lanes)), [lane.known for lane in lanes])
    chosen = np.lexsort((owner, shares, times))[:limit]
    counts = np.bincount(owner[chosen], minlength=len(lanes))
    return [int(count) for count in counts], (int(times[chosen[-1]]), float(shares[chosen[-1]]))


def _by_partition(pieces: Iterable[Piece]) -> Mapping[PartitionId, list[Piece]]:
    lanes: dict[PartitionId, list[Piece]] = {}
    for piece in pieces:
        lanes.setdefault(piece.partition_id, []).append(piece)
    return lanes
