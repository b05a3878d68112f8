"""What is closed by two at once, or under loops that run: everybody ends, and what they held is free for others."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater
import headwater.sync
from headwater.errors import Closed
from tests.doors.live_door import LiveDoor, on_the_edge
from tests.waiting import expect_soon

SOON = 30.0
ROUNDS = 12


class Place:
    """A store in a file, and a server over it: what is opened and closed."""

    def __init__(self, path: Path, url: str, way: str) -> None:
        self._path = str(path)
        self.url = url
        self._way = way

    def open(self) -> Any:
        """For async."""
        return headwater.open(self._path) if self._way == "library" else headwater.connect(self.url)

    def open_sync(self) -> headwater.sync.Headwater:
        """Without async."""
        return headwater.sync.open(self._path) if self._way == "library" else headwater.sync.connect(self.url)


@pytest.fixture(params=["library", "http"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    door = LiveDoor(tmp_path / "headwater.db", on_the_edge)
    door.start()
    yield Place(tmp_path / "headwater.db", door.url, request.param)
    door.stop()


@pytest.fixture
def others(place: Place) -> Iterator[headwater.sync.Headwater]:
    """Somebody who looks from the side."""
    with headwater.sync.connect(place.url) as hw:
        yield hw


def is_free(queue: headwater.sync.Queue) -> bool:
    return queue.leases() == []


def run_all(calls: list[Any]) -> list[BaseException]:
    """Each in a thread of its own, begun at once; what they raised. None of them may stay."""
    raised: list[BaseException] = []
    begin = threading.Barrier(len(calls))

    def run(call: Any) -> None:
        begin.wait(SOON)
        try:
            call()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert not any(thread.is_alive() for thread in threads), "somebody waits for ever"
    return raised


def test_threads_that_close_at_once_all_find_it_closed(place: Place) -> None:
    for _ in range(ROUNDS):
        hw = place.open_sync()
        assert run_all([hw.close] * 4) == []
        with pytest.raises(Closed):
            hw.queue("orders").push(1)


def test_a_thread_that_closes_under_a_loop_ends_it_and_the_block_around_it(place: Place) -> None:
    for number in range(ROUNDS):
        outcomes: list[str] = []

        def program(pause: float, outcomes: list[str]) -> None:
            with place.open_sync() as hw:
                threading.Timer(pause, hw.close).start()
                for _ in hw.queue("orders").consume():
                    outcomes.append("a message")

        raised = run_all([lambda pause=number * 0.003, outcomes=outcomes: program(pause, outcomes)])
        assert [type(error) for error in raised] == [Closed]
        assert outcomes == []


def test_calls_that_come_while_it_is_closed_end(place: Place) -> None:
    """Nothing is handed to a loop that has stopped, where it would wait for ever."""
    for number in range(ROUNDS):
        hw = place.open_sync()
        queue = hw.queue("orders")

        def push_on(queue: headwater.sync.Queue = queue) -> None:
            while True:
                queue.push(1)

        def close(hw: headwater.sync.Headwater = hw, pause: float = number * 0.002) -> None:
            threading.Event().wait(pause)
            hw.close()

        raised = run_all([push_on, push_on, push_on, close])
        assert {type(error) for error in raised} == {Closed}


def test_two_tasks_that_close_at_once_both_return_when_it_is_closed(place: Place) -> None:
    async def scenario() -> None:
        for _ in range(ROUNDS):
            hw = place.open()
            await hw.__aenter__()
            await hw.queue("orders").push(1)
            await asyncio.wait_for(asyncio.gather(hw.close(), hw.close(), hw.close()), SOON)
            with pytest.raises(Closed):
                await hw.queue("orders").push(1)

    asyncio.run(scenario())


@pytest.mark.parametrize("beside", ["nothing", "a loop"])
def test_a_pop_that_waits_is_told_that_it_is_closed_and_not_that_there_is_nothing(place: Place, beside: str) -> None:
    async def scenario() -> None:
        hw = place.open()
        await hw.__aenter__()
        loop = hw.queue("others").consume() if beside == "a loop" else None
        looping = None if loop is None else asyncio.ensure_future(anext(loop))
        waiting = [asyncio.create_task(hw.queue("orders").pop(wait=SOON)) for _ in range(3)]
        await asyncio.sleep(0.05)
        await hw.close()
        ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), SOON)
        assert [type(error) for error in ended] == [Closed] * 3
        if looping is not None:
            await asyncio.gather(looping, return_exceptions=True)

    asyncio.run(scenario())


def test_closing_under_loops_that_run_leaves_no_lease(
    place: Place, others: headwater.sync.Headwater, caplog: pytest.LogCaptureFixture
) -> None:
    """Also not of a pop whose answer comes while it is closed; and no error is left that nobody looked at."""
    unseen: list[dict[str, Any]] = []

    async def work(queue: headwater.Queue) -> None:
        with contextlib.suppress(Closed):
            async with queue.consume(batch=3) as messages:
                async for _ in messages:
                    await asyncio.sleep(0)

    async def scenario(name: str, turns: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        hw = place.open()
        await hw.__aenter__()
        loops = [asyncio.create_task(work(hw.queue(name))) for _ in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0.001)
        await hw.close()
        await asyncio.wait_for(asyncio.gather(*loops), SOON)

    for number in range(ROUNDS):
        name = f"orders-{number}"
        others.queue(name).push_many(list(range(300)))
        asyncio.run(scenario(name, turns=number))
        # A server notices a little later who has hung up.
        expect_soon(functools.partial(is_free, others.queue(name)))
    assert unseen == []
    assert "runs out by itself" not in caplog.text


def test_who_begins_to_consume_while_it_is_closed_gets_nothing(
    place: Place, others: headwater.sync.Headwater, caplog: pytest.LogCaptureFixture
) -> None:
    """Consumers that leave their block and begin the next one, again and again."""

    async def work(queue: headwater.Queue) -> None:
        while True:
            async with queue.consume(lease_seconds=600) as messages:
                async for _ in messages:
                    await asyncio.sleep(0.001)
                    break

    async def take(queue: headwater.Queue) -> None:
        while True:
            await queue.release(await queue.pop(lease_seconds=600))

    async def run(queue: headwater.Queue) -> None:
        async def handle(message: headwater.Message) -> None: ...

        while True:
            await queue.run(handle, idle_seconds=0.01, stop_on_signals=False, lease_seconds=600)

    async def scenario(name: str, turns: int) -> None:
        hw = place.open()
        await hw.__aenter__()
        queue = hw.queue(name)
        loops = [asyncio.create_task(doing(queue)) for doing in (work, work, work, run, take)]
        for _ in range(turns):
            await asyncio.sleep(0.002)
        await hw.close()
        ended = await asyncio.wait_for(asyncio.gather(*loops, return_exceptions=True), SOON)
        assert {type(error) for error in ended} == {Closed}

    for number in range(ROUNDS):
        name = f"orders-{number}"
        others.queue(name).push_many([headwater.Outgoing(payload=n, partition=f"p{n % 7}") for n in range(300)])
        asyncio.run(scenario(name, turns=5 + number))
        # A server notices a little later who has hung up.
        expect_soon(functools.partial(is_free, others.queue(name)))
    assert "runs out by itself" not in caplog.text


def test_nothing_is_handed_out_once_all_that_is_held_was_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between that and the end of the store there is time for others to ask."""

    async def scenario() -> None:
        hw = headwater.open(str(tmp_path / "headwater.db"))
        await hw.__aenter__()
        queue, refused = hw.queue("orders"), []
        await queue.push_many(range(10))

        async def ask() -> None:
            with contextlib.suppress(Closed):
                async for _ in queue.consume():
                    pytest.fail("a message for a loop that nobody gives back")
                return
            refused.append("consume")
            with pytest.raises(Closed):
                await queue.pop()
            refused.append("pop")

        close = hw.rooms_service.close

        async def ask_and_close() -> None:
            await ask()
            await close()

        monkeypatch.setattr(hw.rooms_service, "close", ask_and_close)
        await hw.close()
        assert refused == ["consume", "pop"]
        async with headwater.open(str(tmp_path / "headwater.db")) as again:
            assert await again.queue("orders").leases() == []

    asyncio.run(scenario())


@pytest.mark.parametrize("are_awaited", [True, False])
def test_what_comes_for_pops_that_were_cancelled_right_before_goes_back(
    place: Place, others: headwater.sync.Headwater, caplog: pytest.LogCaptureFixture, are_awaited: bool
) -> None:
    """As programs end: every task is cancelled, and then all is closed. The answers are on their way."""

    async def work(queue: headwater.Queue, held: dict[int, str], number: int) -> None:
        while True:
            held.pop(number, None)
            [message] = await queue.pop(lease_seconds=600)
            held[number] = message.partition
            await queue.ack(message)

    async def scenario(name: str, turns: int) -> set[str]:
        held: dict[int, str] = {}
        hw = place.open()
        await hw.__aenter__()
        loops = [asyncio.create_task(work(hw.queue(name), held, number)) for number in range(8)]
        for _ in range(turns):
            await asyncio.sleep(0.001)
        for loop in loops:
            loop.cancel()
        if are_awaited:
            await asyncio.gather(*loops, return_exceptions=True)
        await hw.close()
        await asyncio.gather(*loops, return_exceptions=True)
        return set(held.values())

    for number in range(4 * ROUNDS):
        name = f"orders-{number}"
        others.queue(name).push_many([headwater.Outgoing(payload=n, partition=f"p{n}") for n in range(200)])
        held = asyncio.run(scenario(name, turns=5 + number % 8))

        def are_free(name: str = name, held: set[str] = held) -> bool:
            # What a program was handed is its own to give back.
            return {lease.partition for lease in others.queue(name).leases()} <= held

        expect_soon(are_free)
    assert "runs out by itself" not in caplog.text
