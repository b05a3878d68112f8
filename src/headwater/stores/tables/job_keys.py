"""Unique keys of jobs that come back: one unfinished job at most holds a key, whichever way it became one."""

from collections.abc import Sequence

from headwater.clock import Timestamp
from headwater.model.job import FINISHED, JobState
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.job_rows import JobRow, UniqueRow, numbers_of

# The number of a job, its key.
KeyRow = tuple[int, str]


class JobKeys:
    """The unique keys of the store. `job_intake.py` gives them to new jobs."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def held_elsewhere(self, database: str, rows: Sequence[JobRow]) -> dict[int, str]:
        """Jobs that cannot come back, by number, each with the id of the one that has its key. Of several with one key
        the newest comes back."""
        keys = self._keys(rows)
        first: dict[str, JobRow] = {}
        held: dict[int, str] = {}
        for row in sorted(rows, key=lambda one: one.number, reverse=True):
            key = keys.get(row.number)
            if key is None:
                continue
            other = first[key].id if key in first else self._holder(database, key, row.number)
            if other:
                held[row.number] = other
            else:
                first[key] = row
        return held

    def regain(self, database: str, rows: Sequence[JobRow], now: Timestamp) -> None:
        """These jobs hold their keys again. For how long a key was promised to be kept, it is."""
        for number, key in self._keys(rows).items():
            found = self._connection.row(self._sql.find_unique, (database, key), UniqueRow)
            until = now if found is None else found[1]
            self._connection.run(self._sql.put_unique, (database, key, number, until))

    def _keys(self, rows: Sequence[JobRow]) -> dict[int, str]:
        return dict(self._connection.rows(self._sql.unique_keys_of, (numbers_of(rows),), KeyRow))

    def _holder(self, database: str, key: str, number: int) -> str:
        """The id of another unfinished job that has this key, if there is one."""
        found = self._connection.row(self._sql.find_unique, (database, key), UniqueRow)
        if found is None or found[0] == number or found[3] is None or JobState(found[3]) in FINISHED:
            return ""
        return str(found[2])
