"""Ends leases that ran out, so that poison records reach the dead letters and lag is told right though nobody pops."""

import asyncio

from headwater.config import Config, Durability
from headwater.log.committer import Committer
from headwater.log.operations import Reap, Reaped

LIMIT = 500


class LeaseReaper:
    """A pop takes over an expired lease by itself; this one does it for partitions that nobody asks for."""

    name = "lease-reaper"

    def __init__(self, committer: Committer, config: Config) -> None:
        self._committer = committer
        self._seconds = config.housekeeping_seconds

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)

    async def run(self) -> int:
        """How many leases were ended."""
        ended = 0
        while True:
            answer = await self._committer.submit(Reap(limit=LIMIT), Durability.WRITTEN)
            reaped: Reaped = answer.result
            ended += reaped.leases
            if reaped.leases < LIMIT:
                return ended
            await asyncio.sleep(0)
