"""Jobs as JSON: what people and programs write to add one, and what they read of it. The same on every door."""

from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import structs

from headwater.clock import SECOND
from headwater.errors import InvalidInput
from headwater.log.job_operations import NewJob
from headwater.model.job import QUEUE_DEFAULT, SHELL, JobState, runs_command
from headwater.model.job_policy import JobPolicy
from headwater.model.json_names import check_names
from headwater.services.job_options import with_options
from headwater.stores.job_questions import (
    JobAttempt,
    JobLimitStatus,
    JobMinute,
    JobQueueStatus,
    JobStatus,
    ScheduleStatus,
    WorkerStatus,
)


class NewJobDocument(JobPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to be added: `{"id": "job1", "command": "sleep 2"}`. Times are ISO 8601, lengths of time seconds.

    `max_retries`, `delay_seconds`, `timeout_seconds`, `backoff_max_seconds` and `result_seconds` are older names of
    `retries`, `delay`, `timeout`, `backoff_max` and `result_ttl`.
    """

    id: str = ""
    command: str = ""
    argv: tuple[str, ...] = ()
    type: str = SHELL
    args: list[Any] = msgspec.field(default_factory=list)
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    env: dict[str, str] = msgspec.field(default_factory=dict)
    cwd: str = ""
    run_at: str | None = None
    depends_on: tuple[str, ...] = ()
    depends_when: str = "completed"
    batch: str = ""
    max_retries: int | None = None
    delay_seconds: float | None = None
    timeout_seconds: float | None = None
    backoff_max_seconds: float | None = None
    result_seconds: float | None = None


# Left out, it says nothing: what is empty is refused, so it cannot be what stands for that.
Said = Annotated[str, msgspec.Meta(min_length=1)] | msgspec.UnsetType
SaidList = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | msgspec.UnsetType


class WrittenJobDocument(NewJobDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as people and their scripts write it: what is there and empty, as by a variable that is not set, was meant
    to say something, and is not guessed at."""

    id: Said = msgspec.UNSET  # type: ignore[assignment]
    command: Said = msgspec.UNSET  # type: ignore[assignment]
    argv: SaidList = msgspec.UNSET  # type: ignore[assignment]
    type: Said = msgspec.UNSET  # type: ignore[assignment]
    queue: Said = msgspec.UNSET  # type: ignore[assignment]
    cwd: Said = msgspec.UNSET  # type: ignore[assignment]
    batch: Said = msgspec.UNSET  # type: ignore[assignment]
    unique_key: Said = msgspec.UNSET  # type: ignore[assignment]
    concurrency_key: Said = msgspec.UNSET  # type: ignore[assignment]
    limit_key: Said = msgspec.UNSET  # type: ignore[assignment]


_decoder = msgspec.json.Decoder(WrittenJobDocument)


def decode_job(text: bytes | str) -> NewJob:
    """A job from its JSON; an error says what is wrong with it."""
    try:
        document = _decoder.decode(text)
        check_names(text.encode() if isinstance(text, str) else text)
        return job_of(document)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidInput(f"this is no job: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        example = '{"id": "job1", "command": "sleep 2"}'
        raise InvalidInput(f"a job is a JSON object like {example}; this is not JSON: {error}") from error


def job_of(document: NewJobDocument) -> NewJob:
    """The job that a document asks for."""
    given = {name: value for name, value in structs.asdict(document).items() if value is not msgspec.UNSET}
    said = {name: value for name, value in given.items() if value != getattr(_plain, name)}
    return with_options(None, said)


_plain = NewJobDocument()


# ── what is shown ──


class WorkDocument(TypedDict, total=False):
    """What a job does: a command, a list of words, or the arguments of a function. Of `env` the names alone."""

    command: str
    argv: list[str]
    arguments: msgspec.Raw
    env: list[str]
    cwd: str


class JobDocument(WorkDocument):
    """A job as it stands; `cancelling` while its worker is asked to stop it. `max_retries` is `retries`, for those who
    know it by that name."""

    id: str
    queue: str
    type: str
    state: str
    cancelling: bool
    priority: int
    attempts: int
    retries: int
    max_retries: int
    timeout: float | None
    created_at: str | None
    updated_at: str | None
    run_at: str | None
    started_at: str | None
    finished_at: str | None
    worker: str | None
    token: int
    batch: str | None
    progress: Any
    result: Any
    error: str | None


class AttemptDocument(TypedDict):
    """One attempt at a job."""

    attempt: int
    token: int
    worker: str
    outcome: str
    started_at: str | None
    finished_at: str | None
    exit_code: int | None
    duration_seconds: float | None
    memory_bytes: int | None
    error: str | None
    output: str


class DependencyDocument(TypedDict):
    """A job that another one waits for, and how it stands."""

    id: str
    state: str


class FullJobDocument(JobDocument):
    """Everything that is known of a job."""

    attempt_list: list[AttemptDocument]
    depends_on: list[DependencyDocument]


class JobQueueDocument(TypedDict):
    """A job queue with how many jobs are in which state."""

    queue: str
    paused: bool
    pending: int
    scheduled: int
    waiting: int
    processing: int
    completed: int
    failed: int
    dead: int
    cancelled: int


class WorkerDocument(TypedDict):
    """A worker, and how many jobs it holds."""

    id: str
    host: str
    pid: int
    supervisor: str
    queues: list[str]
    concurrency: int
    jobs: int
    stopping: bool
    started_at: str | None
    seen_at: str | None
    lease_until: str | None


class ScheduleDocument(TypedDict):
    """A schedule; of its job only what differs from any other."""

    name: str
    cron: str | None
    every_seconds: float | None
    timezone: str
    job: dict[str, Any]
    paused: bool
    next_at: str | None
    last_at: str | None
    last_id: str | None


class LimitDocument(TypedDict):
    """The limits of a type in a queue, or of each limit key in it; 0 is no limit."""

    type: str
    queue: str
    each_key: bool
    rate: float
    per: float
    burst: int
    concurrency: int
    running: int


class MinuteDocument(TypedDict):
    """What was done in one minute."""

    queue: str
    minute: str | None
    enqueued: int
    completed: int
    failed: int
    dead: int
    run_seconds: float


def job_document(job: JobStatus) -> JobDocument:
    """A job for programs."""
    return {
        "id": job.id,
        "queue": job.queue,
        "type": job.type,
        **_work(job),
        "state": job.state.value,
        "cancelling": job.cancelling,
        "priority": job.priority,
        "attempts": job.attempts,
        "retries": job.attempts_max - 1,
        "max_retries": job.attempts_max - 1,
        "timeout": job.work.timeout_seconds,
        "created_at": show_time(job.created_at),
        "updated_at": show_time(job.changed_at),
        "run_at": show_time(job.run_at),
        "started_at": show_time(job.started_at),
        "finished_at": show_time(job.finished_at),
        "worker": job.worker,
        "token": job.token,
        "batch": job.batch,
        "progress": job.progress,
        "result": job.result,
        "error": job.error,
    }


def _work(job: JobStatus) -> WorkDocument:
    if not runs_command(job.type):
        return {"arguments": job.work.arguments}
    shown: WorkDocument = {"argv": list(job.work.argv)} if job.work.argv else {"command": job.work.command}
    if job.work.env:
        shown["env"] = sorted(job.work.env)
    if job.work.cwd:
        shown["cwd"] = job.work.cwd
    return shown


def describe_work(job: JobStatus) -> str:
    """What a job does, in one line."""
    if not runs_command(job.type):
        return job.type
    return " ".join((job.work.command or " ".join(job.work.argv)).split())


def attempt_document(attempt: JobAttempt) -> AttemptDocument:
    """An attempt for programs."""
    return {
        "attempt": attempt.attempt,
        "token": attempt.token,
        "worker": attempt.worker,
        "outcome": attempt.outcome,
        "started_at": show_time(attempt.started_at),
        "finished_at": show_time(attempt.finished_at),
        "exit_code": attempt.exit_code,
        "duration_seconds": attempt.duration_seconds,
        "memory_bytes": attempt.memory_bytes,
        "error": attempt.error or None,
        "output": attempt.output,
    }


def queue_document(queue: JobQueueStatus) -> JobQueueDocument:
    """A job queue for programs."""
    count = queue.counts.get
    return {
        "queue": queue.queue,
        "paused": queue.paused,
        "pending": count(JobState.PENDING, 0),
        "scheduled": count(JobState.SCHEDULED, 0),
        "waiting": count(JobState.WAITING, 0),
        "processing": count(JobState.PROCESSING, 0),
        "completed": count(JobState.COMPLETED, 0),
        "failed": count(JobState.FAILED, 0),
        "dead": count(JobState.DEAD, 0),
        "cancelled": count(JobState.CANCELLED, 0),
    }


def worker_document(worker: WorkerStatus) -> WorkerDocument:
    """A worker for programs."""
    return {
        "id": worker.id,
        "host": worker.about.host,
        "pid": worker.about.pid,
        "supervisor": worker.about.supervisor,
        "queues": list(worker.about.queues),
        "concurrency": worker.about.concurrency,
        "jobs": worker.held,
        "stopping": worker.stopping,
        "started_at": show_time(worker.started_at),
        "seen_at": show_time(worker.seen_at),
        "lease_until": show_time(worker.lease_until),
    }


def schedule_document(schedule: ScheduleStatus) -> ScheduleDocument:
    """A schedule for programs."""
    plain = NewJob(queue=QUEUE_DEFAULT)
    job = {name: value for name, value in msgspec.structs.asdict(schedule.job).items() if value != getattr(plain, name)}
    if schedule.job.env:
        job["env"] = sorted(schedule.job.env)
    return {
        "name": schedule.name,
        "cron": schedule.cron or None,
        "every_seconds": schedule.every_seconds or None,
        "timezone": schedule.timezone,
        "job": job,
        "paused": schedule.paused,
        "next_at": show_time(schedule.next_at),
        "last_at": show_time(schedule.last_at),
        "last_id": schedule.last_id,
    }


def limit_document(limit: JobLimitStatus) -> LimitDocument:
    """A limit for programs."""
    return {
        "type": limit.type,
        "queue": limit.queue,
        "each_key": limit.each_key,
        "rate": limit.rate,
        "per": limit.seconds,
        "burst": limit.burst,
        "concurrency": limit.concurrency,
        "running": limit.running,
    }


def minute_document(minute: JobMinute) -> MinuteDocument:
    """A minute's work for programs."""
    return {
        "queue": minute.queue,
        "minute": show_time(minute.begins_at),
        "enqueued": minute.enqueued,
        "completed": minute.completed,
        "failed": minute.failed,
        "dead": minute.dead,
        "run_seconds": minute.run_micros / SECOND,
    }


def show_time(timestamp: int | None) -> str | None:
    """A time as programs read it."""
    if timestamp is None:
        return None
    at = datetime.fromtimestamp(timestamp / SECOND, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
