"""What can be asked about jobs, as data, and what is answered."""

from collections.abc import Sequence

import msgspec

from headwater.clock import Timestamp
from headwater.log.job_operations import Capacity, NewJob, WorkerAbout
from headwater.model.job import JobState, Work
from headwater.model.job_policy import JobPolicy
from headwater.stores.questions import Question


class JobStatus(msgspec.Struct, frozen=True):
    """A job as it stands."""

    number: int
    id: str
    queue: str
    type: str
    state: JobState
    work: Work
    progress: msgspec.Raw | None
    result: msgspec.Raw | None
    priority: int
    attempts: int
    attempts_max: int
    token: int
    waits: int
    worker: str | None
    batch: str | None
    created_at: Timestamp
    changed_at: Timestamp
    run_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None
    error: str | None
    cancelling: bool = False


class JobAttempt(msgspec.Struct, frozen=True):
    """One attempt at a job that had something to say; `finished_at` is None while it runs."""

    attempt: int
    token: int
    worker: str
    started_at: Timestamp | None
    finished_at: Timestamp | None
    outcome: str
    error: str
    exit_code: int | None
    duration_seconds: float | None
    memory_bytes: int | None
    output: str


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list."""

    queue: str = ""
    state: JobState | None = None
    type: str = ""
    batch: str = ""
    error: str = ""
    limit: int = 100


class JobQueueStatus(msgspec.Struct, frozen=True):
    """A job queue with how many jobs are in which state."""

    queue: str
    paused: bool
    counts: dict[JobState, int]


class JobMinute(msgspec.Struct, frozen=True):
    """What was done in one queue in one minute."""

    queue: str
    begins_at: Timestamp
    enqueued: int
    completed: int
    failed: int
    dead: int
    run_micros: int


class WorkerStatus(msgspec.Struct, frozen=True):
    """A worker with how many jobs it holds."""

    id: str
    about: WorkerAbout
    started_at: Timestamp
    seen_at: Timestamp
    lease_until: Timestamp
    stopping: bool
    held: int


class ScheduleStatus(msgspec.Struct, frozen=True):
    """A schedule, when it comes next and what it did last."""

    name: str
    cron: str
    every_seconds: float
    timezone: str
    job: NewJob
    paused: bool
    created_at: Timestamp
    next_at: Timestamp | None
    last_at: Timestamp | None
    last_id: str | None


class JobLimitStatus(msgspec.Struct, frozen=True):
    """The limit of one type of job in one queue, or of each limit key in it, and how many of the type run."""

    queue: str
    type: str
    rate: float
    seconds: float
    burst: int
    concurrency: int
    running: int
    each_key: bool = False


class JobSettingStatus(msgspec.Struct, frozen=True):
    """A setting that was set; queue '' is the whole database."""

    queue: str
    name: str
    value: int | float


class FindJob(Question[JobStatus | None], frozen=True):
    """One job, None when there is none of this id."""

    database: str
    id: str


class FindJobStates(Question[dict[str, JobState]], frozen=True):
    """The states of those of the jobs that exist."""

    database: str
    ids: Sequence[str]


class FindJobsReady(Question[Timestamp | None], frozen=True):
    """When a claim on these queues (none: all) could get something: `now`, a later time, or None for nobody knows.

    Without functions it is asked for every job, with them for commands and those functions. Asked whenever jobs change.
    For a worker whose capacity is told, what it may not have of limits is as good as not there.
    """

    database: str
    queues: Sequence[str]
    now: Timestamp
    functions: frozenset[str] | None = None
    worker: str = ""
    capacity: Capacity | None = None


class ListJobs(Question[list[JobStatus]], frozen=True):
    """Jobs by queue, state, type or batch: those that ended last first, others as they would run."""

    database: str
    chosen: JobFilter


class ListJobAttempts(Question[list[JobAttempt]], frozen=True):
    """What is known of a job's attempts, oldest first."""

    database: str
    id: str


class ListJobDependencies(Question[list[tuple[str, JobState]]], frozen=True):
    """The jobs that a job depends on, with their states."""

    database: str
    id: str


class ListJobQueues(Question[list[JobQueueStatus]], frozen=True):
    """The job queues of a database with how many jobs are in which state."""

    database: str


class ListJobMinutes(Question[list[JobMinute]], frozen=True):
    """What was done in each minute since then."""

    database: str
    since: Timestamp


class ListJobConfig(Question[list[JobSettingStatus]], frozen=True):
    """Settings that were set, of the database and of its queues."""

    database: str


class ListJobLimits(Question[list[JobLimitStatus]], frozen=True):
    """The limits of types of jobs."""

    database: str


class ListJobTypes(Question[dict[str, JobPolicy]], frozen=True):
    """How the functions that apps and workers have registered are run, by type."""

    database: str


class ListWorkers(Question[list[WorkerStatus]], frozen=True):
    """The workers of a database."""

    database: str


class ListSchedules(Question[list[ScheduleStatus]], frozen=True):
    """The schedules of a database."""

    database: str
