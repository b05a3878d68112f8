"""Jobs of a store as the tests hold them: operations as short calls, each in a commit of its own."""

from typing import Any

from headwater.log.job_operations import (
    Changed,
    Claim,
    Claimed,
    ClaimedJob,
    Enqueue,
    Enqueued,
    Heartbeat,
    JobReport,
    NewJob,
    Settle,
    Settled,
)
from headwater.model.job import JobOutcome, JobState
from headwater.stores.job_questions import FindJob, JobStatus, ListJobQueues
from tests.contracts.log import Log

WORKER = "worker-1"


def shell(id: str = "", **about: Any) -> NewJob:
    """A job that runs a command."""
    return NewJob(id=id, command="true", **about)


class Board:
    """The jobs of one database of a store."""

    def __init__(self, log: Log, database: str = "main") -> None:
        self.log = log
        self.database = database

    async def add(self, *jobs: NewJob | str) -> list[str]:
        """Add jobs, given whole or by id; their ids."""
        made = [job if isinstance(job, NewJob) else shell(job) for job in jobs]
        enqueued: Enqueued = await self.log.run(Enqueue(database=self.database, jobs=made))
        return [placed.id for placed in enqueued.jobs]

    async def claim(self, limit: int = 1, worker: str = WORKER, **about: Any) -> list[ClaimedJob]:
        """Lease jobs."""
        return (await self.claimed(limit, worker, **about)).jobs

    async def claimed(self, limit: int = 1, worker: str = WORKER, **about: Any) -> Claimed:
        """The whole answer to a claim."""
        claim = Claim(database=self.database, worker=worker, limit=limit, **about)
        claimed: Claimed = await self.log.run(claim)
        return claimed

    async def take(self, worker: str = WORKER, **about: Any) -> ClaimedJob:
        """Lease one job that must be there."""
        (job,) = await self.claim(1, worker, **about)
        return job

    async def names(self, limit: int = 100, worker: str = WORKER, **about: Any) -> list[str]:
        """The ids of what a claim gets."""
        return [job.id for job in await self.claim(limit, worker, **about)]

    async def settle(
        self, *jobs: ClaimedJob, outcome: JobOutcome = JobOutcome.COMPLETED, worker: str = WORKER, **about: Any
    ) -> list[JobState | None]:
        """Say the same of jobs."""
        reports = [JobReport(number=job.number, token=job.token, outcome=outcome, **about) for job in jobs]
        settled: Settled = await self.log.run(Settle(database=self.database, worker=worker, reports=reports))
        return settled.states

    async def fail(self, job: ClaimedJob, error: str = "no", **about: Any) -> JobState | None:
        """Report one job as failed."""
        (state,) = await self.settle(job, outcome=JobOutcome.FAILED, error=error, **about)
        return state

    async def beat(self, worker: str = WORKER, **about: Any) -> Any:
        """Keep a worker's lease."""
        return await self.log.run(Heartbeat(database=self.database, worker=worker, **about))

    async def change(self, operation: Any) -> list[str]:
        """An operation that changes jobs; which ones."""
        changed: Changed = await self.log.run(operation)
        return changed.ids

    async def job(self, id: str) -> JobStatus:
        """A job that must be there."""
        job = await self.log.store.ask(FindJob(self.database, id))
        assert job is not None, id
        return job

    async def state(self, id: str) -> JobState:
        """The state of a job that must be there."""
        return (await self.job(id)).state

    async def counts(self) -> dict[str, int]:
        """How many jobs are in which state, over all queues."""
        found: dict[str, int] = {}
        for queue in await self.log.store.ask(ListJobQueues(self.database)):
            for state, count in queue.counts.items():
                found[state.value] = found.get(state.value, 0) + count
        return found
