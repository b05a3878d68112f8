"""Commits from the workers of Spark: a store that stays open in its process, and one operation at a time.

The worker that commits lives as long as its query, so what the store has learnt (ends of partitions, transaction ids)
is not read again for every micro-batch. The address says how it commits: in a file, or through a server.
"""

import asyncio
import atexit
from typing import Any, Protocol

from headwater.client.access import Access
from headwater.client.log_writer import RemoteLogWriter
from headwater.errors import StoreReplaced
from headwater.log.operations import Operation, Transaction
from headwater.pipeline.asking import ask
from headwater.pipeline.handle import Handle
from headwater.stores.open import is_server


class Committing(Protocol):
    """What commits, without async, until it is closed."""

    def commit_one(self, operation: Operation) -> Any:
        """What an operation came to, when it survives power loss."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class InFile:
    """Commits in a store that this process has open."""

    def __init__(self, address: str) -> None:
        self._handle = Handle(address).open()

    def commit_one(self, operation: Operation) -> Any:
        """Commit an operation in the file."""
        return self._handle.commit([operation])[0]

    def close(self) -> None:
        """Close the store."""
        self._handle.close()


class ThroughServer:
    """Commits through a server that has the store open."""

    def __init__(self, address: str, access: Access) -> None:
        self._writer = RemoteLogWriter(address, access)
        self._runner = asyncio.Runner()

    def commit_one(self, operation: Operation) -> Any:
        """Have the server commit an operation."""
        whole = operation if isinstance(operation, Transaction) else Transaction(operations=[operation])
        return ask(self._runner, self._writer.commit(whole))

    def close(self) -> None:
        """Hang up."""
        ask(self._runner, self._writer.close())
        self._runner.close()


_open: dict[tuple[str, Access], Committing] = {}


def run_once(address: str, operation: Operation, access: Access) -> Any:
    """Commit an operation in the store at `address`, which must be there.

    A store that was replaced while it was open took nothing; the one that is there now is asked instead. Who must push
    to the same one as before looks which it is (`destination.py`).
    """
    try:
        return _committing(address, access).commit_one(operation)
    except StoreReplaced:
        _open.pop((address, access)).close()
        return _committing(address, access).commit_one(operation)


def _committing(address: str, access: Access) -> Committing:
    store = _open.get((address, access))
    if store is None:
        store = _open[address, access] = ThroughServer(address, access) if is_server(address) else InFile(address)
    return store


@atexit.register
def close_all() -> None:
    """Close what is open: the last process to close moves the write-ahead log into the file."""
    while _open:
        _open.popitem()[1].close()
