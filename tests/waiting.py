"""Waiting for something that another thread, task or process brings about: look until it is so, or fail."""

import asyncio
import time
from collections.abc import Awaitable, Callable

# No test is expected to need it: it only keeps one that would never end from holding up the rest.
WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.002


def expect_soon(holds: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    """Returns when `holds()` is true."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(PAUSE_SECONDS)


async def expect_soon_async(holds: Callable[[], Awaitable[bool]], seconds: float = WAIT_SECONDS) -> None:
    """Returns when `await holds()` is true."""
    deadline = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(PAUSE_SECONDS)
