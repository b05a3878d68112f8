"""What is asked about consumer groups and their leases, as plain data, and what is answered. See `operations.py`."""

from typing import Any

import msgspec

from headwater.log.operations import Operation
from headwater.model.names import PartitionId
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


class LeaseName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which lease is meant."""

    partition_id: PartitionId
    group: str
    token: int


class GivenBack(msgspec.Struct, frozen=True):
    """How many leases ended."""

    leases: int


class GiveBack(Operation[GivenBack], frozen=True, kw_only=True):
    """One of those who popped with a key has left: the last of them gives back what is held still, as if it had never
    been popped. Its `leases` are named, for by now the key may have others."""

    pop_key: str
    leases: list[LeaseName]
