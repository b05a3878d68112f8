"""How much is told to a subscription before its client says that it has it (S3-31, S3-32).

A client that acks has a window: what was told and not acked, up to a number of events, of bytes, and for a while. When
it is full nothing more is told, and nothing is gathered: the log has it, and once there is room the subscription goes
on from there. A client that never acks has no window; its connection has an outbox, which is bounded.
"""

from collections import deque

from headwater.config import MIB

EVENTS_MAX = 10_000
BYTES_MAX = 32 * MIB
SECONDS_MAX = 180.0


class Window:
    """What a client has been told and has not acked, from its first ack on."""

    __slots__ = ("_bytes", "_told")

    def __init__(self) -> None:
        self._told: deque[tuple[int, int, float]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._told)

    def note(self, seq: int, size: int, now: float) -> None:
        """This was told."""
        self._told.append((seq, size, now))
        self._bytes += size

    def ack(self, seq: int) -> None:
        """The client has everything up to here."""
        while self._told and self._told[0][0] <= seq:
            self._bytes -= self._told.popleft()[1]

    def is_full(self, now: float) -> bool:
        """Whether the client has to say something before more is told."""
        if not self._told:
            return False
        too_much = len(self._told) >= EVENTS_MAX or self._bytes >= BYTES_MAX
        return too_much or now - self._told[0][2] >= SECONDS_MAX
