"""Ends leases that ran out, so that poison records reach the dead letters and lag is told right though nobody pops."""

from headwater.clock import Clock
from headwater.config import Config
from headwater.housekeeping.periodic import Periodic
from headwater.log.committer import Committer
from headwater.log.operations import Reap
from headwater.stores.contract import Store
from headwater.stores.questions import ListExpired

LIMIT = 500


class LeaseReaper(Periodic):
    """A pop takes over an expired lease by itself; this one does it for partitions that nobody asks for."""

    name = "lease-reaper"

    def __init__(self, store: Store, committer: Committer, clock: Clock, config: Config) -> None:
        super().__init__(committer, config)
        self._store = store
        self._clock = clock

    async def run(self) -> int:
        """How many leases were ended. They are looked for without the write lock."""
        ended = 0
        while leases := await self._store.ask(ListExpired(self._clock.now(), LIMIT)):
            ended += (await self._submit(Reap(leases=leases))).leases
            if len(leases) < LIMIT:
                break
        return ended
