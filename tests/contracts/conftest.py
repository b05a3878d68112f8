"""Stores for the suite: `log` is one that is open, `open_log` opens more at the same place."""

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, Protocol

import pytest

from headwater.config import load_config
from headwater.stores.contract import Store
from headwater.stores.open import open_store
from tests import seaweed_server
from tests.contracts.clock import FakeClock
from tests.contracts.factories import FACTORIES
from tests.contracts.log import Log
from tests.postgres_server import server


class OpenLog(Protocol):
    """Opens one more store at the place of the test."""

    def __call__(self, **settings: Any) -> Awaitable[Log]: ...


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A server that several tests share is started before anybody looks at what a test leaves behind."""
    if isinstance(item, pytest.Function) and "postgres" in item.name:
        server()
    if isinstance(item, pytest.Function) and "bucket s3" in item.name:
        seaweed_server.server()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=FACTORIES)
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    async with FACTORIES[request.param](tmp_path) as found:
        yield found


@pytest.fixture
async def open_log(address: str, clock: FakeClock) -> AsyncIterator[OpenLog]:
    opened: list[Store] = []

    async def open_one(**settings: Any) -> Log:
        store = open_store(address, load_config({}, **settings), clock)
        await store.open()
        opened.append(store)
        return Log(store, clock)

    yield open_one
    for store in reversed(opened):
        await store.close()


@pytest.fixture
async def log(open_log: OpenLog) -> Log:
    return await open_log()


@pytest.fixture
async def other(log: Log, open_log: OpenLog) -> Log:
    """A second store at the same place."""
    return await open_log()
