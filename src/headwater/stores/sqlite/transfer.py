"""The tables of a file as a whole, to be moved to another place or from one."""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self

import apsw

from headwater.errors import StoreBusy
from headwater.stores.likeness import ROWS_AT_ONCE, Key, Row
from headwater.stores.sqlite.connection import SqliteConnection, connect, translated
from headwater.stores.sqlite.one_name import check_one_name
from headwater.stores.sqlite.turnstile import Turnstile
from headwater.stores.transfer import META

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
    """A file in one transaction after the other."""

    def __init__(self, path: str, lock_wait_seconds: float, *, writes: bool) -> None:
        self.shown = path
        self._path = path
        self._lock_wait_seconds = lock_wait_seconds
        self._writes = writes

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._connection = connect(self._path, cache_bytes=CACHE_BYTES)
            opened.callback(self._connection.close)
            try:
                if self._writes:
                    self._take_turn(opened)
                with translated(f"holding {self.shown}"):
                    self._connection.set_busy_timeout(int(self._lock_wait_seconds * 1_000))
                    # A commit of a transfer is on the disk.
                    self._connection.execute("PRAGMA synchronous = FULL")
                    self._begin()
                    check_one_name(self._path)
            except StoreBusy as error:
                raise StoreBusy(f"others held the write lock of {self.shown} all the time: try again") from error
            self._opened = opened.pop_all()
        return self

    def _take_turn(self, opened: ExitStack) -> None:
        """Behind those who wait already: SQLite's own busy wait would starve beside those who take turns."""
        turn = Turnstile(f"{self._path}-turn", self._lock_wait_seconds)
        opened.callback(turn.close)
        asyncio.run(turn.enter())

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE" if self._writes else "BEGIN")

    def __exit__(self, *_: object) -> None:
        with self._opened:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Its tables, each with its columns."""
        names = [str(name) for (name,) in self._run(sql.list_tables) if str(name).startswith("hw_")]
        return {name: tuple(str(row[1]) for row in self._run(f"PRAGMA table_info({name})")) for name in sorted(names)}

    def keys(self) -> dict[str, tuple[str, ...]]:
        """What tells rows of each table apart: its key, or the index that is unique."""
        found = {}
        for name in self.tables():
            columns = sorted((row[5], str(row[1])) for row in self._run(f"PRAGMA table_info({name})") if row[5])
            unique = columns or [(0, str(column)) for (column,) in self._run(sql.list_unique, (name,))]
            found[name] = tuple(column for _, column in unique)
        return found

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return int(self._run(_of(sql.count_rows, table))[0][0])

    def records(self) -> int:
        """How many records the log has."""
        return int(self._run(sql.sum_records)[0][0])

    def rows(self, table: str, columns: Sequence[str], key: Sequence[str]) -> Iterator[list[Row]]:
        """All rows in the order of their keys, some at a time."""
        with self._translated(f"reading {table}"):
            found = self._connection.execute(_of(sql.all_rows, table, columns, key))
            while batch := _next(found):
                yield _plain_rows(columns, batch)

    def some(self, table: str, columns: Sequence[str], key: str, numbers: Sequence[int]) -> list[Row]:
        """The rows with these numbers as their key."""
        return _plain_rows(columns, self._run(_of(sql.some_rows, table, columns, [key]), (json.dumps(numbers),)))

    def highest(self, table: str) -> int:
        """The highest number that a row has, 0 where they have texts."""
        found = self._run(_of(sql.highest_number, table, key=["id"]))[0][0]
        return found if isinstance(found, int) else 0

    def numbers(self) -> dict[str, int]:
        """The highest number that a table has ever given."""
        return {str(table): int(number) for table, number in self._run(sql.numbers_given)}

    def meta(self) -> dict[str, str]:
        """What is known of the store."""
        return {str(key): str(value) for key, value in self._run(sql.all_meta)}

    def set_meta(self, key: str, value: str) -> None:
        """Remember one fact."""
        self._run(sql.set_meta, (key, int(value) if _number.fullmatch(value) else value))

    def drop_meta(self, key: str) -> None:
        """Forget one fact."""
        self._run(sql.drop_meta, (key,))

    def add(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Put rows into a table."""
        statement = _of(sql.add_row, table, columns).replace("(?)", _places(columns))
        with self._translated(f"filling {table}"):
            self._connection.executemany(statement, rows)

    def remove(self, table: str, key: Sequence[str], keys: Sequence[Key]) -> None:
        """Take rows out of a table."""
        statement = _of(sql.remove_row, table, key=key).replace("(?)", _places(key))
        with self._translated(f"clearing {table}"):
            self._connection.executemany(statement, keys)

    def go_on_from(self, table: str, number: int) -> None:
        """Numbers of new rows come after this one, where they are counted; elsewhere they follow the last row."""
        if number:
            self._run(sql.forget_number_given, (table,))
            self._run(sql.set_number_given, (table, number))

    def commit(self) -> None:
        """Make it so, and go on."""
        self._run("COMMIT")
        self._begin()

    def _run(self, statement: str, bindings: Sequence[Any] = ()) -> list[Any]:
        with self._translated(f"moving {self.shown}"):
            return self._connection.execute(statement, bindings).fetchall()

    def _translated(self, doing: str) -> AbstractContextManager[None]:
        """The driver's errors as ours."""
        return translated(doing)


def _next(found: apsw.Cursor) -> list[Any]:
    return [row for _, row in zip(range(ROWS_AT_ONCE), found, strict=False)]


def _of(statement: str, table: str, columns: Sequence[str] = (), key: Sequence[str] = ()) -> str:
    """The same statement for another table, its columns and its key."""
    names = {META: table, "key": _names(columns), "value": _names(key)}
    return re.sub(rf"\b({META}|key|value)\b", lambda found: names[found[0]], statement)


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _places(columns: Sequence[str]) -> str:
    return f"({', '.join('?' * len(columns))})"


def _plain_rows(columns: Sequence[str], rows: Iterable[Row]) -> list[Row]:
    return [tuple(map(_plain, columns, row)) for row in rows]


def _plain(column: str, value: Any) -> Any:
    """A value as every engine has it: older files have records as texts."""
    return value.encode() if column == "records" and type(value) is str else value
