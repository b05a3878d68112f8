"""SQLite's own write lock, behind the turn: taken without waiting on the event loop."""

import asyncio
import time
from collections.abc import AsyncGenerator

import apsw

from headwater.errors import StoreBusy
from headwater.stores.sqlite.connection import SqliteConnection

BUSY_SLEEP_SECONDS = 0.001
BUSY_SLEEP_SECONDS_MAX = 0.05


def try_begin(connection: SqliteConnection) -> bool:
    """Begin a transaction that may write, if nobody else is in one."""
    try:
        connection.run("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return False
    return True


async def begin(connection: SqliteConnection, wait_seconds: float) -> None:
    """Begin a transaction that may write. A program that does not queue for its turn may hold the lock: look again."""
    async for _ in tries(wait_seconds):
        if try_begin(connection):
            return


async def tries(wait_seconds: float) -> AsyncGenerator[None, None]:
    """At once, and then after pauses that grow; raises when somebody has held the lock for too long."""
    pause = BUSY_SLEEP_SECONDS
    deadline = time.monotonic() + wait_seconds
    while True:
        yield
        if time.monotonic() > deadline:
            raise StoreBusy(f"another program held the write lock for {wait_seconds:g} s")
        await asyncio.sleep(pause)
        pause = min(pause * 2, BUSY_SLEEP_SECONDS_MAX)
