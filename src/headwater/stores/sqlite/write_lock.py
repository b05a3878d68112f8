"""SQLite's own write lock, behind the turn: taken without waiting on the event loop."""

import asyncio
import time

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
    pause = BUSY_SLEEP_SECONDS
    deadline = time.monotonic() + wait_seconds
    while not try_begin(connection):
        if time.monotonic() > deadline:
            raise StoreBusy(f"another program held the write lock for {wait_seconds:g} s")
        await asyncio.sleep(pause)
        pause = min(pause * 2, BUSY_SLEEP_SECONDS_MAX)
