"""New jobs under the write lock: decided before the first row is written, so that all of them go in or none."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.errors import InvalidOption, JobExists, JobMissing, JobUnfit
from headwater.log.job_operations import Enqueue, Enqueued, NewJob, Placed
from headwater.model.dependencies import check_no_cycle
from headwater.model.job import FINISHED, QUEUE_DEFAULT, JobState, first_state, runs_command
from headwater.stores.tables.connection import Columns, Connection, Number
from headwater.stores.tables.job_books import JobBooks, JobChange
from headwater.stores.tables.job_dependents import JobDependents
from headwater.stores.tables.job_lanes import JobLanes
from headwater.stores.tables.job_queues import JobQueue, JobQueues
from headwater.stores.tables.job_rows import JobIds, JobRow, UniqueRow, as_json, encode_work
from headwater.stores.tables.job_types import JobTypes

_replaceable = (JobState.PENDING, JobState.SCHEDULED, JobState.WAITING, JobState.FAILED)


class _Arrival(msgspec.Struct, gc=False):
    """A job on its way in: its number, and the jobs that it has to wait for."""

    job: NewJob
    id: str
    number: int
    needs: tuple[int, ...] = ()
    replaced: str = ""


class _Like(NamedTuple):
    """What jobs share that differ in nothing but their ids and what they do: all of these are one statement."""

    queue_id: int
    lane: int
    state: JobState
    priority: int
    run_at: int
    type: str
    attempts_max: int
    waits: int
    depends: int
    batch: str | None
    unique_key: str | None


class _Alike(msgspec.Struct, frozen=True, gc=False):
    """Jobs of one kind that are added together."""

    queue: JobQueue
    like: _Like
    state: str
    members: list[tuple[int, str, str]]


# What decides, besides how many jobs it depends on and how many of them are open, how a new job begins.
_sort = attrgetter(
    *("queue", "type", "priority", "run_at", "delay", "retries", "batch", "unique_key"),
    *("concurrency_key", "concurrency_limit", "limit_key"),
)


class JobIntake:
    """Adds jobs. `cancel` is what cancels those that are replaced."""

    def __init__(
        self,
        connection: Connection,
        queues: JobQueues,
        types: JobTypes,
        lanes: JobLanes,
        books: JobBooks,
        cancel: Callable[[Sequence[JobRow], str, Timestamp], int],
    ) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._queues = queues
        self._types = types
        self._lanes = lanes
        self._books = books
        self._cancel = cancel
        self._dependents = JobDependents(connection)
        self._ids = JobIds()
        self._last_number: int | None = None

    def forget(self) -> None:
        """Others may have added jobs."""
        self._last_number = None

    def enqueue(self, operation: Enqueue, now: Timestamp) -> Enqueued:
        """Add all these jobs, or none."""
        jobs = self._types.filled(operation.database, operation.jobs)
        self._refuse_known(operation.database, jobs)
        placed: list[Placed | None] = []
        arrivals = []
        keys: dict[str, _Arrival] = {}
        # Jobs that are there already, by the ids that they were to be added under.
        stands_for: dict[str, str] = {}
        number = self._newest()
        for job in jobs:
            duplicate, replaced = self._duplicate(operation.database, job, keys, now) if job.unique_key else (None, "")
            placed.append(duplicate)
            if duplicate is None:
                number += 1
                arrivals.append(_Arrival(job, job.id or self._ids.next(now), number, (), replaced))
                if job.unique_key:
                    keys[job.unique_key] = arrivals[-1]
            elif job.id:
                stands_for[job.id] = duplicate.id
        stands_for |= {arrival.replaced: arrival.id for arrival in arrivals if arrival.replaced}
        self._resolve(operation.database, arrivals, stands_for)
        states = self._insert(operation.database, arrivals, now) if arrivals else []
        fresh = iter(zip(arrivals, states, strict=True))
        self._last_number = number
        return Enqueued([found or _placed(*next(fresh)) for found in placed])

    def _newest(self) -> int:
        if self._last_number is None:
            [(self._last_number,)] = self._connection.rows(self._sql.last_job_number, (), Number)
        return self._last_number

    # ── deciding ──

    def _refuse_known(self, database: str, jobs: Sequence[NewJob]) -> None:
        """Ids are given once: within the operation, and against what is there."""
        for job in jobs:
            need_work(job)
        ids = [job.id for job in jobs if job.id]
        if not ids:
            return
        if len(set(ids)) < len(ids):
            repeated = sorted(name for name in set(ids) if ids.count(name) > 1)
            raise JobExists(f"these ids come more than once: {', '.join(repeated[:5])}")
        for found in self._named(database, ids):
            raise JobExists(f"there is a job {found.id} already, it is {found.state}; choose another id")

    def _duplicate(
        self, database: str, job: NewJob, keys: dict[str, _Arrival], now: Timestamp
    ) -> tuple[Placed | None, str]:
        """The job that has the unique key already, and keeps it; or the id of one that this job replaces."""
        earlier = keys.get(job.unique_key)
        if earlier is not None:
            # One that is added with it is not begun: the newer one takes its place, as in a call of its own.
            is_replaced = job.unique_mode == "replace"
            return (None, earlier.id) if is_replaced else (Placed(earlier.id, JobState.PENDING, True), "")
        row = self._connection.row(self._sql.find_unique, (database, job.unique_key), UniqueRow)
        if row is None:
            return None, ""
        _, until, name, said = row
        if name is None or said is None:
            return None, ""
        state = JobState(said)
        unfinished = state not in FINISHED
        if job.unique_mode == "replace" and unfinished and state in _replaceable:
            return None, name
        if unfinished or (until > now and job.unique_mode != "replace"):
            return Placed(name, state, True), ""
        return None, ""

    def _named(self, database: str, ids: Sequence[str]) -> list[JobRow]:
        rows = self._connection.rows(self._sql.jobs_by_id, (database, as_json(ids)), Columns)
        return list(map(JobRow._make, rows))

    def _numbered(self, numbers: Sequence[int]) -> list[JobRow]:
        rows = self._connection.rows(self._sql.jobs_by_number, (as_json(numbers),), Columns)
        return list(map(JobRow._make, rows))

    def _resolve(self, database: str, arrivals: list[_Arrival], stands_for: Mapping[str, str]) -> None:
        """Find the jobs that new ones depend on: among themselves, or in the table. Where one was not added because
        another has its unique key, or is replaced by another, that one is waited for."""
        dependent = [arrival for arrival in arrivals if arrival.job.depends_on]
        if not dependent:
            return
        wanted = {one.id: [_stand_in(name, stands_for) for name in one.job.depends_on] for one in dependent}
        check_no_cycle({**self._inherited(database, arrivals, stands_for), **wanted})
        fresh = {arrival.id: arrival.number for arrival in arrivals}
        names = {name for found in wanted.values() for name in found} - set(fresh)
        known = {row.id: row for row in self._named(database, sorted(names))}
        for name in sorted(names - set(known)):
            raise JobMissing(f"there is no job {name!r} to depend on")
        for arrival in dependent:
            for name in dict.fromkeys(wanted[arrival.id]):
                self._need(arrival, fresh.get(name), known.get(name))

    def _inherited(
        self, database: str, arrivals: list[_Arrival], stands_for: Mapping[str, str]
    ) -> dict[str, list[str]]:
        """Who will wait for new jobs because they wait for those that these replace: by id, what each waits for."""
        added = {arrival.id for arrival in arrivals}
        found: dict[str, list[str]] = {}
        for name in sorted({one.replaced for one in arrivals if one.replaced} - added):
            for row in self._named(database, [name]):
                below = self._dependents.below(row.number)
                ids = {one.number: one.id for one in self._numbered(sorted({row.number, *below}))}
                for job, needs in below.items():
                    found.setdefault(ids[job], []).extend(_stand_in(ids[need], stands_for) for need in needs)
        return found

    @staticmethod
    def _need(arrival: _Arrival, fresh: int | None, known: JobRow | None) -> None:
        settled = arrival.job.depends_when == "finished"
        if known is not None and known.state == JobState.CANCELLED and not settled:
            raise JobUnfit(f"job {known.id} is cancelled; nothing can depend on it")
        number = fresh if fresh is not None else known.number if known is not None else 0
        arrival.needs = (*arrival.needs, number)

    # ── writing ──

    def _insert(self, database: str, arrivals: list[_Arrival], now: Timestamp) -> list[JobState]:
        added = {arrival.id for arrival in arrivals}
        self._replace(database, [one for one in arrivals if one.replaced not in added], now)
        waits = self._waits(arrivals)
        alike: dict[tuple[object, ...], _Alike] = {}
        states: list[JobState] = []
        changes: list[JobChange] = []
        for arrival in arrivals:
            job = arrival.job
            open_needs = waits.get(arrival.number, 0)
            sort = (*_sort(job), len(arrival.needs), open_needs)
            group = alike.get(sort)
            if group is None:
                queue = self._queues.make(database, job.queue or QUEUE_DEFAULT)
                like = self._like(arrival, queue, open_needs, now)
                group = alike[sort] = _Alike(queue, like, like.state._value_, [])
            group.members.append((arrival.number, arrival.id, encode_work(job, group.queue)))
            states.append(group.like.state)
            changes.append(JobChange(arrival.id, group.queue.name, job.type, group.state))
        for group in alike.values():
            self._connection.run(self._sql.add_jobs, (as_json(group.members), database, *group.like, now))
            self._books.moved(group.queue, None, group.state, len(group.members))
        self._books.tell_all(database, changes)
        self._lanes.entered([group.like.lane for group in alike.values() if group.state == "pending"], now)
        if waits or any(map(_has_ties, arrivals)):
            self._note_keys_and_needs(database, arrivals, now)
        self._replace(database, [one for one in arrivals if one.replaced in added], now)
        return states

    def _like(self, arrival: _Arrival, queue: JobQueue, waits: int, now: Timestamp) -> "_Like":
        """What a new job has in common with others that are added with it."""
        job = arrival.job
        run_at = now if job.run_at is None else job.run_at
        if job.delay and job.run_at is None:
            run_at = Timestamp(now + int(job.delay * SECOND))
        state = first_state(now, run_at, waits=waits > 0)
        retries = queue.defaults.max_retries if job.retries is None else job.retries
        lane = self._lanes.place(queue, job)
        ties = (waits, len(arrival.needs), job.batch or None, job.unique_key or None)
        return _Like(queue.id, lane, state, job.priority or 0, run_at, job.type, retries + 1, *ties)

    def _waits(self, arrivals: list[_Arrival]) -> dict[int, int]:
        """How many of the jobs that each depends on have not ended well, or at all where that is enough."""
        numbers = sorted({number for arrival in arrivals for number in arrival.needs})
        if not numbers:
            return {}
        states = {row.number: JobState(row.state) for row in self._numbered(numbers)}
        return {
            arrival.number: sum(not _is_met(arrival, states.get(need)) for need in arrival.needs)
            for arrival in arrivals
        }

    def _note_keys_and_needs(self, database: str, arrivals: list[_Arrival], now: Timestamp) -> None:
        for arrival in arrivals:
            job = arrival.job
            if job.unique_key:
                until = now + int((job.unique_seconds or 0.0) * SECOND)
                self._connection.run(self._sql.put_unique, (database, job.unique_key, arrival.number, until))
            settled = int(job.depends_when == "finished")
            for need in arrival.needs:
                self._connection.run(self._sql.add_dependency, (need, arrival.number, settled))
        met = [arrival for arrival in arrivals if arrival.needs]
        if met:
            self._meet(met)

    def _meet(self, arrivals: list[_Arrival]) -> None:
        """Dependencies that were fulfilled before are not waited for."""
        numbers = sorted({number for arrival in arrivals for number in arrival.needs})
        states = {row.number: JobState(row.state) for row in self._numbered(numbers)}
        for arrival in arrivals:
            for need in arrival.needs:
                if _is_met(arrival, states.get(need)):
                    self._connection.run(self._sql.meet_dependency, (need, arrival.number))

    def _replace(self, database: str, arrivals: list[_Arrival], now: Timestamp) -> None:
        names = [arrival.replaced for arrival in arrivals if arrival.replaced]
        if names:
            replaced = self._named(database, names)
            places = {arrival.replaced: arrival.number for arrival in arrivals}
            for row in replaced:
                # The newer one takes its place: to those who wait for it, it was not cancelled.
                self._dependents.move(row.number, places[row.id])
            self._cancel(replaced, "replaced by a newer job with the same unique key", now)


def _stand_in(name: str, stands_for: Mapping[str, str]) -> str:
    """The job that is there in the place of another. One that replaces a job may be replaced itself by the next."""
    while name in stands_for:
        name = stands_for[name]
    return name


def need_work(job: NewJob) -> None:
    """Raises when a job that is to run a command has none."""
    if not job.command and not job.argv and runs_command(job.type):
        raise InvalidOption(
            f"a job of type {job.type} needs a command or a list of arguments (argv); a function has a type of its own"
        )


def _is_met(arrival: _Arrival, state: JobState | None) -> bool:
    if state is None:
        return False
    return state is JobState.COMPLETED or (arrival.job.depends_when == "finished" and state in FINISHED)


def _has_ties(arrival: _Arrival) -> bool:
    return bool(arrival.needs or arrival.job.unique_key)


def _placed(arrival: _Arrival, state: JobState) -> Placed:
    return Placed(arrival.id, state)
