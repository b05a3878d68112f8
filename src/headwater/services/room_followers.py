"""Follows the rooms of each database that somebody here is in one of: what the log brings for them, a step at a time.

There is one follower for a database, however many of its rooms are live. One that fails tries again from where it was,
after pauses that grow; it ends with the store.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from headwater.errors import Closed, StoreReplaced
from headwater.model.names import Lsn
from headwater.model.room import ALL_ROOMS
from headwater.model.room_settings import RoomSettings
from headwater.model.selection import Selection
from headwater.outage import OUTAGES, PAUSE_SECONDS, tell
from headwater.services.follow import Followers, Limits
from headwater.services.room_lag import Lag
from headwater.stores.questions import Segment

log = logging.getLogger(__name__)

# A server that is asked to trade time for load rests between two looks; one that is not looks as soon as it is woken.
REST_FROM_MS = 50
# Between two tries to follow the log again, twice as long each time.
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.1, 10.0


class Recipient(Protocol):
    """Who gets what the log brings."""

    settings: RoomSettings

    def hand_out(self, segments: Sequence[Segment]) -> None:
        """The next segments of rooms of one database, in order."""

    async def tell_what_is_lost(self, database: str) -> None:
        """Messages were dropped before they were handed out."""


class RoomFollowers:
    """One follower for each database with a live room."""

    def __init__(self, followers: Followers, recipient: Recipient) -> None:
        self._followers = followers
        self._recipient = recipient
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._pumping: dict[str, asyncio.Event] = {}
        # How well the rooms of a database are delivered.
        self.lags: dict[str, Lag] = {}

    def count(self) -> int:
        """How many there are."""
        return len(self._pumps)

    async def follow(self, database: str) -> None:
        """Follow all rooms of a database, from the end of the log on."""
        if database not in self._pumps:
            self._pumping[database] = asyncio.Event()
            self._pumps[database] = asyncio.ensure_future(self._pump(database))
        pump, begun = self._pumps[database], asyncio.ensure_future(self._pumping[database].wait())
        await asyncio.wait({pump, begun}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if pump.done():
            pump.result()

    async def _pump(self, database: str) -> None:
        """Hand out what is new in the rooms of a database, for as long as somebody is in one."""
        selection = Selection(database, (ALL_ROOMS,))
        limits = Limits(self._recipient.settings.max_messages_per_poll)
        lag = self.lags[database] = Lag(asyncio.get_running_loop().time)
        unwatch = self._followers.watch(selection, lag.told)
        try:
            await self._pump_on(database, selection, limits, lag)
        finally:
            unwatch()

    async def _pump_on(self, database: str, selection: Selection, limits: Limits, lag: Lag) -> None:
        position: Lsn | None = None
        failures = 0
        while True:
            try:
                async with await self._followers.follow(selection, position, limits) as following:
                    position = following.position
                    self._pumping[database].set()
                    async for step in following:
                        self._recipient.hand_out(step.segments)
                        if step.resync is not None:
                            await self._recipient.tell_what_is_lost(database)
                        failures = 0
                        position = following.position
                        lag.delivered(position)
                        await self._rest()
                    return
            except (Closed, StoreReplaced):
                return
            except OUTAGES:
                await asyncio.sleep(PAUSE_SECONDS)
            except Exception as error:
                # Whatever it is: everybody in a room of this database would hear nothing any more.
                pause = pause_seconds(failures)
                failures += 1
                tell(log, f"rooms could not be followed; it is tried again in {pause:g} s", error)
                await asyncio.sleep(pause)

    async def _rest(self) -> None:
        if self._recipient.settings.queue_poll_interval > REST_FROM_MS:
            await asyncio.sleep(self._recipient.settings.queue_poll_interval / 1_000)

    def stop(self) -> "list[asyncio.Task[None]]":
        """Follow no more; what is still to end."""
        pumps = list(self._pumps.values())
        for pump in pumps:
            pump.cancel()
        self._pumps.clear()
        self._pumping.clear()
        return pumps


def pause_seconds(failures: int) -> float:
    """How long to wait before the next try, after so many that failed in a row."""
    return min(RETRY_SECONDS * 2.0 ** min(failures, 20), RETRY_SECONDS_MAX)
