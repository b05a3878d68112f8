"""A server that crashes, and connections that are cut: what was answered stays, and nobody is told what may go."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from headwater.config import load_config
from headwater.errors import StoreFailed
from headwater.model.names import Lsn
from headwater.stores.open import open_store
from headwater.stores.postgres.address import parse_address
from headwater.stores.postgres.commit_connection import CommitConnection
from headwater.stores.postgres.connection import IDLE_SECONDS_MAX, open_pipe
from headwater.stores.postgres.pipe import ConnectionLost, Pipe
from headwater.stores.postgres.store import PostgresStore
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, payloads, push, until_durable
from tests.postgres_server import Server


@pytest.fixture
def crashing() -> Iterator[Server]:
    """A server that hands nothing to its disk unless a commit asks for it."""
    made = Server(wal_writer_delay="10s", checkpoint_timeout="1h")
    yield made
    made.stop()


@pytest.fixture
def address(crashing: Server) -> str:
    return crashing.address(crashing.new_schema())


async def opened(address: str) -> Log:
    clock = FakeClock()
    store = open_store(address, load_config({}), clock)
    await store.open()
    return Log(store, clock)


@pytest.fixture
async def log(address: str) -> AsyncIterator[Log]:
    made = await opened(address)
    yield made
    await made.store.close()


def without_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on commits are seen, and not yet on the disk: the moment before the barrier lasts."""
    commit = CommitConnection.commit
    monkeypatch.setattr(CommitConnection, "commit", lambda self, barrier: commit(self, barrier=False))
    monkeypatch.setattr(Pipe, "receive", _receive_what_was_sent)


_receive = Pipe.receive


def _receive_what_was_sent(self: Pipe) -> Any:
    return _receive(self) if self.waits else []


async def payloads_after_crash(server: Server, address: str) -> list[list[Any]]:
    """What the log has once the server has crashed and come back."""
    server.crash()
    server.start()
    log = await opened(address)
    found = [payloads(segment) for segment in await log.read()]
    await log.store.close()
    return found


async def test_a_commit_that_was_answered_survives_a_crash_of_the_server(
    log: Log, crashing: Server, address: str
) -> None:
    await log.push("answered")
    await until_durable(log.store, 1)
    assert await payloads_after_crash(crashing, address) == [["answered"]]


async def test_what_a_follower_was_told_survives_a_crash(
    log: Log, crashing: Server, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await opened(address)
    without_barrier(monkeypatch)
    await log.push("seen")
    assert len(await other.store.touched(Lsn(0), 10)) == 1
    await other.store.close()
    assert await payloads_after_crash(crashing, address) == [["seen"]]


async def test_what_a_reader_was_given_survives_a_crash(
    log: Log, crashing: Server, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await opened(address)
    without_barrier(monkeypatch)
    await log.push("seen")
    assert [payloads(segment) for segment in await other.read()] == [["seen"]]
    await other.store.close()
    assert await payloads_after_crash(crashing, address) == [["seen"]]


async def test_a_poller_that_does_not_wait_for_the_disk_sees_what_never_was(
    log: Log, crashing: Server, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason for all this: without it, records are handed out that a crash takes back."""
    without_barrier(monkeypatch)
    await log.push("seen")
    schema = address.rpartition("=")[2]
    with crashing.connect() as naive:
        assert naive.execute(f"SELECT count(*) FROM {schema}.hw_segments".encode()).fetchone() == (1,)
    assert await payloads_after_crash(crashing, address) == []


async def test_a_store_goes_on_when_its_server_was_started_anew(log: Log, crashing: Server) -> None:
    await log.push("before")
    await until_durable(log.store, 1)
    crashing.crash()
    crashing.start()
    await log.push("after")
    assert await log.drain() == ["before", "after"]


async def test_a_server_that_is_away_is_an_error_and_then_is_not(log: Log, crashing: Server) -> None:
    await log.push("before")
    await until_durable(log.store, 1)
    crashing.crash()
    try:
        with pytest.raises(StoreFailed, match="cannot be reached"):
            await log.push("lost")
        with pytest.raises(StoreFailed, match="cannot be reached"):
            await log.read()
    finally:
        crashing.start()
    await log.push("after")
    assert await log.drain() == ["before", "after"]


def cut_all(server: Server) -> int:
    """End all connections to a server but one's own, and see them gone; how many there were."""
    others = "pid <> pg_backend_pid() AND backend_type = 'client backend'"
    with server.connect() as own:
        own.autocommit = True
        rows = own.execute(f"SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE {others}").fetchall()
    return len(rows)


async def test_connections_that_are_cut_between_commits_are_made_again(log: Log, crashing: Server) -> None:
    await log.push("before")
    await until_durable(log.store, 1)
    assert cut_all(crashing)
    await log.push("after")
    await until_durable(log.store, 1)
    assert await log.drain() == ["before", "after"]
    assert len(await log.read()) == 2


async def test_a_connection_that_is_cut_in_the_middle_of_a_commit_leaves_no_trace(
    log: Log, crashing: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writes of a commit are not there before its end: it is made once more, through another connection."""
    begin = CommitConnection.begin
    cuts: list[int] = []

    def begin_and_be_cut(self: CommitConnection, foreseen: Any, known: int) -> None:
        begin(self, foreseen, known)
        if not cuts:
            cuts.append(cut_all(crashing))
            self.fetch(self.sql.look)

    monkeypatch.setattr(CommitConnection, "begin", begin_and_be_cut)
    await log.push("once")
    assert cuts
    assert await log.drain() == ["once"]


async def test_a_lost_answer_to_a_commit_is_an_error_that_says_so_and_the_key_finds_out(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = CommitConnection.commit

    def commit_unheard(self: CommitConnection, *, barrier: bool) -> None:
        commit(self, barrier=False)
        self._open_pipe().close()
        raise ConnectionLost("the cable was pulled")

    request = push("once", key="the-key")
    with monkeypatch.context() as cut:
        cut.setattr(CommitConnection, "commit", commit_unheard)
        with pytest.raises(StoreFailed, match="whether it holds is not known"):
            await log.run(request)
    again = await log.run(request)
    assert again.offsets() == [0]
    assert await log.drain() == ["once"]


async def test_a_barrier_whose_answer_is_lost_is_told_and_then_recovered(
    log: Log, crashing: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = log.store
    assert isinstance(store, PostgresStore)
    await log.push("unsure")
    with monkeypatch.context() as cut:
        cut.setattr(Pipe, "receive", _refuse)
        with pytest.raises(StoreFailed, match="did not say"):
            await until_durable(store, 1)
    with pytest.raises(StoreFailed, match="did not say"):
        await until_durable(store, 1)
    await store.recover()
    await until_durable(store, 1)
    await log.push("sure")
    assert await log.drain() == ["unsure", "sure"]


def _refuse(self: Pipe) -> Any:
    raise self._lose("the cable was pulled")


async def test_the_server_throws_out_who_stops_with_the_lock_in_its_hands(log: Log, address: str) -> None:
    """Nobody waits for a stopped process longer than the server lets a transaction stand idle."""
    pipe = open_pipe(parse_address(address), 1.0)
    ((idle,),) = pipe.run([("SHOW idle_in_transaction_session_timeout", ())])[0].rows
    pipe.close()
    assert idle == f"{IDLE_SECONDS_MAX}s"


async def test_a_process_that_is_stopped_inside_a_commit_loses_the_lock_and_others_go_on(
    log: Log, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the stopped one had not committed never was; when it wakes it finds out, and its key decides."""
    monkeypatch.setattr("headwater.stores.postgres.connection.IDLE_SECONDS_MAX", 0.2)
    stopped = await opened(address)
    monkeypatch.undo()
    has_the_lock, goes_on = threading.Event(), threading.Event()
    begin = CommitConnection.begin

    def begin_and_stop(self: CommitConnection, foreseen: Any, known: int) -> None:
        begin(self, foreseen, known)
        if not has_the_lock.is_set():
            has_the_lock.set()
            assert goes_on.wait(60)

    monkeypatch.setattr(CommitConnection, "begin", begin_and_stop)
    request = push("of the stopped one", key="the-key")
    commit = asyncio.ensure_future(stopped.run(request))
    await asyncio.to_thread(has_the_lock.wait, 60)
    await log.push("of another")
    goes_on.set()
    with suppress(StoreFailed):
        await commit
    assert (await stopped.run(request)).offsets() == [1]
    await stopped.store.close()
    assert await log.drain() == ["of another", "of the stopped one"]


@pytest.mark.parametrize("years", [-10, 10])
async def test_a_clock_that_jumps_takes_nothing_away_and_mixes_nothing_up(log: Log, years: int) -> None:
    await log.push("before")
    log.clock.set_by(years * 365 * 86_400)
    await log.push("after")
    log.clock.set_by(-years * 365 * 86_400)
    await log.push("back again")
    assert await log.drain() == ["before", "after", "back again"]
