"""What the routes of jobs take and ask, and what they answer where it is not a job itself.

What narrows down which jobs or workers are meant is left out where all are: said and empty it is refused, as a variable
that nobody filled.
"""

from typing import Any

import msgspec

from headwater.model.job import QUEUE_DEFAULT
from headwater.services.job_documents import WrittenJobDocument


class AddJobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs to be added together; the same `key` again is answered as the first time."""

    jobs: list[WrittenJobDocument]
    key: str = ""


class JobNames(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs by id."""

    ids: list[str]


class JobsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list."""

    state: str | None = None
    queue: str | None = None
    type: str | None = None
    batch: str | None = None
    error: str | None = None
    limit: int = 100


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait."""

    seconds: float = 30.0


class StatsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How far to look back."""

    hours: float = 1.0


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which changes to follow; all when no id is given."""

    id: str | None = None


class CleanUp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs that ended in `state` more than so many seconds ago."""

    older_than: float
    state: str = "completed"
    queue: str | None = None


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting, of the database or of one queue; null forgets it."""

    value: Any = None
    queue: str | None = None


class LimitType(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one type of job in one queue, or of each limit key in it; what is left out stays, 0 is no limit."""

    type: str
    queue: str = QUEUE_DEFAULT
    rate: float | None = None
    per: float = 1.0
    burst: int = 1
    concurrency: int | None = None
    each_key: bool = False


class AddSchedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that comes again and again."""

    job: WrittenJobDocument
    cron: str = ""
    every: float = 0.0
    timezone: str = "UTC"


class StopNames(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Workers by id; all when none are said."""

    ids: list[str] | None = None


# ── what is answered ──


class AddedJob(msgspec.Struct, frozen=True):
    """A job that was added; `duplicate` when one with its unique key was there already."""

    id: str
    duplicate: bool


class ChangedNames(msgspec.Struct, frozen=True):
    """Those that were changed."""

    ids: list[str]


class DroppedNames(msgspec.Struct, frozen=True, omit_defaults=True):
    """Those that were forgotten, and how many are cancelled because they waited for one of them."""

    ids: list[str]
    cancelled: int = 0


class Dropped(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many jobs were forgotten, how many are kept because a job that may still run depends on them, and how many
    are cancelled because they waited for one that was forgotten."""

    dropped: int
    kept: int = 0
    cancelled: int = 0


class QueuePaused(msgspec.Struct, frozen=True):
    """Whether a queue rests now."""

    queue: str
    paused: bool


class LimitedJobs(msgspec.Struct, frozen=True):
    """How many waiting jobs come under a limit now."""

    jobs: int


class LimitLifted(msgspec.Struct, frozen=True):
    """Whether there was a limit."""

    type: str
    queue: str
    lifted: bool


class LimitQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Whose limit."""

    type: str
    queue: str = QUEUE_DEFAULT


class RanJob(msgspec.Struct, frozen=True):
    """The job that was enqueued."""

    id: str


class SettingNow(msgspec.Struct, frozen=True):
    """A setting as it holds now."""

    name: str
    value: int | float


class ScheduleRemoved(msgspec.Struct, frozen=True):
    """A schedule is gone."""

    name: str
    removed: bool
