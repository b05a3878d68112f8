"""Pushes that go behind whatever is there by then: one round trip, however many processes push at the same time.

A push to a known partition, without transaction ids, keys, delays and bounds, needs nothing decided but where it lies.
That the server finds under the lock: nothing is read before, and nobody waits for this process while it has the lock.

    BEGIN, the append lock, the guard, each segment behind the last one, who is woken by it, COMMIT; the barrier

The guard fails when something is not as this process believes, or has to be dealt with first: names or options were
changed, the store is another, the clock was set back, messages are due. Then nothing was done, and the rules decide.
"""

from collections.abc import Sequence
from zlib import crc32

import msgspec

from headwater.clock import Timestamp
from headwater.log.operations import Commit, Operation, Touch
from headwater.model.added import Added
from headwater.model.cursor import CLOCK_TOLERANCE
from headwater.model.names import Lsn, Offset
from headwater.stores.codec import Codec
from headwater.stores.postgres.connection import PostgresConnection
from headwater.stores.postgres.pipe import PipelineResult, Request
from headwater.stores.tables.pushes import Pushes
from headwater.stores.tables.segments import bodies_of, expiry, waking_time
from headwater.stores.tables.stacks import Stack
from headwater.stores.tables.writer import Writer

_sql = PostgresConnection.sql
# What is not encrypted is bound to no place.
_NOWHERE = (0, 0)


class Plan(msgspec.Struct, frozen=True):
    """What is sent for some pushes, and what is known of their segments: the stack that each is of, how many records it
    has, and its body."""

    operations: Sequence[Operation]
    guard: Request
    requests: list[Request]
    stacks: list[Stack]
    segments: list[tuple[int, int, bytes]]


class Appends:
    """Plans such commits, and tells what they came to."""

    def __init__(self, writer: Writer, codec: Codec, origin: int) -> None:
        self._writer = writer
        self._codec = codec
        self._origin = origin

    def plan(self, operations: Sequence[Operation], now: Timestamp) -> Plan | None:
        """What to send for these operations; None when the rules have to decide."""
        clock = self._writer.clock_jumps
        stacks = None if clock.is_set_back(now) else self._writer.pushes.arrange_plain(operations, now)
        if stacks is None:
            return None
        clock.begin(now)
        written_at = self._writer.segments.time_of(now)
        appends: list[Request] = []
        wakes: dict[int, Request] = {}
        segments: list[tuple[int, int, bytes]] = []
        for number, stack in enumerate(stacks):
            partition, expires_at = stack.partition, expiry(now, stack.ttl_seconds)
            options = partition.queue.options
            for body, count in bodies_of(stack.records):
                codec, kept = self._codec.pack(body, options, _NOWHERE)
                row = (partition.id, count, written_at, expires_at, self._origin, codec, crc32(kept), kept)
                appends.append((_sql.append_segment, row))
                segments.append((number, count, body))
            wakes[partition.id] = (_sql.wake_idle_cursors, (waking_time(options, now), partition.id))
        return Plan(operations, self._guard(now), [*appends, *wakes.values()], stacks, segments)

    def _guard(self, now: Timestamp) -> Request:
        identities = "{" + ",".join(self._writer.identity.known) + "}"
        return _sql.refuse_unlike, (self._writer.catalog.version, identities, now + CLOCK_TOLERANCE, now)

    def commit(self, plan: Plan, answers: Sequence[PipelineResult]) -> Commit:
        """What was done, by what was answered to the requests of a plan."""
        touched: list[Touch] = []
        places: list[tuple[Offset, Lsn]] = []
        for (number, count, _), answer in zip(plan.segments, answers, strict=False):
            ((lsn, first, written_at),) = answer.rows
            partition = plan.stacks[number].partition
            touched.append(Touch(lsn, partition.id, first, count, partition.lane))
            # Of a stack that became several segments, the first record is in the first and the LSN that of the last.
            places[number:] = [(places[number][0] if len(places) > number else first, lsn)]
        added = Added([body for *_, body in plan.segments], self._origin, written_at)
        results = Pushes.answer_plain(plan.stacks, places, written_at)
        return Commit(results, touched, wrote=True, added=added, operations=plan.operations)
