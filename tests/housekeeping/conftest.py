"""An open Headwater whose chores run only when a test runs them, at the time of a fake clock."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headwater
from tests.contracts.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
async def hw(path: Path, clock: FakeClock) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(path), clock=clock, housekeeping=False) as opened:
        yield opened
