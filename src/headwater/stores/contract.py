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
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.queue import QueueOptions
from headwater.model.record import Record
from headwater.model.rollup import Rollup


class Traits(msgspec.Struct, frozen=True):
    """What callers may need to know of a store without knowing its kind."""

    name: str
    location: str
    engine: str
    several_machines: bool
    durable_by: str
    wal_path: str | None = None


class QueueStatus(msgspec.Struct, frozen=True):
    """A queue with its size: `records` are kept, `waiting` are not yet passed by the slowest group."""

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


class GroupStatus(msgspec.Struct, frozen=True):
    """A consumer group of one queue: how far behind it is, what it works on, what it lost to retention."""

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


class PartitionStatus(msgspec.Struct, frozen=True):
    """A partition with its bounds: records from `start` up to `end` are kept; number and age tell it from others."""

    id: PartitionId
    partition: str
    start: Offset
    end: Offset
    created_at: Timestamp


class Position(msgspec.Struct, frozen=True):
    """Where a group stands in a partition; the group reads what came after the LSN `since`."""

    queue: str
    group: str
    partition_id: PartitionId
    position: Offset
    since: Lsn


class RollupQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which rollups are wanted: of one queue or of all, `until` left out."""

    resolution: str = "minute"
    since: Timestamp = Timestamp(0)
    until: Timestamp = Timestamp(2**62)
    queue: str = ""


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


class Stretch(msgspec.Struct, frozen=True, gc=False):
    """A segment without its records and names: enough to plan who reads what."""

    lsn: Lsn
    partition_id: PartitionId
    first_offset: Offset
    count: int
    written_at: Timestamp


class Body(msgspec.Struct, frozen=True, gc=False):
    """A segment with its records unsplit: the JSON array that is kept, decompressed and decrypted."""

    lsn: Lsn
    lane: Lane
    first_offset: Offset
    count: int
    written_at: Timestamp
    records: bytes
    partition_id: PartitionId


class Drops(msgspec.Struct, frozen=True):
    """How often anything was dropped from the store, and how many partitions a reader lost records in, some named."""

    number: int
    lost: int
    partitions: list[str]


class LogReader(Protocol):
    """The log for reading only, opened by as many processes as there are: nothing here makes a writer wait.

    Every call is one short look. Positions are LSNs: a stretch begins after `after` and ends with `through`.
    """

    traits: Traits

    async def open(self) -> None:
        """Connect, and check that there is a store of this version."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    async def span(self) -> tuple[Lsn, Lsn]:
        """The LSN before the oldest segment that is kept, and the newest LSN ever given out."""
        ...

    async def lsn_at(self, time: Timestamp) -> Lsn:
        """The LSN before the first segment written at or after `time`."""
        ...

    async def queue_names(self, database: str) -> list[str]:
        """The names of a database's queues."""
        ...

    async def newest(self, after: Lsn, through: Lsn, database: str, queues: Sequence[str]) -> Lsn | None:
        """The newest segment of these queues in a stretch of the log, None when it has none."""
        ...

    async def outline(
        self, after: Lsn, through: Lsn, limit: int, database: str, queues: Sequence[str]
    ) -> list[Stretch]:
        """The first `limit` segments of these queues in a stretch of the log, in LSN order, without their records."""
        ...

    async def bodies(
        self, after: Lsn, through: Lsn, bytes_max: int, database: str, queues: Sequence[str]
    ) -> list[Body]:
        """Segments of these queues in LSN order until their records come to `bytes_max`; one at least, if there is."""
        ...

    async def drops(self, after: Lsn, since: int, database: str, queues: Sequence[str]) -> Drops:
        """What these queues lost after the LSN `after` in drops after the number `since`."""
        ...


class Store(Protocol):
    """One durable log and its state."""

    traits: Traits

    async def open(self) -> None:
        """Connect, check that the place is ours or empty, and bring its tables up to date."""
        ...

    async def close(self) -> None:
        """Let go of everything. What was answered stays."""
        ...

    def apply_now(self, operations: Sequence[Operation], now: Timestamp) -> Commit | None:
        """Like `apply`, if that needs no waiting; None, with nothing done, when it would have to wait."""
        ...

    async def apply(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """Apply all operations in one transaction; when it raises, none of them took effect."""
        ...

    def make_durable(self, callers: int) -> asyncio.Future[None]:
        """Done when everything applied so far survives power loss. `callers` says how many wait for it."""
        ...

    async def recover(self) -> None:
        """After `make_durable` failed: bring what was applied to stable storage in another way, or raise."""
        ...

    def changed_elsewhere(self) -> bool:
        """Whether somebody else has committed since this was last asked or `apply` last ran. Cheap."""
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

    async def queues(self, database: str) -> list[QueueStatus]:
        """The queues of a database with their sizes."""
        ...

    async def groups(self, database: str, queue: str = "") -> list[GroupStatus]:
        """The consumer groups of a database, or of one queue."""
        ...

    async def dead_letters(self, database: str, queue: str, limit: int, after: int = 0) -> list[DeadLetter]:
        """Dead letters of a queue, oldest first, after the id `after`."""
        ...

    async def milestone(self, database: str, name: str) -> int | None:
        """The last step that named work has reached (`Reach`), None when it has not begun."""
        ...

    async def traces(self, database: str, partition_id: PartitionId, transaction_id: str) -> list[TraceEvent]:
        """The noted events of one record, oldest first."""
        ...

    async def partitions(self, database: str, queue: str) -> list[PartitionStatus]:
        """The partitions of a queue with their bounds."""
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

    async def grown(self) -> None:
        """Returns when enough was written for a checkpoint to be worth it; never, where there is none to make."""
        ...

    async def checkpoint(self) -> None:
        """Move what is logged into its final place, as far as readers allow, without making writers wait."""
        ...

    async def compact(self, pages: int) -> int:
        """Give up to `pages` unused pages back to the file system; how many were."""
        ...

    async def examine(self) -> dict[str, Any]:
        """Facts for `headwater doctor`: sizes, settings in force, and under `problems` what is wrong."""
        ...
