"""Events in the lives of records, as whoever works on them notes them."""

import msgspec

from headwater.clock import Timestamp
from headwater.errors import QueueMissing
from headwater.log.operations import Trace, Traced
from headwater.model.names import PartitionId
from headwater.stores.questions import ListTraceNames, ListTraces, ListTracesNamed, TraceEvent, TraceName
from headwater.stores.tables.catalog import Catalog
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.patterns import as_patterns
from headwater.stores.tables.subject import Answering, Handlers, Subject, SubjectAnswers


class Traces(Subject):
    """All traces, under the write lock."""

    def __init__(self, connection: Connection, catalog: Catalog) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Trace: self.trace}

    def trace(self, operation: Trace, now: Timestamp) -> Traced:
        """Note an event, once for each of its names."""
        partition = self._catalog.partition_by_id(operation.partition_id)
        if partition is None or partition.queue.database != operation.database:
            raise QueueMissing(f"there is no partition {operation.partition_id}")
        names = operation.names or ("",)
        data = bytes(operation.data).decode()
        about = (operation.database, operation.partition_id, operation.transaction_id, operation.group)
        for name in names:
            self._connection.run(self._sql.add_trace, (*about, name, operation.event, data, now))
        return Traced(len(names))


# Partition, transaction id, group, name, event, time, data.
TraceRow = tuple[PartitionId, str, str, str, str, Timestamp, str]
# Name, how many events it has, when the last was.
TraceNameRow = tuple[str, int, Timestamp]


class TraceAnswers(SubjectAnswers):
    """Reads traces."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Answering:
        """What answers which question."""
        return {ListTraces: self.traces, ListTracesNamed: self.named, ListTraceNames: self.names}

    def traces(self, asked: ListTraces) -> list[TraceEvent]:
        """The noted events of one record."""
        about = (asked.database, asked.partition_id, asked.transaction_id)
        return [_event(row) for row in self._connection.rows(self._sql.traces, about, TraceRow)]

    def named(self, asked: ListTracesNamed) -> list[TraceEvent]:
        """The events noted under a name."""
        about = (asked.database, asked.name, as_patterns(asked.patterns), asked.limit, asked.skip)
        return [_event(row) for row in self._connection.rows(self._sql.traces_named, about, TraceRow)]

    def names(self, asked: ListTraceNames) -> list[TraceName]:
        """The names of events."""
        about = (asked.database, as_patterns(asked.patterns), asked.limit)
        return [TraceName(*row) for row in self._connection.rows(self._sql.trace_names, about, TraceNameRow)]


def _event(row: TraceRow) -> TraceEvent:
    partition_id, transaction_id, group, name, event, noted_at, data = row
    return TraceEvent(partition_id, transaction_id, group, name, event, noted_at, msgspec.Raw(data.encode()))
