"""Ends leases that ran out, so that poison records reach the dead letters and lag is told right though nobody pops."""

import asyncio

from headwater.clock import Clock
from headwater.config import Config, Durability
from headwater.log.committer import Committer
from headwater.log.operations import Reap, Reaped
from headwater.stores.contract import Store
from headwater.stores.questions import ListExpired

LIMIT = 500


class LeaseReaper:
    """A pop takes over an expired lease by itself; this one does it for partitions that nobody asks for."""

    name = "lease-reaper"

    def __init__(self, store: Store, committer: Committer, clock: Clock, config: Config) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._seconds = config.housekeeping_seconds

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)

    async def run(self) -> int:
        """How many leases were ended. They are looked for without the write lock."""
        ended = 0
        while leases := await self._store.ask(ListExpired(self._clock.now(), LIMIT)):
            answer = await self._committer.submit(Reap(leases=leases), Durability.WRITTEN)
            reaped: Reaped = answer.result
            ended += reaped.leases
            if len(leases) < LIMIT:
                break
        return ended
