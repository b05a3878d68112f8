"""What the rules need of an engine: a connection that runs its statements, under the write lock of a commit."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from headwater.stores.statements import Statements

# What a statement takes.
Value = int | float | str | bytes | None


class Rows(Protocol):
    """What a statement answers. A row's types are those of its table, which only the statement knows."""

    def fetchone(self) -> Any:
        """The first row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """All rows."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """All that reading and writing the tables needs: `sql` has the statements, in the words of the engine."""

    @property
    def sql(self) -> Statements:
        """The engine's statements, by name."""
        ...

    def execute(self, statement: str, bindings: Sequence[Value] = ..., /) -> Rows:
        """Run one statement."""
        ...

    def executemany(self, statement: str, bindings: Iterable[Sequence[Value]], /) -> Rows:
        """Run one statement with each of these bindings."""
        ...


class WriterConnection(Connection, Protocol):
    """The connection that commits go through."""

    @property
    def location(self) -> str:
        """Where the store is: files of workers lie beside it."""
        ...

    def rows_written(self) -> int:
        """How many rows were changed through this connection so far."""
        ...

    def version(self) -> int:
        """A number that changes when another connection has committed."""
        ...
