"""Learning that somebody else has written to the bucket: by looking, which costs a GET each time, so not often."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headwater.errors import StoreError
from headwater.wakeups.contract import Found

log = logging.getLogger(__name__)

PACES_SECONDS = (0.1, 1.0)
BUSY_LOOKS = 20


class BucketWakeup:
    """`look` finds the position up to which others have written, or 0; `peek` does so on the spot, for whoever asks
    before this is started. Each position is news once."""

    name = "bucket"

    def __init__(self, look: Callable[[], Awaitable[int]], peek: Callable[[], int]) -> None:
        self._look = look
        self._peek = peek
        self._foreign, self._noticed = 0, 0
        self._looking: asyncio.Task[None] | None = None

    def start(self, wake: Callable[[], Found]) -> None:
        self._wake = wake
        self._looking = asyncio.get_running_loop().create_task(self._go_on(), name="headwater-bucket-wakeup")

    def caught_up(self, position: int) -> None:
        """A takeover has found what others wrote up to this position."""
        self._foreign = max(self._foreign, position)

    def changed(self) -> bool:
        if self._looking is None:
            self._foreign = max(self._foreign, self._peek())
        noticed, self._noticed = self._noticed, self._foreign
        return self._foreign > noticed

    def defer(self, seconds: float) -> None:
        """It looks at its own pace."""

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _go_on(self) -> None:
        idle, told = 0, ""
        while True:
            try:
                self._foreign = max(self._foreign, await self._look())
                told = ""
            except StoreError as error:
                # A store that is damaged stays so: that is told once.
                if str(error) != told:
                    told = str(error)
                    log.warning("the bucket could not be looked at; it is tried again: %s", error)
            except Exception:
                log.exception("the bucket could not be looked at; it is tried again")
            idle = 0 if self._wake() is Found.NEWS else idle + 1
            await asyncio.sleep(PACES_SECONDS[0] if idle < BUSY_LOOKS else PACES_SECONDS[1])
