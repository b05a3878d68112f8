"""What a reader by LSN is: other processes (the pipeline's) read the log with it and never make a writer wait.

A store's own door for writing and asking is in `contract.py`; this one opens the store for reading only.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from headwater.clock import Timestamp
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.stores.contract import Traits
from headwater.stores.questions import PartitionStatus


class SegmentOutline(msgspec.Struct, frozen=True, gc=False):
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
    """The number of the last drop, and how many partitions a reader lost records in, the first 10,000 named.

    Drops are counted over the whole store. Asked of some queues, `number` is that of the last one that took records of
    theirs; asked of none, that of the last one of all.
    """

    number: int
    lost: int
    partitions: list[str]


class Fingerprint(msgspec.Struct, frozen=True):
    """A place in the log as a checkpoint keeps it: `mark` is equal for the same segment, and for no other."""

    lsn: Lsn
    mark: str


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

    async def identity(self) -> str:
        """Which store this is: a UUID that is made once with it and changes when it is restored. Empty for a backup
        until it is first opened for writing, which gives it one."""
        ...

    async def fingerprint(self, through: Lsn) -> Fingerprint | None:
        """The newest segment at or before `through` that is kept; None when retention has left none."""
        ...

    async def remembers(self, seen: Fingerprint) -> bool | None:
        """Whether this is the log that a fingerprint was taken of: True when it has that very segment, False when it
        has another one there or never came so far, None when retention has dropped it and nothing can be said."""
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

    async def queue_numbers(self, database: str) -> dict[str, int]:
        """The queues of a database by name, each with its number: one that is deleted and made again has another."""
        ...

    async def partitions(self, database: str, queue: str, limit: int, after: int) -> list[PartitionStatus]:
        """The first `limit` partitions of a queue after the number `after`, in the order they were made."""
        ...

    async def newest(self, after: Lsn, through: Lsn, database: str, queues: Sequence[str]) -> Lsn | None:
        """The newest segment of these queues in a stretch of the log, None when it has none."""
        ...

    async def end_of(self, database: str, patterns: Sequence[str]) -> Lsn:
        """Where the log ends for whoever may read the queues whose names fit these patterns."""
        ...

    async def outline(
        self, after: Lsn, through: Lsn, limit: int, database: str, queues: Sequence[str]
    ) -> list[SegmentOutline]:
        """The first `limit` segments of these queues in a stretch of the log, in LSN order, without their records."""
        ...

    async def bodies(
        self, after: Lsn, through: Lsn, bytes_max: int, database: str, queues: Sequence[str]
    ) -> list[Body]:
        """Segments of these queues in LSN order until their records come to `bytes_max`; one at least, if there is."""
        ...

    async def drops(
        self, after: Lsn, since: int, database: str, queues: Sequence[str], partitions: Sequence[str] = ()
    ) -> Drops:
        """What these queues, or some of their partitions, lost after the LSN `after` in drops after number `since`."""
        ...
