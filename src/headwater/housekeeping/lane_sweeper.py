"""Forgets the lanes of keys that are empty and idle: there may be one for every customer that ever was."""

from headwater.config import Config
from headwater.housekeeping.periodic import Periodic
from headwater.log.committer import Committer
from headwater.log.job_operations import SweepLanes

LIMIT = 500
BITES_MAX = 40


class LaneSweeper(Periodic):
    """Goes through all lanes, so many at a time, and goes on where it was the next time."""

    name = "lane-sweeper"

    def __init__(self, committer: Committer, config: Config) -> None:
        super().__init__(committer, config)
        self._after = 0

    async def run(self) -> int:
        """How many lanes were forgotten."""
        dropped = 0
        for _ in range(BITES_MAX):
            swept = await self._submit(SweepLanes(after=self._after, limit=LIMIT))
            dropped += swept.dropped
            self._after = swept.through
            if not swept.through:
                break
        return dropped
