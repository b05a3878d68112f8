"""Waking by a server's notices, and by asking where none come.

A notice has no data and may be lost: who commits and dies before it has told, tells nobody. So the version is looked at
as well, rarely while notices come and more often while the connection that brings them is down. It comes back.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from headwater.errors import HeadwaterError
from headwater.outage import OUTAGES
from headwater.wakeups.contract import Found

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
POLL_SECONDS = 0.05
POLL_SECONDS_MAX = 0.5


class Listener(Protocol):
    """What a store brings for this."""

    async def listen(self) -> int:
        """Connect, and return a descriptor that can be read when there may be a notice. Raises a HeadwaterError."""
        ...

    def heard(self) -> bool:
        """Whether another process has told something. Raises ConnectionError when the connection is gone."""
        ...

    async def look(self) -> bool:
        """Whether another process has committed since the last look. Raises a HeadwaterError."""
        ...

    def look_now(self) -> bool:
        """The same, waited for on the spot."""
        ...

    def deafen(self) -> None:
        """Let go of the connection that listens."""
        ...


class NoticeWakeup:
    """Wakes when another process tells that it has committed."""

    def __init__(self, listener: Listener, *, listens: bool = True) -> None:
        self.name = "listen" if listens else "data_version"
        self._listener = listener
        self._listens = listens
        self._descriptor: int | None = None
        self._has_changed = False
        self._defer_seconds = 0.0
        self._deferred: asyncio.TimerHandle | None = None
        self._following: asyncio.Task[None] | None = None
        self._poll_seconds = POLL_SECONDS
        self._is_told = False

    @property
    def is_listening(self) -> bool:
        """Whether notices come now."""
        return self._descriptor is not None

    def start(self, wake: Callable[[], Found]) -> None:
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._following = self._loop.create_task(self._follow(), name="headwater-notices")

    def changed(self) -> bool:
        """Whether another process has committed since this was last asked, as far as it was heard or seen. Until
        this is started nobody listens or looks, so the server is asked on the spot."""
        if self._following is None:
            return self._listener.look_now()
        changed, self._has_changed = self._has_changed, False
        return changed

    def defer(self, seconds: float) -> None:
        self._defer_seconds = seconds
        if not seconds and self._deferred is not None:
            self._deferred.cancel()
            self._call()

    def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
        if self._deferred is not None:
            self._deferred.cancel()
        self._stop_listening()

    async def _follow(self) -> None:
        """Look at the version again and again, and try to listen whenever nobody does."""
        while True:
            try:
                if self._listens and self._descriptor is None:
                    await self._begin_to_listen()
                if await self._listener.look():
                    self._news()
                self._is_told = False
            except OUTAGES as error:
                log.debug("what others commit is noticed late, the store tells why: %s", error)
            except HeadwaterError as error:
                if not self._is_told:
                    self._is_told = True
                    log.warning("what others commit is noticed late until the server can be asked again: %s", error)
            await asyncio.sleep(self._pace())

    def _pace(self) -> float:
        if self._descriptor is not None:
            self._poll_seconds = POLL_SECONDS
            return LOOK_SECONDS
        pace, self._poll_seconds = self._poll_seconds, min(self._poll_seconds * 2, POLL_SECONDS_MAX)
        return pace

    async def _begin_to_listen(self) -> None:
        descriptor = await self._listener.listen()
        self._descriptor = descriptor
        self._loop.add_reader(descriptor, self._readable)

    def _readable(self) -> None:
        try:
            heard = self._listener.heard()
        except ConnectionError as error:
            # Most often with all others of the store, which tells of that; else the next look makes it anew.
            log.debug("the connection that brings notices was lost, the version is looked at instead: %s", error)
            self._stop_listening()
            return
        if heard:
            self._news()

    def _stop_listening(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            self._descriptor = None
        self._listener.deafen()

    def _news(self) -> None:
        self._has_changed = True
        self._poll_seconds = POLL_SECONDS
        if not self._defer_seconds:
            self._call()
        elif self._deferred is None:
            self._deferred = self._loop.call_later(self._defer_seconds, self._call)

    def _call(self) -> None:
        self._deferred = None
        self._wake()
