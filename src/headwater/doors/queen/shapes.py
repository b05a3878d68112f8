"""Bodies, queries and answers of the queue routes as types: decoded by them, and described by them.

Names are those of the wire. What queen-mq does not know is additive: its clients pass over it.
"""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from headwater.model.names import GROUP_DEFAULT

Text = Annotated[str, Meta(max_length=256)]
# Options of a queue, by the names of queen-mq and by ours.
Options = dict[str, bool | int | float | str | None]
ErrorText = Annotated[str, Meta(max_length=65_536)]
Milliseconds = Annotated[float, Meta(ge=0, le=86_400_000)]


# ── pushing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class PushItem(Struct, frozen=True, rename="camel", gc=False):
    """One message. `type`, `headers` and `timestamp` (microseconds, to keep an older time) are additive."""

    queue: str
    payload: Raw
    partition: str | None = None
    transaction_id: Text | None = None
    trace_id: Text | None = None
    type: Text = ""
    headers: dict[str, str] | None = None
    timestamp: int = 0


class PushBody(Struct, frozen=True, rename="camel"):
    """Messages for any queues and partitions. Each partition takes its own all at once or not at all.

    `bufferMs` and `bufferMax` are accepted: commits are shared by everybody who waits anyway. No messages at all are no
    mistake: programs that push what is left over in the end have often nothing left.
    """

    items: list[PushItem]
    buffer_ms: float | None = None
    buffer_max: int | None = None
    durability: str | None = None
    ttl_seconds: float | None = None
    idempotency_key: Text = ""


class PushResult(Struct, frozen=True, gc=False):
    """What became of one message, in the order of the push. `status` is queued, duplicate or failed."""

    index: int
    transaction_id: str
    status: str
    message_id: str | None
    partition_id: str | None
    trace_id: str | None
    queueName: str
    partition: str
    offset: int | None = None
    lsn: int | None = None
    durability: str = ""
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET


# ── popping ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class PopQuery(Struct, frozen=True, rename="camel"):
    """How a pop is asked for. `timeout` is in milliseconds and counts only with `wait`.

    What is left out for `batch` and `timeout` are the server's settings `pop_batch` and `pop_wait_seconds`.
    """

    batch: int | None = None
    wait: bool = False
    timeout: Milliseconds | None = None
    consumer_group: str = GROUP_DEFAULT
    subscription_mode: str = ""
    subscription_from: str = ""
    namespace: str = ""
    task: str = ""
    partitions: Annotated[int, Meta(ge=1)] = 1
    auto_ack: bool = False
    autopilot: bool = False
    conflation: bool = False
    lease_seconds: float | None = None
    idempotency_key: Text = ""


class PoppedMessage(Struct, frozen=True, rename="camel", gc=False):
    """One delivered message."""

    id: str
    transaction_id: str
    trace_id: str | None
    data: Raw
    producer_sub: str | None
    created_at: str
    partition_id: str
    partition: str
    lease_id: str | None
    consumer_group: str
    queue: str
    retry_count: int
    attempts: int
    offset: int
    lsn: int
    lease_expires_at: str | None
    type: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    lost_before: int | UnsetType = UNSET


class PopResponse(Struct, frozen=True, rename="camel"):
    """What a pop got; the names at the top are those of the first partition."""

    success: bool
    queue: str
    partition: str
    partition_id: str
    lease_id: str | None
    consumer_group: str
    partitions_claimed: int
    messages: list[PoppedMessage]


# ── reporting ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Acknowledgment(Struct, frozen=True, rename="camel", gc=False):
    """What is said of one message: it goes by its transaction id, or by its offset.

    Without `leaseId` it counts for whoever holds the lease.
    """

    partition_id: str
    transaction_id: str | None = None
    offset: int | None = None
    status: str | bool = "completed"
    error: ErrorText | None = None
    consumer_group: str | None = None
    lease_id: str | None = None


class AckBatchBody(Struct, frozen=True, rename="camel"):
    """Reports on several messages, of any partitions and leases."""

    acknowledgments: list[Acknowledgment]
    consumer_group: str | None = None


class AckResult(Struct, frozen=True, rename="camel"):
    """What became of one report, in the order in which they came."""

    index: int
    transaction_id: str
    success: bool
    error: str | None = None
    code: str | UnsetType = UNSET
    queue_name: str | None = None
    partition_name: str | None = None
    lease_released: bool = False
    dlq: bool = False


class ExtendBody(Struct, frozen=True):
    """For how long from now; the queue's own lease time when nothing is said."""

    seconds: float | None = None


class ExtendResponse(Struct, frozen=True):
    """Until when the lease holds now."""

    success: bool
    leaseId: str
    newExpiresAt: str
    lease_expires_at: str
    expiresAt: str


# ── transactions ────────────────────────────────────────────────────────────────────────────────────────────────────


class TransactionPush(Struct, frozen=True, tag="push", rename="camel"):
    """Messages to push if everything else holds."""

    items: Annotated[list[PushItem], Meta(min_length=1)]


class TransactionAck(Struct, frozen=True, tag="ack", rename="camel"):
    """A report that counts if everything else holds."""

    partition_id: str
    transaction_id: str | None = None
    offset: int | None = None
    status: str | bool = "completed"
    error: ErrorText | None = None
    consumer_group: str | None = None
    lease_id: str | None = None


class TransactionBody(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Operations that take effect together or not at all, if all required leases are alive.

    A part that is not done here would have been a part of all or nothing, so there is no room for any other.
    """

    operations: Annotated[list[TransactionPush | TransactionAck], Meta(min_length=1, max_length=1_000)]
    required_leases: Annotated[list[str], Meta(max_length=1_000)] = []
    idempotency_key: Text = ""


class TransactionResponse(Struct, frozen=True, rename="camel"):
    """Everything took effect. `results` are in the order of the operations."""

    transaction_id: str
    success: bool
    results: list[Any]


# ── queues ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class ConfigureBody(Struct, frozen=True):
    """A queue to make or to change; options that are not named stay as they are."""

    queue: str
    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] = {}


class ConfigureResponse(Struct, frozen=True):
    """The queue as it stands now."""

    configured: bool
    queue: str
    namespace: str
    task: str
    options: Options


class DeleteResponse(Struct, frozen=True):
    """The queue is gone; `existed` says whether there was one."""

    deleted: bool
    queue: str
    existed: bool


encode = msgspec.json.Encoder().encode
