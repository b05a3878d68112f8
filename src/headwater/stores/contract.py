"""What a store is, in words of the log: the same calls over a SQLite file, PostgreSQL or a bucket.

A store applies operations in one transaction (`apply`), makes what it applied survive power loss (`make_durable`), and
answers questions about what is kept. It knows nothing of waiting callers, of doors or of wake-ups. One suite,
`tests/contracts`, runs over every store.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from headwater.clock import Timestamp
from headwater.log.operations import Commit, Operation, Touch
from headwater.model.access_token import AccessToken
from headwater.model.job import JobState
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.principal import ALL_QUEUES
from headwater.model.queue import QueueOptions
from headwater.model.record import Record
from headwater.model.rollup import Rollup, RollupQuery
from headwater.stores.job_contract import JobQuestions
from headwater.wakeups.contract import Wakeup


class Traits(msgspec.Struct, frozen=True):
    """What callers may need to know of a store without knowing its kind."""

    name: str
    location: str
    engine: str
    several_machines: bool
    durable_by: str


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
    """A queue with its size: `records` are kept, `waiting` are not yet passed by the slowest group; `delayed` are still
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


class StateQuestion(msgspec.Struct, frozen=True):
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


class Chore(Protocol):
    """Something to be done again and again."""

    name: str

    async def wait(self) -> None:
        """Until it is time."""
        ...

    async def run(self) -> int:
        """Do it; how many things were done."""
        ...


class Store(JobQuestions, Protocol):
    """One durable log and its state."""

    traits: Traits

    async def open(self) -> None:
        """Connect, check that the place is ours or empty, and bring its tables up to date."""
        ...

    async def close(self) -> None:
        """Let go of everything. What was answered stays."""
        ...

    async def identity(self) -> str:
        """Which store this is: a UUID that is made once with it and changes when it is restored (`RenewIdentity`)."""
        ...

    def check(self) -> None:
        """Raises StoreReplaced when the store that was opened is no more. Cheap: it is asked every half second."""
        ...

    def apply_now(self, operations: Sequence[Operation], now: Timestamp) -> Commit | None:
        """Like `apply`, if that needs no waiting; None, with nothing done, when it would have to wait."""
        ...

    async def apply(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """Apply all operations in one transaction; when it raises, none of them took effect."""
        ...

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        """Done when everything applied so far survives power loss; None when it does already, and raises when it is
        known already that it will not. `callers` says how many wait for it."""
        ...

    def confirm(self) -> None:
        """Raises StoreReplaced when what was applied went to a store that is no more. Asked before an answer that does
        not wait for `make_durable`, which looks by itself."""
        ...

    async def recover(self) -> None:
        """After `make_durable` failed: bring what was applied to stable storage in another way, or raise."""
        ...

    def changed_elsewhere(self) -> bool:
        """Whether somebody else has committed since this was last asked or `apply` last ran. Cheap."""
        ...

    async def last_lsn_of(self, database: str, patterns: Sequence[str]) -> Lsn:
        """The LSN of the newest segment in queues whose names fit a pattern, 0 when there is none."""
        ...

    async def last_lsn(self) -> Lsn:
        """The LSN of the newest segment."""
        ...

    def touched_now(self, after: Lsn, limit: int) -> list[Touch] | None:
        """Like `touched`, if that needs no waiting; None when it would have to wait."""
        ...

    async def touched(self, after: Lsn, limit: int) -> list[Touch]:
        """The segments after `after`, in LSN order, without their records."""
        ...

    async def lane(self, partition_id: PartitionId) -> Lane | None:
        """The address of a partition, None when it is gone."""
        ...

    async def ready(self, groups: Sequence[tuple[str, str, str]], now: Timestamp) -> list[tuple[str, str, str]]:
        """Those of the (database, queue, group) given that have a partition which a pop could lease now."""
        ...

    async def expired(self, now: Timestamp, limit: int) -> list[tuple[PartitionId, str]]:
        """Leases that ran out, by partition and group: for `Reap`."""
        ...

    async def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None = None) -> list[Segment]:
        """Segments after `after` up to `through`, with records, of one (database, queue) or of all."""
        ...

    async def queues(self, database: str, part: Part = WHOLE) -> list[QueueStatus]:
        """The queues of a database with their sizes, by name."""
        ...

    async def groups(self, database: str, queue: str = "", part: Part = WHOLE) -> list[GroupStatus]:
        """The consumer groups of a database, or of one queue, by the names of queue and group."""
        ...

    async def next_due(self) -> Timestamp | None:
        """When the next message for later is due, None when there is none."""
        ...

    async def leases(self, database: str, queue: str = "", group: str = "", limit: int = 1_000) -> list[LeaseStatus]:
        """Live leases of a database, or of one queue or group, by queue, group and end."""
        ...

    async def dead_letters(self, database: str, queue: str, limit: int, after: int = 0) -> list[DeadLetter]:
        """Dead letters of a queue, oldest first, after the id `after`."""
        ...

    async def partitions(
        self, database: str, queue: str = "", limit: int = 1_000, after: int = 0, patterns: Sequence[str] = EVERY
    ) -> list[PartitionStatus]:
        """Partitions of a database, or of one queue, in the order they were made, after the number `after`."""
        ...

    async def cursors(self, database: str, group: str, limit: int) -> list[CursorStatus]:
        """Where a group stands, in each partition it has met."""
        ...

    async def read_partition(self, partition_id: PartitionId, first: Offset, limit: int) -> list[Segment]:
        """Segments of one partition with their records, from the one that holds the offset `first` on."""
        ...

    async def traces_named(
        self, database: str, name: str, limit: int, skip: int = 0, patterns: Sequence[str] = EVERY
    ) -> list[TraceEvent]:
        """The events noted under a name, newest first."""
        ...

    async def stream(self, database: str, query_id: int) -> StreamQuery | None:
        """A streaming query of a database."""
        ...

    async def stream_state(self, question: StateQuestion) -> list[StateValue]:
        """What a streaming query remembers."""
        ...

    async def switches(self) -> list[tuple[str, str]]:
        """What is turned on, as (database, name)."""
        ...

    async def trace_names(self, database: str, limit: int, patterns: Sequence[str] = EVERY) -> list[TraceName]:
        """The names that events were noted under, the last used first."""
        ...

    async def milestone(self, database: str, name: str) -> int | None:
        """The last step that named work has reached (`Reach`), None when it has not begun."""
        ...

    async def staged(self, database: str, upload: str) -> list[bytes]:
        """The parts of an upload, from the first on as far as there is no gap."""
        ...

    async def traces(self, database: str, partition_id: PartitionId, transaction_id: str) -> list[TraceEvent]:
        """The noted events of one record, oldest first."""
        ...

    async def positions(self, database: str) -> list[Position]:
        """Where every group of a database stands, in the partitions it has met."""
        ...

    async def archived(self, database: str, queue: str) -> Lsn:
        """Up to which LSN a queue is archived; 0 when it never was."""
        ...

    async def rollups(self, database: str, wanted: RollupQuery) -> list[Rollup]:
        """Rollups of a stretch of time, by bucket, queue, group and type."""
        ...

    async def rollup_state(self, database: str) -> tuple[int, str]:
        """The number and the state that the last rollup left; 0 and '' before the first."""
        ...

    def access_version(self) -> int:
        """A number that changes when access tokens may have changed, here or elsewhere. Costs nothing.

        It follows other processes' commits as quickly as this one is woken by them.
        """
        ...

    async def access_token(self, token_id: str) -> AccessToken | None:
        """The access token with this id, whatever its database; None when there is none."""
        ...

    async def access_tokens(self, database: str = "") -> list[AccessToken]:
        """The access tokens of a database, or of all, oldest first."""
        ...

    def job_starts_path(self, worker: str) -> str:
        """Where a worker notes what it has started, for whoever takes its jobs back."""
        ...

    def jobs_ready_at(
        self, database: str, queues: Sequence[str], now: Timestamp, functions: frozenset[str] | None = None
    ) -> Timestamp | None:
        """When a claim on these queues (none: all) could get something: `now`, a later time, or None for nobody knows.

        Cheap: it is asked whenever jobs change.
        """
        ...

    async def job_states(self, database: str, ids: Sequence[str]) -> dict[str, JobState]:
        """The states of those of the jobs that exist."""
        ...

    def chores(self) -> Sequence[Chore]:
        """What has to be done for this store again and again, beside what every store needs."""
        ...

    def wakeup(self) -> Wakeup:
        """The best way to learn of others' commits that this store has here, as `wakeup` of the settings allows."""
        ...

    async def backup(self, path: str) -> None:
        """Write a copy of everything that is committed to a new file, while others go on. It is a store of its own."""
        ...

    async def make_room(self) -> bool:
        """Set room aside for deletes on a disk that is full; whether it is there. True where there is none to set."""
        ...

    async def examine(self) -> dict[str, Any]:
        """Facts for `headwater doctor`: sizes, settings in force, and under `problems` what is wrong."""
        ...
