"""The stores that the suite runs over: each factory makes an empty place and gives the address that opens it.

A new store is one more factory here; no test changes.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from headwater.stores.open import KINDS
from tests.contracts.memory_bucket import SCHEME, Buckets
from tests.postgres_server import server

Factory = Callable[[Path], AbstractAsyncContextManager[str]]


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[str]:
    """A file in an empty folder."""
    yield str(folder / "log.db")


@asynccontextmanager
async def memory_bucket(folder: Path) -> AsyncIterator[str]:
    """A bucket in memory, with scratch files in an empty folder. One handle holds it; others take it over."""
    async with buckets(folder):
        yield f"{SCHEME}://bucket/log.sqlite"


@asynccontextmanager
async def buckets(folder: Path) -> AsyncIterator[Buckets]:
    """All buckets in memory that are opened by address meanwhile."""
    made = Buckets(folder)
    KINDS[SCHEME] = made.kind
    try:
        yield made
    finally:
        del KINDS[SCHEME]


@asynccontextmanager
async def postgres(folder: Path) -> AsyncIterator[str]:
    """A schema of its own on the server of this process."""
    yield server().address(server().new_schema())


# Those with an engine of their own.
ENGINES: dict[str, Factory] = {"sqlite": sqlite, "postgres": postgres}
FACTORIES: dict[str, Factory] = {**ENGINES, "memory bucket": memory_bucket}
