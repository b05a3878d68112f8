"""Logs for flows to work on, and the oracle: what is in a queue, read without Spark."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headwater.clock import Clock, SystemClock, Timestamp
from headwater.config import load_config
from headwater.log.operations import Configure, Operation, Push, Retain
from headwater.model.names import Lsn
from headwater.model.record import Record, decode_payload
from headwater.stores.open import open_store

DAY = 86_400 * 1_000_000
NOON = 1_763_208_000_000_000  # 2025-11-15 12:00 UTC


class At:
    """A clock that stands."""

    def __init__(self, now: int) -> None:
        self.time = now

    def now(self) -> Timestamp:
        return Timestamp(self.time)


class Kept(NamedTuple):
    """All that a consumer can see of a message, but where it is."""

    partition: str
    payload: Any
    transaction_id: str
    trace_id: str
    type: str
    headers: tuple[tuple[str, str], ...]
    timestamp: int


def record(payload: Any, **about: Any) -> Record:
    """A payload as a record."""
    return Record(msgspec.Raw(msgspec.json.encode(payload)), **about)


def apply(store: Path, *operations: Operation, at: int = NOON) -> list[Any]:
    """One commit at a given time."""
    return asyncio.run(_apply(store, operations, At(at)))


async def _apply(path: Path, operations: Sequence[Operation], clock: Clock) -> list[Any]:
    store = open_store(str(path), load_config({}), clock)
    await store.open()
    try:
        return (await store.apply(operations, clock.now())).results
    finally:
        await store.close()


def fill(store: Path, count: int, queue: str = "orders", at: int = NOON, first: int = 0) -> None:
    """Some records over three partitions, each with all that a record can have, in segments of ten."""
    for start in range(first, first + count, 30):
        numbers = range(start, min(start + 30, first + count))
        pushes = [
            Push(
                queue=queue,
                partition=f"p{lane}",
                records=[_rich(number) for number in numbers if number % 3 == lane],
            )
            for lane in range(3)
            if any(number % 3 == lane for number in numbers)
        ]
        apply(store, *pushes, at=at + start)


def _rich(number: int) -> Record:
    return record(
        {"id": number, "name": f"größe {number}"},
        transaction_id=f"t{number}",
        trace_id=f"trace-{number}" if number % 2 else "",
        type="order.created" if number % 5 else "",
        headers={"number": str(number)} if number % 4 == 0 else None,
        timestamp=NOON - number if number % 7 == 0 else 0,
    )


def drop_all(store: Path, queue: str = "orders") -> None:
    """Let retention drop everything of a queue."""
    apply(store, Configure(queue=queue, options={"retention_seconds": 1}))
    while apply(store, Retain(), at=NOON + 3_650 * DAY)[0].records:
        pass
    apply(store, Configure(queue=queue, options={"retention_seconds": 0}))


def oracle(store: Path, queue: str = "orders") -> dict[str, list[Kept]]:
    """What is in a queue, by partition in order."""
    return asyncio.run(_oracle(store, queue))


async def _oracle(path: Path, queue: str) -> dict[str, list[Kept]]:
    store = open_store(str(path), load_config({}), SystemClock())
    await store.open()
    found: dict[str, list[Kept]] = {}
    try:
        for segment in await store.read(Lsn(0), Lsn(2**62), 10**9, ("main", queue)):
            for kept in segment.records:
                found.setdefault(segment.lane.partition, []).append(
                    Kept(
                        segment.lane.partition,
                        decode_payload(kept.data),
                        kept.transaction_id,
                        kept.trace_id,
                        kept.type,
                        tuple(sorted((kept.headers or {}).items())),
                        kept.timestamp or segment.written_at,
                    )
                )
    finally:
        await store.close()
    return found
