"""`queue.run`: what handlers come to, several at once, and the ways in which it ends."""

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headwater
import headwater.sync
from headwater.errors import Closed, InvalidOption, StoreBusy
from headwater.services import running
from headwater.services.queues import Queues
from headwater.services.running import Run
from tests.doors.live_door import LiveDoor, on_the_edge

SOON = 10.0


@pytest.fixture(params=["library", "http"])
async def orders(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[headwater.Queue]:
    """A queue of each interface, whose failed messages come again at once."""
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "library":
            hw: Any = await stack.enter_async_context(headwater.open(str(tmp_path / "headwater.db")))
        else:
            door = LiveDoor(tmp_path / "headwater.db", on_the_edge)
            door.start()
            stack.callback(door.stop)
            hw = await stack.enter_async_context(headwater.connect(door.url))
        await hw.queue("orders").configure(retry_delay_seconds=0, retry_limit=1)
        yield hw.queue("orders")


async def lag(queue: headwater.Queue) -> tuple[int, int]:
    [group] = await queue.groups()
    return group.lag, group.leased


async def left(queue: headwater.Queue) -> list[tuple[object, int]]:
    """What others get at once: payload and attempts, in order."""
    return [(message.payload, message.attempts) for message in await queue.pop(batch=100, wait=SOON)]


# ── what handlers come to ──


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("concurrency", [1, 4])
async def test_every_message_is_handled_once_and_acked(orders: headwater.Queue, batch: int, concurrency: int) -> None:
    await orders.push_many(list(range(20)))
    seen: list[object] = []

    async def handle(message: headwater.Message) -> None:
        seen.append(message.payload)

    await orders.run(handle, batch=batch, concurrency=concurrency, idle_seconds=0)
    assert sorted(seen, key=str) == sorted(range(20), key=str)
    assert await lag(orders) == (0, 0)


async def test_a_failure_is_its_message_s_own_and_the_run_goes_on(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3], partition="one")
    seen: list[tuple[object, int]] = []

    async def handle(message: headwater.Message) -> None:
        seen.append((message.payload, message.attempts))
        if message.payload == 2:
            raise ValueError("no such customer")

    await orders.run(handle, batch=3, idle_seconds=0)
    assert seen == [(1, 1), (2, 1), (2, 2), (3, 1)]
    [letter] = await orders.dead_letters()
    assert (letter.offset, letter.error, letter.attempts) == (1, "ValueError: no such customer", 2)
    assert await lag(orders) == (0, 0)


async def test_a_message_that_fails_is_tried_again_before_what_is_behind_it(orders: headwater.Queue) -> None:
    """Each partition keeps its order, also in a batch of several partitions; the others go on."""
    for name in "ab":
        await orders.push_many([f"{name}{number}" for number in range(3)], partition=name)
    failed: set[object] = set()
    done: list[str] = []

    async def handle(message: headwater.Message) -> None:
        if message.payload not in failed:
            failed.add(message.payload)
            raise ValueError("at first")
        done.append(message.payload)

    await orders.run(handle, batch=6, idle_seconds=0)
    assert [payload for payload in done if payload[0] == "a"] == ["a0", "a1", "a2"]
    assert [payload for payload in done if payload[0] == "b"] == ["b0", "b1", "b2"]
    assert await orders.dead_letters() == []


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class EndingText(Exception):
    def __str__(self) -> str:
        raise SystemExit


TEXTS = {
    "half a pair": ValueError("file \udcff.txt"),
    "none": NoText(),
    "one that ends programs": EndingText(),
    "long": ValueError("x" * 100_000),
    "empty": ValueError(),
}


async def test_a_leaked_cancellation_is_the_handler_s_failure(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2], partition="one")

    async def handle(message: headwater.Message) -> None:
        if message.payload == 1:
            raise asyncio.CancelledError

    await orders.run(handle, idle_seconds=0)
    assert [letter.offset for letter in await orders.dead_letters()] == [0]
    assert await lag(orders) == (0, 0)


async def _cancel_and_wait(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.sleep(0)


async def _cancel_and_raise(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    raise ValueError("after the cancel")


async def _cancel_and_return(task: "asyncio.Task[Any]") -> None:
    task.cancel()


async def _cancel_and_swallow(task: "asyncio.Task[Any]") -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await _cancel_and_wait(task)


async def _cancel_later(task: "asyncio.Task[Any]") -> None:
    """When it waits for the next message, or reports."""
    asyncio.get_running_loop().call_later(0.005, task.cancel)


CANCELS = {
    _cancel_and_wait: True,
    _cancel_and_raise: True,
    _cancel_and_return: False,
    _cancel_and_swallow: False,
    _cancel_later: False,
}


@pytest.mark.parametrize("cancel", CANCELS)
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_handler_that_cancels_its_own_task_ends_no_worker(
    orders: headwater.Queue, cancel: Any, concurrency: int
) -> None:
    """It is a failure if it comes out of the handler; the run ends only when it is itself cancelled."""
    await orders.configure(retry_limit=0)
    await orders.push_many([headwater.Outgoing(payload=n, partition=f"p{n // 3}") for n in range(18)])
    seen: set[object] = set()

    async def handle(message: headwater.Message) -> None:
        seen.add(message.payload)
        if message.payload % 3 == 1:
            task = asyncio.current_task()
            assert task is not None
            await cancel(task)

    run = await start(orders, handle, concurrency=concurrency)
    while len(seen) < 18:
        await asyncio.sleep(0.01)
        assert not run.done()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, SOON)
    failed = [letter.offset for letter in await orders.dead_letters()]
    assert failed == ([1] * 6 if CANCELS[cancel] else [])
    assert (await lag(orders))[1] == 0


async def test_everything_that_is_cancelled_at_once_counts_as_no_failure(orders: headwater.Queue) -> None:
    """As when the event loop of a program ends: the workers hear of it before the run does."""
    await orders.push(1)
    busy = Busy()
    run = await start(orders, busy)
    await asyncio.wait_for(busy.begun.wait(), SOON)
    others = asyncio.all_tasks()
    for task in sorted(others, key=lambda task: task is run):
        if task is run or "Run._work" in repr(task):
            task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, SOON)
    assert await left(orders) == [(1, 1)]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("way", ["run", "block", "message", "queue"])
async def test_a_failure_is_kept_whatever_is_said_of_it(
    orders: headwater.Queue, name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a test has logged travels between processes as UTF-8.
    monkeypatch.setattr(running.log, "disabled", True)
    await orders.configure(retry_limit=0)
    await orders.push_many([1, 2], partition="one")
    error = TEXTS[name]
    await fail_first(orders, way, error)
    [letter] = await orders.dead_letters()
    assert letter.offset == 0
    assert letter.error
    assert len(letter.error) <= 4_096
    assert letter.error.encode().decode() == letter.error
    if way == "run":
        assert await lag(orders) == (0, 0)
    else:
        assert await left(orders) == [(2, 1)]


async def fail_first(orders: headwater.Queue, way: str, error: BaseException) -> None:
    async def handle(message: headwater.Message) -> None:
        if message.payload == 1:
            raise error

    if way == "run":
        await orders.run(handle, idle_seconds=0)
        return
    if way == "block":
        with contextlib.suppress(type(error)):
            async with orders.consume() as messages:
                async for message in messages:
                    await handle(message)
        return
    said: Any = error
    [message] = await orders.pop()
    if way == "message":
        await message.fail(error=said)
    else:
        await orders.fail(message, error=said)


async def test_a_message_that_its_handler_reported_is_left_at_that(
    orders: headwater.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    await orders.push_many([1, 2], partition="one")

    async def handle(message: headwater.Message) -> None:
        if message.payload == 1:
            await message.fail(error="by hand", retry=False)
        else:
            await message.ack()

    await orders.run(handle, batch=2, idle_seconds=0)
    assert [letter.error for letter in await orders.dead_letters()] == ["by hand"]
    assert await lag(orders) == (0, 0)
    assert not [record for record in caplog.records if record.name.startswith("headwater.services")]


class Counting:
    """How many are at it at once: each waits until enough are."""

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self.most = 0
        self._now = 0
        self._all_there = asyncio.Event()

    async def __call__(self, message: headwater.Message) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        if self._now >= self._enough:
            self._all_there.set()
        await asyncio.wait_for(self._all_there.wait(), SOON)
        self._now -= 1


@pytest.mark.parametrize("concurrency", [1, 3, 6])
async def test_so_many_are_worked_on_at_once(orders: headwater.Queue, concurrency: int) -> None:
    await orders.push_many([headwater.Outgoing(payload=number, partition=f"p{number}") for number in range(12)])
    counting = Counting(concurrency)
    await orders.run(counting, concurrency=concurrency, idle_seconds=0)
    assert counting.most == concurrency
    assert await lag(orders) == (0, 0)


async def test_one_partition_is_worked_on_by_one_at_a_time(orders: headwater.Queue) -> None:
    await orders.push_many(list(range(10)), partition="one")
    seen: list[object] = []
    at_it = 0

    async def handle(message: headwater.Message) -> None:
        nonlocal at_it
        at_it += 1
        assert at_it == 1
        await asyncio.sleep(0)
        seen.append(message.payload)
        at_it -= 1

    await orders.run(handle, concurrency=4, idle_seconds=0.2)
    assert seen == list(range(10))


async def test_a_plain_function_is_called_in_a_thread(orders: headwater.Queue) -> None:
    await orders.push_many([headwater.Outgoing(payload=number, partition=f"p{number}") for number in range(3)])
    together = threading.Barrier(3, timeout=SOON)
    names: set[str] = set()

    def handle(message: headwater.Message) -> None:
        together.wait()
        names.add(threading.current_thread().name)

    await orders.run(handle, concurrency=3, idle_seconds=0)
    assert len(names) == 3
    assert await lag(orders) == (0, 0)


async def test_options_say_which_group_and_which_partition(orders: headwater.Queue) -> None:
    await orders.push("a", partition="a")
    await orders.push("b", partition="b")
    seen: list[tuple[object, str, bool]] = []

    async def handle(message: headwater.Message) -> None:
        seconds = (message.lease_until - message.created_at).total_seconds()
        seen.append((message.payload, message.group, seconds < 60))

    await orders.run(handle, group="bills", partition="b", lease_seconds=20, idle_seconds=0)
    await orders.run(handle, group="news", subscribe="new", idle_seconds=0)
    assert seen == [("b", "bills", True)]


async def test_what_is_wrong_is_said_before_anything_is_taken(orders: headwater.Queue) -> None:
    await orders.push(1)
    for wrong in ({"batch": 0}, {"concurrency": 0}, {"group": "a b"}, {"stop_seconds": -1}, {"idle_seconds": -1}):
        with pytest.raises(headwater.HeadwaterError):
            await orders.run(print, **wrong)
    with pytest.raises(InvalidOption):
        await orders.run("print")  # type: ignore[arg-type]
    assert await left(orders) == [(1, 1)]


def _plain_generator(message: headwater.Message) -> Any:
    yield message


async def _async_generator(message: headwater.Message) -> Any:
    yield message


class _Yielding:
    def __call__(self, message: headwater.Message) -> Any:
        yield message

    async def method(self, message: headwater.Message) -> Any:
        yield message


YIELDING = [
    _plain_generator,
    _async_generator,
    _Yielding(),
    _Yielding().method,
    functools.partial(_async_generator),
    functools.partial(_Yielding()),
]


@pytest.mark.parametrize("handler", YIELDING)
async def test_a_generator_function_is_refused_before_anything_is_taken(orders: headwater.Queue, handler: Any) -> None:
    """None of its lines would run, and every message would be acked."""
    await orders.push(1)
    with pytest.raises(InvalidOption, match="generator function"):
        await orders.run(handler, idle_seconds=0)
    assert await left(orders) == [(1, 1)]


async def _of_two(first: object, second: object) -> None: ...


def _by_name(*, message: headwater.Message) -> None: ...


@pytest.mark.parametrize("handler", [lambda: 1, _of_two, _by_name, functools.partial(_of_two, 1, 2)])
async def test_a_handler_that_takes_no_message_is_refused_before_anything_is_taken(
    orders: headwater.Queue, handler: Any
) -> None:
    """Every message would fail, and end as a dead letter."""
    await orders.push(1)
    with pytest.raises(InvalidOption, match="called with one argument"):
        await orders.run(handler, idle_seconds=0)
    assert await left(orders) == [(1, 1)]


def test_the_sync_run_refuses_a_handler_that_takes_no_message(tmp_path: Path) -> None:
    with headwater.sync.open(str(tmp_path / "log.db")) as hw:
        hw.queue("orders").push(1)
        with pytest.raises(InvalidOption, match="called with one argument"):
            hw.queue("orders").run(lambda: 1, idle_seconds=0)  # type: ignore[arg-type, misc]
        assert len(hw.queue("orders").pop()) == 1


@pytest.mark.parametrize("handler", [print, functools.partial(max, 1, key=str), lambda *messages: None])
async def test_a_handler_that_can_be_called_with_a_message_is_taken_however_it_says_so(
    orders: headwater.Queue, handler: Any
) -> None:
    await orders.push(1)
    await orders.run(handler, idle_seconds=0)
    assert not await orders.pop()


class _Awaiting:
    """Ways to hand in what is to be awaited."""

    def __init__(self, seen: list[object]) -> None:
        self._seen = seen

    async def __call__(self, message: headwater.Message) -> None:
        await asyncio.sleep(0)
        self._seen.append(message.payload)

    async def hand_on(self, message: headwater.Message) -> Any:
        return self(message)

    def ways(self) -> dict[str, Any]:
        return {
            "object": self,
            "method": self.__call__,
            "partial": functools.partial(self),
            "partial of a method": functools.partial(self.__call__),
            "lambda": lambda message: self(message),
            "not awaited": self.hand_on,
        }


@pytest.mark.parametrize("way", _Awaiting([]).ways())
async def test_what_is_to_be_awaited_is_awaited_before_the_ack(orders: headwater.Queue, way: str) -> None:
    await orders.push_many([1, 2], partition="one")
    seen: list[object] = []
    await orders.run(_Awaiting(seen).ways()[way], idle_seconds=0)
    assert seen == [1, 2]
    assert await lag(orders) == (0, 0)


@pytest.mark.parametrize("generator", [_plain_generator, _async_generator])
@pytest.mark.parametrize("is_async", [False, True], ids=["thread", "async"])
async def test_a_handler_that_returns_a_generator_has_done_nothing_and_fails(
    orders: headwater.Queue, generator: Any, is_async: bool
) -> None:
    async def handle(message: headwater.Message) -> Any:
        return generator(message)

    await orders.push(1)
    await orders.run(handle if is_async else lambda message: generator(message), idle_seconds=0)
    [letter] = await orders.dead_letters()
    assert "returned a generator" in (letter.error or "")


# ── the ways in which it ends ──


class Busy:
    """A handler that has begun and does not end by itself."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended = 0

    async def __call__(self, message: headwater.Message) -> None:
        self.begun.set()
        await self.may_end.wait()
        self.ended += 1


async def start(orders: headwater.Queue, handler: Any, **options: Any) -> "asyncio.Task[None]":
    return asyncio.create_task(orders.run(handler, **options))


async def test_cancelling_a_run_releases_what_it_is_at(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2, 3], partition="one")
    busy = Busy()
    run = await start(orders, busy, batch=2)
    await asyncio.wait_for(busy.begun.wait(), SOON)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await left(orders) == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_a_run_in_good_order(orders: headwater.Queue, number: signal.Signals) -> None:
    """What is worked on is finished and acked, no more is taken, and the handlers of before are back."""
    before = signal.getsignal(number)
    await orders.push_many([1, 2], partition="one")
    busy = Busy()
    run = await start(orders, busy)
    await asyncio.wait_for(busy.begun.wait(), SOON)
    os.kill(os.getpid(), number)
    await asyncio.sleep(0.01)
    assert not run.done()
    busy.may_end.set()
    await asyncio.wait_for(run, SOON)
    assert busy.ended == 1
    assert await left(orders) == [(2, 1)]
    assert signal.getsignal(number) is before


async def test_a_signal_ends_a_run_that_waits(orders: headwater.Queue) -> None:
    run = await start(orders, print, concurrency=3)
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(run, SOON)
    await orders.push(1)
    assert await left(orders) == [(1, 1)]


async def test_the_second_signal_releases_what_is_worked_on(orders: headwater.Queue) -> None:
    await orders.push_many([1, 2], partition="one")
    busy = Busy()
    run = await start(orders, busy)
    await asyncio.wait_for(busy.begun.wait(), SOON)
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.01)
    await asyncio.wait_for(run, SOON)
    assert busy.ended == 0
    assert await left(orders) == [(1, 1), (2, 1)]


async def test_patience_after_a_signal_ends_after_stop_seconds(orders: headwater.Queue) -> None:
    await orders.push(1)
    busy = Busy()
    run = await start(orders, busy, stop_seconds=0.05)
    await asyncio.wait_for(busy.begun.wait(), SOON)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(run, SOON)
    assert await left(orders) == [(1, 1)]


async def test_two_runs_hear_the_same_signal(orders: headwater.Queue) -> None:
    runs = [await start(orders, print, group=group) for group in ("a", "b")]
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(asyncio.gather(*runs), SOON)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("options", [{"stop_on_signals": False}, {}], ids=["not asked", "handled by the program"])
async def test_signals_that_the_program_keeps_are_left_alone(orders: headwater.Queue, options: dict[str, Any]) -> None:
    heard = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, heard.set)
    try:
        run = await start(orders, print, **options)
        await asyncio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(heard.wait(), SOON)
        assert not run.done()
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("in_a_thread", [False, True], ids=["async", "thread"])
async def test_a_handler_that_ends_the_program_releases_its_message(
    orders: headwater.Queue, ending: type[BaseException], in_a_thread: bool
) -> None:
    await orders.push_many([1, 2], partition="one")

    async def handle(message: headwater.Message) -> None:
        raise ending

    def plain(message: headwater.Message) -> None:
        raise ending

    with pytest.raises(ending):
        await orders.run(plain if in_a_thread else handle, concurrency=2)
    assert await left(orders) == [(1, 1), (2, 1)]


class Mishap(BaseException):
    """No `Exception`, and nothing that asyncio knows."""


RAISED = [StopIteration, StopAsyncIteration, GeneratorExit, asyncio.CancelledError, concurrent.futures.CancelledError]
ESCAPING = {GeneratorExit, KeyboardInterrupt, SystemExit, Mishap}


@pytest.mark.parametrize("raised", [*RAISED, KeyboardInterrupt, SystemExit, Mishap])
@pytest.mark.parametrize("in_a_thread", [False, True], ids=["async", "thread"])
async def test_whatever_a_handler_raises_is_heard_of(
    orders: headwater.Queue, raised: type[BaseException], in_a_thread: bool
) -> None:
    """It fails its message and the run goes on; what is no `Exception` releases it and comes out of the run."""
    await orders.push_many([1, 2], partition="one")
    seen: list[object] = []

    def plain(message: headwater.Message) -> None:
        seen.append(message.payload)
        if message.payload == 1:
            raise raised

    async def handle(message: headwater.Message) -> None:
        plain(message)

    run = orders.run(plain if in_a_thread else handle, idle_seconds=0)
    if raised in ESCAPING:
        with pytest.raises(raised):
            async with asyncio.timeout(SOON):
                await run
        assert await left(orders) == [(1, 1), (2, 1)]
    else:
        async with asyncio.timeout(SOON):
            await run
        assert seen == [1, 1, 2]
        assert [letter.offset for letter in await orders.dead_letters()] == [0]
        assert await lag(orders) == (0, 0)


async def test_a_thread_is_waited_for_and_its_message_is_acked(orders: headwater.Queue) -> None:
    """Nobody can stop a thread: two would work on one message."""
    await orders.push_many([1, 2], partition="one")
    begun, may_end = threading.Event(), threading.Event()

    def handle(message: headwater.Message) -> None:
        begun.set()
        assert may_end.wait(SOON)

    run = await start(orders, handle)
    assert await asyncio.to_thread(begun.wait, SOON)
    run.cancel()
    await asyncio.sleep(0.01)
    assert await orders.pop() == []
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await left(orders) == [(2, 1)]


async def test_a_run_survives_a_store_that_does_not_answer_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        await hw.queue("orders").push(1)
        pop, refusals = Queues.pop_batches, iter(range(3))

        async def refuse(self: Queues, *arguments: Any, **options: Any) -> Any:
            if next(refusals, None) is not None:
                raise StoreBusy("another program holds the write lock")
            return await pop(self, *arguments, **options)

        monkeypatch.setattr(Queues, "pop_batches", refuse)
        monkeypatch.setattr(running, "PAUSE_SECONDS", 0.001)
        seen: list[object] = []

        async def handle(message: headwater.Message) -> None:
            seen.append(message.payload)

        await hw.queue("orders").run(handle, idle_seconds=0)
        assert seen == [1]


async def test_a_run_ends_when_its_store_closes(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        await hw.queue("orders").push_many([1, 2], partition="one")
        busy = Busy()
        run = await start(hw.queue("orders"), busy)
        await asyncio.wait_for(busy.begun.wait(), SOON)
    busy.may_end.set()
    with pytest.raises(Closed):
        await asyncio.wait_for(run, SOON)
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        assert await left(hw.queue("orders")) == [(1, 1), (2, 1)]


async def test_a_store_that_is_closed_under_a_thread_is_no_failure_of_its_handler(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def handle(message: headwater.Message) -> None:
        begun.set()
        assert may_end.wait(SOON)

    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        await hw.queue("orders").push(1)
        run = await start(hw.queue("orders"), handle)
        assert await asyncio.to_thread(begun.wait, SOON)
    run.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, SOON)
    told = [record.getMessage() for record in caplog.records]
    assert [line for line in told if "could not be acked, and comes again" in line]
    assert not [line for line in told if "a handler failed" in line]
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        assert await left(hw.queue("orders")) == [(1, 1)]


# ── without async ──


@pytest.fixture(params=["library", "http"])
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with contextlib.ExitStack() as stack:
        if request.param == "library":
            hw = stack.enter_context(headwater.sync.open(str(tmp_path / "headwater.db")))
        else:
            door = LiveDoor(tmp_path / "headwater.db", on_the_edge)
            door.start()
            stack.callback(door.stop)
            hw = stack.enter_context(headwater.sync.connect(door.url))
        hw.queue("orders").configure(retry_delay_seconds=0, retry_limit=0)
        yield hw.queue("orders")


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a run was told to stop: a signal reaches the loop's thread by way of the main thread, later."""
    event = threading.Event()
    stop = Run.stop

    def stop_and_tell(run: Run) -> None:
        stop(run)
        event.set()

    monkeypatch.setattr(Run, "stop", stop_and_tell)
    return event


def test_a_run_without_async_calls_plain_functions_at_once(plain: headwater.sync.Queue) -> None:
    plain.push_many([headwater.Outgoing(payload=number, partition=f"p{number}") for number in range(3)])
    together = threading.Barrier(3, timeout=SOON)

    def handle(message: headwater.sync.Message) -> None:
        together.wait()
        if message.payload == 1:
            raise ValueError("no such customer")
        if message.payload == 2:
            message.ack()

    plain.run(handle, concurrency=3, idle_seconds=0)
    assert [letter.error for letter in plain.dead_letters()] == ["ValueError: no such customer"]
    assert [(group.lag, group.leased) for group in plain.groups()] == [(0, 0)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_without_async_in_good_order(
    plain: headwater.sync.Queue, number: signal.Signals, stopped: threading.Event
) -> None:
    before = signal.getsignal(number)
    plain.push_many([1, 2], partition="one")
    seen: list[object] = []

    def handle(message: headwater.sync.Message) -> None:
        seen.append(message.payload)
        os.kill(os.getpid(), number)
        assert stopped.wait(SOON)

    plain.run(handle)
    assert seen == [1]
    assert [(message.payload, message.attempts) for message in plain.pop()] == [(2, 1)]
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_a_handler_without_async_that_ends_the_program_releases_its_message(
    plain: headwater.sync.Queue, ending: type[BaseException]
) -> None:
    plain.push(1)

    def handle(message: headwater.sync.Message) -> None:
        raise ending

    with pytest.raises(ending):
        plain.run(handle)
    assert [(message.payload, message.attempts) for message in plain.pop(wait=SOON)] == [(1, 1)]


@pytest.mark.parametrize("raised", RAISED)
def test_whatever_a_handler_without_async_raises_fails_its_message(
    plain: headwater.sync.Queue, raised: type[BaseException]
) -> None:
    plain.push_many([1, 2], partition="one")
    seen: list[object] = []

    def handle(message: headwater.sync.Message) -> None:
        seen.append(message.payload)
        if message.payload == 1:
            raise raised

    if raised in ESCAPING:
        with pytest.raises(raised):
            plain.run(handle, idle_seconds=0)
        assert [message.payload for message in plain.pop(wait=SOON)] == [1]
    else:
        plain.run(handle, idle_seconds=0)
        assert seen == [1, 2]
        assert [letter.offset for letter in plain.dead_letters()] == [0]


def test_an_async_function_is_refused_where_there_is_no_async(plain: headwater.sync.Queue) -> None:
    async def handle(message: headwater.sync.Message) -> None:
        """Never called."""

    with pytest.raises(InvalidOption, match="plain function"):
        plain.run(handle)


@pytest.mark.parametrize("handler", YIELDING)
def test_a_generator_function_is_refused_without_async(plain: headwater.sync.Queue, handler: Any) -> None:
    with pytest.raises(InvalidOption, match="generator function"):
        plain.run(handler)


@pytest.mark.parametrize("way", ["lambda", "not awaited", "partial"])
def test_what_is_to_be_awaited_is_not_acked_where_there_is_no_async(plain: headwater.sync.Queue, way: str) -> None:
    plain.push(1)
    if way == "lambda":
        plain.run(_Awaiting([]).ways()[way], idle_seconds=0)
        [letter] = plain.dead_letters()
        assert "plain function" in (letter.error or "")
    else:
        with pytest.raises(InvalidOption, match="plain function"):
            plain.run(_Awaiting([]).ways()[way], idle_seconds=0)
