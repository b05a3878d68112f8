"""Streaming queries and what they remember: changed in the same commit as the reports and pushes of their cycle."""

import msgspec

from headwater.clock import Timestamp
from headwater.errors import QueueMissing, StreamMismatch
from headwater.log.stream_operations import ChangeState, RegisterStream, StateChanged, StreamRegistered
from headwater.model.idempotency import plain_key
from headwater.stores.questions import FindStream, StateQuestion, StateValue, StreamQuery
from headwater.stores.tables.connection import Connection, Number
from headwater.stores.tables.subject import Answering, Handlers, Subject, SubjectAnswers

# Number, source, sink, hash of its shape.
StreamRow = tuple[int, str, str, str]
# Name, source, sink.
StreamQueryRow = tuple[str, str, str]
# Key, value, when it was changed.
StateRow = tuple[str, str, Timestamp]


class Streams(Subject):
    """All streaming queries, under the write lock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {RegisterStream: self.register, ChangeState: self.change_state}

    def register(self, operation: RegisterStream, now: Timestamp) -> StreamRegistered:
        """Find a query or make it. One of another shape is refused, or begins anew if that is asked for."""
        row = self._connection.row(self._sql.find_stream, (operation.database, operation.name), StreamRow)
        shape = (operation.source_queue, operation.sink_queue, operation.config_hash)
        if row is None:
            about = (operation.database, operation.name, *shape, now)
            [(number,)] = self._connection.rows(self._sql.add_stream, about, Number)
            return StreamRegistered(number, fresh=True)
        number, _, _, config_hash = row
        if config_hash != operation.config_hash and not operation.reset:
            raise StreamMismatch(
                f"config_hash mismatch: stream {plain_key(operation.name)!r} was registered with {config_hash!r}, "
                f"not with {operation.config_hash!r}; register it with reset, or under another name"
            )
        if operation.reset:
            self._connection.run(self._sql.drop_stream_state, (number,))
        self._connection.run(self._sql.change_stream, (*shape, number))
        return StreamRegistered(number, reset=operation.reset)

    def change_state(self, operation: ChangeState, now: Timestamp) -> StateChanged:
        """Remember and forget values, in the order in which they were named."""
        which = (operation.query_id, operation.database)
        if self._connection.row(self._sql.find_stream_by_id, which, StreamQueryRow) is None:
            raise QueueMissing(f"there is no stream {operation.query_id}")
        place = (operation.query_id, operation.partition_id)
        for key, value in operation.changes:
            if value is None:
                self._connection.run(self._sql.drop_stream_value, (*place, key))
            else:
                self._connection.run(self._sql.set_stream_state, (*place, key, bytes(value).decode(), now))
        return StateChanged(len(operation.changes))


class StreamAnswers(SubjectAnswers):
    """Reads streaming queries."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Answering:
        """What answers which question."""
        return {FindStream: self.stream, StateQuestion: self.state}

    def stream(self, asked: FindStream) -> StreamQuery | None:
        """A streaming query."""
        row = self._connection.row(self._sql.find_stream_by_id, (asked.query_id, asked.database), StreamQueryRow)
        return None if row is None else StreamQuery(*row)

    def state(self, asked: StateQuestion) -> list[StateValue]:
        """What a streaming query remembers."""
        place = (asked.query_id, asked.partition_id)
        rows: list[StateRow] = []
        if asked.keys:
            for key in dict.fromkeys(asked.keys):
                rows += self._connection.rows(self._sql.get_stream_value, (*place, key), StateRow)
        else:
            about = (*place, asked.prefix, asked.ended_by)
            rows = self._connection.rows(self._sql.stream_values, about, StateRow)
        return [StateValue(key, msgspec.Raw(value.encode()), at) for key, value, at in rows]
