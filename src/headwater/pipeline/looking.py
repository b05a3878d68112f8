"""The log as the workers of Spark see it: read by address, without async, and with every loss told.

What is gone is told as an error, or where the options allow it as a warning: records that retention took, a queue that
was deleted, a store that was replaced.
"""

import logging
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice

import msgspec

from headwater.errors import DataLost, HeadwaterError, InvalidOption, QueueMissing
from headwater.model.names import Lsn, PartitionId
from headwater.pipeline.options import EARLIEST, LATEST, OF_EARLIEST, OF_LATEST, Place, ReadOptions
from headwater.pipeline.planning import Cut, Range, Share, Snapshot, StreamOffset, cut_body, is_whole, share_out, split
from headwater.pipeline.ranges import Place as Location
from headwater.pipeline.ranges import RangeReader
from headwater.pipeline.standing import Here, begin_anew, find_change
from headwater.stores.log_reader import Body, SegmentOutline
from headwater.stores.open import shown
from headwater.stores.questions import PartitionStatus

log = logging.getLogger(__name__)

LOOK_PARTITIONS = 10_000
WAITING_SEGMENTS = 100_000
NAMED_MAX = 10
REMEDY = "load the table again, or begin a new checkpoint; to go on without what is gone, set failOnDataLoss to false"


class Look(RangeReader):
    """A reader of the log of which is asked what the options say."""

    def __init__(self, options: ReadOptions, losses: "deque[str] | None" = None) -> None:
        """`losses` gets what is told and gone on after, for who shows it elsewhere than in a log."""
        super().__init__(Location(options.store, options.database, options.access))
        self._options = options
        self._losses = losses
        self._waited_for: frozenset[str] = frozenset()

    # ── what is there ──

    def here(self, kept: StreamOffset | None = None) -> Here:
        """Which store this is, and the queues to read; of a query that goes on behind `kept`, those that are left.

        One that such a query has read and that is gone is told by whoever compares (`resume`); where the options allow
        a loss it is waited for from then on.
        """
        numbers = self._ask(self._reader.queue_numbers(self._database))
        chosen = self._options.choose(sorted(numbers), () if kept is None else self._may_be_gone(kept))
        self._tell_waiting(frozenset(self._options.queues) - frozenset(chosen))
        found = {name: numbers[name] for name in chosen}
        others = {name: number for name, number in numbers.items() if name not in found}
        return Here(shown(self._options.store), self._ask(self._reader.identity()), found, self.last_lsn(), others)

    def _may_be_gone(self, kept: StreamOffset) -> Collection[str]:
        return kept.queues if self._options.fail_on_data_loss else self._options.queues

    def _tell_waiting(self, missing: frozenset[str]) -> None:
        """Once, not with every look at the log."""
        if missing - self._waited_for and not self._options.fail_on_data_loss:
            named, store = ", ".join(sorted(missing)), shown(self._options.store)
            log.warning("there is no queue %s in %s; it is read when it is made again", named, store)
        self._waited_for = missing

    def last_lsn(self) -> Lsn:
        """The newest LSN ever given out."""
        return self._ask(self._reader.span())[1]

    def drops(self) -> int:
        """How often anything was dropped from the store."""
        return self._ask(self._reader.drops(Lsn(0), 0, self._database, ())).number

    def newest(self, after: Lsn, through: Lsn, queues: Iterable[str]) -> Lsn | None:
        """The newest segment of the queues in a stretch of the log; None, too, where no queue is left."""
        names = tuple(queues)
        return self._ask(self._reader.newest(after, through, self._database, names)) if names else None

    def outline(self, after: Lsn, through: Lsn, queues: Iterable[str]) -> Iterator[SegmentOutline]:
        """The segments of the queues in a stretch of the log."""
        return chain.from_iterable(self.outlines(Range(after, through), queues))

    def waiting(self, begin: StreamOffset, newest: Lsn, queue: str) -> Iterator[SegmentOutline]:
        """The segments of a queue behind an offset, as many as are worth counting."""
        return islice(self.outline(begin.lsn, newest, (queue,)), WAITING_SEGMENTS)

    def wanted(self, span: Range, of: StreamOffset, cut: Cut | None = None) -> Iterator[list[Body]]:
        """The segments in a range that the options and an offset want: of its queues, and its partitions."""
        for found in self.bodies(span, of.queues):
            bodies = [body for body in found if self._wants(body.lane.partition, of)]
            if cut is not None:
                bodies = [part for body in bodies if (part := cut_body(body, cut))]
            if bodies:
                yield bodies

    def _wants(self, partition: str, of: StreamOffset) -> bool:
        # A micro-batch that is read again has the partitions it was planned for, even when the options name more now.
        return self._options.wants(partition) and of.wants(partition)

    # ── where to begin and to end ──

    def mark(self, offset: StreamOffset, here: Here) -> StreamOffset:
        """An offset with all by which it is known again."""
        seen = self._ask(self._reader.fingerprint(offset.last))
        return msgspec.structs.replace(self.aim(offset, here), seen=seen)

    def aim(self, offset: StreamOffset, here: Here) -> StreamOffset:
        """An offset that is about what the options name."""
        named = sorted(self._options.partitions)
        return msgspec.structs.replace(offset, store=here.store, queues=here.queues, partitions=named)

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
        anew = begin_anew(offset, change, here, remembered, self.drops())
        self._tell(change, f"going on behind LSN {anew.lsn}")
        return anew

    def take_in(self, offset: StreamOffset, wanted: StreamOffset) -> StreamOffset:
        """An offset with the queues and partitions that another one is about, too: those begin at their first record.

        Then all that the offset has read already lies ahead of it, by partition, until the others have caught up.
        """
        more = not offset.wants_all_of(wanted.partitions)
        new = list(wanted.queues) if more else offset.new_queues(wanted.queues)
        if self.newest(Lsn(0), offset.last, new) is None:
            return offset
        read = self._read_before(offset, [name for name in wanted.queues if name not in offset.new_queues([name])])
        return msgspec.structs.replace(offset, lsn=Lsn(0), positions=read, through=offset.last)

    def _read_before(self, offset: StreamOffset, queues: Iterable[str]) -> dict[PartitionId, int]:
        """How far an offset is in each partition of some queues that it reads."""
        names = tuple(queues)
        # Asked for first: what is pushed between the two is among the segments, and not in the ends.
        ends = {
            status.partition_id: status.end
            for queue in names
            for status in self._partitions(queue)
            if offset.wants(status.partition)
        }
        for segment in self.outline(offset.lsn, self.last_lsn(), names) if names else ():
            if segment.partition_id in ends:
                ends[segment.partition_id] = min(ends[segment.partition_id], segment.first_offset)
        return {number: max(end, offset.positions.get(number, 0)) for number, end in ends.items() if end}

    def _remembers(self, offset: StreamOffset) -> bool | None:
        return None if offset.seen is None else self._ask(self._reader.remembers(offset.seen))

    def left(self, known: StreamOffset) -> StreamOffset:
        """What was planned for with those of its queues that are still there; tells when that is not all of them.

        None are where the store or its log is another one.
        """
        numbers = self._ask(self._reader.queue_numbers(self._database))
        here = Here(shown(self._options.store), self._ask(self._reader.identity()), numbers, self.last_lsn())
        change = find_change(known, here, self._remembers(known))
        if change is None:
            return known
        self._tell(change, "nothing of it is read")
        same = {name: number for name, number in known.queues.items() if numbers.get(name) == number}
        return msgspec.structs.replace(known, queues=same if isinstance(change, DataLost) else {})

    def check_loss(self, begin: StreamOffset, queues: Iterable[str]) -> None:
        """Raises, or says in the log, when retention took records behind an offset since that was made."""
        if loss := self.find_loss(begin, queues):
            self.tell_loss(loss)

    def tell_loss(self, loss: DataLost) -> None:
        """Raises, or says in the log, what `find_loss` has found."""
        self._tell(loss, "going on without them")

    def find_loss(self, begin: StreamOffset, queues: Iterable[str]) -> DataLost | None:
        """What retention took of some queues behind an offset since that was made, of the partitions that are read."""
        names, partitions = tuple(queues), self._read_partitions(begin)
        if not names or partitions == []:
            return None
        found = self._ask(self._reader.drops(begin.lsn, begin.drops, self._database, names, partitions or ()))
        if not found.lost:
            return None
        gone = self._gone_beyond(begin, names)
        named = sorted(name for name in {*found.partitions} if gone.get(name) != 0)
        lost = found.lost - len(found.partitions) + len(named)
        if not lost:
            return None
        told = f"retention dropped records after LSN {begin.lsn} that were not read, in {lost:,} partitions"
        shown = [f"{name}: {gone[name]:,} records" if name in gone else name for name in named[:NAMED_MAX]]
        return DataLost(f"{told} ({', '.join(shown)})")

    def _read_partitions(self, begin: StreamOffset) -> list[str] | None:
        """The partitions that an offset and the options both name; None stands for all."""
        if not self._options.partitions:
            return begin.partitions or None
        return [name for name in sorted(self._options.partitions) if begin.wants(name)]

    def _gone_beyond(self, begin: StreamOffset, queues: Iterable[str]) -> dict[str, int]:
        """How many records are gone that were not read, of each partition of which an offset has the position."""
        if not begin.positions:
            return {}
        return {
            f"{status.queue}/{status.partition}": max(status.start - begin.positions[status.partition_id], 0)
            for queue in queues
            for status in self._partitions(queue)
            if status.partition_id in begin.positions
        }

    def _tell(self, change: HeadwaterError, so: str) -> None:
        if self._options.fail_on_data_loss:
            raise type(change)(f"{change}; {REMEDY}")
        log.warning("%s; %s, as failOnDataLoss says", change, so)
        if self._losses is not None and str(change) not in self._losses:
            self._losses.append(str(change))


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
