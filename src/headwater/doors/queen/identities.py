"""How partitions, leases, records and times are named on the wire.

A partition is its number as text. A lease is `<partition>.<token>.<group>`: all that a server needs to find it again.
What one pop leased in several partitions goes by one name, `<partition>.<token>_<partition>.<token>.<group>`: clients
keep one lease for a pop.
A record goes by the transaction id that its producer gave it; one without is `@<offset>`.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote, unquote

from headwater.clock import MILLISECOND, SECOND, Timestamp
from headwater.errors import InvalidOption, LeaseLost, QueueMissing
from headwater.log.operations import Batch
from headwater.model.names import Offset, PartitionId
from headwater.services.checks import check_time

OFFSET_MARK = "@"
DIGITS_MAX = 18

Lease = tuple[PartitionId, str, int]

_number = f"[0-9]{{1,{DIGITS_MAX}}}"
_lease_form = re.compile(rf"(?P<leases>{_number}\.{_number}(_{_number}\.{_number})*)\.(?P<group>.+)", re.DOTALL)


def parse_partition(text: str) -> PartitionId:
    """The partition's number."""
    if not _is_number(text):
        raise QueueMissing(f"there is no partition {text!r:.80}")
    return PartitionId(int(text))


def lease_name(batches: Sequence[Batch]) -> str:
    """What one pop leased, as it travels. A group's slashes would end a path too early."""
    leases = "_".join(f"{batch.partition_id}.{batch.token}" for batch in batches)
    return f"{leases}.{quote(batches[0].group, safe='')}"


def parse_leases(text: str) -> list[Lease]:
    """Partition, group and token of each lease that goes by this name."""
    found = _lease_form.fullmatch(text)
    try:
        group = unquote(found["group"], errors="strict") if found is not None else ""
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise LeaseLost(f"there is no lease {text!r:.80}; pop again")
    pairs = (pair.split(".") for pair in found["leases"].split("_"))
    return [(PartitionId(int(partition)), group, int(token)) for partition, token in pairs]


def lease_of_partition(text: str, partition_id: PartitionId) -> Lease:
    """The lease of one partition among those that go by this name."""
    for lease in parse_leases(text):
        if lease[0] == partition_id:
            return lease
    raise InvalidOption("the lease is of another partition than the report says")


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
