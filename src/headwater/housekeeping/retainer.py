"""Drops records whose time is over: by the queue's retention, or by their own time to live."""

import asyncio

from headwater.config import Config, Durability
from headwater.log.committer import Committer
from headwater.log.operations import Retain, Retained
from headwater.model.names import PartitionId


class Retainer:
    """One round over all partitions, a bite a commit."""

    name = "retention"

    def __init__(self, committer: Committer, config: Config) -> None:
        self._committer = committer
        self._seconds = config.housekeeping_seconds

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)

    async def run(self) -> int:
        """How many records were dropped. A bite that dropped something is followed by another at the same place."""
        dropped = 0
        after = PartitionId(0)
        while True:
            answer = await self._committer.submit(Retain(after=after), Durability.WRITTEN)
            retained: Retained = answer.result
            dropped += retained.records
            if not retained.segments:
                after = retained.after
                if not after:
                    return dropped
            await asyncio.sleep(0)
