"""How much of a limit one worker holds.

A place that a job takes while it only waits in a worker is lost to the others. So a worker is given as many limited
jobs as it can run at once, and more only where there are as many places for each of the others.
"""

from collections import Counter

from headwater.log.job_operations import Capacity
from headwater.model.limits import JobLane, share
from headwater.stores.tables.connection import Connection, Number

# Number of a lane, its parent, its gate, type, how many jobs.
HeldRow = tuple[int, int, int, str, int]


class JobShares:
    """What one worker may be given during one claim. Functions that it runs one by one count apart from the rest."""

    def __init__(self, connection: Connection, worker: str, database: str, capacity: Capacity | None) -> None:
        self._connection = connection
        self._worker = worker
        self._database = database
        self._capacity = capacity
        self._held: Counter[tuple[int, bool]] = Counter()
        self._workers = 0

    def is_any_left(self, lane: JobLane, kind: str) -> bool:
        """Whether the worker may have one more job of this type in a lane."""
        if self._capacity is None or not lane.concurrency:
            return True
        if not self._workers:
            self._look(self._capacity)
        alone = kind in self._capacity.one_by_one
        at_once = 1 if alone else self._capacity.jobs
        return self._held[lane.id, alone] < share(lane, at_once, self._workers)

    def take(self, lane: JobLane, kind: str) -> None:
        """The worker gets a job of this type."""
        if self._capacity is not None:
            self._held[lane.id, kind in self._capacity.one_by_one] += 1

    def _look(self, capacity: Capacity) -> None:
        """Only once a limit asks for it: most claims meet none."""
        sql = self._connection.sql
        [(workers,)] = self._connection.rows(sql.count_workers, (self._database,), Number)
        self._workers = max(workers, 1)
        for lane, parent, gate, kind, count in self._connection.rows(sql.lanes_held, (self._worker,), HeldRow):
            for number in (lane, parent, gate):
                self._held[number, kind in capacity.one_by_one] += count
