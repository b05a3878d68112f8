"""The outbox table in the users' own database, written through connections of theirs: `sqlite3`, psycopg, SQLAlchemy,
Django.

Their SQLite is another library than ours, and may be one that can damage a file which several programs write in WAL
mode. So the two never share a file: the message waits in a table of the users' file, which only their library touches,
and a process that has the store open moves it to the log.

On a PostgreSQL server the reason is another: what is appended to the log is appended under a lock, which a transaction
of the users', however long, must not hold.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from headwater.errors import HeadwaterError, InvalidInput, StoreBusy, StoreFailed, StoreForeign
from headwater.model.outbox import Staged, Verdicts
from headwater.stores.outbox.connections import (
    check_async,
    check_async_transaction,
    check_transaction,
    driver_of,
    is_on_server,
    run,
    run_async,
)
from headwater.stores.sqlite.outbox import is_sound
from headwater.stores.statements import load_statements

sql = load_statements(__package__)

TABLE_MISSING = "no such table: headwater_outbox"
TABLE_MISSING_STATE = "42P01"
# None, because nobody answered; a lost connection, no room, and an operator's doing.
_AWAY_STATES = ("", "08", "53", "57")
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
    run(connection, sql.create_outbox_on_server if is_on_server(connection) else sql.create_outbox)


def stage(connection: Any, kind: str, body: str) -> None:
    """Let an operation wait in the table, as part of the transaction that is open on the connection."""
    # SQLAlchemy begins with the first statement: asked before, it would have no transaction.
    _check_library(connection)
    check_transaction(connection)
    with _table_expected():
        run(connection, sql.add_staged, (kind, body))


async def create_table_async(connection: Any) -> None:
    """Make the table, if it is not there, through an async connection. Nothing is committed here."""
    check_async(connection)
    await run_async(connection, sql.create_outbox_on_server)


async def stage_async(connection: Any, kind: str, body: str) -> None:
    """The same as `stage` through an async connection."""
    check_async(connection)
    check_async_transaction(connection)
    with _table_expected():
        await run_async(connection, sql.add_staged, (kind, body))


@contextmanager
def _table_expected() -> Iterator[None]:
    """Other errors are the users' own to handle, as they are with their other statements."""
    try:
        yield
    except Exception as error:
        if TABLE_MISSING not in str(error) and _state_of(error) != TABLE_MISSING_STATE:
            raise
        raise StoreForeign(HOW_TO_MAKE_IT) from error


def list_aside(connection: Any) -> list[tuple[int, str, str, str]]:
    """Number, kind, body and error of the rows that were set aside, oldest first."""
    with _translated():
        return [tuple(row) for row in run(connection, sql.list_aside).fetchall()]


def wait_again(connection: Any, numbers: Sequence[int]) -> int:
    """Let rows that were set aside wait again, those of these numbers or all; how many. Nothing is committed here."""
    with _translated():
        if not numbers:
            return int(run(connection, sql.wait_again).rowcount)
        return sum(int(run(connection, sql.one_waits_again, (number,)).rowcount) for number in numbers)


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
                run(connection, sql.touch_outbox)
                path = "" if is_on_server(connection) else _path_of(connection)
                connection.rollback()
        except BaseException:
            connection.close()
            raise
        self._connection, self._path, self._file = connection, path, _file_at(path)

    def _follow(self) -> None:
        """Another file may be in the place of ours: a connection would go on reading one that nobody else sees. One to
        a server may be lost."""
        if self._reconnect():
            return
        found = _file_at(self._path)
        if found == self._file:
            return
        if found is None:
            raise StoreForeign(f"the outbox's database is away: there is no file {self._path}")
        before = self._connection
        self._open()
        before.close()

    def _reconnect(self) -> bool:
        """Whether the connection to a server was lost, and there is another one now."""
        is_lost = is_on_server(self._connection) and bool(driver_of(self._connection).closed)
        if is_lost:
            self._open()
        return is_lost

    def after(self, number: int, limit: int) -> list[Staged]:
        """The oldest that wait after a number."""
        self._follow()
        with _translated(), self._transaction():
            return [Staged(*row) for row in run(self._connection, sql.staged, (number, limit)).fetchall()]

    def settle(self, verdicts: Verdicts) -> Verdicts:
        """Drop those that are in the log, and set those aside that were refused for good.

        Only those are told whose row was still there: another drain may have been faster.
        """
        self._reconnect()
        with _translated(), self._transaction():
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
        return bool(run(self._connection, statement, values).rowcount)

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
        meaning = _meaning(error)
        if meaning is None:
            raise
        raise meaning from error


def _path_of(connection: Any) -> str:
    """The file that a connection has open, "" when it is none."""
    rows = run(connection, "PRAGMA database_list").fetchall()
    return next((str(path or "") for _, name, path in rows if name == "main"), "")


def _file_at(path: str) -> tuple[int, int] | None:
    """What is there now; None when nothing is."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those beneath it: SQLAlchemy and Django put their own around that of the database."""
    while error is not None:
        yield error
        error = error.__cause__


def _meaning(error: BaseException) -> HeadwaterError | None:
    """An error of the users' database as one of ours, None when it is none of a database."""
    for cause in _causes(error):
        if isinstance(cause, sqlite3.Error):
            return _meaning_of_text(str(cause))
        if hasattr(cause, "sqlstate"):
            return _meaning_of_state(cause.sqlstate or "", " ".join(str(cause).split()))
    return None


def _meaning_of_text(text: str) -> HeadwaterError:
    if TABLE_MISSING in text:
        return StoreForeign(HOW_TO_MAKE_IT)
    if "not a database" in text:
        return StoreForeign("this file is no SQLite database; name the file that outbox.stage writes to")
    if "locked" in text or "busy" in text:
        return StoreBusy(f"another program holds the outbox's database: {text}")
    return StoreFailed(f"the outbox's database cannot be used: {text}")


def _meaning_of_state(state: str, text: str) -> HeadwaterError:
    if state == TABLE_MISSING_STATE:
        return StoreForeign(HOW_TO_MAKE_IT)
    if state in ("55P03", "57014") or state.startswith("40"):
        return StoreBusy(f"another transaction holds the outbox's rows: {text}")
    return StoreFailed(f"the outbox's database cannot be used: {text}")


def is_away(error: BaseException) -> bool:
    """Whether a database cannot be had for now: it is held by others, or no server answers, or one that is starting,
    ending or has too many guests."""
    states = [cause.sqlstate or "" for cause in _causes(error) if hasattr(cause, "sqlstate")]
    return isinstance(error, StoreBusy) or any(state[:2] in _AWAY_STATES for state in states)


def _state_of(error: BaseException) -> str:
    """The SQLSTATE of an error of a server, "" when it is none."""
    return next((str(cause.sqlstate) for cause in _causes(error) if hasattr(cause, "sqlstate")), "")


def _check_library(connection: Any) -> None:
    """Raises for a file that a faulty SQLite could damage: one in WAL mode, written by several programs."""
    if is_on_server(connection):
        return
    row = run(connection, "PRAGMA journal_mode").fetchone()
    if row is not None and str(row[0]).lower() == "wal" and not is_sound():
        if run(connection, sql.find_own_table).fetchone():
            raise InvalidInput(
                "this is the file of a store, which messages are moved to: let them wait in a database of your own, or "
                "push them here through a connection of apsw (outbox.push)"
            )
        raise InvalidInput(
            f"this database is in WAL mode, and your SQLite {sqlite3.sqlite_version} can damage such a file when "
            "several programs write it; use SQLite 3.51.3 or newer, or write once: "
            "connection.execute('PRAGMA journal_mode = DELETE')"
        )
