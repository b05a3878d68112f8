"""Showing something again whenever jobs change: woken by the log, at most twice a second; from a server each second."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from headwater.cli.commands import Result, show_result
from headwater.cli.session import reached
from headwater.cli.settings import Settings
from headwater.outage import through_outages

if TYPE_CHECKING:
    from headwater.services.database import Database

PAUSE_SECONDS = 0.5
SERVER_PAUSE_SECONDS = 1.0

Look = Callable[["Database"], Awaitable[Result]]


async def watch(settings: Settings, look: Look, *, watching: bool, or_empty: bool = False) -> Result:
    """What is seen now. Who is watching sees it again with every change until Ctrl-C; a terminal is cleared first."""
    async with reached(settings, or_empty=not watching and or_empty) as hw:
        if not watching:
            return await look(hw)
        async for _ in changes(hw):
            if sys.stdout.isatty() and not settings.json:
                sys.stdout.write("\x1b[H\x1b[2J")
            show_result(settings, await through_outages(lambda: look(hw)))
            await asyncio.sleep(PAUSE_SECONDS)
    raise AssertionError("a log that is open does not end")


async def changes(hw: "Database") -> AsyncIterator[None]:
    """Now, and then whenever jobs of the database have changed."""
    from headwater.app import Headwater
    from headwater.model.job import JOBS_QUEUE
    from headwater.model.selection import Selection

    if not isinstance(hw, Headwater):
        while True:
            yield
            await asyncio.sleep(SERVER_PAUSE_SECONDS)
    news = asyncio.Event()
    await hw.followers.ready()
    unwatch = hw.followers.watch(Selection(hw.name, (JOBS_QUEUE,)), lambda touches: news.set())
    try:
        while True:
            news.clear()
            yield
            await news.wait()
    finally:
        unwatch()
