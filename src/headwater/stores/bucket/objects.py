"""A bucket as the protocol sees it: whole objects under keys, created once or replaced by who has seen the last one.

Whatever a conditional PUT answers but plain success means "look": it may have landed and its answer be lost, a library
may have sent it twice, or another may have been first. So there are only two refusals, neither of which says what lies
there.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Refused(Exception):
    """The condition did not hold, or somebody else's PUT was under way: look."""


class Unsure(Exception):
    """Nobody can say whether it was done; a read can be asked again."""


class Found(NamedTuple):
    """An object, or its first bytes, and the tag of that version."""

    data: bytes
    tag: str


class Objects(Protocol):
    """What is asked of a bucket. Reads see what was written before; no call repeats anything by itself.

    Every call may raise Unsure; StoreFailed where the bucket says no for good (no such bucket, not allowed), StoreFull
    where it has no room.
    """

    async def get(self, key: str) -> Found | None:
        """The object, None when there is none."""
        ...

    async def head(self, key: str, size: int) -> Found | None:
        """The first `size` bytes of an object."""
        ...

    def peek(self, key: str, size: int) -> Found | None:
        """The same on the spot, while the caller's thread waits: for those who cannot."""
        ...

    async def create(self, key: str, data: bytes) -> str:
        """Write an object that must not be there yet; its tag. Refused when there is one."""
        ...

    async def replace(self, key: str, data: bytes, tag: str) -> str:
        """Write over the version with this tag; the new tag. Refused when another version is there."""
        ...

    async def names(self, prefix: str) -> list[str]:
        """The keys that begin so, in order."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are not there are none."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class Traffic:
    """What was asked of a bucket so far, for those who pay for it."""

    def __init__(self) -> None:
        self.puts = 0
        self.gets = 0
        self.lists = 0
        self.deletes = 0
        self.bytes_sent = 0
        self.bytes_read = 0


class CountedObjects:
    """A bucket, and what was asked of it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.traffic = Traffic()
        self.close = objects.close

    async def get(self, key: str) -> Found | None:
        return self._read(await self._objects.get(key))

    async def head(self, key: str, size: int) -> Found | None:
        return self._read(await self._objects.head(key, size))

    def peek(self, key: str, size: int) -> Found | None:
        return self._read(self._objects.peek(key, size))

    async def create(self, key: str, data: bytes) -> str:
        self._send(data)
        return await self._objects.create(key, data)

    async def replace(self, key: str, data: bytes, tag: str) -> str:
        self._send(data)
        return await self._objects.replace(key, data, tag)

    async def names(self, prefix: str) -> list[str]:
        self.traffic.lists += 1
        return await self._objects.names(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        self.traffic.deletes += len(keys)
        await self._objects.delete(keys)

    def _send(self, data: bytes) -> None:
        self.traffic.puts += 1
        self.traffic.bytes_sent += len(data)

    def _read(self, found: Found | None) -> Found | None:
        self.traffic.gets += 1
        self.traffic.bytes_read += 0 if found is None else len(found.data)
        return found
