"""What a file needs again and again: a log that stays short, and empty pages given back."""

import asyncio
from collections.abc import Awaitable, Callable

PAGES = 2_000


class Checkpointer:
    """Keeps the write-ahead log under its cap: off the commit path, whenever it has grown enough."""

    name = "checkpointer"

    def __init__(self, grown: Callable[[], Awaitable[None]], checkpoint: Callable[[], Awaitable[None]]) -> None:
        self._grown = grown
        self._checkpoint = checkpoint

    async def wait(self) -> None:
        await self._grown()

    async def run(self) -> int:
        """One checkpoint."""
        await self._checkpoint()
        return 1


class Vacuum:
    """Gives pages that dropped records left empty back to the file system, some at a time, as retention runs."""

    name = "vacuum"

    def __init__(self, compact: Callable[[int], Awaitable[int]], pause_seconds: float) -> None:
        self._compact = compact
        self._pause_seconds = pause_seconds

    async def wait(self) -> None:
        await asyncio.sleep(self._pause_seconds)

    async def run(self) -> int:
        """How many pages were given back."""
        return await self._compact(PAGES)
