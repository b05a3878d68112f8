"""A server that is away for a moment: whoever only reads goes on without a gap, and the log says it in two lines."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.errors import HeadwaterError, StoreUnreachable
from headwater.model.names import Lsn
from headwater.model.selection import Selection
from headwater.stores.postgres.store import PostgresStore
from tests.postgres_server import Server
from tests.waiting import expect_soon, expect_soon_async

AWAY, BACK = "the store is away", "the store is back"


@pytest.fixture
def restarting() -> Iterator[Server]:
    """A server of its own, so that nobody else is in its outages."""
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def address(restarting: Server) -> str:
    return restarting.address(restarting.new_schema())


@pytest.fixture
async def hw(address: str) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(address, housekeeping_seconds=0.02) as opened:
        yield opened


def said(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)


@asynccontextmanager
async def outage(server: Server, hw: headwater.Headwater, asks: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    """The server is away, and whoever follows has looked meanwhile: they are told that nobody knows what is new."""
    server.crash()
    try:
        with pytest.raises(HeadwaterError):
            await asks()
        hw.followers.touched(())
        yield
    finally:
        # Not in another thread: the server ends with the one that started it.
        server.start()


def failed_reads(hw: headwater.Headwater, monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What reads fail with from now on."""
    failures: list[Exception] = []
    ask = hw.store.ask

    async def asked(question: Any) -> Any:
        try:
            return await ask(question)
        except Exception as error:
            failures.append(error)
            raise

    monkeypatch.setattr(hw.store, "ask", asked)
    return failures


async def test_who_follows_goes_on_where_they_were(
    hw: headwater.Headwater, address: str, restarting: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, room, tasks = hw.queue("orders"), hw.room("canvas"), hw.collection("tasks")
    await queue.push(0, partition="one")
    await room.send({"x": 0}, durability="synced")
    messages, changes, states = room.follow("beginning"), tasks.follow(), hw.collection("_queues").follow()
    assert (await anext(messages)).payload == {"x": 0}
    assert (await anext(changes)).op == "snapshot"
    assert (await anext(states)).op == "snapshot"
    async with await hw.followers.follow(Selection(hw.name, ("orders",)), Lsn(0)) as following:
        assert [segment.first_offset for segment in (await following.step()).segments] == [0]
        waiting = [
            asyncio.ensure_future(one) for one in (following.step(), anext(messages), anext(changes), anext(states))
        ]
        await expect_soon_async(lambda: true_when(len(hw.followers.under_way) == 3))
        failures = failed_reads(hw, monkeypatch)
        async with outage(restarting, hw, queue.status):
            # Each of the three that follow the log, and the one that looks, has met it.
            await expect_soon_async(lambda: true_when(len(failures) >= 5))
            assert not [one for one in waiting if one.done()]
        async with headwater.open(address, housekeeping=False) as other:
            await other.queue("orders").push(1, partition="one")
            await other.room("canvas").send({"x": 1}, durability="synced")
            await other.collection("tasks").create({"n": 1}, id="t1")
        async with asyncio.timeout(60):
            found: list[Any] = await asyncio.gather(*waiting)
    step, message, change, state = found
    assert [segment.first_offset for segment in step.segments] == [1]
    assert message.payload == {"x": 1}
    assert (change.op, change.document.id) == ("insert", "t1")
    assert state.op in ("insert", "update")
    for stream in (messages, changes, states):
        await stream.aclose()


async def true_when(holds: bool) -> bool:
    return holds


async def test_a_step_with_a_time_tells_of_the_outage(hw: headwater.Headwater, restarting: Server) -> None:
    """Whoever waits behind a door is answered, and asks again."""
    await hw.queue("orders").push(0)
    async with await hw.followers.follow(Selection(hw.name, ("orders",)), Lsn(0)) as following:
        await following.step()
        async with outage(restarting, hw, hw.queue("orders").status):
            with pytest.raises(StoreUnreachable):
                await following.step(60)


async def test_who_cannot_listen_tells_of_the_outage(
    address: str, restarting: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it listens again it reads nothing, and so nobody else would."""
    store = PostgresStore(address)
    await store.open()
    restarting.crash()
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            await store._notices.listen()
    assert (said(caplog, AWAY), said(caplog, BACK)) == (1, 0)
    restarting.start()
    await store._notices.listen()
    assert (said(caplog, AWAY), said(caplog, BACK)) == (1, 1)
    await store.close()


def is_waited_for(hw: headwater.Headwater) -> bool:
    """Whether one follows and one waits, and nothing is on its way to the disk."""
    waiting = hw.queues_service.intentions.count
    return (len(hw.followers.under_way), waiting, hw.committer.pending) == (1, 1, 0)


async def test_an_outage_is_two_lines_in_the_log_and_no_traceback(
    hw: headwater.Headwater, address: str, restarting: Server, caplog: pytest.LogCaptureFixture
) -> None:
    queue = hw.queue("orders")
    await queue.push(0)
    await queue.ack(await queue.pop())
    waiting = asyncio.ensure_future(queue.pop(wait=60))
    await hw.room("canvas").send({"x": 0}, durability="synced")
    room = hw.room("canvas").follow("beginning")
    await anext(room)
    following = asyncio.ensure_future(anext(room))
    await expect_soon_async(lambda: true_when(is_waited_for(hw)))
    async with outage(restarting, hw, queue.status):
        # Those who have not met it by themselves: a chore, pops that wait, the tail.
        hw.queues_service.intentions.committed_elsewhere()
        hw.tail._look()
        before = sum(hw.keeper.errors.values())
        await expect_soon_async(lambda: true_when(sum(hw.keeper.errors.values()) > before))
    await expect_soon_async(lambda: true_when(said(caplog, BACK) == 1))
    async with headwater.open(address, housekeeping=False) as other:
        await other.queue("orders").push(1)
        await other.room("canvas").send({"x": 1}, durability="synced")
    async with asyncio.timeout(60):
        await following
        # A pop that was on its way is answered that it may hold or not.
        with suppress(StoreUnreachable):
            assert [message.payload for message in await waiting] == [1]
    await room.aclose()
    loud = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.exc_info for record in loud if record.exc_info] == []
    assert [record.getMessage().partition(",")[0] for record in loud] == [AWAY, BACK]


def test_tail_shows_every_message_once_while_the_server_restarts_and_messages_flow(
    restarting: Server, address: str, tmp_path: Path
) -> None:
    written, out, err = (tmp_path / name for name in ("written", "out", "err"))
    command = (sys.executable, "-m", "tests.faults.postgres_process", "write", address, "w", "1")
    with written.open("wb") as told:
        writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=told, stderr=subprocess.STDOUT)
    expect_soon(lambda: b"offset" in written.read_bytes())
    tailing = (sys.executable, "-m", "headwater.cli", "tail", "orders", "--from", "beginning", "--json")
    with out.open("wb") as seen, err.open("wb") as told:
        tail = subprocess.Popen([*tailing, "--store", address], stdout=seen, stderr=told)

    def expect_of_tail(holds: Callable[[], bool]) -> None:
        expect_soon(lambda: holds() or tail.poll() is not None or writer.poll() is not None)
        assert tail.poll() is None, err.read_text()
        assert writer.poll() is None, written.read_text()[-2_000:]

    try:
        for number in range(1, 4):
            shown = len(offsets(out))
            expect_of_tail(lambda shown=shown: len(offsets(out)) > shown)  # type: ignore[misc]
            restarting.crash()
            expect_of_tail(lambda number=number: err.read_text().count(AWAY) >= number)  # type: ignore[misc]
            restarting.start()
            expect_of_tail(lambda number=number: err.read_text().count(BACK) >= number)  # type: ignore[misc]
        shown = len(offsets(out))
        expect_of_tail(lambda: len(offsets(out)) > shown)
    finally:
        for process in (tail, writer):
            process.terminate()
            process.communicate()
    assert offsets(out) == list(range(len(offsets(out))))
    assert "Traceback" not in err.read_text()


def offsets(out: Path) -> list[int]:
    """Of the whole lines so far."""
    return [json.loads(line)["offset"] for line in out.read_bytes().split(b"\n")[:-1]]
