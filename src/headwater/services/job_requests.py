"""What our own client and our own routes say to each other about jobs; see `requests.py` for the rest."""

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, structs

from headwater.clock import Timestamp
from headwater.log.job_operations import NewJob
from headwater.model.job import JobState, Work
from headwater.model.job_policy import JobPolicy
from headwater.services.job_options import with_options
from headwater.services.requests import Asked, HandedJob, Number
from headwater.stores.job_questions import JobStatus, ScheduleStatus

NULL = Raw(b"null")


class AddJobsRequest(Asked, frozen=True, kw_only=True):
    """Jobs to be added, all of them or none."""

    jobs: list[HandedJob]


class ChooseJobsRequest(Asked, frozen=True, kw_only=True):
    """Jobs by their ids, or by state, queue, type and a part of their error; `before` is when they must have ended.

    With `skip_unfit`, jobs among the ids that have moved on meanwhile are left alone.
    """

    ids: tuple[str, ...] = ()
    state: JobState | None = None
    queue: str = ""
    type: str = ""
    error: str = ""
    limit: int = 1_000
    skip_unfit: bool = False
    before: Timestamp | None = None


class PauseJobsRequest(Asked, frozen=True, kw_only=True):
    """Whether a queue rests."""

    queue: str
    paused: bool


class LimitRequest(Asked, frozen=True, kw_only=True):
    """The limits of one type of job in one queue."""

    type: str
    queue: str
    rate: float | None = None
    seconds: float = 1.0
    burst: int = 1
    concurrency: int | None = None
    each_key: bool = False
    clear: bool = False


class SettingRequest(Asked, frozen=True, kw_only=True):
    """A setting of the database or of one queue; null forgets it."""

    name: str
    value: Any
    queue: str = ""


class RegisterRequest(Asked, frozen=True, kw_only=True):
    """How functions are run, by type."""

    types: dict[str, JobPolicy]


class ScheduleRequest(Asked, frozen=True, kw_only=True):
    """A job that comes again and again."""

    name: str
    job: HandedJob
    cron: str = ""
    every_seconds: float = 0.0
    timezone: str = "UTC"


class ChangeScheduleRequest(Asked, frozen=True, kw_only=True):
    """A schedule that rests, goes on, is removed, or enqueues its job now."""

    name: str
    paused: bool | None = None
    remove: bool = False
    run: bool = False


class StopWorkersRequest(Asked, frozen=True, kw_only=True):
    """Workers by id; all when there are none."""

    workers: tuple[str, ...] = ()


class FindJobsQuery(Struct, frozen=True, kw_only=True):
    """Which jobs to list."""

    state: str = ""
    queue: str = ""
    type: str = ""
    batch: str = ""
    error: str = ""
    limit: int = 100


class JobQuery(Struct, frozen=True, kw_only=True):
    """One job."""

    id: str


class WaitForJobQuery(Struct, frozen=True, kw_only=True):
    """One job, and how long to wait for its end."""

    id: str
    seconds: float = 0.0


class MinutesQuery(Struct, frozen=True, kw_only=True):
    """From when on."""

    since: Number = 0


class JobSetting(Struct, frozen=True):
    """A setting that was set; queue '' is the whole database."""

    queue: str
    name: str
    value: int | float


# ── answers ──


class ToldWork(Work, frozen=True, kw_only=True, omit_defaults=True):
    """What a job does; the arguments of a function stay out where there are none."""

    arguments: Raw | UnsetType = UNSET  # type: ignore[assignment]


class JobAnswer(JobStatus, frozen=True):
    """A job as it stands. Without a result its field is null, which is also what a function may return."""

    work: ToldWork
    # A field that is either raw or null could not be read back.
    progress: Raw
    result: Raw


class ScheduleAnswer(ScheduleStatus, frozen=True):
    """A schedule as it stands."""

    job: HandedJob


def status_of(answer: JobAnswer) -> JobStatus:
    """The job that a server told of."""
    fields = structs.asdict(answer)
    fields["work"] = Work(**_set(answer.work))
    for name in ("progress", "result"):
        fields[name] = None if fields[name] == NULL else fields[name]
    return JobStatus(**fields)


def schedule_of(answer: ScheduleAnswer) -> ScheduleStatus:
    """The schedule that a server told of."""
    return ScheduleStatus(**{**structs.asdict(answer), "job": new_job(answer.job)})


def new_job(handed: HandedJob) -> NewJob:
    """The job that was handed in."""
    said = {name: value for name, value in _set(handed).items() if value != getattr(_plain, name, None)}
    return with_options(None, said)


_plain = NewJob()


def _set(value: Struct) -> dict[str, Any]:
    return {name: given for name, given in structs.asdict(value).items() if given is not UNSET}
