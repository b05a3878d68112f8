"""Reading the log of one queue without a consumer group: from a place on, and then as it grows."""

from typing import TYPE_CHECKING

from headwater.model.names import Lsn
from headwater.model.selection import Selection
from headwater.services.follow import Limits, Steps
from headwater.stores.questions import FindLastLsn

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.client.client import Client
    from headwater.stores.questions import Segment

SEGMENTS_AT_ONCE = 16


async def last_lsn(hw: "Headwater | Client") -> Lsn:
    """Where the log ends now."""
    from headwater.client.client import Client

    return (await hw.greet()).lsn if isinstance(hw, Client) else await hw.store.ask(FindLastLsn())


async def follow(hw: "Headwater | Client", queue: str, after: Lsn) -> Steps:
    """The log of a queue from an LSN on."""
    from headwater.client.client import Client
    from headwater.client.following import ServerFollowing

    if isinstance(hw, Client):
        return ServerFollowing(hw.queues_service.store.segments, queue, after)
    return await hw.followers.follow(Selection(hw.name, (queue,)), after, Limits(SEGMENTS_AT_ONCE))


class Gaps:
    """Notices records that were dropped before they could be read: offsets of a partition have no holes."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}

    def before(self, segment: "Segment") -> int:
        """How many records are missing between this segment and the one before it."""
        end = self._ends.get(segment.partition_id, segment.first_offset)
        self._ends[segment.partition_id] = segment.first_offset + len(segment.records)
        return max(segment.first_offset - end, 0)
