"""The tables of a schema as a whole, to be moved to another place or from one."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import psycopg

from headwater.errors import StoreBusy, StoreError
from headwater.stores.likeness import ROWS_AT_ONCE, Key, Row
from headwater.stores.postgres.address import Address
from headwater.stores.postgres.connection import PostgresConnection, milliseconds, quoted
from headwater.stores.postgres.errors import translate
from headwater.stores.postgres.pipe import ServerError
from headwater.stores.transfer import META

sql = PostgresConnection.sql

# Where rows lie that every other engine has in a table of this name.
_PLACES = {"hw_job_counts": "hw_job_tallies", "hw_job_minutes": "hw_job_minute_tallies"}
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ"
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
    """A schema in one transaction after the other, each of which sees everything as it was when it began."""

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
            raise StoreBusy(f"others held the append lock of {self.shown} all the time: try again") from error
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
        self._run(_BEGIN)
        self._texts = {(table, column) for table, column, is_text in self._run(sql.list_keys) if is_text}

    def __exit__(self, *_: object) -> None:
        # The server undoes what was not committed, and lets go of the lock.
        self._connection.close()

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Its tables, each with its columns."""
        return _by_table(self._run(sql.list_columns))

    def keys(self) -> dict[str, tuple[str, ...]]:
        """What tells rows of each table apart."""
        return _by_table(self._run(sql.list_keys))

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return int(self._run(_of(sql.count_rows, table))[0][0])

    def records(self) -> int:
        """How many records the log has."""
        return int(self._run(sql.sum_records)[0][0])

    def rows(self, table: str, columns: Sequence[str], key: Sequence[str]) -> Iterator[list[Row]]:
        """All rows in the order of their keys, which is the same in every database."""
        order = [f'{quoted(name)} COLLATE "C"' if (table, name) in self._texts else quoted(name) for name in key]
        with self._translated(), psycopg.RawServerCursor(self._connection, "hw_rows") as found:
            found.execute(_of(sql.all_rows, table, _names(columns), ", ".join(order)).encode())
            while batch := found.fetchmany(ROWS_AT_ONCE):
                yield batch

    def some(self, table: str, columns: Sequence[str], key: str, numbers: Sequence[int]) -> list[Row]:
        """The rows with these numbers as their key."""
        return self._run(_of(sql.some_rows, table, _names(columns), quoted(key)), (list(numbers),))

    def highest(self, table: str) -> int:
        """The highest number that a row has, 0 where they have texts."""
        found = self._run(_of(sql.highest_number, table, key=quoted("id")))[0][0]
        return found if isinstance(found, int) else 0

    def numbers(self) -> dict[str, int]:
        """The highest number that a table has ever given."""
        return {table: int(number) for table, number in self._run(sql.numbers_given)}

    def meta(self) -> dict[str, str]:
        """What is known of the store."""
        return dict(self._run(sql.all_meta))

    def set_meta(self, key: str, value: str) -> None:
        """Remember one fact."""
        self._run(sql.set_meta, (key, value))

    def drop_meta(self, key: str) -> None:
        """Forget one fact."""
        self._run(sql.drop_meta, (key,))

    def add(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Put rows into a table."""
        statement = f"COPY {_PLACES.get(table, table)} ({_names(columns)}) FROM STDIN"
        with self._translated(), self._connection.cursor().copy(statement.encode()) as filling:
            for row in rows:
                filling.write_row([_fitting(value) for value in row])

    def remove(self, table: str, key: Sequence[str], keys: Sequence[Key]) -> None:
        """Take rows out of a table."""
        statement = _of(sql.remove_row, table, key=_names(key))
        places = ", ".join(f"${number}" for number in range(1, len(key) + 1))
        with self._translated():
            self._connection.cursor().executemany(statement.replace("($1)", f"({places})").encode(), keys)

    def go_on_from(self, table: str, number: int) -> None:
        """Numbers of new rows come after this one, where they are counted."""
        if number:
            self._run(sql.set_number_given, (table, number))

    def commit(self) -> None:
        """Make it so. Processes that have the store open look at its version."""
        self._run(sql.raise_version)
        self._run("COMMIT")
        self._run(_BEGIN)

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


def _by_table(rows: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for table, column, *_ in rows:
        found[table] = (*found.get(table, ()), column)
    return found


def _of(statement: str, table: str, columns: str = "", key: str = "") -> str:
    """The same statement for another table, its columns and its key."""
    names = {META: _PLACES.get(table, table), "key": columns, "value": key}
    return re.sub(rf"\b({META}|key|value)\b", lambda found: names[found[0]], statement)


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns))


def _fitting(value: Any) -> Any:
    """A value as the server can hold it."""
    return value.replace(_ZERO, _SIGN_FOR_ZERO) if type(value) is str and _ZERO in value else value
