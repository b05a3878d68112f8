"""Bringing the tables up to date: numbered scripts, each applied once, in one transaction."""

from collections.abc import Iterable
from uuid import uuid4

from headwater.errors import StoreNewer
from headwater.stores.migrations import Migration, load_fresh, load_migrations
from headwater.stores.sqlite.connection import APPLICATION_ID, SqliteConnection
from headwater.stores.tables.connection import Connection, Meta, Text
from headwater.stores.tables.identity import IDENTITY_KEY

VERSION_KEY = "schema_version"
REPLACES = "-- replaces view: {}\n"


def migrations() -> tuple[Migration, ...]:
    """Every script, in order."""
    return load_migrations(__package__)


def migrate(connection: SqliteConnection, location: str) -> int:
    """Apply what is missing; a file from a newer program is refused before anything is changed. The version reached."""
    newest = migrations()[-1].number
    if refuse_newer(connection, location) == newest:
        return newest
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = refuse_newer(connection, location)
        if version == 0 and not _has_tables(connection):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            version = make_tables(connection)
        apply(connection, [script for script in migrations() if script.number > version])
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return newest


def make_tables(connection: SqliteConnection) -> int:
    """Lay an empty file out at once, without the way that older files have gone; the version that it has then."""
    version, script = load_fresh(__package__)
    connection.execute(script)
    connection.execute(connection.sql.set_meta, (IDENTITY_KEY, str(uuid4())))
    connection.execute(connection.sql.set_meta, (VERSION_KEY, version))
    return version


def apply(connection: SqliteConnection, scripts: Iterable[Migration]) -> None:
    """Bring the tables up to date, one script after the other."""
    for number, _, text in scripts:
        _drop_own_views(connection, text)
        connection.execute(text)
        connection.execute(connection.sql.set_meta, (VERSION_KEY, number))


def _drop_own_views(connection: SqliteConnection, script: str) -> None:
    """Make room for views that a script replaces. Something of that name that is not ours stays: it is the user's, in
    a file that was adopted."""
    sql = connection.sql
    drops = {
        "jobs": sql.drop_jobs_view,
        "message_queue": sql.drop_message_queue_view,
        "canvas_watermarks": sql.drop_canvas_watermarks_view,
    }
    for name, drop in drops.items():
        if REPLACES.format(name) in script:
            row = connection.row(sql.find_view, (name,), Text)
            if row is not None and "hw_" in row[0]:
                connection.execute(drop)


def read_version(connection: Connection) -> tuple[int, int]:
    """The version of the file's tables, 0 when they are not there yet, and the newest that this program knows."""
    newest = migrations()[-1].number
    if "hw_meta" not in _tables(connection):
        return 0, newest
    row = connection.row(connection.sql.get_meta, (VERSION_KEY,), Meta)
    return (int(row[0]) if row else 0), newest


def refuse_newer(connection: Connection, location: str) -> int:
    """The version of the file's tables; an error when it is newer than this program."""
    version, newest = read_version(connection)
    if version > newest:
        raise StoreNewer(
            f"{location} has tables of version {version}; this Headwater knows versions up to {newest}: upgrade it"
        )
    return version


def _has_tables(connection: Connection) -> bool:
    return bool(_tables(connection))


def _tables(connection: Connection) -> set[str]:
    return {name for (name,) in connection.rows(connection.sql.list_tables, (), Text)}
