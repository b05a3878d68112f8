"""Forgets jobs that ended long ago, results whose time is over, and old counts, in bites."""

import asyncio

from headwater.config import Config, Durability
from headwater.log.committer import Committer
from headwater.log.job_operations import Changed, Prune

LIMIT = 500


class JobPruner:
    """Keeps the table of jobs as long as its database asks for. Dead jobs stay until somebody has looked at them."""

    name = "job-pruner"

    def __init__(self, committer: Committer, config: Config) -> None:
        self._committer = committer
        self._seconds = config.housekeeping_seconds

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)

    async def run(self) -> int:
        """How many jobs and results were forgotten."""
        forgotten = 0
        while True:
            changed: Changed = (await self._committer.submit(Prune(limit=LIMIT), Durability.WRITTEN)).result
            forgotten += len(changed.ids)
            if len(changed.ids) < LIMIT:
                return forgotten
