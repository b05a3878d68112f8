"""The bounds of one server: what a client may send, how slowly, and how many there may be."""

import msgspec

KIB = 1_024
MIB = 1_024 * KIB


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Every bound with its default."""

    head_bytes_max: int = 16 * KIB
    """Request line and headers together."""
    head_seconds: float = 10.0
    """From the first byte of a request to the end of its headers, and from connecting to that first byte."""
    body_bytes_max: int = 16 * MIB
    """The body of one request."""
    bodies_bytes_max: int = 128 * MIB
    """The bodies of all requests that are under way; nobody has more than half of it."""
    body_seconds: float = 30.0
    """From the end of the headers to the end of the body."""
    keep_alive_seconds: float = 75.0
    """Between an answer and the next request."""
    send_seconds: float = 30.0
    """How long a client may take nothing of an answer."""
    stuck_seconds: float = 2.0
    """The same while others are refused because of what waits for it."""
    linger_seconds: float = 1.0
    """How long a closing connection still listens, so that the client can read why."""
    half_closed_seconds: float = 1.0
    """How long a client that sends no more may still wait: most of those are gone, and nobody can tell."""
    pipeline_max: int = 16
    """Requests of one connection that wait for their answer; no more is read meanwhile."""
    connections_max: int = 16_000
    """Connections at once; the next one is told to come back."""
    stop_seconds: float = 10.0
    """How long a stopping server waits for requests that are under way."""
    message_bytes_max: int = MIB
    """One message that a client of a session sends."""
    outbox_bytes_max: int = MIB
    """What may wait for the client of a session to be taken; a slower one is let go."""
    ping_seconds: float = 25.0
    """How often a WebSocket is looked at: one that was silent is pinged, and cut off when it stays silent."""
    close_seconds: float = 5.0
    """How long a WebSocket that was said goodbye to may take to answer."""
