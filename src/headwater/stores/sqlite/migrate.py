"""Bringing the tables up to date: numbered scripts, each applied once, in one transaction."""

import re
from importlib.resources import files

from headwater.errors import StoreNewer
from headwater.stores.sqlite.connection import APPLICATION_ID, SqliteConnection
from headwater.stores.tables.connection import Connection

VERSION_KEY = "schema_version"
REPLACES = "-- replaces view: {}\n"


def migrations() -> list[tuple[int, str, str]]:
    """Number, name and text of every script, in order."""
    found = []
    for file in files(__package__).joinpath("migrations").iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if match:
            found.append((int(match[1]), match[2], file.read_text()))
    return sorted(found)


def migrate(connection: SqliteConnection, location: str) -> int:
    """Apply what is missing; a file from a newer program is refused before anything is changed. The version reached."""
    scripts = migrations()
    newest = scripts[-1][0]
    if refuse_newer(connection, location) == newest:
        return newest
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = refuse_newer(connection, location)
        if version == 0 and not _has_tables(connection):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for number, _, text in scripts:
            if number > version:
                _drop_own_views(connection, text)
                connection.execute(text)
                connection.execute(connection.sql.set_meta, (VERSION_KEY, number))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return newest


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
            row = connection.execute(sql.find_view, (name,)).fetchone()
            if row is not None and "hw_" in str(row[0]):
                connection.execute(drop)


def read_version(connection: Connection) -> tuple[int, int]:
    """The version of the file's tables, 0 when they are not there yet, and the newest that this program knows."""
    newest = migrations()[-1][0]
    if "hw_meta" not in _tables(connection):
        return 0, newest
    row = connection.execute(connection.sql.get_meta, (VERSION_KEY,)).fetchone()
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
    return {row[0] for row in connection.execute(connection.sql.list_tables)}
