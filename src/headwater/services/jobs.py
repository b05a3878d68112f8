"""Jobs of one database, as people ask for them: checked, turned into operations, and answered.

>>> async with headwater.open("headwater.db") as hw:
...     job = await hw.jobs.add(command="sleep 2")
...     await job.wait()
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

import msgspec

from headwater.clock import SECOND, Clock, Timestamp
from headwater.config import Config, Durability
from headwater.errors import InvalidOption, JobMissing, JobUnsuccessful
from headwater.log.committer import Committer
from headwater.log.job_operations import (
    CancelJobs,
    Changed,
    ChangeSchedule,
    ChooseJobs,
    DropJobs,
    Enqueue,
    NewJob,
    PauseJobs,
    Placed,
    PutSchedule,
    RegisterTypes,
    RetryJobs,
    SetJobConfig,
    SetJobLimit,
    StopWorkers,
)
from headwater.log.operations import Operation, Result
from headwater.model.job import QUEUE_DEFAULT, JobState
from headwater.model.job_policy import JobPolicy
from headwater.model.job_settings import JOB_SETTINGS
from headwater.model.names import check_name
from headwater.services.admission import admit
from headwater.services.checks import check_limit, check_list, check_said_name, check_text
from headwater.services.follow import Followers
from headwater.services.job_checks import SECONDS_MAX, check_range
from headwater.services.job_options import JobOptions, Seconds, seconds_of, takes, with_options
from headwater.services.job_verbs import JobVerbs
from headwater.services.job_waits import JobWaits
from headwater.stores.contract import Store
from headwater.stores.job_questions import (
    FindJob,
    JobAttempt,
    JobFilter,
    JobLimitStatus,
    JobMinute,
    JobQueueStatus,
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
    ScheduleStatus,
    WorkerStatus,
)

BITE = 1_000


class JobService:
    """What the jobs of all databases of an open store share."""

    def __init__(self, store: Store, committer: Committer, followers: Followers, clock: Clock, config: Config) -> None:
        self.store = store
        self.followers = followers
        self.clock = clock
        self.config = config
        self.waits = JobWaits(store, followers)
        self.committer = committer
        # From memory there is no answer yet, and callers need one.
        self._standing = Durability.WRITTEN if config.durability is Durability.MEMORY else config.durability

    async def run(self, operation: Operation[Result], durability: Durability | None = None) -> Result:
        """One operation, and what it came to."""
        return (await self.committer.submit(operation, durability or self._standing)).result


class DeclaredSchedule(msgspec.Struct, frozen=True):
    """A schedule that a program declares in its code."""

    name: str
    job: NewJob
    cron: str = ""
    every_seconds: float = 0.0
    timezone: str = "UTC"

    def is_kept(self, known: ScheduleStatus) -> bool:
        """Whether the store has it as it is declared; where its jobs go, the store may have filled in."""
        job = msgspec.structs.replace(self.job, queue=self.job.queue or known.job.queue)
        times = (known.cron, known.every_seconds, known.timezone)
        return (self.cron, self.every_seconds, self.timezone) == times and job == known.job


class DroppedJobs(msgspec.Struct, frozen=True):
    """How many jobs were forgotten, and how many of those that were meant are kept because a job that may still run
    depends on them: at most 1,000 of these are counted. `cancelled` waited for one of those that were forgotten."""

    dropped: int
    kept: int
    cancelled: int = 0


class JobHandle:
    """A job that was handed in: its id, and the way to its end."""

    __slots__ = ("_jobs", "duplicate", "id")

    def __init__(self, jobs: "Jobs", placed: Placed) -> None:
        self._jobs = jobs
        self.id = placed.id
        self.duplicate = placed.duplicate

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"

    async def wait(self, timeout_seconds: Seconds | None = None) -> JobState:
        """The state in which it ended; TimeoutError when it has not in that time."""
        return await self._jobs.wait(self.id, timeout_seconds)

    async def result(self, timeout_seconds: Seconds | None = None, *, type: Any = Any) -> Any:
        """What it returned; JobUnsuccessful when it died or was cancelled."""
        return await self._jobs.result(self.id, timeout_seconds, type=type)

    async def show(self) -> JobStatus:
        """The job as it stands."""
        return await self._jobs.show(self.id)

    async def cancel(self) -> None:
        """Cancel it."""
        await self._jobs.cancel(self.id)


class Jobs:
    """The jobs of one database."""

    def __init__(self, service: JobVerbs, database: str) -> None:
        self.service = service
        self.database = database

    # ── adding ──

    @takes(JobOptions)
    async def add(self, job: NewJob | None = None, /, **options: Unpack[JobOptions]) -> JobHandle:
        """Add one job: a `NewJob`, or its options. It is on stable storage when this returns.

        >>> await hw.jobs.add(command="sleep 2", id="job1", retries=5, timeout=timedelta(minutes=1))
        >>> await hw.jobs.add(type="tasks:send_email", kwargs={"to": "ada@example.org"})
        """
        return (await self.add_many([with_options(job, options)]))[0]

    async def add_many(self, jobs: Iterable[NewJob], *, idempotency_key: str = "") -> list[JobHandle]:
        """Add jobs in one transaction: all of them, or none."""
        listed = check_list("jobs", jobs)
        if not listed:
            return []
        enqueued = await self._run(Enqueue(database=self.database, key=idempotency_key, jobs=listed))
        return [JobHandle(self, placed) for placed in enqueued.jobs]

    async def add_batch(self, jobs: Iterable[NewJob], *, batch: str, callback: NewJob | None = None) -> list[JobHandle]:
        """Add jobs that belong together; `callback` runs when all of them have ended, whatever they came to."""
        check_name("batch", batch)
        members = []
        for place, job in enumerate(check_list("jobs", jobs)):
            members.append(msgspec.structs.replace(job, batch=batch, id=job.id or f"{batch}.{place}"))
        if callback is not None:
            ids = tuple(job.id for job in members)
            name = callback.id or f"{batch}.callback"
            members.append(msgspec.structs.replace(callback, id=name, depends_on=ids, depends_when="finished"))
        return await self.add_many(members)

    def check_all(self, jobs: Iterable[NewJob]) -> list[NewJob]:
        """Jobs that may be handed in together."""
        listed = check_list("jobs", jobs)
        return list(admit(Enqueue(jobs=listed), self.service.config).jobs) if listed else []

    # ── looking ──

    async def show(self, id: str) -> JobStatus:
        """One job; JobMissing when there is none."""
        job = await self.service.store.ask(FindJob(self.database, check_name("job", id)))
        if job is None:
            raise JobMissing(f"there is no job {id!r}")
        return job

    async def list(
        self,
        *,
        state: JobState | str | None = None,
        queue: str | None = None,
        type: str | None = None,
        batch: str | None = None,
        error: str = "",
        limit: int = 100,
    ) -> list[JobStatus]:
        """Jobs by state, queue, type, batch or a part of their error: those that ended last first, others as they
        would run."""
        chosen = JobFilter(
            queue=check_said_name("queue", queue),
            state=check_state(state),
            type=check_said_name("job type", type),
            batch=check_said_name("batch", batch),
            error=check_text("error", error),
            limit=check_limit(limit),
        )
        return await self.service.store.ask(ListJobs(self.database, chosen))

    async def attempts(self, id: str) -> Sequence[JobAttempt]:
        """What is known of a job's attempts, oldest first: those that failed, and those that printed."""
        return await self.service.store.ask(ListJobAttempts(self.database, check_name("job", id)))

    async def dependencies(self, id: str) -> Sequence[tuple[str, JobState]]:
        """The jobs that a job depends on, with their states."""
        return await self.service.store.ask(ListJobDependencies(self.database, check_name("job", id)))

    async def queues(self) -> Sequence[JobQueueStatus]:
        """The job queues with how many jobs are in which state."""
        return await self.service.store.ask(ListJobQueues(self.database))

    async def minutes(self, hours: float = 1.0) -> Sequence[JobMinute]:
        """What was done in each minute of the last hours."""
        check_range("hours", hours, 0, 24 * 365)
        since = Timestamp(max(self.service.clock.now() - int(hours * 3_600 * SECOND), 0))
        return await self.service.store.ask(ListJobMinutes(self.database, since))

    async def wait(self, id: str, timeout_seconds: Seconds | None = None) -> JobState:
        """The state in which a job ended; TimeoutError when it has not in that time."""
        seconds = None if timeout_seconds is None else seconds_of("timeout_seconds", timeout_seconds)
        return await self.service.waits.wait(self.database, check_name("job", id), seconds)

    async def result(self, id: str, timeout_seconds: Seconds | None = None, *, type: Any = Any) -> Any:
        """What a job returned, once it has completed; JobUnsuccessful when it ended in another way."""
        state = await self.wait(id, timeout_seconds)
        job = await self.show(id)
        if state is not JobState.COMPLETED:
            raise JobUnsuccessful(f"job {id} is {state}: {job.error or 'no reason was given'}", state.value)
        return None if job.result is None else msgspec.json.decode(job.result, type=type)

    # ── changing ──

    async def cancel(self, *ids: str, skip_unfit: bool = False) -> Sequence[str]:
        """Cancel jobs that have not ended. Those that run are asked to stop: their worker ends them, and until it has
        they are `cancelling` and still processing. `skip_unfit` leaves out those that have ended meanwhile."""
        return await self._change(CancelJobs(database=self.database, ids=named(ids), skip_unfit=skip_unfit))

    async def retry(self, *ids: str, skip_unfit: bool = False) -> Sequence[str]:
        """Give jobs that failed, died or were cancelled all their attempts again, from now on. JobUnfit when another
        unfinished job has the unique key of one, or a job that one depends on was dropped; `skip_unfit` leaves those
        out, and those that have moved on."""
        return await self._change(RetryJobs(database=self.database, ids=named(ids), skip_unfit=skip_unfit))

    async def retry_dead(
        self, *, queue: str | None = None, type: str | None = None, error: str = "", limit: int = BITE
    ) -> Sequence[str]:
        """Arm dead jobs again, `limit` at a time: of a queue, of a type, or with this in their error."""
        operation = RetryJobs(
            database=self.database,
            state=JobState.DEAD,
            queue=check_said_name("queue", queue),
            type=check_said_name("job type", type),
            error=error,
            limit=limit,
        )
        return await self._change(operation)

    async def change(self, operation: ChooseJobs) -> Changed:
        """Cancel, retry or drop jobs by an operation; everything that came of it, in the commit that did it."""
        return await self._run(operation)

    async def drop(self, *ids: str, skip_unfit: bool = False) -> Sequence[str]:
        """Forget jobs that have ended; what waits for one of them is cancelled. JobUnfit when a job that may still run
        (it is unfinished or dead) goes by the end of one; `skip_unfit` keeps those."""
        return await self._change(DropJobs(database=self.database, ids=named(ids), skip_unfit=skip_unfit))

    async def cleanup(
        self, *, older_than: Seconds = 0.0, state: JobState | str = JobState.COMPLETED, queue: str | None = None
    ) -> int:
        """Forget jobs that ended in `state` more than `older_than` seconds ago; how many. One whose end a job goes by
        that may still run is kept; what waits for one, because that is dead, is cancelled."""
        return (await self.drop_old(older_than=older_than, state=state, queue=queue)).dropped

    async def drop_old(
        self, *, older_than: Seconds = 0.0, state: JobState | str = JobState.COMPLETED, queue: str | None = None
    ) -> DroppedJobs:
        """The same as `cleanup`; how many were forgotten, kept for jobs that may still run, and cancelled with them."""
        seconds = seconds_of("older_than", older_than)
        check_range("older_than", seconds, 0, SECONDS_MAX)
        before = Timestamp(self.service.clock.now() - int(seconds * SECOND))
        name = check_said_name("queue", queue)
        chosen = DropJobs(database=self.database, state=check_state(state), queue=name, before=before, limit=BITE)
        dropped = cancelled = 0
        while (changed := await self._run(chosen)).ids:
            dropped += len(changed.ids)
            cancelled += changed.cancelled
        return DroppedJobs(dropped, len(changed.kept), cancelled)

    async def pause(self, queue: str = QUEUE_DEFAULT) -> None:
        """Hand out no more jobs of a queue. Those that run go on."""
        await self._change(PauseJobs(database=self.database, queue=queue, paused=True))

    async def resume(self, queue: str = QUEUE_DEFAULT) -> None:
        """Hand out the jobs of a queue again."""
        await self._change(PauseJobs(database=self.database, queue=queue, paused=False))

    async def limit(
        self,
        type: str,
        *,
        queue: str = QUEUE_DEFAULT,
        rate: float | None = None,
        per: Seconds = 1.0,
        burst: int = 1,
        concurrency: int | None = None,
        each_key: bool = False,
    ) -> int:
        """Limit one type of job in one queue: `rate` starts per `per` seconds, `concurrency` at once. What is not said
        stays as it was, and 0 is no limit. With `each_key` it holds for the jobs of each `limit_key` on their own.

        How many unfinished jobs it holds for now.
        """
        operation = SetJobLimit(
            database=self.database,
            queue=queue,
            type=type,
            rate=rate,
            seconds=seconds_of("per", per),
            burst=burst,
            concurrency=concurrency,
            each_key=each_key,
        )
        limited = await self._run(operation)
        return limited.jobs

    async def clear_limit(self, type: str, *, queue: str = QUEUE_DEFAULT) -> bool:
        """Lift the limits of a type in a queue; whether there were any."""
        limited = await self._run(SetJobLimit(database=self.database, queue=queue, type=type, clear=True))
        return limited.was_limited

    async def limits(self) -> Sequence[JobLimitStatus]:
        """The limits of types."""
        return await self.service.store.ask(ListJobLimits(self.database))

    # ── settings ──

    async def config(self, queue: str | None = None) -> dict[str, int | float]:
        """All settings as they hold for the database, or for one queue."""
        queue = check_said_name("queue", queue)
        settings = await self.service.store.ask(ListJobConfig(self.database))
        found = {(setting.queue, setting.name): setting.value for setting in settings}
        values: dict[str, int | float] = {}
        for name, setting in JOB_SETTINGS.items():
            standing = found.get(("", name), setting.default)
            values[name] = found.get((queue, name), standing) if queue else standing
        return values

    async def configure(self, name: str, value: object, *, queue: str | None = None) -> None:
        """Remember a setting, for jobs that are added and workers that are started from now on; None forgets it."""
        await self._run(
            SetJobConfig(database=self.database, queue=check_said_name("queue", queue), name=name, value=value)
        )

    # ── schedules ──

    @takes(JobOptions)
    async def schedule(
        self,
        name: str,
        job: NewJob | None = None,
        /,
        *,
        cron: str = "",
        every: Seconds = 0.0,
        timezone: str = "UTC",
        **options: Unpack[JobOptions],
    ) -> Timestamp | None:
        """Enqueue a job again and again, by a cron line or every so many seconds; when it does so next. A schedule that
        is there already keeps its next time, unless its times are others now, and its rest: None while it is paused."""
        operation = PutSchedule(
            database=self.database,
            name=name,
            cron=cron,
            every_seconds=seconds_of("every", every),
            timezone=timezone,
            job=with_options(job, options),
        )
        return (await self._run(operation)).next_at

    async def register(self, types: Mapping[str, JobPolicy]) -> Sequence[str]:
        """Let jobs of these types be run as their functions are declared, whoever adds them; which ones are new or
        changed."""
        known = await self.service.store.ask(ListJobTypes(self.database))
        news = {name: policy for name, policy in types.items() if known.get(name) != policy}
        if not news:
            return []
        return await self._change(RegisterTypes(database=self.database, types=news))

    async def types(self) -> Mapping[str, JobPolicy]:
        """How the functions that apps and workers have registered are run, by type."""
        return await self.service.store.ask(ListJobTypes(self.database))

    async def declare(self, declared: Iterable[DeclaredSchedule]) -> Sequence[str]:
        """Bring schedules up to date with what a program declares; which ones were new or had changed."""
        known = {schedule.name: schedule for schedule in await self.schedules()} if declared else {}
        changed = [one for one in declared if one.name not in known or not one.is_kept(known[one.name])]
        for one in changed:
            await self.schedule(one.name, one.job, cron=one.cron, every=one.every_seconds, timezone=one.timezone)
        return [one.name for one in changed]

    async def schedules(self) -> Sequence[ScheduleStatus]:
        """The schedules."""
        return await self.service.store.ask(ListSchedules(self.database))

    async def pause_schedule(self, name: str) -> None:
        """Let a schedule rest."""
        await self._change_schedule(name, paused=True)

    async def resume_schedule(self, name: str) -> None:
        """Let a schedule go on."""
        await self._change_schedule(name, paused=False)

    async def run_schedule(self, name: str) -> JobHandle:
        """Enqueue the job of a schedule now; its times stay what they are."""
        scheduled = await self._run(ChangeSchedule(database=self.database, name=name, run=True))
        return JobHandle(self, Placed(scheduled.id, JobState.PENDING))

    async def unschedule(self, name: str) -> None:
        """Remove a schedule."""
        await self._change_schedule(name, remove=True)

    # ── workers ──

    async def workers(self) -> Sequence[WorkerStatus]:
        """The workers of the database."""
        return await self.service.store.ask(ListWorkers(self.database))

    async def stop_workers(self, *ids: str) -> Sequence[str]:
        """Ask workers to finish what they run and end; all of them when none are named."""
        return await self._change(StopWorkers(database=self.database, workers=tuple(ids) or None))

    async def _change(self, operation: Operation[Changed]) -> Sequence[str]:
        changed = await self._run(operation)
        return changed.ids

    async def _run(self, operation: Operation[Result]) -> Result:
        """One operation that may be handed in, and what it came to."""
        return await self.service.run(admit(operation, self.service.config))

    async def _change_schedule(self, name: str, **change: Any) -> None:
        await self._run(ChangeSchedule(database=self.database, name=name, **change))


def named(ids: Sequence[str]) -> tuple[str, ...]:
    """The ids of jobs that somebody named; none at all would mean every job there is."""
    if not ids:
        raise InvalidOption("name at least one job")
    return tuple(ids)


def check_state(state: JobState | str | None) -> JobState | None:
    """A state by its name; '' and None are none."""
    if not state:
        return None
    try:
        return JobState(state)
    except ValueError:
        raise InvalidOption(f"no such state: {state!r:.80}; there are {', '.join(JobState)}") from None
