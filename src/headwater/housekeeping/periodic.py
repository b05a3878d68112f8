"""What chores have in common that are done every so often, in commits that nobody waits for."""

import asyncio

from headwater.config import Config, Durability
from headwater.log.committer import Committer
from headwater.log.operations import Operation, Result


class Periodic:
    """A chore at the pace of the settings. What it does not finish, the next run does: no commit of it is synced."""

    def __init__(self, committer: Committer, config: Config) -> None:
        self._committer = committer
        self._seconds = config.housekeeping_seconds

    async def wait(self) -> None:
        """Until it is time."""
        await asyncio.sleep(self._seconds)

    async def _submit(self, operation: Operation[Result]) -> Result:
        return (await self._committer.submit(operation, Durability.WRITTEN)).result
