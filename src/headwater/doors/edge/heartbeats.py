"""One timer for all WebSockets of a server: each is looked at in turn, once in every period."""

import asyncio
from collections import deque

from headwater.doors.edge.websocket import WebSocket

TICK_SECONDS = 0.5


class Heartbeats:
    """A ring of sockets. It turns only while somebody is in it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ring: deque[WebSocket] = deque()
        self._members: set[WebSocket] = set()
        self._timer: asyncio.TimerHandle | None = None
        # How many of the ring are to be looked at: where they are few, less than one at each tick.
        self._due = 0.0

    def add(self, socket: WebSocket) -> None:
        """Look at this one from now on."""
        self._members.add(socket)
        self._ring.append(socket)
        if self._timer is None:
            self._turn_later()

    def remove(self, socket: WebSocket) -> None:
        """Look at it no more. The ring lets go of it when it comes by."""
        self._members.discard(socket)
        if not self._members:
            self._ring.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def members(self) -> list[WebSocket]:
        """All of them."""
        return list(self._members)

    def _turn_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(min(TICK_SECONDS, self._seconds), self._turn)

    def _turn(self) -> None:
        """Look at the next few: as many as bring the ring round once in each period."""
        self._due += len(self._ring) * min(TICK_SECONDS / self._seconds, 1.0)
        now, self._due = divmod(self._due, 1.0)
        for _ in range(min(int(now), len(self._ring))):
            socket = self._ring.popleft()
            if socket in self._members:
                self._ring.append(socket)
                socket.beat()
        self._turn_later()
