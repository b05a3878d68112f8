"""Moves what a shop has staged to the log, for ever: run by a test that kills it."""

import asyncio
import sqlite3
import sys

import headwater
from headwater import outbox


async def main(shop: str, store: str) -> None:
    async with headwater.open(store) as hw:
        print("ready", flush=True)
        await outbox.drain(hw, lambda: sqlite3.connect(shop, timeout=30), every_seconds=0.001)


asyncio.run(main(*sys.argv[1:]))
