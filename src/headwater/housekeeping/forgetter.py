"""Forgets idempotency keys and traces that are too old for anybody to come back to."""

import asyncio

from headwater.clock import SECOND, Clock, Timestamp
from headwater.config import Config, Durability
from headwater.log.committer import Committer
from headwater.log.operations import Forget

LIMIT = 5_000


class Forgetter:
    """Drops the oldest first, a bite a commit."""

    name = "forgetter"

    def __init__(self, committer: Committer, clock: Clock, config: Config) -> None:
        self._committer = committer
        self._clock = clock
        self._keep = int(config.idempotency_seconds * SECOND)
        self._seconds = config.housekeeping_seconds

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)

    async def run(self) -> int:
        """How many rows were dropped."""
        dropped = 0
        while True:
            before = Timestamp(self._clock.now() - self._keep)
            answer = await self._committer.submit(Forget(before=before, limit=LIMIT), Durability.WRITTEN)
            dropped += int(answer.result.count)
            if answer.result.count < LIMIT:
                return dropped
            await asyncio.sleep(0)
