"""Commits from the workers of Spark: a store that stays open in its process, and one operation at a time.

The worker that commits lives as long as its query, so what the store has learnt (ends of partitions, transaction ids)
is not read again for every micro-batch.
"""

import atexit
from typing import Any

from headwater.log.operations import Operation
from headwater.pipeline.handle import Handle

_open: dict[str, Handle] = {}


def run_once(address: str, operation: Operation) -> Any:
    """Commit an operation in the store at `address`, which must be there."""
    store = _open.get(address)
    if store is None:
        store = _open[address] = Handle(address).open()
    return store.commit([operation])[0]


@atexit.register
def close_all() -> None:
    """Close what is open: the last process to close moves the write-ahead log into the file."""
    while _open:
        _open.popitem()[1].close()
