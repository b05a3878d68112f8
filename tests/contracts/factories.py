"""The stores that the suite runs over: each factory makes an empty place and gives the address that opens it.

A new store is one more factory here; no test changes.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

Factory = Callable[[Path], AbstractAsyncContextManager[str]]


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[str]:
    """A file in an empty folder."""
    yield str(folder / "log.db")


FACTORIES: dict[str, Factory] = {"sqlite": sqlite}
