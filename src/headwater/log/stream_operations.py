"""What streaming queries ask of the log, as plain data, and what is answered. See `operations.py`."""

from collections.abc import Sequence

import msgspec

from headwater.log.operations import Operation
from headwater.model.names import PartitionId


class StreamRegistered(msgspec.Struct, frozen=True):
    """The number of the query, whether it is new, and whether it forgot what it knew."""

    query_id: int
    fresh: bool = False
    reset: bool = False


class RegisterStream(Operation[StreamRegistered], frozen=True, kw_only=True):
    """Make a streaming query known. `config_hash` stands for its shape; `reset` forgets what it remembers."""

    name: str
    source_queue: str
    sink_queue: str = ""
    config_hash: str
    reset: bool = False


class StateChanged(msgspec.Struct, frozen=True):
    """How many values were changed."""

    count: int


class ChangeState(Operation[StateChanged], frozen=True, kw_only=True):
    """Values that a streaming query remembers for a partition, by key; None forgets one."""

    query_id: int
    partition_id: PartitionId
    changes: Sequence[tuple[str, msgspec.Raw | None]]
