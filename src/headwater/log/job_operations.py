"""Everything that can be asked of jobs, as plain data, and what is answered. See `operations.py` for the rest.

Workers claim and settle many jobs with one operation; whatever changes the state of a job is one statement for all of
them, and one segment of the log.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from headwater.clock import Timestamp
from headwater.log.operations import Operation
from headwater.model.job import QUEUE_DEFAULT, SHELL, JobNumber, JobOutcome, JobState, Work
from headwater.model.job_policy import JobPolicy


class NewJob(JobPolicy, frozen=True, kw_only=True, gc=False):
    """A job as it is handed in. What it does not say of how it is run, its function and its queue do.

    `depends_on` names jobs that must complete first (with `depends_when="finished"`: end, whatever the outcome).
    `unique_key` keeps a second job with the same key out while the first is unfinished, and for `unique_seconds`.
    At most `concurrency_limit` jobs of a `concurrency_key` run at once, one unless more is said; of different limits
    the last one holds. Jobs of one `limit_key` take turns with those of others, and come under the limits that their
    type has for each key.
    """

    id: str = ""
    type: str = SHELL
    command: str = ""
    argv: tuple[str, ...] = ()
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    env: dict[str, str] = msgspec.field(default_factory=dict)
    cwd: str = ""
    run_at: Timestamp | None = None
    depends_on: tuple[str, ...] = ()
    depends_when: str = "completed"
    batch: str = ""


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Where one job of an `Enqueue` is; `duplicate` when one with its unique key was there and it was left out."""

    id: str
    state: JobState
    duplicate: bool = False


class Enqueued(msgspec.Struct, frozen=True):
    """The jobs in the order in which they were handed in."""

    jobs: list[Placed]


class Enqueue(Operation[Enqueued], frozen=True, kw_only=True):
    """Add jobs: all of them, or none."""

    jobs: Sequence[NewJob]


class ClaimedJob(msgspec.Struct, frozen=True, gc=False):
    """A job as its worker gets it. `results` are those of the jobs it depended on, by id."""

    number: JobNumber
    id: str
    queue: str
    type: str
    token: int
    attempt: int
    attempts_max: int
    work: Work
    results: dict[str, msgspec.Raw] | None = None
    previous_error: str = ""


class Claimed(msgspec.Struct, frozen=True):
    """What a claim got; `ready_at` says when something that is known now may become free, when there is less.

    Not `alive`: the worker's lease had run out, and what it held before belongs to others. `unknown` are types of
    functions that were met on the way and left to others.
    """

    jobs: list[ClaimedJob] = []
    ready_at: Timestamp | None = None
    stopping: bool = False
    alive: bool = True
    unknown: list[str] = []


class Capacity(msgspec.Struct, frozen=True):
    """How many jobs a worker runs at once, and which functions it runs one by one."""

    jobs: int
    one_by_one: frozenset[str] = frozenset()


class Claim(Operation[Claimed], frozen=True, kw_only=True):
    """Lease jobs to a worker, the most urgent and then the oldest first. No queues means: all of the database.

    The worker's own lease is renewed with it. Who holds no live lease any more gets a new one: what it held is gone.
    `functions` are the types of functions that the worker has; None: it has all. Others are left to other workers.
    `limit` may be more than the worker can run at once; `capacity` keeps it from holding places of limits meanwhile.
    """

    worker: str
    queues: Sequence[str] = ()
    limit: int = 1
    lease_seconds: float = 30.0
    functions: frozenset[str] | None = None
    capacity: Capacity | None = None


class JobReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a worker says of one job. `after_seconds` overrules the back-off, or says how long a job is snoozed."""

    number: JobNumber
    token: int
    outcome: JobOutcome
    result: str | None = None
    error: str = ""
    after_seconds: float | None = None
    output: str = ""
    exit_code: int | None = None
    duration_seconds: float | None = None
    memory_bytes: int | None = None
    progress: str | None = None


class Settled(msgspec.Struct, frozen=True):
    """The state that each reported job has now; None where the report came too late: the lease was lost."""

    states: list[JobState | None]


class Settle(Operation[Settled], frozen=True, kw_only=True):
    """Reports of one worker, each taken or refused on its own."""

    worker: str
    reports: Sequence[JobReport]


class Note(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far a running job is: progress as JSON, or its output so far."""

    number: JobNumber
    token: int
    progress: str | None = None
    output: str | None = None


class Beat(msgspec.Struct, frozen=True):
    """Whether the lease was still alive, whether the worker is asked to stop, and which of its jobs are cancelled."""

    alive: bool
    stopping: bool = False
    cancelled: list[JobNumber] = []


class Heartbeat(Operation[Beat], frozen=True, kw_only=True):
    """A worker is alive: keep its lease, take its notes, tell it what it should know."""

    worker: str
    lease_seconds: float = 30.0
    about: "WorkerAbout | None" = None
    notes: Sequence[Note] = ()


class WorkerAbout(msgspec.Struct, frozen=True, kw_only=True):
    """Who a worker is."""

    host: str = ""
    pid: int = 0
    supervisor: str = ""
    queues: tuple[str, ...] = ()
    concurrency: int = 1


class Changed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The jobs that were changed. Those among them that ran and are to be cancelled are `asked_to_stop`: what becomes
    of them, their worker will say. `passed_over` were chosen and not retried, because another unfinished job has their
    unique key, `orphaned` because one that they depend on was dropped. `kept` were chosen and not dropped, because a
    job that may still run depends on them; `cancelled` says how many waited for those that were dropped."""

    ids: list[str]
    passed_over: list[str] = []
    asked_to_stop: list[str] = []
    kept: list[str] = []
    orphaned: list[str] = []
    cancelled: int = 0


class Depart(Operation[Changed], frozen=True, kw_only=True):
    """A worker is gone. In good order it has settled everything; otherwise what it held counts as a lost attempt."""

    worker: str
    reason: str = ""


class StopWorkers(Operation[Changed], frozen=True, kw_only=True):
    """Ask workers to finish what they run and end; all of the database when none are named."""

    workers: Sequence[str] | None = None


class Rescue(Operation[Changed], frozen=True, kw_only=True):
    """Take jobs back from workers whose lease ran out, in every database."""


class Swept(msgspec.Struct, frozen=True):
    """How many lanes were forgotten, and the last one that was looked at, 0 at the end."""

    dropped: int
    through: int


class SweepLanes(Operation[Swept], frozen=True, kw_only=True):
    """Forget lanes of keys that are empty and idle, among the next `limit` lanes `after` one."""

    after: int = 0
    limit: int = 500


class Prune(Operation[Changed], frozen=True, kw_only=True):
    """Forget results whose time is over, and jobs that ended longer ago than their database keeps them."""

    limit: int = 1_000


class ChooseJobs(Operation[Changed], frozen=True, kw_only=True):
    """What operations on chosen jobs have: ids, or a filter when there are none. With `skip_unfit`, jobs among the ids
    that have moved on meanwhile are left alone; without it, one of them is an error and nothing is changed."""

    ids: Sequence[str] = ()
    state: JobState | None = None
    queue: str = ""
    type: str = ""
    error: str = ""
    limit: int = 1_000
    skip_unfit: bool = False


class CancelJobs(ChooseJobs, frozen=True, kw_only=True):
    """Cancel jobs that have not ended. Those that run are ended by their worker."""


class RetryJobs(ChooseJobs, frozen=True, kw_only=True):
    """Give jobs that failed, died or were cancelled all their attempts again, from now on. One whose unique key another
    unfinished job has, or that depends on one which was dropped, is an error by its id, and passed over with
    `skip_unfit` or by a filter."""


class DropJobs(ChooseJobs, frozen=True, kw_only=True):
    """Forget jobs that have ended, with everything kept about them; with `before`, those that ended before it. What
    waits for one of them is cancelled. One whose end another goes by that may still run (it is unfinished or dead) is
    an error by its id, and kept with `skip_unfit` or by a filter."""

    before: Timestamp | None = None


class SetJobConfig(Operation[Changed], frozen=True, kw_only=True):
    """Remember a setting for the database, or for one queue; None forgets it."""

    name: str
    value: Any
    queue: str = ""


class PauseJobs(Operation[Changed], frozen=True, kw_only=True):
    """Hand out no more jobs of a queue, or hand them out again."""

    queue: str
    paused: bool


class Limited(msgspec.Struct, frozen=True):
    """How many unfinished jobs the limit holds for now, and whether there was one before."""

    jobs: int
    was_limited: bool = False


class SetJobLimit(Operation[Limited], frozen=True, kw_only=True):
    """Limit one type of job in one queue: `rate` per `seconds`, with a burst, and how many may run at once.

    What is None stays as it was, and 0 is no limit. With `each_key`, it holds for the jobs of each limit key on their
    own. `clear` lifts all limits of the type.
    """

    queue: str = QUEUE_DEFAULT
    type: str
    rate: float | None = None
    seconds: float = 1.0
    burst: int = 1
    concurrency: int | None = None
    each_key: bool = False
    clear: bool = False


class RegisterTypes(Operation[Changed], frozen=True, kw_only=True):
    """Remember how functions are to be run, by type: it holds for jobs that are added from now on."""

    types: dict[str, JobPolicy]


class Scheduled(msgspec.Struct, frozen=True):
    """When the schedule enqueues next, None when it is paused or gone; and the job that was asked for now."""

    next_at: Timestamp | None
    id: str = ""


class PutSchedule(Operation[Scheduled], frozen=True, kw_only=True):
    """Enqueue a job again and again: by a cron line in a time zone, or every so many seconds. A schedule of this name
    keeps its next time unless these times are others, and stays paused."""

    name: str
    cron: str = ""
    every_seconds: float = 0.0
    timezone: str = "UTC"
    job: NewJob


class ChangeSchedule(Operation[Scheduled], frozen=True, kw_only=True):
    """Pause a schedule, let it go on, remove it, or `run` its job now, beside its times."""

    name: str
    paused: bool | None = None
    remove: bool = False
    run: bool = False


class Fired(msgspec.Struct, frozen=True):
    """The jobs that were enqueued, and when the next is due."""

    ids: list[str]
    next_at: Timestamp | None


class FireSchedules(Operation[Fired], frozen=True, kw_only=True):
    """Enqueue what is due, in every database."""
