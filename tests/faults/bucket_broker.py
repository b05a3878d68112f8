"""A broker in a process of its own: pushes and looks through a store in a bucket, and writes down what it was told.

python -m tests.faults.bucket_broker ADDRESS FILE NAME PUSHES
"""

import asyncio
import json
import os
import sys
import time
from typing import TextIO

import headwater
from headwater.stores.questions import FindLastLsn

PUSHES_AT_A_TIME = 8


async def work(address: str, name: str, pushes: int, out: TextIO) -> None:
    """Open, push some, leave, until there were enough."""
    done = 0
    while done < pushes:
        async with headwater.open(address, housekeeping=False) as hw:
            for _ in range(PUSHES_AT_A_TIME):
                begun = time.monotonic()
                lsn = await hw.store.ask(FindLastLsn())
                write(out, {"read": lsn, "asked": begun})
                await asyncio.gather(*(push(hw, f"{name}-{os.getpid()}-{done}-{part}", out) for part in range(3)))
                done += 1


async def push(hw: headwater.Headwater, payload: str, out: TextIO) -> None:
    pushed = await hw.queue("orders").push(payload, partition="a")
    write(out, {"push": payload, "offset": pushed.offset, "lsn": pushed.lsn, "told": time.monotonic()})


def write(out: TextIO, line: dict[str, object]) -> None:
    """At once, and whole: this process is killed at any moment."""
    out.write(json.dumps(line) + "\n")
    out.flush()


def main() -> None:
    address, path, name, pushes = sys.argv[1:]
    with open(path, "a", encoding="utf-8") as out:
        asyncio.run(work(address, name, int(pushes), out))


if __name__ == "__main__":
    main()
