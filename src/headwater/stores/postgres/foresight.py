"""Which reads go with the append lock: those that the rules foresee, and the records behind the positions among them.

To read too much costs the server a little, to read too little a round trip under the lock, and to foresee wrongly
nothing: a read is answered from here only if it is the very one.
"""

from collections.abc import Iterable, Sequence

from headwater.clock import Timestamp
from headwater.log.operations import Operation, Pop
from headwater.stores.postgres.connection import PostgresConnection
from headwater.stores.postgres.foreseen import Foreseen
from headwater.stores.tables.subject import Read
from headwater.stores.tables.writer import Writer

BODIES_MAX = 256
PARTITIONS_AHEAD_MAX = 16
CURSORS_AHEAD_MAX = 256
READS_MAX = 1_024
KNOWN_LSNS_MAX = 256
# What others have changed comes with the version, if that was raised.
_WITH_THE_VERSION = ("look", "next_delayed")
# What others have appended.
_OF_OTHERS = "segments_since"

_sql = PostgresConnection.sql


class Foresight:
    """Looks at what a writer knows, before it has the lock."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def look_ahead(self, operations: Sequence[Operation], now: Timestamp) -> Foreseen:
        """What a commit of these operations will read."""
        foreseen = Foreseen(_sql)
        held: dict[tuple[int, int], None] = {}
        wanted: dict[int, int] = {}
        for statement, bindings in self._reads(operations, now):
            if statement == "get_cursor" and len(held) < CURSORS_AHEAD_MAX:
                held[_numbers(bindings)] = None
            elif statement == "ready_cursors":
                group, _, limit = _three(bindings)
                wanted[group] = max(wanted.get(group, 0), limit)
            elif statement == "ready_heads":
                foreseen.expect_heads(bindings, (_sql.ready_heads_ahead, bindings))
            else:
                foreseen.expect(getattr(_sql, statement), *bindings)
                foreseen.of_others += statement == _OF_OTHERS
        self._expect_ids(foreseen)
        self._expect_cursors(foreseen, list(held), wanted, operations, now)
        return foreseen

    def _reads(self, operations: Sequence[Operation], now: Timestamp) -> list[Read]:
        reads = self._writer.foresee(operations, now)[:READS_MAX]
        return [read for read in reads if read.statement not in _WITH_THE_VERSION]

    def _expect_ids(self, foreseen: Foreseen) -> None:
        """Where transaction ids are remembered, those of what others have appended are read."""
        segments = self._writer.segments
        if segments.last_lsn and segments.knows_ids:
            foreseen.expect_bodies((_sql.bodies_since, (segments.last_lsn, BODIES_MAX)))
            foreseen.of_others += 1

    def _expect_cursors(
        self,
        foreseen: Foreseen,
        held: list[tuple[int, int]],
        wanted: dict[int, int],
        operations: Sequence[Operation],
        now: Timestamp,
    ) -> None:
        """Positions that are reported on, those that are ready, and the records behind the first of them."""
        holders = (_array(group for group, _ in held), _array(partition for _, partition in held))
        if held:
            foreseen.expect_cursors(held, (_sql.cursors_ahead, holders))
        pops = [operation for operation in operations if isinstance(operation, Pop)]
        if not pops:
            return
        ready = (_array(wanted), _array(wanted.values()))
        if wanted:
            foreseen.expect_ready(wanted, (_sql.ready_ahead, (*ready, now)))
        reach = min(sum(pop.partitions or PARTITIONS_AHEAD_MAX for pop in pops), PARTITIONS_AHEAD_MAX)
        batch = max(pop.batch for pop in pops)
        known = _array(self._writer.segments.opened(KNOWN_LSNS_MAX))
        foreseen.expect_segments((_sql.segments_ahead, (*ready, now, reach, *holders, batch, known)))


def _numbers(bindings: tuple[object, ...]) -> tuple[int, int]:
    first, second = bindings
    assert isinstance(first, int)
    assert isinstance(second, int)
    return first, second


def _three(bindings: tuple[object, ...]) -> tuple[int, int, int]:
    *place, third = bindings
    assert isinstance(third, int)
    return (*_numbers(tuple(place)), third)


def _array(numbers: Iterable[int]) -> str:
    """Numbers as the server reads an array."""
    return "{" + ",".join(map(str, numbers)) + "}"
