"""What pages share: the server that a page talks to, and one of PostgreSQL that several tests use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres_server
from tests.scenarios.servers import Server


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A server that several tests share is started before anybody looks at what a test leaves behind."""
    if isinstance(item, pytest.Function) and "postgres" in item.name:
        postgres_server.server()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The store of a page's server."""
    return tmp_path / "page.db"


@pytest.fixture
def server(path: Path) -> Iterator[Server]:
    """The server that a page talks to."""
    server = Server(path)
    try:
        yield server
    finally:
        server.stop()
