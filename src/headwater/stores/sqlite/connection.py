"""Connections to the file: how they are opened, what they refuse, and what the driver's errors mean to callers.

Only the SQLite inside apsw is used. The database and its -shm file are never opened by our own hand: closing any
descriptor of theirs would drop the locks that SQLite holds in this process.
"""

import ctypes
import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from headwater.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
)
from headwater.stores.sqlite.inherited import OPEN_FILES
from headwater.stores.statements import load_statements
from headwater.stores.tables.connection import Connection, Number, Row, Value

if TYPE_CHECKING:
    from typing_extensions import TypeForm

APPLICATION_ID = 0x48574154  # "HWAT"

LOG_BYTES = 4 * 1_048_576
OPEN_WAIT_MS = 10_000

_READ_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
_memory_names = ("", ":memory:")


class SqliteConnection(apsw.Connection):
    """A connection that knows the statements of this store."""

    sql = load_statements(__package__)
    # Where the store is, when that is not where this file lies.
    store_location = ""

    @property
    def location(self) -> str:
        """Where the store is."""
        return self.store_location or self.filename

    # The driver's own, without a step in between: every commit asks twice.
    rows_written = apsw.Connection.total_changes
    version = apsw.Connection.data_version

    def __init__(self, path: str, *, flags: int = _READ_WRITE, vfs: str | None = None) -> None:
        OPEN_FILES.check(path)
        super().__init__(path, flags=flags, vfs=vfs)
        OPEN_FILES.add(self, path)
        # `execute` makes a cursor for each statement, which takes as long as to run a small one. A statement without
        # rows is over when it returns, so one cursor does for all of them.
        self.run = self.cursor().execute

    def close(self, force: bool = False) -> None:
        """Have nothing to do with the file any more."""
        super().close(force)
        OPEN_FILES.discard(self)

    def rows(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> list[Row]:
        """All rows of a statement."""
        try:
            found: list[Any] = self.run(statement, bindings).fetchall()
        except BaseException:
            # One that cannot be read leaves the statement open, and with it the state of the file that it saw: once
            # others have committed, no commit of ours could begin.
            self.run("")
            raise
        return found

    def row(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> Row | None:
        """The row of a statement that has at most one."""
        found = self.rows(statement, bindings, row)
        return found[0] if found else None

    def each(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> Iterator[Row]:
        """The rows of a statement, one after the other."""
        found: Iterator[Any] = self.execute(statement, bindings)
        return found


class Borrowed:
    """A connection of the user's own, with our statements."""

    sql = SqliteConnection.sql

    def __init__(self, connection: apsw.Connection | sqlite3.Connection) -> None:
        self.run = connection.execute
        self.executemany = connection.executemany

    def rows(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> list[Row]:
        """All rows of a statement."""
        found: list[Any] = self.run(statement, bindings).fetchall()
        return found

    def row(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> Row | None:
        """The row of a statement that has at most one."""
        found = self.rows(statement, bindings, row)
        return found[0] if found else None

    def each(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> Iterator[Row]:
        """The rows of a statement, one after the other."""
        found: Iterator[Any] = self.run(statement, bindings)
        return found


def translate(error: apsw.Error | UnicodeDecodeError, doing: str) -> StoreError:
    """What a driver's error means to callers; `doing` says in the message what was tried."""
    if isinstance(error, apsw.BusyError):
        return StoreBusy(f"{doing}: another program holds the write lock")
    if isinstance(error, apsw.FullError):
        return StoreFull(f"{doing}: no space is left on the disk")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | UnicodeDecodeError):
        return StoreDamaged(f"{doing}: the file is damaged or not a database ({error})")
    if isinstance(error, apsw.IOError | apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError):
        return StoreFailed(f"{doing}: the file cannot be read or written ({error})")
    return StoreError(f"{doing}: {type(error).__name__} ({error})")


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turns the driver's errors into ours."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as error:
        raise translate(error, doing) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"{doing}: no space is left on the disk") from error
        raise StoreFailed(f"{doing}: {error.strerror or error}") from error


def connect(path: str, *, cache_bytes: int, vfs: str | None = None) -> SqliteConnection:
    """A connection with our settings. A new file is made readable and writable by its owner only."""
    if path not in _memory_names and vfs is None and not os.path.exists(path):
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = SqliteConnection(path, flags=_READ_WRITE, vfs=vfs)
    # The last process to close, and the first to open after a crash, keep everybody out for a moment.
    connection.set_busy_timeout(OPEN_WAIT_MS)
    connection.execute(f"PRAGMA cache_size = -{max(cache_bytes // 1024, 64)}")
    # Without this, SQLite compiles a statement anew whenever a bound value changes: 10 µs for each of ours.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA temp_store = MEMORY")
    # No commit moves the log by itself: not one on a full disk, nor of a log that the disk has refused to sync.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def connect_to_read(path: str) -> SqliteConnection:
    """A connection that cannot write, nor move the log into the file when it is the last to close."""
    connection = SqliteConnection(path, flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(OPEN_WAIT_MS)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    return connection


def set_journal(connection: apsw.Connection, *, wal_bytes_max: int) -> None:
    """Write-ahead log; commits are made durable by the barrier, and checkpoints are made off the commit path."""
    mode = connection.pragma("journal_mode", "wal")
    if mode not in ("wal", "memory"):
        raise StoreFailed(f"the file system does not support a write-ahead log (journal mode is {mode})")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {wal_bytes_max}")


def allocate_log(connection: Connection, wal: str) -> None:
    """Give the write-ahead log its first megabytes: a sync that must grow the file costs several times as much.

    Zeros behind the log's end are no frames to SQLite. The write lock is held, so nobody writes there meanwhile; the
    log itself carries no locks, so it may be opened and closed. A disk that has no room for it does without.
    """
    connection.run("BEGIN IMMEDIATE")
    try:
        descriptor = os.open(wal, os.O_WRONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            if size < LOG_BYTES:
                _extend(descriptor, size)
        finally:
            os.close(descriptor)
    finally:
        connection.run("COMMIT")


def _extend(log: int, size: int) -> None:
    try:
        written = os.pwrite(log, bytes(LOG_BYTES - size), size)
        os.fdatasync(log)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        written = 0
    if written < LOG_BYTES - size:
        os.ftruncate(log, size)


def read_data_version(connection: Connection) -> int:
    """A number that changes when another connection has committed."""
    [(version,)] = connection.rows("PRAGMA data_version", (), Number)
    return version


def has_moved(connection: apsw.Connection) -> bool:
    """Whether the connection's file is no longer at its name: deleted, renamed or replaced."""
    moved = ctypes.c_int()
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
    return bool(moved.value)


def sync_folder(path: str) -> None:
    """Make the names of the file and its log survive power loss, once after they are made."""
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
