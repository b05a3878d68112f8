"""Serves the jobs of the faces from afar: their operations become requests of `/v1/jobs`, their questions too."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from headwater.client.exchange import Exchange, decoder_of, encode
from headwater.clock import Clock, Timestamp
from headwater.config import Config, Durability
from headwater.errors import JobMissing, QueueMissing
from headwater.log.job_operations import (
    JOB_RESULT_TYPES,
    Cancel,
    ChangeSchedule,
    DropJobs,
    Enqueue,
    PauseJobs,
    PutSchedule,
    Rearm,
    RegisterTypes,
    SetJobConfig,
    SetJobLimit,
    StopWorkers,
)
from headwater.log.operations import Operation
from headwater.model.job import FINISHED, JobState
from headwater.model.job_policy import JobPolicy
from headwater.services.job_requests import JobAnswer, JobSetting, ScheduleAnswer, schedule_of, status_of
from headwater.stores.job_contract import (
    JobAttempt,
    JobFilter,
    JobLimitStatus,
    JobMinute,
    JobQueueStatus,
    JobStatus,
    ScheduleStatus,
    WorkerStatus,
)

# As with waiting pops: what stands between may hang up on a connection that is quiet for longer.
SLICE_SECONDS = 20.0

Result = TypeVar("Result")

_paths: dict[type[Operation], str] = {
    Enqueue: "add",
    Cancel: "cancel",
    Rearm: "retry",
    DropJobs: "drop",
    PauseJobs: "pause",
    SetJobLimit: "limit",
    SetJobConfig: "configure",
    RegisterTypes: "register",
    PutSchedule: "schedule",
    ChangeSchedule: "change-schedule",
    StopWorkers: "stop-workers",
}


@contextmanager
def jobs_missing() -> Iterator[None]:
    """What is not there is told in the same words for queues and jobs; here it is a job, or its queue or schedule."""
    try:
        yield
    except QueueMissing as error:
        raise JobMissing(str(error)) from error


class Known(Protocol):
    """What a client knows of its server, as of its last answer."""

    @property
    def config(self) -> Config:
        """The server's bounds."""
        ...

    @property
    def clock(self) -> Clock:
        """The server's time."""
        ...


class RemoteJobs:
    """The jobs that a server lets this client use. The database is that of the token, whatever is named."""

    def __init__(self, exchange: Exchange, keys: Iterator[str], known: Known) -> None:
        self._exchange = exchange
        self._keys = keys
        self._known = known
        self.store = RemoteJobQuestions(exchange)
        self.waits = RemoteJobWaits(exchange, known)

    @property
    def config(self) -> Config:
        """The server's bounds."""
        return self._known.config

    @property
    def clock(self) -> Clock:
        """The server's time."""
        return self._known.clock

    async def run(self, operation: Operation, durability: Durability | None = None) -> Any:
        """One operation, and what it came to."""
        fields = msgspec.structs.asdict(operation)
        del fields["database"]
        fields["key"] = operation.key or next(self._keys)
        path = f"/v1/jobs/{_paths[type(operation)]}"
        kind = JOB_RESULT_TYPES[type(operation)]
        with jobs_missing():
            return await self._exchange.ask("POST", path, encode(fields), decoder_of(kind))


class RemoteJobQuestions:
    """What can be asked about jobs."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def job(self, database: str, id: str) -> JobStatus | None:
        """One job, None when there is none of this id."""
        try:
            return status_of(await self._get("show", JobAnswer, {"id": id}))
        except JobMissing:
            return None

    async def jobs(self, database: str, chosen: JobFilter) -> list[JobStatus]:
        """Jobs by state, queue, type or batch."""
        fields = {name: value or "" for name, value in msgspec.structs.asdict(chosen).items()}
        return [status_of(job) for job in await self._get("list", list[JobAnswer], fields)]

    async def job_attempts(self, database: str, id: str) -> list[JobAttempt]:
        """What is known of a job's attempts, oldest first."""
        return await self._get("attempts", list[JobAttempt], {"id": id})

    async def job_dependencies(self, database: str, id: str) -> list[tuple[str, JobState]]:
        """The jobs that a job depends on, with their states."""
        return await self._get("dependencies", list[tuple[str, JobState]], {"id": id})

    async def job_queues(self, database: str) -> list[JobQueueStatus]:
        """The job queues with how many jobs are in which state."""
        return await self._get("queues", list[JobQueueStatus])

    async def job_minutes(self, database: str, since: Timestamp) -> list[JobMinute]:
        """What was done in each minute from a time on."""
        return await self._get("minutes", list[JobMinute], {"since": since})

    async def job_config(self, database: str) -> dict[tuple[str, str], Any]:
        """Settings that were set, by (queue, name)."""
        found = await self._get("config", list[JobSetting])
        return {(setting.queue, setting.name): setting.value for setting in found}

    async def job_limits(self, database: str) -> list[JobLimitStatus]:
        """The limits of types of jobs."""
        return await self._get("limits", list[JobLimitStatus])

    async def job_types(self, database: str) -> dict[str, JobPolicy]:
        """How registered functions are run, by type."""
        return await self._get("types", dict[str, JobPolicy])

    async def workers(self, database: str) -> list[WorkerStatus]:
        """The workers."""
        return await self._get("workers", list[WorkerStatus])

    async def schedules(self, database: str) -> list[ScheduleStatus]:
        """The schedules."""
        return [schedule_of(one) for one in await self._get("schedules", list[ScheduleAnswer])]

    async def _get(self, path: str, kind: type[Result], query: Mapping[str, object] | None = None) -> Result:
        target = f"/v1/jobs/{path}?{urlencode(query)}" if query else f"/v1/jobs/{path}"
        with jobs_missing():
            return await self._exchange.ask("GET", target, b"", decoder_of(kind))


class RemoteJobWaits:
    """Waiting for jobs to end, some seconds at a time."""

    def __init__(self, exchange: Exchange, known: Known) -> None:
        self._exchange = exchange
        self._known = known

    async def wait(self, database: str, name: str, timeout_seconds: float | None = None) -> JobState:
        """The state in which a job ended; TimeoutError when it has not in that time."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
        while True:
            left = SLICE_SECONDS if deadline is None else max(deadline - loop.time(), 0)
            seconds = min(left, SLICE_SECONDS, self._known.config.wait_seconds_max)
            target = f"/v1/jobs/wait?{urlencode({'id': name, 'seconds': f'{seconds:.6f}'})}"
            with jobs_missing():
                job = await self._exchange.ask("GET", target, b"", decoder_of(JobAnswer), wait_seconds=seconds)
            if job.state in FINISHED:
                return job.state
            if deadline is not None and loop.time() >= deadline:
                raise TimeoutError
