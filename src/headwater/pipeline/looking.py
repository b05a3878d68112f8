"""The log as the workers of Spark see it: read by address, without async, and with every loss told.

What is gone is told as an error, or where the options allow it as a warning: records that retention took, a queue that
was deleted, a store that was replaced.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

import msgspec

from headwater.errors import DataLost, HeadwaterError, InvalidOption, QueueMissing
from headwater.model.names import Lsn
from headwater.pipeline.options import EARLIEST, LATEST, OF_EARLIEST, OF_LATEST, Place, ReadOptions
from headwater.pipeline.planning import Cut, Range, Share, Snapshot, StreamOffset, cut_body, is_whole, share_out, split
from headwater.pipeline.ranges import Place as Location
from headwater.pipeline.ranges import RangeReader
from headwater.pipeline.standing import Here, begin_anew, find_change
from headwater.stores.log_reader import Body, SegmentOutline
from headwater.stores.questions import PartitionStatus

log = logging.getLogger(__name__)

LOOK_PARTITIONS = 10_000
WAITING_SEGMENTS = 100_000
NAMED_MAX = 10
REMEDY = "load the table again, or begin a new checkpoint; to go on without what is gone, set failOnDataLoss to false"


class Look(RangeReader):
    """A reader of the log of which is asked what the options say."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(Location(options.store, options.database, options.access))
        self._options = options

    # ── what is there ──

    def here(self) -> Here:
        """Which store this is, and the queues to read."""
        numbers = self._ask(self._reader.queue_numbers(self._database))
        chosen = {name: numbers[name] for name in self._options.choose(sorted(numbers))}
        return Here(self._options.store, self._ask(self._reader.identity()), chosen, self.last_lsn())

    def last_lsn(self) -> Lsn:
        """The newest LSN ever given out."""
        return self._ask(self._reader.span())[1]

    def drops(self) -> int:
        """How often anything was dropped from the store."""
        return self._ask(self._reader.drops(Lsn(0), 0, self._database, ())).number

    def newest(self, after: Lsn, through: Lsn, queues: Iterable[str]) -> Lsn | None:
        """The newest segment of the queues in a stretch of the log."""
        return self._ask(self._reader.newest(after, through, self._database, tuple(queues)))

    def outline(self, after: Lsn, through: Lsn, queues: Iterable[str]) -> Iterator[SegmentOutline]:
        """The segments of the queues in a stretch of the log."""
        return chain.from_iterable(self.outlines(Range(after, through), queues))

    def waiting(self, begin: StreamOffset, newest: Lsn, queue: str) -> Iterator[SegmentOutline]:
        """The segments of a queue behind an offset, as many as are worth counting."""
        return islice(self.outline(begin.lsn, newest, (queue,)), WAITING_SEGMENTS)

    def wanted(self, span: Range, queues: Iterable[str], cut: Cut | None = None) -> Iterator[list[Body]]:
        """The segments of the queues in a range, as far as the options want them."""
        for found in self.bodies(span, queues):
            bodies = [body for body in found if self._options.wants(body.lane.partition)]
            if cut is not None:
                bodies = [part for body in bodies if (part := cut_body(body, cut))]
            if bodies:
                yield bodies

    # ── where to begin and to end ──

    def mark(self, offset: StreamOffset, here: Here) -> StreamOffset:
        """An offset with all by which it is known again."""
        seen = self._ask(self._reader.fingerprint(offset.last))
        return msgspec.structs.replace(offset, store=here.store, queues=here.queues, seen=seen)

    def begin(self, here: Here) -> StreamOffset:
        """Where the options say that a read begins; what was dropped before is no loss, unless an LSN was named."""
        place = self._options.starting
        if place.offsets is None:
            return self.mark(self._find(place), here)
        named = list(self._named(here, place.offsets))
        for status, first in named:
            if first < status.start:
                where = f"{status.queue}/{status.partition} begins at offset {status.start}, behind offset {first}"
                self._tell(DataLost(f"retention dropped records that were asked for: {where}"), "going on without them")
        oldest, _ = self._ask(self._reader.span())
        positions = {status.partition_id: first for status, first in named if first}
        return self.mark(StreamOffset(oldest, self.drops(), positions=positions), here)

    def snapshot(self) -> Snapshot:
        """The table that the options describe, as it is now."""
        here = self.here()
        self._check_partitions(here)
        begin, end = self.begin(here), self._end(here)
        check_begin(begin, here)
        by_lsn = not begin.positions and not end.positions
        if by_lsn and self._options.starting != EARLIEST and begin.lsn > end.lsn:
            raise InvalidOption(
                f"the read begins at LSN {begin.lsn + 1}, behind its end, LSN {end.lsn + 1}; startingOffsets lies "
                "before endingOffsets"
            )
        return Snapshot(begin, self.mark(end, here))

    def _check_partitions(self, here: Here) -> None:
        """Raises when a partition is named that none of the queues ever had: it is misspelt, and nothing would come."""
        if not self._options.partitions or not here.queues:
            return
        known = {status.partition for queue in here.queues for status in self._partitions(queue)}
        if missing := sorted(self._options.partitions - known):
            there = ", ".join(sorted(known)[:NAMED_MAX]) or "none"
            told = ", ".join(map(repr, missing))
            raise QueueMissing(f"there is no partition {told} in {', '.join(here.queues)}; there are {there}")

    def _end(self, here: Here) -> StreamOffset:
        place = self._options.ending
        if place.offsets is not None:
            ends = {status.partition_id: status.end for queue in here.queues for status in self._partitions(queue)}
            named = {status.partition_id: end for status, end in self._named(here, place.offsets)}
            return StreamOffset(Lsn(0), self.drops(), positions={**ends, **named}, through=here.last)
        if place == LATEST:
            return StreamOffset(here.last, self.drops())
        return StreamOffset(min(self._find(place).lsn, here.last), self.drops())

    def _find(self, place: Place) -> StreamOffset:
        """The offset before the first segment from this place on."""
        oldest, last = self._ask(self._reader.span())
        if place.lsn is not None:
            return StreamOffset(Lsn(max(place.lsn - 1, 0)), 0)
        if place.time is not None:
            return StreamOffset(self._ask(self._reader.lsn_at(place.time)), self.drops())
        return StreamOffset(last if place.name == "latest" else oldest, self.drops())

    def _named(self, here: Here, offsets: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[PartitionStatus, int]]:
        """The partitions that are named, each with the offset that is meant."""
        for queue, wanted in offsets.items():
            if queue not in here.queues:
                raise QueueMissing(f"an offset is given for the queue {queue!r}, which is not read here")
            known = {status.partition: status for status in self._partitions(queue)}
            for partition, offset in wanted.items():
                if partition not in known:
                    shown = ", ".join(sorted(known)[:NAMED_MAX])
                    raise QueueMissing(f"{queue} has no partition {partition!r}; there are {shown}")
                yield known[partition], _offset_in(known[partition], offset)

    def _partitions(self, queue: str) -> Iterator[PartitionStatus]:
        after = 0
        while found := self._ask(self._reader.partitions(self._database, queue, LOOK_PARTITIONS, after)):
            yield from found
            after = found[-1].partition_id

    def plan(self, start: StreamOffset, end: StreamOffset) -> list[Share]:
        """What lies between two offsets, of the queues that the second one counts in, for tasks."""
        if is_whole(start, end):
            return [Share((part,), None) for part in split(start.lsn, end.lsn, self._options.partitions_min)]
        outlines = self.outline(start.lsn, end.last, end.queues)
        return share_out(outlines, start, end, self._options.partitions_min)

    # ── what is gone ──

    def resume(self, offset: StreamOffset, here: Here) -> StreamOffset:
        """Where to go on from an offset: there, or where the options allow a loss at a new beginning."""
        remembered = self._remembers(offset)
        change = find_change(offset, here, remembered)
        if change is None:
            return offset
        anew = begin_anew(offset, change, remembered, self.drops())
        self._tell(change, f"going on behind LSN {anew.lsn}")
        return anew

    def _remembers(self, offset: StreamOffset) -> bool | None:
        return None if offset.seen is None else self._ask(self._reader.remembers(offset.seen))

    def is_there(self, known: StreamOffset) -> bool:
        """Whether this is still the store, the log and the queues that were planned for; tells it when not."""
        numbers = self._ask(self._reader.queue_numbers(self._database))
        here = Here(self._options.store, self._ask(self._reader.identity()), numbers, self.last_lsn())
        change = find_change(known, here, self._remembers(known))
        if change is not None:
            self._tell(change, "nothing of it is read")
        return change is None

    def check_loss(self, after: Lsn, drops: int, queues: Iterable[str]) -> None:
        """Raises, or says in the log, when retention took records behind an LSN in drops after the number `drops`."""
        found = self._ask(self._reader.drops(after, drops, self._database, tuple(queues)))
        if found.lost:
            named = ", ".join(found.partitions)
            lost = f"retention dropped records after LSN {after} that were not read, in {found.lost:,} partitions"
            self._tell(DataLost(f"{lost} ({named})"), "going on without them")

    def _tell(self, change: HeadwaterError, so: str) -> None:
        if self._options.fail_on_data_loss:
            raise type(change)(f"{change}; {REMEDY}")
        log.warning("%s; %s, as failOnDataLoss says", change, so)


def check_begin(begin: StreamOffset, here: Here) -> None:
    """Raises when a read begins beyond the end of the log."""
    if begin.lsn > here.last:
        raise InvalidOption(
            f"option startingOffsets is LSN {begin.lsn + 1}, but the log of {here.address} ends at {here.last}: "
            "nothing up to there would be read; latest stands for the end"
        )


def _offset_in(status: PartitionStatus, offset: int) -> int:
    """An offset of a partition as it was written: a number, the first or the end."""
    if offset > status.end:
        raise InvalidOption(
            f"{status.queue}/{status.partition} ends at offset {status.end}, for which {OF_LATEST} stands; got {offset}"
        )
    return {OF_EARLIEST: status.start, OF_LATEST: status.end}.get(offset, offset)
