"""How far a micro-batch with a limit goes: messages of all partitions in the order of their times.

Whoever writes much at once writes one partition after the other, each over the whole of the time. Taken in that order,
the first partition's last times move a watermark behind all that the others have, and they are dropped as late. So a
limit admits by time over all partitions, the earliest first, and each partition in its own order.

The time of a message is a field of its payload where the options name one, else its own timestamp, else that of its
push. Messages of the same time are taken in proportion to what waits in their partitions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from headwater.model.names import Lsn, PartitionId
from headwater.pipeline.planning import Piece, Range, StreamOffset, advance, gather, piece_of
from headwater.pipeline.times import Times
from headwater.stores.log_reader import Body, SegmentOutline

# How far ahead is looked for partitions whose turn it is: their outlines are kept in memory.
AHEAD_SEGMENTS = 200_000
# How many messages of a partition are looked at together.
LOAD_RECORDS = 1_000
# How much more must be known before it is tried again whether it is enough.
GROWTH = 1.5

Read = Callable[[Range], Iterable[Sequence[Body]]]


class Admission:
    """Knows the times of messages that wait, from one micro-batch to the next."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._known: dict[Lsn, NDArray[np.int64]] = {}

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
        counts = earliest(lanes, limit, lambda lane: self._load(lane, read, max(limit // len(lanes), 1)))
        return {lane.partition_id: lane.stop_after(count) for lane, count in zip(lanes, counts, strict=True)}

    def _load(self, lane: "Backlog", read: Read, records: int) -> None:
        """Learn the times of a partition's next messages, and of what is read together with them."""
        ahead = list(lane.next_pieces(min(records, LOAD_RECORDS)))
        missing = [piece.lsn for piece in ahead if piece.lsn not in self._known]
        for span in gather(missing) if missing else ():
            for bodies in read(span):
                self._known.update((body.lsn, self._times.of(body)) for body in bodies)
        for piece in ahead:
            lane.learn(piece, self._known.get(piece.lsn))


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
        for piece in self._pieces[self._loaded :]:
            if count >= records:
                return
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
    enough = float(limit)
    while heap:
        bound, number = heap[0]
        if sum(lane.known for lane in lanes) >= enough:
            counts, last = _first(lanes, limit)
            if last <= bound:
                return counts
            enough *= GROWTH
        load(lanes[number])
        if lanes[number].is_known:
            heappop(heap)
        else:
            heapreplace(heap, (lanes[number].last_key(), number))
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
