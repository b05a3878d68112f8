"""Writes to a store on a server, or follows it, while a test breaks things: what was answered and seen goes to stdout.

    python -m tests.faults.postgres_process write ADDRESS NAME SEED
    python -m tests.faults.postgres_process follow ADDRESS

A writer repeats what failed, with the same key, until it is answered, and now and then cuts its own connection right
after a COMMIT was sent. It ends when its standard input does.
"""

import asyncio
import json
import os
import random
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import headwater
from headwater.clock import SystemClock
from headwater.config import load_config
from headwater.errors import HeadwaterError
from headwater.model.names import Lsn
from headwater.stores.open import open_store
from headwater.stores.postgres.pipe import Pipe, Request
from tests.contracts.log import payloads

PAUSE_SECONDS = 0.02
LOCK_WAIT_SECONDS = 20.0
CUTS_OF_ALL = 0.02
ALL = Lsn(2**62)


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def cut_some_commits(chance: random.Random) -> None:
    """From now on some connections end between a COMMIT and its answer."""
    send = Pipe.send

    def send_and_perhaps_be_cut(self: Pipe, requests: Sequence[Request]) -> None:
        send(self, requests)
        if requests[-1][0] == "COMMIT" and chance.random() < CUTS_OF_ALL:
            with socket.socket(fileno=os.dup(self.socket)) as line:
                line.shutdown(socket.SHUT_RDWR)
            tell(cut=True)

    Pipe.send = send_and_perhaps_be_cut  # type: ignore[method-assign]


async def until_told_to_end() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def write(address: str, name: str, seed: str) -> None:
    ending = asyncio.ensure_future(until_told_to_end())
    async with headwater.open(address, lock_wait_seconds=LOCK_WAIT_SECONDS, housekeeping=False) as hw:
        queue = hw.queue("orders")
        tell(ready=True)
        cut_some_commits(random.Random(int(seed)))
        number = 0
        while not ending.done():
            try:
                pushed = await queue.push([name, number], partition=name, idempotency_key=f"{name}-{number}")
            except HeadwaterError as error:
                if not error.retryable:
                    raise
                tell(failed=error.code)
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                tell(answered=number, offset=pushed.offset)
                number += 1


async def follow(address: str) -> None:
    ending = asyncio.ensure_future(until_told_to_end())
    store = open_store(address, load_config({}), SystemClock())
    await store.open()
    tell(ready=True)
    after = Lsn(0)
    while not ending.done():
        try:
            segments = await store.read(after, ALL, 100)
        except HeadwaterError as error:
            if not error.retryable:
                raise
            segments = []
        for segment in segments:
            tell(lsn=segment.lsn, seen=payloads(segment))
            after = segment.lsn
        if not segments:
            await asyncio.sleep(PAUSE_SECONDS)
    with suppress(HeadwaterError):
        await store.close()


ROLES: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"write": write, "follow": follow}

if __name__ == "__main__":
    _, role, *arguments = sys.argv
    asyncio.run(ROLES[role](*arguments))
