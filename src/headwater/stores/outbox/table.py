"""The outbox table in the users' own database, written through connections of theirs: `sqlite3`, SQLAlchemy, Django.

Their SQLite is another library than ours, and may be one that can damage a file which several programs write in WAL
mode. So the two never share a file: the message waits in a table of the users' file, which only their library touches,
and a process that has the store open moves it to the log.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from headwater.errors import InvalidInput, StoreForeign
from headwater.stores.sqlite.outbox import is_sound
from headwater.stores.statements import load_statements

sql = load_statements(__package__)


class Staged(NamedTuple):
    """A message or job that waits, as its operation."""

    number: int
    kind: str
    body: str


class Plain(Protocol):
    """A connection as Python's database modules have it."""

    def cursor(self) -> Any:
        """What runs statements."""
        ...

    def commit(self) -> None:
        """Make it so."""
        ...

    def rollback(self) -> None:
        """Undo it."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


def create_table(connection: Any) -> None:
    """Make the table, if it is not there. Nothing is committed here."""
    _check_library(connection)
    _run(connection, sql.create_outbox)


def stage(connection: Any, kind: str, body: str) -> None:
    """Let an operation wait in the table, as part of the transaction that is open on the connection."""
    _check_transaction(connection)
    _check_library(connection)
    try:
        _run(connection, sql.add_staged, (kind, body))
    except Exception as error:
        if "no such table: headwater_outbox" not in str(error):
            raise
        raise StoreForeign(
            "this database has no outbox table; make it once, with your migrations: outbox.create_table(connection)"
        ) from error


class Table:
    """The table as whoever moves its rows to the log holds it: one connection, made and used in one thread."""

    def __init__(self, connection: Plain) -> None:
        self._connection = connection
        _check_library(connection)

    def oldest(self, limit: int) -> list[Staged]:
        """The oldest that wait."""
        try:
            return [Staged(*row) for row in _run(self._connection, sql.staged, (limit,)).fetchall()]
        finally:
            self._connection.rollback()

    def settle(self, done: Iterable[int], refused: Sequence[tuple[int, str]]) -> None:
        """Drop those that are in the log, and set those aside that were refused for good."""
        for number in done:
            _run(self._connection, sql.drop_staged, (number,))
        for number, error in refused:
            _run(self._connection, sql.set_aside, (error, number))
        self._connection.commit()

    def close(self) -> None:
        """Let go."""
        self._connection.close()


def _run(connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
    """Run a statement through whatever kind of connection it is."""
    if hasattr(connection, "in_atomic_block"):
        # Django's own: it has one way to write a place for a value, whatever the database.
        cursor = connection.cursor()
        cursor.execute(statement.replace("?", "%s"), values)
        return cursor
    session_of = getattr(connection, "connection", None)
    if callable(session_of):
        # SQLAlchemy's session.
        connection = session_of()
    if hasattr(connection, "exec_driver_sql"):
        return connection.exec_driver_sql(statement, tuple(values))
    cursor = connection.cursor()
    cursor.execute(statement, values)
    return cursor


def _check_transaction(connection: Any) -> None:
    """Raises when the message would commit on its own."""
    begun = True
    if hasattr(connection, "in_atomic_block"):
        begun = connection.in_atomic_block or not connection.get_autocommit()
    elif isinstance(connection, sqlite3.Connection):
        begun = connection.in_transaction or connection.isolation_level is not None
    if not begun:
        raise InvalidInput("begin your transaction first: without one, the message would commit on its own")


def _check_library(connection: Any) -> None:
    """Raises for a file that a faulty SQLite could damage: one in WAL mode, written by several programs."""
    row = _run(connection, "PRAGMA journal_mode").fetchone()
    if row is not None and str(row[0]).lower() == "wal" and not is_sound():
        raise InvalidInput(
            f"this database is in WAL mode, and your SQLite {sqlite3.sqlite_version} can damage such a file when "
            "several programs write it; use SQLite 3.51.3 or newer, or write once: "
            "connection.execute('PRAGMA journal_mode = DELETE')"
        )
