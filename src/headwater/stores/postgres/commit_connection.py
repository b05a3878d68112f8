"""The connection of commits: load, decide, store.

    round trip 1    BEGIN, the append lock, whether others committed, and the reads that this commit is known to need
    deciding        reads are answered from those; writes wait
    round trip 2    the writes and COMMIT; right behind them the barrier

A commit that needs no reads, as most pushes, is decided by what is remembered while nobody else commits: it goes in
one round trip then. The server refuses it under the lock if somebody has (`Overtaken`), and it is decided anew. Where
others do commit, pushes of which nothing has to be decided go in one round trip too (`appends.py`).

A read that was not foreseen sends the writes that wait and itself, in one more round trip, and so sees them. What was
read ahead is not believed any more once this commit has written to a table that it came from.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.stores.postgres.connection import PostgresConnection
from headwater.stores.postgres.foreseen import Foreseen, Listed
from headwater.stores.postgres.pipe import ConnectionLost, Pipe, PipelineResult, Request, ServerError
from headwater.stores.statements import Statements
from headwater.stores.tables.connection import Row, Value

if TYPE_CHECKING:
    from typing_extensions import TypeForm

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_NO_WAIT = "SET LOCAL synchronous_commit = off"
_OPENING = 4
# How the server says that somebody else has committed: a division by zero, which nothing else divides by.
_OVERTAKEN = "22012"
# What a procedure writes to is read by no commit: its own name stands for it.
_writing = re.compile(r"\s*(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|CALL)\s+(\w+)")
# So many segments the statements that list them bring at a time.
_LISTED = 64
# Who waits for its answers sends nothing that cannot be taken back after so long.
_QUIET_SECONDS = 10.0
# These steer the transaction and answer nothing.
_STEERING = ("SAVEPOINT", "ROLLBACK TO", "RELEASE")


class Kind(NamedTuple):
    """What a statement does: which table it writes to, if any, and whether it can wait, because it answers nothing."""

    writes: str
    waits: bool


@cache
def kind_of(statement: str) -> Kind:
    """The kind of a statement, from its text."""
    if statement.startswith(_STEERING):
        return Kind("", True)
    match = _writing.match(statement)
    return Kind("", False) if match is None else Kind(match[1], "RETURNING" not in statement)


class Overtaken(Exception):
    """It is not as it was when this commit was decided or planned: nothing of it was done."""


class CommitConnection:
    """What the writer takes for a connection. It belongs to the thread of commits."""

    sql: Statements = PostgresConnection.sql

    def __init__(self, location: str) -> None:
        self.location = location
        self._pipe: Pipe | None = None
        self._held: list[Request] = []
        self._before_writes: list[Request] = []
        self._foreseen = Foreseen(self.sql)
        self._wrote = False
        self._rows_written = 0
        self._version = -1
        self._in_transaction = False
        # Whether the lock is taken with what is sent first, and what was remembered holds by then.
        self._unopened = False
        # How often this process has raised the version: what else it rose by is others' doing.
        self.raised = 0
        self.trips = 0
        # The newest version that was seen; what the writer knows may be as of an older one.
        self.newest = -1
        # What the server's clock showed when the lock was taken last.
        self.server_time = 0

    # ── what the rules ask for ──

    def rows_written(self) -> int:
        """How many rows were changed so far, at most: those that wait count as one each."""
        return self._rows_written

    def version(self) -> int:
        """A number that changes when another connection has committed."""
        return self._version

    def run(self, statement: str, bindings: Sequence[Value] = (), /) -> None:
        """Run one statement, or keep it until its turn comes."""
        self._answer(statement, bindings)

    def rows(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> list[Row]:
        """All rows of a statement."""
        return self._answer(statement, bindings)

    def row(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> Row | None:
        """The row of a statement that has at most one."""
        found = self.rows(statement, bindings, row)
        return found[0] if found else None

    def each(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> Iterator[Row]:
        """The rows of a statement, one after the other."""
        return self._each(statement, bindings)

    def executemany(self, statement: str, bindings: Iterable[Sequence[Value]], /) -> None:
        """Run one statement with each of these bindings."""
        for values in bindings:
            self._answer(statement, values)

    def _answer(self, statement: str, bindings: Sequence[Any]) -> list[Any]:
        kind = kind_of(statement)
        if kind.waits:
            self._hold(kind, statement, bindings)
            return []
        if statement is self.sql.lease_jobs:
            leased = self._foreseen.leased(json.loads(bindings[2]))
            if leased is not None:
                return self._lease(leased, bindings)
        if kind.writes:
            return self._run(kind, statement, bindings)
        return self.read(statement, *bindings).rows

    def _each(self, statement: str, bindings: Sequence[Any]) -> Iterator[Any]:
        if statement is self.sql.segments_from:
            return self._onward(self.read(statement, *bindings), bindings[0])
        if statement is self.sql.newest_segments:
            return self._backward(self.read(statement, *bindings), bindings[0])
        return iter(self._answer(statement, bindings))

    def _onward(self, found: Listed, partition_id: int) -> Iterator[Any]:
        """Segments of a partition, oldest first: some were read, and the rest is when somebody wants it."""
        rows, is_complete = found
        while rows:
            yield from rows
            if is_complete:
                return
            end = rows[-1][1] + rows[-1][2]
            more, is_complete = self.fetch(self.sql.segments_from, partition_id, end)
            # Where none begins at the end, the last one is found again.
            rows = [row for row in more if row[1] >= end]

    def _backward(self, found: Listed, partition_id: int) -> Iterator[Any]:
        """The same, newest first."""
        rows, is_complete = found
        while rows:
            yield from rows
            if is_complete:
                return
            rows, is_complete = self.fetch(self.sql.segments_before, partition_id, rows[-1][1])

    def read(self, statement: str, *bindings: Value) -> Listed:
        """The rows of a statement that only reads."""
        found = self._foreseen.find(statement, bindings)
        if found is not None:
            return found
        return self.fetch(statement, *bindings)

    def fetch(self, statement: str, *bindings: Value) -> Listed:
        """The same from the server, whatever was foreseen."""
        key = (statement, bindings)
        requests = self._foreseen.again(key) or [key]
        answers = [answer.rows for answer in self._send(requests)]
        if len(requests) > 1:
            self._foreseen.take_again(requests[1:], answers[1:])
        return Listed(answers[0], len(answers[0]) < _LISTED)

    @property
    def raised_floors(self) -> bool:
        """Whether what raises floors was sent with this commit."""
        return not self._before_writes

    def raise_floors(self, requests: Sequence[Request]) -> None:
        """Send these before the first write, if there is any: of themselves they are not worth a commit."""
        self._before_writes = list(requests)

    def _hold(self, kind: Kind, statement: str, bindings: Sequence[Value]) -> None:
        if kind.writes:
            self._hold_floors()
        self._held.append((statement, bindings))
        if kind.writes:
            self._rows_written += 1
            self._wrote = True
            self._foreseen.wrote(statement, kind.writes)

    def _lease(self, leased: list[tuple[Value, ...]], bindings: Sequence[Value]) -> list[tuple[Value, ...]]:
        """Jobs whose rows are known need not be waited for."""
        self._hold(kind_of(self.sql.lease_foreseen), self.sql.lease_foreseen, bindings)
        return leased

    def _hold_floors(self) -> None:
        self._held += self._before_writes
        self._before_writes = []

    def _run(self, kind: Kind, statement: str, bindings: Sequence[Value]) -> list[tuple[Any, ...]]:
        """A write whose answer is wanted."""
        self._hold_floors()
        (answer,) = self._send([(statement, bindings)])
        self._foreseen.wrote(statement, kind.writes)
        self._wrote = self._wrote or bool(answer.changed)
        self._rows_written += answer.changed
        return answer.rows

    def _send(self, requests: Sequence[Request]) -> list[PipelineResult]:
        """Run these behind what waits, in one round trip."""
        if self._unopened:
            # A read that was not foreseen: it may tell of what others have done since.
            self._open(())
        held, self._held = self._held, []
        self.trips += 1
        return self._open_pipe().run([*held, *requests])[len(held) :]

    # ── what the store asks for ──

    def use(self, pipe: Pipe) -> None:
        """Go on through another connection to the server."""
        self._pipe = pipe
        self._version = self.newest = -1

    def begin(self, foreseen: Foreseen, known: int) -> None:
        """Take the append lock, and read what the commit will need; what others changed only if the version is not the
        one that is known."""
        self._held = []
        self._before_writes = []
        self._foreseen = foreseen
        self._wrote = False
        self._version = known
        self._unopened = False
        answers = self._open(foreseen.requests())
        foreseen.take(answers)

    def begin_unopened(self, foreseen: Foreseen) -> bool:
        """Begin without taking the lock, if the commit is known to need no reads and the server is there."""
        if foreseen.needs_reads or not self.is_there():
            return False
        self._held = []
        self._before_writes = []
        self._foreseen = foreseen
        self._wrote = False
        self._unopened = True
        return True

    def _open(self, requests: Sequence[Request]) -> list[list[tuple[Any, ...]]]:
        known, was_unopened = self._version, self._unopened
        self._unopened = False
        self._in_transaction = True
        opening = [*self._taking_lock(), (self.sql.open_commit, (known,))]
        self.trips += 1
        answers = self._open_pipe().run([*opening, *requests])
        ((self._version, self.server_time, *changes),) = answers[_OPENING - 1].rows
        self.newest = self._version
        if self._version != known:
            if was_unopened:
                raise Overtaken
            self._foreseen.know(self.sql.look, tuple(changes[:-2]))
            self._foreseen.know(self.sql.next_delayed, tuple(changes[-2:]))
        return [answer.rows for answer in answers[_OPENING:]]

    def _taking_lock(self) -> list[Request]:
        return [(_BEGIN, ()), (_NO_WAIT, ()), (self.sql.take_append_lock, ())]

    def commit(self, *, barrier: bool) -> None:
        """Send what waits, and COMMIT. The barrier is sent behind it, and its answer is not waited for here."""
        raised = self._wrote
        rest = [*self._held, *([(self.sql.raise_version, ())] if raised else [])]
        guarded, self._unopened = self._unopened, False
        if guarded:
            rest = [*self._taking_lock(), (self.sql.refuse_overtaken, (self._version,)), *rest]
        self._held = []
        answers = self._finish(rest, barrier=barrier, guarded=guarded)
        if raised:
            self._version = self.newest = answers[-2].rows[0][0]
            self.raised += 1

    def append(self, guard: Request, requests: Sequence[Request]) -> list[PipelineResult]:
        """Take the lock, run these, and COMMIT, all in one round trip: what each came to. `Overtaken` when the guard
        fails. What the writer knows is older afterwards than what there is."""
        rest = [*self._taking_lock(), guard, *requests, (self.sql.raise_version, ())]
        answers = self._finish(rest, barrier=True, guarded=True)
        self.newest = answers[-2].rows[0][0]
        self.raised += 1
        return answers[_OPENING:-2]

    def is_there(self) -> bool:
        """Whether the server is there, as far as can be told without asking it. One that was quiet for long is asked
        first: something between may have dropped the connection without a word."""
        pipe = self._open_pipe()
        return pipe.is_there() and pipe.quiet_seconds < _QUIET_SECONDS

    def _finish(self, requests: Sequence[Request], *, barrier: bool, guarded: bool) -> list[PipelineResult]:
        pipe = self._open_pipe()
        self._in_transaction = True
        self.trips += 1
        pipe.send([*requests, ("COMMIT", ())])
        if barrier:
            pipe.send([(self.sql.barrier, ())])
        try:
            answers = pipe.receive()
        except ServerError as error:
            if barrier and not pipe.is_lost:
                _ignore_refused(pipe)
            if guarded and error.state == _OVERTAKEN:
                raise Overtaken from None
            raise
        self._in_transaction = False
        return answers

    def roll_back(self) -> None:
        """Undo what was sent, and forget what was not."""
        self._held = []
        self._unopened = False
        pipe = self._open_pipe()
        if self._in_transaction and not pipe.is_lost:
            # A server that is gone undoes it by itself.
            with suppress(ConnectionLost):
                pipe.run([("ROLLBACK", ())])
        self._in_transaction = False

    def _open_pipe(self) -> Pipe:
        assert self._pipe is not None
        return self._pipe


def _ignore_refused(pipe: Pipe) -> None:
    """The barrier behind a commit that was refused is refused as well: the reason is the commit's."""
    while pipe.waits:
        try:
            pipe.receive()
        except ServerError as error:
            if pipe.is_lost or error.state != "25P02":
                raise
