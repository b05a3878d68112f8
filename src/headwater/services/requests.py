"""What our own client and our own routes say to each other where one operation is not all of it: several at once, a pop
that waits, a stretch of the log. Everything else goes as it is; see `wire_forms.py`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Raw, Struct, field

from headwater.clock import Timestamp
from headwater.config import Durability
from headwater.log.document_operations import CreateDocument, DeleteDocument, SetDocument, UpdateDocument
from headwater.log.job_operations import Enqueue
from headwater.log.operations import Ack, Batch, Extend, Pop, Push, Pushed
from headwater.model.names import Lsn
from headwater.services.wire_forms import Number, Text, form
from headwater.stores.questions import Segment

if TYPE_CHECKING:
    # Forms have the fields of their operations, but for those that a caller may not choose.
    LanePush = Push
    PushStep = Push
    Report = Ack
    ReportStep = Ack
    Lease = Extend
    Extension = Extend
    JobsStep = Enqueue
    CreateDocumentStep = CreateDocument
    SetDocumentStep = SetDocument
    UpdateDocumentStep = UpdateDocument
    DeleteDocumentStep = DeleteDocument
    PopForm = Pop
else:
    LanePush = form(Push, "key", name="LanePush")
    PushStep = form(Push, "key", name="PushStep", tag="push")
    Report = form(Ack, name="Report")
    ReportStep = form(Ack, "key", name="ReportStep", tag="report")
    Lease = form(Extend, "key", "seconds", name="Lease")
    Extension = form(Extend, "key", name="Extension")
    JobsStep = form(Enqueue, "key", name="JobsStep", tag="jobs")
    CreateDocumentStep = form(CreateDocument, "key", name="CreateDocumentStep", tag="create-document")
    SetDocumentStep = form(SetDocument, "key", name="SetDocumentStep", tag="set-document")
    UpdateDocumentStep = form(UpdateDocument, "key", name="UpdateDocumentStep", tag="update-document")
    DeleteDocumentStep = form(DeleteDocument, "key", name="DeleteDocumentStep", tag="delete-document")
    PopForm = form(Pop)

SEVERAL_MAX = 1_000


class RequestBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all requests have: a `key`. The second request with the same one gets the answer of the first."""

    key: Text = ""


class PushRequest(RequestBody, frozen=True, kw_only=True):
    """Records for any partitions, in one commit. A push that names no partition goes to the lanes of its queue."""

    pushes: Annotated[list[LanePush], Meta(min_length=1, max_length=SEVERAL_MAX)]
    durability: Durability | None = None


class PushResponse(Struct, frozen=True):
    """Where the records of one partition are, and how safe; taken into memory only, they have no place yet."""

    durability: Durability
    pushed: Pushed | None


class RoomSend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said in a room, under which key, for how long it is kept, and whether it only passes."""

    room: str
    type: str
    data: Raw = field(default_factory=lambda: Raw(b"null"))
    message_key: Text = ""
    ttl_seconds: float | None = None
    passes: bool = False


class RoomSendStep(RoomSend, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="send", tag_field="kind"):
    """What is said in a room, together with everything else of a transaction."""


class SendRequest(RequestBody, frozen=True, kw_only=True):
    """Messages for any rooms, in one commit."""

    messages: Annotated[list[RoomSend], Meta(min_length=1, max_length=SEVERAL_MAX)]
    durability: Durability | None = None


class PopRequest(PopForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The next records of a partition, of a queue, or of any queue of a namespace and task; waits when there are none.

    `reports` on the records that were popped before take effect in the same commit.
    """

    wait_seconds: Annotated[float, Meta(ge=0)] = 0
    reports: Annotated[Sequence[Report], Meta(max_length=SEVERAL_MAX)] = ()


class PopResponse(Struct, frozen=True):
    """What a pop got; `now` is the server's time, so that a client can tell how long a lease holds."""

    batches: list[Batch]
    now: Timestamp


class ReportRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Reports on any leases. All are taken that can be; the first that cannot is answered as the error."""

    reports: Annotated[list[Report], Meta(min_length=1, max_length=SEVERAL_MAX)]


class ExtendRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Leases to keep for so many seconds from now; the queue's own lease time when nothing is said."""

    leases: Annotated[list[Extension], Meta(min_length=1, max_length=SEVERAL_MAX)]


DocumentStep = CreateDocumentStep | SetDocumentStep | UpdateDocumentStep | DeleteDocumentStep
AnyStep = PushStep | RoomSendStep | ReportStep | JobsStep | DocumentStep


class TransactionRequest(RequestBody, frozen=True, kw_only=True):
    """Pushes, messages of rooms, reports, jobs and documents that take effect together or not at all, if all `leases`
    are alive."""

    operations: Annotated[list[AnyStep], Meta(max_length=SEVERAL_MAX)] = []
    leases: Annotated[list[Lease], Meta(max_length=SEVERAL_MAX)] = []


class SegmentsQuery(Struct, frozen=True):
    """What a queue got after an LSN; waits for more when there is none."""

    queue: str
    after: Number = 0
    limit: Annotated[int, Meta(ge=1, le=100)] = 16
    wait_seconds: Annotated[float, Meta(ge=0)] = 0


class SegmentsResponse(Struct, frozen=True, omit_defaults=True):
    """A stretch of the log. Everything of the queue up to `through` has been told.

    `resync` is there when records after `after` were dropped before they were told: it is the LSN behind which the log
    goes on with what is kept. `store` is the identity of the store that it is the log of.
    """

    through: Lsn
    segments: list[Segment]
    resync: Lsn | None = None
    store: str = ""


class WaitForJobQuery(Struct, frozen=True, kw_only=True):
    """One job, and how long to wait for its end."""

    id: str
    seconds: float = 0.0


class Bounds(Struct, frozen=True):
    """What this server takes at most, and where its log ends now."""

    version: str
    record_bytes_max: int
    batch_max: int
    batch_bytes_max: int
    wait_seconds_max: float
    lsn: Lsn
    now: Timestamp
