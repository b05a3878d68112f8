"""Forgets jobs that ended long ago, results whose time is over, and old counts, in bites."""

from headwater.housekeeping.periodic import Periodic
from headwater.log.job_operations import Prune

LIMIT = 500


class JobPruner(Periodic):
    """Keeps the table of jobs as long as its database asks for. Dead jobs stay until somebody has looked at them."""

    name = "job-pruner"

    async def run(self) -> int:
        """How many jobs and results were forgotten."""
        forgotten = 0
        while True:
            changed = await self._submit(Prune(limit=LIMIT))
            forgotten += len(changed.ids)
            if len(changed.ids) < LIMIT:
                return forgotten
