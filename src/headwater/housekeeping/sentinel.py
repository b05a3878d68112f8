"""Watches over the store itself: whether it is still the one that was opened, and whether there is room again; and over
the clock.

A handle whose file was deleted or replaced would go on reading and writing what nobody else can see. Commits and
questions find that out by themselves; whoever waits, waits in vain and must be told. After a full disk nobody may try
to write, because a server that is not ready gets no requests: so it is asked here whether there is room again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from headwater.errors import Closed, HeadwaterError, StoreFull, StoreReplaced, StoreSilent
from headwater.housekeeping.clock_watch import ClockWatch
from headwater.log.committer import Committer
from headwater.stores.contract import Store

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5

OnLoss = Callable[[StoreReplaced], None]


class Sentinel:
    """Looks at the store and the clock twice a second, and tells everybody who waits when one of them was changed."""

    def __init__(self, store: Store, committer: Committer, on_loss: Sequence[OnLoss], watch: ClockWatch) -> None:
        self._store = store
        self._committer = committer
        self._on_loss = on_loss
        self._watch = watch
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self.look)

    async def close(self) -> None:
        """Look no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            await asyncio.wait([self._asking])

    def look(self) -> None:
        """One look, and the time of the next one."""
        try:
            self._store.check()
        except Closed:
            return
        except StoreReplaced as error:
            log.error("this process has lost its store: %s", error)
            for tell in self._on_loss:
                tell(error)
            return
        except (StoreFull, StoreSilent) as error:
            self._committer.refuse_waiting(error)
        except HeadwaterError as error:
            log.debug("the store could not be looked at: %s", error)
        self._watch.look()
        if self._committer.full and self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_for_room(), name="headwater-room")
        self.start()

    async def _ask_for_room(self) -> None:
        try:
            if await self._store.has_room():
                self._committer.has_room()
        except HeadwaterError as error:
            log.debug("whether there is room again cannot be told: %s", error)
        finally:
            self._asking = None
