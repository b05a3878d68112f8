"""Forgets the lanes of keys that are empty and idle: there may be one for every customer that ever was."""

import asyncio

from headwater.config import Config, Durability
from headwater.log.committer import Committer
from headwater.log.job_operations import SweepLanes, Swept

LIMIT = 500
BITES_MAX = 40


class LaneSweeper:
    """Goes through all lanes, so many at a time, and goes on where it was the next time."""

    name = "lane-sweeper"

    def __init__(self, committer: Committer, config: Config) -> None:
        self._committer = committer
        self._seconds = config.housekeeping_seconds
        self._after = 0

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)

    async def run(self) -> int:
        """How many lanes were forgotten."""
        dropped = 0
        for _ in range(BITES_MAX):
            operation = SweepLanes(after=self._after, limit=LIMIT)
            swept: Swept = (await self._committer.submit(operation, Durability.WRITTEN)).result
            dropped += swept.dropped
            self._after = swept.through
            if not swept.through:
                break
        return dropped
