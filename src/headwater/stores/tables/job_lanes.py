"""Limited jobs queue in lanes: a lane whose limit is reached is not looked at until it can have something again.

What is blocked costs a claim nothing, however much of it waits: jobs without a limit (lane 0) and lanes that are ready
are found by index, blocked ones are not met at all.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from headwater.clock import Timestamp
from headwater.log.job_operations import Claim, Limited, NewJob, SetJobLimit, SweepLanes, Swept
from headwater.model.job import runs_command
from headwater.model.limits import JobLane, Limits, allowance, next_start, started
from headwater.stores.job_questions import FindJobsReady
from headwater.stores.tables.connection import Connection, Number, NumberOrNone
from headwater.stores.tables.job_queues import JobQueue, JobQueues
from headwater.stores.tables.job_rows import as_json
from headwater.stores.tables.job_shares import JobShares
from headwater.stores.tables.subject import Read

LANES_PER_CLAIM = 64
LOOKS_MAX = 10
SET_APART_AT_ONCE = 200
NO_LANE = 0
# In place of a queue, for lanes that are gates.
GATES = 0
OTHER_KIND = "\0"
# Number, gate.
LimitsRow = tuple[int, int]
# Parent, gate.
AboveRow = tuple[int, int]
# Number, parent, concurrency, rate, seconds, burst, free at, running, whether it takes turns, gate, type.
LaneRow = tuple[int, int, int, float, float, int, int, int, int, int, str]
# Concurrency, rate, seconds, burst: of a type, and of each key of it.
TypeLimitsRow = tuple[int, float, float, int, int, float, float, int]
# Jobs that run, jobs that are unfinished.
CountRow = tuple[int, int]
# The last of some lanes, and how many they are.
PartRow = tuple[int | None, int]
# Priority with a minus, number, type.
HeadRow = tuple[int, int, str]


class Head(NamedTuple):
    """A job that comes next in its lane; heads sort by what comes first."""

    priority: int  # with a minus
    number: int
    lane: int
    type: str
    queue_id: int


class QueueLook(NamedTuple):
    """A queue during one claim: whether jobs without a limit wait, when others come due, when a lane is ready."""

    queue: JobQueue
    pending: int
    due: int | None
    lane: int | None


class _Look(msgspec.Struct):
    """A lane during one claim."""

    lane: JobLane
    heads: list[Head]
    taken: int = 0


class Choice(NamedTuple):
    """The jobs that come next, and types of functions that were passed over because the worker has them not."""

    numbers: list[int]
    unknown: set[str]


class JobLanes:
    """All lanes, under the write lock."""

    def __init__(self, connection: Connection, queues: JobQueues) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._queues = queues
        self._limited: dict[tuple[int, str], int] = {}

    def forget(self) -> None:
        """Drop what is remembered."""
        self._limited.clear()

    def foresee(self, queue: JobQueue, job: NewJob) -> list[Read]:
        """What `place` will read."""
        found: list[Read] = []
        if (queue.id, job.type) not in self._limited:
            found.append(Read("find_lane_limits", (queue.id, job.type, "")))
        if job.concurrency_key:
            found.append(Read("find_lane_limits", (GATES, queue.database, job.concurrency_key)))
        key = job.concurrency_key or job.limit_key
        return [*found, Read("find_lane_limits", (queue.id, job.type, key))] if key else found

    # ── which lane ──

    def place(self, queue: JobQueue, job: NewJob) -> int:
        """The lane of a new job: 0 when nothing limits it."""
        parent = self._lane_of_type(queue, job.type)
        key = job.concurrency_key or job.limit_key
        if not key:
            return parent
        limit = job.concurrency_limit or (1 if job.concurrency_key else 0)
        gate = self._gate(queue.database, key, limit) if job.concurrency_key else NO_LANE
        row = self._find(queue.id, job.type, key)
        if row is not None and row[1] != gate:
            # The same text is a limit key of some jobs and the concurrency key of others.
            key += OTHER_KIND
            row = self._find(queue.id, job.type, key)
        if row is None:
            values = (queue.id, job.type, key, parent, limit, int(bool(job.limit_key)), gate)
            [(number,)] = self._connection.rows(self._sql.add_key_lane, values, Number)
            return number
        if limit:
            self._connection.rows(self._sql.set_lane_concurrency, (limit, row[0]), Number)
        return row[0]

    def _find(self, queue_id: int, kind: str, key: str) -> LimitsRow | None:
        return self._connection.row(self._sql.find_lane_limits, (queue_id, kind, key), LimitsRow)

    def _add(self, queue_id: int, kind: str, key: str = "", limit: int = 0) -> int:
        """The number of a new lane that nothing is above."""
        [(number,)] = self._connection.rows(self._sql.add_job_lane, (queue_id, kind, key, NO_LANE, limit), Number)
        return number

    def _gate(self, database: str, key: str, limit: int) -> int:
        """What all jobs of a concurrency key go through, whatever their queue and type. The limit that the last of them
        came with holds for all, also for those that wait already."""
        row = self._find(GATES, database, key)
        if row is None:
            return self._add(GATES, database, key, limit)
        if self._connection.rows(self._sql.set_lane_concurrency, (limit, row[0]), Number):
            self._connection.run(self._sql.set_concurrency_behind, (limit, row[0]))
        return row[0]

    def limit(self, operation: SetJobLimit, now: Timestamp) -> Limited:
        """Give a type of job limits; jobs of the type that are there already come under them."""
        queue = self._queues.make(operation.database, operation.queue)
        number = self._lane_of_type(queue, operation.type)
        if not number and operation.clear:
            return Limited(0)
        if not number:
            number = self._add(queue.id, operation.type)
        self._connection.run(self._sql.adopt_jobs, (number, queue.id, operation.type))
        self._connection.run(self._sql.adopt_lanes, (number, queue.id, operation.type))
        [found] = self._connection.rows(self._sql.get_lane_limits, (number,), TypeLimitsRow)
        own, each = Limits(*found[:4]), Limits(*found[4:])
        said = (operation.concurrency, operation.rate, operation.seconds, operation.burst)
        jobs = self._count_adopted(queue, operation.type, number, now)
        if operation.clear:
            self._limit_type(number, Limits(), now)
            self._limit_each(number, Limits(), now)
        elif operation.each_key:
            jobs = self._limit_each(number, each.changed(*said), now)
        else:
            self._limit_type(number, own.changed(*said), now)
        self.forget()
        return Limited(jobs, was_limited=bool(own) or bool(each))

    def _count_adopted(self, queue: JobQueue, kind: str, number: int, now: Timestamp) -> int:
        """Jobs that came to the lane of a type without passing through a claim: those that run count, those that wait
        are worth a look. How many unfinished ones there are of the type."""
        [(running, jobs)] = self._connection.rows(self._sql.count_type, (queue.id, kind), CountRow)
        self._connection.run(self._sql.recount_lane, (running, now, number))
        return jobs

    def _limit_type(self, number: int, limits: Limits, now: Timestamp) -> None:
        """New limits for all jobs of a type together."""
        values = (limits.concurrency, limits.rate, limits.seconds, limits.burst)
        self._connection.run(self._sql.limit_job_lane, (*values, now, number))
        self._connection.run(self._sql.wake_lanes_below, (number, now, LANES_PER_CLAIM))

    def _limit_each(self, number: int, limits: Limits, now: Timestamp) -> int:
        """New limits for the jobs of each limit key of a type; how many they hold for."""
        values = (limits.concurrency, limits.rate, limits.seconds, limits.burst, number)
        self._connection.run(self._sql.limit_each_key, values)
        self._connection.run(self._sql.limit_key_lanes, (*values, now))
        [(jobs,)] = self._connection.rows(self._sql.count_key_lanes, (number,), Number)
        return jobs

    def _lane_of_type(self, queue: JobQueue, kind: str) -> int:
        number = self._limited.get((queue.id, kind))
        if number is None:
            row = self._find(queue.id, kind, "")
            number = self._limited[queue.id, kind] = NO_LANE if row is None else row[0]
        return number

    # ── jobs come and go ──

    def entered(self, lanes: Iterable[int], now: Timestamp) -> None:
        """Jobs of these lanes may run now."""
        for lane in set(lanes):
            if lane:
                self._connection.run(self._sql.lane_entered, (now, lane))

    def left(self, lanes: Iterable[int], now: Timestamp) -> None:
        """Jobs of these lanes run no more."""
        counts: dict[int, int] = {}
        for lane in lanes:
            if lane:
                counts[lane] = counts.get(lane, 0) + 1
        for lane, count in counts.items():
            row = self._connection.row(self._sql.lane_left, (lane, count, now), AboveRow)
            self._connection.run(self._sql.wake_lanes_below, (lane, now, count))
            parent, gate = row or (NO_LANE, NO_LANE)
            if parent:
                self._connection.rows(self._sql.lane_left, (parent, count, now), AboveRow)
                self._connection.run(self._sql.wake_lanes_below, (parent, now, count))
            if gate:
                self._connection.rows(self._sql.lane_left, (gate, count, now), AboveRow)
                self._connection.run(self._sql.wake_lanes_behind, (gate, now))

    def sweep(self, operation: SweepLanes, now: Timestamp) -> Swept:
        """Forget lanes of keys that are empty and idle, among the next `limit` lanes: there may be one for every
        customer that ever was."""
        after, limit = operation.after, operation.limit
        [(through, seen)] = self._connection.rows(self._sql.lanes_after, (after, limit), PartRow)
        if through is None:
            return Swept(0, 0)
        dropped = self._connection.rows(self._sql.drop_idle_lanes, (after, through, now), Number)
        for gate in {gate for (gate,) in dropped if gate}:
            self._connection.run(self._sql.drop_idle_gate, (gate,))
        return Swept(len(dropped), through if seen == limit else 0)

    # ── claiming ──

    def choose(self, queues: list["QueueLook"], claim: Claim, now: Timestamp) -> Choice:
        """The jobs that come next, the most urgent first; their lanes are charged. Functions that the worker has not
        are set apart as they are met, each job once: from then on they cost no claim anything."""
        unknown: set[str] = set()
        limit, functions = claim.limit, claim.functions
        for round in range(LOOKS_MAX):
            width = limit if not round else max(limit, SET_APART_AT_ONCE)
            free, looks = self._look_at_all(queues, width, now, functions)
            strangers = [] if functions is None else _strangers(free, looks, functions)
            if not strangers:
                break
            unknown |= {head.type for head in strangers}
            self._set_apart(strangers, now)
        else:
            # The rest of them is for the next claim.
            free = [head for head in free if not _is_strange(head, functions)]
            looks = {}
        if not looks:
            return Choice([head.number for head in sorted(free)[:limit]], unknown)
        return Choice(self._choose_limited(free, looks, claim, now), unknown)

    def ready_for(self, queue: JobQueue, asked: FindJobsReady) -> int | None:
        """When a lane has something that this worker may be given; others may have what it may not."""
        shares = JobShares(self._connection, asked.worker, asked.database, asked.capacity)
        known = known_of(asked.functions)
        values = (queue.id, asked.now, LANES_PER_CLAIM, known)
        lanes = [JobLane(*row) for row in self._connection.rows(self._sql.ready_lanes, values, LaneRow)]
        above = {number: self._get(number) for number in {number for lane in lanes for number in lane.above()}}
        for lane in lanes:
            if all(shares.is_any_left(one, lane.type) for one in (lane, *(above[number] for number in lane.above()))):
                return asked.now
        [(later,)] = self._connection.rows(self._sql.lanes_later, (queue.id, asked.now, known), NumberOrNone)
        return later

    def _look_at_all(
        self, queues: list["QueueLook"], limit: int, now: Timestamp, functions: frozenset[str] | None
    ) -> tuple[list[Head], dict[int, _Look]]:
        free: list[Head] = []
        looks: dict[int, _Look] = {}
        known = known_of(functions)
        for queue, pending, _, lane in queues:
            if pending:
                free += self._heads(queue, NO_LANE, limit)
            if lane is None or lane > now:
                continue
            rows = self._connection.rows(self._sql.ready_lanes, (queue.id, now, LANES_PER_CLAIM, known), LaneRow)
            for row in rows:
                looks[row[0]] = self._look(queue, JobLane(*row), limit, now)
        return free, looks

    def _set_apart(self, strangers: list[Head], now: Timestamp) -> None:
        """Functions that some worker has not get a lane of their own, which tells what is in it."""
        moved: dict[tuple[int, str], list[int]] = {}
        for head in strangers:
            if head.lane:
                self._connection.run(self._sql.keep_for_function, (head.lane,))
            else:
                moved.setdefault((head.queue_id, head.type), []).append(head.number)
        for (queue_id, kind), numbers in moved.items():
            queue = self._queues.by_id(queue_id)
            lane = self._lane_of_type(queue, kind)
            if not lane:
                lane = self._limited[queue_id, kind] = self._add(queue_id, kind)
            self._connection.run(self._sql.keep_for_function, (lane,))
            self._connection.run(self._sql.move_to_lane, (lane, as_json(numbers)))
            self._connection.run(self._sql.lane_entered, (now, lane))

    def _choose_limited(self, free: list[Head], looks: dict[int, _Look], claim: Claim, now: Timestamp) -> list[int]:
        limit = claim.limit
        shares = JobShares(self._connection, claim.worker, claim.database, claim.capacity)
        parents = self._parents(looks)
        room = {number: allowance(look.lane, now, limit) for number, look in {**parents, **looks}.items()}
        chosen: list[int] = []
        for _, number, lane, kind, _ in _in_turn(free, looks):
            if len(chosen) == limit:
                break
            counted = [lane, *looks[lane].lane.above()] if lane else []
            counting = [looks.get(one) or parents[one] for one in counted]
            if any(room[look.lane.id] < 1 or not shares.is_any_left(look.lane, kind) for look in counting):
                continue
            chosen.append(number)
            for look in counting:
                room[look.lane.id] -= 1
                look.taken += 1
                shares.take(look.lane, kind)
        self._charge(looks, parents, now)
        return chosen

    def _look(self, queue: JobQueue, lane: JobLane, limit: int, now: Timestamp) -> _Look:
        """One head more than may be taken tells whether something stays behind."""
        return _Look(lane, self._heads(queue, lane.id, allowance(lane, now, limit) + 1))

    def _heads(self, queue: JobQueue, lane: int, limit: int) -> list[Head]:
        rows = self._connection.rows(self._sql.ready_heads, (queue.id, lane, limit), HeadRow)
        return [Head(priority, number, lane, kind, queue.id) for priority, number, kind in rows]

    def _parents(self, looks: dict[int, _Look]) -> dict[int, _Look]:
        numbers = {number for look in looks.values() for number in look.lane.above()} - set(looks)
        return {number: _Look(self._get(number), []) for number in numbers}

    def _get(self, number: int) -> JobLane:
        [row] = self._connection.rows(self._sql.get_job_lane, (number,), LaneRow)
        return JobLane(*row)

    def _charge(self, looks: dict[int, _Look], parents: dict[int, _Look], now: Timestamp) -> None:
        """Write down what each lane has used, and when it is worth another look."""
        after = {number: started(look.lane, now, look.taken) for number, look in {**parents, **looks}.items()}
        gates = {look.lane.gate for look in looks.values()}
        for number in parents:
            lane = after[number]
            own = None if number in gates else next_start(lane, now)
            blocked = int(own is None and number not in gates)
            self._connection.run(self._sql.set_job_lane, (lane.free_at, lane.running, blocked, own, number))
        for number, look in looks.items():
            lane = after[number]
            waits = len(look.heads) > look.taken or (number in {other.lane.parent for other in looks.values()})
            times = [next_start(one, now) for one in (lane, *(after[above] for above in lane.above()))]
            ready_at = max((time for time in times if time is not None), default=now) if waits else None
            is_blocked = waits and None in times
            row = (lane.free_at, lane.running, int(is_blocked), None if is_blocked else ready_at, number)
            self._connection.run(self._sql.set_job_lane, row)
        for number in sorted({look.lane.parent for look in looks.values()} - {NO_LANE}):
            self._pass_on(after[number], now)

    def _pass_on(self, parent: JobLane, now: Timestamp) -> None:
        """A lane that was woken when a place became free may have no use for it: its jobs were cancelled, or its rate
        holds it back. Nobody but this claim can wake the others that wait for the place."""
        places = parent.concurrency - parent.running if parent.concurrency else LANES_PER_CLAIM
        if places > 0:
            self._connection.run(self._sql.wake_lanes_below, (parent.id, now, places))


def _in_turn(free: list[Head], looks: dict[int, _Look]) -> list[Head]:
    """What comes first: the most urgent, then the oldest. Where keys take turns, each has its first before any has its
    second, and what a key has running counts as turns that it had; everything without a key is one party among them."""
    parties = [[*free, *(head for look in looks.values() if not look.lane.takes_turns for head in look.heads)]]
    had = [0]
    for look in looks.values():
        if look.lane.takes_turns:
            parties.append(look.heads)
            had.append(look.lane.running)
    if len(parties) == 1:
        return sorted(parties[0])
    ranked = []
    for party, turns in zip(parties, had, strict=True):
        ranked += [((head[0], turns + place, head[1]), head) for place, head in enumerate(sorted(party))]
    return [head for _, head in sorted(ranked)]


def known_of(functions: frozenset[str] | None) -> str | None:
    """The functions that a worker has, as a statement takes them."""
    return None if functions is None else as_json(sorted(functions))


def _strangers(free: list[Head], looks: dict[int, "_Look"], functions: frozenset[str]) -> list[Head]:
    """Heads that are functions which the worker has not."""
    heads = [*free, *(head for look in looks.values() for head in look.heads)]
    return [head for head in heads if _is_strange(head, functions)]


def _is_strange(head: Head, functions: frozenset[str] | None) -> bool:
    return functions is not None and head.type not in functions and not runs_command(head.type)
