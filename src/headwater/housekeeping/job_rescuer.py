"""Takes jobs back from workers that were not heard of for longer than their lease, though nobody claims."""

import asyncio

from headwater.config import Config, Durability
from headwater.log.committer import Committer
from headwater.log.job_operations import Changed, Rescue


class JobRescuer:
    """A claim rescues by itself; this one does it where no worker is left to claim."""

    name = "job-rescuer"

    def __init__(self, committer: Committer, config: Config) -> None:
        self._committer = committer
        self._seconds = config.housekeeping_seconds

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)

    async def run(self) -> int:
        """How many jobs were taken back."""
        changed: Changed = (await self._committer.submit(Rescue(), Durability.WRITTEN)).result
        return len(changed.ids)
