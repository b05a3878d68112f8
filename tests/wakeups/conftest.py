"""A store whose wake-up the test hears."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater.config import Config
from headwater.stores.contract import Store
from headwater.stores.open import open_store
from headwater.wakeups.contract import Found, Wakeup
from headwater.wakeups.inotify import is_available
from tests.contracts.clock import FakeClock

WAIT_SECONDS = 20.0


WAKEUPS = ("inotify", "data_version")


class Listener:
    """A store, its wake-up, and what it heard."""

    def __init__(self, store: Store, wakeup: Wakeup) -> None:
        self.store = store
        self.wakeup = wakeup
        self.calls = 0
        self.own = False
        self.heard = asyncio.Event()

    def wake(self) -> Found:
        self.calls += 1
        if self.wakeup.changed():
            self.heard.set()
            return Found.NEWS
        own, self.own = self.own, False
        return Found.OWN if own else Found.NOTHING

    async def hear(self) -> None:
        """Until somebody else has committed; an error when nothing is heard of it."""
        await asyncio.wait_for(self.heard.wait(), WAIT_SECONDS)
        self.heard.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
async def other(path: Path) -> AsyncIterator[Store]:
    """Another connection to the same file, for the test to write through."""
    store = open_store(str(path), Config(), FakeClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture(params=WAKEUPS)
async def listener(request: pytest.FixtureRequest, path: Path, other: Store) -> AsyncIterator[Listener]:
    if request.param == "inotify" and not is_available():
        pytest.skip(f"{sys.platform} has no inotify")
    store = open_store(str(path), Config(wakeup=request.param), FakeClock())
    await store.open()
    made = Listener(store, store.wakeup())
    made.wakeup.start(made.wake)
    yield made
    made.wakeup.close()
    await store.close()
