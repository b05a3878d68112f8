"""Appending through a connection of the user's own, inside the transaction that is open on it.

Nothing is remembered here: names, offsets and LSNs are read from the tables within that transaction, so they are right
whatever else it does. Our own connections notice its commit like any other's.
"""

import os
import secrets
import sqlite3

import apsw

from headwater.clock import SECOND, SystemClock, Timestamp
from headwater.config import load_config
from headwater.errors import InvalidInput, StoreForeign, StoreNewer, StoreReplaced
from headwater.log.job_operations import Enqueue, NewJob
from headwater.log.operations import Push
from headwater.model.names import DATABASE_DEFAULT, Offset, check_name
from headwater.stores.codec import Codec
from headwater.stores.sqlite.connection import Borrowed, has_moved
from headwater.stores.sqlite.migrate import read_version
from headwater.stores.sqlite.one_name import check_names_here, open_files
from headwater.stores.tables.catalog import Catalog
from headwater.stores.tables.delayed import Delayed
from headwater.stores.tables.jobs import Jobs
from headwater.stores.tables.pushes import Pushes
from headwater.stores.tables.segments import Segments, read_last_lsn

_origin = secrets.randbits(62)

# Older ones, apart from two repaired branches, can damage a log that several programs write (the WAL-reset bug).
_SOUND_SINCE = (3, 51, 3)
_SOUND_BRANCHES = {(3, 50): 7, (3, 44): 6}


def push(
    connection: apsw.Connection | sqlite3.Connection,
    operation: Push,
) -> Offset | None:
    """Append one message as part of the transaction that is open on `connection`; its offset, if that commits.

    One that is delivered later has none yet. Nothing is compared with what is there: the transaction happens once. What
    the queue's limits leave no room for is refused before anything is written.
    """
    tables = _check_connection(connection)
    config = load_config()
    codec = Codec(config.encryption_key)
    catalog = Catalog(tables, codec)
    segments = Segments(tables, codec, _origin, config.deduplication_ids_max)
    segments.catch_up_to(read_last_lsn(tables))
    now = SystemClock().now()
    delayed = Delayed(tables, codec, catalog, segments)
    lane = Pushes(tables, catalog, segments, delayed).place_one(operation, now)
    if operation.delay_seconds:
        due_at = Timestamp(now + int(operation.delay_seconds * SECOND))
        delayed.add(lane, operation.records, due_at, now, operation.ttl_seconds)
        return None
    return segments.append(lane, operation.records, now, operation.ttl_seconds)


def enqueue(
    connection: apsw.Connection | sqlite3.Connection, *jobs: NewJob, database: str = DATABASE_DEFAULT
) -> list[str]:
    """Add jobs as part of the transaction that is open on `connection`; their ids, if that commits."""
    check_name("database", database)
    tables = _check_connection(connection)
    config = load_config()
    codec = Codec(config.encryption_key)
    catalog = Catalog(tables, codec)
    segments = Segments(tables, codec, _origin, config.deduplication_ids_max)
    segments.catch_up_to(read_last_lsn(tables))
    now = SystemClock().now()
    board = Jobs(tables, catalog, segments)
    enqueued = board.intake.enqueue(Enqueue(database=database, jobs=jobs), now)
    board.books.close(now)
    return [placed.id for placed in enqueued.jobs]


def _check_connection(connection: apsw.Connection | sqlite3.Connection) -> Borrowed:
    """The tables behind it.

    Raises when the message could not commit together with the caller's rows, or the file could come to harm.
    """
    if not connection.in_transaction:
        raise InvalidInput("begin your transaction first: without one, the message would commit on its own")
    tables = Borrowed(connection)
    version, newest = read_version(tables)
    if not version:
        raise StoreForeign("this database has no Headwater tables; open it once with headwater.open(path, adopt=True)")
    if version > newest:
        raise StoreNewer(f"this database has tables of version {version}; this Headwater knows up to {newest}")
    check_names_here(_path_of(connection))
    if isinstance(connection, sqlite3.Connection):
        _check_library(connection)
    elif has_moved(connection):
        raise StoreReplaced(
            f"{connection.filename} was deleted or replaced while it was open; roll back, close this connection, open "
            "the file again"
        )
    return tables


def _path_of(connection: apsw.Connection | sqlite3.Connection) -> str:
    """Where its file is, '' for one without a file."""
    if isinstance(connection, apsw.Connection):
        return connection.filename
    return next((row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"), "")


def is_sound() -> bool:
    """Whether the interpreter's own SQLite can be trusted with a file in WAL mode that several programs write."""
    found = sqlite3.sqlite_version_info
    return found >= _SOUND_SINCE or found[2] >= _SOUND_BRANCHES.get(found[:2], 1_000)


def _check_library(connection: sqlite3.Connection) -> None:
    """The interpreter's own SQLite is another library than ours, with rules of its own for one file in one process."""
    if not is_sound():
        raise InvalidInput(
            f"this connection's SQLite {sqlite3.sqlite_version} can damage a file that several programs write; keep "
            "your rows in a file of their own and write outbox.stage(connection, queue, payload) instead, or use an "
            "apsw connection: apsw.Connection(path)"
        )
    path = _path_of(connection)
    if path and os.path.realpath(path) in open_files():
        raise InvalidInput(
            "Headwater has this file open in this process: a second SQLite library on it would break its locks; "
            "use an apsw connection"
        )
