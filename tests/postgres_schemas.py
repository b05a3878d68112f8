"""Schemas of a server with the tables of an empty store, which one test uses after the other.

Making the tables takes PostgreSQL 130 ms of CPU, more than most tests that use them; a schema that was emptied 40 ms,
opening the store included.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import psycopg
from psycopg.sql import SQL, Identifier

from headwater.stores.postgres.address import parse_address
from headwater.stores.postgres.migrate import VERSION_KEY, migrate, migrations
from tests.postgres_server import Server, server

LOCK_WAIT_SECONDS = 10.0


class Relation(NamedTuple):
    """A table, an index, a sequence or a view."""

    kind: str
    name: str


class Schemas:
    """Lends schemas of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._free: list[str] = []
        self._relations: set[Relation] = set()

    @contextmanager
    def lend(self) -> Iterator[str]:
        """A schema with the tables of an empty store."""
        schema = self._free.pop() if self._free else self._make()
        yield schema
        with self._server.connect() as connection, connection.transaction():
            # Where `another` of tests/contracts/factories.py leads to.
            connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(f"{schema}-two")))
            # One in which a test has made something more, an index of documents say, is not used again.
            if relations_of(connection, schema) == self._relations:
                empty(connection, schema, self._relations)
                self._free.append(schema)

    def _make(self) -> str:
        schema = self._server.new_schema()
        migrate(parse_address(self._server.address(schema)), LOCK_WAIT_SECONDS, adopt=False, create=True)
        if not self._relations:
            with self._server.connect() as connection:
                self._relations = relations_of(connection, schema)
        return schema


@cache
def schemas() -> Schemas:
    """Those of the server of this process."""
    return Schemas(server())


def relations_of(connection: psycopg.Connection, schema: str) -> set[Relation]:
    """Everything that a schema has in it."""
    found = connection.execute(
        "SELECT relkind::text, relname::text FROM pg_class WHERE relnamespace = %s::regnamespace", (schema,)
    )
    return {Relation(kind, name) for kind, name in found}


def empty(connection: psycopg.Connection, schema: str, relations: set[Relation]) -> None:
    """Take everything out, and make it another store: as the migrations have left it."""
    connection.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT_SECONDS}s'".encode())
    # Triggers would count what goes.
    connection.execute("SET LOCAL session_replication_role = replica")
    work = [SQL("DELETE FROM {}").format(Identifier(schema, name)) for kind, name in relations if kind == "r"]
    work += [SQL("SELECT setval({}, 1, false)").format(f"{schema}.{name}") for kind, name in relations if kind == "S"]
    connection.execute(SQL("; ").join(work))
    facts = SQL("INSERT INTO {} (key, value) VALUES ('identity', gen_random_uuid()::text), (%s, %s)")
    connection.execute(facts.format(Identifier(schema, "hw_meta")), (VERSION_KEY, str(migrations()[-1].number)))
