"""Delivers messages for later when they are due, though nobody commits or waits for them in this process."""

from headwater.clock import Clock
from headwater.config import Config
from headwater.housekeeping.periodic import Periodic
from headwater.log.committer import Committer
from headwater.log.operations import Promote
from headwater.stores.contract import Store
from headwater.stores.questions import FindNextDue

LOOK_SECONDS = 1.0


class Promoter(Periodic):
    """Every commit appends what is due by itself; this one commits when something is."""

    name = "promoter"

    def __init__(self, store: Store, committer: Committer, clock: Clock, config: Config) -> None:
        super().__init__(committer, config)
        self._store = store
        self._clock = clock
        self._seconds = min(self._seconds, LOOK_SECONDS)

    async def run(self) -> int:
        """How many messages became due. It is looked for without the write lock."""
        promoted = 0
        while True:
            due = await self._store.ask(FindNextDue())
            if due is None or due > self._clock.now():
                return promoted
            count = (await self._submit(Promote())).count
            promoted += count
            if not count:
                return promoted
