"""Questions about jobs, answered from the reading connection.

Every answer about jobs and schedules is made here, so this is where the values of their environments stay behind: they
may be secrets, and only the worker that runs the job gets them, with its claim.
"""

from typing import NamedTuple

import msgspec

from headwater.clock import Timestamp
from headwater.log.job_operations import NewJob, WorkerAbout
from headwater.model.job import QUEUE_DEFAULT, JobState, Work, hidden_values
from headwater.model.job_policy import JobPolicy
from headwater.stores.job_questions import (
    FindJob,
    FindJobStates,
    JobAttempt,
    JobFilter,
    JobLimitStatus,
    JobMinute,
    JobQueueStatus,
    JobSettingStatus,
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
from headwater.stores.tables.connection import Columns, Connection
from headwater.stores.tables.job_queues import JobQueueRow, SettingRow
from headwater.stores.tables.job_rows import JobRow, decode_work, lists_of
from headwater.stores.tables.job_types import PolicyRow
from headwater.stores.tables.subject import Answering, SubjectAnswers


class JobStatusRow(NamedTuple):
    """A job as lists show it."""

    number: int
    id: str
    queue: str
    type: str
    state: str
    work: str
    progress: str | None
    result: str | None
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
    cancelling: int


class ScheduleRow(NamedTuple):
    """A schedule as lists show it."""

    name: str
    cron: str
    every_seconds: float
    timezone: str
    job: str
    paused: int
    created_at: Timestamp
    next_at: Timestamp | None
    last_at: Timestamp | None
    last_id: str | None


# Attempt, token, worker, begin, end, outcome, error, exit code, seconds, bytes of memory, output.
AttemptRow = tuple[
    int, int, str, Timestamp | None, Timestamp | None, str, str, int | None, float | None, int | None, str
]
# Id, state.
NeedRow = tuple[str, str]
# Name, whether it is paused, a state and how many jobs are in it.
QueueCountRow = tuple[str, int, str | None, int | None]
# Queue, minute, enqueued, completed, failed, dead, microseconds.
MinuteRow = tuple[str, int, int, int, int, int, int]
# Id, who it is, since when, when it was seen, until when its lease goes, whether it is to stop, how many jobs it holds.
WorkerRow = tuple[str, str, Timestamp, Timestamp, Timestamp, int, int]
# Queue, type, rate, seconds, burst, concurrency, running, whether for each key.
LimitRow = tuple[str, str, float, float, int, int, int, int]


class JobAnswers(SubjectAnswers):
    """Reads jobs through one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._lists = lists_of(connection.sql)

    def handlers(self) -> Answering:
        """What answers which question."""
        return {
            FindJob: self.job,
            FindJobStates: self.states,
            ListJobs: self.jobs,
            ListJobAttempts: self.attempts,
            ListJobDependencies: self.dependencies,
            ListJobQueues: self.queues,
            ListJobMinutes: self.minutes,
            ListJobConfig: self.config,
            ListJobLimits: self.limits,
            ListJobTypes: self.types,
            ListWorkers: self.workers,
            ListSchedules: self.schedules,
        }

    def job(self, asked: FindJob) -> JobStatus | None:
        """One job."""
        row = self._connection.row(self._sql.show_job, (asked.database, asked.id), Columns)
        return None if row is None else _status(JobStatusRow._make(row))

    def states(self, asked: FindJobStates) -> dict[str, JobState]:
        """The states of those of the jobs that exist."""
        wanted = msgspec.json.encode(list(asked.ids)).decode()
        rows = self._connection.rows(self._sql.jobs_by_id, (asked.database, wanted), Columns)
        return {row.id: JobState(row.state) for row in map(JobRow._make, rows)}

    def jobs(self, asked: ListJobs) -> list[JobStatus]:
        """Jobs by queue, state and type: those that ended last first, others as they would run."""
        chosen = asked.chosen
        rows: list[Columns] = []
        for queue_id, _, name, _ in self._connection.rows(self._sql.find_job_queues, (asked.database,), JobQueueRow):
            if chosen.queue and name != chosen.queue:
                continue
            for state in [chosen.state] if chosen.state else JobState:
                rows += self._in_state(queue_id, state, chosen)
        if chosen.batch:
            found_together = (asked.database, chosen.batch, chosen.limit)
            rows = self._connection.rows(self._sql.list_batch, found_together, Columns)
        found = [job for job in (_status(JobStatusRow._make(row)) for row in rows) if _is_chosen(job, chosen)]
        if chosen.state is None:
            found.sort(key=lambda job: job.number, reverse=True)
        return found[: chosen.limit]

    def _in_state(self, queue_id: int, state: JobState, chosen: JobFilter) -> list[Columns]:
        chosen_by = (queue_id, chosen.type, chosen.limit, chosen.error)
        return self._connection.rows(self._lists[state], chosen_by, Columns)

    def attempts(self, asked: ListJobAttempts) -> list[JobAttempt]:
        """What is known of a job's attempts, oldest first."""
        rows = self._connection.rows(self._sql.list_attempts, (asked.database, asked.id), AttemptRow)
        return [JobAttempt(*row) for row in rows]

    def dependencies(self, asked: ListJobDependencies) -> list[tuple[str, JobState]]:
        """The jobs that a job depends on, with their states."""
        rows = self._connection.rows(self._sql.list_dependencies, (asked.database, asked.id), NeedRow)
        return [(need, JobState(state)) for need, state in rows]

    def queues(self, asked: ListJobQueues) -> list[JobQueueStatus]:
        """The job queues with how many jobs are in which state."""
        found: dict[str, tuple[bool, dict[JobState, int]]] = {}
        rows = self._connection.rows(self._sql.list_job_queues, (asked.database,), QueueCountRow)
        for name, paused, state, count in rows:
            _, counts = found.setdefault(name, (bool(paused), {}))
            if state is not None and count:
                counts[JobState(state)] = count
        return [JobQueueStatus(name, paused, counts) for name, (paused, counts) in found.items()]

    def minutes(self, asked: ListJobMinutes) -> list[JobMinute]:
        """What was done in each minute."""
        about = (asked.database, asked.since // 60_000_000)
        rows = self._connection.rows(self._sql.list_minutes, about, MinuteRow)
        return [JobMinute(row[0], Timestamp(row[1] * 60_000_000), *row[2:]) for row in rows]

    def workers(self, asked: ListWorkers) -> list[WorkerStatus]:
        """The workers of a database, with how many jobs each holds."""
        rows = self._connection.rows(self._sql.list_workers, (asked.database,), WorkerRow)
        return [
            WorkerStatus(name, msgspec.json.decode(about, type=WorkerAbout), started, seen, until, bool(stopping), held)
            for name, about, started, seen, until, stopping, held in rows
        ]

    def config(self, asked: ListJobConfig) -> list[JobSettingStatus]:
        """The settings of a database and its queues."""
        rows = self._connection.rows(self._sql.job_config, (asked.database,), SettingRow)
        return [JobSettingStatus(queue, name, msgspec.json.decode(value)) for queue, name, value in rows]

    def types(self, asked: ListJobTypes) -> dict[str, JobPolicy]:
        """How registered functions are run, by type."""
        rows = self._connection.rows(self._sql.job_types, (asked.database,), PolicyRow)
        return {name: msgspec.json.decode(policy, type=JobPolicy) for name, policy in rows}

    def schedules(self, asked: ListSchedules) -> list[ScheduleStatus]:
        """The schedules of a database, each with the queue that its next job goes to."""
        rows = self._connection.rows(self._sql.schedules, (asked.database,), Columns)
        types = self.types(ListJobTypes(asked.database)) if rows else {}
        return [_schedule(types, ScheduleRow._make(row)) for row in rows]

    def limits(self, asked: ListJobLimits) -> list[JobLimitStatus]:
        """The limits of types."""
        rows = self._connection.rows(self._sql.job_limits, (asked.database,), LimitRow)
        return [
            JobLimitStatus(queue, kind, rate, seconds, burst, concurrency, running, bool(each_key))
            for queue, kind, rate, seconds, burst, concurrency, running, each_key in rows
        ]


def _schedule(types: dict[str, JobPolicy], row: ScheduleRow) -> ScheduleStatus:
    template = msgspec.json.decode(row.job, type=NewJob)
    queue = template.queue or types.get(template.type, JobPolicy()).queue or QUEUE_DEFAULT
    template = msgspec.structs.replace(template, queue=queue)
    template = msgspec.structs.replace(template, env=hidden_values(template.env))
    return ScheduleStatus(**{**row._asdict(), "job": template, "paused": bool(row.paused)})


def _is_chosen(job: JobStatus, chosen: JobFilter) -> bool:
    """The jobs of a batch are read together, whatever else is asked of them."""
    return (
        (not chosen.queue or job.queue == chosen.queue)
        and (chosen.state is None or job.state is chosen.state)
        and (not chosen.type or job.type == chosen.type)
        and chosen.error in (job.error or "")
    )


def _shown(work: Work) -> Work:
    return msgspec.structs.replace(work, env=hidden_values(work.env)) if work.env else work


def _status(row: JobStatusRow) -> JobStatus:
    told = {
        "state": JobState(row.state),
        "work": _shown(decode_work(row.work)),
        "progress": _raw(row.progress),
        "result": _raw(row.result),
        "cancelling": bool(row.cancelling),
    }
    return JobStatus(**{**row._asdict(), **told})


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())
