"""The outbox table in the users' own database, written through connections of theirs: `sqlite3`, SQLAlchemy, Django.

Their SQLite is another library than ours, and may be one that can damage a file which several programs write in WAL
mode. So the two never share a file: the message waits in a table of the users' file, which only their library touches,
and a process that has the store open moves it to the log.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from headwater.errors import HeadwaterError, InvalidInput, InvalidOption, StoreBusy, StoreFailed, StoreForeign
from headwater.model.outbox import Staged, Verdicts
from headwater.stores.sqlite.outbox import is_sound
from headwater.stores.statements import load_statements

sql = load_statements(__package__)

TABLE_MISSING = "no such table: headwater_outbox"
HOW_TO_MAKE_IT = (
    "this database has no outbox table; make it once, with your migrations: outbox.create_table(connection)"
)


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
    # SQLAlchemy begins with the first statement: asked before, it would have no transaction.
    _check_library(connection)
    _check_transaction(connection)
    try:
        _run(connection, sql.add_staged, (kind, body))
    except Exception as error:
        # Other errors are the users' own to handle, as they are with their other statements.
        if TABLE_MISSING not in str(error):
            raise
        raise StoreForeign(HOW_TO_MAKE_IT) from error


def list_aside(connection: Any) -> list[tuple[int, str, str, str]]:
    """Number, kind, body and error of the rows that were set aside, oldest first."""
    with _translated():
        return [tuple(row) for row in _run(connection, sql.list_aside).fetchall()]


def wait_again(connection: Any, numbers: Sequence[int]) -> int:
    """Let rows that were set aside wait again, those of these numbers or all; how many. Nothing is committed here."""
    with _translated():
        if not numbers:
            return int(_run(connection, sql.wait_again).rowcount)
        return sum(int(_run(connection, sql.one_waits_again, (number,)).rowcount) for number in numbers)


class Table:
    """The table as whoever moves its rows to the log holds it: one connection, made and used in one thread."""

    def __init__(self, connect: Callable[[], Plain]) -> None:
        self._connect = connect
        self._open()

    def _open(self) -> None:
        with _translated():
            connection = self._connect()
        try:
            with _translated():
                _check_library(connection)
                # A file that may only be read is found out before anything of it is in the log and cannot be dropped.
                _run(connection, sql.touch_outbox)
                path = _path_of(connection)
                connection.rollback()
        except BaseException:
            connection.close()
            raise
        self._connection, self._path, self._file = connection, path, _file_at(path)

    def _follow(self) -> None:
        """Another file may be in the place of ours: a connection would go on reading one that nobody else sees."""
        found = _file_at(self._path)
        if found == self._file:
            return
        if found is None:
            raise StoreForeign(f"the outbox's database is away: there is no file {self._path}")
        before = self._connection
        self._open()
        before.close()

    def after(self, number: int, limit: int) -> list[Staged]:
        """The oldest that wait after a number."""
        self._follow()
        with self._transaction(), _translated():
            return [Staged(*row) for row in _run(self._connection, sql.staged, (number, limit)).fetchall()]

    def settle(self, verdicts: Verdicts) -> Verdicts:
        """Drop those that are in the log, and set those aside that were refused for good.

        Only those are told whose row was still there: another drain may have been faster.
        """
        with self._transaction(), _translated():
            own = Verdicts(
                [number for number in verdicts.taken if self._changes_one(sql.drop_staged, number)],
                [
                    (number, error)
                    for number, error in verdicts.refused
                    if self._changes_one(sql.set_aside, error, number)
                ],
            )
            self._connection.commit()
        return own

    def _changes_one(self, statement: str, *values: object) -> bool:
        return bool(_run(self._connection, statement, values).rowcount)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Whatever happens, no lock is held on the users' file when this ends."""
        try:
            yield
        finally:
            self._connection.rollback()

    def close(self) -> None:
        """Let go."""
        self._connection.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of the users' database as ours, so that who drains knows what to do about them."""
    try:
        yield
    except HeadwaterError:
        raise
    except Exception as error:
        found = _sqlite_error(error)
        if found is None:
            raise
        raise _meaning(found) from error


def _path_of(connection: Any) -> str:
    """The file that a connection has open, "" when it is none."""
    rows = _run(connection, "PRAGMA database_list").fetchall()
    return next((str(path or "") for _, name, path in rows if name == "main"), "")


def _file_at(path: str) -> tuple[int, int] | None:
    """What is there now; None when nothing is."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _sqlite_error(error: BaseException | None) -> sqlite3.Error | None:
    """The error of SQLite itself: SQLAlchemy and Django put their own around it."""
    while error is not None and not isinstance(error, sqlite3.Error):
        error = error.__cause__
    return error


def _meaning(error: sqlite3.Error) -> HeadwaterError:
    text = str(error)
    if TABLE_MISSING in text:
        return StoreForeign(HOW_TO_MAKE_IT)
    if "not a database" in text:
        return StoreForeign("this file is no SQLite database; name the file that outbox.stage writes to")
    if "locked" in text or "busy" in text:
        return StoreBusy(f"another program holds the outbox's database: {text}")
    return StoreFailed(f"the outbox's database cannot be used: {text}")


def _run(connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
    """Run a statement through whatever kind of connection it is."""
    if hasattr(connection, "in_atomic_block"):
        # Django's own: it has one way to write a place for a value, whatever the database.
        return _executed(connection.cursor(), statement.replace("?", "%s"), values)
    connection = _connection_of(connection)
    if hasattr(connection, "exec_driver_sql"):
        return connection.exec_driver_sql(statement, tuple(values))
    if not hasattr(connection, "cursor"):
        raise InvalidOption(
            "a connection of sqlite3, a connection or session of SQLAlchemy, or Django's is wanted, with the "
            f"transaction open on it; got {type(connection).__name__}"
        )
    cursor = connection.cursor()
    if isinstance(cursor, sqlite3.Cursor):
        # Rows as they come, whatever the users' own statements make of theirs.
        cursor.row_factory = None
    return _executed(cursor, statement, values)


def _executed(cursor: Any, statement: str, values: Sequence[Any]) -> Any:
    """The cursor. One that has failed is closed: an error that somebody keeps would keep it, and with it the file."""
    try:
        cursor.execute(statement, values)
    except BaseException:
        cursor.close()
        raise
    return cursor


def _check_transaction(connection: Any) -> None:
    """Raises when the message would commit on its own."""
    begun = True
    if hasattr(connection, "in_atomic_block"):
        begun = connection.in_atomic_block or not connection.get_autocommit()
    else:
        beneath = _driver_of(connection)
        if isinstance(beneath, sqlite3.Connection):
            begun = beneath.in_transaction or _begins_by_itself(beneath)
    if not begun:
        raise InvalidInput("begin your transaction first: without one, the message would commit on its own")


def _connection_of(given: Any) -> Any:
    """SQLAlchemy's connection for its session; anything else as it is. What has a cursor is a connection itself, be it
    a raw one of SQLAlchemy's."""
    session_of = None if hasattr(given, "cursor") else getattr(given, "connection", None)
    return session_of() if callable(session_of) else given


def _driver_of(connection: Any) -> Any:
    """The connection of the database's module, beneath what SQLAlchemy puts around it."""
    connection = _connection_of(connection)
    if hasattr(connection, "exec_driver_sql"):
        connection = connection.connection
    return getattr(connection, "driver_connection", connection)


def _begins_by_itself(connection: sqlite3.Connection) -> bool:
    """Whether the next statement that writes begins a transaction. From Python 3.12 on there are two switches."""
    return connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True


def _check_library(connection: Any) -> None:
    """Raises for a file that a faulty SQLite could damage: one in WAL mode, written by several programs."""
    row = _run(connection, "PRAGMA journal_mode").fetchone()
    if row is not None and str(row[0]).lower() == "wal" and not is_sound():
        raise InvalidInput(
            f"this database is in WAL mode, and your SQLite {sqlite3.sqlite_version} can damage such a file when "
            "several programs write it; use SQLite 3.51.3 or newer, or write once: "
            "connection.execute('PRAGMA journal_mode = DELETE')"
        )
