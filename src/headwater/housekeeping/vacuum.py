"""Gives pages that dropped records left empty back to the file system, a few at a time."""

import asyncio

from headwater.config import Config
from headwater.stores.contract import Store

PAGES = 2_000


class Vacuum:
    """Runs behind retention, at the same pace."""

    name = "vacuum"

    def __init__(self, store: Store, config: Config) -> None:
        self._store = store
        self._seconds = config.housekeeping_seconds

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)

    async def run(self) -> int:
        """How many pages were given back."""
        return await self._store.compact(PAGES)
