"""The times of messages, to order them by: a field of the payload, the message's own timestamp, or that of its push.

Only the order matters. A message without a readable time gets the least, so that it goes with the one before it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headwater.clock import SECOND
from headwater.pipeline.typed import split_envelopes
from headwater.stores.log_reader import Body

NONE = np.iinfo(np.int64).min
# Numbers are told apart down to thousandths of their unit, and are all nearer than this.
FINENESS, NUMBER_MAX = 1_000, 2**62
_payloads = msgspec.json.Decoder(list[dict[str, Any]])


class Times:
    """Reads the times of segments; `field` is a path of names into the payload, such as `order.placed_at`."""

    def __init__(self, field: str) -> None:
        self._path = field.split(".") if field else []

    def of(self, body: Body) -> "NDArray[np.int64]":
        """The times of a segment's records, in microseconds."""
        if self._path:
            records = _payloads.decode(body.records)
            return np.array([_time_of(_follow(record.get("data"), self._path)) for record in records], np.int64)
        # Most messages have no time of their own, and then none is looked for.
        if b'"timestamp"' not in body.records:
            return np.full(body.count, body.written_at, np.int64)
        own = (envelope.timestamp for envelope in split_envelopes(body.records))
        return np.array([time or body.written_at for time in own], np.int64)


def _follow(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _time_of(value: Any) -> int:
    """A time as JSON has it: text as ISO 8601 writes it, without a zone in UTC, or a number, of whichever unit."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(max(min(value * FINENESS, NUMBER_MAX), -NUMBER_MAX))
    if isinstance(value, str):
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            return NONE
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * SECOND)
    return NONE
