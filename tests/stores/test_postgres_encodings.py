"""Databases that were made with another encoding than UTF8, and connections that are told one."""

from collections.abc import Iterator

import pytest

import headwater
from headwater.errors import ConfigError
from tests.postgres_server import Server, server

TEXT = "Zoë 漢字 😀"


@pytest.fixture(scope="module")
def of() -> Server:
    return server()


@pytest.fixture(params=["SQL_ASCII", "LATIN1", "EUC_JP"])
def other(of: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a database with another encoding."""
    name = f"of_{request.param.lower()}"
    with of.connect() as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING '{request.param}' LOCALE 'C' TEMPLATE template0".encode())
    yield name
    with of.connect() as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def test_a_database_that_cannot_hold_every_text_is_refused_before_anything_is_made(
    of: Server, other: str
) -> None:
    address = of.address("headwater").replace("/postgres?", f"/{other}?")
    with pytest.raises(ConfigError, match=r"must be UTF8. Make a database with CREATE DATABASE"):
        async with headwater.open(address):
            pass


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "EUC_JP"])
async def test_what_connections_are_told_of_encodings_changes_nothing(
    of: Server, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    address = f"{of.address(of.new_schema())}&client_encoding={encoding}"
    for number in range(2):
        async with headwater.open(address) as hw:
            await hw.room("a").send(TEXT, sender=TEXT, key=TEXT)
            heard = hw.room("a").follow("beginning")
            told = [await anext(heard) for _ in range(number + 1)]
            await heard.aclose()
            assert [(one.payload, one.sender) for one in told] == [(TEXT, TEXT)] * (number + 1)
