"""The tables of a schema as a whole, to be moved to another place or from one."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import psycopg

from headwater.errors import StoreBusy, StoreError
from headwater.stores.postgres.address import Address
from headwater.stores.postgres.connection import PostgresConnection, milliseconds, quoted
from headwater.stores.postgres.errors import translate
from headwater.stores.postgres.pipe import ServerError
from headwater.stores.transfer import META, ROWS_AT_ONCE, Row, Tables

sql = PostgresConnection.sql

_ZERO, _SIGN_FOR_ZERO = "\0", "\N{SYMBOL FOR NULL}"


class PostgresTransfer:
    """How the tables of a schema are held."""

    def __init__(self, address: Address, lock_wait_seconds: float) -> None:
        self._address = address
        self._lock_wait_seconds = lock_wait_seconds

    def hold(self, *, writes: bool) -> "PostgresPlace":
        """Hold them as they are now."""
        return PostgresPlace(self._address, self._lock_wait_seconds, writes=writes)


class PostgresPlace:
    """A schema in one transaction, which sees everything as it was when it began."""

    def __init__(self, address: Address, lock_wait_seconds: float, *, writes: bool) -> None:
        self.shown = address.shown
        self._address = address
        self._lock_wait_seconds = lock_wait_seconds
        self._writes = writes

    def __enter__(self) -> Self:
        with self._translated():
            self._connection = psycopg.Connection.connect(
                self._address.conninfo, cursor_factory=psycopg.RawCursor, autocommit=True
            )
        try:
            with self._translated():
                self._begin()
        except StoreBusy as error:
            self._connection.close()
            raise StoreBusy(f"{self.shown} is written to: end its servers and workers, and try again") from error
        except BaseException:
            self._connection.close()
            raise
        return self

    def _begin(self) -> None:
        """The lock comes first: a transaction sees what was there at its first statement, and no later."""
        self._run(f"SET search_path = {quoted(self._address.schema)}")
        self._run(f"SET lock_timeout = {milliseconds(self._lock_wait_seconds)}")
        # A server may be set not to wait for its disk.
        self._run(sql.insist_on_disk)
        if self._writes:
            self._run(sql.hold_append_lock)
        self._run("BEGIN ISOLATION LEVEL REPEATABLE READ")

    def __exit__(self, *_: object) -> None:
        # The server undoes what was not committed, and lets go of the lock.
        self._connection.close()

    def tables(self) -> Tables:
        """Its tables, each with its columns."""
        found: dict[str, tuple[str, ...]] = {}
        for table, column in self._run(sql.list_columns):
            found[table] = (*found.get(table, ()), column)
        return found

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return int(self._run(_of(sql.count_rows, table))[0][0])

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[Row]]:
        """All rows, some at a time."""
        with self._translated(), psycopg.RawServerCursor(self._connection, "hw_rows") as found:
            found.execute(_of(sql.all_rows, table, columns).encode())
            while batch := found.fetchmany(ROWS_AT_ONCE):
                yield batch

    def numbers(self) -> dict[str, int]:
        """The highest number that a table has ever given."""
        return {table: int(number) for table, number in self._run(sql.numbers_given)}

    def meta(self) -> dict[str, str]:
        """What is known of the store."""
        return dict(self._run(sql.all_meta))

    def set_meta(self, key: str, value: str) -> None:
        """Remember one fact."""
        self._run(sql.set_meta, (key, value))

    def add(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Put rows into a table."""
        statement = f"COPY {table} ({_names(columns)}) FROM STDIN"
        with self._translated(), self._connection.cursor().copy(statement.encode()) as filling:
            for row in rows:
                filling.write_row([_fitting(value) for value in row])

    def go_on_from(self, table: str, number: int) -> None:
        """Numbers of new rows come after this one, where they are counted."""
        if number:
            self._run(sql.set_number_given, (table, number))

    def commit(self) -> None:
        """Make it so. Processes that have the store open look at its version."""
        self._run(sql.raise_version)
        self._run("COMMIT")

    def _run(self, statement: str, bindings: Sequence[Any] = ()) -> list[Any]:
        with self._translated():
            cursor = self._connection.execute(statement.encode(), bindings)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._meaning(error) from error

    def _meaning(self, error: psycopg.Error) -> StoreError:
        return translate(ServerError(error.sqlstate or "08006", str(error).strip()), f"moving {self.shown}")


def _of(statement: str, table: str, columns: Sequence[str] = ()) -> str:
    """The same statement for another table and its columns."""
    return re.sub(rf"\b{META}\b", table, re.sub(r"\bkey\b", _names(columns), statement))


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns))


def _fitting(value: Any) -> Any:
    """A value as the server can hold it."""
    return value.replace(_ZERO, _SIGN_FOR_ZERO) if type(value) is str and _ZERO in value else value
