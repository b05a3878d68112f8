"""Drains a shop and kills itself at the step that it is told: run by a test.

    dying_drain.py SHOP STORE STEP

Steps are counted over everything that touches either database, before and after it.
"""

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

import headwater
from headwater import outbox
from headwater.stores.outbox.table import Table
from headwater.stores.sqlite.store import SqliteStore

shop, store, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
steps = 0


def step() -> None:
    global steps
    steps += 1
    if steps == last:
        os.kill(os.getpid(), signal.SIGKILL)


def stepping(owner: type, name: str) -> None:
    inner: Callable[..., Any] = getattr(owner, name)

    def stepped(*arguments: Any, **options: Any) -> Any:
        step()
        result = inner(*arguments, **options)
        step()
        return result

    setattr(owner, name, stepped)


class Shop(sqlite3.Connection):
    """Dies also between what is dropped and its commit."""

    def commit(self) -> None:
        step()
        super().commit()


async def main() -> None:
    async with headwater.open(store, housekeeping=False) as hw:
        for name in ("after", "settle"):
            stepping(Table, name)
        for name in ("apply_now", "make_durable"):
            stepping(SqliteStore, name)
        done = await outbox.drain(hw, lambda: sqlite3.connect(shop, factory=Shop))
        print(done.moved, flush=True)
    os._exit(0)


asyncio.run(main())
