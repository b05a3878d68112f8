"""Runs the chores, each in a task of its own: an error is told and counted, and the chore goes on."""

import asyncio
import logging

from headwater.clock import Clock
from headwater.config import Config
from headwater.errors import Closed, StoreFull, StoreReplaced
from headwater.housekeeping.forgetter import Forgetter
from headwater.housekeeping.index_builder import IndexBuilder
from headwater.housekeeping.job_pruner import JobPruner
from headwater.housekeeping.job_rescuer import JobRescuer
from headwater.housekeeping.lane_sweeper import LaneSweeper
from headwater.housekeeping.lease_reaper import LeaseReaper
from headwater.housekeeping.promoter import Promoter
from headwater.housekeeping.reserver import Reserver
from headwater.housekeeping.retainer import Retainer
from headwater.log.committer import Committer
from headwater.outage import OUTAGES, tell
from headwater.stores.contract import Chore, Store

log = logging.getLogger(__name__)

ERROR_PAUSE_SECONDS = 1.0


class Keeper:
    """All chores of a process."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, config: Config) -> None:
        self._reserver = Reserver(store, committer, config)
        self._does_chores = config.housekeeping
        self.chores: list[Chore] = [
            Retainer(committer, config),
            LeaseReaper(store, committer, clock, config),
            Promoter(store, committer, clock, config),
            Forgetter(committer, clock, config),
            JobRescuer(committer, config),
            JobPruner(committer, config),
            LaneSweeper(committer, config),
            IndexBuilder(store, committer, config),
            self._reserver,
            *store.chores(),
        ]
        self._tasks: list[asyncio.Task[None]] = []
        # Those whose last run failed: that is told once, not with every run.
        self._failing: set[str] = set()
        self.errors: dict[str, int] = {chore.name: 0 for chore in self.chores}
        self.done: dict[str, int] = {chore.name: 0 for chore in self.chores}

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._tasks = [
            asyncio.get_running_loop().create_task(self._repeat(chore), name=f"headwater-{chore.name}")
            for chore in self.chores
        ]

    async def prepare(self) -> None:
        """Before a server takes anything: a disk that is full before the first round of chores could not be emptied."""
        if not self._does_chores:
            return
        try:
            await self._reserver.run()
        except Exception as error:
            self._failed(self._reserver, error)

    async def close(self) -> None:
        """Stop between two bites."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def _failed(self, chore: Chore, error: Exception) -> None:
        self.errors[chore.name] += 1
        if chore.name not in self._failing:
            self._failing.add(chore.name)
            tell(log, f"chore {chore.name} failed; it is tried again until it works", error)

    async def _repeat(self, chore: Chore) -> None:
        while True:
            await chore.wait()
            try:
                count = await chore.run()
            except (Closed, StoreReplaced):
                return
            except (StoreFull, *OUTAGES):
                # The committer tells of a full disk, once for everybody, and a store of its outage.
                self.errors[chore.name] += 1
                await asyncio.sleep(ERROR_PAUSE_SECONDS)
                continue
            except Exception as error:
                self._failed(chore, error)
                await asyncio.sleep(ERROR_PAUSE_SECONDS)
                continue
            if chore.name in self._failing:
                self._failing.discard(chore.name)
                log.warning("chore %s works again", chore.name)
            self.done[chore.name] += count
            if count:
                log.debug("chore %s: %d", chore.name, count)
