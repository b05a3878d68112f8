"""A broker without our server: three functions, and a loop of your own around them.

    broker = await pull_from_s3("s3://bucket/queue.sqlite")
    results = await batch_operations(broker, operations)      # applied here, answered to nobody yet
    results = await flush_to_s3(broker)                       # landed: now answer your callers

`headwater serve` and `headwater.open` are such a loop, with commits that gather and several PUTs under way.
"""

from collections.abc import Sequence
from typing import Any

from headwater.clock import Clock, SystemClock
from headwater.config import Config
from headwater.log.operations import Operation
from headwater.stores.bucket.store import BucketStore
from headwater.stores.contract import RaceLost


class Broker:
    """A store that was pulled from a bucket, and what was applied to it and has not landed."""

    def __init__(self, store: BucketStore, clock: Clock, config: Config) -> None:
        self.store = store
        self.config = config
        self._clock = clock
        self._pending: list[list[Operation]] = []
        self._results: list[list[Any]] = []

    async def apply(self, operations: Sequence[Operation]) -> list[Any]:
        """What each operation came to, as far as it is known before it has landed."""
        batch = list(operations)
        while True:
            try:
                commit = await self.store.apply(batch, self._clock.now())
            except RaceLost:
                await self._begin_again()
            else:
                break
        self._pending.append(batch)
        self._results.append(commit.results)
        return commit.results

    async def flush(self) -> list[Any]:
        """What every operation since the last flush came to, now that it cannot be taken back."""
        while True:
            try:
                for landing in (self.store.make_durable(len(self._pending)), self.store.landed()):
                    if landing is not None:
                        await landing
            except RaceLost:
                await self._begin_again()
            else:
                break
        results = [result for results in self._results for result in results]
        self._pending, self._results = [], []
        return results

    async def _begin_again(self) -> None:
        """Another broker has taken over: what nobody was answered for is applied to what it left."""
        while True:
            await self.store.recover()
            try:
                self._results = [(await self.store.apply(batch, self._clock.now())).results for batch in self._pending]
            except RaceLost:
                continue
            return

    async def close(self) -> None:
        """Leave the store to others. What was not flushed was never answered, and is sent nevertheless."""
        await self.store.close()


async def pull_from_s3(address: str, *, config: Config | None = None, clock: Clock | None = None) -> Broker:
    """Take the store at this address over, or make it: everything that has landed, on this machine."""
    clock = clock or SystemClock()
    config = config or Config()
    store = BucketStore(address, config, clock=clock)
    await store.open()
    return Broker(store, clock, config)


async def flush_to_s3(broker: Broker) -> list[Any]:
    """Send what was applied; what each operation since the last flush came to, for good. After a lost race they were
    applied again to what the other broker left."""
    return await broker.flush()
