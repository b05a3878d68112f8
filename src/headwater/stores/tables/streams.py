"""Streaming queries and what they remember: changed in the same commit as the reports and pushes of their cycle."""

from collections.abc import Callable
from typing import Any

from headwater.clock import Timestamp
from headwater.errors import QueueMissing, StreamMismatch
from headwater.log.operations import Operation
from headwater.log.stream_operations import ChangeState, RegisterStream, StateChanged, StreamRegistered
from headwater.model.idempotency import plain_key
from headwater.stores.tables.connection import Connection


class Streams:
    """All streaming queries, under the write lock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> dict[type[Operation], Callable[[Any, Timestamp], Any]]:
        """What is done for which operation."""
        return {RegisterStream: self.register, ChangeState: self.change_state}

    def register(self, operation: RegisterStream, now: Timestamp) -> StreamRegistered:
        """Find a query or make it. One of another shape is refused, or begins anew if that is asked for."""
        row = self._connection.execute(self._sql.find_stream, (operation.database, operation.name)).fetchone()
        shape = (operation.source_queue, operation.sink_queue, operation.config_hash)
        if row is None:
            about = (operation.database, operation.name, *shape, now)
            (number,) = self._connection.execute(self._sql.add_stream, about).fetchone()
            return StreamRegistered(number, fresh=True)
        number, config_hash = row[0], row[3]
        if config_hash != operation.config_hash and not operation.reset:
            raise StreamMismatch(
                f"config_hash mismatch: stream {plain_key(operation.name)!r} was registered with {config_hash!r}, "
                f"not with {operation.config_hash!r}; register it with reset, or under another name"
            )
        if operation.reset:
            self._connection.execute(self._sql.drop_stream_state, (number,))
        self._connection.execute(self._sql.change_stream, (*shape, number))
        return StreamRegistered(number, reset=operation.reset)

    def change_state(self, operation: ChangeState, now: Timestamp) -> StateChanged:
        """Remember and forget values, in the order in which they were named."""
        which = (operation.query_id, operation.database)
        found = self._connection.execute(self._sql.find_stream_by_id, which).fetchone()
        if found is None:
            raise QueueMissing(f"there is no stream {operation.query_id}")
        place = (operation.query_id, operation.partition_id)
        for key, value in operation.changes:
            if value is None:
                self._connection.execute(self._sql.drop_stream_value, (*place, key))
            else:
                self._connection.execute(self._sql.set_stream_state, (*place, key, bytes(value).decode(), now))
        return StateChanged(len(operation.changes))
