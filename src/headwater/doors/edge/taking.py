"""Whether a client takes what was sent to it.

One that takes nothing is given up in the end, and soon while others are refused for it: without a credential all
programs of an address are one caller.
"""

import asyncio
from collections.abc import Callable

from headwater.doors.edge.limits import Limits


async def is_taken(
    transport: asyncio.WriteTransport,
    sendable: "asyncio.Future[None]",
    limits: Limits,
    is_pressed: Callable[[], bool],
) -> bool:
    """Wait until so much was taken that more can be sent; False when nothing was for too long."""
    idle_seconds, left = 0.0, transport.get_write_buffer_size()
    while not sendable.done():
        seconds = min(limits.stuck_seconds, limits.send_seconds - idle_seconds)
        await asyncio.wait({sendable}, timeout=seconds)
        before, left = left, transport.get_write_buffer_size()
        idle_seconds = 0.0 if left < before else idle_seconds + seconds
        if idle_seconds >= limits.send_seconds or (idle_seconds and is_pressed()):
            return False
    return True
