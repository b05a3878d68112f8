"""How partitions, leases, records and times are named on the wire.

A partition is its number as text. A lease is `<partition>.<token>.<group>`: all that a server needs to find it again.
A record goes by the transaction id that its producer gave it; one without is `@<offset>`.
"""

from datetime import UTC, datetime
from urllib.parse import quote, unquote

from headwater.clock import MILLISECOND, SECOND, Timestamp
from headwater.errors import InvalidOption, LeaseLost, QueueMissing
from headwater.log.operations import Batch
from headwater.model.names import Offset, PartitionId
from headwater.services.checks import check_time

OFFSET_MARK = "@"
DIGITS_MAX = 18


def parse_partition(text: str) -> PartitionId:
    """The partition's number."""
    if not _is_number(text):
        raise QueueMissing(f"there is no partition {text!r:.80}")
    return PartitionId(int(text))


def lease_name(batch: Batch) -> str:
    """A lease as it travels. A group's slashes would end a path too early."""
    return f"{batch.partition_id}.{batch.token}.{quote(batch.group, safe='')}"


def parse_lease(text: str) -> tuple[PartitionId, str, int]:
    """Partition, group and token of a lease."""
    partition, _, rest = text.partition(".")
    token, dot, group = rest.partition(".")
    if not dot or not group or not _is_number(partition) or not _is_number(token):
        raise LeaseLost(f"there is no lease {text!r:.80}; pop again")
    return PartitionId(int(partition)), unquote(group), int(token)


def message_id(partition_id: int, offset: int) -> str:
    """A name for a record that sorts like its place: clients order messages of one millisecond by it."""
    return f"{partition_id}-{str(offset).zfill(16)}"


def record_name(transaction_id: str, offset: int) -> str:
    """What a record is acked by."""
    if transaction_id and transaction_id[0] != OFFSET_MARK:
        return transaction_id
    return f"{OFFSET_MARK}{offset}"


def parse_record(name: str) -> Offset | str:
    """An offset, or a transaction id."""
    if name[:1] == OFFSET_MARK and _is_number(name[1:]):
        return Offset(int(name[1:]))
    return name


def trace_name(name: str) -> str:
    """What events of a record are noted under: its transaction id, or the offset of one that has none."""
    return name[1:] if name[:1] == OFFSET_MARK else name


def show_time(at: int) -> str:
    """A time as the clients read it: ISO 8601, milliseconds, UTC."""
    second, rest = divmod(at, SECOND)
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{rest // MILLISECOND:03d}Z"


def parse_time(name: str, text: str) -> Timestamp:
    """A time from outside; one without a zone is UTC, as the clients mean it."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(f"{name} must be an ISO 8601 time such as 2026-01-31T12:00:00Z; got {text!r:.80}") from None
    try:
        return check_time(at if at.tzinfo else at.replace(tzinfo=UTC))
    except (OverflowError, ValueError):
        raise InvalidOption(f"{name} is out of range: {text!r:.80}") from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
