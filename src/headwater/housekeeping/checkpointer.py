"""Keeps the write-ahead log under its cap: off the commit path, whenever it has grown enough."""

from headwater.stores.contract import Store


class Checkpointer:
    """Asks the store for a checkpoint when the store says that one is worth it."""

    name = "checkpointer"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def wait(self) -> None:
        await self._store.grown()

    async def run(self) -> int:
        """One checkpoint."""
        await self._store.checkpoint()
        return 1
