"""What can be asked about what is kept, as data, and what is answered. What can be asked about jobs is beside it.

A question is a frozen value that knows the type of its answer. A store answers it (`Store.ask`), and so does a server.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, get_args

import msgspec

from headwater.clock import Timestamp
from headwater.model.access_token import AccessToken
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.principal import ALL_QUEUES
from headwater.model.queue import QueueOptions
from headwater.model.record import Record
from headwater.model.rollup import Rollup, RollupQuery

Answer = TypeVar("Answer")
Answered = TypeVar("Answered", covariant=True)


class Question(msgspec.Struct, Generic[Answered], frozen=True):
    """Something that can be asked, with the type of its answer."""


def answer_type(question: type[Question[Answer]]) -> Any:
    """The type of what is answered to a kind of question."""
    (found,) = get_args(question.__orig_bases__[0])  # type: ignore[attr-defined]
    return found


# ── what is answered ──

EVERY = (ALL_QUEUES,)


class Part(msgspec.Struct, frozen=True):
    """Which part of a list: of queues whose names fit one of the patterns, so many at most, after the last one seen.

    `after` is a queue and, in a list of groups, a group of it.
    """

    patterns: Sequence[str] = EVERY
    after: tuple[str, str] = ("", "")
    limit: int = -1


WHOLE = Part()


class QueueStatus(msgspec.Struct, frozen=True):
    """A queue with its size: `records` are kept, `waiting` wait for the slowest group; `delayed` are still
    to come, and neither."""

    database: str
    queue: str
    namespace: str
    task: str
    options: QueueOptions
    partitions: int
    records: int
    waiting: int
    dead_letters: int
    created_at: Timestamp
    delayed: int = 0


class GroupStatus(msgspec.Struct, frozen=True):
    """A consumer group of one queue: how far behind it is, and in how many partitions; how many leases it has, on how
    many records; what it lost to retention."""

    database: str
    queue: str
    group: str
    partitions: int
    lag: int
    oldest_waiting_at: Timestamp | None
    leased: int
    lost: int
    retried: int = 0
    buried: int = 0
    working: int = 0
    partitions_lagging: int = 0


class LeaseStatus(msgspec.Struct, frozen=True):
    """A live lease: of which partition to which group, who holds it as far as is known, until when, on how many."""

    queue: str
    partition: str
    partition_id: PartitionId
    group: str
    holder: str
    token: int
    lease_until: Timestamp
    attempts: int
    records: int


class Position(msgspec.Struct, frozen=True):
    """Where a group stands in a partition; the group reads what came after the LSN `since`."""

    queue: str
    group: str
    partition_id: PartitionId
    position: Offset
    since: Lsn


class PartitionStatus(msgspec.Struct, frozen=True):
    """A partition: its records are those from `start` up to `end`."""

    queue: str
    partition: str
    partition_id: PartitionId
    start: Offset
    end: Offset
    created_at: Timestamp


class CursorStatus(msgspec.Struct, frozen=True):
    """Where a group stands in one partition: what is before `position` or among `settled` is done, what is before
    `leased_to` is being worked on, if it is `leased`."""

    queue: str
    partition: str
    partition_id: PartitionId
    position: Offset
    lag: int
    leased: bool
    leased_to: Offset = Offset(0)
    settled: tuple[int, ...] = ()


class TraceName(msgspec.Struct, frozen=True):
    """A name that events were noted under."""

    name: str
    count: int
    last_at: Timestamp


class StreamQuery(msgspec.Struct, frozen=True):
    """A streaming query."""

    name: str
    source_queue: str
    sink_queue: str


class StateValue(msgspec.Struct, frozen=True):
    """A value that a streaming query remembers."""

    key: str
    value: msgspec.Raw
    updated_at: Timestamp


class StateQuestion(Question[list[StateValue]], frozen=True):
    """Which values: those of these keys, or of all that begin so; and only windows that ended by a time (ms)."""

    query_id: int
    partition_id: PartitionId
    keys: Sequence[str] = ()
    prefix: str = ""
    ended_by: int | None = None


class DeadLetter(msgspec.Struct, frozen=True):
    """A record that failed for good, with the reason."""

    id: int
    queue: str
    partition: str
    partition_id: PartitionId
    group: str
    offset: Offset
    record: Record
    error: str
    attempts: int
    written_at: Timestamp
    failed_at: Timestamp


class TraceEvent(msgspec.Struct, frozen=True):
    """One noted event in the life of a record."""

    partition_id: PartitionId
    transaction_id: str
    group: str
    name: str
    event: str
    noted_at: Timestamp
    data: msgspec.Raw


class Segment(msgspec.Struct, frozen=True):
    """A segment as it is read from the log: records of one partition with dense offsets from `first_offset`."""

    lsn: Lsn
    lane: Lane
    partition_id: PartitionId
    first_offset: Offset
    written_at: Timestamp
    origin: int
    records: list[Record]


class Loss(msgspec.Struct, frozen=True, gc=False):
    """How far some queues have lost records: nothing after `lsn` was dropped. `number` counts the drops of the store;
    asked again with it, `lsn` is None while there was none since."""

    number: int
    lsn: Lsn | None


# ── what is asked ──


class FindIdentity(Question[str], frozen=True):
    """Which store this is: a UUID that is made once with it and changes when it is restored (`RenewIdentity`)."""


class FindKeyFit(Question[bool | None], frozen=True):
    """Whether the encryption key at hand is that which the store encrypts with; None when it has encrypted nothing."""


class FindLastLsnOf(Question[Lsn], frozen=True):
    """The LSN of the newest segment in queues whose names fit a pattern, 0 when there is none."""

    database: str
    patterns: Sequence[str]


class FindLoss(Question[Loss], frozen=True):
    """How far queues whose names fit a pattern have lost records, in some partitions or in all. `known` is the number
    of the drop that was answered before."""

    database: str
    patterns: Sequence[str]
    partitions: Sequence[str] = ()
    known: int = -1


class FindLastLsn(Question[Lsn], frozen=True):
    """The LSN of the newest segment."""


class FindLane(Question[Lane | None], frozen=True):
    """The address of a partition, None when it is gone."""

    partition_id: PartitionId


class ListReady(Question[list[tuple[str, str, str]]], frozen=True):
    """Those of the (database, queue, group) given that have a partition which a pop could lease now."""

    groups: Sequence[tuple[str, str, str]]
    now: Timestamp


class ListExpired(Question[list[tuple[PartitionId, str]]], frozen=True):
    """Leases that ran out, by partition and group: for `Reap`."""

    now: Timestamp
    limit: int


class ListQueues(Question[list[QueueStatus]], frozen=True):
    """The queues of a database with their sizes, by name."""

    database: str
    part: Part = WHOLE


class ListGroups(Question[list[GroupStatus]], frozen=True):
    """The consumer groups of a database, or of one queue, by the names of queue and group."""

    database: str
    queue: str = ""
    part: Part = WHOLE


class FindNextDue(Question[Timestamp | None], frozen=True):
    """When the next message for later is due, None when there is none."""


class ListLeases(Question[list[LeaseStatus]], frozen=True):
    """Live leases of a database, or of one queue or group, by queue, group and end."""

    database: str
    queue: str = ""
    group: str = ""
    limit: int = 1_000


class ListDeadLetters(Question[list[DeadLetter]], frozen=True):
    """Dead letters of a queue, oldest first, after the id `after`: fewer than `limit` where they are large. There are
    no more when there are none."""

    database: str
    queue: str
    limit: int
    after: int = 0


class ListPartitions(Question[list[PartitionStatus]], frozen=True):
    """Partitions of a database, or of one queue, in the order they were made, after the number `after`."""

    database: str
    queue: str = ""
    limit: int = 1_000
    after: int = 0
    patterns: Sequence[str] = EVERY


class ListCursors(Question[list[CursorStatus]], frozen=True):
    """Where a group stands, in each partition it has met."""

    database: str
    group: str
    limit: int


class ReadPartition(Question[list[Segment]], frozen=True):
    """Segments of one partition with their records, from the one that holds the offset `first` on, or the next: fewer
    than `limit` where they are large, or where `bytes_max` says so. There are no more when there are none."""

    partition_id: PartitionId
    first: Offset
    limit: int
    bytes_max: int = 0


class ListTracesNamed(Question[list[TraceEvent]], frozen=True):
    """The events noted under a name, newest first."""

    database: str
    name: str
    limit: int
    skip: int = 0
    patterns: Sequence[str] = EVERY


class FindStream(Question[StreamQuery | None], frozen=True):
    """A streaming query of a database."""

    database: str
    query_id: int


class ListSwitches(Question[list[tuple[str, str]]], frozen=True):
    """What is turned on, as (database, name)."""


class ListTraceNames(Question[list[TraceName]], frozen=True):
    """The names that events were noted under, the last used first."""

    database: str
    limit: int
    patterns: Sequence[str] = EVERY


class FindMilestone(Question[int | None], frozen=True):
    """The last step that named work has reached (`Reach`), None when it has not begun."""

    database: str
    name: str


class Milestone(msgspec.Struct, frozen=True):
    """How far named work is, what was noted with its last step, and when that was."""

    name: str
    number: int
    note: str
    reached_at: Timestamp


class ListMilestones(Question[list[Milestone]], frozen=True):
    """How far all work is whose name begins with this, by name."""

    database: str
    prefix: str


class ListStaged(Question[list[bytes]], frozen=True):
    """The parts of an upload, from the first on as far as there is no gap."""

    database: str
    upload: str


class ListTraces(Question[list[TraceEvent]], frozen=True):
    """The noted events of one record, oldest first."""

    database: str
    partition_id: PartitionId
    transaction_id: str


class ListPositions(Question[list[Position]], frozen=True):
    """Where every group of a database stands, in the partitions it has met."""

    database: str


class FindArchived(Question[Lsn], frozen=True):
    """Up to which LSN a queue is archived; 0 when it never was."""

    database: str
    queue: str


class ListRollups(Question[list[Rollup]], frozen=True):
    """Rollups of a stretch of time, by bucket, queue, group and type."""

    database: str
    wanted: RollupQuery


class FindRollupState(Question[tuple[int, str]], frozen=True):
    """The number and the state that the last rollup left; 0 and '' before the first."""

    database: str


class FindAccessToken(Question[AccessToken | None], frozen=True):
    """The access token with this id, whatever its database; None when there is none."""

    token_id: str


class ListAccessTokens(Question[list[AccessToken]], frozen=True):
    """The access tokens of a database, or of all, oldest first."""

    database: str = ""
