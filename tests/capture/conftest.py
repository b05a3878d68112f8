"""A server whose changes can be followed, a table on it, and a store."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import headwater
from tests.capture.shop import Shop
from tests.postgres_server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server(wal_level="logical", max_slot_wal_keep_size="64MB", wal_keep_size="0", min_wal_size="32MB")
    yield started
    started.stop()


@pytest.fixture
def shop(server: Server) -> Iterator[Shop]:
    made = Shop(server)
    yield made
    made.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
    made.run(f"DROP PUBLICATION IF EXISTS headwater_{made.name}")
    made.run(f"DROP SCHEMA IF EXISTS {made.name} CASCADE")
    made.connection.close()


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "headwater.db")) as opened:
        yield opened
