"""The time of an event loop in the hands of a test: it stands still, and passes when the test says so.

Timers go off when their time has come by this clock, however fast or slow the machine is. Only asyncio's own loop can
be told the time this way, and only what runs on that loop is bound by it: threads and other processes are not.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

TURNS = 50


class LoopClock:
    """The clock of the running loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._now = loop.time()

    def time(self) -> float:
        return self._now

    async def advance(self, seconds: float) -> None:
        """Let time pass, and let everything happen that was due by then."""
        self._now += seconds
        for _ in range(TURNS):
            await asyncio.sleep(0)


class LoopJumps:
    """The clock of the running loop, which runs, and which a test moves on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real = loop.time
        self._ahead = 0.0

    def time(self) -> float:
        return self._real() + self._ahead

    def jump(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self._ahead += seconds


def let_time_jump() -> LoopJumps:
    """From here on the running loop's time can be moved on. That is for the loop's life: its timers count on it."""
    loop = asyncio.get_running_loop()
    clock = LoopJumps(loop)
    loop.time = clock.time  # type: ignore[method-assign]
    return clock


@contextmanager
def standing_still() -> Iterator[LoopClock]:
    """From here on the running loop's time is the test's."""
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    real = loop.time
    loop.time = clock.time  # type: ignore[method-assign]
    try:
        yield clock
    finally:
        loop.time = real  # type: ignore[method-assign]
