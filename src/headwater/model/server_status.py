"""What a server with realtime clients says of itself, so that others know that it is there."""

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.model.names import SYSTEM_PREFIX

SERVERS_QUEUE = f"{SYSTEM_PREFIX}servers"
BEAT_SECONDS = 10.0
# A server that misses two beats is not there.
LEASE_SECONDS = 25.0
# One that was lost is shown for a while, so that somebody sees it.
SHOWN_SECONDS = 300.0


class ServerStatus(msgspec.Struct, frozen=True):
    """What a server says of itself."""

    id: str
    host: str
    pid: int
    started_at: Timestamp
    at: Timestamp
    connections: int
    subscriptions: int
    collections: int
    pressure: str
    stopping: bool = False

    def is_alive(self, now: Timestamp) -> bool:
        """Whether its lease holds."""
        return not self.stopping and self.at + LEASE_SECONDS * SECOND > now


class Figures(msgspec.Struct, frozen=True):
    """How much a server has to do."""

    connections: int
    subscriptions: int
    collections: int
    pressure: str
