"""Schedules under the write lock: what is due is enqueued once, by whichever process claims or looks first.

A schedule that was missed, because nothing ran, comes once when it can and then at its next time: runs do not pile up.
"""

import logging

import msgspec

from headwater.clock import Timestamp
from headwater.errors import HeadwaterError, JobMissing
from headwater.log.job_operations import ChangeSchedule, Enqueue, Fired, FireSchedules, NewJob, PutSchedule, Scheduled
from headwater.model.cron import find_timezone, next_cron, next_every
from headwater.stores.tables.connection import Connection, NumberOrNone
from headwater.stores.tables.job_books import JobBooks
from headwater.stores.tables.job_intake import JobIntake, need_work

log = logging.getLogger(__name__)


# Database, name, cron, seconds, time zone, job, its next time, when it was made.
ScheduleRow = tuple[str, str, str, float, str, str, int | None, int]


class _Schedule(msgspec.Struct, frozen=True):
    """A schedule's row."""

    database: str
    name: str
    cron: str
    every_seconds: float
    timezone: str
    job: str
    next_at: int | None
    created_at: int

    def after(self, now: Timestamp) -> Timestamp:
        """Its next time."""
        if self.cron:
            return next_cron(self.cron, self.timezone, now)
        return next_every(self.every_seconds, Timestamp(self.created_at), now)


class JobSchedules:
    """All schedules of the store."""

    def __init__(self, connection: Connection, intake: JobIntake, books: JobBooks) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._intake = intake
        self._books = books

    def put(self, operation: PutSchedule, now: Timestamp) -> Scheduled:
        """Add a schedule, or change one. A program that declares it again, as at each start, must neither put its next
        time off nor wake it from its rest."""
        find_timezone(operation.timezone)
        need_work(operation.job)
        job = msgspec.json.encode(operation.job).decode()
        times = (operation.cron, operation.every_seconds, operation.timezone)
        found = self._connection.row(self._sql.get_schedule, (operation.database, operation.name), ScheduleRow)
        next_at = _next_of(None if found is None else _Schedule(*found), times, now)
        row = (operation.database, operation.name, *times, job, now, next_at)
        self._connection.run(self._sql.put_schedule, row)
        self._books.control(operation.database, "schedule", operation.name)
        return Scheduled(next_at)

    def change(self, operation: ChangeSchedule, now: Timestamp) -> Scheduled:
        """Pause a schedule, let it go on, or remove it."""
        place = (operation.database, operation.name)
        row = self._connection.row(self._sql.get_schedule, place, ScheduleRow)
        if row is None:
            raise JobMissing(f"there is no schedule {operation.name!r}")
        if operation.remove:
            self._connection.run(self._sql.drop_schedule, place)
            return Scheduled(None)
        if operation.run:
            return self._run(_Schedule(*row), now)
        next_at = None if operation.paused else _Schedule(*row).after(now)
        self._connection.run(self._sql.pause_schedule, (int(bool(operation.paused)), next_at, *place))
        self._books.control(operation.database, "schedule", operation.name)
        return Scheduled(next_at)

    def fire_all(self, operation: FireSchedules, now: Timestamp) -> Fired:
        """Enqueue what is due, because it is asked for."""
        return self.fire(now)

    def fire(self, now: Timestamp) -> Fired:
        """Enqueue what is due. The unique key keeps a slow job from being joined by its own next run, if it asks so."""
        ids: list[str] = []
        rows = self._connection.rows(self._sql.due_schedules, (now,), ScheduleRow)
        for schedule in (_Schedule(*row) for row in rows):
            job_id = self._enqueue(schedule, now)
            ids += [] if job_id is None else [job_id]
            values = (schedule.after(now), now, job_id, schedule.database, schedule.name)
            self._connection.run(self._sql.schedule_fired, values)
        return Fired(ids, self.next_at() if rows else None)

    def _run(self, schedule: _Schedule, now: Timestamp) -> Scheduled:
        """Enqueue the job of a schedule because somebody asks: here an error is theirs to know."""
        job = msgspec.json.decode(schedule.job, type=NewJob)
        placed = self._intake.enqueue(Enqueue(database=schedule.database, jobs=(job,)), now).jobs[0]
        self._connection.run(self._sql.schedule_ran, (now, placed.id, schedule.database, schedule.name))
        return Scheduled(None if schedule.next_at is None else Timestamp(schedule.next_at), placed.id)

    def _enqueue(self, schedule: _Schedule, now: Timestamp) -> str | None:
        """The next job of a schedule. One that cannot be added is told and passed over: workers claim through here, and
        one wrong schedule must not keep them from everybody's jobs."""
        try:
            job = msgspec.json.decode(schedule.job, type=NewJob)
            return self._intake.enqueue(Enqueue(database=schedule.database, jobs=(job,)), now).jobs[0].id
        except (HeadwaterError, msgspec.MsgspecError) as error:
            log.error("schedule %s could not add its job, and waits for its next time: %s", schedule.name, error)
            return None

    def clock_set_back(self, now: Timestamp) -> None:
        """Count the next times anew: those that are known lie behind a time that may never come."""
        rows = self._connection.rows(self._sql.armed_schedules, (now,), ScheduleRow)
        for schedule in (_Schedule(*row) for row in rows):
            self._connection.run(self._sql.rearm_schedule, (schedule.after(now), schedule.database, schedule.name))

    def next_at(self) -> Timestamp | None:
        """When the next schedule is due."""
        [(next_at,)] = self._connection.rows(self._sql.next_schedule, (), NumberOrNone)
        return None if next_at is None else Timestamp(next_at)


def _next_of(known: _Schedule | None, times: tuple[str, float, str], now: Timestamp) -> Timestamp | None:
    """When a schedule with these times comes next; one that rests has no next time."""
    if known is None:
        return _Schedule("", "", *times, "", None, now).after(now)
    if known.next_at is None or (known.cron, known.every_seconds, known.timezone) == times:
        return None if known.next_at is None else Timestamp(known.next_at)
    return _Schedule("", "", *times, "", None, known.created_at).after(now)
