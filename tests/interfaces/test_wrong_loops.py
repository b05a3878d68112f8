"""What is open in one event loop and is asked from another: refused by name, before anything is done."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import headwater
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
}


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Database]:
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
