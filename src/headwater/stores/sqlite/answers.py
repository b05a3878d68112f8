"""Questions about what is kept, answered from a connection and a thread of their own: they never delay a commit.

Every answer is one short read transaction. Nothing here keeps one open between calls, so readers cannot hold the
write-ahead log back for long.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from headwater.clock import Timestamp
from headwater.errors import QueueMissing, StoreDamaged
from headwater.model.access_token import AccessToken
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.queue import decode_options
from headwater.model.record import split_records
from headwater.model.rollup import Rollup, RollupQuery
from headwater.stores.codec import Codec
from headwater.stores.contract import (
    CursorStatus,
    DeadLetter,
    GroupStatus,
    LeaseStatus,
    Part,
    PartitionStatus,
    Position,
    QueueStatus,
    Segment,
    StateQuestion,
    StateValue,
    StreamQuery,
    TraceEvent,
    TraceName,
)
from headwater.stores.sqlite.backup import write_backup
from headwater.stores.sqlite.connection import SqliteConnection, translated
from headwater.stores.sqlite.presence import Presence
from headwater.stores.statements import load_statements
from headwater.stores.tables.access_tokens import access_token_of
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.cursors import offsets_of
from headwater.stores.tables.dead_letters import dead_letter_of
from headwater.stores.tables.flows import rollup_of
from headwater.stores.tables.identity import read_identity
from headwater.stores.tables.segments import open_body, read_last_lsn

sql = load_statements(__package__)

Answer = TypeVar("Answer")


class Answers:
    """Reads through one connection in one thread."""

    def __init__(self, connection: SqliteConnection, codec: Codec, presence: Presence) -> None:
        self._file = connection
        self._connection: Connection = connection
        self._codec = codec
        self._presence = presence
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-reads")

    async def ask(self, question: Callable[..., Answer], *arguments: Any) -> Answer:
        """The answer, from the reading thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, question, *arguments)

    def close(self) -> None:
        """Wait for the last answer and let go."""
        self._thread.shutdown()
        self._file.close()

    def _guarded(self, question: Callable[..., Answer], *arguments: Any) -> Answer:
        self._presence.check()
        with translated("reading"):
            return question(*arguments)

    def last_lsn(self) -> Lsn:
        """The newest LSN ever given out."""
        return read_last_lsn(self._connection)

    def backup(self, path: str) -> None:
        """Copy everything to a new file."""
        write_backup(self._file, path)

    def last_lsn_of(self, database: str, patterns: Sequence[str]) -> Lsn:
        """The newest LSN in some queues."""
        (found,) = self._connection.execute(sql.last_lsn_of_queues, (database, _patterns(patterns))).fetchone()
        return Lsn(found or 0)

    def identity(self) -> str:
        """The UUID of the store."""
        return read_identity(self._connection)

    def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None) -> list[Segment]:
        """A stretch of the log."""
        if queue is None:
            rows = self._connection.execute(sql.read_segments, (after, through, limit)).fetchall()
        else:
            rows = self._connection.execute(sql.read_queue_segments, (after, through, limit, *queue)).fetchall()
        return self._segments_of(rows)

    def _segments_of(self, rows: list[Any]) -> list[Segment]:
        """Segments up to the first that cannot be read; when that is the first one, it is told."""
        found: list[Segment] = []
        for row in rows:
            try:
                segment = self._segment(*row)
            except StoreDamaged:
                if not found:
                    raise
                return found
            if segment is not None:
                found.append(segment)
        return found

    def _segment(
        self,
        lsn: int,
        partition_id: int,
        first: int,
        written_at: int,
        origin: int,
        codec: int,
        checksum: int,
        body: bytes,
    ) -> Segment | None:
        lane = self.lane(PartitionId(partition_id))
        if lane is None:
            return None
        opened = open_body(self._codec, lsn, codec, checksum, partition_id, first, body)
        return Segment(
            lsn=Lsn(lsn),
            lane=lane,
            partition_id=PartitionId(partition_id),
            first_offset=Offset(first),
            written_at=Timestamp(written_at),
            origin=origin,
            records=split_records(opened),
        )

    def lane(self, partition_id: PartitionId) -> Lane | None:
        """The address of a partition."""
        row = self._connection.execute(sql.find_lane, (partition_id,)).fetchone()
        return None if row is None else Lane(*row)

    def queues(self, database: str, part: Part) -> list[QueueStatus]:
        """The queues of a database with their sizes."""
        about = (database, part.after[0], _patterns(part.patterns), part.limit)
        return [self._queue_status(*row) for row in self._connection.execute(sql.queue_list, about).fetchall()]

    def _queue_status(
        self,
        database: str,
        name: str,
        namespace: str,
        task: str,
        options: str,
        created_at: int,
        partitions: int,
        records: int,
        dead_letters: int,
        number: int,
    ) -> QueueStatus:
        (waiting,) = self._connection.execute(sql.queue_waiting, (number,)).fetchone()
        (delayed,) = self._connection.execute(sql.queue_delayed, (number,)).fetchone()
        return QueueStatus(
            database=database,
            queue=name,
            namespace=namespace,
            task=task,
            options=decode_options(options),
            partitions=partitions,
            records=records,
            waiting=waiting,
            dead_letters=dead_letters,
            created_at=Timestamp(created_at),
            delayed=delayed,
        )

    def groups(self, database: str, queue: str, part: Part, now: Timestamp) -> list[GroupStatus]:
        """The consumer groups of a database, or of one queue."""
        about = (database, queue, *part.after, _patterns(part.patterns), part.limit)
        rows = self._connection.execute(sql.group_list, about).fetchall()
        return [self._group_status(now, *row) for row in rows]

    def _group_status(
        self,
        now: Timestamp,
        number: int,
        database: str,
        queue: str,
        name: str,
        lost: int,
        discovered: int,
        since_lsn: int,
        queue_id: int,
        retried: int,
        buried: int,
    ) -> GroupStatus:
        partitions, lag, leased, working, lagging = self._connection.execute(sql.group_lag, (number, now)).fetchone()
        unmet, unmet_oldest, unmet_partitions = self._connection.execute(
            sql.group_undiscovered, (queue_id, discovered, since_lsn, name, number)
        ).fetchone()
        (met_oldest,) = self._connection.execute(sql.group_oldest_waiting, (number,)).fetchone()
        oldest = min((written_at for written_at in (met_oldest, unmet_oldest) if written_at is not None), default=None)
        return GroupStatus(
            database=database,
            queue=queue,
            group=name,
            partitions=partitions,
            lag=lag + unmet,
            oldest_waiting_at=None if oldest is None else Timestamp(oldest),
            leased=leased,
            lost=lost,
            retried=retried,
            buried=buried,
            working=working,
            partitions_lagging=lagging + unmet_partitions,
        )

    def next_due(self) -> Timestamp | None:
        """When the next message for later is due."""
        due, _ = self._connection.execute(sql.next_delayed).fetchone()
        return None if due is None else Timestamp(due)

    def leases(self, database: str, queue: str, group: str, limit: int, now: Timestamp) -> list[LeaseStatus]:
        """Live leases."""
        rows = self._connection.execute(sql.lease_list, (database, queue, group, now, limit))
        return [LeaseStatus(*row) for row in rows]

    def dead_letters(self, database: str, queue: str, limit: int, after: int) -> list[DeadLetter]:
        """Dead letters of a queue, oldest first."""
        row = self._connection.execute(sql.find_queue, (database, queue)).fetchone()
        if row is None:
            raise QueueMissing(f"there is no queue {queue!r}")
        rows = self._connection.execute(sql.dead_letters, (row[0], after, limit)).fetchall()
        return [dead_letter_of(found, queue, self._codec) for found in rows]

    def partitions(
        self, database: str, queue: str, limit: int, after: int, patterns: Sequence[str]
    ) -> list[PartitionStatus]:
        """Partitions with where their records begin and end."""
        rows = self._connection.execute(sql.partition_list, (database, queue, after, limit, _patterns(patterns)))
        return [PartitionStatus(*row) for row in rows]

    def cursors(self, database: str, group: str, limit: int, now: Timestamp) -> list[CursorStatus]:
        """Where a group stands."""
        rows = self._connection.execute(sql.group_cursor_list, (database, group, limit))
        return [
            CursorStatus(
                queue,
                partition,
                number,
                position,
                end - begin,
                until is not None and until > now,
                leased_to,
                offsets_of(settled),
            )
            for queue, partition, number, position, begin, until, end, leased_to, settled in rows
        ]

    def read_partition(self, partition_id: PartitionId, first: Offset, limit: int) -> list[Segment]:
        """A stretch of one partition."""
        rows = self._connection.execute(sql.read_partition_segments, (partition_id, first, limit)).fetchall()
        return self._segments_of(rows)

    def traces_named(
        self, database: str, name: str, limit: int, skip: int, patterns: Sequence[str]
    ) -> list[TraceEvent]:
        """The events noted under a name."""
        about = (database, name, _patterns(patterns), limit, skip)
        rows = self._connection.execute(sql.traces_named, about).fetchall()
        return [TraceEvent(*row[:6], msgspec.Raw(row[6].encode())) for row in rows]  # type: ignore[call-arg]

    def stream(self, database: str, query_id: int) -> StreamQuery | None:
        """A streaming query."""
        row = self._connection.execute(sql.find_stream_by_id, (query_id, database)).fetchone()
        return None if row is None else StreamQuery(*row)

    def stream_state(self, question: StateQuestion) -> list[StateValue]:
        """What a streaming query remembers."""
        place = (question.query_id, question.partition_id)
        rows: list[tuple[str, str, int]] = []
        if question.keys:
            for key in dict.fromkeys(question.keys):
                rows += self._connection.execute(sql.get_stream_value, (*place, key)).fetchall()
        else:
            about = (*place, question.prefix, question.ended_by)
            rows = self._connection.execute(sql.stream_values, about).fetchall()
        return [StateValue(key, msgspec.Raw(value.encode()), Timestamp(at)) for key, value, at in rows]

    def switches(self) -> list[tuple[str, str]]:
        """What is turned on."""
        return [(str(database), str(name)) for database, name in self._connection.execute(sql.switches)]

    def trace_names(self, database: str, limit: int, patterns: Sequence[str]) -> list[TraceName]:
        """The names of events."""
        about = (database, _patterns(patterns), limit)
        return [TraceName(*row) for row in self._connection.execute(sql.trace_names, about)]

    def milestone(self, database: str, name: str) -> int | None:
        """The last step that named work has reached."""
        row = self._connection.execute(sql.find_milestone, (database, name)).fetchone()
        return None if row is None else int(row[0])

    def staged(self, database: str, upload: str) -> list[bytes]:
        """The parts of an upload, from the first on as far as there is no gap."""
        rows = self._connection.execute(sql.staged_parts, (database, upload)).fetchall()
        return [body for place, (part, body) in enumerate(rows) if part == place]

    def positions(self, database: str) -> list[Position]:
        """Where every group stands."""
        return [Position(*row) for row in self._connection.execute(sql.position_list, (database,))]

    def archived(self, database: str, queue: str) -> Lsn:
        """Up to which LSN a queue is archived."""
        row = self._connection.execute(sql.find_queue, (database, queue)).fetchone()
        if row is None:
            raise QueueMissing(f"there is no queue {queue!r}")
        found = self._connection.execute(sql.get_archived, (row[0],)).fetchone()
        return Lsn(found[0] if found else 0)

    def rollups(self, database: str, wanted: RollupQuery) -> list[Rollup]:
        """Rollups of a stretch of time."""
        bounds = (database, wanted.resolution, wanted.since, wanted.until, wanted.queue)
        return [rollup_of(row) for row in self._connection.execute(sql.rollup_list, bounds)]

    def rollup_state(self, database: str) -> tuple[int, str]:
        """Where the last rollup stood."""
        row = self._connection.execute(sql.get_rollup_state, (database,)).fetchone()
        return (int(row[0]), str(row[1])) if row else (0, "")

    def traces(self, database: str, partition_id: PartitionId, transaction_id: str) -> list[TraceEvent]:
        """The noted events of one record."""
        rows = self._connection.execute(sql.traces, (database, partition_id, transaction_id)).fetchall()
        return [TraceEvent(*row[:6], msgspec.Raw(row[6].encode())) for row in rows]  # type: ignore[call-arg]

    def ready(self, groups: Sequence[tuple[str, str, str]], now: Timestamp) -> list[tuple[str, str, str]]:
        """Those of the groups that a pop could serve now."""
        return [names for names in groups if self._is_ready(names, now)]

    def expired(self, now: Timestamp, limit: int) -> list[tuple[PartitionId, str]]:
        """Leases that ran out."""
        return [tuple(row) for row in self._connection.execute(sql.expired_leases, (now, limit))]

    def _is_ready(self, names: tuple[str, str, str], now: Timestamp) -> bool:
        row = self._connection.execute(sql.find_group_by_names, names).fetchone()
        if row is None:
            return False
        (ready,) = self._connection.execute(sql.group_is_ready, (row[0], now)).fetchone()
        return bool(ready)

    def access_token(self, token_id: str) -> AccessToken | None:
        """The access token with this id."""
        row = self._connection.execute(sql.find_access_token, (token_id,)).fetchone()
        return None if row is None else access_token_of(row)

    def access_tokens(self, database: str) -> list[AccessToken]:
        """The access tokens of a database, or of all."""
        return [access_token_of(row) for row in self._connection.execute(sql.access_tokens, (database,))]

    def examine(self, path: str) -> dict[str, Any]:
        """What SQLite says of the file at `path`."""
        pragma = self._file.pragma
        problems = [row for row in pragma_rows(self._connection, "quick_check") if row != "ok"]
        return {
            "pages": pragma("page_count"),
            "page_bytes": pragma("page_size"),
            "free_pages": pragma("freelist_count"),
            "auto_vacuum": {0: "none", 1: "full", 2: "incremental"}[int(str(pragma("auto_vacuum")))],
            "journal_mode": pragma("journal_mode"),
            "identity": self.identity(),
            "schema_version": self._connection.execute(sql.get_meta, ("schema_version",)).fetchone()[0],
            "file_bytes": os.path.getsize(path),
            "wal_bytes": os.path.getsize(f"{path}-wal") if os.path.exists(f"{path}-wal") else 0,
            "problems": [f"the file is damaged: {problem}" for problem in problems[:10]],
        }


def _patterns(patterns: Sequence[str]) -> str:
    """Patterns of queue names, as SQL takes them: without `?` and brackets GLOB reads them as we do."""
    return msgspec.json.encode(patterns).decode()


def pragma_rows(connection: Connection, name: str) -> list[str]:
    """All rows of a pragma that answers with text."""
    return [str(row[0]) for row in connection.execute(f"PRAGMA {name}")]
