"""The end of the log in memory: the newest segments with their records, as far as this process wrote them itself.

    own commit        kept, and served to whoever follows without reading it back
    another's commit  forgotten: what was kept may be dropped or changed by now, and only the store knows
    own drop          forgotten as well

So nobody else has touched the log since the oldest segment that is here, and what is here is what a read would give:
the records as they were encoded, before they were compressed or encrypted. They are taken apart when they are first
asked for, once for everybody.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import merge

import msgspec

from headwater.clock import Timestamp
from headwater.log.operations import Commit, Touch
from headwater.model.names import Lsn
from headwater.model.record import split_records
from headwater.model.selection import Selection, fits
from headwater.stores.questions import Segment

# What a segment needs beside its records.
SEGMENT_BYTES = 512
TRIM_FROM = 64


class Kept(msgspec.Struct, gc=False):
    """One segment. Thousands are kept and none leads back to itself: the garbage collector need not walk them."""

    touch: Touch
    body: bytes
    origin: int
    written_at: Timestamp
    split: Segment | None = None

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return len(self.body) + SEGMENT_BYTES

    def segment(self) -> Segment:
        """The segment as a read would give it."""
        if self.split is None:
            touch = self.touch
            self.split = Segment(
                lsn=touch.lsn,
                lane=touch.lane,
                partition_id=touch.partition_id,
                first_offset=touch.first_offset,
                written_at=self.written_at,
                origin=self.origin,
                records=split_records(self.body),
            )
        return self.split


class Recent:
    """Every segment after `floor`, up to the last that was added. LSNs have no holes here."""

    def __init__(self, bytes_max: int, segments_max: int) -> None:
        self._bytes_max = bytes_max
        self._segments_max = segments_max
        self._kept: dict[Lsn, Kept] = {}
        # In the order they came; those up to the floor are no more, and go when there are many of them.
        self._by_queue: dict[tuple[str, str], list[Lsn]] = {}
        self.size = 0
        self.floor = Lsn(0)

    def __len__(self) -> int:
        return len(self._kept)

    def restart(self, floor: Lsn) -> None:
        """Forget everything; what comes next comes after this LSN."""
        self.floor = floor
        if self._kept:
            self._kept.clear()
            self._by_queue.clear()
            self.size = 0

    def add(self, commit: Commit) -> None:
        """Keep what a commit of this process has added, right behind what is here."""
        touched, added = commit.touched, commit.added
        last = touched[-1].lsn
        holes = last - touched[0].lsn + 1 != len(touched) or touched[0].lsn != self.floor + len(self._kept) + 1
        if added is None or added.rewrote or holes or not self._bytes_max:
            self.restart(last)
            return
        for touch, body in zip(touched, added.bodies, strict=True):
            kept = self._kept[touch.lsn] = Kept(touch, body, added.origin, added.written_at)
            self.size += kept.size
            self._note(touch)
        while self.size > self._bytes_max or len(self._kept) > self._segments_max:
            self._drop_oldest()

    def after(self, selection: Selection, lsn: Lsn) -> Iterator[Kept]:
        """What a selection has after an LSN, which must not lie before the floor."""
        begin = max(lsn, self.floor)
        if not selection.queue and self.floor + len(self._kept) - begin < len(self._by_queue):
            yield from self._walk(selection, begin)
            return
        lists = [found[bisect_right(found, begin) :] for found in self._lists(selection)]
        for one in lists[0] if len(lists) == 1 else merge(*lists):
            kept = self._kept[one]
            if not selection.partitions or kept.touch.lane.partition in selection.partitions:
                yield kept

    def _walk(self, selection: Selection, begin: Lsn) -> Iterator[Kept]:
        """The same, by a look at each segment: whoever is near the end has few of them to look at, however many queues
        there are that a pattern may mean."""
        for lsn in range(begin + 1, self.floor + len(self._kept) + 1):
            kept = self._kept[Lsn(lsn)]
            if selection.holds(kept.touch.lane):
                yield kept

    def _lists(self, selection: Selection) -> list[list[Lsn]]:
        queue = selection.queue
        if queue:
            return [self._by_queue.get((selection.database, queue), [])]
        return [
            lsns
            for (database, name), lsns in self._by_queue.items()
            if database == selection.database and fits(name, selection.queues)
        ]

    def _note(self, touch: Touch) -> None:
        key = (touch.lane.database, touch.lane.queue)
        lsns = self._by_queue.get(key)
        if lsns is None:
            self._by_queue[key] = [touch.lsn]
            return
        if len(lsns) >= TRIM_FROM and lsns[len(lsns) // 2] <= self.floor:
            del lsns[: bisect_right(lsns, self.floor)]
        lsns.append(touch.lsn)

    def _drop_oldest(self) -> None:
        self.floor = Lsn(self.floor + 1)
        kept = self._kept.pop(self.floor)
        self.size -= kept.size
        key = (kept.touch.lane.database, kept.touch.lane.queue)
        if self._by_queue[key][-1] == self.floor:
            del self._by_queue[key]


def take(kept: Iterator[Kept], segments_max: int, bytes_max: int) -> tuple[Sequence[Kept], bool]:
    """The first of them, until they are as many or as large as they may be, one at least; whether those are all."""
    found: list[Kept] = []
    size = 0
    for one in kept:
        if len(found) >= segments_max or size >= bytes_max:
            return found, False
        found.append(one)
        size += one.size
    return found, True
