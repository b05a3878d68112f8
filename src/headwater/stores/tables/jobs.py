"""Jobs under the write lock: claiming, settling, and everything else that changes a job that is there.

`job_intake.py` adds new ones. Whatever changes a state goes through `_move`, which also frees limits, lets dependents
go on and writes the books, so that no path can forget one of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headwater.clock import SteadyClock, Timestamp
from headwater.errors import JobMissing, JobUnfit
from headwater.log.job_operations import (
    Beat,
    CancelJobs,
    Changed,
    ChangeSchedule,
    ChooseJobs,
    Claim,
    Claimed,
    Depart,
    DropJobs,
    Enqueue,
    FireSchedules,
    Heartbeat,
    JobReport,
    Prune,
    PutSchedule,
    Rescue,
    RetryJobs,
    Settle,
    Settled,
    StopWorkers,
    SweepLanes,
)
from headwater.log.operations import Operation, Touch
from headwater.model.job import (
    CONTROL_PARTITION,
    FINISHED,
    JOBS_QUEUE,
    RETRYABLE,
    UNFINISHED,
    JobNumber,
    JobOutcome,
    JobState,
    Verdict,
    first_state,
)
from headwater.stores.job_questions import FindJobsReady
from headwater.stores.tables.catalog import Catalog
from headwater.stores.tables.connection import Columns, Connection
from headwater.stores.tables.job_books import JobBooks, JobChange
from headwater.stores.tables.job_dependents import JobDependents
from headwater.stores.tables.job_drops import JobDrops
from headwater.stores.tables.job_foresight import JobForesight
from headwater.stores.tables.job_intake import JobIntake
from headwater.stores.tables.job_keys import JobKeys
from headwater.stores.tables.job_lanes import JobLanes, QueueLook, known_of
from headwater.stores.tables.job_queues import JobQueues
from headwater.stores.tables.job_reports import (
    attempt_of,
    cancellation,
    is_plain,
    judge_report,
    leaves_attempt,
    update_of,
)
from headwater.stores.tables.job_rows import JobRow, as_json, lists_of, numbers_of, ran_micros
from headwater.stores.tables.job_schedules import JobSchedules
from headwater.stores.tables.job_settings import JobSettings
from headwater.stores.tables.job_types import JobTypes
from headwater.stores.tables.job_workers import JobWorkers
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.subject import Handlers, Read, Subject

PROMOTED_AT_ONCE = 1_000
ERROR_LENGTH_MAX = 16_384

Move = tuple[JobRow, Verdict, JobReport | None]
# Whether a job without limits may run, when the next one comes due, when a lane is worth a look.
_QueueOutlook = tuple[int, int | None, int | None]


class _Outlook(NamedTuple):
    """When the next lease of a worker ends, when the next schedule is due, and how many queues were ever made."""

    lease_end: int | None
    schedule: int | None
    queues: int


class Jobs(Subject):
    """All jobs of the store."""

    def __init__(
        self,
        connection: Connection,
        catalog: Catalog,
        segments: Segments,
        clock: SteadyClock | None = None,
        path: str = "",
    ) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._lists = lists_of(connection.sql)
        self.books = JobBooks(connection, catalog, segments)
        self.queues = JobQueues(connection)
        self._lanes = JobLanes(connection, self.queues)
        self._dependents = JobDependents(connection)
        self._types = JobTypes(connection)
        self._keys = JobKeys(connection)
        self.intake = JobIntake(connection, self.queues, self._types, self._lanes, self.books, self._cancel_rows)
        self._drops = JobDrops(connection, self.queues, self.books, self._dependents, self._chosen, self._cancel_rows)
        self._schedules = JobSchedules(connection, self.intake, self.books)
        self._settings = JobSettings(self.queues, self._types, self._lanes, self.books)
        self._foresight = JobForesight(self.queues, self._types, self._lanes, self.books)
        self.workers = JobWorkers(connection, self.queues, self.books, path)

    def judge_leases_by(self, clock: SteadyClock) -> None:
        """Whether a worker's lease has run out, this clock tells."""
        self.workers.clock = clock

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {
            Enqueue: self.intake.enqueue,
            Claim: self.claim,
            Settle: self.settle,
            Heartbeat: self.heartbeat,
            Depart: self.depart,
            StopWorkers: self.workers.stop,
            Rescue: self.rescue,
            Prune: self._drops.prune,
            SweepLanes: self._lanes.sweep,
            CancelJobs: self.cancel,
            RetryJobs: self.retry,
            DropJobs: self._drops.drop,
            **self._settings.handlers(),
            PutSchedule: self._schedules.put,
            ChangeSchedule: self._schedules.change,
            FireSchedules: self._schedules.fire_all,
        }

    def foresee(self, operations: Sequence[Operation], now: Timestamp) -> list[Read]:
        """What adding, claiming and settling will read first."""
        return self._foresight.foresee(operations, now)

    def forget(self) -> None:
        """Drop what is remembered: others have committed, or something was undone."""
        self.queues.forget()
        self._types.forget()
        self._lanes.forget()
        self.intake.forget()

    def follow(self, touched: Sequence[Touch], *, complete: bool) -> None:
        """Others have committed these segments. Settings and limits change together with a word to the workers."""
        told = any(touch.lane.partition == CONTROL_PARTITION and touch.lane.queue == JOBS_QUEUE for touch in touched)
        if told or not complete:
            self.forget()
        else:
            self.intake.forget()

    def clock_set_back(self, now: Timestamp, by: int) -> None:
        """What was counted from a time of the wrong clock comes as much earlier; a time that somebody gave stays."""
        for statement in (self._sql.take_delays_back, self._sql.take_workers_back, self._sql.take_lanes_back):
            self._connection.run(statement, (now, by))
        self._schedules.clock_set_back(now)
        self._lanes.forget()

    def ready_at(self, asked: FindJobsReady) -> Timestamp | None:
        """When a claim of this worker could get something: now, later, or nobody knows."""
        outlook, now = self._outlook(), asked.now
        times = [outlook.lease_end, outlook.schedule]
        for queue in self.queues.of(asked.database, asked.queues):
            if not queue.paused:
                pending, due, lane = self._queue_outlook(queue.id, asked.functions)
                if lane is not None and lane <= now and not pending and asked.capacity is not None:
                    lane = self._lanes.ready_for(queue, asked)
                times += (now if pending else None, due, lane)
        return _earliest(times, now)

    # ── workers ask ──

    def claim(self, operation: Claim, now: Timestamp) -> Claimed:
        """Lease the next jobs to a worker."""
        outlook = self._do_what_is_due(now)
        lease = self.workers.renew(operation.worker, operation.database, operation.lease_seconds, now)
        if lease.stopping:
            return Claimed(stopping=True, alive=lease.alive)
        queues = [queue for queue in self.queues.of(operation.database, operation.queues) if not queue.paused]
        looks = [QueueLook(queue, *self._promoted(queue.id, now, operation.functions)) for queue in queues]
        numbers, strange = self._lanes.choose(looks, operation, now)
        unknown = sorted(strange)
        jobs = self.workers.lease(numbers, operation.worker, now) if numbers else []
        if len(jobs) == operation.limit:
            return Claimed(jobs, alive=lease.alive, unknown=unknown)
        if unknown or any(look.lane is not None and look.lane <= now for look in looks):
            ready_at = self.ready_at(question_of(operation, now))
        else:
            # All that had no limit was taken: what was read before still holds.
            times = [outlook.lease_end, outlook.schedule, *(time for look in looks for time in (look.due, look.lane))]
            ready_at = _earliest(times, now)
        return Claimed(jobs, ready_at, alive=lease.alive, unknown=unknown)

    def _do_what_is_due(self, now: Timestamp) -> "_Outlook":
        """Take back what lost workers held, and enqueue what schedules say; what else there is to come."""
        outlook = self._outlook()
        if outlook.lease_end is not None and outlook.lease_end <= now:
            self._rescue(now)
        elif outlook.schedule is None or outlook.schedule > now:
            return outlook
        self._schedules.fire(now)
        return self._outlook()

    def _outlook(self) -> "_Outlook":
        """When something comes due that nobody will announce; other processes may have made queues."""
        outlook = _Outlook._make(self._connection.rows(self._sql.jobs_outlook, (), Columns)[0])
        self.queues.catch_up(outlook.queues)
        return outlook

    def _queue_outlook(self, queue_id: int, functions: frozenset[str] | None) -> _QueueOutlook:
        """Whether a claim gets something from a queue without a look at limits, and when else it may."""
        values = (queue_id, known_of(functions))
        return self._connection.rows(self._sql.queue_outlook, values, _QueueOutlook)[0]

    def _promoted(self, queue_id: int, now: Timestamp, functions: frozenset[str] | None) -> _QueueOutlook:
        """The same, once jobs whose time has come are pending."""
        found = self._queue_outlook(queue_id, functions)
        if found[1] is None or found[1] > now:
            return found
        self._promote(queue_id, now)
        return self._queue_outlook(queue_id, functions)

    def settle(self, operation: Settle, now: Timestamp) -> Settled:
        """Take a worker's reports; one on a job that it holds no more changes nothing."""
        wanted = as_json([report.number for report in operation.reports])
        rows = self._rows(self._sql.jobs_held_of, wanted, operation.worker)
        held = {(row.number, row.token): row for row in rows}
        states: list[JobState | None] = []
        moves: list[Move] = []
        plain: list[tuple[JobRow, JobReport]] = []
        for report in operation.reports:
            row = held.pop((report.number, report.token), None)
            if row is None:
                states.append(None)
            elif is_plain(report):
                states.append(JobState.COMPLETED)
                plain.append((row, report))
            else:
                verdict = judge_report(row, report, now)
                states.append(verdict.state)
                moves.append((row, verdict, report))
        self._complete(operation.database, plain, now)
        self._move(moves, now)
        return Settled(states)

    def _complete(self, database: str, done: Sequence[tuple[JobRow, JobReport]], now: Timestamp) -> None:
        """Jobs that are done and left nothing to keep: the way that most go, so it is one of few steps."""
        if not done:
            return
        rows = [row for row, _ in done]
        self._connection.run(self._sql.complete_jobs, (now, numbers_of(rows)))
        self._lanes.left((row.lane for row in rows), now)
        ran: dict[int, list[int]] = {}
        changes = []
        for row, report in done:
            queue = self.queues.by_id(row.queue_id)
            changes.append(JobChange(row.id, queue.name, row.type, "completed", row.attempts, row.worker or ""))
            ran.setdefault(row.queue_id, []).append(ran_micros(row, report, now))
        self.books.tell_all(database, changes)
        for number, times in ran.items():
            queue = self.queues.by_id(number)
            self.books.moved(queue, "processing", "completed", len(times))
            self.books.ran(queue, sum(times))
        self._move(self._dependents_of(dict.fromkeys((row.number for row in rows), JobState.COMPLETED), now), now)

    def heartbeat(self, operation: Heartbeat, now: Timestamp) -> Beat:
        """Keep a worker's lease and take its notes."""
        self._rescue(now)
        lease = self.workers.renew(operation.worker, operation.database, operation.lease_seconds, now, always=True)
        if operation.about is not None:
            self.workers.describe(operation.worker, operation.about)
        if operation.notes:
            wanted = as_json([note.number for note in operation.notes])
            self.workers.note(operation.notes, self._rows(self._sql.jobs_held_of, wanted, operation.worker), now)
        return Beat(lease.alive, lease.stopping, self._cancelling(operation.worker))

    def depart(self, operation: Depart, now: Timestamp) -> Changed:
        """A worker is gone: what it still held counts as a lost attempt."""
        reason = operation.reason or "the worker ended"
        return Changed(self._take_back(operation.worker, operation.database, reason, now))

    def rescue(self, operation: Rescue, now: Timestamp) -> Changed:
        """Take back what lost workers held, in every database."""
        return Changed(self._rescue(now))

    def _rescue(self, now: Timestamp) -> list[str]:
        """Take back what lost workers held."""
        found: list[str] = []
        for worker, database in self.workers.lost(now):
            found += self._take_back(worker, database, "the worker was not heard of for longer than its lease", now)
        return found

    def _take_back(self, worker: str, database: str, reason: str, now: Timestamp) -> list[str]:
        """What it had started counts as a lost attempt; what only waited there, or was to be cancelled, does not."""
        rows = self._rows(self._sql.jobs_held, worker)
        cancelled = set(self._cancelling(worker))
        self._connection.run(self._sql.drop_worker, (worker, database))
        started = self.workers.started(worker, held=bool(rows))
        moves = []
        for row in rows:
            outcome, error = JobOutcome.FAILED, reason
            if row.number in cancelled:
                outcome, error = JobOutcome.CANCELLED, "cancelled"
            elif started is not None and (row.number, row.token) not in started:
                outcome, error = JobOutcome.RELEASED, ""
            report = JobReport(number=JobNumber(row.number), token=row.token, outcome=outcome, error=error)
            moves.append((row, judge_report(row, report, now), report))
        self._move(moves, now)
        return [row.id for row in rows]

    def _promote(self, queue_id: int, now: Timestamp) -> None:
        """Jobs whose time has come are pending."""
        rows = self._rows(self._sql.jobs_due, queue_id, now, PROMOTED_AT_ONCE)
        if not rows:
            return
        self._connection.run(self._sql.make_pending, (now, numbers_of(rows)))
        self._lanes.entered((row.lane for row in rows), now)
        self._tell(rows, JobState.PENDING)

    # ── people ask ──

    def cancel(self, operation: CancelJobs, now: Timestamp) -> Changed:
        """Cancel jobs; those that run are ended by their worker."""
        rows = self._chosen(operation, UNFINISHED, "cancelled", now)
        self._cancel_rows(rows, "", now)
        running = [row.id for row in rows if row.state == JobState.PROCESSING]
        return Changed([row.id for row in rows], asked_to_stop=running)

    def _cancel_rows(self, rows: Sequence[JobRow], reason: str, now: Timestamp) -> int:
        """Cancel jobs and what waits for them; how many are cancelled now, and not when their worker has ended them."""
        running = [row for row in rows if row.state == JobState.PROCESSING]
        if running:
            self._connection.run(self._sql.ask_to_cancel, (now, numbers_of(running)))
            for row in running:
                self.books.control(self.queues.by_id(row.queue_id).database, "cancel", row.id)
        return self._move(_cancellations([row for row in rows if row.state != JobState.PROCESSING], reason), now)

    def retry(self, operation: RetryJobs, now: Timestamp) -> Changed:
        """Give jobs all their attempts again, unless another has their unique key meanwhile, or one that they depend on
        is gone, or cancelled and not retried with them: they could wait for it for ever, or run without its result."""
        chosen = self._chosen(operation, RETRYABLE, "retried", now)
        orphaned = self._dependents.orphaned(chosen)
        held = self._keys.held_elsewhere(operation.database, [row for row in chosen if row.number not in orphaned])
        stuck = self._dependents.stuck([row for row in chosen if row.number not in held and row.number not in orphaned])
        if operation.ids and not operation.skip_unfit:
            for row in chosen:
                why = ""
                if row.number in orphaned:
                    why = "a job that it depends on was dropped; add it anew"
                elif row.number in held:
                    why = f"job {held[row.number]} has its unique key"
                elif row.number in stuck:
                    why = "a job that it depends on is cancelled; retry that one with it"
                if why:
                    raise JobUnfit(f"job {row.id} cannot be retried: {why}")
        orphaned |= stuck
        rows = [row for row in chosen if row.number not in held and row.number not in orphaned]
        self._keys.regain(operation.database, rows, now)
        moves: list[Move] = []
        for row in rows:
            moves.append((row, Verdict(first_state(now, now, waits=row.waits > 0), 0, now), None))
        self._move(moves, now)
        self._connection.run(self._sql.clear_errors, (numbers_of(rows),))
        return Changed(
            [row.id for row in rows],
            passed_over=[row.id for row in chosen if row.number in held],
            orphaned=[row.id for row in chosen if row.number in orphaned],
        )

    def _chosen(
        self,
        operation: ChooseJobs,
        allowed: frozenset[JobState],
        deed: str,
        now: Timestamp,
        before: Timestamp | None = None,
    ) -> list[JobRow]:
        """Those named, each of which must exist and be in a fitting state; or those that a filter finds."""
        if operation.ids:
            rows = self._rows(self._sql.jobs_by_id, operation.database, as_json(list(operation.ids)))
            missing = set(operation.ids) - {row.id for row in rows}
            if missing and not operation.skip_unfit:
                raise JobMissing(f"there is no job {', '.join(sorted(missing))}")
            for row in rows:
                if row.state not in allowed and not operation.skip_unfit:
                    raise JobUnfit(f"job {row.id} is {row.state}; it cannot be {deed}")
            return [row for row in rows if row.state in allowed]
        states = [operation.state] if operation.state else sorted(allowed)
        if not set(states) <= allowed:
            raise JobUnfit(f"jobs that are {operation.state} cannot be {deed}")
        found: list[JobRow] = []
        for queue in self.queues.of(operation.database, [operation.queue] if operation.queue else ()):
            for state in states:
                room = operation.limit - len(found)
                if before is not None:
                    values = (queue.id, state, before, operation.type, room, now)
                    found += self._rows(self._sql.jobs_finished_before, *values)
                else:
                    about = (queue.id, operation.type, room, operation.error)
                    chosen = self._connection.rows(self._lists[JobState(state)], about, Columns)
                    found += self._rows(self._sql.jobs_by_number, numbers_of(chosen))
        return found

    # ── one way for all changes ──

    def _move(self, moves: Sequence[Move], now: Timestamp) -> int:
        """Jobs go to other states, with everything that follows from it; how many are cancelled. Whoever waited for
        them follows level by level: a chain of jobs is as long as somebody makes it, and no call stack is."""
        cancelled = 0
        while moves:
            ended = self._move_level(moves, now)
            cancelled += sum(state is JobState.CANCELLED for state in ended.values())
            moves = self._dependents_of(ended, now)
        return cancelled

    def _move_level(self, moves: Sequence[Move], now: Timestamp) -> dict[int, JobState]:
        """These jobs alone go to other states; those of them that have ended."""
        self._connection.executemany(self._sql.move_job, [update_of(*move, now) for move in moves])
        attempts = [
            attempt_of(row, verdict, report, now) for row, verdict, report in moves if leaves_attempt(row, report)
        ]
        if attempts:
            self._connection.executemany(self._sql.put_attempt, attempts)
        self._lanes.left((row.lane for row, _, _ in moves if row.state == JobState.PROCESSING), now)
        pending = JobState.PENDING
        self._lanes.entered((row.lane for row, verdict, _ in moves if verdict.state is pending), now)
        for row, verdict, report in moves:
            self._book(row, verdict, report, now)
        return {row.number: verdict.state for row, verdict, _ in moves if verdict.state in FINISHED}

    def _book(self, row: JobRow, verdict: Verdict, report: JobReport | None, now: Timestamp) -> None:
        queue = self.queues.by_id(row.queue_id)
        error = report.error[:200] if report is not None else ""
        state = verdict.state.value
        change = JobChange(row.id, queue.name, row.type, state, verdict.attempts, row.worker or "", error)
        self.books.changed(queue, JobState(row.state), change)
        if row.state == JobState.PROCESSING:
            self.books.ran(queue, ran_micros(row, report, now))

    def _dependents_of(self, ended: dict[int, JobState], now: Timestamp) -> list[Move]:
        """Where those go that waited for jobs which have ended: on, or to the cancelled with them."""
        if not ended:
            return []
        free, lost = self._dependents.settle(ended, now)
        moves: list[Move] = []
        for row in free:
            state = first_state(now, Timestamp(row.run_at), waits=False)
            moves.append((row, Verdict(state, row.attempts, Timestamp(row.run_at)), None))
        return [*moves, *_cancellations(lost, "a job that it depends on was cancelled")]

    def _tell(self, rows: Sequence[JobRow], state: JobState) -> None:
        for row in rows:
            queue = self.queues.by_id(row.queue_id)
            change = JobChange(row.id, queue.name, row.type, state.value, row.attempts)
            self.books.changed(queue, JobState(row.state), change)

    def _rows(self, statement: str, *values: int | str) -> list[JobRow]:
        return list(map(JobRow._make, self._connection.rows(statement, values, Columns)))

    def _cancelling(self, worker: str) -> list[JobNumber]:
        """The numbers of the jobs that a worker is to end."""
        return [number for (number,) in self._connection.rows(self._sql.jobs_cancelling, (worker,), tuple[JobNumber])]


def question_of(claim: Claim, now: Timestamp) -> FindJobsReady:
    """Whether such a claim would get something."""
    return FindJobsReady(claim.database, claim.queues, now, claim.functions, claim.worker, claim.capacity)


def _cancellations(rows: Sequence[JobRow], reason: str) -> list[Move]:
    """Jobs that do not run go to the cancelled."""
    return [(row, Verdict(JobState.CANCELLED, row.attempts), cancellation(row, reason)) for row in rows]


def _earliest(times: Sequence[int | None], now: Timestamp) -> Timestamp | None:
    """The first of these times, not before now."""
    found = min((time for time in times if time is not None), default=None)
    return None if found is None else Timestamp(max(found, now))
