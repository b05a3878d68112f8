"""Bringing the tables up to date: numbered scripts, each applied once, in one transaction under the append lock."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from headwater.errors import ConfigError, StoreForeign, StoreMissing, StoreNewer, StoreOlder
from headwater.stores.migrations import Migration, load_migrations
from headwater.stores.postgres.address import Address
from headwater.stores.postgres.connection import PostgresConnection, milliseconds, quoted
from headwater.stores.postgres.pipe import ServerError
from headwater.stores.tables.connection import Meta, Number, Row, RowReader, Text, Value

if TYPE_CHECKING:
    from typing_extensions import TypeForm

VERSION_KEY = "schema_version"
_NO_ENCODING = "SQL_ASCII"
_OWN_TABLES = {"hw_meta", "hw_queues", "hw_segments", "hw_cursors"}

sql = PostgresConnection.sql


def migrations() -> tuple[Migration, ...]:
    """Every script, in order."""
    return load_migrations(__package__)


def migrate(address: Address, lock_wait_seconds: float, *, adopt: bool, create: bool) -> None:
    """Apply what is missing. A schema that is another program's or a newer version's is refused and left as it was."""
    try:
        with psycopg.Connection.connect(address.conninfo, cursor_factory=psycopg.RawCursor) as connection:
            connection.execute(f"SET LOCAL lock_timeout = {milliseconds(lock_wait_seconds)}".encode())
            connection.execute(sql.take_lock_of_schema.encode(), (address.schema,))
            _apply_missing(connection, address, adopt=adopt, create=create)
    except psycopg.Error as error:
        raise ServerError(error.sqlstate or "08001", str(error)) from error


def _apply_missing(connection: psycopg.Connection, address: Address, *, adopt: bool, create: bool) -> None:
    look = _Look(connection)
    refuse_encoding(connection.info.parameter_status("server_encoding") or "", look, address)
    if not check_schema(look, address, adopt=adopt, create=create):
        connection.execute(f"CREATE SCHEMA {quoted(address.schema)}".encode())
    connection.execute(f"SET LOCAL search_path = {quoted(address.schema)}".encode())
    version = read_version(look, address.schema)
    try:
        for number, _, text in migrations():
            if number > version:
                connection.execute(text.encode(), prepare=False)
                connection.execute(sql.set_meta.encode(), (VERSION_KEY, str(number)))
    except psycopg.errors.InsufficientPrivilege as error:
        if not version:
            raise
        raise StoreOlder(
            f"{address.shown} has tables of version {version}, this Headwater needs version {migrations()[-1].number}, "
            "and this user may not alter them: open it once as its owner (`headwater doctor --store …`), then again"
        ) from error


class _Look:
    """A connection of psycopg's own, as statements are asked elsewhere."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, bindings: Sequence[Value], row: "TypeForm[Row]", /) -> list[Row]:
        """All rows of a statement."""
        found: list[Any] = self._connection.execute(statement.encode(), bindings).fetchall()
        return found


def refuse_encoding(encoding: str, connection: RowReader, address: Address) -> None:
    """Raises when the database cannot hold every text. A store that is there already has texts that it can hold, but
    for one without an encoding, which gives back bytes where texts were put in."""
    if encoding == "UTF8" or (encoding != _NO_ENCODING and _tables(connection, address.schema) >= _OWN_TABLES):
        return
    raise ConfigError(
        f"the database of {address.shown} has the encoding {encoding or 'unknown'}, and texts of a store may have any "
        "character: it must be UTF8. Make a database with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0 (where "
        "its locale does not allow that, with LOCALE 'C' as well), and name that one"
    )


def check_schema(connection: RowReader, address: Address, *, adopt: bool, create: bool) -> bool:
    """Whether the schema is there; raises when it must not be used."""
    tables = _tables(connection, address.schema)
    if tables >= _OWN_TABLES:
        refuse_newer(connection, address)
        return True
    if not create:
        raise StoreMissing(f"there is no store at {address.shown}")
    if tables and not adopt:
        raise StoreForeign(
            f"{address.shown} has tables of another program ({', '.join(sorted(tables)[:5])}); name another schema, or "
            "open it with adopt=True (--adopt on the command line) to add Headwater's tables beside them"
        )
    return bool(connection.rows(sql.find_schema, (address.schema,), Number))


def refuse_newer(connection: RowReader, address: Address) -> int:
    """The version of the tables; an error when it is newer than this program."""
    version, newest = read_version(connection, address.schema), migrations()[-1].number
    if version > newest:
        raise StoreNewer(
            f"{address.shown} has tables of version {version}; this Headwater knows versions up to {newest}: upgrade it"
        )
    return version


def read_version(connection: RowReader, schema: str) -> int:
    """The version of the schema's tables, 0 when they are not there yet."""
    if "hw_meta" not in _tables(connection, schema):
        return 0
    rows = connection.rows(_get_meta_in(schema), (VERSION_KEY,), Meta)
    return int(rows[0][0]) if rows else 0


def _get_meta_in(schema: str) -> str:
    """The same statement, before anything is known to be in the search path."""
    return sql.get_meta.replace("hw_meta", f"{quoted(schema)}.hw_meta")


def _tables(connection: RowReader, schema: str) -> set[str]:
    return {name for (name,) in connection.rows(sql.list_tables, (schema,), Text)}
