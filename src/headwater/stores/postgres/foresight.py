"""Which reads a commit will need: those that its operations and what the writer knows tell beforehand.

They go with the append lock, in one round trip. To foresee too much costs the server a little, to foresee too little a
round trip under the lock, and to foresee wrongly nothing: a read is answered from here only if it is the very one.
"""

from collections.abc import Iterable, Sequence

from headwater.clock import Timestamp
from headwater.log.job_operations import Claim, Enqueue, Settle
from headwater.log.operations import Ack, Advance, Extend, Operation, Pop
from headwater.model.idempotency import plain_key
from headwater.stores.postgres.connection import PostgresConnection
from headwater.stores.postgres.foreseen import Foreseen
from headwater.stores.tables.job_lanes import NO_LANE, known_of
from headwater.stores.tables.job_rows import as_json
from headwater.stores.tables.pops import LOOK_AT
from headwater.stores.tables.writer import Writer

BODIES_MAX = 256
PARTITIONS_AHEAD_MAX = 16
CURSORS_AHEAD_MAX = 256
KNOWN_LSNS_MAX = 256


class Foresight:
    """Looks at what a writer knows, before it has the lock."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._sql = PostgresConnection.sql

    def look_ahead(self, operations: Sequence[Operation], now: Timestamp) -> Foreseen:
        """What these operations will read."""
        foreseen = Foreseen(self._sql)
        self._changes_elsewhere(foreseen)
        held: dict[tuple[int, int], None] = {}
        wanted: dict[int, int] = {}
        batch = 0
        for operation in operations:
            if operation.key:
                for key in dict.fromkeys((operation.key, plain_key(operation.key))):
                    foreseen.expect(self._sql.find_applied, operation.database, key)
            match operation:
                case Ack() | Advance() | Extend():
                    held.update(dict.fromkeys(self._held(operation)))
                case Pop():
                    batch = max(batch, operation.batch)
                    self._pop(operation, held, wanted)
                case Claim():
                    self._claim(foreseen, operation)
                case Settle():
                    self._settle(foreseen, operation)
                case Enqueue():
                    self._enqueue(foreseen, operation)
        self._cursors(foreseen, list(held)[:CURSORS_AHEAD_MAX], wanted, batch, now)
        return foreseen

    def _changes_elsewhere(self, foreseen: Foreseen) -> None:
        """What others may have appended since."""
        segments = self._writer.segments
        if segments.last_lsn:
            foreseen.expect(self._sql.segments_since, segments.last_lsn)
            if segments.knows_ids:
                foreseen.expect_bodies((self._sql.bodies_since, (segments.last_lsn, BODIES_MAX)))

    # ── queues ──

    def _held(self, operation: Ack | Advance | Extend) -> Iterable[tuple[int, int]]:
        group = self._writer.catalog.known_group_of(operation.partition_id, operation.group)
        return () if group is None else ((group.id, operation.partition_id),)

    def _pop(self, operation: Pop, held: dict[tuple[int, int], None], wanted: dict[int, int]) -> None:
        """A pop of one queue whose group is known."""
        catalog = self._writer.catalog
        group = catalog.known_group(operation.database, operation.queue, operation.group)
        if group is None:
            return
        if operation.partition:
            partition = catalog.known_partition(group.queue, operation.partition)
            if partition is not None:
                held[group.id, partition.id] = None
        else:
            wanted[group.id] = wanted.get(group.id, 0) + (operation.partitions or LOOK_AT)

    def _cursors(
        self, foreseen: Foreseen, held: list[tuple[int, int]], wanted: dict[int, int], batch: int, now: Timestamp
    ) -> None:
        """Positions that are reported on, those that are ready, and the records behind the first of them."""
        holders = (_array(group for group, _ in held), _array(partition for _, partition in held))
        if held:
            foreseen.expect_cursors(held, (self._sql.cursors_ahead, holders))
        if not wanted:
            return
        # What is reported on now may be passed over, so as many more are looked at.
        limits = {group: count + len(held) for group, count in wanted.items()}
        ready = (_array(limits), _array(limits.values()))
        foreseen.expect_ready(limits, (self._sql.ready_ahead, (*ready, now)))
        reach = min(sum(wanted.values()), PARTITIONS_AHEAD_MAX)
        known = _array(self._writer.segments.opened(KNOWN_LSNS_MAX))
        foreseen.expect_segments((self._sql.segments_ahead, (*ready, now, reach, *holders, batch, known)))

    # ── jobs ──

    def _claim(self, foreseen: Foreseen, operation: Claim) -> None:
        sql = self._sql
        foreseen.expect(sql.jobs_outlook)
        foreseen.expect(sql.find_worker, operation.worker, operation.database)
        functions = known_of(operation.functions)
        for queue in self._writer.jobs.queues.known(operation.database, operation.queues):
            foreseen.expect(sql.queue_outlook, queue.id, functions)
            foreseen.expect(sql.ready_heads, queue.id, NO_LANE, operation.limit)

    def _settle(self, foreseen: Foreseen, operation: Settle) -> None:
        numbers = as_json([report.number for report in operation.reports])
        foreseen.expect(self._sql.jobs_held_of, numbers, operation.worker)
        foreseen.expect(self._sql.open_dependents, numbers)

    def _enqueue(self, foreseen: Foreseen, operation: Enqueue) -> None:
        foreseen.expect(self._sql.last_job_number)
        if ids := [job.id for job in operation.jobs if job.id]:
            foreseen.expect(self._sql.jobs_by_id, operation.database, as_json(ids))
        for job in operation.jobs:
            if job.unique_key:
                foreseen.expect(self._sql.find_unique, operation.database, job.unique_key)


def _array(numbers: Iterable[int]) -> str:
    """Numbers as the server reads an array."""
    return "{" + ",".join(map(str, numbers)) + "}"
