"""Job queues and their settings, looked up once and remembered while nobody else commits."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from headwater.errors import InvalidOption, StoreDamaged
from headwater.log.job_operations import Changed, PauseJobs, SetJobConfig
from headwater.model.job import Backoff, Defaults, WorkerSettings
from headwater.model.job_settings import check_job_setting
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.subject import Read

Settings = TypeVar("Settings", bound=msgspec.Struct)
# Values of settings by queue and name; those of a database have no queue.
Found = dict[tuple[str, str], object]
# Number, database, name, whether it is paused.
JobQueueRow = tuple[int, str, str, int]
# Queue, name, value.
SettingRow = tuple[str, str, str]


class JobQueue(msgspec.Struct, frozen=True):
    """A job queue's row, with the settings that hold for its jobs."""

    id: int
    database: str
    name: str
    paused: bool
    defaults: Defaults
    backoff: Backoff


class JobQueues:
    """All job queues, under the write lock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._queues: dict[tuple[str, str], JobQueue] = {}
        self._by_id: dict[int, JobQueue] = {}
        self._settings: dict[str, Found] = {}
        self._complete: set[str] = set()
        self._newest = 0

    def forget(self) -> None:
        """Drop what is remembered: others have committed, or something was undone."""
        self._queues.clear()
        self._by_id.clear()
        self._settings.clear()
        self._complete.clear()

    def catch_up(self, newest: int) -> None:
        """Other processes may have made queues: those of a database are not all known then."""
        if newest != self._newest:
            self._newest = newest
            self._complete.clear()

    def known(self, database: str, name: str) -> JobQueue | None:
        """The queue, if it is remembered."""
        return self._queues.get((database, name))

    def known_of(self, database: str) -> list[JobQueue] | None:
        """All queues of a database, if they are remembered."""
        if database not in self._complete:
            return None
        return self._remembered(database)

    def is_any_known(self) -> bool:
        """Whether some queue is remembered, and so most likely all."""
        return bool(self._by_id)

    def foresee_settings(self, database: str) -> list[Read]:
        """What is read with the first queue of a database."""
        return [] if database in self._settings else [Read("job_config", (database,))]

    def find(self, database: str, name: str) -> JobQueue | None:
        """The queue, or None."""
        queue = self._queues.get((database, name))
        if queue is None:
            row = self._connection.row(self._sql.find_job_queue, (database, name), JobQueueRow)
            return None if row is None else self._remember(*row)
        return queue

    def make(self, database: str, name: str) -> JobQueue:
        """The queue, made when it is new."""
        queue = self.find(database, name)
        if queue is None:
            self._connection.run(self._sql.add_job_queue, (database, name))
            queue = self.find(database, name)
        if queue is None:
            raise StoreDamaged(f"job queue {name!r} could not be made")
        return queue

    def by_id(self, number: int) -> JobQueue:
        """The queue with this number."""
        if number not in self._by_id:
            for row in self._connection.rows(self._sql.all_job_queues, (), JobQueueRow):
                self._remember(*row)
        return self._by_id[number]

    def of(self, database: str, names: Sequence[str] = ()) -> list[JobQueue]:
        """The queues with these names that exist, or all of the database."""
        if names:
            return [queue for name in names if (queue := self.find(database, name)) is not None]
        if database not in self._complete:
            for row in self._connection.rows(self._sql.find_job_queues, (database,), JobQueueRow):
                self._remember(*row)
            self._complete.add(database)
        return self._remembered(database)

    def _remembered(self, database: str) -> list[JobQueue]:
        """In the order in which they were made, not in which this handle met them: what is chosen up to a limit, and
        the order that it is told in, would show that."""
        return [self._by_id[number] for number in sorted(self._by_id) if self._by_id[number].database == database]

    def databases(self) -> list[str]:
        """All databases that have jobs."""
        rows = self._connection.rows(self._sql.all_job_queues, (), JobQueueRow)
        return list(dict.fromkeys(row[1] for row in rows))

    def worker_settings(self, database: str) -> WorkerSettings:
        """What holds for the workers of a database."""
        return _settings(self._read(database), "", WorkerSettings)

    def configure(self, operation: SetJobConfig) -> Changed:
        """Remember or forget one setting."""
        place = (operation.database, operation.queue, operation.name)
        if operation.value is None:
            self._connection.run(self._sql.drop_job_config, place)
        else:
            value = check_job_setting(operation.name, operation.value, for_queue=bool(operation.queue))
            self._connection.run(self._sql.set_job_config, (*place, msgspec.json.encode(value).decode()))
        self.forget()
        return Changed([operation.name])

    def pause(self, operation: PauseJobs) -> Changed:
        """Hand out the jobs of a queue, or do not; a new queue can be paused before its first job."""
        queue = self.make(operation.database, operation.queue)
        self._connection.run(self._sql.pause_job_queue, (int(operation.paused), queue.id))
        self.forget()
        return Changed([queue.name])

    def _remember(self, number: int, database: str, name: str, paused: int) -> JobQueue:
        defaults = _settings(self._read(database), name, Defaults)
        backoff = Backoff(defaults.backoff_base, defaults.backoff_max, defaults.backoff_jitter)
        queue = JobQueue(number, database, name, bool(paused), defaults, backoff)
        self._queues[database, name] = self._by_id[number] = queue
        return queue

    def _read(self, database: str) -> Found:
        known = self._settings.get(database)
        if known is None:
            rows = self._connection.rows(self._sql.job_config, (database,), SettingRow)
            known = {(queue, name): msgspec.json.decode(value) for queue, name, value in rows}
            self._settings[database] = known
        return known


def _settings(found: Found, queue: str, kind: type[Settings]) -> Settings:
    """Settings of a kind: those of the queue over those of the database over the defaults."""
    values = {}
    for field in kind.__struct_fields__:
        name = field.replace("_", "-")
        for place in ((queue, name), ("", name)):
            if place in found:
                values[field] = found[place]
                break
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidOption(f"a job setting cannot be used: {error}") from error
