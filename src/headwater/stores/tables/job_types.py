"""What functions were declared with, kept in the store: so it holds wherever a job is added that names its type.

Apps and workers register their functions when they start. A store on which nobody has done so costs nothing here.
"""

from collections.abc import Sequence

import msgspec

from headwater.clock import Timestamp
from headwater.log.job_operations import Changed, NewJob, RegisterTypes
from headwater.model.job_policy import JobPolicy, filled, options_given
from headwater.stores.tables.connection import Connection

# Name, policy.
PolicyRow = tuple[str, str]


class JobTypes:
    """The policies of all types, under the write lock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._known: dict[str, dict[str, dict[str, object]]] = {}

    def forget(self) -> None:
        """Others may have registered theirs."""
        self._known.clear()

    def knows(self, database: str) -> bool:
        """Whether the policies of a database are remembered."""
        return database in self._known

    def filled(self, database: str, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Jobs with what their functions were declared with, where they say nothing themselves."""
        known = self._policies(database)
        if not known:
            return jobs
        return [filled(job, standing) if (standing := known.get(job.type)) else job for job in jobs]

    def register(self, operation: RegisterTypes, now: Timestamp) -> Changed:
        """Remember the policies of types; those that are new or different."""
        found = dict(self._connection.rows(self._sql.job_types, (operation.database,), PolicyRow))
        changed = []
        for name, policy in operation.types.items():
            text = msgspec.json.encode(policy).decode()
            if found.get(name) != text:
                self._connection.run(self._sql.put_job_type, (operation.database, name, text, now))
                changed.append(name)
        self.forget()
        return Changed(changed)

    def _policies(self, database: str) -> dict[str, dict[str, object]]:
        known = self._known.get(database)
        if known is None:
            rows = self._connection.rows(self._sql.job_types, (database,), PolicyRow)
            policies = {name: options_given(msgspec.json.decode(text, type=JobPolicy)) for name, text in rows}
            known = self._known[database] = {name: standing for name, standing in policies.items() if standing}
        return known
