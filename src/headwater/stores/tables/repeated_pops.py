"""A pop that is asked for again with its key, because its answer was lost: the same leases, their records read anew.

A key keeps where the records are and not the records, so that it costs a line, however much was handed out. It counts
who was answered: a lease that several have goes back when the last of them leaves.
"""

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headwater.clock import Timestamp
from headwater.log.group_operations import GiveBack, GivenBack, LeaseName
from headwater.log.operations import Ack, Batch, Pop, Popped
from headwater.model import cursor as rules
from headwater.model.cursor import Cursor, Outcome
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.record import Record
from headwater.stores.tables.catalog import Catalog, Partition
from headwater.stores.tables.cursors import Cursors
from headwater.stores.tables.reports import Reports
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.subject import Handlers, Phase, Subject

if TYPE_CHECKING:
    from headwater.stores.tables.applied import Applied


class KeptLease(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one batch of a pop covered. `runs` are its offsets, each run by its first one and how many there are."""

    partition_id: PartitionId
    group: str
    token: int
    lease_until: Timestamp
    attempts: int
    runs: list[tuple[int, int]]
    lost: int = 0


class KeptPop(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a pop as a key keeps it. Older versions kept the `batches` themselves, with all their records."""

    leases: list[KeptLease] = []
    batches: list[Batch] = []
    answered: int = 1


def kept_of(popped: Popped, answered: int) -> KeptPop:
    """What is kept of an answer that so many got."""
    return KeptPop(leases=[_lease_of(batch) for batch in popped.batches], answered=answered)


def _lease_of(batch: Batch) -> KeptLease:
    about = (batch.partition_id, batch.group, batch.token, batch.lease_until, batch.attempts)
    return KeptLease(*about, list(_runs(batch.offsets)), batch.lost)


def _name_of(lease: KeptLease) -> LeaseName:
    return LeaseName(lease.partition_id, lease.group, lease.token)


def _runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Offsets, which rise, as runs without a gap."""
    first = count = 0
    for offset in offsets:
        if count and offset == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = offset, 1
    if count:
        yield first, count


class RepeatedPops(Subject):
    """Answers pops that were answered before, and takes back what they got, under the write lock."""

    phases = MappingProxyType({GiveBack: Phase.REPORTS})

    def __init__(
        self, applied: "Applied", catalog: Catalog, segments: Segments, cursors: Cursors, reports: Reports
    ) -> None:
        self._applied = applied
        self._catalog = catalog
        self._segments = segments
        self._cursors = cursors
        self._reports = reports

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {GiveBack: self.give_back}

    def give_back(self, operation: GiveBack, now: Timestamp) -> GivenBack:
        """One of those who were answered has left."""
        database, key = operation.database, operation.pop_key
        kept = self._applied.kept_pop(database, key)
        if kept is None or set(operation.leases).isdisjoint(map(_name_of, kept.leases)):
            return GivenBack(0)
        if kept.answered > 1:
            self._applied.keep_pop(database, key, msgspec.structs.replace(kept, answered=kept.answered - 1))
            return GivenBack(0)
        return GivenBack(sum(self._release(database, lease, now) for lease in kept.leases))

    def _release(self, database: str, lease: KeptLease, now: Timestamp) -> bool:
        partition = self._catalog.partition_by_id(lease.partition_id)
        if partition is None or partition.queue.database != database:
            return False
        held = rules.still_held(self._cursor(partition, lease.group), lease.token, now)
        outcomes: dict[int | str, Outcome] = dict.fromkeys(held, Outcome.RELEASED)
        about = Ack(
            database=database,
            partition_id=lease.partition_id,
            group=lease.group,
            token=lease.token,
            outcomes=outcomes,
        )
        return bool(outcomes) and self._reports.ack(about, now).lease_ended

    def answer(self, operation: Pop, kept: KeptPop, now: Timestamp) -> Popped | None:
        """What a pop got the first time, as far as it is held still. None when nothing of it is: all of its leases are
        over, and it may have others."""
        leases = kept.leases or [_lease_of(batch) for batch in kept.batches]
        batches = [self._batch(operation, lease, now) for lease in leases]
        found = [batch for batch in batches if batch is not None]
        if not found:
            return None
        if kept.leases:
            again = msgspec.structs.replace(kept, answered=kept.answered + 1)
            self._applied.keep_pop(operation.database, operation.key, again)
        return Popped(found)

    def _batch(self, operation: Pop, lease: KeptLease, now: Timestamp) -> Batch | None:
        partition = self._catalog.partition_by_id(lease.partition_id)
        if partition is None or partition.queue.database != operation.database:
            return None
        places = list(self._places(lease))
        until = lease.lease_until
        if lease.token:
            # What was given back, has run out or was reported on is not told again: others may have it.
            cursor = self._cursor(partition, lease.group)
            held = set(rules.still_held(cursor, lease.token, now))
            places = [place for place in places if place.offset in held]
            until = Timestamp(cursor.lease_until or until)
        if not places:
            return None
        return Batch(
            queue=partition.queue.name,
            partition=partition.name,
            partition_id=partition.id,
            group=lease.group,
            token=lease.token,
            lease_until=until,
            attempts=lease.attempts,
            offsets=[place.offset for place in places],
            written_at=[place.written_at for place in places],
            lsns=[place.lsn for place in places],
            records=[place.record for place in places],
            lost=lease.lost,
        )

    def _cursor(self, partition: Partition, name: str) -> Cursor:
        group = self._catalog.find_group(partition.queue, name)
        return (None if group is None else self._cursors.find(group, partition.id)) or Cursor()

    def _places(self, lease: KeptLease) -> "Iterator[_Place]":
        """The records of a lease that are still there."""
        for first, count in lease.runs:
            end = first + count
            for header in self._segments.headers(lease.partition_id, Offset(first)):
                begin = header.first_offset
                if begin >= end:
                    break
                records = self._segments.records_of(header)
                for offset in range(max(first, begin), min(end, begin + header.count)):
                    yield _Place(Offset(offset), header.written_at, header.lsn, records[offset - begin])


class _Place(NamedTuple):
    offset: Offset
    written_at: Timestamp
    lsn: Lsn
    record: Record
