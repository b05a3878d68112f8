"""What a store wants done, done now."""

from headwater.stores.contract import Store


async def run_chore(store: Store, name: str) -> int:
    """Do one of a store's chores; how many things were done."""
    (chore,) = [chore for chore in store.chores() if chore.name == name]
    return await chore.run()
