"""How the rooms of a database are: what is kept, how fast it goes, and whether everything was delivered."""

from collections.abc import Sequence

import msgspec

from headwater.clock import SECOND
from headwater.model.room import ALL_ROOMS, KEPT, PREFIX
from headwater.model.selection import fits
from headwater.services.room_lag import RoomState, judge
from headwater.services.rooms import Rooms
from headwater.stores.questions import ListPartitions, PartitionStatus, ReadPartition

# The age of the oldest message is found among so many rooms.
LOOKED_AT_MAX = 100
PAGE = 1_000


class RoomMetrics(msgspec.Struct, frozen=True, rename="kebab"):
    """Rooms in numbers, under the names that people know (S0-53), and their state.

    `active_polling_threads` are followers of the log: one for all rooms of a database. The state goes by what is
    undelivered, and for how long: messages that are kept are no backlog.
    """

    queue_size: int
    oldest_message_age_seconds: float
    messages_per_second: float
    average_poll_latency_ms: float
    active_polling_threads: int
    undelivered: int
    undelivered_age_seconds: float
    rooms: int
    members: int
    state: RoomState
    server_instance_id: str
    use_message_queue: bool


async def room_metrics(rooms: Rooms, database: str, patterns: Sequence[str] = ("*",)) -> RoomMetrics:
    """How rooms are now, as this process sees them; of queues whose names fit a pattern."""
    kept = await _kept(rooms, database, patterns)
    live = [one for one in rooms.live if one.database == database and fits(one.queue, patterns)]
    lag = rooms.lag_of(database)
    undelivered, age = (lag.undelivered, lag.age_seconds()) if lag else (0, 0.0)
    return RoomMetrics(
        queue_size=sum(status.end - status.start for status in kept),
        oldest_message_age_seconds=round(await _oldest_seconds(rooms, kept[:LOOKED_AT_MAX]), 3),
        messages_per_second=round(lag.per_second(), 3) if lag else 0.0,
        average_poll_latency_ms=round(lag.latency_ms(), 3) if lag else 0.0,
        active_polling_threads=rooms.followers,
        undelivered=undelivered,
        undelivered_age_seconds=round(age, 3),
        rooms=len(live),
        members=sum(len(one.here) for one in live),
        state=judge(undelivered, age),
        server_instance_id=rooms.instance,
        use_message_queue=rooms.goes_through_log(database),
    )


async def _kept(rooms: Rooms, database: str, patterns: Sequence[str]) -> list[PartitionStatus]:
    """The partitions of kept messages that hold some."""
    found: list[PartitionStatus] = []
    after = 0
    while True:
        page = await rooms.ask(ListPartitions(database, limit=PAGE, after=after, patterns=(ALL_ROOMS,)))
        found += [one for one in page if one.partition == KEPT and one.end > one.start and fits(one.queue, patterns)]
        if len(page) < PAGE:
            return [one for one in found if one.queue.startswith(PREFIX)]
        after = page[-1].partition_id


async def _oldest_seconds(rooms: Rooms, kept: Sequence[PartitionStatus]) -> float:
    written = [
        segment.written_at
        for status in kept
        for segment in await rooms.ask(ReadPartition(status.partition_id, status.start, 1))
    ]
    return max(0.0, (rooms.now() - min(written)) / SECOND) if written else 0.0
