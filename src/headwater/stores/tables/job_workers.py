"""Workers under the write lock: their leases, what they are given, what they note while they run it."""

import logging
from collections.abc import Sequence

import msgspec

from headwater.clock import SECOND, SteadyClock, SystemClock, Timestamp
from headwater.errors import JobMissing
from headwater.log.job_operations import Changed, ClaimedJob, Note, StopWorkers, WorkerAbout
from headwater.model.job import JobNumber
from headwater.stores.job_starts import Left, boot, kill_left, read_starts, starts_path
from headwater.stores.tables.connection import Connection, Text
from headwater.stores.tables.job_books import JobBooks, JobChange
from headwater.stores.tables.job_queues import JobQueues
from headwater.stores.tables.job_rows import JobRow, as_json, decode_work
from headwater.stores.tables.subject import Subject

log = logging.getLogger(__name__)

# A lease that is longer was written by another clock than ours.
LEASE_MAX = 7 * 86_400 * SECOND
# End of its lease, whether it is to stop.
LeaseRow = tuple[int, int]
# Id, database, the run of its machine, end of its lease by the clock of that.
LostRow = tuple[str, str, str, int]
# Number, id, queue, type, token, attempts, attempts at most, work, on how many it depended, error.
LeasedRow = tuple[JobNumber, str, int, str, int, int, int, str, int, str]
# Id, result.
ResultRow = tuple[str, str]


class WorkerLease(msgspec.Struct, frozen=True):
    """Whether a worker's lease was alive before it was renewed, and whether it is asked to stop."""

    alive: bool
    stopping: bool


class JobWorkers(Subject):
    """All workers of the store."""

    def __init__(self, connection: Connection, queues: JobQueues, books: JobBooks, path: str) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._queues = queues
        self._books = books
        self.clock: SteadyClock = SystemClock()
        self._path = path
        # What was read of workers that are lost: their files are gone then, and this commit may have to be repeated.
        # Not for longer: a worker that only slept has a new file, and can be lost again.
        self._left: dict[str, Left | None] = {}

    def renew(self, worker: str, database: str, seconds: float, now: Timestamp, *, always: bool = False) -> WorkerLease:
        """Keep a worker's lease. One that has most of its time before it is left alone: a row less to write."""
        row = self._connection.row(self._sql.find_worker, (worker, database), LeaseRow)
        until = now + int(seconds * SECOND)
        if row is None or always or row[0] - now < seconds * SECOND * 2 / 3:
            steady_until = self.clock.steady() + int(seconds * SECOND)
            lease = (worker, database, now, until, boot().decode(), steady_until)
            self._connection.run(self._sql.put_worker, lease)
        return WorkerLease(row is not None, row is not None and bool(row[1]))

    def lost(self, now: Timestamp) -> list[tuple[str, str]]:
        """Workers whose lease ran out. The time of day may have been set: in this run of the machine, the clock that
        nobody can set decides."""
        lost = []
        steady = self.clock.steady()
        found = self._connection.rows(self._sql.lost_workers, (now,), LostRow)
        for worker, database, booted, steady_until in found:
            left = steady_until - steady
            if booted == boot().decode() and 0 < left <= LEASE_MAX:
                self._connection.run(self._sql.move_lease, (now + left, worker))
            else:
                lost.append((worker, database))
        return lost

    def started(self, worker: str, *, held: bool) -> frozenset[tuple[int, int]] | None:
        """What a worker that is gone had started, None when nobody knows; what it left running of that is killed."""
        path = starts_path(self._path, worker) if self._path else ""
        if worker not in self._left:
            self._left[worker] = read_starts(path) if path else None
        left = self._left[worker]
        if held and path:
            killed = kill_left(path, worker, left)
            if killed:
                log.warning("killed %d processes that worker %s left running", killed, worker)
        return None if left is None else left.started

    def committed(self) -> None:
        """What was taken back is taken back."""
        self._left.clear()

    def describe(self, worker: str, about: WorkerAbout) -> None:
        """Remember who a worker is."""
        self._connection.run(self._sql.describe_worker, (msgspec.json.encode(about).decode(), worker))

    def stop(self, operation: StopWorkers, now: Timestamp) -> Changed:
        """Ask workers to stop."""
        if operation.workers is None:
            rows = self._connection.rows(self._sql.stop_workers, (operation.database,), Text)
            found = sorted(worker for (worker,) in rows)
        else:
            found = [self._stop_one(operation.database, worker) for worker in operation.workers]
        if found:
            self._books.control(operation.database, "stop", ",".join(found))
        return Changed(found)

    def _stop_one(self, database: str, worker: str) -> str:
        if not self._connection.rows(self._sql.stop_worker, (database, worker), Text):
            raise JobMissing(f"there is no worker {worker}")
        return worker

    def lease(self, numbers: list[int], worker: str, now: Timestamp) -> list[ClaimedJob]:
        """Give these jobs to a worker, in this order. They are of one database."""
        # No engine promises an order for what an update returns, and the log tells of them in one.
        rows = sorted(self._connection.rows(self._sql.lease_jobs, (worker, now, as_json(numbers)), LeasedRow))
        leased: dict[int, ClaimedJob] = {}
        changes: list[JobChange] = []
        counts: dict[int, int] = {}
        for number, name, queue_id, kind, token, attempts, attempts_max, work, depends, error in rows:
            queue = self._queues.by_id(queue_id).name
            counts[queue_id] = counts.get(queue_id, 0) + 1
            changes.append(JobChange(name, queue, kind, "processing", attempts, worker))
            results = self._results(number) if depends else None
            about = (name, queue, kind, token, attempts, attempts_max)
            leased[number] = ClaimedJob(number, *about, decode_work(work), results, error)
        for queue_id, count in counts.items():
            self._books.moved(self._queues.by_id(queue_id), "pending", "processing", count)
        self._books.tell_all(self._queues.by_id(rows[0][2]).database, changes)
        return [leased[number] for number in numbers]

    def _results(self, number: int) -> dict[str, msgspec.Raw]:
        rows = self._connection.rows(self._sql.dependency_results, (number,), ResultRow)
        return {name: msgspec.Raw(result.encode()) for name, result in rows}

    def note(self, notes: Sequence[Note], rows: Sequence[JobRow], now: Timestamp) -> None:
        """Keep how far jobs are, if their worker still holds them."""
        held = {(row.number, row.token): row for row in rows}
        for note in notes:
            row = held.get((note.number, note.token))
            if row is not None:
                self._note_one(note, row, now)

    def _note_one(self, note: Note, row: JobRow, now: Timestamp) -> None:
        queue = self._queues.by_id(row.queue_id)
        about = {"id": row.id, "queue": queue.name, "type": row.type, "attempt": row.attempts}
        if note.progress is not None:
            self._connection.run(self._sql.set_progress, (note.progress, now, row.number))
            progress = msgspec.Raw(note.progress.encode())
            self._books.tell(queue.database, JobChange(**about, event="progress", progress=progress))  # type: ignore[arg-type]
        if note.output is not None:
            attempt = (row.number, row.attempts, row.token, row.worker or "", row.started_at, None, "running", "")
            self._connection.run(self._sql.put_attempt, (*attempt, None, None, None, note.output))
            self._books.tell(queue.database, JobChange(**about, event="output"))  # type: ignore[arg-type]
