"""Sessions: conversations that outlast a request, whatever carries them.

    route ─► Response(session=make) ─► WebSocket, when the client asked to upgrade: frames go both ways
                                    └► server-sent events otherwise: frames only go out

A session is called on the event loop and never waits there; what takes long it does in tasks of its own. Its `Peer` is
the client, and takes frames as long as no more than a budget of them waits: a client that is too slow is let go with a
code that says to come back, and nobody else waits for it.
"""

import time
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

# So many times of what may wait for a client may wait for as long as this.
AT_ONCE = 8
SLOW_SECONDS = 1.0


class CloseCode(IntEnum):
    """Why a session ended (RFC 6455, 7.4). `LOST` is never sent: it says that nobody said anything."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    NOT_ACCEPTED = 1003
    NO_CODE = 1005
    LOST = 1006
    INVALID_DATA = 1007
    POLICY_VIOLATED = 1008
    TOO_BIG = 1009
    INTERNAL_ERROR = 1011
    TRY_AGAIN_LATER = 1013


class Frame:
    """Something to send, text or bytes. What it is on the wire is made once, however many clients get it.

    `event` and `id` are for server-sent events, which know such names (an `id` of no characters makes a client forget
    the one before); a WebSocket carries the data alone. A frame with `parts` is those frames, one after the other, in
    one go.
    """

    __slots__ = ("as_event", "as_websocket", "data", "event", "id", "parts")

    def __init__(
        self, data: str | bytes = "", *, event: str = "", id: str | None = None, parts: "tuple[Frame, ...]" = ()
    ) -> None:
        self.data = data
        self.parts = parts
        self.event = event
        self.id = id
        # Filled by the first carrier that needs it.
        self.as_websocket: bytes | None = None
        self.as_event: bytes | None = None


class Peer(Protocol):
    """The client of one session."""

    def send(self, frame: Frame) -> bool:
        """Send without waiting; False when the client is gone, or is let go because too much waits for it already."""
        ...

    def waiting_bytes(self) -> int:
        """How much of what was sent still waits to be taken."""
        ...

    def close(self, code: CloseCode = CloseCode.NORMAL, reason: str = "") -> None:
        """Say goodbye. What was sent before still goes out; a second time changes nothing."""
        ...

    def cut(self) -> None:
        """Let the client go at once: what waits for it is dropped, and it comes back later."""
        ...

    def pause(self) -> None:
        """Read no more from the client until `resume`. What was read already is still handed on."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...

    def hold_back(self, message_bytes_max: int) -> None:
        """Take no larger messages from the client than this: nobody knows who it is."""
        ...

    def let_in(self, owner: str) -> None:
        """Take messages of any size that the server takes. What is held of them is this one's; '' for whose it was."""
        ...


class Session(Protocol):
    """One conversation. What it raises ends it, and is told in the log alone."""

    def received(self, data: str | bytes) -> None:
        """The client has sent a message."""
        ...

    def closed(self, code: int) -> None:
        """It is over; called once. The code is the client's, or the one that we closed with."""
        ...


MakeSession = Callable[[Peer], Session]


class OpenSessions:
    """The clients of all sessions of one server, so that it can say goodbye to them when it stops."""

    def __init__(self) -> None:
        self._peers: set[Peer] = set()
        self._is_stopping = False

    def enter(self, peer: Peer) -> None:
        """A session has begun. In a server that stops it ends at once."""
        self._peers.add(peer)
        if self._is_stopping:
            peer.close(CloseCode.GOING_AWAY, GOING_AWAY)

    def leave(self, peer: Peer) -> None:
        """It is over."""
        self._peers.discard(peer)

    def count(self) -> int:
        """How many there are."""
        return len(self._peers)

    def close(self) -> None:
        """Say goodbye to all, and to whoever comes from now on."""
        self._is_stopping = True
        self.send_away()

    def send_away(self) -> None:
        """Say goodbye to those who are there: what they were told of is no more here."""
        for peer in list(self._peers):
            peer.close(CloseCode.GOING_AWAY, GOING_AWAY)


GOING_AWAY = "this server stops; come back, another may be there"


class Slowness:
    """Whether a client is too slow for what waits for it.

    One commit may bring more at once than may wait, and who reads has taken that in a moment: only if it stays too much
    for a while, or comes to many times as much, is the client let go.
    """

    __slots__ = ("_bytes_max", "_since")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # When it came to be too much; 0 while it is not.
        self._since = 0.0

    def is_too_much(self, waiting: int, more: int) -> bool:
        """Whether there is no room for more beside what waits. What is alone may be of any size."""
        if not waiting or waiting + more <= self._bytes_max:
            self._since = 0.0
            return False
        now = time.monotonic()
        self._since = self._since or now
        return waiting + more > AT_ONCE * self._bytes_max or now - self._since > SLOW_SECONDS
