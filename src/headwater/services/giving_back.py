"""What was leased for somebody who has left goes back, and no attempt is counted."""

from collections.abc import Sequence

from headwater.log.group_operations import GiveBack, LeaseName
from headwater.log.operations import Ack, Batch, Operation, Pop, Popped
from headwater.model.cursor import Outcome
from headwater.services.messages import ack_of


def releases(popped: Popped, operation: Pop) -> Sequence[Operation]:
    """What gives back what a pop got. Whoever asked with the same key has it, too: the store knows whether there is
    anybody."""
    batches = [batch for batch in popped.batches if batch.token]
    if operation.key and batches:
        leases = [LeaseName(batch.partition_id, batch.group, batch.token) for batch in batches]
        return [GiveBack(database=operation.database, pop_key=operation.key, leases=leases)]
    return [release(batch, operation.database) for batch in batches]


def release(batch: Batch, database: str) -> Ack:
    """The report that gives a whole batch back."""
    return ack_of(batch, database, outcomes=dict.fromkeys(batch.offsets, Outcome.RELEASED))
