"""Jobs that depend on other jobs: who waits is found by one question for all that have ended in a commit.

What a job that may still run goes by is kept for it, with its result. It may still run until it has completed or was
cancelled: a dead one waits for somebody to retry it.
"""

from collections.abc import Sequence

from headwater.clock import Timestamp
from headwater.model.job import JobState
from headwater.stores.tables.connection import Columns, Connection, Number
from headwater.stores.tables.job_rows import JobRow, as_json, numbers_of

# The job that is waited for, who waits, whether its end is enough.
DependentRow = tuple[int, int, int]
# The job whose end another goes by, and that one's number and id.
NeededRow = tuple[int, int, str]


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
        over: list[tuple[int, int]] = []
        rows = self._open(as_json(list(ended)))
        for needs, job, settled in rows:
            if settled or ended[needs] is JobState.COMPLETED:
                over.append((needs, job))
                met[job] = met.get(job, 0) + 1
            elif ended[needs] is JobState.CANCELLED:
                lost.add(job)
        if met:
            self._connection.executemany(self._sql.meet_dependency, over)
            self._connection.executemany(self._sql.lower_waits, [(count, now, job) for job, count in met.items()])
        found = self._waiting([*met, *lost]) if met or lost else []
        free = [row for row in found if row.waits == 0 and row.number not in lost]
        return free, [row for row in found if row.number in lost]

    def waiting_for(self, numbers: str) -> list[JobRow]:
        """Those that still wait for these jobs."""
        rows = self._open(numbers)
        return self._waiting([job for _, job, _ in rows]) if rows else []

    def needed(self, rows: Sequence[JobRow]) -> dict[int, str]:
        """Those of these jobs that cannot be dropped together, by number, each with the id of a job that goes by its
        end, may still run and stays."""
        found = self._connection.rows(self._sql.needed_by, (numbers_of(rows),), NeededRow) if rows else []
        leaving = {row.number for row in rows}
        needed: dict[int, str] = {}
        # One that stays may need others that were to leave with it.
        while more := {needs: name for needs, job, name in found if needs in leaving and job not in leaving}:
            needed |= more
            leaving -= more.keys()
        return needed

    def orphaned(self, rows: Sequence[JobRow]) -> set[int]:
        """The numbers of those of these jobs that depend on one which was dropped."""
        found = self._connection.rows(self._sql.orphaned_jobs, (numbers_of(rows),), Number) if rows else []
        return {number for (number,) in found}

    def stuck(self, rows: Sequence[JobRow]) -> set[int]:
        """The numbers of those of these jobs that would wait for ever if all of them were retried together: they need
        one that is cancelled and stays so."""
        found = self._connection.rows(self._sql.cancelled_needs, (numbers_of(rows),), tuple[int, int]) if rows else []
        going = {row.number for row in rows}
        stuck: set[int] = set()
        # One that is not retried leaves those stuck that need it.
        while more := {job for job, needs in found if job in going and needs not in going}:
            stuck |= more
            going -= more
        return stuck

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
