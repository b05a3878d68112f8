"""Rooms as the tables that people know. A room's messages are segments of a queue, so tables are views, and the work of
each index is done by one that all queues have."""

from typing import NamedTuple

from headwater.stores.room_questions import CheckRooms, RoomPart
from headwater.stores.tables.connection import Columns, Connection
from headwater.stores.tables.subject import Answering, SubjectAnswers

COLUMNS = {
    "message_queue": ("id", "canvas_id", "message_type", "payload", "created_at", "expires_at"),
    "canvas_watermarks": ("id", "canvas_id", "server_instance_id", "last_processed_id", "updated_at"),
}


# Two names: of a view and a column, or of a table and the columns of an index.
Names = tuple[str, str]


class Work(NamedTuple):
    """What does the work of an index: an index of a table that begins with these columns."""

    table: str
    columns: str
    how: str


_of_a_partition = Work("hw_segments", "partition_id, first_offset", "a room's messages are one partition, in order")
_by_name = Work("hw_partitions", "queue_id, name", "what only passes, and who is there, are partitions of their own")
INDEXES = {
    "idx_message_queue_canvas_id_id": _of_a_partition,
    "idx_message_queue_expires_at": _of_a_partition._replace(
        how="what expires first is the oldest of its partition: one look at each"
    ),
    "idx_message_queue_priority": _by_name,
    "idx_canvas_watermarks_canvas_id": _by_name,
}


class RoomAnswers(SubjectAnswers):
    """Looks at what rooms need."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Answering:
        """What answers which question."""
        return {CheckRooms: self.check}

    def check(self, asked: CheckRooms) -> list[RoomPart]:
        """Tables first, then indexes."""
        columns: dict[str, list[str]] = {}
        for view, column in self._connection.rows(self._sql.room_views, (), Names):
            columns.setdefault(view, []).append(column)
        tables = [
            RoomPart(name, "table", f"a view of {', '.join(wanted)}", set(wanted) <= set(columns.get(name, ())))
            for name, wanted in COLUMNS.items()
        ]
        indexes = self._connection.rows(self._sql.room_indexes, (), Names)
        plans = self._plans()
        return tables + [
            RoomPart(
                name,
                "index",
                f"{work.table} ({work.columns}): {work.how}",
                any(table == work.table and found.startswith(work.columns) for table, found in indexes),
                plans[name],
            )
            for name, work in INDEXES.items()
        ]

    def _plans(self) -> dict[str, str]:
        sql = self._sql
        statements = (
            sql.explain_messages_of_a_room,
            sql.explain_expired_messages,
            sql.explain_partition_of_a_room,
            sql.explain_partition_of_a_room,
        )
        return {name: self._plan(statement) for name, statement in zip(INDEXES, statements, strict=True)}

    def _plan(self, statement: str) -> str:
        return "; ".join(str(row[-1]).strip() for row in self._connection.rows(statement, (), Columns))
