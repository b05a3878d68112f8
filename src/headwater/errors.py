"""Every error a caller can meet, in one family.

    HeadwaterError
    ├── InvalidInput          the request itself is wrong; nothing changed
    │   ├── InvalidName, InvalidOption, InvalidPayload
    │   ├── InvalidFilter, FilterTooLarge
    │   └── TooLarge
    ├── QueueError            the request was understood, the state of a queue speaks against it
    │   ├── QueueMissing, QueueFull
    │   ├── LeaseLost, UnknownRecord
    │   ├── AlreadyReached
    │   ├── KeyReused
    │   ├── StagingLost
    │   ├── ResyncRequired
    │   └── StreamMismatch
    ├── JobError              the request was understood, the state of a job speaks against it
    │   ├── JobMissing, JobExists
    │   ├── JobUnfit
    │   └── JobUnsuccessful
    ├── DocumentError         the request was understood, the state of a document speaks against it
    │   ├── DocumentMissing, DocumentExists
    │   └── PreconditionFailed
    ├── StoreError            the database did not take it
    │   ├── StoreBusy
    │   ├── StoreFull, StoreSilent
    │   ├── StoreFailed, StoreUnreachable
    │   ├── StoreDamaged, StoreForeign, StoreLinked
    │   ├── StoreNewer, StoreOlder
    │   ├── StoreMissing, StoreReplaced, StoreMoved
    │   └── EncryptionKeyMissing
    ├── AccessError           who asks is not known, or may not do this
    │   ├── Unauthenticated, NotAllowed
    │   ├── RateExceeded
    │   └── AccessTokenMissing
    ├── PipelineError         Spark, or what it was asked for
    │   ├── PipelineUnavailable
    │   ├── DataLost
    │   └── FlowError         a flow cannot go on
    │       ├── FlowOvertaken
    │       ├── ArchiveDamaged, ArchiveFull
    │       └── SourceUnfit
    ├── CaptureError          a database whose changes are followed
    │   ├── SourceUnreachable
    │   └── SourceBusy
    ├── ServerError           a server that is spoken to over HTTP did not do it
    │   ├── ServerUnreachable
    │   └── ServerRefused, ServerUnreadable
    ├── Overloaded            too much waits already; come back later
    ├── Closed                this handle was closed
    │   └── NotOpened         it was never opened: `async with` is missing
    ├── Forked                it was opened before a fork, in another process
    ├── WrongLoop             it is open on another event loop
    └── ConfigError           a setting is wrong; the message names the key

A leaf exists for each thing a caller can do about it. `code` is stable and travels over every wire; `retryable` says
whether the same request can succeed later without anybody changing it.
"""

from typing import ClassVar


class HeadwaterError(Exception):
    """Anything Headwater refuses or fails to do."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False


class InvalidInput(HeadwaterError):
    """The request is wrong in itself; nothing was changed."""

    code = "invalid_input"


class InvalidName(InvalidInput):
    """A queue, partition, group, database or other name has characters or a length that names may not have."""

    code = "invalid_name"


class InvalidOption(InvalidInput):
    """An option is unknown, of the wrong type or outside its bounds."""

    code = "invalid_option"


class InvalidPayload(InvalidInput):
    """The payload cannot be written as JSON, or bytes given as JSON are not."""

    code = "invalid_payload"


class InvalidFilter(InvalidInput):
    """A filter cannot be read. `position` is the character at which it goes wrong, or the number of the condition."""

    code = "invalid_filter"

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


class FilterTooLarge(InvalidInput):
    """A filter is longer, deeper or dearer than allowed; ask for less at once. `position` as in `InvalidFilter`."""

    code = "filter_too_large"

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


class TooLarge(InvalidInput):
    """A record or a batch is over its limit; the message names the limit."""

    code = "too_large"


class QueueError(HeadwaterError):
    """The state of a queue speaks against the request."""

    code = "queue_error"


class QueueMissing(QueueError):
    """No such queue, group, partition or dead letter in this database."""

    code = "not_found"


class QueueFull(QueueError):
    """The queue holds as many waiting records as its `size_max` allows, or as many partitions as its `partitions_max`;
    consume some, then push again, or to a partition that is there."""

    code = "queue_full"
    retryable = True


class LeaseLost(QueueError):
    """The lease ran out or another consumer holds these records now; drop the batch and pop again."""

    code = "lease_lost"


class UnknownRecord(QueueError):
    """The lease is alive but does not cover this record, or the record was settled before."""

    code = "unknown_record"


class AlreadyReached(QueueError):
    """This step of named work was taken before, with everything that belongs to it; go on with the next.
    `number` is the last step that was taken, `note` what was noted with it."""

    code = "already_reached"

    def __init__(self, message: str, number: int, note: str) -> None:
        super().__init__(message)
        self.number = number
        self.note = note


class KeyReused(QueueError):
    """The idempotency key was used for another request; take a new key for a new request."""

    code = "idempotency_key_reused"


class StagingLost(QueueError):
    """Parts of a large commit are not there, or not any more; upload all of them again, then commit."""

    code = "staging_lost"


class ResyncRequired(QueueError):
    """Retention has dropped records after this position; read a fresh snapshot or seek, then go on."""

    code = "resync-required"


class StreamMismatch(QueueError):
    """A streaming query of this name has another shape; reset it, or choose another name."""

    code = "stream_mismatch"


class JobError(HeadwaterError):
    """The state of a job speaks against the request."""

    code = "job_error"


class JobMissing(JobError):
    """No such job, schedule or worker in this database."""

    code = "not_found"


class JobExists(JobError):
    """A job with this id is there already; choose another id, or leave it out."""

    code = "job_exists"


class JobUnfit(JobError):
    """The job's state does not allow it; the message names the state."""

    code = "job_state"


class JobUnsuccessful(JobError):
    """The job that was waited for ended without a result; `state` and the message say how."""

    code = "job_unsuccessful"

    def __init__(self, message: str, state: str = "") -> None:
        super().__init__(message)
        self.state = state


class DocumentError(HeadwaterError):
    """The state of a document speaks against the request."""

    code = "document_error"


class DocumentMissing(DocumentError):
    """No such document in this collection, or not any more."""

    code = "document_missing"


class DocumentExists(DocumentError):
    """A document with this id is there already; choose another id, or set or update it."""

    code = "document_exists"


class PreconditionFailed(DocumentError):
    """The document is not as the conditions of the write say; read it again, then decide anew."""

    code = "precondition_failed"


class StoreError(HeadwaterError):
    """The database did not take the operation."""

    code = "store_error"


class StoreBusy(StoreError):
    """Another program held the write lock for longer than the time allowed."""

    code = "store_busy"
    retryable = True


class StoreFull(StoreError):
    """No space is left; nothing of this commit was kept."""

    code = "store_full"
    retryable = True


class StoreSilent(StoreError):
    """The bucket has not answered for a while; nothing of this commit was kept, and nothing was read. Try again."""

    code = "store_silent"
    retryable = True


class StoreFailed(StoreError):
    """The disk or the database failed; whether this commit was kept is not known until the store is read again."""

    code = "store_failed"
    retryable = True


class StoreUnreachable(StoreFailed):
    """The database server is away, or went away meanwhile; who only reads goes on when it is back."""


class StoreDamaged(StoreError):
    """The file is not what a database file must be. It was left as it is."""

    code = "store_damaged"


class StoreForeign(StoreError):
    """The file belongs to another program. It was left as it is."""

    code = "store_foreign"


class StoreLinked(StoreError):
    """The file has another name, or is open under one: what is written under one name is lost to the other."""

    code = "store_linked"


class StoreNewer(StoreError):
    """The file was written by a newer Headwater; upgrade this one."""

    code = "store_newer"


class StoreOlder(StoreError):
    """An older Headwater wrote it, and who opens it may not alter it: open it once for writing, as its owner."""

    code = "store_older"


class StoreMissing(StoreError):
    """There is no store at this place, and this call does not make one."""

    code = "store_missing"


class StoreReplaced(StoreError):
    """The file was deleted, replaced or restored since it was opened, and nothing was written to it: open it again."""

    code = "store_replaced"


class StoreMoved(StoreReplaced):
    """The store was moved to another place as a whole: use it there. The log of the server says where that is."""


class EncryptionKeyMissing(StoreError):
    """The queue is encrypted and no key, or not the right key, was given."""

    code = "encryption_key"


class AccessError(HeadwaterError):
    """Who asks is not known, or may not do what was asked."""

    code = "access"


class Unauthenticated(AccessError):
    """No credential was given, or it is not valid (any more); get another one."""

    code = "unauthenticated"


class NotAllowed(AccessError):
    """The credential is valid and does not allow this; the message names the scope that is missing."""

    code = "not_allowed"


class RateExceeded(AccessError):
    """More requests, or more wrong credentials, than are allowed; come back after `retry_seconds`."""

    code = "rate_exceeded"
    retryable = True

    def __init__(self, message: str, retry_seconds: float) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class AccessTokenMissing(AccessError):
    """No such access token in this database."""

    code = "not_found"


class PipelineError(HeadwaterError):
    """The data pipeline cannot do what it was asked for."""

    code = "pipeline_error"


class PipelineUnavailable(PipelineError):
    """Spark or its Java is missing or does not start; the message says what to install."""

    code = "pipeline_unavailable"


class DataLost(PipelineError):
    """Records are gone that this query has not read: retention dropped them, or their queue was deleted and made again.
    `failOnDataLoss=false` goes on without them."""

    code = "data_lost"


class FlowError(PipelineError):
    """A flow of the pipeline cannot go on; what it finished stays, and running it again goes on from there."""

    code = "flow_error"


class FlowOvertaken(FlowError):
    """Another run of the same flow was faster; nothing of this step was kept."""

    code = "flow_overtaken"
    retryable = True


class ArchiveDamaged(FlowError):
    """A file of an archive is missing or not what its manifest says. Nothing was restored from it."""

    code = "archive_damaged"


class ArchiveFull(FlowError):
    """No space is left where a flow writes its files; nothing half-written is visible."""

    code = "archive_full"
    retryable = True


class SourceUnfit(FlowError):
    """What a flow or a capture should read is missing, changed on the way, or has other columns than expected."""

    code = "source_unfit"


class CaptureError(HeadwaterError):
    """A database whose changes are followed did not give them, or in a form that cannot be understood."""

    code = "capture_error"


class SourceUnreachable(CaptureError):
    """The database cannot be reached, or has ended the stream; it keeps our place."""

    code = "source_unreachable"
    retryable = True


class SourceBusy(CaptureError):
    """Another process follows the same source under the same name."""

    code = "source_busy"
    retryable = True


class ServerError(HeadwaterError):
    """A server that is spoken to over HTTP did not do what was asked."""

    code = "server_error"


class ServerUnreachable(ServerError):
    """No answer came, also not to repeated requests; whether the last one took effect is not known."""

    code = "server_unreachable"
    retryable = True


class ServerRefused(ServerError):
    """The server refused the request for a reason that is none of the queues'; the message has its status and code."""

    code = "server_refused"


class ServerUnreadable(ServerError):
    """What came is no answer of a Headwater server: check the address and what stands between."""

    code = "server_unreadable"


class Overloaded(HeadwaterError):
    """More operations or waiters are pending than the limit allows; slow down and try again."""

    code = "overloaded"
    retryable = True


class Closed(HeadwaterError):
    """This Headwater was closed."""

    code = "closed"


class NotOpened(Closed):
    """This store or client was never opened; the message has the line to write."""

    code = "not_opened"


class Forked(HeadwaterError):
    """This store or client was opened by the process that this one was forked from; open it anew after the fork."""

    code = "forked"


class WrongLoop(HeadwaterError):
    """What is open on one event loop was asked from another one."""

    code = "wrong_loop"


class ConfigError(HeadwaterError):
    """A setting is wrong; the message names the key, what was expected and what came."""

    code = "config"
