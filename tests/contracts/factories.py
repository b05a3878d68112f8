"""The stores that the suite runs over: each factory makes an empty place and gives the address that opens it.

A new store is one more factory here; no test changes.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from unittest.mock import patch

from headwater.stores.open import KINDS
from tests import seaweed_server
from tests.contracts.memory_bucket import SCHEME, Buckets
from tests.postgres_schemas import schemas
from tests.postgres_server import server
from tests.stores.bucket.witness import witnessed

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
    """An empty store in a schema of its own on the server of this process."""
    with schemas().lend() as schema:
        yield server().address(schema)


@asynccontextmanager
async def bucket_chain(folder: Path) -> AsyncIterator[str]:
    """A folder that stands for a bucket. Without a lease, so that handles take it from each other at once."""
    with in_memory() as place, witnessed():
        yield f"file://{place}/log.sqlite?lease_seconds=0"


@asynccontextmanager
async def bucket_image(folder: Path) -> AsyncIterator[str]:
    """The same, with the whole file at every commit."""
    with in_memory() as place, witnessed():
        yield f"file://{place}/log.sqlite?ship=image&lease_seconds=0"


@asynccontextmanager
async def bucket_s3(folder: Path) -> AsyncIterator[str]:
    """A bucket on a real S3 server."""
    with patch.dict(os.environ, seaweed_server.server().environment):
        yield f"s3://{seaweed_server.BUCKET}/{seaweed_server.server().new_key()}?lease_seconds=0"


def in_memory() -> tempfile.TemporaryDirectory[str]:
    """A folder whose syncs cost nothing, where there is one: every commit is made durable there."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)


def another(address: str) -> str:
    """An address of the same kind, at another place."""
    place, mark, query = address.partition("?")
    return f"{place}-two{mark}{query}" if address.startswith(("file://", "s3://")) else f"{address}-two"


# Those with an engine of their own.
ENGINES: dict[str, Factory] = {"sqlite": sqlite, "postgres": postgres}
FACTORIES: dict[str, Factory] = {
    **ENGINES,
    "memory bucket": memory_bucket,
    "bucket chain": bucket_chain,
    "bucket image": bucket_image,
}
# Over a network every commit takes its time: for a release, not for every check.
if os.environ.get("CONTRACTS_OVER_S3"):
    FACTORIES["bucket s3"] = bucket_s3
