"""A process that pushes, pops and acks until somebody kills it, and keeps a ledger of what it was told.

The ledger is a file of lines, each written in one call when the thing has happened: it outlives the process. Every
line is honest at the moment it is written, so after a kill the store must agree with all of them.
"""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import msgspec

import headwater
from headwater.clock import SECOND

QUEUE = "orders"
GROUP = "billing"
PARTITIONS = ("a", "b")
LEASE_SECONDS = 0.05
PRODUCERS = 4
CONSUMERS = 2


class Submitted(msgspec.Struct, frozen=True, tag=True):
    """A push was begun: it may be there or not."""

    name: str
    partition: str


class Pushed(msgspec.Struct, frozen=True, tag=True):
    """A push was answered: it must be there, at this offset."""

    name: str
    partition: str
    offset: int


class Popped(msgspec.Struct, frozen=True, tag=True):
    """Records were leased."""

    partition: str
    token: int
    begun_at: int
    lease_until: int
    offsets: list[int]
    names: list[str]


class Acked(msgspec.Struct, frozen=True, tag=True):
    """Records were reported as done, and that was answered: they never come again."""

    partition: str
    token: int
    offsets: list[int]


Entry = Submitted | Pushed | Popped | Acked


class Ledger:
    """Where the process writes down what it was told."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, entry: Entry) -> None:
        """One line, in one write."""
        os.write(self._descriptor, msgspec.json.encode(entry) + b"\n")


def read_ledger(path: Path) -> list[Entry]:
    """What a process wrote down; a last line that it was killed in is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=Entry) for line in lines]


class Writing:
    """Producers and consumers of one process."""

    def __init__(self, queue: headwater.Queue, ledger: Ledger, name: str, operations: int | None) -> None:
        self._queue = queue
        self._ledger = ledger
        self._name = name
        self._left = operations
        self._chance = random.Random(name)

    async def run(self) -> None:
        """Everything side by side, without end, or until this many pushes and pops were done."""
        producers = (self._produce(number) for number in range(PRODUCERS))
        await asyncio.gather(*producers, *(self._consume() for _ in range(CONSUMERS)))

    def _goes_on(self) -> bool:
        if self._left is not None:
            self._left -= 1
        return self._left is None or self._left > 0

    async def _produce(self, producer: int) -> None:
        number = 0
        while self._goes_on():
            number += 1
            partition = self._chance.choice(PARTITIONS)
            name = f"{self._name}:{producer}:{number}"
            self._ledger.add(Submitted(name, partition))
            receipt = await self._queue.push(name, partition=partition)
            self._ledger.add(Pushed(name, partition, receipt.offset or 0))

    async def _consume(self) -> None:
        while self._goes_on():
            messages = await self._queue.pop(group=GROUP, batch=4, partitions=1, lease_seconds=LEASE_SECONDS)
            if not messages:
                await asyncio.sleep(0)
                continue
            self._note_pop(messages)
            try:
                await self._queue.ack(messages)
            except headwater.LeaseLost:
                continue
            first = messages[0]
            self._ledger.add(Acked(first.partition, first.token, [message.offset for message in messages]))

    def _note_pop(self, messages: list[headwater.Message]) -> None:
        batch = messages[0].batch
        begun_at = batch.lease_until - int(LEASE_SECONDS * SECOND)
        names = [message.payload for message in messages]
        entry = Popped(batch.partition, batch.token, begun_at, batch.lease_until, list(batch.offsets), names)
        self._ledger.add(entry)


async def write(path: Path, ledger: Ledger, name: str, operations: int | None, opened: Callable[[], None]) -> None:
    """Open the store, say so, and work."""
    async with headwater.open(str(path), housekeeping=False, wakeup="data_version") as hw:
        opened()
        await Writing(hw.queue(QUEUE), ledger, name, operations).run()
