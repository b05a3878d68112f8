"""A schema that tests use one after the other is for each of them as the migrations leave it, and another store."""

from typing import Any

import pytest
from psycopg.sql import SQL, Identifier

import headwater.sync
from tests.postgres_schemas import Schemas, relations_of
from tests.postgres_server import Server
from tests.postgres_server import server as running_server

# Which store it is, differs.
UNLIKE = "identity"


@pytest.fixture(scope="module")
def server() -> Server:
    return running_server()


def contents(server: Server, schema: str) -> dict[str, list[Any]]:
    """Every row of every table, and where every sequence stands."""
    found: dict[str, list[Any]] = {}
    with server.connect() as connection:
        for kind, name in relations_of(connection, schema):
            if kind in ("r", "S"):
                columns = SQL("*" if kind == "r" else "last_value, is_called")
                asked = SQL("SELECT {} FROM {}").format(columns, Identifier(schema, name))
                found[name] = [row for row in connection.execute(asked) if row[0] != UNLIKE]
    return found


def identity(server: Server, schema: str) -> Any:
    with server.connect() as connection:
        asked = SQL("SELECT value FROM {} WHERE key = 'identity'").format(Identifier(schema, "hw_meta"))
        return connection.execute(asked).fetchone()


def test_a_schema_that_was_used_is_lent_again_as_the_migrations_leave_it(server: Server) -> None:
    schemas = Schemas(server)
    with schemas.lend() as first:
        fresh, before = contents(server, first), identity(server, first)
        with headwater.sync.open(server.address(first)) as hw:
            hw.queue("orders").push({"id": 1})
            hw.queue("orders").pop(group="billing")
            hw.jobs.add(command="true")
            hw.collection("things").create({"n": 1}, id="one")
        assert contents(server, first) != fresh
    with schemas.lend() as second:
        assert second == first
        assert contents(server, second) == fresh
        assert identity(server, second) != before


def test_a_schema_in_which_something_more_was_made_is_not_lent_again(server: Server) -> None:
    schemas = Schemas(server)
    with schemas.lend() as first, server.connect() as connection:
        connection.execute(SQL("CREATE TABLE {} ()").format(Identifier(first, "more")))
    with schemas.lend() as second:
        assert second != first
