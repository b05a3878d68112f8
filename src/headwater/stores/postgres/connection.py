"""Connections as the shared rules see them: statements by name, run one after the other."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headwater.stores.postgres.address import Address
from headwater.stores.postgres.pipe import Pipe, PipelineResult, Request
from headwater.stores.statements import load_statements
from headwater.stores.tables.connection import Row, Value

if TYPE_CHECKING:
    from typing_extensions import TypeForm

# Plans are made once, for any value, by index: planning anew costs more than running, and a plan that was made while
# the tables were empty must not scan them later. Nothing here is worth compiling.
_session = (
    "SET plan_cache_mode = force_generic_plan",
    "SET enable_seqscan = off",
    "SET jit = off",
    "SET default_transaction_isolation = 'read committed'",
    "SET standard_conforming_strings = on",
    "SET client_min_messages = error",
)
# A transaction that stands idle for so long is that of a process which is stopped or cut off, and all others wait.
IDLE_SECONDS_MAX = 10


def open_pipe(address: Address, lock_wait_seconds: float) -> Pipe:
    """A connection with our settings, in the schema of the store."""
    return Pipe(
        address.conninfo,
        (
            *_session,
            f"SET search_path = {quoted(address.schema)}",
            f"SET lock_timeout = {milliseconds(lock_wait_seconds)}",
            f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS_MAX}s'",
        ),
    )


def milliseconds(seconds: float) -> int:
    """A time as settings of the server take it; 0 would mean for ever."""
    return max(int(seconds * 1000), 1)


def quoted(name: str) -> str:
    """A name as it stands in a statement."""
    return '"' + name.replace('"', '""') + '"'


class PostgresConnection:
    """Runs each statement at once, as a transaction of its own: for whoever only reads."""

    sql = load_statements(__package__)

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    @property
    def pipe(self) -> Pipe:
        """What it runs them through."""
        return self._pipe

    def run(self, statement: str, bindings: Sequence[Value] = (), /) -> None:
        """Run one statement."""
        self.pipe.run([(statement, bindings)])

    def rows(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> list[Row]:
        """All rows of a statement."""
        found: list[Any] = self.pipe.run([(statement, bindings)])[0].rows
        return found

    def row(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> Row | None:
        """The row of a statement that has at most one."""
        found = self.rows(statement, bindings, row)
        return found[0] if found else None

    def each(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> Iterator[Row]:
        """The rows of a statement, one after the other."""
        return iter(self.rows(statement, bindings, row))

    def executemany(self, statement: str, bindings: Iterable[Sequence[Value]], /) -> None:
        """Run one statement with each of these bindings."""
        for values in bindings:
            self.run(statement, values)

    def together(self, *requests: Request) -> list[PipelineResult]:
        """Run several statements in one round trip."""
        return self.pipe.run(requests)
