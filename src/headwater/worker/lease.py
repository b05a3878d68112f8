"""A worker's lease, as the worker knows it: what keeps it, what it is given under it, and when it was lost.

An answer may come long after the store gave it: another program can hold the file for longer than a lease is. So what
was claimed is only the worker's as long as no answer since then has said that the lease was lost; otherwise it is given
back under its token, which the store refuses where the job is another's by now. Nothing is claimed while the worker's
marks are closed, because nothing could be started.
"""

import logging
from collections.abc import Callable, Sequence

import msgspec

from headwater.config import Durability
from headwater.errors import HeadwaterError
from headwater.log.committer import Committer
from headwater.log.job_operations import Beat, Claim, Claimed, ClaimedJob, Depart, Heartbeat, Note
from headwater.stores.job_starts import JobStarts
from headwater.worker.worker_options import WorkerOptions

log = logging.getLogger(__name__)


class Lease:
    """What a worker asks of the store in its own name. `on_lost` is told that all it held is others' now, `on_stale` of
    jobs that may be, and that nobody here will run."""

    def __init__(self, committer: Committer, options: WorkerOptions, seconds: float, starts: JobStarts) -> None:
        self._committer = committer
        self._options = options
        self._seconds = seconds
        self._starts = starts
        # How often it was lost: what was asked for under another number is of a lease that is over.
        self._losses = 0
        self.on_lost: Callable[[], None] = lambda: None
        self.on_stale: Callable[[Sequence[ClaimedJob]], None] = lambda jobs: None

    async def beat(self, notes: Sequence[Note] = (), durability: Durability = Durability.WRITTEN) -> Beat:
        """Keep the lease."""
        operation = Heartbeat(
            database=self._options.database,
            worker=self._options.id,
            lease_seconds=self._seconds,
            about=self._options.about(),
            notes=notes,
        )
        beat = (await self._committer.submit(operation, durability)).result
        self._heard(alive=beat.alive)
        return beat

    async def claim(self, claim: Claim) -> Claimed:
        """Get jobs; only those are in the answer that are still this worker's."""
        if self._starts.is_closed():
            await self._begin_anew()
        losses = self._losses
        # Not waited for on the disk: a claim that a power cut takes is a job that runs again, as is promised.
        claimed = (await self._committer.submit(claim, Durability.WRITTEN)).result
        is_stale = self._losses != losses
        self._heard(alive=claimed.alive)
        if is_stale:
            return self._give_back(claimed)
        if any(job.attempts_max == 1 for job in claimed.jobs):
            return await self._kept(claimed)
        return claimed

    async def _kept(self, claimed: Claimed) -> Claimed:
        """Some of these run at most once, so not even a power cut may take back that they were claimed."""
        losses = self._losses
        try:
            await self.beat(durability=Durability.SYNCED)
        except HeadwaterError:
            self._give_back(claimed)
            raise
        return claimed if self._losses == losses else self._give_back(claimed)

    async def depart(self, reason: str) -> None:
        """Give the lease up: what is still held counts as started where its mark says so."""
        operation = Depart(database=self._options.database, worker=self._options.id, reason=reason)
        await self._committer.submit(operation)

    async def _begin_anew(self) -> None:
        """Whoever closed the marks has taken the jobs back, and then the store says so. If not, that came to nothing,
        or a job wrote there: nothing can be started under this lease, so it is given up for another."""
        await self.beat()
        if self._starts.is_closed():
            log.warning("the marks of started jobs were closed; what runs here is ended, and the worker begins anew")
            await self.depart("the worker's marks of started jobs were closed while it ran")
            await self.beat()

    def _heard(self, *, alive: bool) -> None:
        if alive:
            return
        self._losses += 1
        self.on_lost()
        if self._starts.is_closed():
            self._starts.renew(self._starts.path)

    def _give_back(self, claimed: Claimed) -> Claimed:
        self.on_stale(claimed.jobs)
        return msgspec.structs.replace(claimed, jobs=[])
