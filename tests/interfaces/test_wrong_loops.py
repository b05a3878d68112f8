"""What is open in one event loop and is asked from another: refused by name, before anything is done. And what is open
already and is opened again."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import headwater
import headwater.sync
from headwater.client.client import Client
from headwater.services.database import Database
from tests.doors.live_door import on_the_edge

Use = Callable[[Database], Awaitable[object]]


async def consume(hw: Database) -> object:
    async with hw.queue("orders").consume() as messages:
        return await anext(messages)


async def transact(hw: Database) -> None:
    async with hw.transaction() as together:
        together.push("orders", 2)


USES: dict[str, Use] = {
    "push": lambda hw: hw.queue("orders").push(2),
    "push_many": lambda hw: hw.queue("orders").push_many([2, 3]),
    "pop": lambda hw: hw.queue("orders").pop(),
    "waiting pop": lambda hw: hw.queue("empty").pop(wait=5),
    "consume": consume,
    "transaction": transact,
    "status": lambda hw: hw.queues(),
    "configure": lambda hw: hw.queue("orders").configure(retry_limit=7),
    "job": lambda hw: hw.jobs.add(command="true"),
    "wait for a job": lambda hw: hw.jobs.wait("job", 5),
    "document": lambda hw: hw.collection("notes").set("a", {"text": "hello"}),
    "room": lambda hw: hw.room("canvas").send(1),
    "close": lambda hw: hw.close(),  # type: ignore[attr-defined]
    "enter": lambda hw: hw.__aenter__(),  # type: ignore[attr-defined]
}


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[headwater.Headwater | Client]:
    async with headwater.open(str(folder / "log.db")) as hw:
        await hw.jobs.add(command="true", id="job")
        if kind == "store":
            yield hw
            return
        async with on_the_edge(hw) as url, headwater.connect(url) as client:
            yield client


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", ["store", "client"])
async def test_another_event_loop_is_told_so_and_changes_nothing(kind: str, use: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as hw:
        orders = hw.queue("orders")
        await orders.push(1)

        def elsewhere() -> None:
            async def run() -> None:
                await USES[use](hw)

            asyncio.run(run())

        with pytest.raises(headwater.WrongLoop, match="another event loop"):
            await asyncio.to_thread(elsewhere)
        # It is of use in its own loop as before, and nothing was done.
        (message,) = await orders.pop(batch=10, wait=1)
        assert message.payload == 1
        assert len(await hw.jobs.list()) == 1


async def test_a_call_may_be_made_elsewhere_and_handed_to_the_loop_that_has_it(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "log.db")) as hw:
        loop = asyncio.get_running_loop()

        def elsewhere() -> None:
            asyncio.run_coroutine_threadsafe(hw.queue("orders").push(1), loop).result()

        await asyncio.to_thread(elsewhere)
        assert len(await hw.queue("orders").pop()) == 1


@pytest.mark.parametrize("kind", ["store", "client"])
async def test_what_is_open_is_not_opened_again_and_stays_open(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as hw:
        with pytest.raises(headwater.InvalidInput, match=r"open already.*make another one: async with headwater"):
            async with hw:
                pytest.fail("the end of this block closes it under the other one")
        await hw.queue("orders").push(1)


async def test_of_two_who_open_one_handle_at_once_one_is_refused(tmp_path: Path) -> None:
    hw = headwater.open(str(tmp_path / "log.db"))
    first, second = await asyncio.gather(hw.start(), hw.start(), return_exceptions=True)
    assert (first, type(second)) == (None, headwater.InvalidInput)
    await hw.queue("orders").push(1)
    await hw.close()


@pytest.mark.parametrize("kind", ["store", "client"])
async def test_what_was_closed_and_is_opened_again_says_what_to_do(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as hw:
        await hw.close()
        with pytest.raises(headwater.Closed, match="make a new one: async with headwater"):
            await hw.__aenter__()


async def test_what_could_not_be_opened_may_be_opened_later(tmp_path: Path) -> None:
    hw = headwater.open(str(tmp_path / "log.db"), create=False)
    with pytest.raises(headwater.HeadwaterError):
        await hw.start()
    async with headwater.open(str(tmp_path / "log.db")):
        pass
    async with hw:
        await hw.queue("orders").push(1)


TWO_LOOPS = """
import asyncio, sys, headwater

hw = headwater.open(sys.argv[1])

async def leave_open():
    await hw.__aenter__()
    await hw.queue("orders").push(1)

async def go_on():
    async with hw:
        print([message.payload for message in await hw.queue("orders").pop()])

asyncio.run(leave_open())
asyncio.run(go_on())
"""


def test_what_an_ended_event_loop_left_open_may_be_opened_in_the_next(tmp_path: Path) -> None:
    """In a process of its own, because the first loop closes nothing."""
    command = [sys.executable, "-c", TWO_LOOPS, str(tmp_path / "log.db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "[1]\n"), ended.stderr


def test_a_block_within_a_block_is_refused_without_async_too(tmp_path: Path) -> None:
    made = headwater.sync.open(str(tmp_path / "log.db"))
    with made as hw:
        with pytest.raises(headwater.InvalidInput, match=r"open already.*with headwater\.sync\.open"), hw:
            pytest.fail("the end of this block closes it under the other one")
        hw.queue("orders").push(1)
    with pytest.raises(headwater.Closed, match=r"with headwater\.sync\.open"), made:
        pytest.fail("there is nothing open in this block")
