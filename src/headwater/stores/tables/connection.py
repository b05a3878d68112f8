"""What the rules need of an engine: a connection that runs its statements, under the write lock of a commit."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from headwater.config import MIB
from headwater.stores.statements import Statements

if TYPE_CHECKING:
    from typing_extensions import TypeForm

# What a statement takes.
Value = int | float | str | bytes | None
# What a row of its answer is: a tuple of the types that the statement selects, named by who asks.
Row = TypeVar("Row")
# Rows of one column.
Number = tuple[int]
NumberOrNone = tuple[int | None]
Text = tuple[str]
# A fact about the store: a number or a text in a file, always a text on PostgreSQL.
Meta = tuple[int | str]
# An answer with records has so many bytes of them, and always one record.
ANSWER_BYTES_MAX = 4 * MIB
# A row that gets its names and types from who makes a value of it, as `GroupRow._make` does.
Columns = tuple[Value, ...]


class RowReader(Protocol):
    """Whatever answers a statement. A row's types are those of its table: who asks says what they are, and is checked
    by it."""

    def rows(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> list[Row]:
        """All rows of a statement, each a `row`: nothing is converted, the statement selects just that."""
        ...


class Connection(RowReader, Protocol):
    """All that reading and writing the tables needs: `sql` has the statements, in the words of the engine."""

    @property
    def sql(self) -> Statements:
        """The engine's statements, by name."""
        ...

    def run(self, statement: str, bindings: Sequence[Value] = ..., /) -> object:
        """Run one statement that answers nothing: most commits are few of those."""
        ...

    def row(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> Row | None:
        """The row of a statement that has at most one."""
        ...

    def each(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> Iterator[Row]:
        """The rows of a statement, one after the other, for whoever may want only the first of many."""
        ...

    def executemany(self, statement: str, bindings: Iterable[Sequence[Value]], /) -> object:
        """Run one statement with each of these bindings."""
        ...


def take_bytes(rows: Iterator[Row], bytes_max: int, size_of: Callable[[Row], int]) -> list[Row]:
    """The first rows, up to the one that makes them as large as they may be together; what is behind is not read."""
    taken: list[Row] = []
    for row in rows:
        taken.append(row)
        bytes_max -= size_of(row)
        if bytes_max <= 0:
            break
    return taken


def take_answer(found: Iterator[Row], size_of: Callable[[Row], int], bytes_max: int = 0) -> list[Row]:
    """The first of what an answer is made of: no more than it may have bytes, or than was asked for."""
    return take_bytes(found, answer_bytes(bytes_max), size_of)


def answer_bytes(bytes_max: int = 0) -> int:
    """How many bytes an answer may have, where so many were asked for, or none said."""
    return min(bytes_max or ANSWER_BYTES_MAX, ANSWER_BYTES_MAX)


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
