"""A broker of your own over a store in a bucket: `pull_from_s3`, `batch_operations`, `flush_to_s3` (docs/bucket.md)."""

from collections.abc import Sequence
from typing import Any

from headwater.log.operations import Operation
from headwater.services.ready_operations import admit_ready
from headwater.stores.bucket.library import Broker, flush_to_s3, pull_from_s3

__all__ = ["Broker", "batch_operations", "flush_to_s3", "pull_from_s3"]


async def batch_operations(broker: Broker, operations: Sequence[Operation]) -> list[Any]:
    """Apply operations together, in one transaction of the file here. Tell nobody of it before it is flushed: another
    broker may have taken over, and then they come to something else. What no other way in would take is refused, and
    then none of them is applied."""
    return await broker.apply([admit_ready(operation, broker.config) for operation in operations])
