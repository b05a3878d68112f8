"""Following the log of a server's queue: steps as those of an open store, each a request that waits."""

from collections.abc import Awaitable, Callable

from headwater.errors import ResyncRequired
from headwater.model.names import Lsn
from headwater.services.follow import Limits, Step, Steps
from headwater.services.requests import SegmentsResponse

# A stretch of a queue's log after an LSN: so many segments, waiting for so long.
Read = Callable[[str, Lsn, int, float], Awaitable[SegmentsResponse]]

WAIT_SECONDS = 20.0
SEGMENTS = 16


class ServerFollowing(Steps):
    """The log of one queue from a position on."""

    def __init__(self, read: Read, queue: str, after: Lsn, limits: Limits | None = None) -> None:
        self._read = read
        self._queue = queue
        self._limits = limits or Limits(SEGMENTS)
        self.position = after
        self._store = ""

    @property
    def is_over(self) -> bool:
        """Never: a server that ends is asked again until another is there, or the client gives up."""
        return False

    async def step(self, wait_seconds: float | None = None) -> Step:
        """What comes next; without a time it may come back with nothing, to be asked again."""
        wait = WAIT_SECONDS if wait_seconds is None else wait_seconds
        told = await self._read(self._queue, self.position, self._limits.segments, wait)
        self._check_store(told.store)
        self.position = max(self.position, told.through)
        return Step(told.segments, self.position, told.resync)

    def _check_store(self, store: str) -> None:
        """Raises when the server has another store by now: positions of the one before mean other segments there. A
        server of an older version does not say which one it has."""
        if store and self._store not in ("", store):
            raise ResyncRequired(
                f"the store of the server is another one now, or was restored (identity {store}, it was {self._store});"
                f" read {self._queue} anew from its beginning"
            )
        self._store = store or self._store

    def close(self) -> None:
        """Nothing is held between two steps."""
