"""Jobs that are forgotten, under the write lock: by whoever asks, and by their age. What others go by stays."""

from collections.abc import Callable, Sequence

from headwater.clock import SECOND, Timestamp
from headwater.errors import JobUnfit
from headwater.log.job_operations import Changed, ChooseJobs, DropJobs, Prune
from headwater.model.job import FINISHED, JobState
from headwater.stores.tables.connection import Columns, Connection, Text
from headwater.stores.tables.job_books import JobBooks
from headwater.stores.tables.job_dependents import JobDependents
from headwater.stores.tables.job_queues import JobQueues
from headwater.stores.tables.job_rows import JobRow, numbers_of

MINUTES_KEPT = 30 * 24 * 60

Choosing = Callable[[ChooseJobs, frozenset[JobState], str, Timestamp, Timestamp | None], list[JobRow]]
Cancelling = Callable[[Sequence[JobRow], str, Timestamp], int]


class JobDrops:
    """Drops jobs. `choose` finds those that are meant, `cancel` cancels those that wait for them, and says how many."""

    def __init__(
        self,
        connection: Connection,
        queues: JobQueues,
        books: JobBooks,
        dependents: JobDependents,
        choose: Choosing,
        cancel: Cancelling,
    ) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._queues = queues
        self._books = books
        self._dependents = dependents
        self._choose = choose
        self._cancel = cancel

    def drop(self, operation: DropJobs, now: Timestamp) -> Changed:
        """Forget jobs that have ended, but for those whose end a job goes by that may still run."""
        chosen = self._choose(operation, FINISHED, "dropped", now, operation.before)
        needed = self._dependents.needed(chosen)
        if operation.ids and not operation.skip_unfit:
            for row in chosen:
                if row.number in needed:
                    raise JobUnfit(
                        f"job {row.id} cannot be dropped: job {needed[row.number]} depends on it and may still run"
                    )
        rows = [row for row in chosen if row.number not in needed]
        cancelled = self._forget_jobs(rows, now)
        kept = [row.id for row in chosen if row.number in needed]
        if operation.before is not None and not operation.ids:
            kept = self._needed_before(operation, operation.before, operation.limit - len(rows))
        return Changed([row.id for row in rows], kept=kept, cancelled=cancelled)

    def _needed_before(self, operation: DropJobs, before: Timestamp, limit: int) -> list[str]:
        """The ids of jobs that would be dropped by their age if no other went by their end."""
        found: list[str] = []
        for queue in self._queues.of(operation.database, [operation.queue] if operation.queue else ()):
            for state in [operation.state] if operation.state else sorted(FINISHED):
                values = (queue.id, state, before, operation.type, limit - len(found))
                found += [name for (name,) in self._connection.rows(self._sql.jobs_needed_before, values, Text)]
        return found

    def prune(self, operation: Prune, now: Timestamp) -> Changed:
        """Forget old results, old jobs and old counts; the dead stay until somebody has looked at them."""
        expired = self._connection.rows(self._sql.expire_results, (now, operation.limit), Text)
        found = sorted(name for (name,) in expired)
        for database in self._queues.databases():
            kept = self._queues.worker_settings(database).retention
            before = now - int(kept * SECOND)
            for queue in self._queues.of(database) if kept else []:
                for state in (JobState.COMPLETED, JobState.CANCELLED):
                    values = (queue.id, state.value, before, "", operation.limit, now)
                    found_before = self._connection.rows(self._sql.jobs_finished_before, values, Columns)
                    rows = list(map(JobRow._make, found_before))
                    self._forget_jobs(rows, now)
                    found += [row.id for row in rows]
        self._connection.run(self._sql.drop_minutes, (now // (60 * SECOND) - MINUTES_KEPT,))
        return Changed(found)

    def _forget_jobs(self, rows: Sequence[JobRow], now: Timestamp) -> int:
        """Forget these jobs; how many are cancelled because they waited for them."""
        if not rows:
            return 0
        numbers = numbers_of(rows)
        orphans = self._dependents.waiting_for(numbers)
        cancelled = self._cancel(orphans, "a job that it depends on was dropped", now)
        for row in rows:
            self._books.moved(self._queues.by_id(row.queue_id), JobState(row.state), None)
        self._connection.run(self._sql.raise_meta, ("last_job", max(row.number for row in rows)))
        sql = self._sql
        for statement in (sql.drop_job_attempts, sql.drop_job_needs, sql.drop_job_dependents, sql.drop_jobs):
            self._connection.run(statement, (numbers,))
        self._connection.run(self._sql.drop_unique, (numbers,))
        return cancelled
