"""Following the log of a server's queue: steps as those of an open store, each a request that waits."""

from typing import TYPE_CHECKING

from headwater.model.names import Lsn
from headwater.services.follow import Limits, Step, Steps

if TYPE_CHECKING:
    from headwater.client.client import Client

WAIT_SECONDS = 20.0
SEGMENTS = 16


class ServerFollowing(Steps):
    """The log of one queue from a position on."""

    def __init__(self, client: "Client", queue: str, after: Lsn, limits: Limits | None = None) -> None:
        self._client = client
        self._queue = queue
        self._limits = limits or Limits(SEGMENTS)
        self.position = after

    @property
    def is_over(self) -> bool:
        """Never: a server that ends is asked again until another is there, or the client gives up."""
        return False

    async def step(self, wait_seconds: float | None = None) -> Step:
        """What comes next; without a time it may come back with nothing, to be asked again."""
        wait = WAIT_SECONDS if wait_seconds is None else wait_seconds
        told = await self._client.read(self._queue, self.position, limit=self._limits.segments, wait=wait)
        self.position = max(self.position, told.through)
        return Step(told.segments, self.position, told.resync)

    def close(self) -> None:
        """Nothing is held between two steps."""
