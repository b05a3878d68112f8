"""Records that may be kept, and where they may go: one place for the library, both wires, the command line and Spark.

Each way has its own of making many records quickly; what a record may say of itself is decided here.
"""

from typing import NamedTuple

import msgspec

from headwater.errors import InvalidName, InvalidOption
from headwater.model.names import SYSTEM_PREFIX, check_name
from headwater.model.own_queues import check_not_own
from headwater.model.record import Record, check_ready_json
from headwater.model.room import PREFIX as ROOM_PREFIX
from headwater.services.checks import check_headers, check_optional_name, check_text, check_timestamp


class Names(NamedTuple):
    """What the parts of a record are called where it comes from."""

    transaction_id: str = "transaction_id"
    trace_id: str = "trace_id"


# Queues that nobody pushes to by name.
_kept_apart = (SYSTEM_PREFIX, ROOM_PREFIX)

IN_PYTHON = Names()
ON_THE_WIRE = Names("transactionId", "traceId")


def is_apart(queue: str) -> bool:
    """Whether only Headwater writes there."""
    return queue.startswith(_kept_apart)


def check_target(queue: str, partition: str) -> None:
    """Raises when nobody may push there."""
    check_name("queue", queue)
    check_optional_name("partition", partition)
    if not is_apart(queue):
        return
    check_not_own(queue, "push to another name")
    if queue.startswith(ROOM_PREFIX):
        raise InvalidName(f"queues under {ROOM_PREFIX} are rooms: send to room {queue.removeprefix(ROOM_PREFIX)!r:.80}")


def check_envelope(
    transaction_id: object,
    trace_id: object,
    type: object,
    headers: object,
    timestamp: object,
    names: Names = IN_PYTHON,
) -> None:
    """Raises when a record may not say this of itself."""
    if transaction_id != "":
        check_text(names.transaction_id, transaction_id)
    if trace_id != "":
        check_text(names.trace_id, trace_id)
    if type != "":
        check_text("type", type)
    check_headers(headers)
    check_timestamp(timestamp)


def admit_record(record: Record, bytes_max: int, subject: str) -> Record:
    """A record that came as JSON, as that of who sent it: only the server knows who that is."""
    check_ready_json(record.data, bytes_max)
    about = (record.transaction_id, record.trace_id, record.type, record.headers, record.timestamp)
    check_envelope(*about, names=ON_THE_WIRE)
    if record.producer_sub not in ("", subject):
        raise InvalidOption("producerSub is for the server to say; leave it out")
    return record if record.producer_sub == subject else msgspec.structs.replace(record, producer_sub=subject)


def check_record(record: Record, bytes_max: int) -> None:
    """Raises when a record that was made elsewhere is none that we would make."""
    check_ready_json(record.data, bytes_max)
    check_text("transaction_id", record.transaction_id)
    check_text("trace_id", record.trace_id)
    check_text("type", record.type)
    check_headers(record.headers)
    check_timestamp(record.timestamp)
