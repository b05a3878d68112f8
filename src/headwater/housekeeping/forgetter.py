"""Forgets idempotency keys and traces that are too old for anybody to come back to."""

import asyncio

from headwater.clock import SECOND, Clock, Timestamp
from headwater.config import Config
from headwater.housekeeping.periodic import Periodic
from headwater.log.committer import Committer
from headwater.log.operations import Forget

LIMIT = 5_000


class Forgetter(Periodic):
    """Drops the oldest first, a bite a commit."""

    name = "forgetter"

    def __init__(self, committer: Committer, clock: Clock, config: Config) -> None:
        super().__init__(committer, config)
        self._clock = clock
        self._keep = int(config.idempotency_seconds * SECOND)

    async def run(self) -> int:
        """How many rows were dropped."""
        dropped = 0
        while True:
            before = Timestamp(self._clock.now() - self._keep)
            forgotten = await self._submit(Forget(before=before, limit=LIMIT))
            dropped += forgotten.count
            if forgotten.count < LIMIT:
                return dropped
            await asyncio.sleep(0)
