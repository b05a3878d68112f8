"""What is asked about consumer groups and their leases, as plain data, and what is answered. See `operations.py`."""

from typing import Any

import msgspec

from headwater.log.operations import Operation
from headwater.model.queue import QueueOptions


class GroupConfigured(msgspec.Struct, frozen=True):
    """What a group has otherwise than its queue, and what holds for it now."""

    queue: str
    group: str
    own: dict[str, Any]
    options: QueueOptions


class ConfigureGroup(Operation[GroupConfigured], frozen=True, kw_only=True):
    """Give a consumer group options of its own; None takes the queue's again, those not named keep their value."""

    queue: str
    group: str
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class LeasesReleased(msgspec.Struct, frozen=True):
    """How many leases were released, and how many records they held."""

    leases: int
    records: int


class ReleaseLeases(Operation[LeasesReleased], frozen=True, kw_only=True):
    """Give the records of live leases back, without counting an attempt: of a queue, or of one group or partition of
    it. Their holders' reports are refused from then on. `token`, beside both, ends that one lease and no later one."""

    queue: str
    group: str = ""
    partition: str = ""
    token: int | None = None
