"""The sides of a comparison, each behind the same few verbs.

Every side is handed the same Python dict. What takes text or bytes gets it as JSON by msgspec; a library that does its
own serialising (Headwater and honker to JSON, huey and persist-queue by pickle) does so. All that is taken is decoded.
"""

import importlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

Payload = dict[str, Any]
Messages = AsyncGenerator[Payload, None]
PAYLOAD_BYTES = 200

encode = msgspec.json.encode
decode = msgspec.json.Decoder(Payload).decode


def make_payload(sent_ns: int = 0) -> Payload:
    """A payload of exactly 200 bytes as JSON."""
    bare = {"id": 1, "sent_ns": sent_ns, "padding": ""}
    return {**bare, "padding": "x" * (PAYLOAD_BYTES - len(encode(bare)))}


PAYLOAD = make_payload()


@dataclass(frozen=True, slots=True)
class Context:
    """What a measure is given: where to write, how long to run, where its server listens, how many partitions."""

    folder: Path
    seconds: float
    address: str = ""
    partitions: int = 1


class Queue:
    """One side's queue. A side implements the verbs that it is measured by.

    A blocking library simply blocks inside the coroutine: nothing else runs in its process.
    """

    async def push(self, payload: Payload) -> None:
        raise NotImplementedError

    async def push_many(self, payloads: list[Payload]) -> None:
        """Pushes all in one commit or one round trip."""
        raise NotImplementedError

    async def take(self, count: int, group: str = "workers") -> int:
        """Pops up to `count` messages, reads and acknowledges them, and answers how many there were."""
        raise NotImplementedError

    def consume(self) -> Messages:
        """Yields one message after the other, each acknowledged when the next is asked for."""
        raise NotImplementedError


def no_server(folder: Path) -> AbstractContextManager[str]:
    return nullcontext("")


@dataclass(frozen=True, slots=True)
class Peer:
    """One side with one durability setting."""

    packages: tuple[str, ...]  # the distributions whose versions belong into the result
    durability: str
    open: Callable[[Context], AbstractAsyncContextManager[Queue]]
    serve: Callable[[Path], AbstractContextManager[str]] = no_server


MODULES = {
    "headwater": "ours",
    "headwater-written": "ours",
    "raw-full": "raw",
    "raw-normal": "raw",
    "huey": "huey",
    "litequeue": "litequeue",
    "litequeue-full": "litequeue",
    "persist-queue": "persist_queue",
    "honker": "honker",
    "redis-everysec": "redis_streams",
    "redis-always": "redis_streams",
    "redis-always-asyncio": "redis_streams",
    "nats": "nats",
    "spark": "spark",
    "headwater-jobs": "job_sides",
    "headwater-commands": "job_sides",
    "huey-jobs": "job_sides",
    "dramatiq": "job_sides",
    "rq": "job_sides",
    "procrastinate": "job_sides",
    "pgqueuer": "job_sides",
    "headwater-jobs-postgres": "job_sides",
    "headwater-postgres": "postgres_queues",
    "pgmq": "postgres_queues",
    "pgqueuer-messages": "postgres_queues",
    "skip-locked": "postgres_queues",
}


def load(name: str) -> Peer:
    """The peer of this name; ImportError when a package that it needs is missing or does not run here."""
    module = importlib.import_module(f"{__name__}.{MODULES[name]}")
    peers: dict[str, Peer] = module.PEERS
    versions_of(peers[name])  # a server's wheel has nothing to import: it is missed here
    return peers[name]


def versions_of(peer: Peer) -> dict[str, str]:
    return {package: version(package) for package in peer.packages}
