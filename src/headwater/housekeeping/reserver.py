"""Keeps room set aside for the day on which the disk is full."""

import logging

from headwater.config import Config
from headwater.housekeeping.periodic import Periodic
from headwater.log.committer import Committer
from headwater.stores.contract import Store

log = logging.getLogger(__name__)


class Reserver(Periodic):
    """Asks the store for it at the pace of the other chores; while the disk is full, the sentinel does."""

    name = "reserver"

    def __init__(self, store: Store, committer: Committer, config: Config) -> None:
        super().__init__(committer, config)
        self._store = store
        self._is_short = False

    async def run(self) -> int:
        """1 when the room is there; that there is none is told once."""
        if self._committer.full:
            return 0
        has_room = await self._store.has_room()
        if not has_room and not self._is_short:
            log.warning("the disk is nearly full: when it is, pushes are refused")
        self._is_short = not has_room
        return int(has_room)
