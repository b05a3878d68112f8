"""A store, and what routes act on over it, for clients in memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headwater
from headwater.doors.site import Site
from tests.contracts.clock import FakeClock
from tests.doors.realtime.pages import Page


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def hw(tmp_path: Path, clock: FakeClock) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "log.db"), clock=clock, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def site(hw: headwater.Headwater) -> Site:
    return Site(hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer, "test")


@pytest.fixture
async def page(site: Site) -> AsyncIterator[Page]:
    opened = Page(site)
    yield opened
    opened.cut()
