"""The tables of a file as a whole, to be moved to another place or from one."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import apsw

from headwater.errors import StoreBusy
from headwater.stores.sqlite.connection import SqliteConnection, connect, translated
from headwater.stores.transfer import META, ROWS_AT_ONCE, Row, Tables

sql = SqliteConnection.sql

CACHE_BYTES = 16 * 1_048_576
# Numbers of meta are numbers here, and compared as such.
_number = re.compile(r"-?\d{1,18}")


class SqliteTransfer:
    """How the tables of a file are held."""

    def __init__(self, path: str, lock_wait_seconds: float) -> None:
        self._path = path
        self._lock_wait_seconds = lock_wait_seconds

    def hold(self, *, writes: bool) -> "SqlitePlace":
        """Hold them as they are now."""
        return SqlitePlace(self._path, self._lock_wait_seconds, writes=writes)


class SqlitePlace:
    """A file in one transaction."""

    def __init__(self, path: str, lock_wait_seconds: float, *, writes: bool) -> None:
        self.shown = path
        self._lock_wait_seconds = lock_wait_seconds
        self._writes = writes

    def __enter__(self) -> Self:
        self._connection = connect(self.shown, cache_bytes=CACHE_BYTES)
        try:
            with translated(f"holding {self.shown}"):
                self._connection.set_busy_timeout(int(self._lock_wait_seconds * 1_000))
                # A commit of a transfer is one, and it is on the disk.
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("BEGIN IMMEDIATE" if self._writes else "BEGIN")
        except StoreBusy as error:
            self._connection.close()
            raise StoreBusy(f"{self.shown} is written to: end its servers and workers, and try again") from error
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._connection.close()

    def tables(self) -> Tables:
        """Its tables, each with its columns."""
        names = [str(name) for (name,) in self._run(sql.list_tables) if str(name).startswith("hw_")]
        return {name: tuple(str(row[1]) for row in self._run(f"PRAGMA table_info({name})")) for name in sorted(names)}

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return int(self._run(_of(sql.count_rows, table))[0][0])

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[Row]]:
        """All rows, some at a time."""
        with translated(f"reading {table}"):
            found = self._connection.execute(_of(sql.all_rows, table, columns))
            while batch := _next(found):
                yield [tuple(map(_plain, columns, row)) for row in batch]

    def numbers(self) -> dict[str, int]:
        """The highest number that a table has ever given."""
        return {str(table): int(number) for table, number in self._run(sql.numbers_given)}

    def meta(self) -> dict[str, str]:
        """What is known of the store."""
        return {str(key): str(value) for key, value in self._run(sql.all_meta)}

    def set_meta(self, key: str, value: str) -> None:
        """Remember one fact."""
        self._run(sql.set_meta, (key, int(value) if _number.fullmatch(value) else value))

    def add(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Put rows into a table."""
        statement = _of(sql.add_row, table, columns).replace("(?)", f"({', '.join('?' * len(columns))})")
        with translated(f"filling {table}"):
            self._connection.executemany(statement, rows)

    def go_on_from(self, table: str, number: int) -> None:
        """Numbers of new rows come after this one, where they are counted; elsewhere they follow the last row."""
        if number:
            self._run(sql.forget_number_given, (table,))
            self._run(sql.set_number_given, (table, number))

    def commit(self) -> None:
        """Make it so."""
        self._run("COMMIT")

    def _run(self, statement: str, bindings: Sequence[Any] = ()) -> list[Any]:
        with translated(f"moving {self.shown}"):
            return self._connection.execute(statement, bindings).fetchall()


def _next(found: apsw.Cursor) -> list[Any]:
    return [row for _, row in zip(range(ROWS_AT_ONCE), found, strict=False)]


def _of(statement: str, table: str, columns: Sequence[str] = ()) -> str:
    """The same statement for another table and its columns."""
    names = ", ".join(f'"{name}"' for name in columns)
    return re.sub(rf"\b{META}\b", table, re.sub(r"\bkey\b", names, statement))


def _plain(column: str, value: Any) -> Any:
    """A value as every engine has it: older files have records as texts."""
    return value.encode() if column == "records" and type(value) is str else value
