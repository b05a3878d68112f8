"""Events in the lives of records, as whoever works on them notes them.

Of an encrypted queue, transaction id, event and data are kept together, encrypted, in the place of the data; the record
is found again by a name that only the key makes of its id.
"""

from base64 import b64decode, b64encode

import msgspec

from headwater.clock import Timestamp
from headwater.errors import EncryptionKeyMissing, QueueMissing
from headwater.log.operations import Trace, Traced
from headwater.model.names import PartitionId
from headwater.model.queue import QueueOptions
from headwater.stores.codec import AES_GCM, Codec
from headwater.stores.questions import ListTraceNames, ListTraces, ListTracesNamed, TraceEvent, TraceName
from headwater.stores.tables.catalog import Catalog
from headwater.stores.tables.connection import Connection, Number
from headwater.stores.tables.key_check import KeyCheck
from headwater.stores.tables.patterns import as_patterns
from headwater.stores.tables.subject import Answering, Handlers, Subject, SubjectAnswers

_PLACE = b"trace"
_ENCRYPTED = QueueOptions(encrypted=True, compress_bytes_min=0)
# No JSON begins like this, so no data of a queue that is not encrypted does.
_MARK = "encrypted:"


class _Told(msgspec.Struct, frozen=True):
    """What an event tells."""

    transaction_id: str
    event: str
    data: str


class Traces(Subject):
    """All traces, under the write lock."""

    def __init__(self, connection: Connection, codec: Codec, catalog: Catalog) -> None:
        self._codec = codec
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._key = KeyCheck(connection, codec)

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Trace: self.trace}

    def trace(self, operation: Trace, now: Timestamp) -> Traced:
        """Note an event, once for each of its names."""
        partition = self._catalog.partition_by_id(operation.partition_id)
        if partition is None or partition.queue.database != operation.database:
            raise QueueMissing(f"there is no partition {operation.partition_id}")
        names = operation.names or ("",)
        told = _Told(operation.transaction_id, operation.event, bytes(operation.data).decode())
        if partition.queue.options.encrypted:
            self._key.check(partition.queue.options)
            told = self._hidden(told)
        about = (operation.database, operation.partition_id, told.transaction_id, operation.group)
        for name in names:
            self._connection.run(self._sql.add_trace, (*about, name, told.event, told.data, now))
        return Traced(len(names))

    def _hidden(self, told: _Told) -> _Told:
        _, body = self._codec.pack(msgspec.json.encode(told), _ENCRYPTED, _PLACE)
        return _Told(self._codec.name(told.transaction_id, _ENCRYPTED), "", _MARK + b64encode(body).decode())


# Partition, transaction id, group, name, event, time, data.
TraceRow = tuple[PartitionId, str, str, str, str, Timestamp, str]
# Name, how many events it has, when the last was.
TraceNameRow = tuple[str, int, Timestamp]


class TraceAnswers(SubjectAnswers):
    """Reads traces."""

    def __init__(self, connection: Connection, codec: Codec) -> None:
        self._codec = codec
        self._connection = connection
        self._sql = connection.sql
        self._key = KeyCheck(connection, codec)

    def handlers(self) -> Answering:
        """What answers which question."""
        return {ListTraces: self.traces, ListTracesNamed: self.named, ListTraceNames: self.names}

    def traces(self, asked: ListTraces) -> list[TraceEvent]:
        """The noted events of one record, whether its queue was encrypted then or not."""
        self._refuse_hidden(asked)
        hidden = self._codec.name(asked.transaction_id, _ENCRYPTED)
        about = (asked.database, asked.partition_id, asked.transaction_id, hidden)
        return [self._event(row) for row in self._connection.rows(self._sql.traces, about, TraceRow)]

    def _refuse_hidden(self, asked: ListTraces) -> None:
        """Without the key nobody finds what was noted of a record: that is not the same as nothing."""
        is_hidden = self._connection.row(self._sql.has_hidden_traces, (asked.database, asked.partition_id), Number)
        if is_hidden and self._key.fits() is False:
            raise EncryptionKeyMissing(
                "what was noted here is encrypted with another key: set HEADWATER_ENCRYPTION_KEY"
            )

    def named(self, asked: ListTracesNamed) -> list[TraceEvent]:
        """The events noted under a name."""
        about = (asked.database, asked.name, as_patterns(asked.patterns), asked.limit, asked.skip)
        return [self._event(row) for row in self._connection.rows(self._sql.traces_named, about, TraceRow)]

    def names(self, asked: ListTraceNames) -> list[TraceName]:
        """The names of events."""
        about = (asked.database, as_patterns(asked.patterns), asked.limit)
        return [TraceName(*row) for row in self._connection.rows(self._sql.trace_names, about, TraceNameRow)]

    def _event(self, row: TraceRow) -> TraceEvent:
        partition_id, transaction_id, group, name, event, noted_at, data = row
        told = _Told(transaction_id, event, data)
        if data.startswith(_MARK):
            body = self._codec.unpack(AES_GCM, b64decode(data.removeprefix(_MARK)), _PLACE)
            told = msgspec.json.decode(body, type=_Told)
        raw = msgspec.Raw(told.data.encode())
        return TraceEvent(partition_id, told.transaction_id, group, name, told.event, noted_at, raw)
