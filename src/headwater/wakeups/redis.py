"""Waking by Redis: whoever commits to a room publishes on `canvas:<room>`, and whoever listens looks at the store.

It stands before the store's own wake-up, which stays the truth: a notice has no data but who sent it, may be lost, and
may come before the commit can be seen. So a notice means two looks, one at once and one a moment later. While the
server cannot be reached everything goes on by the store's own wake-up, and the connection is tried again. Only what
PUBLISH and PSUBSCRIBE need of the protocol is spoken here, so it needs no package.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from urllib.parse import unquote, urlsplit

from headwater.errors import ConfigError
from headwater.wakeups.contract import Found, Wakeup

log = logging.getLogger(__name__)

CHANNEL = "canvas:"
PORT = 6379
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.1, 5.0
SECOND_LOOK_SECONDS = 0.02
# Of notices that the server does not take, so many bytes wait; the rest is not sent: a look comes anyway.
UNSENT_BYTES_MAX = 65_536


class RedisWakeup:
    """Wakes when another process has published, and whenever the store's own wake-up does."""

    def __init__(self, inner: Wakeup, url: str) -> None:
        self.name = f"{inner.name} and redis"
        self._inner = inner
        self._url = check_url(url)
        # Our own notices come back to us, and are told by this.
        self._origin = uuid.uuid4().hex.encode()
        self._has_changed = False
        self._following: asyncio.Task[None] | None = None
        self._second_look: asyncio.TimerHandle | None = None
        self._publisher: asyncio.StreamWriter | None = None
        self.heard = 0

    @property
    def is_listening(self) -> bool:
        """Whether notices come and go now."""
        return self._publisher is not None

    def start(self, wake: Callable[[], Found]) -> None:
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._inner.start(wake)
        self._following = self._loop.create_task(self._follow(), name="headwater-redis")

    def changed(self) -> bool:
        has_changed, self._has_changed = self._has_changed, False
        # Asked in any case: it notes what it has seen.
        return self._inner.changed() or has_changed

    def defer(self, seconds: float) -> None:
        self._inner.defer(seconds)

    def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
        if self._second_look is not None:
            self._second_look.cancel()
        self._inner.close()

    def tell(self, rooms: Iterable[str]) -> None:
        """Something was committed to these rooms."""
        writer = self._publisher
        if writer is None or writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            return
        writer.write(b"".join(command(b"PUBLISH", (CHANNEL + room).encode(), self._origin) for room in rooms))

    async def _follow(self) -> None:
        pause = RETRY_SECONDS
        while True:
            try:
                await self._listen()
            except (OSError, EOFError, ValueError, asyncio.IncompleteReadError) as error:
                if pause == RETRY_SECONDS or self.is_listening:
                    log.warning("Redis cannot be reached, the store is looked at instead: %s", error)
                pause = RETRY_SECONDS if self.is_listening else min(pause * 2, RETRY_SECONDS_MAX)
            finally:
                self._publisher = None
            await asyncio.sleep(pause)

    async def _listen(self) -> None:
        """Hear notices until a connection ends. One that listens may not publish: there are two."""
        reader, writer = await self._connected()
        try:
            answers, publisher = await self._connected()
            passing = asyncio.ensure_future(_pass_over(answers))
            try:
                writer.write(command(b"PSUBSCRIBE", (CHANNEL + "*").encode()))
                await read_reply(reader)
                self._publisher = publisher
                # Notices that came before this are gone: one look for all of them.
                self._news()
                await self._hear(reader)
            finally:
                passing.cancel()
                publisher.close()
        finally:
            writer.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        place = urlsplit(self._url)
        reader, writer = await asyncio.open_connection(place.hostname or "127.0.0.1", place.port or PORT)
        if place.password:
            words = [unquote(place.username)] if place.username else []
            writer.write(command(b"AUTH", *(word.encode() for word in (*words, unquote(place.password)))))
            await read_reply(reader)
        return reader, writer

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        while True:
            reply = await read_reply(reader)
            if isinstance(reply, list) and reply[0] == b"pmessage" and reply[3] != self._origin:
                self.heard += 1
                self._news()

    def _news(self) -> None:
        self._look()
        if self._second_look is None:
            self._second_look = self._loop.call_later(SECOND_LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._second_look = None
        self._look()

    def _look(self) -> None:
        self._has_changed = True
        self._wake()


async def _pass_over(answers: asyncio.StreamReader) -> None:
    """How many heard a notice does not matter; what is not read would stand in the way."""
    while await answers.read(4_096):
        continue


def check_url(url: str) -> str:
    """Raises when this is no address of a Redis."""
    place = urlsplit(url)
    if place.scheme != "redis" or not place.hostname:
        raise ConfigError("wakeup_redis must be redis://host:port, with user and password if it needs them")
    return url


# ── the protocol ──

Reply = bytes | int | None | list["Reply"]


def command(*words: bytes) -> bytes:
    """A command as it is sent."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """One answer, or one notice; raises a ValueError when it is an error, or none."""
    line = (await reader.readuntil(b"\r\n"))[:-2]
    kind, rest = line[:1], line[1:]
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    if kind == b"$":
        size = int(rest)
        return None if size < 0 else (await reader.readexactly(size + 2))[:-2]
    if kind == b"*":
        return [await read_reply(reader) for _ in range(int(rest))]
    raise ValueError(f"Redis answers {line[:80].decode(errors='replace')!r}")
