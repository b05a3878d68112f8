"""Showing something again whenever jobs change: woken by the log, at most twice a second."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from headwater.cli.session import opened
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.log.operations import Touch

PAUSE_SECONDS = 0.5

Showing = Callable[["Headwater", Settings], Awaitable[None]]


async def watch(settings: Settings, show: Showing, *, watching: bool) -> None:
    """Show it once, or again with every change until Ctrl-C; a terminal is cleared first."""
    async with opened(settings) as hw:
        if not watching:
            await show(hw, settings)
            return
        async for _ in changes(hw):
            if sys.stdout.isatty() and not settings.json:
                sys.stdout.write("\x1b[H\x1b[2J")
            await show(hw, settings)
            await asyncio.sleep(PAUSE_SECONDS)


async def changes(hw: "Headwater") -> AsyncIterator[None]:
    """Now, and then whenever jobs of the database have changed."""
    from headwater.model.job import JOBS_QUEUE

    news = asyncio.Event()

    def touched(touches: "Sequence[Touch]") -> None:
        if any(touch.lane.queue == JOBS_QUEUE and touch.lane.database == hw.name for touch in touches):
            news.set()

    unfollow = await hw.tail.follow(touched)
    try:
        while True:
            news.clear()
            yield
            await news.wait()
    finally:
        unfollow()
