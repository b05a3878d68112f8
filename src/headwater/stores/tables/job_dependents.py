"""Jobs that wait for other jobs: found by one question for all that have ended in a commit."""

from headwater.clock import Timestamp
from headwater.model.job import JobState
from headwater.stores.tables.connection import Columns, Connection
from headwater.stores.tables.job_rows import JobRow, as_json

# The job that is waited for, who waits, whether its end is enough.
DependentRow = tuple[int, int, int]


class JobDependents:
    """Who waits for whom, under the write lock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def settle(self, ended: dict[int, JobState], now: Timestamp) -> tuple[list[JobRow], list[JobRow]]:
        """Those that wait for nothing any more, and those whose wait can never end, after these jobs have ended.

        A dead job may yet be retried, so what needs it to complete goes on waiting.
        """
        met: dict[int, int] = {}
        lost: set[int] = set()
        rows = self._open(as_json(list(ended)))
        for needs, job, settled in rows:
            if settled or ended[needs] is JobState.COMPLETED:
                self._connection.run(self._sql.meet_dependency, (needs, job))
                met[job] = met.get(job, 0) + 1
            elif ended[needs] is JobState.CANCELLED:
                lost.add(job)
        for job, count in met.items():
            self._connection.run(self._sql.lower_waits, (count, now, job))
        found = self._waiting([*met, *lost]) if met or lost else []
        free = [row for row in found if row.waits == 0 and row.number not in lost]
        return free, [row for row in found if row.number in lost]

    def waiting_for(self, numbers: str) -> list[JobRow]:
        """Those that still wait for these jobs."""
        rows = self._open(numbers)
        return self._waiting([job for _, job, _ in rows]) if rows else []

    def below(self, number: int) -> dict[int, list[int]]:
        """All that wait for a job, however long the way down: each with those of them that it waits for itself."""
        needs: dict[int, list[int]] = {}
        looked_at, level = {number}, [number]
        while level:
            rows = self._open(as_json(level))
            for need, job, _ in rows:
                needs.setdefault(job, []).append(need)
            level = sorted({job for _, job, _ in rows} - looked_at)
            looked_at.update(level)
        return needs

    def move(self, number: int, to: int) -> None:
        """Whoever waits for a job waits for another one instead, which has not ended either."""
        self._connection.run(self._sql.move_dependents, (to, number))

    def _waiting(self, numbers: list[int]) -> list[JobRow]:
        rows = self._connection.rows(self._sql.jobs_by_number, (as_json(numbers),), Columns)
        return [row for row in map(JobRow._make, rows) if row.state == JobState.WAITING]

    def _open(self, numbers: str) -> list[DependentRow]:
        return self._connection.rows(self._sql.open_dependents, (numbers,), DependentRow)
