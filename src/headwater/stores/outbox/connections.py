"""Whatever kind of connection the users have: of `sqlite3` or psycopg, of SQLAlchemy or Django over either, or an async
one of psycopg or asyncpg.

Here is what differs between them: how a statement is run, how it writes places for values, whether a transaction is
open, and what is beneath.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

from headwater.errors import InvalidInput, InvalidOption

PSYCOPG = "psycopg"
ASYNCPG = "asyncpg"
# How a place for a value is written, by what Python's database modules call their styles.
_places = {"qmark": "?", "format": "%s", "pyformat": "%s"}
_NUMBERED = "numeric_dollar"
_IDLE = 0
_BEGIN_FIRST = "begin your transaction first: without one, the message would commit on its own"


def run(connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
    """Run a statement, with `?` for its values, through whatever kind of connection it is."""
    if hasattr(connection, "in_atomic_block"):
        # Django's own: it has one way to write a place for a value, whatever the database.
        return _executed(connection.cursor(), _spelled(statement, "format"), values)
    connection = _connection_of(connection)
    if hasattr(connection, "exec_driver_sql"):
        return connection.exec_driver_sql(_spelled(statement, connection.dialect.paramstyle), tuple(values))
    return _executed(_cursor_of(connection), _spelled(statement, _style_of(driver_of(connection))), values)


def _cursor_of(connection: Any) -> Any:
    """A cursor that gives rows as they come, whatever the users' own statements make of theirs."""
    driver = driver_of(connection)
    if not hasattr(connection, "cursor") or _is_async(driver):
        raise InvalidOption(
            "a connection of psycopg or sqlite3, a connection or session of SQLAlchemy, or Django's is wanted, not "
            f"async and with the transaction open on it; got {type(connection).__name__} (async ones of psycopg and "
            "asyncpg go with stage_async)"
        )
    if _module_of(driver) == PSYCOPG:
        # Imported by whoever made the connection.
        import psycopg

        return psycopg.Cursor(driver)
    cursor = connection.cursor()
    if isinstance(cursor, sqlite3.Cursor):
        cursor.row_factory = None
    return cursor


def _spelled(statement: str, style: str) -> str:
    if style == _NUMBERED:
        first, *others = statement.split("?")
        return first + "".join(f"${number}{text}" for number, text in enumerate(others, 1))
    return statement.replace("?", _places.get(style, "?"))


def _style_of(driver: Any) -> str:
    return "format" if _module_of(driver) == PSYCOPG else "qmark"


def _executed(cursor: Any, statement: str, values: Sequence[Any]) -> Any:
    """The cursor. One that has failed is closed: an error that somebody keeps would keep it, and with it the file."""
    try:
        cursor.execute(statement, values)
    except BaseException:
        cursor.close()
        raise
    return cursor


def is_on_server(connection: Any) -> bool:
    """Whether it is a connection to PostgreSQL, and not to a file."""
    if hasattr(connection, "in_atomic_block"):
        return bool(connection.vendor == "postgresql")
    dialect = getattr(_connection_of(connection), "dialect", None)
    if dialect is not None and hasattr(dialect, "paramstyle"):
        return bool(dialect.name == "postgresql")
    return _module_of(driver_of(connection)) == PSYCOPG


def check_transaction(connection: Any) -> None:
    """Raises when the message would commit on its own."""
    begun = True
    if hasattr(connection, "in_atomic_block"):
        begun = connection.in_atomic_block or not connection.get_autocommit()
    else:
        beneath = driver_of(connection)
        if isinstance(beneath, sqlite3.Connection):
            begun = beneath.in_transaction or _begins_by_itself(beneath)
        elif _module_of(beneath) == PSYCOPG:
            begun = not beneath.autocommit or beneath.info.transaction_status != _IDLE
    if not begun:
        raise InvalidInput(_BEGIN_FIRST)


def _connection_of(given: Any) -> Any:
    """SQLAlchemy's connection for its session; anything else as it is. What has a cursor is a connection itself, be it
    a raw one of SQLAlchemy's."""
    session_of = None if hasattr(given, "cursor") else getattr(given, "connection", None)
    return session_of() if callable(session_of) else given


def driver_of(connection: Any) -> Any:
    """The connection of the database's module, beneath what SQLAlchemy puts around it."""
    connection = _connection_of(connection)
    if hasattr(connection, "exec_driver_sql"):
        connection = connection.connection
    return getattr(connection, "driver_connection", connection)


def _module_of(driver: Any) -> str:
    """The module that a connection, or a class of the users' own above it, is of."""
    modules = {kind.__module__.partition(".")[0] for kind in type(driver).__mro__}
    return PSYCOPG if PSYCOPG in modules else type(driver).__module__.partition(".")[0]


def _is_async(driver: Any) -> bool:
    return hasattr(driver, "__aenter__") or _module_of(driver) == ASYNCPG


async def run_async(connection: Any, statement: str, values: Sequence[Any] = ()) -> None:
    """Run a statement, with `?` for its values, through an async connection of psycopg or asyncpg."""
    if _module_of(connection) == ASYNCPG:
        await connection.execute(_spelled(statement, _NUMBERED), *values)
        return
    # Imported by whoever made the connection. A cursor of our own: whatever the users' own statements make of theirs.
    import psycopg

    async with psycopg.AsyncCursor(connection) as cursor:
        await cursor.execute(_spelled(statement, "format").encode(), values or None)


def check_async(connection: Any) -> None:
    """Raises unless it is an async connection that is known."""
    module = _module_of(connection)
    if module != ASYNCPG and not (module == PSYCOPG and hasattr(connection, "__aenter__")):
        raise InvalidOption(
            "an async connection of psycopg or asyncpg is wanted, with the transaction open on it; got "
            f"{type(connection).__name__}"
        )


def check_async_transaction(connection: Any) -> None:
    """Raises when the message would commit on its own."""
    if _module_of(connection) == ASYNCPG:
        begun = connection.is_in_transaction()
    else:
        begun = not connection.autocommit or connection.info.transaction_status != _IDLE
    if not begun:
        raise InvalidInput(_BEGIN_FIRST)


def _begins_by_itself(connection: sqlite3.Connection) -> bool:
    """Whether the next statement that writes begins a transaction. From Python 3.12 on there are two switches."""
    return connection.isolation_level is not None and getattr(connection, "autocommit", None) is not True
