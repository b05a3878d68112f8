"""What our own client and our own routes say to each other: operations and answers of the log, as they are.

Nothing is named or scaled in a second way on this wire. What a client may not choose is not in it: the database comes
from who asks. Times are microseconds since 1970.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from headwater.clock import Timestamp
from headwater.config import Durability
from headwater.log.job_operations import NewJob
from headwater.log.operations import Batch, Pushed
from headwater.model.cursor import Outcome
from headwater.model.names import GROUP_DEFAULT, Lsn, PartitionId
from headwater.model.record import Record
from headwater.model.spreading import PRIORITY_MAX
from headwater.stores.questions import Segment

Text = Annotated[str, Meta(max_length=256)]
ErrorText = Annotated[str, Meta(max_length=65_536)]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Number = Annotated[int, Meta(ge=0, lt=2**62)]
Token = Annotated[int, Meta(ge=1, lt=2**62)]
Partition = Annotated[PartitionId, Meta(ge=0, lt=2**62)]
SEVERAL_MAX = 1_000


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all requests have: a `key`. The second request with the same one gets the answer of the first."""

    key: Text = ""


# ── pushing ──


class LanePush(Struct, frozen=True, forbid_unknown_fields=True):
    """Records for one partition, or for the lanes of the queue when it names none: all of them, or none.

    `delay_seconds` delivers them that much later. `priority`, for those that name no partition, delivers them before
    those of the queue with a lower one.
    """

    queue: str
    records: Annotated[list[Record], Meta(min_length=1)]
    partition: str = ""
    delay_seconds: Annotated[float, Meta(ge=0)] = 0.0
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX)] = 0


class PushRequest(Asked, frozen=True, kw_only=True):
    """Records for any partitions, in one commit."""

    pushes: Annotated[list[LanePush], Meta(min_length=1, max_length=SEVERAL_MAX)]
    durability: Durability | None = None
    ttl_seconds: float | None = None


class PushAnswer(Struct, frozen=True):
    """Where the records of one partition are, and how safe; taken into memory only, they have no place yet."""

    durability: Durability
    pushed: Pushed | None


# ── popping and reporting ──


class Report(Asked, frozen=True, kw_only=True):
    """A report on records of a lease: these offsets are done, or these outcomes hold; neither: all are done."""

    partition_id: Partition
    token: Token
    group: str = GROUP_DEFAULT
    offsets: Annotated[list[Number], Meta(max_length=100_000)] = []
    outcomes: dict[int, Outcome] | None = None
    errors: dict[int, ErrorText] | None = None


class PopRequest(Asked, frozen=True, kw_only=True):
    """The next records of a partition, of a queue, or of any queue of a namespace and task; waits when there are none.

    `partitions` bounds of how many they may be; 0 is as many as the batch needs. `reports` on the records that were
    popped before take effect in the same commit.
    """

    queue: str = ""
    partition: str = ""
    namespace: str = ""
    task: str = ""
    group: str = GROUP_DEFAULT
    batch: int = 1
    partitions: int = 0
    lease_seconds: float | None = None
    auto_ack: bool = False
    subscribe: Literal["all", "new"] = "all"
    since: Number | None = None
    holder: Text = ""
    wait_seconds: Annotated[float, Meta(ge=0)] = 0
    reports: Annotated[list[Report], Meta(max_length=SEVERAL_MAX)] = []


class PopAnswer(Struct, frozen=True):
    """What a pop got; `now` is the server's time, so that a client can tell how long a lease holds."""

    batches: list[Batch]
    now: Timestamp


class ReportRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Reports on any leases. All are taken that can be; the first that cannot is answered as the error."""

    reports: Annotated[list[Report], Meta(min_length=1, max_length=SEVERAL_MAX)]


class Lease(Struct, frozen=True, forbid_unknown_fields=True):
    """A lease, by what it is known by."""

    partition_id: Partition
    token: Token
    group: str = GROUP_DEFAULT


class ExtendRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Leases to keep for so many seconds from now; the queue's own lease time when nothing is said."""

    leases: Annotated[list[Lease], Meta(min_length=1, max_length=SEVERAL_MAX)]
    seconds: float | None = None


# ── several at once ──


class TransactedPush(LanePush, frozen=True, tag_field="kind", tag="push", forbid_unknown_fields=True):
    """Records that are pushed if everything else holds."""

    ttl_seconds: float | None = None


class TransactedReport(Struct, frozen=True, tag_field="kind", tag="report", forbid_unknown_fields=True, kw_only=True):
    """A report that counts if everything else holds."""

    partition_id: Partition
    token: Token
    group: str = GROUP_DEFAULT
    offsets: Annotated[list[Number], Meta(max_length=100_000)] = []
    outcomes: dict[int, Outcome] | None = None
    errors: dict[int, ErrorText] | None = None


class HandedJob(NewJob, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that is handed in; the arguments of a function stay out where there are none.

    `max_retries`, `delay_seconds`, `timeout_seconds`, `backoff_max_seconds` and `result_seconds` are older names of
    `retries`, `delay`, `timeout`, `backoff_max` and `result_ttl`.
    """

    arguments: Raw | UnsetType = UNSET  # type: ignore[assignment]
    max_retries: int | UnsetType = UNSET
    delay_seconds: float | UnsetType = UNSET
    timeout_seconds: float | UnsetType = UNSET
    backoff_max_seconds: float | UnsetType = UNSET
    result_seconds: float | UnsetType = UNSET


class TransactedJobs(Struct, frozen=True, tag_field="kind", tag="jobs", forbid_unknown_fields=True):
    """Jobs that are added if everything else holds."""

    jobs: Annotated[list[HandedJob], Meta(min_length=1)]


class TransactionRequest(Asked, frozen=True, kw_only=True):
    """Pushes, reports and jobs that take effect together or not at all, if all `leases` are alive."""

    operations: Annotated[list[TransactedPush | TransactedReport | TransactedJobs], Meta(max_length=SEVERAL_MAX)] = []
    leases: Annotated[list[Lease], Meta(max_length=SEVERAL_MAX)] = []


# ── queues, groups, dead letters, traces ──


class ConfigureRequest(Asked, frozen=True, kw_only=True):
    """A queue to make or to change; options that are not named keep their value."""

    queue: str
    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] = {}


class DeleteQueueRequest(Asked, frozen=True, kw_only=True):
    """A queue to remove, with everything in it."""

    queue: str


class SeekRequest(Asked, frozen=True, kw_only=True):
    """Where a group goes: the beginning or end of a queue, a time, behind an LSN, or an offset of one partition."""

    queue: str
    group: str = GROUP_DEFAULT
    partition: str = ""
    to: Literal["beginning", "end"] = "end"
    timestamp: Number | None = None
    lsn: Number | None = None
    offset: Number | None = None
    create: bool = False


class DeleteGroupRequest(Asked, frozen=True, kw_only=True):
    """A group to forget: in one queue, or in all; with `keep_beginning` only its positions."""

    group: str
    queue: str = ""
    keep_beginning: bool = False


class ConfigureGroupRequest(Asked, frozen=True, kw_only=True):
    """What a group has otherwise than its queue: null takes the queue's value again."""

    queue: str
    group: str
    options: dict[str, Any] = {}


class ReleaseLeasesRequest(Asked, frozen=True, kw_only=True):
    """Leases to give back: of a queue, of one of its groups or partitions, or the one with this token."""

    queue: str
    group: str = ""
    partition: str = ""
    token: Token | None = None


class DeadLettersRequest(Asked, frozen=True, kw_only=True):
    """Dead letters of a queue: those with these ids, or the oldest `limit`."""

    queue: str
    ids: Annotated[list[Number], Meta(max_length=100_000)] = []
    limit: Count = 1_000


class RequeueRequest(DeadLettersRequest, frozen=True, kw_only=True):
    """Dead letters for the group that each failed for; for all groups; or for another queue."""

    to: str = ""
    all_groups: bool = False


class TraceRequest(Asked, frozen=True, kw_only=True):
    """An event in the life of a record."""

    partition_id: Partition
    transaction_id: Text
    group: str = GROUP_DEFAULT
    names: Annotated[list[str], Meta(max_length=100)] = []
    event: Text = "info"
    data: Raw | UnsetType = UNSET


class QueuesQuery(Struct, frozen=True):
    """The queues by name: so many at most, after a name."""

    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class GroupsQuery(Struct, frozen=True):
    """The groups of one queue, or of all, by queue and name: so many at most, after one of them."""

    queue: str = ""
    after_queue: str = ""
    after_group: str = ""
    limit: Annotated[int, Meta(ge=1, le=10_000)] | None = None


class LeasesQuery(Struct, frozen=True):
    """Leases of one queue or group, or of all."""

    queue: str = ""
    group: str = ""
    limit: Count = 1_000


class DeadLettersQuery(Struct, frozen=True):
    """Dead letters of a queue, oldest first, after an id."""

    queue: str
    limit: Count = 100
    after: Number = 0


class TracesQuery(Struct, frozen=True):
    """The events of one record."""

    partition_id: Partition
    transaction_id: Text


class SegmentsQuery(Struct, frozen=True):
    """What a queue got after an LSN; waits for more when there is none."""

    queue: str
    after: Number = 0
    limit: Annotated[int, Meta(ge=1, le=100)] = 16
    wait_seconds: Annotated[float, Meta(ge=0)] = 0


class SegmentsAnswer(Struct, frozen=True, omit_defaults=True):
    """A stretch of the log. Everything of the queue up to `through` has been told.

    `resync` is there when records after `after` were dropped before they were told: it is the LSN behind which the log
    goes on with what is kept.
    """

    through: Lsn
    segments: list[Segment]
    resync: Lsn | None = None


class Bounds(Struct, frozen=True):
    """What this server takes at most, and where its log ends now."""

    version: str
    record_bytes_max: int
    batch_max: int
    batch_bytes_max: int
    wait_seconds_max: float
    lsn: Lsn
    now: Timestamp
