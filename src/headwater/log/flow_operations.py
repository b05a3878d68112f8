"""What flows of the pipeline ask of the log, as plain data, and what is answered. See `operations.py` for the rest."""

from collections.abc import Sequence

import msgspec

from headwater.log.operations import Deleted, Operation
from headwater.model.coverage import Ranges
from headwater.model.names import PARTITION_DEFAULT, Lsn
from headwater.model.record import Record
from headwater.model.rollup import Rollup


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """How many records were appended, and how many were there before."""

    count: int
    skipped: int
    lsn: Lsn


class Load(Operation[Loaded], frozen=True, kw_only=True):
    """Append records of a foreign source once. `positions` (rising) say where in the source each record stands.

    The ranges in `covers` are covered afterwards; a record whose position was covered before is left out. The source is
    named by whoever loads; a partition knows how much it has of it, for ever.
    """

    queue: str
    partition: str = PARTITION_DEFAULT
    source: str
    covers: Ranges
    positions: Sequence[int]
    records: Sequence[Record]


class Archived(msgspec.Struct, frozen=True):
    """Up to which LSN the queue is archived now."""

    lsn: Lsn


class MarkArchived(Operation[Archived], frozen=True, kw_only=True):
    """Everything of the queue up to this LSN is in an archive: retention may drop it."""

    queue: str
    lsn: Lsn


class RollupsAdded(msgspec.Struct, frozen=True):
    """The number of the state now."""

    number: int


class AddRollups(Operation[RollupsAdded], frozen=True, kw_only=True):
    """Add rows to the rollups and move their state on, if it still has this number; else nothing changes."""

    number: int
    state: str
    rows: Sequence[Rollup]


class Staged(msgspec.Struct, frozen=True):
    """How many bytes the upload has now."""

    bytes: int


class Stage(Operation[Staged], frozen=True, kw_only=True):
    """Keep a part of a commit that is too large for one request, until it is committed with the others or is old.

    `body` is compressed, `size` its bytes before.
    """

    upload: str
    part: int
    size: int
    body: bytes


class Unstage(Operation[Deleted], frozen=True, kw_only=True):
    """Drop an upload."""

    upload: str
