"""A bucket as the protocol sees it: whole objects under keys, created once or replaced by who has seen the last one.

Whatever a conditional PUT answers but plain success means "look": it may have landed and its answer be lost, a library
may have sent it twice, or another may have been first. So there are only two refusals, neither of which says what lies
there.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from headwater.errors import StoreFull

log = logging.getLogger(__name__)

TELL_SECONDS = 10.0
# Whoever asks again pauses for less than this.
REPEAT_SECONDS = 5.0
# What is sent may take its time, on lines no slower than this.
BYTES_PER_SECOND = 10_000_000


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


class Silence:
    """For how long calls of one kind are made, and none is answered. Told to the log every ten seconds, also while a
    single call hangs."""

    def __init__(self, kind: str, now: Callable[[], float] = time.monotonic) -> None:
        self._kind = kind
        self._now = now
        self._open = 0
        self._since: float | None = None
        self._ended_at = 0.0
        self._sending_seconds = 0.0
        self._telling: asyncio.TimerHandle | None = None

    @property
    def seconds(self) -> float:
        """0 while calls are answered, and while there are none."""
        if self._since is None or self._is_over():
            return 0.0
        return max(0.0, self._now() - self._since - self._sending_seconds)

    def _is_over(self) -> bool:
        """Whether nobody asks any more: what was not answered then says nothing of now."""
        return not self._open and self._now() - self._ended_at > REPEAT_SECONDS

    @contextmanager
    def asking(self, size: int = 0) -> Iterator[None]:
        """One call, which sends so many bytes. Also a refusal is an answer, if it says how things are."""
        self._begin(size)
        try:
            yield
        except (Refused, StoreFull):
            self._end(is_answered=True)
            raise
        except BaseException:
            self._end(is_answered=False)
            raise
        self._end(is_answered=True)

    def _begin(self, size: int) -> None:
        if self._since is None or self._is_over():
            self._since = self._now()
        self._open += 1
        self._sending_seconds = max(self._sending_seconds, size / BYTES_PER_SECOND)
        if self._telling is None:
            self._tell_later()

    def _end(self, *, is_answered: bool) -> None:
        self._open -= 1
        self._ended_at = self._now()
        if is_answered:
            self._since = self._now() if self._open else None
        if not self._open:
            self._sending_seconds = 0.0
            if self._telling is not None:
                self._telling.cancel()
                self._telling = None

    def _tell_later(self) -> None:
        self._telling = asyncio.get_running_loop().call_later(TELL_SECONDS, self._tell)

    def _tell(self) -> None:
        if self.seconds >= TELL_SECONDS:
            log.warning("the bucket has not answered a %s for %.0f seconds", self._kind, self.seconds)
        self._tell_later()


class CountedObjects:
    """A bucket, what was asked of it, and for how long it has not answered."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.traffic = Traffic()
        self.reads, self.writes = Silence("read"), Silence("write")
        # Whether the last write found no room.
        self.full = False
        self.close = objects.close

    async def get(self, key: str) -> Found | None:
        with self.reads.asking():
            return self._read(await self._objects.get(key))

    async def head(self, key: str, size: int) -> Found | None:
        with self.reads.asking():
            return self._read(await self._objects.head(key, size))

    def peek(self, key: str, size: int) -> Found | None:
        return self._read(self._objects.peek(key, size))

    async def create(self, key: str, data: bytes) -> str:
        with self._sending(data):
            return await self._objects.create(key, data)

    async def replace(self, key: str, data: bytes, tag: str) -> str:
        with self._sending(data):
            return await self._objects.replace(key, data, tag)

    async def names(self, prefix: str) -> list[str]:
        self.traffic.lists += 1
        with self.reads.asking():
            return await self._objects.names(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        self.traffic.deletes += len(keys)
        with self.reads.asking():
            await self._objects.delete(keys)

    @contextmanager
    def _sending(self, data: bytes) -> Iterator[None]:
        self.traffic.puts += 1
        self.traffic.bytes_sent += len(data)
        try:
            with self.writes.asking(len(data)):
                yield
        except StoreFull:
            self.full = True
            raise
        self.full = False

    def _read(self, found: Found | None) -> Found | None:
        self.traffic.gets += 1
        self.traffic.bytes_read += 0 if found is None else len(found.data)
        return found
