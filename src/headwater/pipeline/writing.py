"""Commits from the workers of Spark: a store that stays open in its process, and one operation at a time.

The worker that commits lives as long as its query, so what the store has learnt (ends of partitions, transaction ids)
is not read again for every micro-batch.
"""

import asyncio
import atexit
from typing import Any

from headwater.clock import SystemClock
from headwater.config import load_config
from headwater.log.committer import Committer
from headwater.log.operations import Operation
from headwater.stores.contract import Store
from headwater.stores.open import open_store

_open: "dict[str, OpenStore]" = {}


class OpenStore:
    """A store with its committer, on an event loop of its own that runs while something is committed."""

    def __init__(self, address: str) -> None:
        self._config = load_config()
        self._clock = SystemClock()
        self._runner = asyncio.Runner()
        self._store: Store = open_store(address, self._config, self._clock, create=False)
        try:
            self._runner.run(self._start())
        except BaseException:
            self._runner.close()
            raise

    async def _start(self) -> None:
        await self._store.open()
        self._committer = Committer(self._store, self._clock, pending_max=self._config.pending_max)
        self._committer.start()

    def run(self, operation: Operation) -> Any:
        """What the operation came to, on stable storage; then the log is kept short: nobody else may be there to."""
        return self._runner.run(self._commit(operation))

    async def _commit(self, operation: Operation) -> Any:
        answer = await self._committer.submit(operation)
        await self._store.checkpoint()
        return answer.result

    def close(self) -> None:
        """Let go."""
        self._runner.run(self._stop())
        self._runner.close()

    async def _stop(self) -> None:
        await self._committer.close()
        await self._store.close()


def run_once(address: str, operation: Operation) -> Any:
    """Commit an operation in the store at `address`, which must be there."""
    store = _open.get(address)
    if store is None:
        store = _open[address] = OpenStore(address)
    return store.run(operation)


@atexit.register
def close_all() -> None:
    """Close what is open: the last process to close moves the write-ahead log into the file."""
    while _open:
        _open.popitem()[1].close()
