"""Questions about what is kept, answered from the rows of one connection.

Every answer is one short read transaction. Nothing here keeps one open between calls.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from headwater.clock import Clock, Timestamp
from headwater.errors import QueueMissing, StoreDamaged
from headwater.model.access_token import AccessToken
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.queue import decode_options
from headwater.model.record import split_records
from headwater.model.rollup import Rollup
from headwater.stores.codec import Codec
from headwater.stores.questions import (
    Answer,
    CursorStatus,
    DeadLetter,
    FindAccessToken,
    FindArchived,
    FindIdentity,
    FindLane,
    FindLastLsn,
    FindLastLsnOf,
    FindLoss,
    FindMilestone,
    FindNextDue,
    FindRollupState,
    FindStream,
    GroupStatus,
    LeaseStatus,
    ListAccessTokens,
    ListCursors,
    ListDeadLetters,
    ListExpired,
    ListGroups,
    ListLeases,
    ListPartitions,
    ListPositions,
    ListQueues,
    ListReady,
    ListRollups,
    ListStaged,
    ListSwitches,
    ListTraceNames,
    ListTraces,
    ListTracesNamed,
    Loss,
    PartitionStatus,
    Position,
    Question,
    QueueStatus,
    ReadPartition,
    Segment,
    StateQuestion,
    StateValue,
    StreamQuery,
    TraceEvent,
    TraceName,
)
from headwater.stores.tables.access_tokens import access_token_of
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.cursors import offsets_of
from headwater.stores.tables.dead_letters import dead_letter_of
from headwater.stores.tables.flows import rollup_of
from headwater.stores.tables.identity import read_identity
from headwater.stores.tables.job_answers import JobAnswers
from headwater.stores.tables.segments import open_body, read_last_lsn


class Answers:
    """Reads through one connection."""

    def __init__(self, connection: Connection, codec: Codec, clock: Clock) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._codec = codec
        self._clock = clock
        self._handlers: dict[type[Question[Any]], Callable[[Any], Any]] = {
            FindIdentity: self.identity,
            FindLastLsnOf: self.last_lsn_of,
            FindLastLsn: self.last_lsn,
            FindLoss: self.loss,
            FindLane: self.lane,
            ListReady: self.ready,
            ListExpired: self.expired,
            ListQueues: self.queues,
            ListGroups: self.groups,
            FindNextDue: self.next_due,
            ListLeases: self.leases,
            ListDeadLetters: self.dead_letters,
            ListPartitions: self.partitions,
            ListCursors: self.cursors,
            ReadPartition: self.read_partition,
            ListTracesNamed: self.traces_named,
            FindStream: self.stream,
            StateQuestion: self.stream_state,
            ListSwitches: self.switches,
            ListTraceNames: self.trace_names,
            FindMilestone: self.milestone,
            ListStaged: self.staged,
            ListTraces: self.traces,
            ListPositions: self.positions,
            FindArchived: self.archived,
            ListRollups: self.rollups,
            FindRollupState: self.rollup_state,
            FindAccessToken: self.access_token,
            ListAccessTokens: self.access_tokens,
            **JobAnswers(connection).handlers(),
        }

    def answer(self, question: Question[Answer]) -> Answer:
        """What is answered to a question."""
        return cast(Answer, self._handlers[type(question)](question))

    def last_lsn(self, asked: FindLastLsn) -> Lsn:
        """The newest LSN ever given out."""
        return read_last_lsn(self._connection)

    def last_lsn_of(self, asked: FindLastLsnOf) -> Lsn:
        """The newest LSN in some queues."""
        (found,) = self._connection.execute(
            self._sql.last_lsn_of_queues, (asked.database, _patterns(asked.patterns))
        ).fetchone()
        return Lsn(found or 0)

    def loss(self, asked: FindLoss) -> Loss:
        """How far records were dropped; looked for only when there was a drop since."""
        row = self._connection.execute(self._sql.get_meta, ("drops",)).fetchone()
        number = int(row[0]) if row else 0
        if number == asked.known:
            return Loss(number, None)
        about = (asked.database, _patterns(asked.patterns), _patterns(asked.partitions))
        (lsn,) = self._connection.execute(self._sql.last_loss, about).fetchone()
        return Loss(number, Lsn(lsn or 0))

    def identity(self, asked: FindIdentity) -> str:
        """The UUID of the store."""
        return read_identity(self._connection)

    def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None) -> list[Segment]:
        """A stretch of the log."""
        if queue is None:
            rows = self._connection.execute(self._sql.read_segments, (after, through, limit)).fetchall()
        else:
            rows = self._connection.execute(self._sql.read_queue_segments, (after, through, limit, *queue)).fetchall()
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
        lane = self._lane(PartitionId(partition_id))
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

    def lane(self, asked: FindLane) -> Lane | None:
        """The address of a partition."""
        return self._lane(asked.partition_id)

    def _lane(self, partition_id: PartitionId) -> Lane | None:
        row = self._connection.execute(self._sql.find_lane, (partition_id,)).fetchone()
        return None if row is None else Lane(*row)

    def queues(self, asked: ListQueues) -> list[QueueStatus]:
        """The queues of a database with their sizes."""
        about = (asked.database, asked.part.after[0], _patterns(asked.part.patterns), asked.part.limit)
        return [self._queue_status(*row) for row in self._connection.execute(self._sql.queue_list, about).fetchall()]

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
        (waiting,) = self._connection.execute(self._sql.queue_waiting, (number,)).fetchone()
        (delayed,) = self._connection.execute(self._sql.queue_delayed, (number,)).fetchone()
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

    def groups(self, asked: ListGroups) -> list[GroupStatus]:
        """The consumer groups of a database, or of one queue."""
        now = self._clock.now()
        about = (asked.database, asked.queue, *asked.part.after, _patterns(asked.part.patterns), asked.part.limit)
        rows = self._connection.execute(self._sql.group_list, about).fetchall()
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
        partitions, lag, leased, working, lagging = self._connection.execute(
            self._sql.group_lag, (number, now)
        ).fetchone()
        unmet, unmet_oldest, unmet_partitions = self._connection.execute(
            self._sql.group_undiscovered, (queue_id, discovered, since_lsn, name, number)
        ).fetchone()
        (met_oldest,) = self._connection.execute(self._sql.group_oldest_waiting, (number,)).fetchone()
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

    def next_due(self, asked: FindNextDue) -> Timestamp | None:
        """When the next message for later is due."""
        due, _ = self._connection.execute(self._sql.next_delayed).fetchone()
        return None if due is None else Timestamp(due)

    def leases(self, asked: ListLeases) -> list[LeaseStatus]:
        """Live leases."""
        now = self._clock.now()
        rows = self._connection.execute(
            self._sql.lease_list, (asked.database, asked.queue, asked.group, now, asked.limit)
        )
        return [LeaseStatus(*row) for row in rows]

    def dead_letters(self, asked: ListDeadLetters) -> list[DeadLetter]:
        """Dead letters of a queue, oldest first."""
        row = self._connection.execute(self._sql.find_queue, (asked.database, asked.queue)).fetchone()
        if row is None:
            raise QueueMissing(f"there is no queue {asked.queue!r}")
        rows = self._connection.execute(self._sql.dead_letters, (row[0], asked.after, asked.limit)).fetchall()
        return [dead_letter_of(found, asked.queue, self._codec) for found in rows]

    def partitions(self, asked: ListPartitions) -> list[PartitionStatus]:
        """Partitions with where their records begin and end."""
        rows = self._connection.execute(
            self._sql.partition_list, (asked.database, asked.queue, asked.after, asked.limit, _patterns(asked.patterns))
        )
        return [PartitionStatus(*row) for row in rows]

    def cursors(self, asked: ListCursors) -> list[CursorStatus]:
        """Where a group stands."""
        now = self._clock.now()
        rows = self._connection.execute(self._sql.group_cursor_list, (asked.database, asked.group, asked.limit))
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

    def read_partition(self, asked: ReadPartition) -> list[Segment]:
        """A stretch of one partition."""
        rows = self._connection.execute(
            self._sql.read_partition_segments, (asked.partition_id, asked.first, asked.limit)
        ).fetchall()
        return self._segments_of(rows)

    def traces_named(self, asked: ListTracesNamed) -> list[TraceEvent]:
        """The events noted under a name."""
        about = (asked.database, asked.name, _patterns(asked.patterns), asked.limit, asked.skip)
        rows = self._connection.execute(self._sql.traces_named, about).fetchall()
        return [TraceEvent(*row[:6], msgspec.Raw(row[6].encode())) for row in rows]  # type: ignore[call-arg]

    def stream(self, asked: FindStream) -> StreamQuery | None:
        """A streaming query."""
        row = self._connection.execute(self._sql.find_stream_by_id, (asked.query_id, asked.database)).fetchone()
        return None if row is None else StreamQuery(*row)

    def stream_state(self, asked: StateQuestion) -> list[StateValue]:
        """What a streaming query remembers."""
        place = (asked.query_id, asked.partition_id)
        rows: list[tuple[str, str, int]] = []
        if asked.keys:
            for key in dict.fromkeys(asked.keys):
                rows += self._connection.execute(self._sql.get_stream_value, (*place, key)).fetchall()
        else:
            about = (*place, asked.prefix, asked.ended_by)
            rows = self._connection.execute(self._sql.stream_values, about).fetchall()
        return [StateValue(key, msgspec.Raw(value.encode()), Timestamp(at)) for key, value, at in rows]

    def switches(self, asked: ListSwitches) -> list[tuple[str, str]]:
        """What is turned on."""
        return [(str(database), str(name)) for database, name in self._connection.execute(self._sql.switches)]

    def trace_names(self, asked: ListTraceNames) -> list[TraceName]:
        """The names of events."""
        about = (asked.database, _patterns(asked.patterns), asked.limit)
        return [TraceName(*row) for row in self._connection.execute(self._sql.trace_names, about)]

    def milestone(self, asked: FindMilestone) -> int | None:
        """The last step that named work has reached."""
        row = self._connection.execute(self._sql.find_milestone, (asked.database, asked.name)).fetchone()
        return None if row is None else int(row[0])

    def staged(self, asked: ListStaged) -> list[bytes]:
        """The parts of an upload, from the first on as far as there is no gap."""
        rows = self._connection.execute(self._sql.staged_parts, (asked.database, asked.upload)).fetchall()
        return [body for place, (part, body) in enumerate(rows) if part == place]

    def positions(self, asked: ListPositions) -> list[Position]:
        """Where every group stands."""
        return [Position(*row) for row in self._connection.execute(self._sql.position_list, (asked.database,))]

    def archived(self, asked: FindArchived) -> Lsn:
        """Up to which LSN a queue is archived."""
        row = self._connection.execute(self._sql.find_queue, (asked.database, asked.queue)).fetchone()
        if row is None:
            raise QueueMissing(f"there is no queue {asked.queue!r}")
        found = self._connection.execute(self._sql.get_archived, (row[0],)).fetchone()
        return Lsn(found[0] if found else 0)

    def rollups(self, asked: ListRollups) -> list[Rollup]:
        """Rollups of a stretch of time."""
        bounds = (asked.database, asked.wanted.resolution, asked.wanted.since, asked.wanted.until, asked.wanted.queue)
        return [rollup_of(row) for row in self._connection.execute(self._sql.rollup_list, bounds)]

    def rollup_state(self, asked: FindRollupState) -> tuple[int, str]:
        """Where the last rollup stood."""
        row = self._connection.execute(self._sql.get_rollup_state, (asked.database,)).fetchone()
        return (int(row[0]), str(row[1])) if row else (0, "")

    def traces(self, asked: ListTraces) -> list[TraceEvent]:
        """The noted events of one record."""
        rows = self._connection.execute(
            self._sql.traces, (asked.database, asked.partition_id, asked.transaction_id)
        ).fetchall()
        return [TraceEvent(*row[:6], msgspec.Raw(row[6].encode())) for row in rows]  # type: ignore[call-arg]

    def ready(self, asked: ListReady) -> list[tuple[str, str, str]]:
        """Those of the groups that a pop could serve now."""
        return [names for names in asked.groups if self._is_ready(names, asked.now)]

    def expired(self, asked: ListExpired) -> list[tuple[PartitionId, str]]:
        """Leases that ran out."""
        return [tuple(row) for row in self._connection.execute(self._sql.expired_leases, (asked.now, asked.limit))]

    def _is_ready(self, names: tuple[str, str, str], now: Timestamp) -> bool:
        row = self._connection.execute(self._sql.find_group_by_names, names).fetchone()
        if row is None:
            return False
        (ready,) = self._connection.execute(self._sql.group_is_ready, (row[0], now)).fetchone()
        return bool(ready)

    def access_token(self, asked: FindAccessToken) -> AccessToken | None:
        """The access token with this id."""
        row = self._connection.execute(self._sql.find_access_token, (asked.token_id,)).fetchone()
        return None if row is None else access_token_of(row)

    def access_tokens(self, asked: ListAccessTokens) -> list[AccessToken]:
        """The access tokens of a database, or of all."""
        return [access_token_of(row) for row in self._connection.execute(self._sql.access_tokens, (asked.database,))]


def _patterns(patterns: Sequence[str]) -> str:
    """Patterns of queue names, as SQL takes them: without `?` and brackets GLOB reads them as we do."""
    return msgspec.json.encode(patterns).decode()
