"""Drops records whose time is over: by the queue's retention, or by their own time to live."""

import asyncio

from headwater.housekeeping.periodic import Periodic
from headwater.log.operations import Retain
from headwater.model.names import PartitionId


class Retainer(Periodic):
    """One round over all partitions, a bite a commit."""

    name = "retention"

    async def run(self) -> int:
        """How many records were dropped. A bite that dropped something is followed by another at the same place."""
        dropped = 0
        after = PartitionId(0)
        while True:
            retained = await self._submit(Retain(after=after))
            dropped += retained.records
            if not retained.segments and not retained.rooms:
                after = retained.after
                if not after:
                    return dropped
            await asyncio.sleep(0)
