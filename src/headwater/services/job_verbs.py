"""What `Jobs` asks of whoever serves it: the jobs of an open store, or of a server over HTTP."""

from typing import Any, Protocol

from headwater.clock import Clock, Timestamp
from headwater.config import Config, Durability
from headwater.log.operations import Operation
from headwater.model.job import JobState
from headwater.stores.contract import (
    JobAttempt,
    JobFilter,
    JobLimitStatus,
    JobMinute,
    JobQueueStatus,
    JobStatus,
    ScheduleStatus,
    WorkerStatus,
)


class JobQuestions(Protocol):
    """What can be asked about jobs. A store answers it, and so does a server."""

    async def job(self, database: str, id: str) -> JobStatus | None:
        """One job, None when there is none of this id."""
        ...

    async def jobs(self, database: str, chosen: JobFilter) -> list[JobStatus]:
        """Jobs by state, queue, type or batch."""
        ...

    async def job_attempts(self, database: str, id: str) -> list[JobAttempt]:
        """What is known of a job's attempts, oldest first."""
        ...

    async def job_dependencies(self, database: str, id: str) -> list[tuple[str, JobState]]:
        """The jobs that a job depends on, with their states."""
        ...

    async def job_queues(self, database: str) -> list[JobQueueStatus]:
        """The job queues with how many jobs are in which state."""
        ...

    async def job_minutes(self, database: str, since: Timestamp) -> list[JobMinute]:
        """What was done in each minute from a time on."""
        ...

    async def job_config(self, database: str) -> dict[tuple[str, str], Any]:
        """Settings that were set, by (queue, name); queue '' is the whole database."""
        ...

    async def job_limits(self, database: str) -> list[JobLimitStatus]:
        """The limits of types of jobs."""
        ...

    async def workers(self, database: str) -> list[WorkerStatus]:
        """The workers."""
        ...

    async def schedules(self, database: str) -> list[ScheduleStatus]:
        """The schedules."""
        ...


class Waiting(Protocol):
    """Waits for jobs to end."""

    async def wait(self, database: str, name: str, timeout_seconds: float | None = None) -> JobState:
        """The state in which a job ended; TimeoutError when it has not in that time."""
        ...


class JobVerbs(Protocol):
    """Takes operations on jobs, answers questions about them, and waits for them."""

    @property
    def store(self) -> JobQuestions:
        """Answers questions."""
        ...

    @property
    def waits(self) -> Waiting:
        """Waits."""
        ...

    @property
    def clock(self) -> Clock:
        """The time where the jobs are."""
        ...

    @property
    def config(self) -> Config:
        """The bounds."""
        ...

    async def run(self, operation: Operation, durability: Durability | None = None) -> Any:
        """One operation, and what it came to."""
        ...
