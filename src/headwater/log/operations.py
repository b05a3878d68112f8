"""Everything that can be asked of the log, as plain data, and what is answered.

A service makes an operation; the committer gathers those that wait; a store applies them in one transaction. An
operation that fails is answered with an error from `errors.py` and leaves no trace; its neighbours are not touched.
`key` makes an operation idempotent: the same again gets the same answer, another one with that key is refused.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args

import msgspec

from headwater.clock import Timestamp
from headwater.errors import StoreFull
from headwater.model.added import Added
from headwater.model.cursor import Outcome
from headwater.model.lane import Lane
from headwater.model.names import DATABASE_DEFAULT, GROUP_DEFAULT, PARTITION_DEFAULT, Lsn, Offset, PartitionId
from headwater.model.principal import Scope
from headwater.model.queue import LANES_DEFAULT, QueueOptions
from headwater.model.record import Record

if TYPE_CHECKING:
    # From Python 3.13 on it is in `typing`: whoever says `Operation` alone means one with any answer.
    from typing_extensions import TypeVar as TypeVarWithDefault

    Result = TypeVarWithDefault("Result", covariant=True, default=Any)
else:
    Result = TypeVar("Result", covariant=True)


class Operation(msgspec.Struct, Generic[Result], frozen=True, kw_only=True, gc=False):
    """Something that can be done, with the type of what is answered; what all of them have is the database (tenant)
    they act in, and an idempotency key."""

    database: str = DATABASE_DEFAULT
    key: str = ""


@cache
def result_type(operation: type[Operation]) -> Any:
    """The type of what is answered to a kind of operation."""
    (found,) = get_args(operation.__orig_bases__[0])  # type: ignore[attr-defined]
    return found


# ── queues ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Configured(msgspec.Struct, frozen=True):
    """A queue as it stands now."""

    queue: str
    namespace: str
    task: str
    options: QueueOptions


class Configure(Operation[Configured], frozen=True, kw_only=True):
    """Make a queue, or change its options; options that are not named keep their value.

    `lanes` are those of a queue that is made by this.
    """

    queue: str
    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] = {}
    lanes: int = LANES_DEFAULT


class Deleted(msgspec.Struct, frozen=True):
    """How many things of the kind that was asked for are gone."""

    count: int


class DeleteQueue(Operation[Deleted], frozen=True, kw_only=True):
    """Remove a queue with its records, groups and dead letters."""

    queue: str


class Clear(Operation[Deleted], frozen=True, kw_only=True):
    """Drop all records of a queue, or of one partition; groups go on with what is pushed next."""

    queue: str
    partition: str = ""


# ── records ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Pushed(msgspec.Struct, frozen=True, gc=False):
    """Where the records are. `duplicates` maps the index of a record that was there before to its first offset, `due`
    that of one which is still to come to its time.

    Records that are delivered later have no offset before `due_at`. A push that was spread over several lanes has
    `parts`, one for each lane, with the indexes of its records in the push as `members`; what is said outside is then
    of the first lane, and `count` and `duplicates` are of all.
    """

    partition_id: PartitionId
    first_offset: Offset
    count: int
    lsn: Lsn
    written_at: Timestamp
    duplicates: dict[int, Offset] = {}
    partition: str = ""
    due_at: Timestamp | None = None
    members: list[int] = []
    parts: list["Pushed"] = []
    due: dict[int, Timestamp] = {}

    def offsets(self) -> list[Offset]:
        """The offset of every record of the push, in its order, each in its own partition."""
        if self.parts:
            places: dict[int, Offset] = {}
            for part in self.parts:
                places.update(zip(part.members, part.offsets(), strict=True))
            return [places[index] for index in range(len(places))]
        if not self.duplicates:
            return list(map(Offset, range(self.first_offset, self.first_offset + self.count)))
        fresh = iter(range(self.first_offset, self.first_offset + self.count))
        total = self.count + len(self.duplicates)
        return [self.duplicates[index] if index in self.duplicates else Offset(next(fresh)) for index in range(total)]


class Push(Operation[Pushed], frozen=True, kw_only=True):
    """Append records to one partition; queue and partition are made when they are new.

    A push to the partition "" names none: its records are spread over the lanes of the queue. `lanes` are those of a
    queue that is made by this push. `priority` is for those that name no partition: the higher one is delivered first.
    `part_of` is the fingerprint of a keyed request that became several pushes.
    """

    queue: str
    partition: str = PARTITION_DEFAULT
    records: Sequence[Record]
    ttl_seconds: float | None = None
    lanes: int = LANES_DEFAULT
    delay_seconds: float = 0.0
    priority: int = 0
    part_of: str = ""


class Batch(msgspec.Struct, frozen=True):
    """Records of one partition under one lease, or handed over for good when `token` is 0. `lost` counts records before
    these that retention dropped before this group could read them."""

    queue: str
    partition: str
    partition_id: PartitionId
    group: str
    token: int
    lease_until: Timestamp
    attempts: int
    offsets: list[Offset]
    written_at: list[Timestamp]
    lsns: list[Lsn]
    records: list[Record]
    lost: int = 0


class Popped(msgspec.Struct, frozen=True):
    """What a pop got; when nothing, `ready_at` says when something that is known now may become free."""

    batches: list[Batch] = []
    ready_at: Timestamp | None = None


class Pop(Operation[Popped], frozen=True, kw_only=True):
    """Lease the next records of a partition, of any partition of a queue, or of any queue of a namespace and task.

    `partitions` bounds of how many they may be; 0 is as many as the batch needs. `sharers` says how many others wait
    for the same: no pop takes more than its share of what is ready. `lanes` are those of a queue that is made by this.
    `holder` says who asks, for whoever looks at the leases. With its key, a pop gets what it got before as long as it
    holds that, and else what a new one would.
    """

    group: str = GROUP_DEFAULT
    queue: str = ""
    partition: str = ""
    namespace: str = ""
    task: str = ""
    batch: int = 1
    partitions: int = 1
    lease_seconds: float | None = None
    auto_ack: bool = False
    subscribe: str = "all"
    since: Timestamp | None = None
    sharers: int = 0
    lanes: int = LANES_DEFAULT
    holder: str = ""


class Acked(msgspec.Struct, frozen=True, gc=False):
    """The lease after a report: whether it ended, which records went to the dead letters, what waits behind, and how
    many records the report settled: all of it but those that were given back."""

    lease_ended: bool
    buried: tuple[int, ...] = ()
    waiting: bool = False
    settled: int = 0


class Ack(Operation[Acked], frozen=True, kw_only=True):
    """Report on records of a lease, by offset or by transaction id. No outcomes means: all of them, completed.

    Without a token the report counts for whichever lease is alive: a caller who kept none is not fenced off. With
    `releases_rest`, a record that failed or is given back ends the lease: what is left of it is given back, too. With
    `counts_late`, what a report has brought back may still be completed by its token, as long as nobody leased since.
    """

    partition_id: PartitionId
    group: str = GROUP_DEFAULT
    token: int | None
    offsets: Sequence[int] = ()
    outcomes: dict[int | str, Outcome] | None = None
    errors: dict[int | str, str] | None = None
    releases_rest: bool = False
    counts_late: bool = False


class Advance(Operation[Acked], frozen=True, kw_only=True):
    """Report everything of a lease up to one record, by offset or transaction id, as done, and give the rest back.

    Without `release` the rest stays away until the lease would have run out; no attempt is counted for it.
    """

    partition_id: PartitionId
    group: str
    token: int
    through: int | str
    release: bool = True


class Extended(msgspec.Struct, frozen=True):
    """Until when the lease holds now; 0 where it is over, because all of it was reported."""

    lease_until: Timestamp


class Extend(Operation[Extended], frozen=True, kw_only=True):
    """Keep a lease for `seconds` (None: the queue's lease time); with `passes_reported` unless all is reported."""

    partition_id: PartitionId
    group: str = GROUP_DEFAULT
    token: int
    seconds: float | None = None
    passes_reported: bool = False


class Sought(msgspec.Struct, frozen=True):
    """How many partitions the group was moved in."""

    partitions: int


class Seek(Operation[Sought], frozen=True, kw_only=True):
    """Move a group to the beginning or end of a queue, to a time, behind an LSN, or to an offset of one partition.
    A group that is not there is made only when `create` says so: a mistyped name would be one."""

    queue: str
    group: str = GROUP_DEFAULT
    partition: str = ""
    to: str = "end"
    timestamp: Timestamp | None = None
    lsn: Lsn | None = None
    offset: Offset | None = None
    create: bool = False


class DeleteGroup(Operation[Deleted], frozen=True, kw_only=True):
    """Forget a consumer group: of one queue, or of all queues of the database.

    With `keep_beginning` only its positions are forgotten: it begins again where it began.
    """

    group: str
    queue: str = ""
    keep_beginning: bool = False


class Subscribed(msgspec.Struct, frozen=True):
    """It is remembered."""


class Subscribe(Operation[Subscribed], frozen=True, kw_only=True):
    """Where a consumer group begins in queues that it has not read yet: at this time."""

    group: str
    timestamp: Timestamp


class PassOver(Operation[Deleted], frozen=True, kw_only=True):
    """Have all groups of a queue pass a record that none of them works on; `bury` puts it among the dead letters."""

    partition_id: PartitionId
    offset: Offset
    bury: bool = False


# ── dead letters, traces ────────────────────────────────────────────────────────────────────────────────────────────


class Requeued(msgspec.Struct, frozen=True):
    """How many went back."""

    count: int


class Requeue(Operation[Requeued], frozen=True, kw_only=True):
    """Have dead letters delivered once more; all of the queue when no ids are given.

    To the group that each failed for and to no other; with `all_groups` to all of them, in the partition it came from;
    with `to` they are pushed to another queue.
    """

    queue: str
    ids: Sequence[int] = ()
    limit: int = 1_000
    to: str = ""
    all_groups: bool = False


class Purge(Operation[Deleted], frozen=True, kw_only=True):
    """Drop dead letters for good; all of the queue when no ids are given."""

    queue: str
    ids: Sequence[int] = ()
    limit: int = 1_000


class Traced(msgspec.Struct, frozen=True):
    """How many rows the event took: one for each name, at least one."""

    count: int


class Trace(Operation[Traced], frozen=True, kw_only=True):
    """Note an event in the life of a record."""

    partition_id: PartitionId
    transaction_id: str
    group: str = GROUP_DEFAULT
    names: Sequence[str] = ()
    event: str = "info"
    data: msgspec.Raw = msgspec.Raw(b"null")


class Switched(msgspec.Struct, frozen=True):
    """How it stands now."""

    is_on: bool


class SetSwitch(Operation[Switched], frozen=True, kw_only=True):
    """Turn something on or off for a database, for every server on the store."""

    name: str
    is_on: bool


# ── access ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class AccessTokenAdded(msgspec.Struct, frozen=True):
    """The token, as it is kept now."""

    id: str
    created_at: Timestamp


class AddAccessToken(Operation[AccessTokenAdded], frozen=True, kw_only=True):
    """Keep a new access token of the database: its id and digest, never its text."""

    id: str
    digest: str
    name: str
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...]
    expires_at: Timestamp | None = None


class RevokeAccessToken(Operation[Deleted], frozen=True, kw_only=True):
    """Make an access token of the database worthless, for good; one that is not there or was revoked counts 0."""

    id: str


# ── named work ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Reached(msgspec.Struct, frozen=True):
    """The step that was taken before this one, None when this is the first."""

    before: int | None


class Reach(Operation[Reached], frozen=True, kw_only=True):
    """Take step `number` of named work; refused when it, or a later one, was taken before. In a transaction with what
    the step does, each step takes effect once, however often it is tried and however late. `note` says of the last
    step what is needed to know it again."""

    name: str
    number: int
    note: str = ""


# ── several at once ─────────────────────────────────────────────────────────────────────────────────────────────────


class Transacted(msgspec.Struct, frozen=True):
    """The answers, in the order of the operations."""

    results: list[Any]


class Transaction(Operation[Transacted], frozen=True, kw_only=True):
    """Operations that take effect together or not at all. `leases` must be alive: (partition, group, token)."""

    operations: Sequence[Operation]
    leases: Sequence[tuple[PartitionId, str, int]] = ()


# ── chores: what housekeeping asks of the log, in bites, so that nobody waits long ────────────────────────────────────


class Retained(msgspec.Struct, frozen=True):
    """What was dropped, and the partition to go on after (0: the round is complete). `rooms` are those in which nothing
    was ever said, and nobody is."""

    segments: int
    records: int
    after: PartitionId
    rooms: int = 0


class Retain(Operation[Retained], frozen=True, kw_only=True):
    """Drop segments whose time is over, looking at partitions after `after`, `limit` of them."""

    after: PartitionId = PartitionId(0)
    limit: int = 500


class Reaped(msgspec.Struct, frozen=True):
    """How many leases were ended, how many records went to the dead letters."""

    leases: int
    buried: int


class Reap(Operation[Reaped], frozen=True, kw_only=True):
    """End these leases (partition, group) if they ran out, so that their records are free without anybody asking."""

    leases: Sequence[tuple[PartitionId, str]]


class Promoted(msgspec.Struct, frozen=True):
    """How many there were."""

    count: int


class Promote(Operation[Promoted], frozen=True, kw_only=True):
    """Append messages for later that are due, as every commit does before anything else."""


class Forget(Operation[Deleted], frozen=True, kw_only=True):
    """Drop idempotency keys and traces older than `before`."""

    before: Timestamp
    limit: int = 5_000


class Touch(msgspec.Struct, frozen=True, gc=False):
    """One segment that a commit added: enough to know whom to wake, without its records."""

    lsn: Lsn
    partition_id: PartitionId
    first_offset: Offset
    count: int
    lane: Lane


class Commit(msgspec.Struct, frozen=True):
    """What one transaction did: an answer or an error for each operation, and the segments it added. `full` is set when
    there was no room for all of them, and only those were applied that make some. `added` is what it did to the log,
    where the store can tell without a look. `buried` is how many records of each database failed for good. `operations`
    are those that took effect, by the places of their results; None is one that an earlier commit has answered."""

    results: list[Any]
    touched: list[Touch]
    wrote: bool
    full: StoreFull | None = None
    added: Added | None = None
    buried: Mapping[str, int] = {}
    operations: Sequence[Operation | None] = ()
