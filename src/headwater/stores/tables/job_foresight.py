"""What adding, claiming and settling jobs will read first, for an engine that reads it together with the lock."""

from collections.abc import Sequence

from headwater.clock import Timestamp
from headwater.log.job_operations import Claim, Enqueue, NewJob, Settle
from headwater.log.operations import Operation
from headwater.model.job import QUEUE_DEFAULT, JobOutcome
from headwater.stores.tables.job_books import JobBooks
from headwater.stores.tables.job_lanes import LANES_PER_CLAIM, NO_LANE, JobLanes, known_of
from headwater.stores.tables.job_queues import JobQueue, JobQueues
from headwater.stores.tables.job_reports import is_plain
from headwater.stores.tables.job_rows import as_json
from headwater.stores.tables.job_types import JobTypes
from headwater.stores.tables.subject import Read


class JobForesight:
    """Looks at what is remembered of jobs, and reads nothing."""

    def __init__(self, queues: JobQueues, types: JobTypes, lanes: JobLanes, books: JobBooks) -> None:
        self._queues = queues
        self._types = types
        self._lanes = lanes
        self._books = books

    def foresee(self, operations: Sequence[Operation], now: Timestamp) -> list[Read]:
        """What these operations will read first."""
        found: list[Read] = []
        for operation in operations:
            if isinstance(operation, Enqueue):
                found += self._enqueue(operation)
            elif isinstance(operation, Claim):
                found += self._claim(operation, now)
            elif isinstance(operation, Settle):
                found += self._settle(operation)
            else:
                continue
            found += self._books.foresee_log(operation.database)
        return found

    def _enqueue(self, operation: Enqueue) -> list[Read]:
        database = operation.database
        found = [Read("last_job_number")]
        jobs = operation.jobs
        if self._types.knows(database):
            jobs = self._types.filled(database, jobs)
        else:
            found.append(Read("job_types", (database,)))
        ids = [job.id for job in jobs if job.id]
        needs = sorted({name for job in jobs for name in job.depends_on} - set(ids))
        found += [Read("jobs_by_id", (database, as_json(names))) for names in (ids, needs) if names]
        for job in jobs:
            found += self._place(database, job)
        return found

    def _place(self, database: str, job: NewJob) -> list[Read]:
        unique = [Read("find_unique", (database, job.unique_key))] if job.unique_key else []
        name = job.queue or QUEUE_DEFAULT
        queue = self._queues.known(database, name)
        if queue is not None:
            return [*unique, *self._lanes.foresee(queue, job)]
        return [*unique, Read("find_job_queue", (database, name)), *self._queues.foresee_settings(database)]

    def _claim(self, operation: Claim, now: Timestamp) -> list[Read]:
        database = operation.database
        found = [Read("jobs_outlook"), Read("find_worker", (operation.worker, database))]
        queues: list[JobQueue] = []
        if operation.queues:
            for name in operation.queues:
                queue = self._queues.known(database, name)
                if queue is None:
                    found.append(Read("find_job_queue", (database, name)))
                else:
                    queues.append(queue)
        else:
            known = self._queues.known_of(database)
            queues = known or []
            if known is None:
                found.append(Read("find_job_queues", (database,)))
        for queue in queues:
            if not queue.paused:
                found += self._look(queue, operation, now)
        return [*found, *self._queues.foresee_settings(database)]

    @staticmethod
    def _look(queue: JobQueue, operation: Claim, now: Timestamp) -> list[Read]:
        functions = known_of(operation.functions)
        return [
            Read("queue_outlook", (queue.id, functions)),
            Read("ready_heads", (queue.id, NO_LANE, operation.limit)),
            Read("ready_lanes", (queue.id, now, LANES_PER_CLAIM, functions)),
        ]

    def _settle(self, operation: Settle) -> list[Read]:
        """Jobs that wait for those that are done: for the plain ones they are asked for together."""
        numbers = [report.number for report in operation.reports]
        done = [report for report in operation.reports if report.outcome is JobOutcome.COMPLETED]
        plain = [report.number for report in done if is_plain(report)]
        kept = [report.number for report in done if not is_plain(report)]
        found = [Read("jobs_held_of", (as_json(numbers), operation.worker))]
        found += [Read("open_dependents", (as_json(ended),)) for ended in (plain, kept) if ended]
        if not self._queues.is_any_known():
            found.append(Read("all_job_queues"))
        return [*found, *self._queues.foresee_settings(operation.database)]
