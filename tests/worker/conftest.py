"""An open Headwater, and workers that run in this process."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headwater
from tests.worker.bench import Bench


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "log.db"), housekeeping=False) as opened:
        yield opened


@pytest.fixture
def bench(hw: headwater.Headwater, tmp_path: Path) -> Bench:
    return Bench(hw, tmp_path)
