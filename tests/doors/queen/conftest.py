"""The published client of queen-mq, unmodified, against our server."""

import signal
from collections.abc import AsyncIterator, Iterator

import pytest
from queen import Queen

from tests.doors.live_door import LiveDoor


@pytest.fixture
def signals() -> Iterator[None]:
    """Gives the signals of the process back. Not in a coroutine: while one runs, Ctrl-C is its loop's."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
async def queen(door: LiveDoor, signals: None) -> AsyncIterator[Queen]:
    """A client of the server. It takes the signals of the process."""
    async with Queen(door.url, retry_attempts=1) as client:
        yield client
