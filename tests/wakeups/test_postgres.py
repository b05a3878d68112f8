"""Notices of a server wake; where they do not come the version is looked at, and notices come back by themselves."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from headwater.config import load_config
from headwater.errors import StoreFailed
from headwater.log.operations import Configure
from headwater.stores.contract import Store
from headwater.stores.open import open_store
from headwater.stores.postgres.store import PostgresStore
from headwater.wakeups import postgres
from headwater.wakeups.contract import Found
from headwater.wakeups.postgres import NoticeWakeup
from tests.contracts.clock import BEGINNING, FakeClock
from tests.contracts.log import push
from tests.postgres_server import Server
from tests.postgres_server import server as server_of_process
from tests.waiting import expect_soon_async

WAIT_SECONDS = 20.0


class Ear:
    """What a wake-up calls."""

    def __init__(self, wakeup: NoticeWakeup) -> None:
        self.wakeup = wakeup
        self.calls = 0
        self._heard = asyncio.Event()

    def wake(self) -> Found:
        self.calls += 1
        if self.wakeup.changed():
            self._heard.set()
            return Found.NEWS
        return Found.NOTHING

    async def hear(self) -> None:
        """Until somebody else has committed."""
        await asyncio.wait_for(self._heard.wait(), WAIT_SECONDS)
        self._heard.clear()


class FakeListener:
    """A listener in the hands of a test: a pipe that can be written to, and a version that can be raised."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.news = False
        self.is_down = False
        self.is_cut = False
        self.looks = self.reads = 0
        self.listens = 0

    async def listen(self) -> int:
        if self.is_down:
            raise StoreFailed("the server cannot be reached")
        self.listens += 1
        return self.reading

    def heard(self) -> bool:
        if self.is_cut:
            self.is_cut = False
            raise ConnectionError("cut")
        self.reads += 1
        return os.read(self.reading, 100) == b"other"

    async def look(self) -> bool:
        self.looks += 1
        if self.is_down:
            raise StoreFailed("the server cannot be reached")
        news, self.news = self.news, False
        return news

    def look_now(self) -> bool:
        news, self.news = self.news, False
        return news

    def deafen(self) -> None:
        """Nothing to let go of."""

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


@pytest.fixture
async def fake() -> AsyncIterator[FakeListener]:
    made = FakeListener()
    yield made
    made.close()


@pytest.fixture
async def ear(fake: FakeListener, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ear]:
    monkeypatch.setattr(postgres, "LOOK_SECONDS", 3_600.0)
    monkeypatch.setattr(postgres, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(postgres, "POLL_SECONDS_MAX", 0.001)
    made = Ear(NoticeWakeup(fake))
    made.wakeup.start(made.wake)
    yield made
    made.wakeup.close()


async def until_listening(wakeup: NoticeWakeup) -> None:
    async def is_listening() -> bool:
        return wakeup.is_listening

    await expect_soon_async(is_listening)


async def test_a_notice_of_another_wakes_and_one_of_our_own_does_not(ear: Ear, fake: FakeListener) -> None:
    await until_listening(ear.wakeup)
    os.write(fake.writing, b"other")
    await ear.hear()
    calls = ear.calls
    os.write(fake.writing, b"own")

    async def was_read() -> bool:
        return fake.reads == 2

    await expect_soon_async(was_read)
    assert ear.calls == calls


async def test_a_lost_connection_is_replaced_by_looks_and_then_listened_to_again(ear: Ear, fake: FakeListener) -> None:
    await until_listening(ear.wakeup)
    ear.wakeup.close()
    fake.is_down = True
    ear.wakeup.start(ear.wake)
    looks = fake.looks

    async def was_refused() -> bool:
        return not ear.wakeup.is_listening and fake.looks >= looks

    await expect_soon_async(was_refused)
    fake.news = True
    fake.is_down = False
    await ear.hear()
    await until_listening(ear.wakeup)
    assert fake.listens == 2


async def test_a_cut_is_noticed_where_it_happens(ear: Ear, fake: FakeListener) -> None:
    await until_listening(ear.wakeup)
    fake.is_cut = True
    os.write(fake.writing, b"x")

    async def is_deaf() -> bool:
        return not ear.wakeup.is_listening

    await expect_soon_async(is_deaf)


async def test_a_notice_waits_for_whoever_looks_first(ear: Ear, fake: FakeListener) -> None:
    await until_listening(ear.wakeup)
    ear.wakeup.defer(3_600.0)
    os.write(fake.writing, b"other")

    async def has_news() -> bool:
        return ear.wakeup._has_changed

    await expect_soon_async(has_news)
    assert not ear.calls
    ear.wakeup.defer(0.0)
    await ear.hear()


# ── a real server ──


@pytest.fixture(scope="module")
def server() -> Server:
    return server_of_process()


async def opened(address: str) -> PostgresStore:
    store = open_store(address, load_config({}), FakeClock())
    assert isinstance(store, PostgresStore)
    await store.open()
    return store


@pytest.fixture
async def stores(server: Server) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    address = server.address(server.new_schema())
    made = await opened(address), await opened(address)
    yield made
    for store in made:
        await store.close()


@pytest.fixture
async def listening(stores: tuple[PostgresStore, PostgresStore]) -> AsyncIterator[Ear]:
    wakeup = stores[0].wakeup()
    assert isinstance(wakeup, NoticeWakeup)
    made = Ear(wakeup)
    wakeup.start(made.wake)
    await until_listening(wakeup)
    yield made
    wakeup.close()


async def test_a_commit_elsewhere_is_heard(listening: Ear, stores: tuple[Store, Store]) -> None:
    await stores[1].apply([push(1)], BEGINNING)
    await listening.hear()
    await stores[1].apply([Configure(queue="orders")], BEGINNING)
    await listening.hear()
    assert listening.calls >= 2


async def test_many_commits_are_told_by_few_notices(listening: Ear, stores: tuple[Store, Store]) -> None:
    for number in range(20):
        await stores[1].apply([push(number)], BEGINNING)
    await listening.hear()
    assert len(await stores[0].touched(0, 100)) == 20  # type: ignore[arg-type]


async def test_notices_come_again_after_the_connections_were_cut(
    listening: Ear, stores: tuple[Store, Store], server: Server
) -> None:
    cut_listeners(server)
    await stores[1].apply([push(1)], BEGINNING)
    await listening.hear()
    await until_listening(listening.wakeup)
    await stores[1].apply([push(2)], BEGINNING)
    await listening.hear()
    assert listening.wakeup.is_listening


def cut_listeners(server: Server) -> None:
    """End the connections that wait for notices or have told some."""
    with server.connect() as own:
        own.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')"
        )


async def test_a_store_that_is_only_to_be_asked_does_not_listen(server: Server) -> None:
    store = open_store(server.address(server.new_schema()), load_config({}, wakeup="data_version"), FakeClock())
    await store.open()
    wakeup = store.wakeup()
    assert wakeup.name == "data_version"
    await store.close()
