"""Both interfaces: an open store, and a client of a server over one. What is true of one is true of the other."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headwater
from headwater.client.client import Client
from tests.client.server import Server
from tests.contracts.clock import RunningClock

Interface = headwater.Headwater | Client
INTERFACES = ("embedded", "client")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server over an empty store, on the loop of the test."""
    async with Server(tmp_path / "headwater.db") as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with headwater.connect(server.url) as connected:
        yield connected


@pytest.fixture
def clock() -> RunningClock:
    """The store's time."""
    return RunningClock()


@pytest.fixture(params=INTERFACES)
async def interface(request: pytest.FixtureRequest, tmp_path: Path, clock: RunningClock) -> AsyncIterator[Interface]:
    """Each interface over an empty store."""
    if request.param == "embedded":
        async with headwater.open(str(tmp_path / "headwater.db"), clock=clock) as hw:
            yield hw
        return
    async with Server(tmp_path / "headwater.db", clock=clock) as server, headwater.connect(server.url) as client:
        yield client


@pytest.fixture
def orders(interface: Interface) -> headwater.Queue:
    return interface.queue("orders")
