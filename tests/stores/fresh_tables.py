"""The tables of a fresh file in one script, as all migrations so far leave them: `python -m tests.stores.fresh_tables`.

A migration need not be followed by this: those that are newer than the script are applied behind it.
"""

from pathlib import Path

import apsw

from headwater.stores.sqlite import migrate
from headwater.stores.sqlite.connection import SqliteConnection

FOLDER = Path(migrate.__file__).parent / "migrations"
HEADING = """\
-- The tables of a fresh file: what the migrations up to {number:04} come to, without the way there.
-- Written by `python -m tests.stores.fresh_tables`.
"""


def tables_by_migrations() -> SqliteConnection:
    """A file in memory that has gone through every migration."""
    connection = SqliteConnection(":memory:")
    migrate.apply(connection, migrate.migrations())
    return connection


def definitions(connection: apsw.Connection) -> list[tuple[str, str]]:
    """Everything that the file holds, by name: tables, indexes, views, in the order in which they were made."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
    return [(name, sql) for name, sql in rows if not name.startswith("sqlite_")]


def write() -> None:
    """Write the script anew, under the number of the newest migration."""
    number = migrate.migrations()[-1].number
    made = [f"{sql};\n" for _, sql in definitions(tables_by_migrations())]
    for file in FOLDER.glob("fresh_*.sql"):
        file.unlink()
    (FOLDER / f"fresh_{number:04}.sql").write_text(HEADING.format(number=number) + "".join(made))


if __name__ == "__main__":
    write()
