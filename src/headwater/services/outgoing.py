"""What producers hand in, as records and pushes: messages with the same target become one push.

What an `Outgoing` says of itself comes before what the call says; what neither says stays as it is by default.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from headwater.errors import InvalidOption
from headwater.log.operations import Push
from headwater.model.record import Record, encode_payload
from headwater.model.spreading import check_priority
from headwater.services.checks import check_delay, check_said_name, check_time
from headwater.services.messages import Outgoing
from headwater.services.records import check_envelope


def make_record(message: object, bytes_max: int) -> Record:
    """A payload, or an `Outgoing` with more to say, as a record; raises when it may not be one."""
    if type(message) is not Outgoing:
        return Record(encode_payload(message, bytes_max))
    timestamp = check_time(message.timestamp or 0)
    data = encode_payload(message.payload, bytes_max)
    check_envelope(message.transaction_id, message.trace_id, message.type, message.headers, timestamp)
    return Record(data, message.transaction_id, message.trace_id, message.type, message.headers, timestamp=timestamp)


class Target(NamedTuple):
    """A queue and partition, '' for any, how much later messages are delivered there, and before which others."""

    queue: str
    partition: str = ""
    delay_seconds: float = 0.0
    priority: int = 0

    def push(
        self, database: str, records: Sequence[Record], *, key: str = "", ttl_seconds: float | None = None
    ) -> Push:
        """The push of these records."""
        return Push(
            database=database,
            key=key,
            queue=self.queue,
            partition=self.partition,
            records=records,
            ttl_seconds=ttl_seconds,
            delay_seconds=self.delay_seconds,
            priority=self.priority,
        )


def target(queue: str, partition: str | None, delay: float | timedelta, priority: int) -> Target:
    """The target that a call names."""
    seconds = check_delay(delay) if delay else 0.0
    return Target(queue, check_said_name("partition", partition), seconds, check_priority(priority, ""))


def target_of(payload: object, call: Target) -> Target:
    """The target of one message. One that names another queue is refused, and a priority within a partition."""
    if type(payload) is not Outgoing:
        if call.priority:
            check_priority(call.priority, call.partition)
        return call
    if payload.queue is not None and payload.queue != call.queue:
        raise InvalidOption(
            f"a message for queue {payload.queue!r} was pushed to {call.queue!r}; push_all takes several"
        )
    own = Target(
        call.queue,
        check_said_name("partition", payload.partition) or call.partition,
        call.delay_seconds if payload.delay is None else check_delay(payload.delay),
        call.priority if payload.priority is None else payload.priority,
    )
    check_priority(own.priority, own.partition)
    return own


def by_target(payloads: Sequence[object], call: Target) -> dict[Target, list[int]]:
    """Which payloads go where, by their indexes."""
    if Outgoing not in set(map(type, payloads)):
        return {target_of(None, call): list(range(len(payloads)))}
    targets: dict[Target, list[int]] = {}
    for index, payload in enumerate(payloads):
        targets.setdefault(target_of(payload, call), []).append(index)
    return targets
