"""What a commit did to jobs, gathered and written once: the changes to the log, the counts by state and by minute."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.model.job import CONTROL_PARTITION, JOBS_QUEUE, JobState
from headwater.model.names import PARTITION_DEFAULT
from headwater.model.record import Record
from headwater.stores.tables.catalog import Catalog
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.job_queues import JobQueue
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.subject import Read, Subject

MINUTE = 60 * SECOND
LOG_RETENTION_SECONDS = 7 * 86_400.0
_ENQUEUED, _COMPLETED, _FAILED, _DEAD, _RUN = range(5)
_columns = {"completed": _COMPLETED, "failed": _FAILED, "dead": _DEAD}


class JobChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A change of a job's state as the log has it; `state` is empty for news that are no change of state."""

    id: str
    queue: str = ""
    type: str = ""
    state: str = ""
    attempt: int = 0
    worker: str = ""
    error: str = ""
    event: str = ""
    progress: msgspec.Raw = msgspec.Raw(b"null")


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A record that is encoded together with its payload: the same JSON as a `Record`, in one step for all of them."""

    data: JobChange


_Kept = tuple[dict[tuple[str, str], list[_Entry]], dict[tuple[int, str], int], dict[int, list[int]]]


class JobBooks(Subject):
    """The books of one commit."""

    def __init__(self, connection: Connection, catalog: Catalog, segments: Segments) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._segments = segments
        self._records: dict[tuple[str, str], list[_Entry]] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self._minutes: dict[int, list[int]] = {}

    def foresee_log(self, database: str) -> list[Read]:
        """What the log's part of the books will read."""
        queue = self._catalog.known_queue(database, JOBS_QUEUE)
        if queue is None:
            return [Read("find_queue", (database, JOBS_QUEUE))]
        partition = self._catalog.known_partition(queue, PARTITION_DEFAULT)
        if partition is None:
            return [Read("find_partition", (queue.id, PARTITION_DEFAULT))]
        return self._segments.foresee_end(partition.id)

    def changed(self, queue: JobQueue, before: JobState | None, change: JobChange) -> None:
        """A job went from `before` (None: it is new) to the state that `change` names."""
        self.moved(queue, before, change.state)
        self.tell(queue.database, change)

    def moved(self, queue: JobQueue, before: str | None, after: str | None, count: int = 1) -> None:
        """Jobs changed their state. Plain texts: an enum is hashed in Python, and this is done for every job."""
        counts = self._counts
        if before is not None:
            left = (queue.id, str(before))
            counts[left] = counts.get(left, 0) - count
        if after is not None:
            reached = (queue.id, str(after))
            counts[reached] = counts.get(reached, 0) + count
            column = _ENQUEUED if before is None else _columns.get(reached[1])
            if column is not None:
                self._minute(queue)[column] += count

    def ran(self, queue: JobQueue, micros: int) -> None:
        """A job ran for so long."""
        self._minute(queue)[_RUN] += max(micros, 0)

    def tell(self, database: str, change: JobChange, partition: str = PARTITION_DEFAULT) -> None:
        """Append news to the log with this commit."""
        self._records.setdefault((database, partition), []).append(_Entry(change))

    def tell_all(self, database: str, changes: Sequence[JobChange]) -> None:
        """Append the changes of many jobs."""
        self._records.setdefault((database, PARTITION_DEFAULT), []).extend(map(_Entry, changes))

    def control(self, database: str, event: str, about: str) -> None:
        """Tell workers something that they must look after."""
        self.tell(database, JobChange(id=about, event=event), CONTROL_PARTITION)

    def keep(self) -> Callable[[], None]:
        """A transaction may be undone: what was noted before it is not."""
        records = {lane: list(found) for lane, found in self._records.items()}
        minutes = {queue: list(found) for queue, found in self._minutes.items()}
        return partial(self._go_back, (records, dict(self._counts), minutes))

    def _go_back(self, kept: _Kept) -> None:
        self._records, self._counts, self._minutes = kept

    def forget(self) -> None:
        """What was noted is written, or never happened."""
        self._go_back(({}, {}, {}))

    def close(self, now: Timestamp) -> None:
        """Write everything down: one segment a database, a row for each state and queue."""
        if not (self._records or self._counts or self._minutes):
            return
        if self._counts:
            rows = [(*place, count) for place, count in self._counts.items() if count]
            self._connection.executemany(self._sql.count_jobs, rows)
        if self._minutes:
            minute = now // MINUTE
            rows_of_minutes = [(queue, minute, *row) for queue, row in self._minutes.items()]
            self._connection.executemany(self._sql.count_minute, rows_of_minutes)
        for (database, partition), records in self._records.items():
            self._append(database, partition, records, now)
        self.forget()

    def _append(self, database: str, partition: str, entries: list[_Entry], now: Timestamp) -> None:
        queue = self._catalog.find_queue(database, JOBS_QUEUE)
        if queue is None:
            options = msgspec.json.encode({"retention_seconds": LOG_RETENTION_SECONDS}).decode()
            self._connection.run(self._sql.add_queue, (database, JOBS_QUEUE, "", "", 0, options, now))
            queue = self._catalog.need_queue(database, JOBS_QUEUE)
        records = cast(list[Record], entries)
        self._segments.append(self._catalog.make_partition(queue, partition, now), records, now)

    def _minute(self, queue: JobQueue) -> list[int]:
        return self._minutes.setdefault(queue.id, [0, 0, 0, 0, 0])
