"""Delivers messages for later when they are due, though nobody commits or waits for them in this process."""

import asyncio

from headwater.clock import Clock
from headwater.config import Config, Durability
from headwater.log.committer import Committer
from headwater.log.operations import Promote, Promoted
from headwater.stores.contract import Store
from headwater.stores.questions import FindNextDue

LOOK_SECONDS = 1.0


class Promoter:
    """Every commit appends what is due by itself; this one commits when something is."""

    name = "promoter"

    def __init__(self, store: Store, committer: Committer, clock: Clock, config: Config) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._seconds = min(config.housekeeping_seconds, LOOK_SECONDS)

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)

    async def run(self) -> int:
        """How many messages became due. It is looked for without the write lock."""
        promoted = 0
        while True:
            due = await self._store.ask(FindNextDue())
            if due is None or due > self._clock.now():
                return promoted
            answer: Promoted = (await self._committer.submit(Promote(), Durability.WRITTEN)).result
            promoted += answer.count
            if not answer.count:
                return promoted
