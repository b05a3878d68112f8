"""The published client of queen-mq, unmodified, against our server."""

import signal
from collections.abc import AsyncIterator

import pytest
from queen import Queen

from tests.doors.live_door import LiveDoor


@pytest.fixture
async def queen(door: LiveDoor) -> AsyncIterator[Queen]:
    """A client of the server. It takes the signals of the process, which are given back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with Queen(door.url, retry_attempts=1) as client:
        yield client
    for number, handler in before.items():
        signal.signal(number, handler)
