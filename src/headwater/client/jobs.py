"""Serves the jobs of the faces from afar: their operations become requests of `/v1/jobs`, their questions too."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import urlencode

import msgspec

from headwater.client.exchange import Exchange, decoder_of, encode
from headwater.clock import Clock
from headwater.config import Config, Durability
from headwater.errors import JobMissing, QueueMissing
from headwater.log.job_operations import (
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
from headwater.log.operations import Operation, result_type
from headwater.model.job import FINISHED, JobState
from headwater.services.job_requests import JobAnswer, JobSetting, ScheduleAnswer, schedule_of, status_of
from headwater.stores.job_questions import (
    FindJob,
    JobStatus,
    ListJobAttempts,
    ListJobConfig,
    ListJobDependencies,
    ListJobLimits,
    ListJobMinutes,
    ListJobQueues,
    ListJobs,
    ListJobTypes,
    ListSchedules,
    ListWorkers,
)
from headwater.stores.questions import Answer, Question, answer_type

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


# Questions whose answers come as they are.
_asked: dict[type[Question[Any]], str] = {
    ListJobAttempts: "attempts",
    ListJobDependencies: "dependencies",
    ListJobQueues: "queues",
    ListJobMinutes: "minutes",
    ListJobLimits: "limits",
    ListJobTypes: "types",
    ListWorkers: "workers",
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
        kind = result_type(type(operation))
        with jobs_missing():
            return await self._exchange.ask("POST", path, encode(fields), decoder_of(kind))


class RemoteJobQuestions:
    """What can be asked about jobs."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def ask(self, question: Question[Answer]) -> Answer:
        """What the server answers to a question about jobs."""
        return cast(Answer, await self._ask(question))

    async def _ask(self, question: Question[Any]) -> Any:
        if isinstance(question, FindJob):
            return await self._job(question)
        if isinstance(question, ListJobs):
            fields = {name: value or "" for name, value in msgspec.structs.asdict(question.chosen).items()}
            return [status_of(job) for job in await self._get("list", list[JobAnswer], fields)]
        if isinstance(question, ListSchedules):
            return [schedule_of(one) for one in await self._get("schedules", list[ScheduleAnswer])]
        if isinstance(question, ListJobConfig):
            found = await self._get("config", list[JobSetting])
            return {(setting.queue, setting.name): setting.value for setting in found}
        fields = msgspec.structs.asdict(question)
        del fields["database"]
        return await self._get(_asked[type(question)], answer_type(type(question)), fields)

    async def _job(self, question: FindJob) -> JobStatus | None:
        try:
            return status_of(await self._get("show", JobAnswer, {"id": question.id}))
        except JobMissing:
            return None

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
