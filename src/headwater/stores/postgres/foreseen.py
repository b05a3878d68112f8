"""What was read ahead for one commit, and whether it still holds.

Every write of the commit makes doubtful what was read from its table before. A segment that is appended leaves those
before it as they were: there may be more of them now, and that is all.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from headwater.stores.postgres.pipe import Request
from headwater.stores.statements import Statements
from headwater.stores.tables.connection import Value

Row = tuple[Any, ...]
Key = tuple[str, tuple[Value, ...]]

# So many segments of a partition are read ahead at most: the LIMIT in the statement.
SEGMENTS_AHEAD = 4
SEGMENTS = "hw_segments"
# Where the time stands in a row of `ready_cursors`.
_READY_AT = 10
_table = re.compile(r"\bhw_[a-z_]+")


@cache
def tables_of(statement: str) -> frozenset[str]:
    """The tables that a statement names."""
    return frozenset(_table.findall(statement))


class Listed(NamedTuple):
    """Rows that a read found, and whether there can be no more."""

    rows: list[Row]
    is_complete: bool


class _Answer(NamedTuple):
    rows: list[Row]
    read_at: int


class Foreseen:
    """Reads that are expected, and their answers once they are there."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql
        self._expected: dict[Key, Callable[[list[Row]], None]] = {}
        # Of the reads that come one by one, those that nobody has asked for yet.
        self._unused: set[Key] = set()
        self._answers: dict[Key, _Answer] = {}
        self._ready: dict[int, tuple[int, list[Row]]] = {}
        # The times before which no partition of a group was ready.
        self.floors: dict[int, int] = {}
        # So many of them tell nothing unless others have committed.
        self.of_others = 0
        self._jobs: dict[int, Row] = {}
        self._segments: dict[tuple[int, int], list[Row]] = {}
        self._bodies: dict[int, Row] = {}
        self._writes = 0
        self._written_at: dict[str, int] = {}
        self._appended_at = 0

    # ── expecting ──

    def expect(self, statement: str, *bindings: Value) -> None:
        """This very read will come."""
        key = (statement, bindings)
        self._unused.add(key)
        self._expected[key] = lambda rows: self._answer(key, rows)

    def expect_bodies(self, request: Request) -> None:
        """The records of segments may be wanted; the rows have the LSN before what `segment_body` answers."""
        self._expect(request, self._take_bodies)

    def expect_cursors(self, places: Iterable[tuple[int, int]], request: Request) -> None:
        """Positions of groups in partitions are wanted; the rows have the group before what `get_cursor` answers."""
        found: dict[tuple[int, int], list[Row]] = {place: [] for place in places}

        def take(rows: list[Row]) -> None:
            for row in rows:
                found[row[0], row[1]].append(row[1:])
            for place, own in found.items():
                self._answer((self._sql.get_cursor, place), own)

        self._expect(request, take)

    def expect_ready(self, limits: Mapping[int, int], request: Request) -> None:
        """What groups may lease is wanted, so much of each; rows have the group and the floor of its times before what
        `ready_cursors` answers."""

        def take(rows: list[Row]) -> None:
            self._ready = {group: (limit, []) for group, limit in limits.items()}
            for group, floor, *cursor in rows:
                self.floors[group] = floor
                if cursor[0] is not None:
                    self._ready[group][1].append(tuple(cursor))

        self._expect(request, take)

    def answers_to(self, statement: str) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
        """What a statement answered, by its bindings."""
        return ((key[1], answer.rows) for key, answer in self._answers.items() if key[0] is statement)

    def first_ready(self, group: int) -> int | None:
        """When the partition of a group became ready that has waited longest, None when none is."""
        rows = self._ready[group][1]
        return rows[0][_READY_AT] if rows else None

    def expect_heads(self, bindings: tuple[Any, ...], request: Request) -> None:
        """Jobs that come next are wanted, and will be leased; rows have what a lease answers behind what `ready_heads`
        does."""
        key = (self._sql.ready_heads, bindings)
        self._unused.add(key)

        def take(rows: list[Row]) -> None:
            self._answer(key, [row[:3] for row in rows])
            for _, number, kind, name, queue, *rest in rows:
                self._jobs[number] = (number, name, queue, kind, *rest)

        self._expect(request, take)

    def leased(self, numbers: Iterable[int]) -> list[Row] | None:
        """What a lease of these jobs answers, None when it was not foreseen or this commit has changed jobs since."""
        if not self._holds(self._sql.ready_heads, 0):
            return None
        found = [self._jobs.get(number) for number in numbers]
        return None if None in found else [row for row in found if row is not None]

    def expect_segments(self, request: Request) -> None:
        """Segments from some places on are wanted, with their records unless those are known."""
        self._expect(request, self._take_segments)

    def _expect(self, request: Request, take: Callable[[list[Row]], None]) -> None:
        statement, bindings = request
        self._expected[statement, tuple(bindings)] = take

    # ── answers come ──

    def know(self, statement: str, row: Row) -> None:
        """The answer to a read came with something else."""
        self._answer((statement, ()), [row])

    @property
    def needs_reads(self) -> bool:
        """Whether something is to be read even if nobody else has committed."""
        return len(self._expected) > self.of_others

    def requests(self) -> list[Request]:
        """What to ask the server for."""
        return list(self._expected)

    def take(self, found: Sequence[list[Row]]) -> None:
        """The answers to `requests`, in their order."""
        for take, rows in zip(self._expected.values(), found, strict=True):
            take(rows)

    def again(self, key: Key) -> list[Request]:
        """An expected read whose answer holds no more, and all others of which the same is true: they come next."""
        if key not in self._unused:
            return []
        self._unused.discard(key)
        doubtful = [other for other in self._unused if not self._holds(other[0], self._read_at(other))]
        return [key, *doubtful]

    def take_again(self, requests: Sequence[Request], found: Sequence[list[Row]]) -> None:
        """The answers to `again`."""
        for (statement, bindings), rows in zip(requests, found, strict=True):
            self._answer((statement, tuple(bindings)), rows)

    def _answer(self, key: Key, rows: list[Row]) -> None:
        self._answers[key] = _Answer(rows, self._writes)

    def _take_bodies(self, rows: list[Row]) -> None:
        for row in rows:
            self._bodies[row[0]] = row[1:]

    def _take_segments(self, rows: list[Row]) -> None:
        for partition, start, lsn, first, count, written_at, expires_at, codec, checksum, body in rows:
            self._segments.setdefault((partition, start), []).append((lsn, first, count, written_at, expires_at))
            if body is not None:
                self._bodies[lsn] = (codec, checksum, partition, first, body)

    # ── writes make them doubtful ──

    def wrote(self, statement: str, table: str) -> None:
        """This commit has written to a table, or will have before the next read."""
        self._writes += 1
        if statement is self._sql.add_segment:
            self._appended_at = self._writes
        else:
            self._written_at[table] = self._writes

    def _holds(self, statement: str, read_at: int) -> bool:
        tables = tables_of(statement)
        if SEGMENTS in tables and self._appended_at > read_at:
            return False
        return all(self._written_at.get(table, 0) <= read_at for table in tables)

    def _read_at(self, key: Key) -> int:
        answer = self._answers.get(key)
        return -1 if answer is None else answer.read_at

    # ── answering ──

    def find(self, statement: str, bindings: tuple[Any, ...]) -> Listed | None:
        """The answer to a read, None when it was not foreseen or holds no more."""
        answer = self._answers.get((statement, bindings))
        if answer is not None:
            if not self._holds(statement, answer.read_at):
                return None
            self._unused.discard((statement, bindings))
            return Listed(answer.rows, True)
        if statement is self._sql.ready_cursors:
            return self._find_ready(*bindings)
        if statement is self._sql.segments_from:
            return self._find_segments(*bindings)
        if statement is self._sql.segment_body and SEGMENTS not in self._written_at:
            body = self._bodies.get(bindings[0])
            return None if body is None else Listed([body], True)
        return None

    def _find_ready(self, group_id: int, now: int, limit: int) -> Listed | None:
        known = self._ready.get(group_id)
        if known is None or not self._holds(self._sql.ready_cursors, 0):
            return None
        read, rows = known
        return Listed(rows[:limit], True) if limit <= read or len(rows) < read else None

    def _find_segments(self, partition_id: int, offset: int) -> Listed | None:
        """Those that were appended since come behind these. Where the last segment ends before the offset, one that
        was appended may hold it."""
        rows = self._segments.get((partition_id, offset))
        if rows is None or SEGMENTS in self._written_at:
            return None
        if self._appended_at and rows[0][1] + rows[0][2] <= offset:
            return None
        return Listed(rows, len(rows) < SEGMENTS_AHEAD and not self._appended_at)
