"""What pages share: a server of PostgreSQL that several tests use."""

import pytest

from tests.postgres_server import server


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A server that several tests share is started before anybody looks at what a test leaves behind."""
    if isinstance(item, pytest.Function) and "postgres" in item.name:
        server()
